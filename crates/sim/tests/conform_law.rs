//! Goal: Little's law holds exactly in each model, however short a run is, and a queue that grows
//! has no result. Method: the systems of `systems/` and of the tests with a few requests, of which
//! many are under way at both ends. Then requests come faster than the device serves.

use std::path::Path;

use fulgurite_sim::flash::FlashSystem;
use fulgurite_sim::system::{RunInput, System};
use fulgurite_sim::trace::{Format, Trace};
use fulgurite_sim::{Report, RunError};

use crate::common::{cores, document, flash, flash_text, interface, ufs, workers};

/// What floating point leaves.
const EXACT: f64 = 1e-9;

fn system(name: &str, set: &[(&str, &str)]) -> System {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems").join(name);
    let text = std::fs::read_to_string(&file).unwrap();
    let set: Vec<(String, String)> = set.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    System::read(name, &text, &set, RunInput::Nothing).unwrap()
}
/// The deviation, and how many had ended.
fn of(report: &Report) -> (f64, f64) {
    let json = serde_json::to_value(report).unwrap();
    let law = &json["law"];
    let ended = law["rate_per_s"].as_f64().unwrap() * json["simulated_s"].as_f64().unwrap();
    (law["deviation"].as_f64().unwrap(), ended.round())
}

#[test]
fn short_runs_have_results() {
    // Fewer requests than are under way at once.
    for name in ["nand-only", "compat-dramsim3", "compat-hybridsim"] {
        let set = [("requests.depth", "64"), ("requests.warm_up", "70"), ("requests.count", "50")];
        let report = system(&format!("{name}.toml"), &set).run(1).unwrap();
        let (deviation, ended) = of(&report);
        assert!(deviation < EXACT && ended == 50.0, "{name}: {deviation}, {ended} ended");
    }
    let set = [("requests.warm_up", "3"), ("requests.count", "5")];
    for report in [interface(&set).run(1).unwrap(), ufs(&set).run(1).unwrap()] {
        assert!(report.law.deviation < EXACT && report.requests.count == 5, "{:?}", report.law);
    }
    // Accesses of the model `paging` by each backend, several under way at once.
    let few = [("program.untimed", "500"), ("program.warm_up", "3"), ("program.count", "10")];
    let threads = [("program.threads", "8"), ("system.cores", "8")];
    for name in ["all-dram", "nvmm", "ssd-swap", "ssdalloc-objects"] {
        let report = system(&format!("{name}.toml"), &[&few[..], &threads].concat()).run(1).unwrap();
        let (deviation, ended) = of(&report);
        assert!(deviation < EXACT && ended == 10.0, "{name}: {deviation}, {ended} ended");
    }
    // Cores, whose threads wait at the end.
    let report = cores(&[("run.warm_up", "50"), ("run.jobs", "40")]).run(1).unwrap();
    assert!(report.law.deviation < EXACT && report.service.count == 40, "{:?}", report.law);
    let report = workers(&[("run.requests", "40")]).run(1).unwrap();
    assert!(report.law.deviation < EXACT && report.service.count == 40, "{:?}", report.law);
}
#[test]
fn traces_end_and_have_results() {
    let bytes = &include_bytes!("traces/mqsim.trace")[..];
    let trace = Trace::read(bytes, Some(Format::Mqsim), None).unwrap();
    // As its format says, and one after the other from half-way on.
    for (arrivals, warm_up) in [("trace", "1"), ("trace", "0"), ("closed", "2")] {
        let set = [("requests.pattern", "trace"), ("requests.arrivals", arrivals), ("requests.warm_up", warm_up)];
        let system = FlashSystem::read(&document(&flash_text(), &set), Some(&trace.records)).unwrap();
        let report = system.run(1).unwrap();
        assert!(report.law.deviation < EXACT && report.counted.requests == 3, "{arrivals}: {:?}", report.law);
    }
}
#[test]
fn a_queue_that_grows_has_no_result() {
    let set = [("requests.arrivals", "poisson"), ("requests.between", "1us"), ("requests.count", "5000")];
    let told = flash(&set).run(1);
    assert!(matches!(told, Err(RunError::Unsteady(_))), "{told:?}");
}
#[test]
fn writes_without_reclaim_are_reported_in_each_model() {
    let told = |warnings: &[String]| warnings.iter().any(|warning| warning.contains("no block was reclaimed"));
    let few =
        [("requests.writes", "true"), ("requests.size", "8K"), ("requests.warm_up", "0"), ("requests.count", "50")];
    for report in [interface(&few).run(1).unwrap(), ufs(&few).run(1).unwrap()] {
        assert!(told(&report.warnings), "{report:?}");
    }
    // Many pages are missing, and some of those in their place were written to.
    let of = |reads| {
        let cache = [("cache.sets", "16"), ("cache.ways", "2")];
        let set =
            [cache[0], cache[1], ("requests.reads", reads), ("requests.warm_up", "0"), ("requests.count", "2000")];
        told(system("compat-hybridsim.toml", &set).run(1).unwrap().warnings())
    };
    assert!(of("20%") && !of("100%"));
}
