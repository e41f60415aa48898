//! Goal: the miss status table is a bounded map with a first-come list of waiters to each entry,
//! however its slots collide. Method: random calls on it and on a `BTreeMap` side by side, with few
//! subpages and small tables, so that runs of slots wrap round the end and entries are removed from
//! their middles.

use std::collections::BTreeMap;

use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_policy::{BeginError, JoinError, MissEntry, MissKind, MissTable, Waiter};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

#[derive(Clone, Debug)]
enum Step {
    Begin(u32, MissKind),
    Join(u32),
    SetKind(u32, MissKind),
    Complete(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let subpage = prop_oneof![4 => 0_u32..12, 1 => Just(u32::MAX), 1 => (0_u32..6).prop_map(|i| i << 28)];
    let kind = prop::sample::select(&[MissKind::Read, MissKind::Write, MissKind::Prefetch][..]);
    (subpage, kind, 0..10_u8).prop_map(|(subpage, kind, which)| match which {
        0..3 => Step::Begin(subpage, kind),
        3..6 => Step::Join(subpage),
        6 => Step::SetKind(subpage, kind),
        _ => Step::Complete(subpage),
    })
}

struct Miss {
    frame: FrameIndex,
    kind: MissKind,
    waiters: Vec<Waiter>,
}

impl Miss {
    fn entry(&self) -> MissEntry {
        MissEntry { frame: self.frame, kind: self.kind, waiters: self.waiters.len() as u32 }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn as_a_map(
        capacity in 1_usize..9,
        waiter_capacity in 0_usize..12,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut table = MissTable::new(capacity, waiter_capacity);
        let mut model: BTreeMap<u32, Miss> = BTreeMap::new();
        let bytes = table.bytes();
        for (n, step) in steps.into_iter().enumerate() {
            let waiting: usize = model.values().map(|m| m.waiters.len()).sum();
            match step {
                Step::Begin(s, kind) => {
                    let (subpage, frame) = (SubpageIndex(s), FrameIndex(n as u32));
                    let expected = match model.get(&s) {
                        Some(miss) => Err(BeginError::Duplicate { subpage, frame: miss.frame }),
                        None if model.len() == capacity => Err(BeginError::Full { capacity }),
                        None => {
                            model.insert(s, Miss { frame, kind, waiters: Vec::new() });
                            Ok(())
                        }
                    };
                    prop_assert_eq!(table.begin(subpage, frame, kind), expected);
                }
                Step::Join(s) => {
                    let waiter = Waiter(n as u64);
                    let expected = match model.get_mut(&s) {
                        None => Err(JoinError::NotMissing { subpage: SubpageIndex(s) }),
                        Some(_) if waiting == waiter_capacity => Err(JoinError::Full { capacity: waiter_capacity }),
                        Some(miss) => {
                            miss.waiters.push(waiter);
                            Ok(())
                        }
                    };
                    prop_assert_eq!(table.join(SubpageIndex(s), waiter), expected);
                }
                Step::SetKind(s, kind) => {
                    let had = model.get_mut(&s).map(|m| std::mem::replace(&mut m.kind, kind));
                    prop_assert_eq!(table.set_kind(SubpageIndex(s), kind), had);
                }
                Step::Complete(s) => {
                    let mut notified = Vec::new();
                    let entry = table.complete(SubpageIndex(s), |w| notified.push(w));
                    let miss = model.remove(&s);
                    prop_assert_eq!(entry, miss.as_ref().map(Miss::entry));
                    prop_assert_eq!(notified, miss.map_or(Vec::new(), |m| m.waiters));
                }
            }
            table.check();
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!(table.is_full(), model.len() == capacity);
            prop_assert_eq!(table.bytes(), bytes);
            for s in (0..12).chain([u32::MAX]).chain((0..6).map(|i| i << 28)) {
                prop_assert_eq!(table.get(SubpageIndex(s)), model.get(&s).map(Miss::entry));
            }
        }
    }
}
