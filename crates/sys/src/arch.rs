//! What is specific to x86-64: the time-stamp counter, the pause hint, a copy that the compiler
//! does not look into.
//!
//! A port writes this module again and nothing else.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("fulgurite-sys: write arch.rs for this processor");

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

/// Starts loading the cache line at `address` for reading. Never faults, whatever the address.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: PREFETCHT0 is a hint. It does not fault on any address.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast()) }
}

/// Copies `len` bytes with `rep movsb`, which the compiler can neither split, merge nor reason
/// about: what another thread or a device does to the same bytes at the same time can tear the
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

/// Fills `len` bytes with zero, opaque in the same way as [`copy_opaque`].
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
