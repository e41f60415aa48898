//! Goal: a job that runs out of stack in an access that misses, or anywhere else where the runtime
//! works on the job's stack, ends alone. Nobody has to wait for a subpage that it was about to
//! bring in, and no frame is lost. Method: jobs go down their stacks in small steps, from different
//! starting points, and access another subpage at each; so overflows strike in every part of a
//! miss, of an eviction, of a pin and of a switch. After each round, every subpage must be there at
//! once, in a cache of few frames. An overflow in the middle of a miss once left its subpage in
//! transit for ever.

use std::sync::Arc;
use std::time::Duration;

use fulgurite::{
    Address, Context, JobError, JobOptions, Memory,
    media::{EmulatedConfig, EmulatedFlash, Flash, MemoryFlash},
    runtime::{BuildError, Runtime},
    views::Ptr,
};
use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, Op, When};

const SUBPAGES: u64 = 256;
const FRAMES: u64 = 8;

fn word(subpage: u64) -> Ptr<u64> {
    Ptr::new(Address::from_linear(subpage % SUBPAGES * 4096))
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Act {
    Load,
    Store,
    Pin,
    Yield,
    Prefetch,
}

#[inline(never)]
fn deeper(context: &mut Context, depth: u64, stride: u64, act: Act) -> u64 {
    let room = std::hint::black_box([depth; 4]);
    // What fails here fails for want of frames; the stack is what this is about.
    let found = match act {
        Act::Load => context.load(word(depth * stride)).unwrap_or(1),
        Act::Store => u64::from(context.store(word(depth * stride), 7).is_ok()),
        Act::Pin => u64::from(context.pin(word(depth * stride).address()).is_ok()),
        Act::Yield => u64::from(context.yield_now().is_ok()),
        Act::Prefetch => {
            context.prefetch(word(depth * stride).address());
            0
        }
    };
    if depth == u64::MAX { 0 } else { deeper(context, depth + 1, stride, act) + room[(depth % 4) as usize] + found }
}

/// Uses up about `bytes` of stack first.
#[inline(never)]
fn after(context: &mut Context, bytes: u64, stride: u64, act: Act) -> u64 {
    let room = std::hint::black_box([bytes; 4]);
    if bytes < 64 {
        deeper(context, 1, stride, act)
    } else {
        after(context, bytes - 64, stride, act) + room[(bytes % 4) as usize]
    }
}

fn overflow_everywhere(what: &str, flash: Arc<dyn Flash>, workers: usize) {
    let builder = Runtime::builder(flash)
        .workers(workers)
        .fibers(8)
        .existing(SUBPAGES * 4096)
        .device_timeout(Duration::from_secs(2));
    let Err(BuildError::TooSmall { fixed, least, .. }) = builder.clone().dram(1).build() else {
        panic!("a byte of DRAM is too small");
    };
    let runtime = builder.dram(fixed + (least - fixed) * FRAMES).build().unwrap();
    let options = JobOptions::new().pins(1);
    for round in 0..40u64 {
        let acts = [Act::Load, Act::Store, Act::Pin, Act::Yield, Act::Prefetch];
        let handles: Vec<_> = (0..8u64)
            .map(|job| {
                let act = acts[(round + job) as usize % acts.len()];
                let (bytes, stride) = ((job * 200 + round) * 8 % 2048, 1 + 2 * (round + job));
                runtime.submit_with(&options, move |context| after(context, bytes, stride, act)).unwrap()
            })
            .collect();
        for handle in handles {
            let result = handle.wait();
            assert!(matches!(result, Err(JobError::StackOverflow { .. })), "{what}, round {round}: {result:?}");
        }
        let handles: Vec<_> = (0..SUBPAGES)
            .map(|subpage| {
                let options = options.clone().worker(subpage as usize % workers);
                runtime.submit_with(&options, move |context| context.load(word(subpage))).unwrap()
            })
            .collect();
        for (subpage, handle) in handles.into_iter().enumerate() {
            let found = handle.wait();
            assert!(
                matches!(found, Ok(Ok(0 | 7))),
                "{what}, {workers} workers, round {round}, subpage {subpage}: {found:?}"
            );
        }
    }
    runtime.write_back().unwrap();
    assert_eq!(runtime.statistics().total().counts.jobs_died, 40 * 8);
}

#[test]
fn an_overflow_in_the_runtime_ends_its_job_alone() {
    for workers in 1..=2 {
        let memory = || MemoryFlash::new(SUBPAGES as u32).unwrap();
        overflow_everywhere("memory", Arc::new(memory()), workers);
        let late = FaultPlan::rule(Some(Op::Read), When::Every(2), Fault::Late { polls: 30 });
        overflow_everywhere("late memory", Arc::new(FaultyFlash::new(memory(), late)), workers);
        let quick = EmulatedConfig {
            read_latency: Duration::from_micros(5),
            write_latency: Duration::from_micros(8),
            ..EmulatedConfig::new(SUBPAGES as u32)
        };
        overflow_everywhere("device", Arc::new(EmulatedFlash::new(quick).unwrap()), workers);
    }
}
