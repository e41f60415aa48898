//! Goal: a run is a function of its configuration and its seed, in every build. Method: results of
//! all models and policies as JSON, hashed, workloads that are executed among them. The hash is
//! kept here: debug and release builds must give it, and other seeds another one.

use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::Time;
use fulgurite_sim::cores::Front;
use fulgurite_sim::path::{PathReport, PathSystem};
use fulgurite_sim::queue::{Core, Jobs, Misses, Servers, Spans};

use crate::common::{cores, document, flash, interface, ufs, workers};

/// Of all results with seed 7. A change of a model or of its random numbers changes it.
const KEPT: &str = "c65fb7b4bf2b8924";

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
    all += &serde_json::to_string(&cores(&[]).run(seed).unwrap()).unwrap();
    let executed = [("workload.data", "8M"), ("cache.sets", "128"), ("run.warm_up", "100"), ("run.jobs", "600")];
    for (name, exponent) in [("tatp", "0.9"), ("silo", "1.0")] {
        let set = [&executed[..], &[("workload.name", name), ("workload.exponent", exponent)]].concat();
        let front = Front::Executed { instructions: 2000, own: 4 };
        all += &serde_json::to_string(&cores(&set).run_with(seed, &front, false).unwrap()).unwrap();
    }
    for exponent in ["0.9", "1.0"] {
        let set = [("workload.exponent", exponent), ("run.warm_up", "2000"), ("run.requests", "4000")];
        all += &serde_json::to_string(&workers(&set).run(seed).unwrap()).unwrap();
    }
    all + &serde_json::to_string(&memory(seed)).unwrap()
}

/// Requests to DRAM that is a cache of flash, as they come by chance.
fn memory(seed: u64) -> PathReport {
    let text = include_str!("../../../systems/compat-hybridsim.toml");
    let set = [("requests.warm_up", "1000"), ("requests.count", "5000")];
    let system = PathSystem::read(&document(text, &set), None).unwrap();
    system.run(seed).unwrap()
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
