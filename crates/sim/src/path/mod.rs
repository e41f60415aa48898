//! The path of memory: requests over a link to DRAM controllers, where DRAM may be a cache of flash
//! pages.
//!
//! ```text
//!   requests --link--> tags --hit--> controllers of DRAM (FR-FCFS) --link--> end
//!                        |miss
//!                        +--> flash: victim written, page read --> its lines into DRAM
//! ```
//!
//! Without a cache it is DRAM alone. With one it is the kind of hybrid memory that NVMM's authors
//! simulate (HybridSim): pages, sets of many ways, a tag look-up before each access, write-back.
//!
//! Lines next to each other are on different channels, then in the same row, then in different
//! banks. Reads and writes of DRAM take the same time. A page that comes is written into DRAM line
//! by line, and the request that wanted it goes on when the page is there.

mod run;

pub use run::{PageCache, PathReport, PathSystem};
