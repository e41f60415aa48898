//! Queues of jobs: servers of one queue ([`servers`]), and a core that runs threads ([`core`]).

pub mod core;
pub mod jobs;
pub mod servers;

pub use self::core::{Core, CoreReport, Misses};
pub use fulgurite_policy::SchedulingPolicy;
pub use jobs::{Jobs, Spans};
pub use servers::{Servers, ServersReport};
