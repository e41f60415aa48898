//! All tests of this crate but those under loom, as one program: linked once, and each test runs in
//! a process of its own.

mod common;
mod guarded;
mod maps;

mod conform_budget;
mod conform_jobs;
mod conform_queues;
mod conform_safe_code;
mod conform_sections;
mod conform_write_back;
mod fault_guarded;
mod fault_roots;
mod fault_runtime;
mod fault_streams;
mod model_array;
mod model_b_plus_tree;
mod model_blobs;
mod model_growth;
mod model_guarded;
mod model_hash_map;
mod model_heap;
mod model_masstree;
mod model_parts;
mod model_roots;
mod model_transactions;
mod model_views;
