//! What is specific to x86-64: the time-stamp counter, the pause hint, a copy that the compiler
//! cannot optimize.
//!
//! A port writes this module again and nothing else.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("fulgurite-sys: write arch.rs for this processor");

/// What the kernel calls this processor family in a call that it shows to a filter:
/// `AUDIT_ARCH_X86_64` of `linux/audit.h`.
pub(crate) const AUDIT: u32 = 0xc000_003e;

/// The time-stamp counter. Monotonic and equal on all cores where the kernel says
/// `constant_tsc nonstop_tsc`.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: RDTSC has no preconditions.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Tells the core that this is a spin loop.
#[inline(always)]
pub fn relax() {
    core::hint::spin_loop();
}

/// Whether this program runs under valgrind, by the sequence of instructions with which a program
/// asks it. On a processor they change nothing.
#[must_use]
pub fn is_under_valgrind() -> bool {
    /// `VG_USERREQ__RUNNING_ON_VALGRIND` (valgrind.h).
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let answer: u64;
    // SAFETY: the rotations add up to 128 bits, and a register is exchanged with itself. Valgrind
    // reads the request, and answers in a register.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0u64 => answer,
            inout("rdi") 0u64 => _,
            options(nostack)
        );
    }
    answer != 0
}

/// Starts loading the cache line at `address` for reading. Never faults, whatever the address.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: PREFETCHT0 is a hint. It does not fault on any address.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast()) }
}

/// Copies `len` bytes with `rep movsb`, which the compiler can neither split, merge nor reason
/// about. What another thread or a device does to the same bytes at the same time can tear the
/// copy, but is not a data race in Rust's sense.
///
/// # Safety
/// Both ranges must be mapped, `to` writable. They must not overlap.
#[inline(always)]
pub unsafe fn copy_opaque(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller vouches for both ranges. The direction flag is clear by the calling
    // convention.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Fills `len` bytes with zero, opaque as [`copy_opaque`].
///
/// # Safety
/// The range must be mapped and writable.
#[inline(always)]
pub unsafe fn zero_opaque(to: *mut u8, len: usize) {
    // SAFETY: the caller vouches for the range. The direction flag is clear by the calling
    // convention.
    unsafe {
        core::arch::asm!(
            "rep stosb",
            inout("rcx") len => _,
            inout("rdi") to => _,
            in("al") 0u8,
            options(nostack, preserves_flags)
        );
    }
}

/// The flag of an action that names where a handler returns to.
pub(crate) const SA_RESTORER: u64 = 0x0400_0000;

/// Where a handler of a signal returns to. Unwinders know a signal's frame by these very bytes.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn signal_return() {
    // The system call `rt_sigreturn`.
    core::arch::naked_asm!(".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00", "syscall")
}

/// Whether the access that a signal is about was a write.
///
/// # Safety
/// The context is the one of a `SIGSEGV` or `SIGBUS`.
pub(crate) unsafe fn was_write(context: *const libc::ucontext_t) -> bool {
    // Bit 1 of the page fault's error code (Intel SDM, volume 3, 4.7).
    // SAFETY: the caller's contract.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0 }
}

/// The stack pointer at the point where a signal struck.
///
/// # Safety
/// The context is a signal's.
pub(crate) unsafe fn stack_pointer(context: *const libc::ucontext_t) -> usize {
    // SAFETY: the caller's contract.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RSP as usize] as usize }
}

/// The stack pointer here. Unlike a local's address it tells which stack runs under
/// AddressSanitizer as well, which keeps locals elsewhere.
#[must_use]
#[inline(always)]
pub fn stack_pointer_here() -> usize {
    let here: usize;
    // SAFETY: it reads a register.
    unsafe { std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
    here
}

/// Bytes below the stack pointer that code may use (System V ABI for AMD64, 3.2.2).
pub(crate) const RED_ZONE: usize = 128;

/// Calls a function on another stack, of which `top` is the end.
///
/// # Safety
/// `top` is a multiple of 16. The memory below it is writable, and not in use. The function may be
/// called with the argument.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on(
    top: usize,
    call: extern "C" fn(*mut libc::c_void),
    argument: *mut libc::c_void,
) {
    // The called function keeps rbp.
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret"
    )
}

/// Makes a system call without the C library. Returns what the kernel does: an error is a negative
/// number.
///
/// # Safety
/// As the system call.
#[inline(always)]
pub unsafe fn system_call(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's contract. The instruction changes two registers in addition to the
    // result.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}
