//! All tests of this crate but those under loom, as one program: linked once, and each test runs in
//! a process of its own.

mod model_admission;
mod model_heat;
mod model_miss_table;
mod model_prefetch;
mod model_prefetch_rules;
mod model_replacement;
mod model_schedule;
