//! Goal: what one core does to a block costs another core what the paths between their tiles say,
//! and no core reads what another one has overwritten. Method: closed forms to the picosecond,
//! random accesses compared with a model of versions, whole runs, and bugs that are planted.

use fulgurite_sim::cores::{Asked, Chip, Coherence, CoreParts, CoresReport, L1LookUp};
use fulgurite_sim::{Planted, Random, Time};

use crate::common::cores;

/// From the home of a block to DRAM and to the core.
const DRAM: Time = Time::ns(90);

fn parts(set: &[(&str, &str)]) -> CoreParts {
    cores(set).parts
}
/// When a core has a block that it asks for at `at`.
fn access(chip: &mut Chip, core: u32, block: u64, writes: bool, at: Time) -> Time {
    let asked = match chip.look_up(core, block, writes, at) {
        L1LookUp::Has(at) => return at,
        L1LookUp::Home(at) => chip.asks(core, block, writes, at),
    };
    match asked {
        Asked::Has(at) => at,
        Asked::Leaves { at, acknowledged } => chip.comes(core, block, writes, at, (at + DRAM).max(acknowledged)),
    }
}
fn is(what: &str, ours: Time, theory: Time) -> Result<(), String> {
    if ours == theory { Ok(()) } else { Err(format!("{what}: {ours} and not {theory}")) }
}

/// Sixteen tiles in four rows, and what the parts of a path take.
struct Sixteen {
    chip: Chip,
    l1: Time,
    lookup: Time,
    llc: Time,
}
impl Sixteen {
    /// Messages wait for no link.
    fn new(planted: Planted) -> Sixteen {
        Sixteen::with("0B", planted)
    }
    /// Links carry this number of bytes in a cycle.
    fn with(link: &str, planted: Planted) -> Sixteen {
        let parts = parts(&[("mesh.row", "4"), ("mesh.link", link), ("directory.lookup", "5")]);
        let cycles = |cycles: u64| parts.cycle * cycles;
        let (l1, lookup, llc) = (cycles(2), cycles(5), cycles(6));
        Sixteen { chip: Chip::new(&parts, 16, false, planted), l1, lookup, llc }
    }
    /// From a core's access until the home of a block knows its holders.
    fn asks(&self, core: u32, block: u64) -> Time {
        self.l1 + self.chip.path_time(core, self.chip.home(block)) + self.lookup
    }
    /// From then until another core's answer is at the core.
    fn answers(&self, core: u32, block: u64, other: u32) -> Time {
        self.chip.path_time(self.chip.home(block), other) + self.l1 + self.chip.path_time(other, core)
    }
}

/// A block that two cores write in turn, wherever it is at home.
fn ping_pong(planted: Planted) -> Result<(), String> {
    let mut all = Sixteen::new(planted);
    for block in 0..32 {
        let mut at = access(&mut all.chip, 2, block, true, Time::ZERO);
        for turn in 0..10 {
            let (core, other) = if turn % 2 == 0 { (13, 2) } else { (2, 13) };
            let has = access(&mut all.chip, core, block, true, at);
            is("ping pong", has - at, all.asks(core, block) + all.answers(core, block, other))?;
            at = has;
        }
    }
    let Coherence { forwards, invalidations } = all.chip.counted();
    if (forwards, invalidations) == (320, 320) { Ok(()) } else { Err(format!("{:?}", all.chip.counted())) }
}
/// A block that one core writes and another one reads.
fn producer(planted: Planted) -> Result<(), String> {
    let mut all = Sixteen::new(planted);
    let (block, writer, reader) = (77, 4, 11);
    let mut at = access(&mut all.chip, writer, block, true, Time::ZERO);
    for _ in 0..10 {
        let read = access(&mut all.chip, reader, block, false, at);
        is("read", read - at, all.asks(reader, block) + all.answers(reader, block, writer))?;
        // Both share it, so that the writer asks again.
        let wrote = access(&mut all.chip, writer, block, true, read);
        is("write", wrote - read, all.asks(writer, block) + all.answers(writer, block, reader))?;
        at = access(&mut all.chip, writer, block, true, wrote);
        is("again", at - wrote, all.l1)?;
    }
    Ok(())
}
/// A block that all cores share and one writes: the furthest acknowledgement decides.
fn furthest(planted: Planted) -> Result<(), String> {
    let mut all = Sixteen::new(planted);
    for (block, writer) in (100..116).zip(0..16) {
        let mut at = Time::ZERO;
        (0..16).for_each(|core| at = access(&mut all.chip, core, block, false, at));
        let before = all.chip.counted();
        let wrote = access(&mut all.chip, writer, block, true, at);
        let furthest = (0..16).filter(|core| *core != writer).map(|core| all.answers(writer, block, core)).max();
        is("furthest", wrote - at, all.asks(writer, block) + furthest.unwrap())?;
        let dropped = all.chip.counted().invalidations - before.invalidations;
        if dropped != 15 {
            return Err(format!("{dropped} copies were dropped"));
        }
    }
    Ok(())
}

/// Two blocks of one home come to a core over the same links: the second one is behind the first.
fn one_link(planted: Planted) -> Result<(), String> {
    let mut all = Sixteen::with("16B", planted);
    let home = all.chip.home(1);
    let other = (2..).find(|block| all.chip.home(*block) == home).expect("some block has the same home");
    let core = (home + 5) % 16;
    // The LLC has both, and no other L1 has one for itself.
    for (block, at) in [(1, Time::us(1)), (other, Time::us(2))] {
        let first = access(&mut all.chip, (home + 6) % 16, block, false, at);
        access(&mut all.chip, (home + 7) % 16, block, false, first);
    }
    let at = Time::us(10);
    let came = [1, other].map(|block| access(&mut all.chip, core, block, false, at));
    let alone = all.asks(core, 1) + all.llc + all.chip.path_time(home, core);
    is("the first block", came[0] - at, alone)?;
    // 72 bytes over links of 16 bytes a cycle.
    is("the second block", came[1] - came[0], parts(&[]).cycle * 5)
}

type Form = fn(Planted) -> Result<(), String>;
const FORMS: [Form; 4] = [ping_pong, producer, furthest, one_link];

#[test]
fn closed_forms_hold() {
    let failed: Vec<String> = FORMS.iter().filter_map(|form| form(Planted::None).err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
#[test]
fn planted_bugs_are_found() {
    for bug in [Planted::ForgottenInvalidation, Planted::FreeAcknowledgement, Planted::FreeLinks] {
        assert!(FORMS.iter().any(|form| form(bug).is_err()), "{bug:?} was not found");
    }
    let stale = std::panic::catch_unwind(|| versions(Planted::ForgottenInvalidation));
    assert!(stale.is_err(), "ForgottenInvalidation was not found");
}
#[test]
fn links_are_busy_with_what_crosses_them() {
    let mut all = Sixteen::with("16B", Planted::None);
    let (cycle, span, hop) = (parts(&[]).cycle, Time::us(1), all.chip.path_time(0, 1));
    for block in 0..32 {
        all.chip.clear();
        access(&mut all.chip, 2, block, false, Time::us(10 * block));
        access(&mut all.chip, 13, block, false, Time::us(10 * block + 1));
        assert_eq!(all.chip.links_wait_ns(), Some(0.0));
        let home = all.chip.home(block);
        let hops = |from, to| all.chip.path_time(from, to).0 / hop.0;
        // Three messages of an address, and 72 bytes over links of 16 bytes. 48 links.
        let cycles = hops(2, home) + hops(13, home) + hops(home, 2) + 5 * hops(2, 13);
        let busy = (cycle * cycles).as_s() / (48.0 * span.as_s());
        let ours = all.chip.links_busy(span).unwrap();
        assert!((ours / busy - 1.0).abs() < 1e-9, "{block}: {ours} and not {busy}");
    }
    // Their share is small where they are as wide as on the paper's chip.
    let narrow = |link| cores(&[("mesh.link", link)]).run(1).unwrap();
    let (usual, one) = (narrow("16B").links_busy.unwrap(), narrow("1B").links_busy.unwrap());
    assert!(usual > 0.0 && one > 8.0 * usual && one < 16.0 * usual, "{usual} {one}");
}
#[test]
fn reading_what_others_read_asks_no_one() {
    let mut all = Sixteen::new(Planted::None);
    let block = 5;
    let mut at = access(&mut all.chip, 0, block, false, Time::ZERO);
    // The first one had it for itself, and might have written.
    let second = access(&mut all.chip, 9, block, false, at);
    is("second", second - at, all.asks(9, block) + all.answers(9, block, 0)).unwrap();
    at = second;
    for core in [3, 6, 15] {
        let has = access(&mut all.chip, core, block, false, at);
        let way = all.chip.path_time(all.chip.home(block), core);
        is("from the LLC", has - at, all.asks(core, block) + all.llc + way).unwrap();
        at = has;
    }
    for core in [0, 9, 3, 6, 15] {
        is("hit", access(&mut all.chip, core, block, false, at) - at, all.l1).unwrap();
    }
    assert_eq!(all.chip.counted(), Coherence { forwards: 1, invalidations: 0 });
    all.chip.check();
}
#[test]
fn a_holder_forwards_what_it_has_and_not_before() {
    let mut all = Sixteen::new(Planted::None);
    let block = 9;
    let first = access(&mut all.chip, 0, block, true, Time::ZERO);
    // Another core asks at once, while the block is on its way from DRAM.
    let second = access(&mut all.chip, 1, block, true, Time::ZERO);
    is("second", second, first + all.answers(1, block, 0)).unwrap();
    let split = all.chip.stages().unwrap();
    let whole = second - all.l1;
    assert!((split.mean_ns - whole.as_ns()).abs() < 1e-6, "{split:?}");
    all.chip.check();
    // Now the LLC sends it, because the L1 of the first core has dropped each block.
    let mut late = 0;
    for block in 16..32 {
        let at = Time::us(10 * block);
        (0..5).for_each(|turn| _ = access(&mut all.chip, 0, block + turn * 256, false, at));
        let at = at + Time::us(5);
        let first = access(&mut all.chip, 0, block, false, at);
        let way = all.chip.path_time(all.chip.home(block), 0);
        is("of the LLC", first - at, all.asks(0, block) + all.llc + way).unwrap();
        let begins = first.max(at + all.asks(1, block));
        late += u32::from(begins == first);
        let second = access(&mut all.chip, 1, block, false, at);
        is("second of the LLC", second, begins + all.answers(1, block, 0)).unwrap();
    }
    assert_eq!(late, 16, "the LLC's answer takes longer than another core's question");
    all.chip.check();
}
#[test]
fn what_the_llc_has_not_yet_comes_no_earlier() {
    // The block comes from DRAM for one core, which has dropped it from its L1 meanwhile.
    let mut all = Sixteen::new(Planted::None);
    let block = 40;
    let first = access(&mut all.chip, 0, block, false, Time::ZERO);
    (1..5).for_each(|turn| _ = access(&mut all.chip, 0, block + turn * 256, false, Time::ZERO));
    let back = all.chip.path_time(all.chip.home(block), 7);
    is("DRAM", access(&mut all.chip, 7, block, false, Time::ns(1)), first + back).unwrap();
    // What an owner has written comes from the LLC once it is there.
    let (block, owner, at) = (41, 2, Time::us(1));
    let wrote = access(&mut all.chip, owner, block, true, at);
    access(&mut all.chip, 8, block, false, wrote);
    let home = all.chip.home(block);
    let written = wrote + all.asks(8, block) + all.answers(home, block, owner);
    let third = access(&mut all.chip, 9, block, false, wrote);
    let theory = written.max(wrote + all.asks(9, block) + all.llc) + all.chip.path_time(home, 9);
    is("written", third, theory).unwrap();
    all.chip.check();
}
#[test]
fn a_block_on_its_way_is_late_for_its_own_core() {
    let mut all = Sixteen::new(Planted::None);
    let (core, block, next) = (3, 21, 22);
    let alone = |block: u64, chip: &Chip| {
        let home = chip.home(block);
        all.l1 + chip.path_time(core, home) + all.lookup + all.llc + DRAM
    };
    let (first, then) = (alone(block, &all.chip), alone(next, &all.chip));
    is("first", access(&mut all.chip, core, block, false, Time::ZERO), first).unwrap();
    // Both loads and the store of one block cost one access to DRAM.
    let second = access(&mut all.chip, core, block, false, Time::ns(1));
    is("second", second, first).unwrap();
    is("store", access(&mut all.chip, core, block, true, Time::ns(2)), first).unwrap();
    // What depends on the second one begins when the block is there: two accesses in a row.
    is("dependent", access(&mut all.chip, core, next, false, second), first + then).unwrap();
    // What comes after that is an L1's hit: from just before on, too.
    let just = Time(first.0 - all.l1.0);
    is("hit", access(&mut all.chip, core, block, false, first), first + all.l1).unwrap();
    is("just", access(&mut all.chip, core, block, false, just), first).unwrap();
    // The LLC is nearer, and not at once either: two cores share the block, and a third asks.
    access(&mut all.chip, 9, block, false, Time::us(1));
    let third = access(&mut all.chip, 14, block, false, Time::us(2));
    assert!(third > Time::us(2) + all.l1);
    is("of the LLC", access(&mut all.chip, 14, block, false, Time::us(2)), third).unwrap();
    all.chip.check();
}
#[test]
fn what_the_llc_drops_stays_in_the_l1() {
    let parts = parts(&[("llc.size", "1K"), ("llc.ways", "1"), ("mesh.link", "0B")]);
    let mut chip = Chip::new(&parts, 2, false, Planted::None);
    let mut at = access(&mut chip, 0, 0, false, Time::ZERO);
    at = access(&mut chip, 1, 0, false, at);
    // A block of the same set of the LLC, which has 32, and of another one of the L1.
    at = access(&mut chip, 0, 32, false, at);
    let l1 = parts.cycle * 2;
    for core in [0, 1] {
        is("hit", access(&mut chip, core, 0, false, at) - at, l1).unwrap();
    }
    chip.check();
    // What the L1s share and the LLC has dropped comes from DRAM for a third core.
    let mut chip = Chip::new(&parts, 3, false, Planted::None);
    for (core, block) in [(0, 0), (1, 0), (0, 48), (0, 96), (0, 144)] {
        access(&mut chip, core, block, false, Time::ZERO);
    }
    let at = Time::us(1);
    let home = chip.home(0);
    let way = chip.path_time(2, home);
    let looked_up = l1 + way + parts.cycle * 2;
    chip.clear();
    is("DRAM", access(&mut chip, 2, 0, true, at) - at, looked_up + parts.cycle * 6 + DRAM).unwrap();
    assert_eq!(chip.counted().invalidations, 2);
    // The last acknowledgement, and what DRAM takes after that.
    let holders =
        [0, 1].map(|other| chip.path_time(home, other) + l1 + chip.path_time(other, 2)).into_iter().max().unwrap();
    stages_are(&chip, [way, parts.cycle * 2, Time::ZERO, holders, parts.cycle * 6 + DRAM - holders]);
    chip.check();
}
/// The means of a chip's stages, of which one access was recorded.
fn stages_are(chip: &Chip, theory: [Time; 5]) {
    let split = chip.stages().unwrap();
    for (stage, theory) in split.stages.iter().zip(theory) {
        assert!((stage.mean_ns - theory.as_ns()).abs() < 1e-6, "{}: {} and not {theory}", stage.name, stage.mean_ns);
    }
}
#[test]
fn the_faster_of_two_that_asked_dram_gives_the_block() {
    let mut all = Sixteen::new(Planted::None);
    let block = 50;
    // Both find no other core, and nothing in the LLC.
    let leaves = |chip: &mut Chip, core, writes| {
        let L1LookUp::Home(home) = chip.look_up(core, block, writes, Time::ZERO) else { panic!("it has the block") };
        let Asked::Leaves { at, acknowledged } = chip.asks(core, block, writes, home) else { panic!("it was found") };
        assert_eq!(acknowledged, Time::ZERO);
        at
    };
    let (one, other) = (leaves(&mut all.chip, 0, true), leaves(&mut all.chip, 15, true));
    let now = one.max(other);
    let first = all.chip.comes(0, block, true, now, now + DRAM);
    assert_eq!((first, all.chip.stages()), (now + DRAM, None));
    let second = all.chip.comes(15, block, true, now, now + Time::ns(1));
    is("second", second, first + all.answers(15, block, 0)).unwrap();
    let way = all.chip.path_time(15, all.chip.home(block));
    let rest = now - (all.l1 + way + all.lookup);
    stages_are(&all.chip, [way, all.lookup, first - now, second - first, rest]);
    all.chip.check();
}
#[test]
fn a_page_that_is_not_there_is_split_elsewhere() {
    let mut all = Sixteen::new(Planted::None);
    let block = 60;
    let L1LookUp::Home(at) = all.chip.look_up(1, block, false, Time::ZERO) else { panic!("it has the block") };
    let Asked::Leaves { at, .. } = all.chip.asks(1, block, false, at) else { panic!("it was found") };
    all.chip.lacks(1);
    // Another core has it by the time at which the page has come.
    let there = access(&mut all.chip, 2, block, false, Time::ZERO);
    all.chip.comes(1, block, false, there.max(at), there.max(at) + DRAM);
    assert_eq!((all.chip.counted().forwards, all.chip.stages()), (1, None));
}

/// A core that is alone, next to caches that know no other.
#[test]
fn one_core_pays_for_the_look_up_only() {
    for lookup in [0u64, 7] {
        let text = lookup.to_string();
        let set = [("l1.size", "2K"), ("llc.size", "8K"), ("directory.lookup", &*text)];
        let parts = parts(&set);
        let mut chip = Chip::new(&parts, 1, false, Planted::None);
        // The blocks of each set, the latest first.
        let touch = |sets: &mut Vec<Vec<u64>>, ways: usize, block: u64| {
            let at = block as usize % sets.len();
            let found = sets[at].iter().position(|other| *other == block);
            if let Some(place) = found {
                sets[at].remove(place);
            }
            sets[at].insert(0, block);
            sets[at].truncate(ways);
            found.is_some()
        };
        let (mut l1, mut llc) = (vec![Vec::new(); 8], vec![Vec::new(); 8]);
        let mut random = Random::new(3, 0);
        for turn in 0..20_000 {
            let (block, writes) = (random.below(300), random.below(3) == 0);
            let mut theory = parts.cycle * 2;
            if !touch(&mut l1, 4, block) {
                theory += parts.cycle * (lookup + 6);
                if !touch(&mut llc, 16, block) {
                    theory += DRAM;
                }
            }
            // Long enough after the last one that nothing is on its way.
            let ours = access(&mut chip, 0, block, writes, Time::us(turn));
            is("one core", ours - Time::us(turn), theory).unwrap();
        }
        assert_eq!((chip.counted(), chip.stages()), (Coherence::default(), None));
        chip.check();
    }
}

/// The blocks of [`versions`].
const BLOCKS: u64 = 24;

/// Random accesses of some cores with small L1s. An L1 that answers has the last version.
fn versions(planted: Planted) {
    let parts = parts(&[("l1.size", "1K"), ("llc.size", "1K")]);
    let count = 5;
    let mut chip = Chip::new(&parts, count, false, planted);
    let mut random = Random::new(11, 0);
    let mut last = [0u64; BLOCKS as usize];
    let mut copies = [[0u64; BLOCKS as usize]; 5];
    let (mut hits, mut at) = (0, Time::ZERO);
    for turn in 1..=20_000 {
        let (core, block) = (random.below(u64::from(count)) as u32, random.below(BLOCKS));
        let writes = random.below(4) == 0;
        let has = access(&mut chip, core, block, writes, at);
        let (latest, copy) = (&mut last[block as usize], &mut copies[core as usize][block as usize]);
        if has - at == parts.cycle * 2 {
            hits += 1;
            assert_eq!(copy, latest, "core {core} reads an old version of block {block}");
        }
        if writes {
            *latest = turn;
        }
        *copy = *latest;
        // Some begin while others are under way.
        at = if random.below(3) == 0 { has } else { at + Time(1) };
        if planted == Planted::None && turn % 100 == 0 {
            chip.check();
        }
    }
    assert!(hits > 1_000 && chip.counted().forwards > 1_000, "{hits} {:?}", chip.counted());
}
#[test]
fn no_core_reads_an_old_version() {
    versions(Planted::None);
}

fn run(set: &[(&str, &str)]) -> CoresReport {
    cores(&[&[("system.paging", "dram-only"), ("workload.data", "4M")], set].concat()).run(1).unwrap()
}
#[test]
fn threads_of_all_cores_share_records() {
    let two = run(&[]);
    assert!(two.forwards > 1000 && two.invalidations > 1000, "{} {}", two.forwards, two.invalidations);
    let split = two.coherence_stages.as_ref().unwrap();
    let sum: f64 = split.stages.iter().map(|stage| stage.mean_ns).sum();
    assert!((sum / split.mean_ns - 1.0).abs() < 1e-9 && sum > 3.0 && sum < 100.0, "{split:?}");
    // The more cores have a block, the more copies of it are dropped.
    let eight = run(&[("system.cores", "8"), ("mesh.row", "4")]);
    let each = |report: &CoresReport| report.invalidations as f64 / report.forwards as f64;
    assert!(each(&eight) > each(&two), "{} {}", each(&eight), each(&two));
    let one = run(&[("system.cores", "1")]);
    assert_eq!((one.forwards, one.invalidations, one.coherence_stages), (0, 0, None));
}
#[test]
fn a_slow_directory_is_seen() {
    let with = |lookup| run(&[("system.cores", "1"), ("directory.lookup", lookup)]).jobs_per_s;
    let (none, slow) = (with("0"), with("40"));
    assert!(none > slow * 1.01, "{none} {slow}");
}
