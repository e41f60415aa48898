//! fio beside us: what the tool that everybody trusts gets from the same file, in the same mix and at the same depth.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

#[derive(Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: Side,
    write: Side,
}

#[derive(Deserialize)]
struct Side {
    iops: f64,
}

/// What fio is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Mix<'p> {
    /// The file; its contents are overwritten where reads are not everything.
    pub path: &'p Path,
    pub bytes: u64,
    /// Reads among the requests, 0 to 1.
    pub read_share: f64,
    /// Requests in flight.
    pub depth: usize,
    /// The core that it runs on.
    pub core: usize,
    pub time: Duration,
}

/// Requests of 4 KiB a second that fio completes; `None` when it is not installed.
///
/// # Errors
/// When it fails, or prints what is not its report.
pub fn per_second(mix: &Mix<'_>) -> Result<Option<f64>> {
    let reads = (mix.read_share * 100.0).round();
    let kind = if reads >= 100.0 { "randread" } else { "randrw" };
    let output = Command::new("fio")
        .args(["--name=beside", "--bs=4k", "--direct=1", "--ioengine=io_uring", "--fixedbufs", "--registerfiles"])
        .args(["--norandommap", "--randrepeat=0", "--allow_file_create=0", "--time_based", "--output-format=json"])
        .arg(format!("--filename={}", mix.path.display()))
        .arg(format!("--size={}", mix.bytes))
        .arg(format!("--readwrite={kind}"))
        .arg(format!("--rwmixread={reads}"))
        .arg(format!("--iodepth={}", mix.depth))
        .arg(format!("--cpus_allowed={}", mix.core))
        .arg(format!("--runtime={}ms", mix.time.as_millis()))
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.context("fio does not start")?,
    };
    if !output.status.success() {
        bail!("fio failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    iops(&output.stdout).map(Some)
}

/// Reads and writes a second, by fio's report. It may print a warning before it.
fn iops(text: &[u8]) -> Result<f64> {
    let start = text.iter().position(|&b| b == b'{').context("fio printed no report")?;
    let report: Report = serde_json::from_slice(&text[start..]).context("fio's report is not as expected")?;
    Ok(report.jobs.iter().map(|job| job.read.iops + job.write.iops).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = br#"note: something
            { "fio version": "fio-3.33", "jobs": [ { "jobname": "beside",
              "read": { "iops": 1000.5, "bw": 4 }, "write": { "iops": 24.25 } } ] }"#;
        assert!((iops(text).unwrap() - 1024.75).abs() < 1e-9);
        assert!(iops(b"fio: no such file").is_err());
        assert!(iops(b"{\"jobs\": 3}").is_err());
    }
}
