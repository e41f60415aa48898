//! A workload's data, built once: the image that every configuration starts from.
//!
//! It is stored in a memfd with the whole address space reserved, so plain memory can build it and
//! other processes can map it. The first touch of a page pays for it, so this program makes the
//! copies for emulated flash, outside the cgroups under measurement.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use fulgurite_memory::{Address, PAGE_BYTES, PlainMemory, Region, SUBPAGE_BYTES};
use fulgurite_sys::{Arena, DirectFile};
use fulgurite_term::progress::ProgressBar;
use fulgurite_workloads::{Params, Site, Visitor, Workload, WorkloadError};

use crate::Workloads;
use fulgurite_term::interrupt::{Interrupt, Interrupted};
use fulgurite_term::progress;

/// Address space that plain memory reserves: what a controller addresses, and a subpage.
const RESERVED_BYTES: usize = (1 << 44) + SUBPAGE_BYTES;
/// Bytes copied between two checks for Ctrl-C.
const STEP_BYTES: usize = 8 << 20;

/// A workload's data as it was built.
#[derive(Debug)]
pub struct Image {
    pub workload: String,
    pub params: Params,
    /// Bytes of its region, from address 0: whole pages.
    pub region_bytes: u64,
    arena: Arc<Arena>,
    workloads: Workloads,
}

/// Builds a workload in plain memory.
pub(crate) struct Build {
    memory: PlainMemory,
    region: Region,
    params: Params,
    bar: ProgressBar,
}

impl Visitor for Build {
    type Output = Result<(), WorkloadError>;
    fn visit<W: Workload>(mut self) -> Self::Output {
        let progress = &mut |share| progress::set_share(&self.bar, share);
        W::build(&mut self.memory, Site::new(self.region, &self.params, progress))
    }
}

/// Opens it there, and asks it for its own DRAM.
pub(crate) struct OwnBytes {
    memory: PlainMemory,
    region: Region,
    params: Params,
}

impl Visitor for OwnBytes {
    type Output = Result<u64, WorkloadError>;
    fn visit<W: Workload>(mut self) -> Self::Output {
        Ok(W::open(&mut self.memory, self.region, &self.params)?.dram_bytes())
    }
}

impl Image {
    /// Builds a workload.
    ///
    /// # Errors
    /// When the parameters make no sense for it, or there is no memory.
    pub fn build(workload: &str, params: &Params, workloads: Workloads, interrupt: &Interrupt) -> Result<Image> {
        let region_bytes = params.bytes.next_multiple_of(PAGE_BYTES as u64);
        let arena = Image::reserved()?;
        let bar = progress::share(&format!("{workload}: building"));
        let build = Build {
            memory: PlainMemory::over(arena.clone()),
            region: Region::new(Address::from_linear(0), region_bytes),
            params: params.clone(),
            bar: bar.clone(),
        };
        let name = workload.to_owned();
        interrupt
            .unless_asked(move || workloads.build(&name, build))??
            .with_context(|| format!("{workload} could not be built"))?;
        bar.finish_and_clear();
        Ok(Image { workload: workload.to_owned(), params: params.clone(), region_bytes, arena, workloads })
    }

    /// Memory for an image that is built by other means.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reserved() -> Result<Arc<Arena>> {
        Ok(Arc::new(Arena::memfd("fulgurite-image", RESERVED_BYTES)?))
    }

    /// The image of a workload that was built there, by other means.
    pub fn of(workload: &str, params: Params, workloads: Workloads, arena: Arc<Arena>) -> Image {
        let region_bytes = params.bytes.next_multiple_of(PAGE_BYTES as u64);
        Image { workload: workload.to_owned(), params, region_bytes, arena, workloads }
    }

    /// What rows and sentences call it: the workload, and the share of reads if one was asked for.
    pub fn label(&self) -> String {
        match self.params.gets {
            Some(gets) => format!("{} --mix {gets}", self.workload),
            None => self.workload.clone(),
        }
    }

    /// DRAM of the workload itself on the guarded path. Opening it changes nothing.
    pub fn workload_bytes(&self, workers: usize) -> Result<u64> {
        let own = OwnBytes {
            memory: PlainMemory::over(self.arena.clone()),
            region: Region::new(Address::from_linear(0), self.region_bytes),
            params: self.params.clone(),
        };
        Ok(self.workloads.own_bytes(&self.workload, workers, own)??)
    }

    /// The memory that holds the image.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    fn steps(&self, interrupt: &Interrupt, mut step: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
        let bytes = usize::try_from(self.region_bytes)?;
        for offset in (0..bytes).step_by(STEP_BYTES) {
            if interrupt.asked() {
                return Err(Interrupted.into());
            }
            step(offset, STEP_BYTES.min(bytes - offset))?;
        }
        Ok(())
    }

    /// A copy in memory of its own.
    pub fn copy_to_memory(&self, interrupt: &Interrupt) -> Result<Arena> {
        let copy = Arena::memfd("fulgurite-flash", usize::try_from(self.region_bytes)?)?;
        self.steps(interrupt, |offset, len| {
            Arena::copy(&self.arena, offset, &copy, offset, len);
            Ok(())
        })?;
        Ok(copy)
    }

    /// A copy in a file without a name, in `scratch`, out of the page cache again.
    ///
    /// # Errors
    /// When the file system is full, or whatever else it says.
    pub fn copy_to_unnamed(&self, scratch: &Path, interrupt: &Interrupt) -> Result<File> {
        let what = || format!("a file in {} cannot be written", scratch.display());
        let file = tempfile::tempfile_in(scratch).with_context(what)?;
        let mut buffer = vec![0; STEP_BYTES];
        let bar = progress::share(&format!("{}: writing the file for mmap", self.workload));
        self.steps(interrupt, |offset, len| {
            self.arena.read(offset, &mut buffer[..len]);
            std::os::unix::fs::FileExt::write_all_at(&file, &buffer[..len], offset as u64).with_context(what)?;
            progress::set_share(&bar, offset as f64 / self.region_bytes as f64);
            Ok(())
        })?;
        file.sync_all().with_context(what)?;
        // Its pages would be charged to this process and not to the one that maps them.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        bar.finish_and_clear();
        Ok(file)
    }

    /// A copy in a file or on a device, past the page cache.
    ///
    /// # Errors
    /// When the path cannot be opened or created, or whatever else the file system says.
    pub fn copy_to_path(&self, path: &Path, create: bool, interrupt: &Interrupt) -> Result<()> {
        let what = || format!("{} cannot be written", path.display());
        let file = if create {
            DirectFile::create(path).with_context(what)?
        } else {
            // A device that is mounted, or anybody else's file, never gets past this.
            fulgurite_flash::claim(path)?
        };
        let bar = progress::share(&format!("{}: writing {}", self.workload, path.display()));
        self.steps(interrupt, |offset, len| {
            let mut done = 0;
            while done < len {
                match file.write_at((offset + done) as u64, &self.arena, offset + done, len - done) {
                    // Past the page cache only whole blocks go.
                    Ok(n) if n >= 4096 => done += n & !4095,
                    Ok(_) => return Err(std::io::Error::from(std::io::ErrorKind::WriteZero)).with_context(what),
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e).with_context(what),
                }
            }
            progress::set_share(&bar, offset as f64 / self.region_bytes as f64);
            Ok(())
        })?;
        file.sync_all().with_context(what)?;
        bar.finish_and_clear();
        Ok(())
    }
}
