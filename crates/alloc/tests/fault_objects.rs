//! Goal: an access to an object that cannot be read, or whose bits changed, is a `SIGBUS` with
//! `BUS_MCEERR_AR`, and never a wrong value. Method: a process of its own fills many more objects
//! than its DRAM holds. Then all reads of its flash fail, or a bit in each sector is flipped, and
//! it reads all of them. What it reads must be right until the signal comes, in both modes. Where
//! the machine gives no userfaultfd, the tests say so. In compatible mode the kernel sends the
//! signal, with `BUS_ADRERR` where it was built without a code for broken memory.

use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use fulgurite_alloc::{Mode, OBJECT_STRIDE, ObjectAllocator, ObjectSettings, StartError};
use fulgurite_backing::Medium;
use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, FlashError, MemoryFlash, Op, When};
use fulgurite_testkit::again;

const COUNT: u32 = 40_000;
const WORDS: usize = 16;
const CHILD: &str = "FULGURITE_TEST_CHILD";
/// What a child ends with: the signal came as it should, or this machine has no userfaultfd.
const FOUND: i32 = 43;
const SKIPPED: i32 = 44;
/// The objects of the child.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// The code that is to come.
static CODE: AtomicI32 = AtomicI32::new(libc::BUS_MCEERR_AR);

/// The program's own handler.
unsafe extern "C" fn on_bus(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes it.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let of_objects = address.wrapping_sub(FIRST.load(Ordering::Relaxed)) < COUNT as usize * OBJECT_STRIDE;
    let status = if code == CODE.load(Ordering::Relaxed) && of_objects { FOUND } else { 1 };
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

fn word(index: u32, word: usize) -> u64 {
    u64::from(index) << 32 | 1 << 10 | word as u64
}

#[test]
fn objects_that_cannot_be_read_are_bus_errors() {
    let name = "objects_that_cannot_be_read_are_bus_errors";
    let Ok(what) = std::env::var(CHILD) else {
        for what in ["compatible fails", "compatible flipped", "in-line fails", "in-line flipped"] {
            let status = again(module_path!(), name).env(CHILD, what).status().unwrap();
            let ended = status.code();
            assert!(matches!(ended, Some(FOUND | SKIPPED)), "{what}: {status}, by signal {:?}", status.signal());
            if ended == Some(SKIPPED) {
                println!("SKIPPED: {what}: no userfaultfd here");
            }
        }
        return;
    };
    // The kernel reports broken memory only where it handles that (CONFIG_MEMORY_FAILURE).
    let handles = std::fs::read_to_string("/proc/meminfo").is_ok_and(|text| text.contains("HardwareCorrupted"));
    if what.starts_with("compatible") && !handles {
        CODE.store(libc::BUS_ADRERR, Ordering::Relaxed);
    }
    // SAFETY: all zeros is an action, and the handler has the type that the flags say.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (on_bus as *const () as usize, libc::SA_SIGINFO);
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, null_mut()), 0);
    }
    let flash = FaultyFlash::new(MemoryFlash::new(16 << 8).unwrap(), FaultPlan::default());
    let mut settings = ObjectSettings::new(Medium::memory("16M"), 6 << 20, COUNT);
    settings.mode = if what.starts_with("in-line") { Mode::InLine } else { Mode::Compatible };
    settings.page_buffer_bytes = Some(1 << 20);
    let allocator = match ObjectAllocator::over(&flash, &settings) {
        Ok(allocator) => allocator,
        Err(StartError::PageBuffer(_)) => std::process::exit(SKIPPED),
        Err(error) => panic!("{error}"),
    };
    let array = allocator.array(COUNT, 8 * WORDS).unwrap();
    FIRST.store(array.at(0).as_ptr() as usize, Ordering::Relaxed);
    for index in 0..COUNT {
        for at in 0..WORDS {
            // SAFETY: the object is this test's, and has room.
            unsafe { array.at(index).cast::<u64>().add(at).write(word(index, at)) };
        }
    }
    allocator.write_back();
    assert!(allocator.summary().bytes_written > 0, "{:?}", allocator.summary());
    if what.ends_with("fails") {
        let fails = Fault::Fails(FlashError::Io(5));
        flash.set_plan(FaultPlan::rule(Some(Op::Read), When::From(1), fails));
    } else {
        let storage = flash.inner().storage();
        let mut byte = [0];
        for at in (0..storage.len()).step_by(512) {
            storage.read(at, &mut byte);
            storage.write(at, &[byte[0] ^ 1]);
        }
    }
    for index in 0..COUNT {
        for at in 0..WORDS {
            // SAFETY: as above.
            let found = unsafe { array.at(index).cast::<u64>().add(at).read_volatile() };
            assert_eq!(found, word(index, at), "word {at} of object {index}, {what}");
        }
    }
    panic!("all objects were read: {what}");
}
