//! D14: signs of the file-system workloads, by what their personalities do in a row, on
//! `sim::paging`.
//!
//! A personality takes files from their start, a number of pages of each, and waits for some of its
//! writes. The SSD's system reads a file with one fault. A write that is waited for passes through
//! it to the flash. NVMM takes a miss for each page, and its cache is not volatile.

use fulgurite_sim::Time;
use fulgurite_sim::paging::{Program, Slots};

use super::memory::{controller, flash, page, ssd, system};
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::paging::{Flash, PLAIN, run as runs};
use crate::units::Dimension;

/// The least pages that a personality takes.
const PAGES_LEAST: u64 = 1_000;

/// NVMM's gain over the SSD for each workload: its name and the gain.
pub fn gains(inputs: &Inputs<'_>) -> Result<Vec<(String, f64)>, CheckError> {
    let names = inputs.text("filebench.names")?;
    let pages = inputs.numbers("filebench.pages", Dimension::Count)?;
    let synced = inputs.numbers("filebench.synced", Dimension::Share)?;
    let (mlc, longer) = (inputs.time("flash.mlc")?, inputs.share("filebench.write_longer")?);
    let flash = Flash { program: Time((mlc.0 as f64 * longer) as u64), ..flash(inputs, mlc)? };
    if pages.len() != synced.len() || names.split(", ").count() != pages.len() {
        return Err(CheckError::no_answer("each personality needs its pages and its writes"));
    }
    let (object, dram) = (page(inputs)?, inputs.bytes("dram.size")? as u64);
    let count = inputs.volume(inputs.count("filebench.accesses")?).max(PAGES_LEAST);
    let gain = |(pages, synced): (f64, f64)| -> Result<f64, CheckError> {
        let file = (pages + 0.5).max(1.0) as u64;
        let data = inputs.bytes("mmap.file")? as u64 / object * object;
        let program = Program { data, object, run: file, synced, count, ..PLAIN };
        let took = |backend| -> Result<f64, CheckError> {
            Ok(runs(&system(inputs, program, dram, backend, flash)?, inputs.seed)?.time.as_s())
        };
        Ok(took(ssd(inputs, mlc, file as u32, Slots::File)?)? / took(controller(inputs, 0)?)?)
    };
    let each = pages.into_iter().zip(synced).map(gain).collect::<Result<Vec<_>, _>>()?;
    Ok(names.split(", ").map(str::to_owned).zip(each).collect())
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let gains = gains(inputs)?;
    let [oltp, varmail, files, proxy, web] = &gains[..] else {
        return Err(CheckError::no_answer("there are five personalities"));
    };
    let mut found = vec![
        Finding::of("oltp", "OLTP: 1.1x")
            .trend(oltp.1 > 1.0, oltp.1, "times over the SSD")
            .by("random records: a page for a fault with its software; the benchmark's own computing, which both \
                 systems share, is not in the text"),
        Finding::of("varmail", "Varmail: 3x")
            .trend(varmail.1 > 1.0 && varmail.1 > oltp.1, varmail.1, "times over the SSD")
            .by("each mail is synced, and NVMM's cache is not volatile"),
    ];
    for (name, paper, (_, gain)) in [
        ("fileserver", "Fileserver: below 1", files),
        ("webproxy", "Webproxy: below 1", proxy),
        ("webserver", "Webserver: below 1", web),
    ] {
        found.push(
            Finding::of(name, paper)
                .trend(*gain < 1.0, *gain, "times over the SSD")
                .by("files in one go: Linux reads ahead, and NVMM takes a miss for each page"),
        );
    }
    Ok(found)
}
