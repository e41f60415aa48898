//! Messages between the program and its helper: one JSON object a line, one answer to each request.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the helper is to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Asks what can be had ([`Capabilities`]).
    Probe {
        /// The directory that swap files would be in.
        scratch: PathBuf,
    },
    /// Makes a cgroup with a limit.
    Cgroup {
        /// Its name, after the common prefix.
        name: String,
        /// The most memory that it may use.
        limit_bytes: u64,
        /// Whether nothing of it may be swapped.
        no_swap: bool,
    },
    /// Takes the limits of a cgroup away.
    Lift {
        /// The cgroup.
        name: String,
    },
    /// Puts a process into a cgroup.
    Join {
        /// The cgroup.
        name: String,
        /// The process.
        pid: u32,
    },
    /// The most memory that a cgroup has used, and whether the kernel killed anybody in it.
    Peak {
        /// The cgroup.
        name: String,
    },
    /// Ends all processes of a cgroup, and removes it.
    DropCgroup {
        /// The cgroup.
        name: String,
    },
    /// Creates a swap file and swaps to it.
    SwapOn {
        /// The directory of the file.
        scratch: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Stops to swap to the files that were created, and removes them.
    SwapOff,
    /// Sets `vm.page-cluster`: read-ahead from swap in powers of two.
    PageCluster {
        /// The power.
        value: u32,
    },
    /// Turns zswap off until the end.
    ZswapOff,
    /// Removes this file at the end, however the program ends.
    Adopt {
        /// An absolute path.
        path: PathBuf,
    },
    /// Forgets an adopted file: it is gone, and another file may take its path.
    Release {
        /// An absolute path.
        path: PathBuf,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    Done,
    /// To [`Request::Probe`].
    Capabilities(Capabilities),
    /// To [`Request::Peak`].
    Peak {
        bytes: u64,
        /// Processes that the kernel killed for want of memory.
        killed: u64,
    },
    /// It could not be done; the sentence says why.
    Failed(String),
}

/// What can be had on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Capabilities {
    /// 1 or 2, where memory cgroups can be made.
    pub cgroup_version: Option<u32>,
    /// Why there can be no cgroup, where there cannot.
    pub cgroup_missing: Option<String>,
    /// Why there can be no swap file, where there cannot.
    pub swap_missing: Option<String>,
    /// zswap: "on", "off" or "absent", as it was found.
    pub zswap: String,
    /// `vm.page-cluster` as it was found.
    pub page_cluster: Option<u32>,
}

impl Capabilities {
    /// Why nothing can be swapped from a cgroup, where it cannot.
    pub fn without_swap(&self) -> Option<String> {
        self.cgroup_missing.clone().or(self.swap_missing.clone())
    }
}
