//! fio as a yardstick, on the same file, in the same mix and at the same depth.

use std::fs::File;
use std::io::Write as _;
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
    pub write_bytes: u64,
    pub depth: usize,
    pub core: usize,
    pub time: Duration,
}

/// Makes a file for fio that is written in full, because a disk may answer reads of what was never
/// written without reading anything.
///
/// # Errors
/// The kernel's, or that there is such a file.
pub fn make_file(path: &Path, bytes: u64) -> Result<()> {
    let made = File::options().write(true).create_new(true).open(path);
    let mut file = made.with_context(|| format!("{} cannot be made", path.display()))?;
    let block: Vec<u8> = (0..1u32 << 20).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let mut left = bytes;
    while left > 0 {
        let now = left.min(block.len() as u64);
        file.write_all(&block[..now as usize]).with_context(|| format!("{} cannot be written", path.display()))?;
        left -= now;
    }
    file.sync_all().with_context(|| format!("{} cannot be written", path.display()))
}

/// I/O engines of fio, the best first. Buffers may not be registered without rights (`ulimit
/// -l`), and io_uring may be forbidden. Engines without a queue have a thread for each request.
const ENGINES: [&[&str]; 4] =
    [&["io_uring", "--fixedbufs", "--registerfiles"], &["io_uring"], &["libaio"], &["psync", "--thread"]];

/// Requests a second that fio completes, reads of 4 KiB; `None` when it is not installed.
///
/// # Errors
/// When it fails with every engine, or prints what is not its report.
pub fn per_second(mix: &Mix<'_>) -> Result<Option<f64>> {
    let mut reasons = Vec::new();
    for engine in ENGINES {
        match with_engine(mix, engine) {
            Ok(iops) => return Ok(iops),
            Err(e) => reasons.push(format!("{}: {e:#}", engine.join(" "))),
        }
    }
    bail!("fio failed ({})", reasons.join("; "))
}

/// Pages of 4 KiB that were read and written in a time.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    pub reads: u64,
    pub writes: u64,
    pub elapsed_ns: u64,
}

impl Pages {
    /// Reads among them, 0 to 1.
    pub fn read_share(self) -> f64 {
        self.reads as f64 / (self.reads + self.writes).max(1) as f64
    }
    /// Pages in a second as a multiple of what fio does in the same mix on a file. None without
    /// fio.
    ///
    /// # Errors
    /// As [`per_second`].
    pub fn share_of_fio(self, path: &Path, bytes: u64, depth: usize, time: Duration) -> Result<Option<f64>> {
        let Some(core) = fulgurite_sys::affinity::cores().first().copied() else { return Ok(None) };
        let mix = Mix { path, bytes, read_share: self.read_share(), write_bytes: 4096, depth, core, time };
        let pages_per_s = (self.reads + self.writes) as f64 * 1e9 / self.elapsed_ns.max(1) as f64;
        Ok(per_second(&mix)?.map(|iops| pages_per_s / iops.max(1.0)))
    }
}

fn percent(read_share: f64) -> f64 {
    (read_share * 100.0).round()
}

/// Whether fio, which knows whole percents, only reads, so that the file stays as it is.
pub fn only_reads(read_share: f64) -> bool {
    percent(read_share) >= 100.0
}

fn with_engine(mix: &Mix<'_>, engine: &[&str]) -> Result<Option<f64>> {
    let reads = percent(mix.read_share);
    let kind = if only_reads(mix.read_share) { "randread" } else { "randrw" };
    let (jobs, depth) = if engine[0] == "psync" { (mix.depth, 1) } else { (1, mix.depth) };
    let output = Command::new("fio")
        .arg(format!("--ioengine={}", engine[0]))
        .args(&engine[1..])
        .args(["--name=beside", "--direct=1", "--group_reporting"])
        .arg(format!("--bs=4k,{}", mix.write_bytes))
        .args(["--norandommap", "--randrepeat=0", "--allow_file_create=0", "--time_based", "--output-format=json"])
        .arg(format!("--filename={}", mix.path.display()))
        .arg(format!("--size={}", mix.bytes))
        .arg(format!("--readwrite={kind}"))
        .arg(format!("--rwmixread={reads}"))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--numjobs={jobs}"))
        .arg(format!("--cpus_allowed={}", mix.core))
        .arg(format!("--runtime={}ms", mix.time.as_millis()))
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.context("fio does not start")?,
    };
    if !output.status.success() {
        bail!("{}", reason(&output.stdout, &output.stderr));
    }
    iops(&output.stdout).map(Some)
}

/// Why it failed, by what it printed. What is its report says nothing about that.
fn reason(stdout: &[u8], stderr: &[u8]) -> String {
    let said = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        let lines: Vec<&str> =
            text.lines().map(str::trim).take_while(|l| !l.starts_with('{')).filter(|l| !l.is_empty()).collect();
        lines.join(", ")
    };
    match (said(stderr), said(stdout)) {
        (errors, rest) if errors.is_empty() && rest.is_empty() => "no reason given".to_owned(),
        (errors, rest) if errors.is_empty() => rest,
        (errors, _) => errors,
    }
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
    fn a_failure_has_its_reason() {
        assert_eq!(reason(b"", b" fio: no memory\n\n"), "fio: no memory");
        assert_eq!(reason(b"fio: pid=1, err=12\n{ \"jobs\": [] }", b""), "fio: pid=1, err=12");
        assert_eq!(reason(b"{ }", b""), "no reason given");
    }
    #[test]
    fn a_file_is_written_in_full() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let (path, bytes) = (directory.path().join("file"), (3 << 20) + 5);
        make_file(&path, bytes).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert!(found.len() == bytes && found.blocks() * 512 >= bytes, "{found:?}");
        assert!(make_file(&path, 1).is_err(), "it is there already");
    }
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
