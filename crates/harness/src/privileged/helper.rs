//! The helper: it makes cgroups and swap, and removes them when its standard input closes.
//!
//! The kernel closes the pipe however the program ends, `kill -9` included. A killed helper leaves
//! its record (`leftovers`) for `fulgurite cleanup`. It ignores the signals of terminal and
//! shutdown.

use std::fs;

use super::message::{Capabilities, Reply, Request};
use crate::own_process;
use fulgurite_term::leftovers::{Hierarchy, PAGE_CLUSTER, Record, ZSWAP, swap};
use fulgurite_term::stderr::log;

/// Serves until standard input closes, then removes everything.
pub fn run() -> std::process::ExitCode {
    // The handler does nothing: the signals are only kept from ending this process.
    let _ = ctrlc::set_handler(|| ());
    let mut helper = Helper { record: Record::mine(), hierarchy: None };
    own_process::serve(|request| {
        let request = request.map_err(|e| format!("not a request: {e}"));
        request.and_then(|request| helper.serve(request)).unwrap_or_else(Reply::Failed)
    });
    let failed = helper.record.remove_all().failed;
    for sentence in &failed {
        log(format_args!("fulgurite: {sentence}; `fulgurite cleanup` tries again"));
    }
    std::process::ExitCode::from(u8::from(!failed.is_empty()))
}

struct Helper {
    record: Record,
    hierarchy: Option<Hierarchy>,
}

impl Helper {
    fn full_name(&self, name: &str) -> Result<String, String> {
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if plain {
            Ok(format!("fulgurite-{}-{name}", self.record.pid))
        } else {
            Err(format!("\"{name}\" is not a name"))
        }
    }
    fn hierarchy(&mut self) -> Result<Hierarchy, String> {
        if self.hierarchy.is_none() {
            self.hierarchy = Some(Hierarchy::usable()?);
        }
        Ok(self.hierarchy.clone().expect("set just now"))
    }
    /// Writes down what is about to be made.
    fn save(&self) -> Result<(), String> {
        self.record.save().map_err(|e| format!("cannot write down what will have to be removed: {e}"))
    }

    fn serve(&mut self, request: Request) -> Result<Reply, String> {
        match request {
            Request::Probe { scratch } => {
                let hierarchy = self.hierarchy();
                return Ok(Reply::Capabilities(Capabilities {
                    cgroup_version: hierarchy.as_ref().ok().map(|h| h.version),
                    cgroup_missing: hierarchy.err(),
                    swap_missing: swap::missing(&scratch),
                    zswap: zswap().to_owned(),
                    page_cluster: page_cluster(),
                }));
            }
            Request::Cgroup { name, limit_bytes, no_swap } => {
                let (name, hierarchy) = (self.full_name(&name)?, self.hierarchy()?);
                self.record.cgroups.push(name.clone());
                self.save()?;
                let made = hierarchy.make(&name, limit_bytes, no_swap);
                made.map_err(|e| format!("the cgroup {name} could not be made or limited: {e}"))?;
            }
            Request::Lift { name } => {
                let (name, hierarchy) = (self.full_name(&name)?, self.hierarchy()?);
                hierarchy
                    .lift(&name)
                    .map_err(|e| format!("the limits of the cgroup {name} could not be lifted: {e}"))?;
            }
            Request::Join { name, pid } => {
                let (name, hierarchy) = (self.full_name(&name)?, self.hierarchy()?);
                let joined = hierarchy.join(&name, pid);
                joined.map_err(|e| format!("process {pid} could not be put into the cgroup {name}: {e}"))?;
            }
            Request::Peak { name } => {
                let (name, hierarchy) = (self.full_name(&name)?, self.hierarchy()?);
                let read = hierarchy.peak(&name);
                let (bytes, killed) = read.map_err(|e| format!("the use of the cgroup {name} is not known: {e}"))?;
                return Ok(Reply::Peak { bytes, killed });
            }
            Request::DropCgroup { name } => {
                let (name, hierarchy) = (self.full_name(&name)?, self.hierarchy()?);
                hierarchy.remove(&name).map_err(|e| format!("the cgroup {name} could not be removed: {e}"))?;
                self.record.cgroups.retain(|known| *known != name);
                self.save()?;
            }
            Request::SwapOn { scratch, bytes } => {
                // The path in /proc/swaps is the real one.
                let scratch = scratch.canonicalize().map_err(|e| format!("{}: {e}", scratch.display()))?;
                let path = scratch.join(format!("fulgurite-{}.swap", self.record.pid));
                self.record.swap.push(path.clone());
                self.save()?;
                let on = swap::create(&path, bytes).and_then(|()| fulgurite_sys::swap::on(&path));
                on.map_err(|e| format!("the kernel does not swap to {}: {e}", path.display()))?;
            }
            Request::SwapOff => {
                for path in self.record.swap.clone() {
                    let removed = swap::remove(&path);
                    removed.map_err(|e| format!("the swap file {} could not be removed: {e}", path.display()))?;
                }
                self.record.swap.clear();
                self.save()?;
            }
            Request::PageCluster { value } => {
                if self.record.page_cluster.is_none() {
                    self.record.page_cluster = page_cluster();
                    self.save()?;
                }
                fs::write(PAGE_CLUSTER, value.to_string()).map_err(|e| format!("{PAGE_CLUSTER} was not set: {e}"))?;
            }
            Request::ZswapOff if zswap() != "on" => {}
            Request::ZswapOff => {
                self.record.zswap_was_on = true;
                self.save()?;
                if let Err(e) = fs::write(ZSWAP, "N") {
                    self.record.zswap_was_on = false;
                    self.save()?;
                    return Err(format!("zswap could not be turned off: {e}"));
                }
            }
            Request::Adopt { path } => {
                if !path.is_absolute() {
                    return Err(format!("{} is not an absolute path", path.display()));
                }
                if !self.record.files.contains(&path) {
                    self.record.files.push(path);
                    self.save()?;
                }
            }
            Request::Release { path } => {
                self.record.files.retain(|known| *known != path);
                self.save()?;
            }
        }
        Ok(Reply::Done)
    }
}

fn zswap() -> &'static str {
    match fs::read_to_string(ZSWAP).as_deref().map(str::trim) {
        Ok("Y") => "on",
        Ok(_) => "off",
        Err(_) => "absent",
    }
}

fn page_cluster() -> Option<u32> {
    fs::read_to_string(PAGE_CLUSTER).ok()?.trim().parse().ok()
}
