//! Goal: a run is a function of its configuration and its seed, in every build. Method: results of
//! all models and policies as JSON, hashed. Among them are workloads that are executed, recorded
//! and traced. The hashes are kept here, and other seeds give others. This file is compiled twice:
//! for the tests of this crate, with assertions, and for the command's tests (`conform_sim`). The
//! latter have the profile `quick`, which optimises as a release does.

use std::sync::Arc;

use fulgurite_sim::cores::Front;
use fulgurite_sim::path::{PathReport, PathSystem};
use fulgurite_sim::queue::{Core, Jobs, Misses, SchedulingPolicy, Servers, Spans};
use fulgurite_sim::system::{RunInput, System};
use fulgurite_sim::trace::{Format, Record, Trace};
use fulgurite_sim::{Recording, Time};

use super::common::{cores, document, flash, interface, traced_text, ufs, workers};

/// Of all results with seed 7: of `results`, then of `more`. A change of a model or of its random
/// numbers changes one of them.
const KEPT: [&str; 2] = ["a55d16e5a1ae5513", "71a313cfcaf1057c"];

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
    // Random reads and writes of a device that was used for long.
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

/// Random requests to DRAM that is a cache of flash.
fn memory(seed: u64) -> PathReport {
    let text = include_str!("../../../systems/compat-hybridsim.toml");
    let set = [("requests.warm_up", "1000"), ("requests.count", "5000")];
    let system = PathSystem::read(&document(text, &set), None).unwrap();
    system.run(seed).unwrap()
}

/// Programs over more memory than DRAM by each backend, a recording with its replay, and a trace on
/// cores.
fn more(seed: u64) -> String {
    let mut all = String::new();
    let found = |text: &str, set: &[(&str, &str)], given: RunInput<'_>| {
        let set: Vec<(String, String)> = set.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let report = System::read("test.toml", text, &set, given).unwrap().run(seed).unwrap();
        serde_json::to_string(&report.found).unwrap()
    };
    let few = [("program.untimed", "20000"), ("program.warm_up", "200"), ("program.count", "2000")];
    for text in [
        include_str!("../../../systems/all-dram.toml"),
        include_str!("../../../systems/nvmm.toml"),
        include_str!("../../../systems/ssd-swap.toml"),
        include_str!("../../../systems/ssdalloc-objects.toml"),
        include_str!("../../../systems/ssdalloc-pages.toml"),
    ] {
        all += &found(text, &few, RunInput::Nothing);
    }
    let small = [("workload.data", "8M"), ("cache.sets", "128"), ("run.warm_up", "100"), ("run.jobs", "600")];
    let executed = Front::Executed { instructions: 2000, own: 4 };
    let (report, recording) = cores(&small).record(seed, &executed, false).unwrap();
    all += &serde_json::to_string(&report).unwrap();
    all += &hash(&format!("{:?}", recording.bytes()));
    let front = Front::Recorded(Arc::new(Recording::read(recording.bytes().to_vec()).unwrap()));
    let system = cores(&[&small[..], &[("system.paging", "system")]].concat());
    all += &serde_json::to_string(&system.run_with(seed, &front, false).unwrap()).unwrap();
    // Pages by the seed, as a trace has no random numbers of its own.
    let record = |line: u64| Record {
        line,
        at: None,
        writes: line.is_multiple_of(3),
        offset: (line * 2_654_435_761 + seed) % 20_000 * 4096,
        bytes: 64,
    };
    let trace = Trace { format: Format::Ramulator2, records: (1..=200).map(record).collect() };
    all + &found(&traced_text("switch", 2), &[("run.jobs", "100")], RunInput::Trace(&trace))
}

fn hash(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

#[test]
fn the_same_bytes_in_every_build() {
    for (of, kept) in [results, more].into_iter().zip(KEPT) {
        let text = of(7);
        assert!(!text.contains("NaN"), "{text}");
        assert_eq!(hash(&text), kept, "the models have changed, or a build gives other bytes");
        assert_eq!(of(7), text);
        assert_ne!(hash(&of(8)), kept);
    }
}
