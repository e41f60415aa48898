//! Copies to and from memory of flash in jobs of a runtime: while a page is read, other jobs of the
//! worker run.
//!
//! A plain access in a job waits with the whole worker where its page is missing, because a fault
//! can interrupt the job at any instruction. The functions here copy by themselves: they hold
//! nothing and call nothing. So they are scopes in which faults switch ([`SwitchOnFault`]), and
//! safe. They take what the job holds of its runtime by `&mut`, as guarded accesses do, which may
//! switch as well.
//!
//! Faults switch in in-line mode only, and with userfaultfd only: where pages are mapped by a
//! handler of `SIGSEGV`, the thread waits. In compatible mode a job waits in the kernel.
//!
//! A handler of another signal that interrupts a copy is in its scope, where it runs on the job's
//! stack. So it must touch no memory of flash, or have an alternate stack (`SA_ONSTACK`).

use std::mem::MaybeUninit;

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::arch::copy_opaque;
use fulgurite_sys::faults::SwitchOnFault;

/// Copies a value out of memory of flash.
#[inline]
pub fn load<T: Copy>(job: &mut impl SwitchOnFault, from: &T) -> T {
    // SAFETY: a reference can be read, and its type may be copied. The read holds nothing. It is
    // volatile, so that it stays in the scope.
    unsafe { job.switch_on_fault(|| std::ptr::from_ref(from).read_volatile()) }
}

/// Copies a value into memory of flash.
#[inline]
pub fn store<T: Copy>(job: &mut impl SwitchOnFault, to: &mut T, value: T) {
    // SAFETY: as in `load`.
    unsafe { job.switch_on_fault(|| std::ptr::from_mut(to).write_volatile(value)) }
}

/// Copies values, from or to memory of flash, or both.
///
/// # Panics
/// When they are not as many as there is room for.
pub fn copy<T: Copy>(job: &mut impl SwitchOnFault, from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "values, and room for them");
    // SAFETY: both are as long, and mapped. Of two references, one of which may change what it
    // leads to, the ranges are different. The copy holds nothing.
    unsafe {
        job.switch_on_fault(|| copy_opaque(from.as_ptr().cast(), to.as_mut_ptr().cast(), size_of_val(from)));
    }
}

/// Touches all pages of some values, so that plain accesses find most of them in DRAM. Any of them
/// may have left again when this returns.
pub fn touch<T: Copy>(job: &mut impl SwitchOnFault, values: &[T]) {
    let (first, bytes) = (values.as_ptr().cast::<MaybeUninit<u8>>(), size_of_val(values));
    let in_page = first.addr() % SUBPAGE_BYTES;
    let others = (SUBPAGE_BYTES - in_page..bytes).step_by(SUBPAGE_BYTES);
    for at in (0..bytes.min(1)).chain(others) {
        // SAFETY: the byte is one of the values, whatever it is. The read holds nothing.
        unsafe { job.switch_on_fault(|| _ = first.add(at).read_volatile()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts its scopes.
    struct Job(u32);
    impl SwitchOnFault for Job {
        unsafe fn switch_on_fault<R>(&mut self, call: impl FnOnce() -> R) -> R {
            self.0 += 1;
            call()
        }
    }

    #[test]
    fn what_is_copied_is_what_was_there() {
        let (mut job, mut values) = (Job(0), vec![0u64; 4000]);
        for (index, value) in values.iter_mut().enumerate() {
            store(&mut job, value, index as u64 + 1);
        }
        assert_eq!((load(&mut job, &values[17]), job.0), (18, 4001));
        let mut copied = [0u64; 3];
        copy(&mut job, &values[100..103], &mut copied);
        assert_eq!(copied, [101, 102, 103]);
        copy(&mut job, &copied[..0], &mut []);
    }
    #[test]
    fn each_page_is_touched_once() {
        let touched = |from: usize, bytes: usize| {
            let (mut job, values) = (Job(0), vec![0u8; 5 * SUBPAGE_BYTES]);
            let first = values.as_ptr().align_offset(SUBPAGE_BYTES);
            touch(&mut job, &values[first + from..first + from + bytes]);
            job.0
        };
        assert_eq!([touched(0, 0), touched(0, 1), touched(0, 4096), touched(0, 4097)], [0, 1, 1, 2]);
        assert_eq!([touched(4095, 1), touched(4095, 2), touched(4095, 4098), touched(1, 4095)], [1, 2, 3, 1]);
    }
}
