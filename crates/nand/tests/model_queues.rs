//! Goal: one busy die blocks requests for all others while only the head of the FTL queue is
//! considered. Longer die queues make that rarer, and requests that may pass it remove it (NVMM,
//! "Nonvolatile Main Memory System Architecture").
//! Method: many requests for one die come together with reads of others. The reads' times are
//! compared.

use fulgurite_nand::{Command, Done, Nand, NandOp, Plane, Profile};

const PLANES: u32 = 16;
const HOT: u32 = 40;

/// Mean time of reads of other dies that come behind `HOT` reads of one die, in nanoseconds, and
/// how often a head was blocked.
fn others(die_queue: u32, reorder: bool) -> (f64, u64) {
    let mut profile = Profile::built_in("mlc").unwrap().scaled(1 << 30, PLANES).unwrap();
    profile.wear.factory_bad = 0.0;
    (profile.ecc.bit_errors_fresh, profile.ecc.bit_errors_worn) = (0.0, 0.0);
    (profile.queues.die_queue, profile.queues.reorder) = (die_queue, reorder);
    let g = profile.geometry;
    let mut nand = Nand::new(profile, 4096, 1);
    let mut done: Vec<Done> = Vec::new();
    for plane in 0..PLANES {
        let page = g.page(g.block(Plane(plane), 0), 0);
        nand.submit(0, Command { tag: 0, op: NandOp::Program { page }, reclaim: false }).unwrap();
    }
    let begin = 10_000_000;
    nand.advance(begin, &mut done);
    assert_eq!(done.len(), PLANES as usize);
    done.clear();
    let mut read = |tag, plane| {
        let page = g.page(g.block(Plane(plane), 0), 0);
        let op = NandOp::Read { page, offset: 0, bytes: 4096 };
        nand.submit(begin, Command { tag, op, reclaim: false }).unwrap();
    };
    (0..HOT).for_each(|_| read(0, 0));
    // Planes of other dies.
    let cold: Vec<u32> = (1..PLANES).filter(|plane| g.die_of(Plane(*plane)) != g.die_of(Plane(0))).collect();
    cold.iter().for_each(|plane| read(1, *plane));
    nand.advance(u64::MAX / 2, &mut done);
    let waited: Vec<u64> = done.iter().filter(|d| d.tag == 1).map(|d| d.done_ns - d.submitted_ns).collect();
    assert_eq!(waited.len(), cold.len());
    let c = nand.counters();
    assert_eq!(c.read_ftl_queue_ns > 0, c.head_blocked > 0 || reorder);
    (waited.iter().sum::<u64>() as f64 / waited.len() as f64, c.head_blocked)
}

#[test]
fn a_busy_die_blocks_all_others_unless_they_may_pass() {
    let alone = 62_000.0;
    let (blocked, heads) = others(4, false);
    // Before them, 40 - 4 reads of 50 µs must have begun.
    assert!(heads > 0 && blocked > 30.0 * 50_000.0, "{blocked} ns, {heads} heads blocked");
    let (longer, _) = others(32, false);
    assert!(longer < 0.4 * blocked, "{longer} ns with long queues, {blocked} with short ones");
    let (longest, heads) = others(64, false);
    assert_eq!(heads, 0, "all fit");
    let (passing, _) = others(4, true);
    for free in [longest, passing] {
        assert!(free < 2.0 * alone, "{free} ns where nothing is in the way");
    }
}
