//! What the object-per-page allocator itself costs, without flash: the table of SSDAlloc's
//! overheads, compared with the same primitives of the kernel alone.
//!
//! All objects are in the object cache, and each is touched when its page has left. So every touch
//! is a fault that reads no flash. The bare primitives are a signal, a page moved out, a page moved
//! in, and the bytes of an object copied in each direction.

use std::hint::black_box;

use anyhow::{Result, anyhow, ensure};
use fulgurite_alloc::{Mode, ObjectAllocator, ObjectSettings, ObjectValues};
use fulgurite_backing::Medium;
use fulgurite_fault::Fingerprints;
use fulgurite_objects::Cache;
use fulgurite_sys::{Arena, Backed};
use serde::{Deserialize, Serialize};

use super::bare::{Bare, Content, OBJECT_BYTES, PAGE_BYTES, PAGES, PLACES, REPEATS, WORDS, repeated};
use fulgurite_harness::Spread;
use fulgurite_term::report::table::{Columns, number, or_dash};

/// Objects, which all fit into the object cache.
const OBJECTS: usize = PLACES;
/// Signals of an access that resolve nothing.
const EXTRA_SIGNALS: usize = 8;
const DRAM_BYTES: u64 = 32 << 20;
/// Bytes of the file that it needs.
pub const FILE_BYTES: u64 = 64 << 20;

/// What one thing costs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cost {
    pub what: String,
    pub ns: Spread,
    /// SSDAlloc's figure, on a processor of 2010.
    pub paper_ns: Option<f64>,
    /// As a multiple of the same primitives alone.
    pub ratio_to_bare: Option<f64>,
}

type Record = [u64; WORDS];

/// Measures, in a process of its own: it handles `SIGBUS` from then on.
///
/// # Errors
/// When there is no userfaultfd for this user, or no file.
pub fn measure(file: &std::path::Path) -> Result<Vec<Cost>> {
    let settings = ObjectSettings {
        mode: Mode::InLine,
        page_buffer_bytes: Some((PAGES * 7 * PAGE_BYTES) as u64),
        ..ObjectSettings::new(Medium::new_file(file, FILE_BYTES), DRAM_BYTES, 1 << 16)
    };
    let objects = ObjectAllocator::start(&settings)?;
    let mut records: ObjectValues<Record> =
        objects.values(OBJECTS as u32).ok_or_else(|| anyhow!("no room for objects"))?;
    let bare = Bare::start(Content::Object)?;
    let mut costs = Vec::new();
    let mut cost = |what: &str, paper_us: f64, ns: Spread| {
        let paper_ns = Some(paper_us * 1000.0).filter(|ns| *ns > 0.0);
        costs.push(Cost { what: what.to_owned(), ns, paper_ns, ratio_to_bare: None });
        ns.median
    };

    let resident = repeated(OBJECTS, |at| {
        black_box(records[at % 8][0]);
    });
    cost("object with a page", 0.014, resident);
    let looked_up = cost("object table and cache", 0.046, lookups()?);
    let (moved_in, moved_out) = bare.moves()?;
    let compared = fingerprints()?;
    cost("fingerprint of an object", 0.0, compared);
    cost("page moved in", 0.0, moved_in);
    cost("page moved out", 0.0, moved_out);
    let plus = |ns: Spread, more: f64| Spread { median: ns.median + more, min: ns.min + more, max: ns.max + more };
    cost("materialise (sum)", 0.138, plus(moved_in, looked_up + compared.median));
    cost("dematerialise (sum)", 0.172, plus(moved_out, compared.median));
    let one = bare.faults(0);
    let signals = bare.faults(EXTRA_SIGNALS);
    let signal = |of: fn(Spread) -> f64| (of(signals) - of(one)).max(0.0) / EXTRA_SIGNALS as f64;
    let signal = Spread { median: signal(|ns| ns.median), min: signal(|ns| ns.min), max: signal(|ns| ns.max) };
    cost("signal", 0.666, signal);
    let floor = cost("the same primitives alone", 0.0, one);

    let faults = || objects.summary().faults;
    let before = faults();
    let dirty = repeated(OBJECTS, |at| records[at][0] += 1);
    objects.write_back();
    let clean = repeated(OBJECTS, |at| {
        black_box(records[at][0]);
    });
    let counted = faults() - before;
    ensure!(counted as usize >= 2 * (REPEATS + 1) * (OBJECTS - PAGES), "{counted} faults: not every touch was one");
    let reads = objects.summary().reads;
    ensure!(reads == 0, "{reads} faults read flash: the objects do not fit into the cache");
    cost("combined, object unchanged", 0.833, clean);
    cost("combined, object changed", 0.0, dirty);
    for cost in costs.iter_mut().rev().take(2) {
        cost.ratio_to_bare = Some(cost.ns.median / floor.max(1e-9));
    }
    Ok(costs)
}

/// The table.
pub fn shown(costs: &[Cost]) -> String {
    Columns::of(costs)
        .left("of the runtime itself", |cost| cost.what.clone())
        .right("ns", |cost| number(cost.ns.median))
        .right("(lowest-highest)", |cost| cost.ns.range(number))
        .right("paper's ns", |cost| or_dash(cost.paper_ns, number))
        .right("x primitives", |cost| or_dash(cost.ratio_to_bare, |ratio| format!("{ratio:.2}")))
        .table()
}

/// Objects found in a cache, and copied out of it.
fn lookups() -> Result<Spread> {
    let mut cache = Cache::new(8 << 20);
    for number in 0..OBJECTS as u32 {
        cache.put(number, &[7; OBJECT_BYTES]).map_err(|full| anyhow!("{full:?}"))?;
    }
    let mut missing = 0;
    let mut copy = [0; OBJECT_BYTES];
    let spread = repeated(OBJECTS, |at| {
        missing += u32::from(cache.get(at as u32, |bytes| copy.copy_from_slice(bytes)).is_none());
        black_box(&copy);
    });
    ensure!(missing == 0, "{missing} objects are not in the cache");
    Ok(spread)
}

fn fingerprints() -> Result<Spread> {
    let (made, arena) = (Fingerprints::new()?, Arena::anonymous(PAGES * PAGE_BYTES, Backed::BasePages)?);
    Ok(repeated(PAGES, |at| {
        black_box(made.of_part(&arena, at * PAGE_BYTES, WORDS));
    }))
}
