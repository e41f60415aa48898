//! Goal: what the evictor writes back at one time reaches the medium at one time, so that a file
//! gets neighbours as one request, also when programs outrun the file. Method: jobs write all of a
//! file that is many times their frames, upwards, so that victims are neighbours; the file's count
//! of requests is compared with its count of subpages. Then everything must be there.

use crate::guarded;

use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{FileBackend, FileConfig, FileFlash, FileMode, Flash};
use fulgurite_memory::Memory;
use fulgurite_runtime::{JobOptions, Runtime};
use guarded::{with_frames, within, word};

const SUBPAGES: u64 = 8192;

#[test]
fn conform_what_is_evicted_together_is_few_requests() {
    within(120, "write-backs", || {
        let path = std::env::temp_dir().join(format!("fulgurite-write-back-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        for (backend, workers) in [(FileBackend::Auto, 1), (FileBackend::Auto, 2), (FileBackend::Threads(2), 1)] {
            let mode = FileMode::Create { bytes: SUBPAGES * 4096 };
            let flash =
                Arc::new(FileFlash::open(&FileConfig { mode, backend, ..FileConfig::existing(&path) }).unwrap());
            let builder = Runtime::builder(flash.clone()).fibers(16).submit_batch(4).spin(Duration::from_micros(20));
            let runtime = with_frames(builder, workers, 640);
            let share = SUBPAGES / workers as u64;
            for round in 1..=2 {
                let jobs: Vec<_> = (0..workers as u64)
                    .map(|worker| {
                        let all = worker * share..(worker + 1) * share;
                        let options = JobOptions::new().worker(worker as usize);
                        let job = move |c: &mut fulgurite_runtime::Context| {
                            all.clone().try_for_each(|i| c.store(word(i, 3), i * round))
                        };
                        runtime.submit_with(&options, job).unwrap()
                    })
                    .collect();
                jobs.into_iter().for_each(|job| job.wait().unwrap().unwrap());
            }
            let counters = flash.counters();
            println!("{backend:?}, {workers} workers: {counters:?}");
            assert!(counters.writes > SUBPAGES, "{counters:?}");
            assert!(counters.write_requests * 4 < counters.writes, "{counters:?}");
            let wrong = runtime.run(|c| {
                let mut wrong = 0;
                for i in 0..SUBPAGES {
                    wrong += u64::from(c.load(word(i, 3))? != i * 2);
                }
                Ok::<_, fulgurite_memory::AccessError>(wrong)
            });
            assert_eq!(wrong.unwrap(), 0);
            drop(runtime);
            std::fs::remove_file(&path).unwrap();
        }
    });
}
