//! D1, D2, D4, D5 and D16: layouts are taken from crate `format`, so that what decides exists once.

use fulgurite_format::{
    Address, Controller, ENTRY_INDEX_BITS, EntryIndex, FLASH_PAGE_BITS, FlashPage, OFFSET_BITS, PAGE_BITS, PageEntry,
    Status, TIME_BITS, place_positional,
};

use super::device;
use crate::check::{Finding, Found, Inputs};
use crate::units::Dimension;

pub fn addresses(inputs: &Inputs<'_>) -> Found {
    let bits = |name| inputs.number(name, Dimension::Bits);
    let (controller, page, byte) = (bits("address.controller")?, bits("address.page")?, bits("address.byte")?);
    let ours = [64 - PAGE_BITS - OFFSET_BITS, PAGE_BITS, OFFSET_BITS];
    let last = Address::new(u32::MAX >> (32 - ours[0]), u32::MAX >> (32 - ours[1]), u16::MAX);
    let managed = libm::exp2(f64::from(ours[1] + ours[2])) / libm::exp2(40.0);
    let is_local = |controller| Controller(controller).is_local();
    let local = is_local(0) && is_local((1 << ours[0]) - 1) && !is_local(1) && !is_local((1 << ours[0]) - 2);
    Ok(vec![
        Finding::of("widths", "20, 28 and 16 bits")
            .trend(
                ours.map(f64::from) == [controller, page, byte] && last.bits() == u64::MAX,
                f64::from(ours.iter().sum::<u32>()),
                "bits",
            )
            .by("format::Address, whose largest fields fill 64 bits"),
        Finding::of("managed", "16 TB a controller").exact(16.0, managed, "TiB").by("page and byte of format::Address"),
        Finding::of("pages", "2^48 pages system-wide")
            .exact(48.0, f64::from(ours[0] + ours[1]), "bits")
            .by("controller and page"),
        Finding::of("local", "controllers all 0 and all 1 are local")
            .trend(local, 2.0, "local controllers")
            .by("format::Controller::is_local"),
    ])
}

pub fn entries(inputs: &Inputs<'_>) -> Found {
    let fields = inputs.numbers("entry.fields", Dimension::Bits)?;
    let status = 64 - 32 - TIME_BITS;
    let ours = [FLASH_PAGE_BITS, ENTRY_INDEX_BITS, 32, TIME_BITS, status];
    let bytes = size_of::<PageEntry>() as f64;
    let heads = libm::exp2(f64::from(PAGE_BITS));
    let all = inputs.count("table.entries")? as f64;
    let same = fields.len() == ours.len() && fields.iter().zip(ours).all(|(stated, ours)| *stated == f64::from(ours));
    Ok(vec![
        Finding::of("fields", "34 + 30 + 32 + 24 + 8 bits")
            .trend(same, fields.iter().sum::<f64>(), "bits")
            .by("format::PageEntry"),
        Finding::of("size", "16 bytes").exact(16.0, bytes, "B").by("size of format::PageEntry"),
        Finding::of("table", "4 GB")
            .exact(4.0, heads * bytes / (1u64 << 30) as f64, "GiB")
            .by("an entry for each page of a controller"),
        Finding::of("versions", "three old versions a page")
            .exact(3.0, (all - heads) / heads, "versions")
            .by("1G entries, of which 256M are heads"),
    ])
}

pub fn vectors(inputs: &Inputs<'_>) -> Found {
    let segments = inputs.count("vector.segments")? as u32;
    let shown = |valid| PageEntry::new(FlashPage(0), EntryIndex::NONE, valid, 0, Status::default()).to_string();
    let whole = u32::MAX >> (32 - segments);
    // Start 53: pages 56 and 59 are worn out, 67 has data already.
    let worn = place_positional(FlashPage(53), whole, segments, |page| ![56, 59, 67].contains(&page.0));
    let few = place_positional(FlashPage(17), 1 << 2 | 1 << 5, segments, |_| true);
    // Segments 2 and 5, where only two pages at this distance are free.
    let pairs = [
        (3, "00100100 00000000 00000000 00000000"),
        (5, "00000100 00100000 00000000 00000000"),
        (11, "00100000 00000100 00000000 00000000"),
        (13, "00000100 00000000 00100000 00000000"),
        (19, "00100000 00000000 00000100 00000000"),
        (21, "00000100 00000000 00000000 00100000"),
        (27, "00100000 00000000 00000000 00000100"),
    ];
    let mut right = 0;
    for (distance, stated) in pairs {
        // The lower page holds the segment whose bit is the lower one.
        let first = stated.replace(' ', "").find('1').unwrap_or(0) as u64;
        let free = [first, first + distance];
        let valid = place_positional(FlashPage(0), 1 << 2 | 1 << 5, segments, |page| free.contains(&page.0));
        right += u32::from(valid.is_some_and(|valid| shown(valid) == stated));
    }
    let is = |valid: Option<u32>, stated: &str| valid.is_some_and(|valid| shown(valid) == stated);
    let ones = |valid: Option<u32>| f64::from(valid.unwrap_or(0).count_ones());
    Ok(vec![
        Finding::of("worn", "11101101 00010000 00000010 00000000")
            .trend(is(worn, "11101101 00010000 00000010 00000000"), ones(worn), "segments")
            .by("format::place_positional at 53, with 56 and 59 bad and 67 taken"),
        Finding::of("few", "00100100 00000000 00000000 00000000")
            .trend(is(few, "00100100 00000000 00000000 00000000"), ones(few), "segments")
            .by("segments 2 and 5 at 17"),
        Finding::of("distances", "3, 5, 11, 13, 19, 21, 27")
            .exact(7.0, f64::from(right), "vectors")
            .by("two free pages at each distance, bit for bit"),
    ])
}

pub fn technologies(inputs: &Inputs<'_>) -> Found {
    let times = |name| inputs.numbers(name, Dimension::Time);
    let dram = inputs.time("technology.dram.read")?;
    let (slc, mlc) = (inputs.time("technology.slc.read")?, inputs.time("technology.mlc.read")?);
    let divided = times("technology.slc.divided")?;
    let pcm = times("technology.pcm.read")?;
    let is_divided =
        divided.iter().zip([8.0, 4.0, 2.0]).all(|(read, by)| (read * by / slc.0 as f64 - 1.0).abs() < 1e-9);
    let writes = [
        times("technology.dram.write")?,
        times("technology.pcm.write")?,
        times("technology.slc.write")?,
        times("technology.mlc.write")?,
    ];
    let rises = writes.concat().windows(2).all(|pair| pair[0] < pair[1]);
    let erases = inputs.time("technology.slc.erase")?.0 * 2 == inputs.time("technology.mlc.erase")?.0;
    // In the order of the table, slowest last.
    let reads: Vec<f64> = pcm.iter().chain(&divided).copied().chain([slc.0 as f64, mlc.0 as f64]).collect();
    Ok(vec![
        Finding::of("slc", "SLC / 8, / 4 and / 2")
            .exact(3.0, if is_divided { 3.0 } else { 0.0 }, "rows")
            .by("25 µs divided"),
        Finding::of("order", "DDR3, PCM, SLC, MLC")
            .trend(
                reads.windows(2).all(|pair| pair[0] < pair[1]) && reads[0] >= dram.0 as f64 && rises && erases,
                mlc.as_ns() / dram.as_ns(),
                "times DRAM's read, MLC",
            )
            .by("reads, writes and erases in the order of the table"),
    ])
}

pub fn prices(inputs: &Inputs<'_>) -> Found {
    let onfi = inputs.numbers("onfi.rates", Dimension::Rate)?;
    let array = inputs.number("onfi.array", Dimension::Rate)?;
    let (flash, dram) =
        (inputs.number("price.flash", Dimension::Price)?, inputs.number("price.dram", Dimension::Price)?);
    let faster = onfi.windows(2).all(|pair| pair[0] < pair[1]) && onfi.iter().all(|rate| *rate > array);
    let last = onfi.last().copied().unwrap_or_default();
    let mut found = vec![
        Finding::of("onfi", "the array gives 330 MB/s, ONFI 3 moves 400 and ONFI 4 800")
            .trend(faster, last / array, "times the array's rate, ONFI 4")
            .by("from ONFI 3 on the bus is faster than the array"),
        Finding::of("ratio", "flash under $0.50, DRAM over $10 a GB")
            .within(dram / flash, "times", (20.0, f64::INFINITY))
            .by("both bounds: at least this much"),
    ];
    found.extend(device::run(inputs)?);
    Ok(found)
}
