//! D14: signs of the file-system workloads, from what their personalities do in a row.

use super::memory::{flash, software};
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

/// NVMM's gain over the SSD for each workload: its name and the gain.
pub fn gains(inputs: &Inputs<'_>) -> Result<Vec<(String, f64)>, CheckError> {
    let names = inputs.text("filebench.names")?;
    let pages = inputs.numbers("filebench.pages", Dimension::Count)?;
    let synced = inputs.numbers("filebench.synced", Dimension::Share)?;
    let longer = inputs.share("filebench.write_longer")?;
    let mlc = inputs.time("flash.mlc")?;
    let flash = flash(inputs, mlc)?;
    let page = (flash.read + flash.transfer()).as_us();
    let interface = inputs.time("system.interface")?.as_us();
    let software = software(inputs, mlc)?.as_us();
    let write = mlc.as_us() * longer;
    if pages.len() != synced.len() || names.split(", ").count() != pages.len() {
        return Err(CheckError::NoAnswer("each personality needs its pages and its writes".to_owned()));
    }
    let gain = |(pages, synced): (f64, f64)| {
        // The SSD reads a run of pages at once. A write that is waited for goes through the system
        // and to the flash, and NVMM leaves it in its cache, which is not volatile.
        let ssd = software + page + interface + synced * (software + write);
        ssd / (pages * page)
    };
    let each = pages.into_iter().zip(synced).map(gain);
    Ok(names.split(", ").map(str::to_owned).zip(each).collect())
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let gains = gains(inputs)?;
    let [oltp, varmail, files, proxy, web] = &gains[..] else {
        return Err(CheckError::NoAnswer("there are five personalities".to_owned()));
    };
    let mut found = vec![
        Finding::trend(
            "oltp",
            "OLTP: 1.1x",
            oltp.1 > 1.0,
            (oltp.1, "times over the SSD"),
            "random records: a page for a fault with its software; the benchmark's own computing, which both systems \
             share, is not in the text",
        ),
        Finding::trend(
            "varmail",
            "Varmail: 3x",
            varmail.1 > 1.0 && varmail.1 > oltp.1,
            (varmail.1, "times over the SSD"),
            "each mail is synced, and NVMM's cache is not volatile",
        ),
    ];
    for (name, paper, (_, gain)) in [
        ("fileserver", "Fileserver: below 1", files),
        ("webproxy", "Webproxy: below 1", proxy),
        ("webserver", "Webserver: below 1", web),
    ] {
        found.push(Finding::trend(
            name,
            paper,
            *gain < 1.0,
            (*gain, "times over the SSD"),
            "files in one go: Linux reads ahead, and NVMM takes a miss for each page",
        ));
    }
    Ok(found)
}
