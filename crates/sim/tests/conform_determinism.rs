//! Goal: a run is a function of its configuration and its seed, in every build. Method: results of
//! all policies as JSON, hashed. The hash is kept here: debug and release builds must give it, and
//! other seeds another one.

use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::Time;
use fulgurite_sim::queue::{Core, Jobs, Misses, Servers, Spans};

use crate::common::{cores, flash, interface, ufs, workers};

/// Of all results with seed 7. A change of a model or of its random numbers changes it.
const KEPT: &str = "4005588875ec67e3";

fn results(seed: u64) -> String {
    let mut all = String::new();
    let mut misses = vec![Misses::Absent, Misses::Stall];
    misses.extend(SchedulingPolicy::ALL.map(|policy| Misses::Switch { policy, threads: 8 }));
    for misses in misses {
        for between in [None, Some(Time::us(80))] {
            let core = Core {
                misses,
                flash: Time::us(50),
                miss_cost: Time::ns(250),
                switch_cost: Time::ns(100),
                between,
                warm_up: 500,
                jobs: 5000,
            };
            let (lengths, intervals) = (Spans::Exponential(Time::us(10)), Spans::Uniform(Time::us(5), Time::us(25)));
            let jobs = Jobs::new(lengths, intervals, core.threads(), seed);
            all += &serde_json::to_string(&core.run(jobs, seed).unwrap()).unwrap();
        }
    }
    let servers = Servers { servers: 6, service: Time::us(60), between: Time::us(12), jobs: 5000 };
    all += &serde_json::to_string(&servers.run(seed).unwrap()).unwrap();
    // Reads and writes of a device that was used for long, as they come by chance.
    let used = [
        ("requests.arrivals", "poisson"),
        ("requests.pattern", "random"),
        ("requests.reads", "90%"),
        ("requests.count", "6000"),
        ("flash.filled", "80%"),
        ("flash.aged", "2"),
        ("nand.wear.spread", "0.1"),
        ("nand.ecc.bit_errors_fresh", "0.00001"),
        ("nand.ecc.bit_errors_worn", "0.001"),
    ];
    all += &serde_json::to_string(&flash(&used).run(seed).unwrap()).unwrap();
    all += &serde_json::to_string(&interface(&[]).run(1).unwrap()).unwrap();
    all += &serde_json::to_string(&ufs(&[("requests.pattern", "random")]).run(1).unwrap()).unwrap();
    all + &serde_json::to_string(&cores(&[]).run(seed).unwrap()).unwrap()
}

/// Workloads that are executed choose keys by the platform's functions, so that no hash of them is
/// kept.
#[test]
fn executed_workloads_repeat() {
    let result = |seed| serde_json::to_string(&workers(&[]).run(seed).unwrap()).unwrap();
    assert_eq!(result(7), result(7));
    assert_ne!(result(7), result(8));
}

fn hash(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

#[test]
fn the_same_bytes_in_every_build() {
    let text = results(7);
    assert!(!text.contains("NaN"), "{text}");
    assert_eq!(hash(&text), KEPT, "the models have changed, or a build gives other bytes");
    assert_eq!(results(7), text);
    assert_ne!(hash(&results(8)), KEPT);
}
