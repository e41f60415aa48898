//! What a file or device allows by itself, measured right after each round on it, in the same mix
//! and at the same depth. A shared disk changes from minute to minute.
//!
//! There are two yardsticks. One is fio. The other is Fulgurite's own requests with nothing above
//! them ([`crate::child`]'s `device`), which write back what they read. fio overwrites data, so a
//! mix with writes has a file of its own (the twin), as large as the named one. A device has no
//! room for one, so there fio runs once, at the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use fulgurite_format::SUBPAGE_BYTES;

use crate::child::protocol::Outcome;
use crate::fio;
use crate::image::Image;
use crate::session::{Running, Session, Setup};
use crate::values::{Config, FlashChoice};
use fulgurite_term::interrupt::go_on;

/// What the device allowed right after one round, in requests a second. Both fields are empty for
/// data that is not in a file or device.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Limit {
    /// By our own requests.
    pub device_per_s: Option<f64>,
    pub fio_per_s: Option<f64>,
}

/// The shortest measurement: fewer requests than a disk completes in this time say little.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// A file for fio to write to. Drop removes it, or the helper where the program cannot.
#[derive(Debug)]
pub struct Twin(PathBuf);

impl Drop for Twin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether this configuration's data is in a file or device that nothing else writes to while the
/// workers are stopped. A device with firmware goes on with its store's own work.
pub fn on_file(session: &Session, setup: Setup) -> bool {
    // A flat medium has no work of its own.
    let alone = setup.config.guarded() && !matches!(setup.config, Config::Resident | Config::PoolOnDevice);
    alone && matches!(session.flash.choice(), FlashChoice::File(_))
}

/// Reads among the requests of these rounds, 0 to 1.
fn read_share<'o>(outcomes: impl IntoIterator<Item = &'o Outcome>) -> f64 {
    let (reads, writes) =
        outcomes.into_iter().fold((0, 0), |(r, w), o| (r + o.read_requests(), w + o.write_requests()));
    if reads + writes > 0 { reads as f64 / (reads + writes) as f64 } else { 1.0 }
}

/// Bytes of a write of these rounds, in whole subpages: those to neighbouring places go out as one.
fn write_bytes<'o>(outcomes: impl IntoIterator<Item = &'o Outcome>) -> u64 {
    let (subpages, requests) =
        outcomes.into_iter().fold((0, 0), |(s, r), o| (s + o.device_writes, r + o.write_requests()));
    let mean = if requests > 0 { subpages as f64 / requests as f64 } else { 1.0 };
    mean.round().max(1.0) as u64 * SUBPAGE_BYTES as u64
}

fn depth(session: &Session, setup: Setup) -> usize {
    let fibers = if setup.config == Config::FlashSync { 1 } else { session.flash.fibers as usize };
    (fibers * setup.threads).min(fulgurite_flash::DEPTH_MAX)
}

/// The file that fio may write to, where this outcome of the warm-up says that it will.
///
/// # Errors
/// [`fulgurite_term::interrupt::Interrupted`]; whatever else is wrong is noted, and fio comes in
/// the end.
pub fn twin_for(session: &mut Session, image: &Image, outcome: &Outcome) -> Result<Option<Twin>> {
    if fio::only_reads(read_share([outcome])) {
        return Ok(None);
    }
    let twin = session.twin(image);
    let twin = go_on(twin, |e| session.note(format!("fio has no file to write to: {e:#}.")))?;
    Ok(twin.flatten().map(Twin))
}

/// Measures the device right after the round that has just ended.
pub fn measure(session: &mut Session, running: &mut Running, twin: Option<&Twin>, outcome: &Outcome) -> Result<Limit> {
    let share = read_share([outcome]);
    let time = Duration::from_nanos(outcome.elapsed_ns).clamp(SHORTEST, LONGEST);
    let depth = depth(session, running.setup);
    let device_per_s = Some(running.child.device(share, depth, time)?);
    let path = if fio::only_reads(share) { running.path.as_deref() } else { twin.map(|twin| twin.0.as_path()) };
    let fio_per_s = path.and_then(|path| fio_on(session, path, running.setup, (share, write_bytes([outcome])), time));
    session.experiment.interrupt.check()?;
    Ok(Limit { device_per_s, fio_per_s })
}

/// Runs fio on the file itself, where it had no other to write to. Destroys the data.
pub fn fio_in_the_end(session: &mut Session, running: &Running, outcomes: &[Outcome], limits: &mut [Limit]) {
    if limits.iter().all(|limit| limit.fio_per_s.is_some()) {
        return;
    }
    let Some(path) = running.path.clone() else { return };
    let longest = outcomes.iter().map(|o| o.elapsed_ns).max().unwrap_or(0);
    let time = Duration::from_nanos(longest).clamp(SHORTEST, LONGEST);
    let mix = (read_share(outcomes), write_bytes(outcomes));
    let per_second = fio_on(session, &path, running.setup, mix, time);
    limits.iter_mut().for_each(|limit| limit.fio_per_s = limit.fio_per_s.or(per_second));
}

fn fio_on(
    session: &mut Session,
    path: &Path,
    setup: Setup,
    (read_share, write_bytes): (f64, u64),
    time: Duration,
) -> Option<f64> {
    let core = *session.cores.first()?;
    let (bytes, depth) = (session.data_bytes, depth(session, setup));
    match fio::per_second(&fio::Mix { path, bytes, read_share, write_bytes, depth, core, time }) {
        Ok(Some(per_second)) => return Some(per_second),
        Ok(None) => session.note("fio is not installed: the results are not compared with it.".to_owned()),
        // fio is not part of the run, so its failure does not end it.
        Err(e) => session.note(format!("{}: no figure of fio: {e:#}.", setup.config)),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_that_of_the_rounds() {
        let round = |device_reads, device_writes| Outcome { device_reads, device_writes, ..Outcome::default() };
        assert_eq!(read_share([&round(3, 1)]), 0.75);
        assert_eq!(read_share(&[round(3, 1), round(0, 4)]), 0.375);
        assert_eq!(read_share([&round(0, 0)]), 1.0);
        // Twelve subpages written in four requests, and four reads.
        let gathered = Outcome { device_write_requests: 4, ..round(4, 12) };
        assert_eq!((read_share([&gathered]), write_bytes([&gathered])), (0.5, 3 * 4096));
        let both = Outcome { device_read_requests: 2, ..gathered };
        assert_eq!(read_share([&both]), 2.0 / 6.0);
        assert_eq!((write_bytes([&round(3, 1)]), write_bytes([&round(1, 0)])), (4096, 4096));
    }
}
