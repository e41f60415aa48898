//! What all configurations of a run share, and how one of them is started.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use fulgurite_device::Features;
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_runtime::Needs;
use fulgurite_sys::{Arena, DirectFile, affinity};
use std::os::fd::AsFd;

use crate::args::FlashArgs;
use crate::checks::{self, FlashPath};
use crate::child::pool::flash_pages as pool_pages;
use crate::child::protocol::{DataSource, Guarded, Opened, PoolSpec, Spec};
use crate::child::{self, ChildHandle};
use crate::experiment::{Experiment, Group};
use crate::image::Image;
use crate::privileged::Request;
use crate::values::{Config, FlashChoice};
use fulgurite_term::bad_input::{OrBadInput, bad_input};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::machine::Machine;
use fulgurite_term::media::NandChoice;
use fulgurite_term::media::NandShape;
use fulgurite_term::media::nand::{NandSpec, Scaling};

/// Frames of `resident` beyond those that hold the data: the free list is never empty.
const SPARE_FRAMES: u64 = 4096;

/// Disk space for `processes` processes under kernel paging: their data, stacks, latches,
/// histograms.
pub fn swap_bytes(data_bytes: u64, processes: u64) -> u64 {
    data_bytes.saturating_add(128 << 20).saturating_mul(processes)
}

/// Pages of a block of the built-in NAND for `data_bytes` of data. None for other flash.
pub fn block_pages(flash: &FlashArgs, data_bytes: u64) -> Result<Option<u32>> {
    let FlashChoice::Nand(choice @ NandChoice::BuiltIn(_)) = flash.choice() else { return Ok(None) };
    let spec = NandSpec {
        storage: PathBuf::new(),
        profile: fulgurite_term::media::nand_profile(choice)?,
        scaling: Scaling { planes: Some(flash.planes), pages_per_block: flash.block_pages },
    };
    let shape = fulgurite_term::media::nand::shape(&spec, pool_pages(data_bytes));
    Ok(Some(shape.or_bad_input(|error| format!("--flash {}: {error}", flash.choice()))?.block_pages))
}

/// Whether each of these configurations is something there that no other one of them is.
fn runs_there(flash: &FlashChoice, configs: &[Config]) -> Result<()> {
    let has = |config| configs.contains(&config);
    if has(Config::OnDevice) && matches!(flash, FlashChoice::Nand(_) | FlashChoice::Device(_)) {
        bad_input!(
            "with this --flash a device makes the requests anyway; leave on-device out, or choose another --flash"
        );
    }
    match flash {
        FlashChoice::Nand(_) if has(Config::PoolOnDevice) => bad_input!(
            "over NAND, fulgurite is a pool in a device of this process already; write --config fulgurite instead of pool-on-device (pool \
             has its store in the worker)"
        ),
        FlashChoice::Device(socket)
            if configs.iter().any(|config| config.pooled())
                && checks::device_features(socket)?.has(Features::PAGES) =>
        {
            bad_input!(
                "the device at {} has a store of its own, over which there is no other: fulgurite is a pool there; leave pool, \
                 pool-unchecked and pool-on-device out, or serve a device without --nand and --store",
                socket.display()
            )
        }
        _ => {}
    }
    Ok(())
}

/// DRAM of a NAND device itself: the model's tables, and the store's by subpage.
fn device_dram(nand: &NandSpec, region_bytes: u64) -> Result<u64> {
    Ok(fulgurite_term::media::nand::model_bytes(nand, pool_pages(region_bytes))?
        + region_bytes / 200
        + DEVICE_FIXED_BYTES)
}
/// What a device's firmware has in any case: frames for its copies, rings, its thread.
const DEVICE_FIXED_BYTES: u64 = 8 << 20;

/// How many processes of which kind run at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct AtOnce {
    /// Under the DRAM budget, or with all their data in DRAM.
    all: u64,
    whole: u64,
    /// On flash, each with a copy of the data of its own.
    guarded: u64,
    /// Of those, on the flash that was named.
    on_named: u64,
    /// Of those, over a pool, which is larger than its data.
    pools: u64,
    swapped: u64,
    mapped: u64,
}

impl AtOnce {
    fn of(configs: &[Config], setups: &dyn Fn(Config) -> Vec<Setup>) -> AtOnce {
        let setups: Vec<Setup> = configs.iter().flat_map(|config| setups(*config)).collect();
        let count = |which: &dyn Fn(Config) -> bool| setups.iter().filter(|setup| which(setup.config)).count() as u64;
        AtOnce {
            all: setups.len() as u64,
            whole: count(&|config| !config.capped()),
            guarded: count(&|config| config.guarded()),
            on_named: count(&|config| config.on_named_flash()),
            pools: count(&|config| config.pooled()),
            swapped: count(&|config| config == Config::OsSwap),
            mapped: count(&|config| config == Config::Mmap),
        }
    }
    /// Memory for the image, for copies that play flash or stay in DRAM, and for the budgets.
    fn memory_bytes(&self, data_bytes: u64, dram_bytes: u64, flash_is_a_file: bool) -> u64 {
        // Calibration has one on flash where anybody misses.
        let calibrated = u64::from(self.all > self.whole);
        // A pool takes up to half as much again.
        let copies = if flash_is_a_file { 0 } else { self.guarded.max(calibrated) + self.pools.div_ceil(2) };
        data_bytes.saturating_mul(1 + copies + self.whole).saturating_add(dram_bytes.saturating_mul(self.all))
    }
}

/// Everything that is the same for all configurations of a run.
#[derive(Debug)]
pub struct Session {
    pub experiment: Experiment,
    /// The flash and the memory in front of it.
    pub flash: FlashArgs,
    pub data_bytes: u64,
    pub dram_bytes: u64,
    pub cores: Vec<usize>,
    pub device_core: Option<usize>,
    /// The directory of swap files and mapped files.
    pub scratch: PathBuf,
    flash_path: Option<FlashPath>,
    flash_path_taken: bool,
    /// Parts of the device of another process, where several configurations run on it.
    parts: Option<Parts>,
}

/// One setup of a configuration: how many threads it has, and how the kernel reads swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    pub config: Config,
    /// Workers of the guarded path, threads of plain memory.
    pub threads: usize,
    /// `vm.page-cluster`, for swap.
    pub page_cluster: Option<u32>,
}

#[derive(Debug)]
pub struct Running {
    pub setup: Setup,
    pub child: ChildHandle,
    pub opened: Opened,
    pub group: Group,
    /// The file that holds its flash, if one does.
    pub path: Option<PathBuf>,
    pub dram_bytes: u64,
    /// Of that, what the workload itself uses.
    pub workload_bytes: u64,
    /// The geometry of its NAND, as it was scaled.
    pub nand: Option<NandShape>,
    /// What must live as long as it.
    _data: Data,
}

/// What holds a configuration's data in this process.
#[derive(Debug)]
enum Data {
    None,
    Memory(#[expect(dead_code, reason = "held, not used")] Arena),
    File(#[expect(dead_code, reason = "held, not used")] File),
    Path(PathBuf),
    Part(#[expect(dead_code, reason = "held, not used")] TakenPart),
}

/// Parts of another process's device, one for each configuration that runs at the same time.
#[derive(Clone, Debug)]
struct Parts {
    subpages: u32,
    taken: Arc<Mutex<Vec<bool>>>,
}

/// One of them. Dropping it gives it back.
#[derive(Debug)]
struct TakenPart {
    parts: Parts,
    number: usize,
}

impl Parts {
    /// As many as processes use the device at a time; none where one has it for itself.
    fn of(flash: &FlashArgs, processes: u64) -> Result<Option<Parts>> {
        let FlashChoice::Device(_) = flash.choice() else { return Ok(None) };
        let (Some(bytes), true) = (checks::flash_bytes(flash)?, processes > 1) else { return Ok(None) };
        let subpages = u32::try_from(checks::part_of_device(bytes, processes) / SUBPAGE_BYTES as u64)?;
        Ok(Some(Parts { subpages, taken: Arc::new(Mutex::new(vec![false; usize::try_from(processes)?])) }))
    }
    fn taken(&self) -> MutexGuard<'_, Vec<bool>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn take(&self) -> Result<TakenPart> {
        let mut taken = self.taken();
        let number = taken.iter().position(|taken| !taken).context("more processes on the device than were counted")?;
        taken[number] = true;
        Ok(TakenPart { parts: self.clone(), number })
    }
}

impl TakenPart {
    /// Its first subpage, and how many it has.
    fn range(&self) -> (u32, u32) {
        (self.number as u32 * self.parts.subpages, self.parts.subpages)
    }
}

impl Drop for TakenPart {
    fn drop(&mut self) {
        self.parts.taken()[self.number] = false;
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Data::Path(path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where another process finds memory of this one.
fn memfd(arena: &Arena) -> PathBuf {
    child::shared_path(arena.file().expect("a memfd"))
}

impl Session {
    /// Checks all that can be checked, then starts the helper. `setups` has each configuration's
    /// setups, which all run at the same time. What cannot run leaves `configs`, with a sentence in
    /// `notes`.
    pub fn start(
        flash: &FlashArgs,
        data_bytes: u64,
        configs: &mut Vec<Config>,
        setups: &dyn Fn(Config) -> Vec<Setup>,
        interrupt: &Interrupt,
    ) -> Result<Session> {
        let machine = Machine::describe();
        checks::workers(flash.workers, &machine)?;
        let dram_bytes = checks::dram(flash, data_bytes, &machine)?;
        let named = AtOnce::of(configs, setups);
        // What a pool needs in addition to its data. A workload's region is a little larger than
        // asked for.
        let pool_bytes = u64::from(pool_pages(data_bytes)) * SUBPAGE_BYTES as u64;
        let largest =
            if named.pools > 0 { data_bytes.saturating_add(data_bytes / 2).max(pool_bytes) } else { data_bytes };
        runs_there(flash.choice(), configs)?;
        let flash_path = checks::flash(flash.wanted(), named.on_named, largest)?;
        let parts = Parts::of(flash, named.on_named)?;
        let scratch = checks::scratch(flash)?;
        checks::memory(named.memory_bytes(data_bytes, dram_bytes, flash_path.is_some()), data_bytes, &machine)?;

        let mut experiment = Experiment::start(interrupt, &scratch)?;
        let limit_bytes = dram_bytes + flash.allowance_bytes;
        experiment.leave_out(configs, |config, machine| match config {
            Config::OsSwap | Config::Mmap if limit_bytes >= data_bytes => Some(format!(
                "its cgroup of {} would hold all of the data, so that nothing is paged",
                format_bytes(limit_bytes)
            )),
            Config::OsSwap => machine.without_swap(),
            Config::Mmap => machine.cgroup_missing.clone(),
            _ => None,
        });
        if let Some(missing) = &experiment.capabilities.cgroup_missing {
            let kept = format!("The DRAM budget is kept by the runtime alone, not by the kernel as well: {missing}.");
            experiment.note(kept);
        }
        let left = AtOnce::of(configs, setups);
        if left.swapped + left.mapped > 0 {
            experiment.note(format!(
                "Kernel paging may use all of its cgroup, the budget and {}, for data. The guarded path keeps frames, tables, \
                 stacks, rings and the workload's own tables within the budget; in its cgroup there are also the program \
                 itself and what measures it.",
                format_bytes(flash.allowance_bytes)
            ));
            let disk_bytes = swap_bytes(data_bytes, left.swapped) + swap_bytes(data_bytes, left.mapped);
            checks::space("os-swap and mmap", &scratch, disk_bytes)?;
        }
        if left.swapped > 0 {
            experiment.zswap_off();
        }
        let on_flash = named.guarded;
        let allowed = affinity::cores();
        let cores: Vec<usize> = allowed.iter().copied().take(flash.workers as usize).collect();
        let device_core = allowed.last().copied().filter(|core| !cores.contains(core));
        let has_device = matches!(flash.choice(), FlashChoice::Emulated | FlashChoice::Nand(_))
            || configs.iter().any(|config| config.on_device());
        if device_core.is_none() && has_device && on_flash > 0 {
            experiment.note(
                "No core is left for the device: it shares one with a worker, so its latencies are longer.".into(),
            );
        }
        Ok(Session {
            experiment,
            flash: flash.clone(),
            data_bytes,
            dram_bytes,
            cores,
            device_core,
            scratch,
            flash_path,
            flash_path_taken: false,
            parts,
        })
    }

    /// What the numbers are of, for JSON.
    pub fn setting(&self) -> serde_json::Value {
        serde_json::json!({
            "flash": self.flash.choice().to_string(),
            "read_latency_us": self.flash.read_latency.as_secs_f64() * 1e6,
            "write_latency_us": self.flash.write_latency.as_secs_f64() * 1e6,
            "planes": self.flash.planes,
            "block_pages": self.flash.block_pages,
            "fibers": self.flash.fibers,
            "worker_cores": self.cores,
            "device_core": self.device_core,
            "cgroup_allowance_bytes": self.flash.allowance_bytes,
            "zswap": self.experiment.capabilities.zswap,
            "notes": self.experiment.notes,
        })
    }

    /// Keeps a sentence for the end, once.
    pub fn note(&mut self, sentence: String) {
        self.experiment.note(sentence);
    }

    /// What the workload's own tables leave of a configuration's DRAM for everything else.
    fn runtime_dram(&self, setup: Setup, region_bytes: u64, workload_bytes: u64) -> Result<u64> {
        if !setup.config.guarded() {
            return Ok(self.dram_bytes);
        }
        let fibers = if setup.config == Config::FlashSync { 1 } else { self.flash.fibers as usize };
        let needs = Needs::of(region_bytes, setup.threads, fibers);
        if setup.config == Config::Resident {
            // Everything in frames, whichever worker brings it in, and a few to spare.
            let frames = (region_bytes / SUBPAGE_BYTES as u64 + SPARE_FRAMES) * setup.threads as u64;
            return Ok(needs.fixed_bytes + frames * needs.per_frame_bytes);
        }
        let left = self.dram_bytes.saturating_sub(workload_bytes);
        let least = needs.fixed_bytes + setup.threads as u64 * needs.per_frame_bytes;
        anyhow::ensure!(
            left >= least,
            "of {} of DRAM the workload's own latches and tables take {}, and {} are left where the runtime needs at least {}; \
             give more --dram",
            format_bytes(self.dram_bytes),
            format_bytes(workload_bytes),
            format_bytes(left),
            format_bytes(least)
        );
        Ok(left)
    }

    /// Starts a configuration on a copy of the image.
    pub fn spawn(&mut self, image: &Image, setup: Setup) -> Result<Running> {
        let config = setup.config;
        let workload_bytes = if config.guarded() { image.workload_bytes(setup.threads)? } else { 0 };
        let runtime_bytes = self.runtime_dram(setup, image.region_bytes, workload_bytes)?;
        let dram_bytes = if config == Config::DramOnly { image.region_bytes } else { runtime_bytes + workload_bytes };
        let stored = self.is_read_whole(config);
        let (source, data) = if stored { self.pool(image, config)? } else { self.data(image, config)? };
        let path = if let DataSource::File { path } = &source { Some(path.clone()) } else { None };
        let nand = match &source {
            DataSource::Nand(nand) => Some(fulgurite_term::media::nand::shape(nand, pool_pages(image.region_bytes))?),
            _ => None,
        };
        let mut child = ChildHandle::start(&self.experiment.interrupt)?;
        // Plain memory as flash is the process's own, so there a limit would hold the data as well.
        let limited = config.capped() && !(config.guarded() && *self.flash.choice() == FlashChoice::Memory);
        let mut group = if limited && self.experiment.capabilities.cgroup_version.is_some() {
            let mut limit = dram_bytes + self.flash.allowance_bytes;
            if let DataSource::Nand(nand) = &source {
                // The store of a pool is in the runtime's budget.
                let (bytes, of) = if config.pooled() {
                    (
                        fulgurite_term::media::nand::model_bytes(nand, pool_pages(image.region_bytes))?,
                        "the model of its NAND",
                    )
                } else {
                    let bytes = device_dram(nand, image.region_bytes)?;
                    (bytes, "its firmware's store and the model of its NAND")
                };
                limit += bytes;
                self.note(format!(
                    "The device has {} of its own DRAM for {of}, in the same cgroup, whose limit is larger by that.",
                    format_bytes(bytes)
                ));
            }
            // A process under its own cap must not be helped by swap.
            self.experiment.limit(child.pid(), limit, config == Config::OsSwap)?
        } else {
            Group::default()
        };
        if let Some(value) = setup.page_cluster {
            self.experiment.helper.perform(&Request::PageCluster { value })?;
        }
        let asked = child.open(Spec {
            config,
            workload: image.workload.clone(),
            data_bytes: image.params.bytes,
            region_bytes: image.region_bytes,
            zipf: image.params.zipf,
            seed: image.params.seed,
            input: image.params.input.clone(),
            value_bytes: image.params.value_bytes,
            gets: image.params.gets,
            data: source,
            pool: stored.then(|| PoolSpec {
                image: memfd(image.arena()),
                flash_pages: pool_pages(image.region_bytes),
                create: matches!(data, Data::Path(_)),
                unchecked: config == Config::PoolUnchecked,
            }),
            // Kernel paging has many threads on all workers' cores. The others have a core each.
            cores: if config.paged_by_kernel() { self.cores.clone() } else { self.cores[..setup.threads].to_vec() },
            device_core: self.device_core,
            threads: setup.threads,
            guarded: Guarded { dram_bytes: runtime_bytes, fibers: self.flash.fibers as usize },
        });
        let opened = match asked {
            Ok(opened) => opened,
            Err(error) => {
                return Err(match self.experiment.remove(&mut group, || drop(child)) {
                    Ok(Some(over)) => error.context(over),
                    Ok(None) => error,
                    Err(stays) => error.context(format!("{stays:#}")),
                });
            }
        };
        // Each opens the same workload on the same bytes, and a difference would break the budget.
        anyhow::ensure!(
            !config.guarded() || opened.workload_bytes == workload_bytes,
            "the workload takes {} of DRAM, and {} were set aside for it",
            format_bytes(opened.workload_bytes),
            format_bytes(workload_bytes)
        );
        opened.warnings.iter().for_each(|warning| self.note(warning.clone()));
        Ok(Running { setup, child, opened, group, path, dram_bytes, workload_bytes, nand, _data: data })
    }

    fn data(&mut self, image: &Image, config: Config) -> Result<(DataSource, Data)> {
        Ok(match (config, self.flash.choice()) {
            (Config::DramOnly | Config::OsSwap, _) => {
                let source = DataSource::Anonymous { image: memfd(image.arena()), huge: config == Config::DramOnly };
                (source, Data::None)
            }
            (Config::Mmap, _) => {
                let file = image.copy_to_unnamed(&self.scratch, &self.experiment.interrupt)?;
                (DataSource::Mapped { file: child::shared_path(file.as_fd()) }, Data::File(file))
            }
            (_, FlashChoice::Emulated) | (Config::FixedLatency, _) => {
                let copy = image.copy_to_memory(&self.experiment.interrupt)?;
                (self.emulated(memfd(&copy)), Data::Memory(copy))
            }
            (_, FlashChoice::Memory) => {
                let copy = image.copy_to_memory(&self.experiment.interrupt)?;
                (DataSource::Memory { storage: memfd(&copy) }, Data::Memory(copy))
            }
            // The process that opens these fills them.
            (_, FlashChoice::Nand(_) | FlashChoice::Device(_)) => self.pool(image, config)?,
            (_, FlashChoice::File(path)) => {
                let path = path.clone();
                self.flash_file(image, &path, config)?
            }
        })
    }

    /// Prepares the medium of a pool: the same media, with more room. The process itself fills it.
    fn pool(&mut self, image: &Image, config: Config) -> Result<(DataSource, Data)> {
        let pages = pool_pages(image.region_bytes);
        let bytes = usize::try_from(u64::from(pages) * SUBPAGE_BYTES as u64)?;
        Ok(match self.flash.choice().clone() {
            FlashChoice::File(path) => self.flash_file_for(&path, config)?,
            FlashChoice::Device(socket) => {
                let image = memfd(image.arena());
                let taken = self.parts.as_ref().map(Parts::take).transpose()?;
                let part = taken.as_ref().map(|taken| taken.range());
                let data = taken.map_or(Data::None, Data::Part);
                (DataSource::Device { socket, frames: self.flash.on.share_frames, part, image }, data)
            }
            FlashChoice::Nand(choice) => {
                let mut spec = NandSpec {
                    storage: PathBuf::new(),
                    profile: fulgurite_term::media::nand_profile(&choice)?,
                    scaling: Scaling {
                        planes: matches!(choice, NandChoice::BuiltIn(_)).then_some(self.flash.planes),
                        pages_per_block: self.flash.block_pages,
                    },
                };
                // As large as the device: what is not data stays untouched.
                let flash_pages = fulgurite_term::media::nand::flash_pages(&spec, pages)?;
                let storage = Arena::memfd("fulgurite-nand", flash_pages as usize * SUBPAGE_BYTES)?;
                storage.zero(0, bytes);
                spec.storage = memfd(&storage);
                (DataSource::Nand(spec), Data::Memory(storage))
            }
            choice => {
                // Touched here: the device's memory is none of the process's.
                let storage = Arena::memfd("fulgurite-pool", bytes)?;
                storage.zero(0, bytes);
                let shared = memfd(&storage);
                let source = if choice == FlashChoice::Memory {
                    DataSource::Memory { storage: shared }
                } else {
                    self.emulated(shared)
                };
                (source, Data::Memory(storage))
            }
        })
    }
    /// Whether the data is in a pool, or in a device that may have one, and is read whole.
    pub fn is_read_whole(&self, config: Config) -> bool {
        config.pooled() || self.in_device(config)
    }
    /// Whether the data of a configuration is in a device whose firmware has a store.
    fn in_device(&self, config: Config) -> bool {
        config.guarded()
            && config != Config::FixedLatency
            && matches!(self.flash.choice(), FlashChoice::Nand(_) | FlashChoice::Device(_))
    }
    fn emulated(&self, storage: PathBuf) -> DataSource {
        DataSource::Emulated {
            storage,
            read_ns: self.flash.read_latency.as_nanos() as u64,
            write_ns: self.flash.write_latency.as_nanos() as u64,
            planes: self.flash.planes as usize,
        }
    }

    /// The file of a configuration: the named file for the first, and files next to it for the
    /// others.
    fn flash_file(&mut self, image: &Image, path: &Path, config: Config) -> Result<(DataSource, Data)> {
        let (source, data) = self.flash_file_for(path, config)?;
        if let DataSource::File { path } = &source {
            image.copy_to_path(path, matches!(data, Data::Path(_)), &self.experiment.interrupt)?;
        }
        Ok((source, data))
    }
    /// The file of a configuration, with nothing written to it.
    fn flash_file_for(&mut self, path: &Path, config: Config) -> Result<(DataSource, Data)> {
        let named = !self.flash_path_taken;
        let own = if named { path.to_owned() } else { sibling_file(path, config, self.experiment.number()) };
        let create = !named || self.flash_path == Some(FlashPath::New);
        self.flash_path_taken = true;
        let data = if create {
            // A file that came to be there after the check must not be removed.
            checks::nothing_there(&own)?;
            self.experiment.helper.adopt(&own)?;
            Data::Path(own.clone())
        } else {
            Data::None
        };
        Ok((DataSource::File { path: own }, data))
    }

    /// Another copy of the image next to the named file, for blind writes. The caller removes it.
    /// None on a device, or without room.
    pub fn twin(&mut self, image: &Image) -> Result<Option<PathBuf>> {
        let FlashChoice::File(path) = self.flash.choice().clone() else { return Ok(None) };
        let free = DirectFile::free_bytes(&checks::parent_of(&path))?;
        if self.flash_path == Some(FlashPath::Device) || free < image.region_bytes {
            return Ok(None);
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".fulgurite-{}-twin", std::process::id()));
        let twin = path.with_file_name(name);
        self.experiment.helper.adopt(&twin)?;
        match image.copy_to_path(&twin, true, &self.experiment.interrupt) {
            Ok(()) => Ok(Some(twin)),
            Err(e) => {
                let _ = std::fs::remove_file(&twin);
                Err(e)
            }
        }
    }

    /// Ends a configuration. Returns its highest use.
    ///
    /// # Errors
    /// [`OverLimit`](crate::experiment::OverLimit) if the kernel killed it; the helper's.
    pub fn end(&mut self, running: Running) -> Result<Option<u64>> {
        let Running { setup, child, mut group, _data: data, .. } = running;
        let killed = self.experiment.remove(&mut group, || drop(child));
        if setup.config.on_named_flash() && matches!(self.flash.choice(), FlashChoice::File(_)) {
            let named = !matches!(data, Data::Path(_)) || self.flash_path == Some(FlashPath::New);
            // The named file is free for the next configuration.
            self.flash_path_taken &= !named;
        }
        let made = if let Data::Path(path) = &data { Some(path.clone()) } else { None };
        drop(data);
        if let Some(path) = made {
            self.experiment.helper.release(&path)?;
        }
        match killed? {
            Some(over) => Err(anyhow::Error::new(over).context(setup.config)),
            None => Ok(group.peak_bytes),
        }
    }
}

/// A file next to the named one, for another configuration.
fn sibling_file(path: &Path, config: Config, number: u32) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".fulgurite-{}-{number}-{config}", std::process::id()));
    path.with_file_name(name)
}

impl Setup {
    /// The setups of a configuration. Kernel paging tries several counts of threads, unless it
    /// must be quick. The others run with `workers`, and several also with one, for scaling.
    pub fn all(config: Config, workers: u32, clusters: &[u32], quick: bool) -> Vec<Setup> {
        let setup = |threads, page_cluster| Setup { config, threads, page_cluster };
        let counts: &[_] = if quick { &[8] } else { &[1, 8, 32] };
        let each = |cluster: Option<u32>| counts.iter().map(move |threads| setup(*threads, cluster));
        match config {
            Config::OsSwap => clusters.iter().flat_map(|c| each(Some(*c))).collect(),
            Config::Mmap => each(None).collect(),
            _ if workers == 1 => vec![setup(1, None)],
            _ => vec![setup(workers as usize, None), setup(1, None)],
        }
    }

    /// Whether the other is a setup of the same configuration, of which only the best counts.
    pub fn rivals(&self, other: &Setup) -> bool {
        self.config == other.config && (self.config.paged_by_kernel() || self.threads == other.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_its_memory() {
        let configs = [Config::DramOnly, Config::Resident, Config::Fulgurite, Config::OsSwap, Config::Mmap];
        let of = |workers| AtOnce::of(&configs, &|config| Setup::all(config, workers, &[0, 3], false));
        let (one, two) = (of(1), of(2));
        assert_eq!(one, AtOnce { all: 12, whole: 2, guarded: 2, on_named: 2, pools: 0, swapped: 6, mapped: 3 });
        assert_eq!(two, AtOnce { all: 15, whole: 4, guarded: 4, on_named: 4, ..one });
        // The image, two that play flash, two in DRAM; and two more of each.
        assert_eq!(one.memory_bytes(1 << 30, 1 << 20, false), (5 << 30) + (12 << 20));
        assert_eq!(two.memory_bytes(1 << 30, 1 << 20, false), (9 << 30) + (15 << 20));
        assert_eq!(two.memory_bytes(1 << 30, 1 << 20, true), (5 << 30) + (15 << 20));
        let swapped = AtOnce::of(&[Config::DramOnly, Config::OsSwap], &|config| Setup::all(config, 1, &[0], true));
        assert_eq!(swapped.memory_bytes(1 << 30, 1 << 20, false), (3 << 30) + (2 << 20));
    }

    #[test]
    fn kernel_paging_is_tried_in_several_ways_and_the_best_of_them_counts() {
        assert_eq!(Setup::all(Config::OsSwap, 1, &[0, 3], false).len(), 6);
        let mmap = Setup::all(Config::Mmap, 1, &[0, 3], false);
        assert_eq!(mmap.len(), 3);
        assert!(mmap[0].rivals(&mmap[2]));
        assert_eq!(
            Setup::all(Config::DramOnly, 2, &[0], true),
            [2, 1].map(|threads| Setup { config: Config::DramOnly, threads, page_cluster: None })
        );
    }
}
