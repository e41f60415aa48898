//! Settings of a page buffer, and the text in which `fulgurite run` passes them to the program that
//! it starts.

use std::path::PathBuf;
use std::sync::Arc;

use fulgurite_backing::{Opened, nameless_file, unused_of_pool};
use fulgurite_format::SUBPAGE_BYTES;

use crate::error::Error;
use crate::notices::Notices;

/// The environment variable with the settings of a run.
pub const ENVIRONMENT: &str = "FULGURITE_RUN";

/// Which backend finds missing pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wanted {
    /// The best that this process may take.
    #[default]
    Any,
    /// userfaultfd with a handler thread, which serves the kernel as well.
    Compatible,
    /// The best in which threads resolve their own faults.
    InLine,
    /// Guard pages, or what is left without them.
    Guards,
    /// Pages without access.
    Protection,
}

impl Wanted {
    const ALL: [Wanted; 5] = [Wanted::Any, Wanted::Compatible, Wanted::InLine, Wanted::Guards, Wanted::Protection];

    fn number(self) -> usize {
        Wanted::ALL.iter().position(|one| *one == self).expect("it is one of all")
    }
    fn of(number: u64) -> Option<Wanted> {
        Wanted::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// What a page buffer is made with.
#[derive(Clone)]
pub struct Settings {
    /// The medium below. Its contents are overwritten.
    pub opened: Opened,
    /// The cap on all memory of the process.
    pub dram_bytes: u64,
    /// Which backend finds missing pages.
    pub backend: Wanted,
    /// Where words go.
    pub notices: Arc<Notices>,
    /// Tell figures as JSON.
    pub json: bool,
    /// Report figures at this interval, in milliseconds; never for 0.
    pub stats_ms: u64,
}

/// What is below a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Below {
    /// A file that is made, and loses its name at once.
    #[default]
    NewFile,
    /// What nobody uses of a pool, or a part of it.
    PartOfPool,
    /// The unused part of a pool, which is at least as much as was asked for.
    Pool,
}

impl Below {
    const ALL: [Below; 3] = [Below::NewFile, Below::PartOfPool, Below::Pool];
}

/// The settings that `fulgurite run` was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunSettings {
    /// The process that it becomes: children start without it.
    pub pid: u32,
    /// The cap on all memory of the process.
    pub dram_bytes: u64,
    /// What is below.
    pub below: Below,
    /// How much of it.
    pub flash_bytes: u64,
    /// The smallest mapping that goes to flash.
    pub threshold_bytes: u64,
    /// Report which backend is taken, and why.
    pub explains: bool,
    /// Small blocks of `malloc` go to flash as well.
    pub small: bool,
    /// The smallest block of `malloc` that is an object; none is for 0.
    pub objects_least: u64,
    /// Tell figures as JSON.
    pub json: bool,
    /// Report figures at this interval, in milliseconds; never for 0.
    pub stats_ms: u64,
    /// Which backend finds missing pages.
    pub backend: Wanted,
    /// What the program's own `LD_PRELOAD` was.
    pub preload_before: String,
    /// The file of the temporary flash, or of the pool.
    pub flash: PathBuf,
}

impl RunSettings {
    /// As text, the path last: it may have any character but zero.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!(
            "{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}",
            self.pid,
            self.dram_bytes,
            Below::ALL.iter().position(|one| *one == self.below).expect("it is one of all"),
            self.flash_bytes,
            self.threshold_bytes,
            u8::from(self.explains),
            u8::from(self.small),
            self.objects_least,
            u8::from(self.json),
            self.stats_ms,
            self.backend.number(),
            self.preload_before,
            self.flash.display()
        )
    }

    /// From text.
    ///
    /// # Errors
    /// [`Error::Settings`] when it is no such text.
    pub fn from_text(text: &str) -> Result<RunSettings, Error> {
        let refused = || Error::Settings(format!("{ENVIRONMENT}={text:?}"));
        let mut lines = text.splitn(13, '\n');
        let mut line = || lines.next().ok_or_else(refused);
        let number = |line: &str| line.parse::<u64>().map_err(|_| refused());
        Ok(RunSettings {
            pid: u32::try_from(number(line()?)?).map_err(|_| refused())?,
            dram_bytes: number(line()?)?,
            below: usize::try_from(number(line()?)?)
                .ok()
                .and_then(|n| Below::ALL.get(n).copied())
                .ok_or_else(refused)?,
            flash_bytes: number(line()?)?,
            threshold_bytes: number(line()?)?,
            explains: number(line()?)? != 0,
            small: number(line()?)? != 0,
            objects_least: number(line()?)?,
            json: number(line()?)? != 0,
            stats_ms: number(line()?)?,
            backend: Wanted::of(number(line()?)?).ok_or_else(refused)?,
            preload_before: line()?.to_owned(),
            flash: line()?.into(),
        })
    }

    /// Opens what is below, or makes it. A file that is made loses its name before it is written,
    /// so that it is gone when the process ends, however it ends. What is written to a pool is gone
    /// then, too.
    ///
    /// # Errors
    /// What the medium says. [`Error::PoolTooSmall`].
    pub fn open(&self, notices: Arc<Notices>) -> Result<Settings, Error> {
        let opened = match self.below {
            Below::NewFile => nameless_file(&self.flash, self.flash_bytes)?,
            Below::PartOfPool | Below::Pool => {
                let least = if self.below == Below::Pool { self.flash_bytes } else { 0 };
                let opened = unused_of_pool(&self.flash, self.flash_bytes, least)?;
                let unused = u64::from(opened.flash.subpages()) * SUBPAGE_BYTES as u64;
                if unused == 0 || unused < self.flash_bytes && self.below == Below::Pool {
                    let (path, asked) = (self.flash.clone(), self.flash_bytes);
                    return Err(Error::PoolTooSmall { path, unused, asked });
                }
                opened
            }
        };
        let (dram_bytes, backend) = (self.dram_bytes, self.backend);
        Ok(Settings { opened, dram_bytes, backend, notices, json: self.json, stats_ms: self.stats_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_from_text() {
        let settings = RunSettings {
            pid: 7,
            dram_bytes: 64 << 20,
            below: Below::Pool,
            flash_bytes: 1 << 40,
            threshold_bytes: 4096,
            explains: true,
            small: true,
            objects_least: 128,
            json: false,
            stats_ms: 1500,
            backend: Wanted::InLine,
            preload_before: "/lib/a.so:/lib/b.so".into(),
            flash: "/tmp/a\nb c".into(),
        };
        assert_eq!(RunSettings::from_text(&settings.to_text()).unwrap(), settings);
        for text in [
            "",
            "1\n2\n3",
            "1\n2\n0\n3\n4\n5\n6\n7\n8\n9\n10\n11",
            "1\n2\n0\n3\n4\n1\n1\n0\n0\n0\n9\n\n/a",
            "1\n2\n3\n3\n4\n1\n1\n0\n0\n0\n0\n\n/a",
            "x\n2\n0\n3\n4\n1\n1\n0\n0\n0\n0\n\n/a",
            "5000000000\n2\n0\n3\n4\n1\n1\n0\n0\n0\n0\n\n/a",
        ] {
            assert!(matches!(RunSettings::from_text(text), Err(Error::Settings(_))), "{text:?}");
        }
    }
}
