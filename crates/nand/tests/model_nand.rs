//! Goal: whatever is asked of the device, its arrays and buses do one thing at a time, and each
//! request ends exactly once. Requests for a plane reach its array in their order, what breaks a
//! rule of NAND is refused, and the same seed gives the same times.
//! Method: random geometries and requests, with time between them, are compared with a small model
//! of what each block holds. Everything that was busy is noted and compared with everything else
//! that was on the same resource.

use std::collections::BTreeMap;

use fulgurite_nand::{
    Block, Command, Done, Geometry, Nand, NandOp, NandPage, Parts, Plane, Profile, Resource, Span, Status, SubmitError,
    Violation,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

#[derive(Clone, Copy, Debug)]
enum Step {
    Read { block: u32, page: u32, bytes: u32 },
    Program { block: u32 },
    ProgramAt { block: u32, page: u32 },
    Erase { block: u32 },
    Wait { ns: u64 },
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any::<u32>(), any::<u32>(), 1..4096_u32).prop_map(|(block, page, bytes)| Step::Read { block, page, bytes }),
        8 => any::<u32>().prop_map(|block| Step::Program { block }),
        1 => (any::<u32>(), any::<u32>()).prop_map(|(block, page)| Step::ProgramAt { block, page }),
        1 => any::<u32>().prop_map(|block| Step::Erase { block }),
        4 => (0..200_000_u64).prop_map(|ns| Step::Wait { ns }),
        1 => Just(Step::Settle),
    ]
}

fn parts() -> impl Strategy<Value = Parts> {
    (1..4_u32, 1..3_u32, 1..3_u32, 1..3_u32, 1..4_u32, 2..6_u32, 0..3_u32).prop_map(
        |(
            channels,
            packages_per_channel,
            dies_per_package,
            planes_per_die,
            blocks_per_plane,
            pages_per_block,
            page,
        )| Parts {
            channels,
            packages_per_channel,
            dies_per_package,
            planes_per_die,
            blocks_per_plane,
            pages_per_block,
            page_bytes: 4096 << page,
        },
    )
}

/// All that happens on a device.
#[derive(PartialEq, Debug)]
struct History {
    done: Vec<Done>,
    spans: Vec<Span>,
    ops: Vec<NandOp>,
}

fn drive(profile: Profile, depth: usize, steps: &[Step]) -> History {
    let g = profile.geometry;
    let mut nand = Nand::new(profile, depth, 5);
    nand.record_spans(true);
    // Of each block, how many of its pages are programmed.
    let mut next = vec![0; g.blocks() as usize];
    let (mut now, mut history) = (0, History { done: Vec::new(), spans: Vec::new(), ops: Vec::new() });
    let mut violations = 0;
    for step in steps {
        let op = match *step {
            Step::Read { block, page, bytes } => {
                let page = g.page(Block(block % g.blocks()), page % g.pages_per_block());
                NandOp::Read { page, offset: 0, bytes: bytes.min(g.page_bytes()) }
            }
            Step::Program { block } => {
                let block = block % g.blocks();
                NandOp::Program { page: g.page(Block(block), next[block as usize] % g.pages_per_block()) }
            }
            Step::ProgramAt { block, page } => {
                NandOp::Program { page: g.page(Block(block % g.blocks()), page % g.pages_per_block()) }
            }
            Step::Erase { block } => NandOp::Erase { block: Block(block % g.blocks()) },
            Step::Wait { ns } => {
                now += ns;
                nand.advance(now, &mut history.done);
                nand.check();
                continue;
            }
            Step::Settle => {
                while let Some(at) = nand.next_event_ns() {
                    now = at.max(now);
                    nand.advance(now, &mut history.done);
                }
                assert_eq!(nand.in_flight(), 0, "nothing is left when nothing happens any more");
                continue;
            }
        };
        let submit =
            |nand: &mut Nand, now: u64, tag: usize| nand.submit(now, Command { tag: tag as u64, op, reclaim: false });
        let mut taken = submit(&mut nand, now, history.ops.len());
        while taken == Err(SubmitError::Full) {
            now = nand.next_event_ns().expect("a full device has something under way").max(now);
            nand.advance(now, &mut history.done);
            taken = submit(&mut nand, now, history.ops.len());
        }
        let expected = match op {
            NandOp::Program { page } => {
                let (block, index) = (g.block_of(page), g.index_of(page));
                let at = next[block.0 as usize];
                if index < at {
                    Err(SubmitError::Violation(Violation::NotErased { page, block, next: at }))
                } else if index > at {
                    Err(SubmitError::Violation(Violation::OutOfOrder { page, block, next: at }))
                } else {
                    next[block.0 as usize] += 1;
                    Ok(())
                }
            }
            NandOp::Erase { block } => {
                next[block.0 as usize] = 0;
                Ok(())
            }
            NandOp::Read { .. } => Ok(()),
        };
        assert_eq!(taken, expected, "{op:?}");
        violations += u64::from(taken.is_err());
        if taken.is_ok() {
            history.ops.push(op);
        }
        nand.check();
    }
    while let Some(at) = nand.next_event_ns() {
        nand.advance(at, &mut history.done);
    }
    assert_eq!(nand.counters().violations, violations);
    history.spans = nand.take_spans();
    history
}

fn plane_of(g: Geometry, op: NandOp) -> Plane {
    match op {
        NandOp::Read { page, .. } | NandOp::Program { page } => g.plane_of(g.block_of(page)),
        NandOp::Erase { block } => g.plane_of(block),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn one_thing_at_a_time_and_each_once(
        parts in parts(),
        steps in prop::collection::vec(step(), 1..400),
        depth in 1_usize..64,
        die_queue in 1_u32..6,
        registers in 1_u32..3,
        reorder: bool,
        commands_first: bool,
        name in prop::sample::select(&["slc", "tlc", "pcm"][..]),
    ) {
        let mut profile = Profile::built_in(name).unwrap();
        profile.geometry = Geometry::new(parts).unwrap();
        profile.wear.factory_bad = 0.0;
        (profile.ecc.bit_errors_fresh, profile.ecc.bit_errors_worn) = (0.0, 0.0);
        (profile.queues.die_queue, profile.queues.reorder) = (die_queue, reorder);
        (profile.timing.registers, profile.timing.commands_first) = (registers, commands_first);
        let g = profile.geometry;
        let history = drive(profile, depth, &steps);
        let mut tags: Vec<u64> = history.done.iter().map(|d| d.tag).collect();
        tags.sort_unstable();
        prop_assert_eq!(tags, (0..history.ops.len() as u64).collect::<Vec<u64>>(), "each ends once");
        prop_assert!(history.done.is_sorted_by_key(|d| d.done_ns), "in the order of the ends");
        // Nothing overlaps on one resource, and a plane's array follows the order of its requests.
        let mut by_resource: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        for span in &history.spans {
            by_resource.entry(format!("{:?}", span.resource)).or_default().push(*span);
        }
        for spans in by_resource.values_mut() {
            spans.sort_by_key(|s| (s.begin_ns, s.end_ns));
            for pair in spans.windows(2) {
                prop_assert!(pair[0].end_ns <= pair[1].begin_ns, "{pair:?}");
            }
            if let Resource::Array(plane) = spans[0].resource {
                prop_assert!(spans.is_sorted_by_key(|s| s.tag), "plane {plane:?}: {spans:?}");
                prop_assert!(spans.iter().all(|s| plane_of(g, history.ops[s.tag as usize]) == plane));
            }
        }
        // No request is faster than when it is alone.
        let t = profile.timing;
        for done in &history.done {
            let least = match history.ops[done.tag as usize] {
                NandOp::Read { bytes, .. } => t.command_ns + t.read_ns + t.transfer_ns(bytes),
                NandOp::Program { .. } => t.command_ns + t.transfer_ns(g.page_bytes()) + t.program_ns,
                NandOp::Erase { .. } => t.command_ns + t.erase_ns,
            };
            prop_assert!(done.submitted_ns <= done.issued_ns && done.issued_ns + least <= done.done_ns, "{done:?}");
        }
        // A second run gives the same history.
        prop_assert_eq!(history, drive(profile, depth, &steps));
    }
}

#[test]
fn what_is_not_there_is_refused_and_counted() {
    let profile = Profile::built_in("mlc").unwrap().scaled(64 << 20, 4).unwrap();
    let g = profile.geometry;
    let mut nand = Nand::new(profile, 16, 1);
    let read = |page, offset, bytes| NandOp::Read { page, offset, bytes };
    for op in [
        read(NandPage(g.pages()), 0, 1),
        read(NandPage(0), 0, 0),
        read(NandPage(0), 1, g.page_bytes()),
        read(NandPage(0), u32::MAX, u32::MAX),
        NandOp::Program { page: NandPage(u32::MAX) },
        NandOp::Erase { block: Block(g.blocks()) },
    ] {
        let refused = nand.submit(0, Command { tag: 0, op, reclaim: false });
        assert_eq!(refused, Err(SubmitError::Violation(Violation::OutOfRange(op))));
    }
    assert_eq!((nand.counters().violations, nand.next_event_ns()), (6, None));
    // An erased page is empty, and says so.
    nand.submit(0, Command { tag: 7, op: read(NandPage(3), 0, 4096), reclaim: false }).unwrap();
    let mut done = Vec::new();
    nand.advance(u64::MAX / 2, &mut done);
    assert_eq!((done.len(), done[0].status), (1, Status::Empty));
}
