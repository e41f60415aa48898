//! What is specific to x86-64: where a signal's saved registers are.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("fulgurite-fiber: write arch.rs for this processor");

use corosensei::trap::TrapHandlerRegs;

/// The stack pointer at the point where the signal struck.
pub(crate) fn stack_pointer(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
}

/// The instruction at which it struck.
pub(crate) fn instruction_pointer(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

/// Makes the interrupted code continue where `registers` say.
pub(crate) fn redirect(context: &mut libc::ucontext_t, registers: TrapHandlerRegs) {
    let TrapHandlerRegs { rip, rsp, rbp, rdi, rsi } = registers;
    for (which, value) in
        [(libc::REG_RIP, rip), (libc::REG_RSP, rsp), (libc::REG_RBP, rbp), (libc::REG_RDI, rdi), (libc::REG_RSI, rsi)]
    {
        context.uc_mcontext.gregs[which as usize] = value as i64;
    }
}
