//! A workload's data, built once: the image that every configuration starts from.
//!
//! It lies in a memfd with the whole address space reserved, so plain memory can build it and other
//! processes can map it. The first touch of a page pays for it, so this program makes the copies
//! for emulated flash, outside the cgroups under measurement.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use fulgurite_memory::{Address, FiberLatch, NoLatch, PAGE_BYTES, PlainMemory, Region, SUBPAGE_BYTES, VersionLatch};
use fulgurite_sys::{Arena, DirectFile};
use fulgurite_term::progress::ProgressBar;
use fulgurite_workloads::{Corpus, IndexSummary, Params, Search, Visitor, Workload, WorkloadError};

use fulgurite_term::interrupt::{Interrupt, Interrupted};
use fulgurite_term::progress;

/// Address space that plain memory reserves: what a controller addresses, and a subpage.
const RESERVED_BYTES: usize = (1 << 44) + SUBPAGE_BYTES;
/// Bytes copied between two looks at Ctrl-C.
const STEP_BYTES: usize = 8 << 20;

/// A workload's data as it was built.
#[derive(Debug)]
pub struct Image {
    pub workload: String,
    pub params: Params,
    /// Bytes of its region, from address 0: whole pages.
    pub region_bytes: u64,
    arena: Arc<Arena>,
}

struct Build {
    memory: PlainMemory,
    region: Region,
    params: Params,
    bar: ProgressBar,
}

impl Visitor for Build {
    type Output = Result<(), WorkloadError>;
    fn visit<W: Workload>(mut self) -> Self::Output {
        let progress = &mut |share| progress::set_share(&self.bar, share);
        W::build(&mut self.memory, self.region, &self.params, progress)
    }
}

struct OwnBytes {
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
    pub fn build(workload: &str, params: &Params, interrupt: &Interrupt) -> Result<Image> {
        let region_bytes = params.bytes.next_multiple_of(PAGE_BYTES as u64);
        let arena = Arc::new(Arena::memfd("fulgurite-image", RESERVED_BYTES)?);
        let bar = progress::share(&format!("{workload}: building"));
        let build = Build {
            memory: PlainMemory::over(arena.clone()),
            region: Region::new(Address::from_linear(0), region_bytes),
            params: params.clone(),
            bar: bar.clone(),
        };
        let name = workload.to_owned();
        interrupt
            .unless_asked(move || fulgurite_workloads::dispatch::<NoLatch, _>(&name, build))??
            .with_context(|| format!("{workload} could not be built"))?;
        bar.finish_and_clear();
        Ok(Image { workload: workload.to_owned(), params: params.clone(), region_bytes, arena })
    }

    /// Indexes a corpus of text, for the search workload. The data is the index, not what was
    /// reserved.
    ///
    /// # Errors
    /// When no file of the corpus is text any more, or there is no memory.
    pub fn index(corpus: &Arc<Corpus>, params: &Params, interrupt: &Interrupt) -> Result<(Image, IndexSummary)> {
        let reserved = Search::<NoLatch>::bytes_needed(corpus).next_multiple_of(PAGE_BYTES as u64);
        let arena = Arc::new(Arena::memfd("fulgurite-image", RESERVED_BYTES)?);
        let bar = progress::share("indexing");
        let mut memory = PlainMemory::over(arena.clone());
        let region = Region::new(Address::from_linear(0), reserved);
        let (corpus, seed) = (corpus.clone(), params.seed);
        let (mut of_thread, shown) = (memory.clone(), bar.clone());
        interrupt.unless_asked(move || {
            let progress = &mut |share| progress::set_share(&shown, share);
            Search::<NoLatch>::build_from(&mut of_thread, region, &corpus, seed, progress)
        })??;
        bar.finish_and_clear();
        let summary = Search::<NoLatch>::open(&mut memory, region, params)?.summary();
        let region_bytes = summary.index_bytes.next_multiple_of(PAGE_BYTES as u64);
        let params = Params { bytes: region_bytes, ..params.clone() };
        Ok((Image { workload: Search::<NoLatch>::NAME.to_owned(), params, region_bytes, arena }, summary))
    }

    /// DRAM of the workload itself on the guarded path. Opening it changes nothing.
    pub fn workload_bytes(&self, workers: usize) -> Result<u64> {
        let own = OwnBytes {
            memory: PlainMemory::over(self.arena.clone()),
            region: Region::new(Address::from_linear(0), self.region_bytes),
            params: self.params.clone(),
        };
        // The latches that the guarded path has.
        let opened = match workers {
            1 => fulgurite_workloads::dispatch::<FiberLatch, _>(&self.workload, own)?,
            _ => fulgurite_workloads::dispatch::<VersionLatch, _>(&self.workload, own)?,
        };
        Ok(opened?)
    }

    /// The memory that the image lies in.
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
