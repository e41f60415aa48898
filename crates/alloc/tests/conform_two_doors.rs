//! Goal: one program has both a page buffer and objects in pages of their own, in threads that
//! resolve their own faults. Each fault finds its owner. Method: in a program of its own, both are
//! started, and threads go from one memory to the other. All of them have alternate stacks that are
//! large enough for both.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use fulgurite_alloc::{Mode, ObjectAllocator, ObjectSettings};
use fulgurite_backing::Medium;
use fulgurite_fault::{Access, Fault, FaultOutcome, PageBuffer, Settings, Wanted};
use fulgurite_flash::MemoryFlash;
use fulgurite_sys::faults::{self, HandlerStack, SignalStack};
use fulgurite_testkit::{Random, again};

const CHILD: &str = "FULGURITE_TEST_TWO_DOORS";
static BUFFER: OnceLock<PageBuffer> = OnceLock::new();

fn handle_fault(fault: &Fault) -> FaultOutcome {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    BUFFER.get().map_or(FaultOutcome::NotMine, |buffer| buffer.handle_fault(fault))
}
static HANDLED: AtomicU32 = AtomicU32::new(0);

#[test]
fn a_fault_finds_its_owner_among_two() {
    if std::env::var_os(CHILD).is_none() {
        // Threads of other tests have the small stacks of the standard library.
        let status = again(module_path!(), "a_fault_finds_its_owner_among_two").env(CHILD, "1").status().unwrap();
        assert!(status.success(), "{status}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let opened = Medium::new_file(directory.path().join("flash"), 32u64 << 20).open(&Default::default()).unwrap();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    let dram_bytes = resident * 4096 + (48 << 20);
    let notices = Default::default();
    let settings = Settings { opened, dram_bytes, backend: Wanted::InLine, notices, json: false, stats_ms: 0 };
    let buffer = BUFFER.get_or_init(|| PageBuffer::start(&settings).unwrap());
    faults::handle_by(buffer.signal(), handle_fault, HandlerStack::Alternate).unwrap();
    let mut objects = ObjectSettings::new(Medium::new_file("unused", 1 << 30), 6 << 20, 8 << 10);
    (objects.mode, objects.page_buffer_bytes) = (Mode::InLine, Some(1 << 20));
    let flash = MemoryFlash::new(16 * 256).unwrap();
    let allocator = match ObjectAllocator::over(&flash, &objects) {
        Ok(allocator) => allocator,
        Err(error) => return println!("SKIPPED: {error}"),
    };
    let (pages, count) = (4096usize, 4000u32);
    let memory = buffer.map(pages * 4096, None, Access::ReadWrite).unwrap();
    let array = allocator.array(count, 256).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let array = &array;
            scope.spawn(move || {
                SignalStack::new(128 << 10).unwrap().use_here().unwrap();
                let mut random = Random::seeded("two_doors", thread as u64);
                let mut model = vec![(0u64, 0u64); 1000];
                for step in 1..20_000u64 {
                    let index = random.below(model.len() as u64) as usize;
                    let page = (memory + (index * 4 + thread) * 4096) as *mut u64;
                    let object = array.at((index * 4 + thread) as u32).cast::<u64>();
                    // SAFETY: each word is this thread's.
                    unsafe {
                        assert_eq!((page.read_volatile(), object.read()), model[index], "step {step}");
                        model[index] = (step << 8 | thread as u64, !step);
                        page.write_volatile(model[index].0);
                        object.write(model[index].1);
                    }
                }
            });
        }
    });
    assert!(buffer.statistics().summary().faults > 1000 && HANDLED.load(Ordering::Relaxed) > 1000);
    assert!(allocator.summary().faults > 1000, "{:?}", allocator.summary());
}
