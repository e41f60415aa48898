//! A context does not outlive its job.
use fulgurite_runtime::{Context, Runtime};

fn keep(runtime: &Runtime) {
    static KEPT: std::sync::Mutex<Option<&'static mut Context>> = std::sync::Mutex::new(None);
    let _ = runtime.submit(|context| *KEPT.lock().unwrap() = Some(context));
}

fn main() {}
