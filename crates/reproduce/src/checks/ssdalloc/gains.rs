//! B2, B4, B5 and B6: object-per-page compared with pages and swap, over SSDs.

use fulgurite_sim::paging::RatedShape;

use super::backends::{Backends, Found as OfBackend, ssds};
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| (least.min(value), most.max(value)))
}

/// A program on one SSD.
struct Three {
    objects: OfBackend,
    pages: OfBackend,
    swap: OfBackend,
}

fn three(backends: &Backends<'_>, ssds: &[RatedShape]) -> Result<Vec<Three>, CheckError> {
    let of =
        |ssd| Ok(Three { objects: backends.objects(ssd)?, pages: backends.pages(ssd)?, swap: backends.swap(ssd)? });
    ssds.iter().map(of).collect()
}

/// Gains of objects over swap and over pages, least and most of all SSDs.
fn gains(all: &[Three]) -> ((f64, f64), (f64, f64)) {
    let over_swap = range(all.iter().map(|backends| backends.objects.rate / backends.swap.rate));
    let over_pages = range(all.iter().map(|backends| backends.objects.rate / backends.pages.rate));
    (over_swap, over_pages)
}

/// Objects are ahead of pages, and pages of swap, on each SSD.
fn ordered(all: &[Three]) -> bool {
    all.iter().all(|backends| backends.objects.rate > backends.pages.rate && backends.pages.rate > backends.swap.rate)
}

/// That order for one program, with the gains that go with it.
fn order(all: &[Three], mechanism: &'static str) -> Finding {
    let (swap, pages) = gains(all);
    let about = "objects ahead of pages, pages of swap";
    Finding::of("order", about)
        .trend(ordered(all), swap.0, "times over swap at least")
        .by(mechanism)
        .also("times over swap at most", swap.1)
        .also("times over pages at most", pages.1)
}

fn half_written<'i>(inputs: &'i Inputs<'i>, in_dram: f64, skew: f64) -> Result<Backends<'i>, CheckError> {
    Backends::of(inputs, in_dram, inputs.share("memcached.writes")?, skew)
}

pub fn programs(inputs: &Inputs<'_>) -> Found {
    let ssds = ssds(inputs)?;
    let in_dram = inputs.bytes("memcached.dram")? / inputs.bytes("memcached.data")?;
    let (mut swap, mut pages) = (Vec::new(), Vec::new());
    let mut all_ordered = true;
    for skew in inputs.numbers("programs.skews", Dimension::Share)? {
        let all = three(&half_written(inputs, in_dram, skew)?, &ssds)?;
        let (over_swap, over_pages) = gains(&all);
        swap.extend([over_swap.0, over_swap.1]);
        pages.extend([over_pages.0, over_pages.1]);
        all_ordered &= ordered(&all);
    }
    let (swap, pages) = (range(swap.into_iter()), range(pages.into_iter()));
    let original = inputs.numbers("programs.lines", Dimension::Count)?;
    let modified = inputs.numbers("programs.modified", Dimension::Count)?;
    let changed = original.iter().zip(&modified).map(|(all, changed)| changed / all).fold(0.0, f64::max);
    let why = "a skewed program over both caches, on three of the five SSDs by their data sheets; the programs' own \
               sizes are not in the slides";
    Ok(vec![
        Finding::of("order", "objects ahead of pages, pages of swap")
            .trend(all_ordered, ssds.len() as f64, "SSDs with data sheets; RiData's and Kingston's are not at hand")
            .by(why),
        Finding::of("swap-least", "4.3x over swap at least").within(swap.0, "times", (4.0, 18.0)).by(why),
        Finding::of("swap-most", "17.4x over swap at most").within(swap.1, "times", (4.0, 18.0)).by(
            "the same, on the SSD whose random writes are slowest. The slides have no sizes and no accesses of the \
                 programs, and no SSD beside each gain",
        ),
        Finding::of("pages-least", "1.3x over pages at least").trend(pages.0 > 1.0, pages.0, "times").by(why),
        Finding::of("pages-most", "1.4-3.5x over pages, less than over swap")
            .trend(pages.1 < swap.1, pages.1, "times")
            .by("the accesses of the programs, and how many fit beside each other in a page, are not in the slides"),
        Finding::of("lines", "9 to 36 lines changed")
            .trend(
                changed < 0.05 && modified.iter().all(|lines| (9.0..=36.0).contains(lines)),
                changed * 100.0,
                "% of a program's lines at most",
            )
            .by("the slides' table"),
    ])
}

pub fn array(inputs: &Inputs<'_>) -> Found {
    let ssds = ssds(inputs)?;
    let in_dram = inputs.bytes("array.dram")? / inputs.bytes("array.data")?;
    let all = three(&half_written(inputs, in_dram, 0.0)?, &ssds)?;
    let (objects, pages) = (all[0].objects.misses, all[0].pages.misses);
    Ok(vec![
        order(&all, "uniform accesses to 128 B objects, data 16 times the DRAM; half of them write"),
        Finding::of("misses", "the DRAM holds 1/16 either way")
            .trend((objects - pages).abs() < 0.01, objects, "misses for each access")
            .by("without skew a page's other objects are as good as any; the page buffer takes an eighth of the DRAM")
            .also("of pages", pages),
    ])
}

pub fn memcached(inputs: &Inputs<'_>) -> Found {
    let ssds = ssds(inputs)?;
    let in_dram = inputs.bytes("memcached.dram")? / inputs.bytes("memcached.data")?;
    let all = three(&half_written(inputs, in_dram, inputs.share("memcached.skew")?)?, &ssds)?;
    let (of_objects, of_pages) = (all[0].objects.misses, all[0].pages.misses);
    Ok(vec![
        order(&all, "half reads, half writes, of skewed keys; 30 GB of data, 4 GB of DRAM"),
        Finding::of("compact", "RAM as a compact object cache")
            .trend(of_objects < of_pages, of_objects / of_pages, "of the misses of pages")
            .by("policy::S3Fifo over objects, and over the pages that hold them, in the same bytes"),
    ])
}

pub fn shares(inputs: &Inputs<'_>) -> Found {
    let ssds = ssds(inputs)?;
    let in_dram = inputs.bytes("array.dram")? / inputs.bytes("array.data")?;
    let backends = half_written(inputs, in_dram, 0.0)?;
    let mean = |of: &dyn Fn(&RatedShape) -> Result<OfBackend, CheckError>| -> Result<f64, CheckError> {
        let shares: Result<Vec<f64>, CheckError> = ssds.iter().map(|ssd| Ok(of(ssd)?.of_raw)).collect();
        Ok(shares?.iter().sum::<f64>() / ssds.len() as f64)
    };
    let native = mean(&|ssd| backends.swap(ssd))?;
    let aware = mean(&|ssd| backends.logged_swap(ssd))?;
    let objects = mean(&|ssd| backends.objects(ssd))?;
    let one_page = mean(&|ssd| backends.swap_of_one(ssd))?;
    Ok(vec![
        Finding::of("native", "the native pager: 10% of the SSD")
            .within(native * 100.0, "%", (10.0 / 1.5, 15.0))
            .by("a fault reads eight pages of which one is used, and pages are written in place, the SSD's slowest way")
            .also("% if a fault read one page", one_page * 100.0),
        Finding::of("aware", "a flash-aware pager: 30%")
            .within(aware * 100.0, "%", (20.0, 45.0))
            .by("whole pages to a log, which cleaning copies, and the system's faults"),
        Finding::of("objects", "90% of raw random reads")
            .within(objects * 100.0, "%", (60.0, 100.0))
            .by("objects to a log, and the runtime beside each read"),
        Finding::of("order", "10, 30 and 90%")
            .trend(native < aware && aware < objects, objects / native, "times the native pager's share, objects")
            .by("means over the SSDs"),
    ])
}
