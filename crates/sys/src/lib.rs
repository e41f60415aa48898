//! Raw Linux, made safe to call: memory, rings, affinity, barriers, clocks, random bytes.
//!
//! Everything in the tree that speaks to the kernel or to one processor family sits here (`arch`
//! holds what is x86-64).
//! Invariant: a safe function of this crate cannot break memory safety whatever it is given. It
//! decides nothing.

pub mod affinity;
pub mod arch;
pub mod arena;
pub mod barrier;
pub mod clock;
pub mod counters;
pub mod descriptors;
pub mod direct_file;
mod dropping;
pub mod endings;
pub mod faults;
pub mod gate;
pub mod hidden;
pub mod image_file;
pub mod mapping;
pub mod notify;
#[doc(hidden)]
pub mod planted;
pub mod process;
pub mod random;
mod ring;
pub mod seccomp;
pub mod signals;
pub mod socket_path;
pub mod swap;
pub mod threads;
pub mod uring;
pub mod userfault;
pub mod workers;

pub use arena::{Arena, ArenaError, Backed};
pub use clock::{Clock, SimulatedTime};
pub use counters::Counter;
pub use direct_file::{DirectFile, rename_new};
pub use gate::Gate;
pub use hidden::{ForkMark, HiddenFile, Hiding};
pub use image_file::{ImageChild, ImageFile};
pub use mapping::Mapping;
pub use notify::Notifier;
pub use process::Process;
pub use random::random_bytes;
pub use socket_path::{SocketPath, SocketPathError};
pub use uring::{RingUser, Uring};
pub use userfault::{Region, Userfault, UserfaultError};
