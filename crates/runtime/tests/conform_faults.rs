//! Goal: a job that touches memory of flash in a scope gives its worker to others while the page is
//! read, and finds all as it was. Elsewhere it waits with its worker, and is counted. Method: one
//! worker, a page buffer in in-line mode, and flash whose reads end when the test says so. Several
//! reads are in flight at once only if their jobs do not wait for each other. Registers are filled
//! before an access and read after it. Jobs are cancelled, panic, and meet pages that cannot be
//! read. Where the machine gives no userfaultfd, the tests say so.

use std::arch::asm;
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fulgurite_alloc::{Mode, ObjectAllocator, ObjectSettings, SwitchOnFault, reach};
use fulgurite_backing::{Medium, Opened};
use fulgurite_fault::{Access, Fault, FaultOutcome, PageBuffer, Settings, Summary, Wanted};
use fulgurite_flash::{Fault as Misbehaves, FaultPlan, FaultyFlash, FlashError, MemoryFlash, Op, When};
use fulgurite_format::Address;
use fulgurite_runtime::{AccessError, Context, JobError, Runtime};
use fulgurite_sys::faults::{HandlerStack, handle_by};
use fulgurite_testkit::{Random, again, share};

const PAGE: usize = 4096;
/// Four times what is in DRAM.
const PAGES: usize = 8192;
/// The distance of pages that no read-ahead joins.
const STRIDE: usize = 37;
const PATIENCE: Duration = Duration::from_secs(30);

/// The page buffer of this process. A cap is of the whole process, and a page buffer is for good.
static BUFFER: OnceLock<PageBuffer> = OnceLock::new();
static MEMORY: OnceLock<Memory> = OnceLock::new();

/// Memory of flash, where the first word of each page is its number.
struct Memory {
    buffer: &'static PageBuffer,
    flash: Arc<FaultyFlash<MemoryFlash>>,
    base: usize,
}

fn handle_fault(fault: &Fault) -> FaultOutcome {
    BUFFER.get().map_or(FaultOutcome::NotMine, |buffer| buffer.handle_fault(fault))
}

impl Memory {
    fn new(backend: Wanted) -> Memory {
        let plan = FaultPlan { record: true, ..FaultPlan::default() };
        let flash = Arc::new(FaultyFlash::new(MemoryFlash::new(PAGES as u32 + 64).unwrap(), plan));
        // The medium is memory of this process, too: all of it, from the start.
        let medium = flash.inner().storage();
        (0..medium.len()).step_by(PAGE).for_each(|at| medium.write(at, &[1]));
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let resident: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
        let dram_bytes = resident * PAGE as u64 + (14 << 20);
        let opened = Opened::flat(flash.clone());
        let notices = Arc::default();
        let settings = Settings { opened, dram_bytes, backend, notices, json: false, stats_ms: 0 };
        let buffer = PageBuffer::start(&settings).unwrap();
        let buffer = BUFFER.get_or_init(|| buffer);
        handle_by(buffer.signal(), handle_fault, HandlerStack::Own).unwrap();
        let base = buffer.map(PAGES * PAGE, None, Access::ReadWrite).unwrap();
        for page in 0..PAGES {
            // SAFETY: the word is in what was just mapped.
            unsafe { ((base + page * PAGE) as *mut u64).write(page as u64) };
        }
        Memory { buffer, flash, base }
    }
}

/// What a test has.
struct Setup {
    runtime: Runtime,
    memory: &'static Memory,
    /// Tests that share the memory take turns.
    _turn: MutexGuard<'static, ()>,
}

fn setup(workers: usize) -> Option<Setup> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let own = Arc::new(MemoryFlash::new(4096).unwrap());
    let runtime = Runtime::builder(own).dram(48 << 20).workers(workers).fibers(64).build().unwrap();
    // The stacks of all fibers are in use from now on: memory that grows later takes frames away.
    let jobs: Vec<_> = (0..64 * workers).map(|_| runtime.submit(|m| m.yield_now()).unwrap()).collect();
    jobs.into_iter().for_each(|job| job.wait().unwrap().unwrap());
    let memory = MEMORY.get_or_init(|| Memory::new(Wanted::InLine));
    if !memory.buffer.describe().contains("SIGBUS") {
        eprintln!("skipped: {}", memory.buffer.describe());
        return None;
    }
    // What other tests have had read ahead leaves DRAM.
    for page in (PAGES / 2..PAGES).rev() {
        // SAFETY: the word is mapped for good, and no job runs.
        unsafe { ((memory.base + page * PAGE) as *const u64).read_volatile() };
    }
    Some(Setup { runtime, memory, _turn: turn })
}

impl Setup {
    /// The first words of `COUNT` pages that are not in DRAM now.
    fn missing<const COUNT: usize>(&self) -> [&'static u64; COUNT] {
        let (base, written) = (self.memory.base, self.written());
        let is_missing = |page: &usize| {
            let mut is_there = 0u8;
            // SAFETY: the page is mapped for good.
            let asked = unsafe { libc::mincore((base + page * PAGE) as *mut libc::c_void, PAGE, &raw mut is_there) };
            assert_eq!(asked, 0);
            written[*page] && is_there & 1 == 0
        };
        // The first one holds zeros, and is not on flash.
        let mut pages = (1..PAGES / 2).step_by(STRIDE).filter(is_missing);
        let mut next = || pages.next().expect("most pages are not in DRAM");
        // SAFETY: it was written, is mapped for good, and no job of these tests writes to it.
        std::array::from_fn(|_| unsafe { &*((base + next() * PAGE) as *const u64) })
    }
    /// Which pages were written to flash and not read since. A page that the program does not have
    /// may be in its frame nevertheless, about to leave.
    fn written(&self) -> [bool; PAGES] {
        /// More than can be in flight.
        const LATEST: usize = 1024;
        let (record, mut written) = (self.memory.flash.record(), [false; PAGES]);
        for (at, (op, subpage)) in record.iter().enumerate() {
            let has_ended = at + LATEST < record.len();
            match (op, written.get_mut(subpage.0 as usize)) {
                (Op::Write, Some(written)) if has_ended => *written = true,
                (Op::Read, Some(written)) => *written = false,
                _ => {}
            }
        }
        written
    }
    /// The number of the page that a first word is of.
    fn number(&self, word: &u64) -> u64 {
        ((std::ptr::from_ref(word).addr() - self.memory.base) / PAGE) as u64
    }
    fn summary(&self) -> Summary {
        self.memory.buffer.statistics().summary()
    }
    /// From now on reads of flash stay in flight.
    fn hold_reads(&self) {
        let late = Misbehaves::Late { polls: u32::MAX };
        self.memory.flash.set_plan(FaultPlan { record: true, ..FaultPlan::rule(Some(Op::Read), When::From(1), late) });
    }
    fn reads(&self) -> usize {
        self.memory.flash.record().iter().filter(|(op, _)| *op == Op::Read).count()
    }
    /// Waits until `count` more reads than `before` are in flight, of which none has ended.
    fn wait_for_reads(&self, before: usize, count: usize) {
        until("reads are in flight", || self.reads() - before >= count);
    }
    /// Reads end again, and those in flight.
    fn release(&self) {
        self.memory.flash.set_plan(FaultPlan { record: true, ..FaultPlan::default() });
        self.memory.flash.end_late();
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn faults_of_jobs_of_one_worker_overlap() {
    const JOBS: usize = 32;
    let Some(setup) = setup(1) else { return };
    let (before, reads) = (setup.summary(), setup.reads());
    setup.hold_reads();
    let words = setup.missing::<JOBS>();
    let load = |word: &'static u64| setup.runtime.submit(move |m| reach::load(m, word)).unwrap();
    let jobs = words.map(load);
    setup.wait_for_reads(reads, JOBS);
    // A fault is counted when its read is on its way.
    let switched = || setup.summary().faults_switched - before.faults_switched;
    until("all faults have switched", || switched() == JOBS as u64);
    // The worker runs another job meanwhile, which waits for a page of the same ones.
    assert_eq!(setup.runtime.run(|m| m.yield_now().map(|()| 7)), Ok(7));
    let joined = load(words[0]);
    until("the fault is joined", || switched() == JOBS as u64 + 1);
    assert!(jobs.iter().all(|job| !job.is_finished()) && !joined.is_finished());
    assert_eq!(setup.reads() - reads, JOBS, "it is read once");
    setup.release();
    for (word, job) in words.into_iter().zip(jobs) {
        assert_eq!(job.wait(), Ok(setup.number(word)));
    }
    assert_eq!(joined.wait(), Ok(setup.number(words[0])));
    let after = setup.summary();
    // A page may leave again before its job runs, which waits for it once more.
    assert!(after.faults_switched - before.faults_switched > JOBS as u64, "{after}");
    assert_eq!(after.faults_of_workers, before.faults_of_workers, "no fault held the worker up");
    assert!(after.to_string().contains(&format!("jobs alone for {}", after.faults_switched)), "{after}");
    assert!(after.to_json(1).contains(&format!("\"faults_switched\": {},", after.faults_switched)));
}

#[test]
fn a_fault_outside_of_a_scope_waits_and_is_counted() {
    let Some(setup) = setup(1) else { return };
    let (before, reads) = (setup.summary(), setup.reads());
    setup.hold_reads();
    let [word] = setup.missing();
    let touches = setup.runtime.submit(move |_| *std::hint::black_box(word)).unwrap();
    setup.wait_for_reads(reads, 1);
    let other = setup.runtime.submit(|_| ()).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(!other.is_finished(), "its worker waits");
    setup.release();
    assert_eq!((touches.wait(), other.wait()), (Ok(setup.number(word)), Ok(())));
    let after = setup.summary();
    assert_eq!(after.faults_of_workers - before.faults_of_workers, 1);
    assert_eq!(after.faults_switched, before.faults_switched);
}

#[test]
fn a_scope_ends_with_its_call_and_holds_in_the_call_only() {
    let Some(setup) = setup(1) else { return };
    let before = setup.summary();
    let words @ [first, second, third, fourth] = setup.missing();
    let value = setup.runtime.submit(move |m| {
        // SAFETY: the call holds nothing.
        let first = unsafe { m.switch_on_fault(|| *std::hint::black_box(first)) };
        let second = *std::hint::black_box(second);
        let third = reach::load(m, third);
        first + second + third + *std::hint::black_box(fourth)
    });
    assert_eq!(value.unwrap().wait(), Ok(words.map(|word| setup.number(word)).iter().sum()));
    let after = setup.summary();
    assert_eq!(after.faults_switched - before.faults_switched, 2);
    assert_eq!(after.faults_of_workers - before.faults_of_workers, 2);
}

#[test]
fn a_panic_closes_the_scope_and_does_not_switch() {
    /// Touches memory while it unwinds.
    struct Touches(&'static u64);
    impl Drop for Touches {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            std::hint::black_box(*std::hint::black_box(self.0));
        }
    }
    let Some(setup) = setup(1) else { return };
    let before = setup.summary();
    let [first, second, third] = setup.missing();
    let panics = setup.runtime.submit(move |m| {
        // SAFETY: the call holds nothing.
        unsafe {
            m.switch_on_fault(|| {
                let _touches = Touches(second);
                assert_eq!(*std::hint::black_box(first), u64::MAX, "it is another number");
            });
        }
    });
    assert!(matches!(panics.unwrap().wait(), Err(JobError::Panicked { .. })));
    let after = setup.summary();
    assert_eq!(after.faults_switched - before.faults_switched, 1);
    assert_eq!(after.faults_of_workers - before.faults_of_workers, 1);
    // The fiber has no scope any more.
    let plain = setup.runtime.submit(move |_| *std::hint::black_box(third)).unwrap();
    assert_eq!(plain.wait(), Ok(setup.number(third)));
    assert_eq!(setup.summary().faults_of_workers - before.faults_of_workers, 2);
}

#[test]
fn a_cancelled_job_goes_on_behind_its_access() {
    let Some(setup) = setup(1) else { return };
    let reads = setup.reads();
    setup.hold_reads();
    let [word] = setup.missing();
    let job = setup.runtime.submit(move |m| (reach::load(m, word), m.yield_now())).unwrap();
    setup.wait_for_reads(reads, 1);
    job.cancel();
    std::thread::sleep(Duration::from_millis(5));
    assert!(!job.is_finished());
    setup.release();
    assert_eq!(job.wait(), Ok((setup.number(word), Err(AccessError::Cancelled))));
}

#[test]
fn a_runtime_that_stops_waits_for_faults() {
    let Some(mut setup) = setup(1) else { return };
    let reads = setup.reads();
    setup.hold_reads();
    let [word] = setup.missing();
    let job = setup.runtime.submit(move |m| reach::load(m, word)).unwrap();
    setup.wait_for_reads(reads, 1);
    let another = Runtime::builder(Arc::new(MemoryFlash::new(4096).unwrap())).dram(24 << 20).build().unwrap();
    let stopped = std::mem::replace(&mut setup.runtime, another);
    let stops = std::thread::spawn(move || drop(stopped));
    std::thread::sleep(Duration::from_millis(5));
    assert!(!stops.is_finished());
    setup.release();
    stops.join().unwrap();
    assert_eq!(job.wait(), Ok(setup.number(word)));
}

/// What a job has in registers, and what it finds there behind an access.
#[repr(C)]
#[derive(Clone, Debug, PartialEq)]
struct Registers {
    /// r8 to r15, without rbx.
    general: [u64; 8],
    wide: [[u64; 4]; 16],
    flags: u64,
    control: u32,
    value: u64,
    below_stack: u64,
    /// The control word before.
    usual: u32,
}

/// Carry and direction.
const FLAGS: u64 = 0x401;
/// Rounds to zero, with all exceptions masked.
const CONTROL: u32 = 0x7F80;

/// Fills the registers, accesses a word, and tells what is in them then.
///
/// # Safety
/// The processor has AVX, and the word can be read.
unsafe fn with_full_registers(word: *const u64, number: u64) -> (Registers, Registers) {
    let word_of = |index: usize| number << 32 | index as u64;
    let put = Registers {
        general: std::array::from_fn(word_of),
        wide: std::array::from_fn(|register| std::array::from_fn(|part| word_of(1000 + register * 4 + part))),
        flags: FLAGS,
        control: CONTROL,
        value: 0,
        below_stack: !number,
        usual: 0,
    };
    let mut found = put.clone();
    found.wide.iter_mut().for_each(|register| *register = [0; 4]);
    // SAFETY: both structures have these places. What is changed is declared, and the direction
    // flag and the control word are as they were at the end.
    unsafe {
        asm!(
            "stmxcsr [rdi + {usual}]",
            "ldmxcsr [rsi + {control}]",
            "vmovdqu ymm0, [rsi + {wide}]", "vmovdqu ymm1, [rsi + {wide} + 32]",
            "vmovdqu ymm2, [rsi + {wide} + 64]", "vmovdqu ymm3, [rsi + {wide} + 96]",
            "vmovdqu ymm4, [rsi + {wide} + 128]", "vmovdqu ymm5, [rsi + {wide} + 160]",
            "vmovdqu ymm6, [rsi + {wide} + 192]", "vmovdqu ymm7, [rsi + {wide} + 224]",
            "vmovdqu ymm8, [rsi + {wide} + 256]", "vmovdqu ymm9, [rsi + {wide} + 288]",
            "vmovdqu ymm10, [rsi + {wide} + 320]", "vmovdqu ymm11, [rsi + {wide} + 352]",
            "vmovdqu ymm12, [rsi + {wide} + 384]", "vmovdqu ymm13, [rsi + {wide} + 416]",
            "vmovdqu ymm14, [rsi + {wide} + 448]", "vmovdqu ymm15, [rsi + {wide} + 480]",
            "mov r8, [rsi]", "mov r9, [rsi + 8]", "mov r10, [rsi + 16]", "mov r11, [rsi + 24]",
            "mov r12, [rsi + 32]", "mov r13, [rsi + 40]", "mov r14, [rsi + 48]", "mov r15, [rsi + 56]",
            "mov rcx, [rsi + {below}]",
            "mov [rsp - 64], rcx",
            "std",
            "stc",
            // The fault.
            "mov rax, [rdx]",
            "mov rcx, [rsp - 64]",
            "mov [rdi + {below}], rcx",
            "pushfq",
            "pop rcx",
            "cld",
            "mov [rdi + {flags}], rcx",
            "stmxcsr [rdi + {control}]",
            "ldmxcsr [rdi + {usual}]",
            "mov [rdi + {value}], rax",
            "mov [rdi], r8", "mov [rdi + 8], r9", "mov [rdi + 16], r10", "mov [rdi + 24], r11",
            "mov [rdi + 32], r12", "mov [rdi + 40], r13", "mov [rdi + 48], r14", "mov [rdi + 56], r15",
            "vmovdqu [rdi + {wide}], ymm0", "vmovdqu [rdi + {wide} + 32], ymm1",
            "vmovdqu [rdi + {wide} + 64], ymm2", "vmovdqu [rdi + {wide} + 96], ymm3",
            "vmovdqu [rdi + {wide} + 128], ymm4", "vmovdqu [rdi + {wide} + 160], ymm5",
            "vmovdqu [rdi + {wide} + 192], ymm6", "vmovdqu [rdi + {wide} + 224], ymm7",
            "vmovdqu [rdi + {wide} + 256], ymm8", "vmovdqu [rdi + {wide} + 288], ymm9",
            "vmovdqu [rdi + {wide} + 320], ymm10", "vmovdqu [rdi + {wide} + 352], ymm11",
            "vmovdqu [rdi + {wide} + 384], ymm12", "vmovdqu [rdi + {wide} + 416], ymm13",
            "vmovdqu [rdi + {wide} + 448], ymm14", "vmovdqu [rdi + {wide} + 480], ymm15",
            "vzeroupper",
            usual = const std::mem::offset_of!(Registers, usual),
            wide = const std::mem::offset_of!(Registers, wide),
            flags = const std::mem::offset_of!(Registers, flags),
            control = const std::mem::offset_of!(Registers, control),
            value = const std::mem::offset_of!(Registers, value),
            below = const std::mem::offset_of!(Registers, below_stack),
            in("rsi") &raw const put,
            in("rdi") &raw mut found,
            in("rdx") word,
            out("rax") _, out("rcx") _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        );
    }
    (found.flags, found.usual) = (found.flags & FLAGS, 0);
    (put, found)
}

#[test]
fn registers_and_the_red_zone_survive_a_switch() {
    const JOBS: usize = 16;
    if !std::arch::is_x86_feature_detected!("avx") {
        return eprintln!("skipped: no AVX");
    }
    let Some(setup) = setup(1) else { return };
    let (before, reads) = (setup.summary(), setup.reads());
    setup.hold_reads();
    let words = setup.missing::<JOBS>();
    let jobs = words.map(|word| {
        let number = setup.number(word);
        let call = move |m: &mut Context| {
            // SAFETY: the word is mapped for good, and the call holds nothing.
            let (put, found) = unsafe { m.switch_on_fault(|| with_full_registers(word, number)) };
            assert_eq!(Registers { value: number, ..put }, found);
        };
        setup.runtime.submit(call).unwrap()
    });
    setup.wait_for_reads(reads, JOBS);
    until("all faults have switched", || setup.summary().faults_switched - before.faults_switched == JOBS as u64);
    setup.release();
    jobs.into_iter().for_each(|job| job.wait().unwrap());
}

#[test]
fn jobs_find_what_they_wrote_in_four_times_the_frames() {
    let (jobs, steps) = (48, share(2000));
    for workers in [1, 2] {
        let Some(setup) = setup(workers) else { return };
        let before = setup.summary();
        let base = setup.memory.base;
        let handles: Vec<_> = (0..jobs)
            .map(|job| {
                let code = move |m: &mut Context| {
                    let mut random = Random::seeded("conform_faults", job as u64);
                    // SAFETY: the second words of these pages are this job's.
                    let word = |page: usize| unsafe { &mut *((base + (page * jobs + job) * PAGE + 8) as *mut u64) };
                    let mut model: Vec<u64> = (0..PAGES / jobs).map(|page| reach::load(m, word(page))).collect();
                    for step in 1..=steps {
                        let page = random.below(model.len());
                        let word = word(page);
                        let found = match random.below(16) {
                            // Outside of a scope.
                            0 => *std::hint::black_box(&*word),
                            _ => reach::load(m, word),
                        };
                        assert_eq!(found, model[page], "job {job}, step {step}, page {page}");
                        if random.below(3) == 0 {
                            model[page] = step << 16 | job as u64;
                            reach::store(m, word, model[page]);
                        }
                        // Guarded memory of the runtime is used in addition.
                        m.access(Address::from_linear(random.below(1024u64) * PAGE as u64)).unwrap();
                    }
                };
                setup.runtime.submit(code).unwrap()
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.wait().unwrap());
        let after = setup.summary();
        let (faults, switched) = (after.faults - before.faults, after.faults_switched - before.faults_switched);
        println!("{workers} workers: {faults} faults, {switched} switched, {} waited", after.faults_of_workers);
        // A job has its pages in DRAM after its first steps. Most of its faults are in scopes.
        assert!(faults > PAGES as u64 / 2 && switched > faults / 2, "{before:?}, {after:?}");
        assert_eq!(after.errors, 0, "{before:?}, {after:?}");
        // A page that came is there until its job has used it.
        assert!(faults < 2 * jobs as u64 * steps, "{before:?}, {after:?}");
    }
}

/// Objects that one worker's jobs read at a time: as many threads of the allocator resolve such
/// faults.
const OBJECTS: usize = 8;

#[test]
fn faults_of_objects_overlap() {
    let flash = FaultyFlash::new(MemoryFlash::new(16 << 8).unwrap(), FaultPlan::default());
    let mut settings = ObjectSettings::new(Medium::memory("16M"), 6 << 20, 12 << 10);
    (settings.mode, settings.page_buffer_bytes) = (Mode::InLine, Some(1 << 20));
    let allocator = match ObjectAllocator::over(&flash, &settings) {
        Ok(allocator) => allocator,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let mut values = allocator.values::<[u64; 100]>(10_000).unwrap();
    (0..10_000).for_each(|index| values[index] = [index as u64; 100]);
    allocator.write_back();
    let own = Arc::new(MemoryFlash::new(4096).unwrap());
    let runtime = Runtime::builder(own).dram(48 << 20).build().unwrap();
    let (values, before) = (Arc::new(values), allocator.summary());
    flash.set_plan(FaultPlan {
        record: true,
        ..FaultPlan::rule(Some(Op::Read), When::From(1), Misbehaves::Late { polls: u32::MAX })
    });
    // Some are in the object cache, and some share a page of the log.
    let wanted: Vec<usize> = (0..48).map(|job| job * 199).collect();
    let submit = |index: &usize| {
        let (values, index) = (values.clone(), *index);
        runtime.submit(move |m| reach::load(m, &values[index])).unwrap()
    };
    let jobs: Vec<_> = wanted.iter().map(submit).collect();
    let reads = || flash.record().iter().filter(|(op, _)| *op == Op::Read).count();
    until("reads are in flight", || reads() == OBJECTS);
    assert_eq!(runtime.run(|m| m.yield_now().map(|()| 7)), Ok(7));
    flash.set_plan(FaultPlan::default());
    until("all are read", || {
        flash.end_late();
        jobs.iter().all(|job| job.is_finished())
    });
    for (index, job) in wanted.into_iter().zip(jobs) {
        assert_eq!(job.wait(), Ok([index as u64; 100]));
    }
    let after = allocator.summary();
    let (faults, switched) = (after.faults - before.faults, after.faults_switched - before.faults_switched);
    assert!(switched >= OBJECTS as u64 && after.errors == 0, "{before:?}, {after:?}");
    assert_eq!(after.faults_of_workers - before.faults_of_workers, faults - switched, "those that read nothing");
    assert_eq!(after.reads - before.reads, switched, "{before:?}, {after:?}");
    // Changes switch as well.
    let changes = runtime.submit(move |m| {
        let mut values = Arc::into_inner(values).expect("all other jobs have ended");
        (0..10_000).step_by(7).for_each(|index| reach::store(m, &mut values[index], [index as u64 + 1; 100]));
        (0..10_000).all(|index| reach::load(m, &values[index]) == [(index + usize::from(index % 7 == 0)) as u64; 100])
    });
    assert_eq!(changes.unwrap().wait(), Ok(true));
    assert!(allocator.summary().faults_switched > after.faults_switched + 1000, "{:?}", allocator.summary());
}

const CHILD: &str = "FULGURITE_TEST_FAULTED";
/// How a child ends whose handler found what is documented.
const FOUND: i32 = 43;

/// The program's own handler.
unsafe extern "C" fn on_bus(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes it.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let Some(buffer) = BUFFER.get() else { std::process::abort() };
    let is_found = code == libc::BUS_MCEERR_AR && buffer.contains(address) && address.is_multiple_of(PAGE);
    let is_counted = buffer.statistics().summary().faults_switched == 1;
    // SAFETY: ends the process.
    unsafe { libc::_exit(if is_found && is_counted { FOUND } else { 1 }) }
}

#[test]
fn a_page_that_cannot_be_read_is_a_bus_error_behind_a_switch() {
    let name = "a_page_that_cannot_be_read_is_a_bus_error_behind_a_switch";
    if std::env::var_os(CHILD).is_none() {
        let status = again(module_path!(), name).env(CHILD, "1").status().unwrap();
        assert!(matches!(status.code(), Some(FOUND | 0)), "{status}, by signal {:?}", status.signal());
        return;
    }
    // SAFETY: all zeros is an action, and the handler has the type that the flags say.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (on_bus as *const () as usize, libc::SA_SIGINFO);
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, null_mut()), 0);
    }
    let Some(setup) = setup(1) else { return };
    let fails = Misbehaves::Fails(FlashError::Io(5));
    setup.memory.flash.set_plan(FaultPlan::rule(Some(Op::Read), When::From(1), fails));
    let [word] = setup.missing();
    let ended = setup.runtime.submit(move |m| reach::load(m, word)).unwrap().wait();
    panic!("the access went on: {ended:?}");
}

/// Reads a missing page at each step down its stack, until that ends.
#[inline(never)]
fn read_deeper(base: usize, depth: usize) -> u64 {
    let room = std::hint::black_box([depth as u64; 32]);
    let page = depth * STRIDE % PAGES;
    // SAFETY: the word is mapped for good.
    let found = unsafe { ((base + page * PAGE) as *const u64).read_volatile() };
    assert_eq!(found, page as u64);
    if depth == usize::MAX { found } else { read_deeper(base, depth + 1) + room[depth % 32] }
}

/// Runs only as a child of the next test.
#[test]
#[ignore = "has signals of its own; started by overflows_end_their_jobs_next_to_an_allocator_without_userfaultfd"]
fn overflows_next_to_an_allocator() {
    let is_first = std::env::var_os(RUNTIME_FIRST).is_some();
    let early = (!is_first).then(|| Memory::new(Wanted::Guards));
    let own = Arc::new(MemoryFlash::new(4096).unwrap());
    let runtime = Runtime::builder(own).dram(48 << 20).workers(2).stack(64 << 10).build().unwrap();
    let memory = early.unwrap_or_else(|| Memory::new(Wanted::Guards));
    assert!(memory.buffer.describe().contains("SIGSEGV"), "{}", memory.buffer.describe());
    let base = memory.base;
    let before = memory.buffer.statistics().summary();
    for round in 0..6 {
        let jobs: Vec<_> =
            (0..4).map(|job| runtime.submit(move |_| read_deeper(base, (round * 4 + job) * 999)).unwrap()).collect();
        for job in jobs {
            let ended = job.wait();
            assert!(matches!(ended, Err(JobError::StackOverflow { .. })), "{ended:?}");
        }
        // Scopes do not switch, and others have their faults as well.
        let load = move |page: usize| {
            // SAFETY: the word is mapped for good, and nothing writes to it.
            let word: &'static u64 = unsafe { &*((base + page * PAGE) as *const u64) };
            move |m: &mut Context| Ok(reach::load(m, word))
        };
        for page in (round..PAGES).step_by(97) {
            assert_eq!(runtime.run(load(page)), Ok(page as u64));
        }
        let thread = std::thread::spawn(move || {
            for page in (0..PAGES).step_by(STRIDE) {
                // SAFETY: the word is mapped for good.
                assert_eq!(unsafe { ((base + page * PAGE) as *const u64).read_volatile() }, page as u64);
            }
        });
        thread.join().unwrap();
    }
    let after = memory.buffer.statistics().summary();
    assert_eq!(after.faults_switched, 0);
    assert!(after.faults_of_workers > before.faults_of_workers + 1000, "{after}");
    assert_eq!(runtime.statistics().total().counts.jobs_died, 24);
}

const RUNTIME_FIRST: &str = "FULGURITE_TEST_RUNTIME_FIRST";

#[test]
fn overflows_end_their_jobs_next_to_an_allocator_without_userfaultfd() {
    for is_first in [true, false] {
        let mut child = again(module_path!(), "overflows_next_to_an_allocator");
        if is_first {
            child.env(RUNTIME_FIRST, "1");
        }
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "runtime first: {is_first}, {:?}: {text}", output.status);
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }
}
