//! A15: what the operating system adds to an access, and what switching saves.

use fulgurite_sim::Time;
use fulgurite_sim::queue::Misses;

use super::slo::computing;
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::Planted;
use crate::models::shootdown::Shootdown;

/// Shootdowns of a run that is reported, and jobs of the core.
const SHOOTDOWNS: u64 = 60_000;
const JOBS: u64 = 2_000;

/// `cores` cores under OS-Swap, each of which evicts a page for every page it misses.
fn shootdown(inputs: &Inputs<'_>, cores: u32) -> Result<Shootdown, CheckError> {
    let every = inputs.time("miss.interval")? + inputs.time("paging.fault")? + inputs.time("paging.switch")?;
    let send = inputs.time("shootdown.send")?;
    Ok(Shootdown {
        cores,
        // A broadcast that took no longer for more cores would be one interrupt.
        send: if inputs.planted == Some(Planted::FreeBroadcast) { Time::ZERO } else { send },
        interrupt: inputs.time("shootdown.interrupt")?,
        between: every * inputs.count("shootdown.batch")?,
        count: inputs.volume(SHOOTDOWNS).max(5_000),
        seed: inputs.seed,
    })
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let (stack, spaces) = (inputs.time("paging.stack")?, inputs.time("paging.spaces")?);
    let (fault, switch) = (inputs.time("paging.fault")?, inputs.time("paging.switch")?);
    let user = inputs.time("miss.switch")?;

    let slower = 1.0 / computing(inputs, Misses::Stall, (Time::ZERO, Time::ZERO), (JOBS / 10, JOBS))?;

    let (few, many) = (inputs.count("system.cores")? as u32, inputs.count("system.cores_large")? as u32);
    let on_few = shootdown(inputs, few)?;
    let on_many = shootdown(inputs, many)?;
    let (of_few, of_many) = (on_few.latency(), on_many.latency());
    let counts: Vec<u32> = std::iter::successors(Some(2), |count| Some(count * 2)).take_while(|n| *n <= many).collect();
    let mut latencies = Vec::new();
    for count in counts {
        latencies.push(shootdown(inputs, count)?.latency());
    }
    let seldom = Shootdown { between: Time(on_few.between.0 * 1000), ..on_few };
    let of_a_fault = Time(of_few.0 / inputs.count("shootdown.batch")?);
    Ok(vec![
        Finding::of("stack", "the storage stack consumes up to 10 µs")
            .within(fault.as_us(), "µs", (0.0, 10.0))
            .by("a fault of OS-Swap, which contains the storage stack")
            .also("µs of the flash access by the OS (slides)", stack.as_us()),
        Finding::of("fault", "2 + 3 µs")
            .exact(fault.as_us(), (stack + spaces).as_us(), "µs")
            .by("the slides' storage stack and paging between spaces are their page fault of 5 µs"),
        Finding::of("switch", "50x faster than a context switch")
            .exact(50.0, switch.as_us() / user.as_us(), "times")
            .by("5 µs over 100 ns"),
        Finding::of("no-switch", "without context switches 5-10x slower than DRAM-only")
            .within(slower, "times slower", (5.0, 10.0))
            .by("event loop: the core waits 50 µs at each miss"),
        Finding::of("shootdown", "over 10 µs")
            .within(of_many.as_us(), "µs", (10.0, f64::INFINITY))
            .by("64 cores: the lock, an interrupt to each other core, the last answer")
            .also("µs on 16 cores", of_few.as_us())
            .also("µs on 64 cores without the wait for the lock", on_many.alone().as_us()),
        Finding::of("closed-form", "the same, alone")
            .within(
                seldom.latency().as_us() / seldom.alone().as_us(),
                "of (cores - 1) x send + interrupt",
                (0.98, 1.02),
            )
            .by("the simulated latency where shootdowns are rare"),
        Finding::of("grows", "scales poorly with the number of cores")
            .trend(
                latencies.windows(2).all(|pair| pair[1] > pair[0]) && of_many > of_few,
                of_many.as_us() / of_few.as_us(),
                "times from 16 to 64 cores",
            )
            .by("a broadcast is an interrupt for each core, and shootdowns grow with the cores"),
        Finding::of("contained", "OS-Swap's 10 µs contains it")
            .trend(of_a_fault < fault, of_a_fault.as_us(), "µs of each fault, 16 cores")
            .by("Linux reclaims 32 pages with one shootdown"),
    ])
}
