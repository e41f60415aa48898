//! What the tests of the guarded path share: runtimes of very few frames, media, and a watch over
//! hangs.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use fulgurite_flash::{EmulatedConfig, EmulatedFlash, Flash};
use fulgurite_memory::{Address, Ptr};
use fulgurite_runtime::{BuildError, Builder, Runtime};

/// Builds with `frames` frames for each worker: asks for too little first, and learns what the
/// least is.
pub fn with_frames(builder: Builder, workers: usize, frames: u64) -> Runtime {
    let builder = builder.workers(workers);
    let Err(BuildError::TooSmall { fixed, least, .. }) = builder.clone().dram(1).build() else {
        panic!("a byte of DRAM is too small");
    };
    let per_frame = (least - fixed) / workers as u64;
    let runtime = builder.dram(fixed + frames * per_frame * workers as u64).build().unwrap();
    assert_eq!((runtime.frames(), runtime.fixed_bytes()), (frames * workers as u64, fixed));
    runtime
}

/// The `word`-th eight bytes of a subpage.
pub fn word(subpage: u64, word: u64) -> Ptr<u64> {
    Ptr::new(Address::from_linear(subpage * 4096 + word * 8))
}

/// An emulated device, quick enough for tests and slow enough that fibers wait.
pub fn quick_device(subpages: u32) -> Arc<dyn Flash> {
    let config = EmulatedConfig {
        read_latency: Duration::from_micros(5),
        write_latency: Duration::from_micros(8),
        ..EmulatedConfig::new(subpages)
    };
    Arc::new(EmulatedFlash::new(config).unwrap())
}

/// Runs `test` and ends the process when it takes longer than `seconds`: a hang is a failure, not a
/// wait.
pub fn within<T: Send + 'static>(seconds: u64, what: &'static str, test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(what.into())
        .spawn(move || {
            let result = test();
            let _ = done.send(());
            result
        })
        .unwrap();
    if is_done.recv_timeout(Duration::from_secs(seconds)) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("{what}: hangs for more than {seconds} s");
        std::process::abort();
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
