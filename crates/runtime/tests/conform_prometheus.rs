//! Goal: what the runtime tells a monitoring system is Prometheus text that a strict reader takes,
//! and the numbers are those that a program gets. Method: a reader of the text format, version
//! 0.0.4, that refuses everything that the format leaves to luck. This is a metric without a type
//! or with two, samples that stand apart from their metric's others, a series given twice, labels
//! that are not quoted. Two workers do some work, and fail at some; then text and numbers of one
//! snapshot are compared one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, FlashError, MemoryFlash, Op, When};
use fulgurite_format::Address;
use fulgurite_runtime::{JobOptions, Runtime, Statistics};

type Labels = BTreeMap<String, String>;

/// All samples of one metric: its type, and for each the name's suffix, the labels and the value.
#[derive(Debug)]
struct Family {
    kind: String,
    samples: Vec<(String, Labels, f64)>,
}

impl Family {
    fn value(&self, suffix: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: Labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let found = self.samples.iter().find(|(s, l, _)| s == suffix && *l == labels);
        found.unwrap_or_else(|| panic!("no sample {suffix:?} {labels:?} in {self:?}")).2
    }
    fn sum(&self, suffix: &str) -> f64 {
        self.samples.iter().filter(|(s, ..)| s == suffix).map(|(.., value)| value).sum()
    }
}

fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// Takes `name="value",..` apart.
fn read_labels(mut text: &str) -> Result<Labels, String> {
    let mut labels = Labels::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").ok_or("a label without a quoted value")?;
        if !is_name(name) || name.contains(':') {
            return Err(format!("{name:?} is no label"));
        }
        let end = rest.find('"').ok_or("a label's value without an end")?;
        if rest[..end].contains(['\\', '\n']) {
            return Err(format!("{:?} wants escapes that nothing here needs", &rest[..end]));
        }
        if labels.insert(name.to_owned(), rest[..end].to_owned()).is_some() {
            return Err(format!("label {name} twice"));
        }
        let rest = &rest[end + 1..];
        text = match rest.strip_prefix(',') {
            Some(more) if !more.is_empty() => more,
            None if rest.is_empty() => rest,
            _ => return Err("labels that are not separated by one comma each".to_owned()),
        };
    }
    Ok(labels)
}

/// Reads the text format, version 0.0.4.
fn read(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut current, mut helped, mut series) = (String::new(), BTreeSet::new(), BTreeSet::new());
    if !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    for line in text.lines() {
        let wrong = |what: &str| Err(format!("{what}: {line:?}"));
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next().unwrap_or_default();
            if !is_name(name) || families.contains_key(name) || !helped.insert(name.to_owned()) {
                return wrong("help twice, late or for no name");
            }
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = kind.split_once(' ') else { return wrong("a type without a name") };
            if !is_name(name) || !["counter", "gauge", "histogram"].contains(&kind) {
                return wrong("no name or no type that is in use here");
            }
            current = name.to_owned();
            if families.insert(current.clone(), Family { kind: kind.to_owned(), samples: Vec::new() }).is_some() {
                return wrong("a second type");
            }
        } else {
            let Some((key, value)) = line.rsplit_once(' ') else { return wrong("no value") };
            let Ok(value) = value.parse::<f64>() else { return wrong("no number") };
            let (name, labels) = match key.split_once('{') {
                None => (key, ""),
                Some((name, labels)) => match labels.strip_suffix('}') {
                    Some(labels) => (name, labels),
                    None => return wrong("labels without an end"),
                },
            };
            let labels = read_labels(labels).map_err(|what| format!("{what}: {line:?}"))?;
            let Some(family) = families.get_mut(&current) else { return wrong("a sample before any type") };
            let suffix = match name.strip_prefix(current.as_str()) {
                Some("") => "",
                Some(suffix @ ("_sum" | "_count" | "_bucket")) if family.kind == "histogram" => suffix,
                _ => return wrong("a sample of another metric than the one whose type came last"),
            };
            if labels.contains_key("le") != (suffix == "_bucket") || family.kind == "histogram" && suffix.is_empty() {
                return wrong("bounds belong to buckets, and histograms have no samples but these, sum and count");
            }
            if !is_name(name) || !series.insert((name.to_owned(), labels.clone())) {
                return wrong("no name, or a series twice");
            }
            if !value.is_finite() || value < 0.0 {
                return wrong("a number that no count or time can have");
            }
            family.samples.push((suffix.to_owned(), labels, value));
        }
    }
    match families.iter().find(|(_, family)| family.samples.is_empty()) {
        Some((name, _)) => Err(format!("{name} has no samples")),
        None => Ok(families),
    }
}

/// A snapshot of two workers that have hit, missed, failed and written back.
fn snapshot() -> Statistics {
    let medium = Arc::new(FaultyFlash::new(MemoryFlash::new(256).unwrap(), FaultPlan::default()));
    let builder = Runtime::builder(medium.clone()).workers(2).fibers(4).existing(1 << 20).dram(3 << 20);
    let runtime = builder.build().unwrap();
    medium.set_plan(FaultPlan::rule(Some(Op::Read), When::Every(7), Fault::Fails(FlashError::Io(5))));
    let jobs: Vec<_> = (0..60u64)
        .map(|job| {
            let options = JobOptions::new().worker(job as usize % 2);
            let touch = move |context: &mut fulgurite_runtime::Context| {
                let subpages = (0..20u64).map(|i| Address::from_linear((job * 37 + i * 11) % 256 * 4096));
                subpages.filter(|&at| context.access_mut(at).is_err()).count()
            };
            runtime.submit_with(&options, touch).unwrap()
        })
        .collect();
    let failed: usize = jobs.into_iter().map(|job| job.wait().unwrap()).sum();
    assert!(failed > 0);
    let died = runtime.submit_with(&JobOptions::new().worker(1), |_| panic!("on purpose")).unwrap();
    assert!(died.wait().map(|(): ()| ()).is_err());
    runtime.write_back().unwrap();
    runtime.statistics()
}

#[test]
fn the_text_says_what_the_numbers_say() {
    let statistics = snapshot();
    let text = statistics.prometheus();
    let families = read(&text).unwrap_or_else(|what| panic!("{what}\n{text}"));
    let total = statistics.total();
    assert!(total.counts.misses > 0 && total.counts.read_errors > 0 && total.counts.jobs_died == 1);
    assert!(!total.miss_ns.is_empty() && total.job_ns.len() == 61);

    let mut known = BTreeSet::new();
    for (index, (name, kind, value)) in total.counts.each().enumerate() {
        let name = format!("fulgurite_{name}{}", if kind == "counter" { "_total" } else { "" });
        let family = families.get(&name).unwrap_or_else(|| panic!("{name} is not reported"));
        assert_eq!(family.kind, kind, "{name}");
        assert_eq!(family.samples.len(), statistics.workers.len(), "{name}: one for each worker");
        for (worker, its) in statistics.workers.iter().enumerate() {
            let (_, _, expected) = its.counts.each().nth(index).unwrap();
            assert_eq!(
                family.value("", &[("worker", &worker.to_string())]),
                expected as f64,
                "{name}, worker {worker}"
            );
        }
        assert_eq!(family.sum(""), value as f64, "{name}: the sum is the total");
        known.insert(name);
    }
    for (name, total, of) in [("miss", &total.miss_ns, 0), ("job", &total.job_ns, 1)] {
        let name = format!("fulgurite_{name}_seconds");
        let family = &families[&name];
        assert_eq!(family.kind, "histogram", "{name}");
        assert_eq!(family.sum("_count"), total.len() as f64, "{name}: the sum is the total");
        for (worker, its) in statistics.workers.iter().enumerate() {
            let histogram = if of == 0 { &its.miss_ns } else { &its.job_ns };
            let worker = worker.to_string();
            let count = family.value("_count", &[("worker", &worker)]);
            assert_eq!(count, histogram.len() as f64, "{name}, worker {worker}");
            // In the order of the text, which is the order of the bounds.
            let of_worker =
                |(suffix, labels, _): &&(String, Labels, f64)| suffix == "_bucket" && labels["worker"] == worker;
            let buckets =
                Vec::from_iter(family.samples.iter().filter(of_worker).map(|(_, labels, n)| (&labels["le"], *n)));
            assert_eq!(buckets.last().map(|(bound, n)| (bound.as_str(), *n)), Some(("+Inf", count)), "{name}");
            assert!(buckets.is_sorted_by_key(|(_, n)| n), "{name}: a bucket counts those below it, too: {buckets:?}");
            let bounds = Vec::from_iter(buckets.iter().map(|(bound, _)| bound.parse::<f64>().unwrap()));
            assert!(bounds.is_sorted_by(|a, b| a < b) && bounds.len() > 20, "{name}: {bounds:?}");
            for (bound, n) in &buckets[..buckets.len() - 1] {
                // A time is in a step of the histogram, which is one part in 128 wide.
                let ns = bound.parse::<f64>().unwrap() * 1e9;
                let (least, most) = ((ns * 0.99) as u64, (ns * 1.01) as u64);
                let between = histogram.count_between(0, least)..=histogram.count_between(0, most);
                assert!(between.contains(&(*n as u64)), "{name}: {n} up to {bound} s, and {between:?}");
            }
            let sum = family.value("_sum", &[("worker", &worker)]);
            assert!(sum * 1e9 <= count * histogram.max() as f64 + 1.0, "{name}: {sum} s in {count} times");
            assert!(sum * 1e9 >= count * histogram.min() as f64 - 1.0, "{name}: {sum} s in {count} times");
        }
        known.insert(name);
    }
    let device = statistics.device;
    let errors = device.errors;
    assert!(device.reads > 0 && device.writes > 0 && errors > 0);
    let requests = [("write_requests", device.write_requests), ("read_requests", device.read_requests)];
    let subpages = [("reads", device.reads), ("writes", device.writes), ("errors", errors)];
    for (name, value) in subpages.into_iter().chain(requests) {
        let name = format!("fulgurite_device_{name}_total");
        assert_eq!(
            (families[&name].kind.as_str(), families[&name].value("", &[])),
            ("counter", value as f64),
            "{name}"
        );
        known.insert(name);
    }
    // There are no maps here.
    for (name, kind) in [
        ("hits_total", "counter"),
        ("misses_total", "counter"),
        ("absent_total", "counter"),
        ("returned_total", "counter"),
        ("evicted_total", "counter"),
        ("index_bytes", "gauge"),
        ("cached_bytes", "gauge"),
    ] {
        let name = format!("fulgurite_record_{name}");
        assert_eq!((families[&name].kind.as_str(), families[&name].value("", &[])), (kind, 0.0), "{name}");
        known.insert(name);
    }
    let dram = &families["fulgurite_dram_bytes"];
    assert_eq!((dram.kind.as_str(), dram.value("", &[])), ("gauge", (3 << 20) as f64));
    known.insert("fulgurite_dram_bytes".to_owned());
    let reported: BTreeSet<String> = families.into_keys().collect();
    assert_eq!(reported, known, "something is reported that this test does not know");
}

#[test]
fn the_reader_is_strict() {
    let good = "# HELP a_total What.\n# TYPE a_total counter\na_total{worker=\"0\"} 1\na_total{worker=\"1\"} 2\n";
    assert_eq!(read(good).unwrap()["a_total"].sum(""), 3.0);
    for (what, bad) in [
        ("no type", "a 1\n"),
        ("two types", "# TYPE a gauge\na 1\n# TYPE a gauge\na{b=\"1\"} 1\n"),
        ("a series twice", "# TYPE a gauge\na 1\na 2\n"),
        ("no quotes", "# TYPE a gauge\na{b=1} 1\n"),
        ("no comma", "# TYPE a gauge\na{b=\"1\"c=\"2\"} 1\n"),
        ("no brace", "# TYPE a gauge\na{b=\"1\" 1\n"),
        ("no number", "# TYPE a gauge\na one\n"),
        ("not a number", "# TYPE a gauge\na NaN\n"),
        ("a stranger", "# TYPE a gauge\nb 1\n"),
        ("a sum of a gauge", "# TYPE a gauge\na_sum 1\n"),
        ("no bucket", "# TYPE a histogram\na 1\n"),
        ("a bucket without a bound", "# TYPE a histogram\na_bucket 1\n"),
        ("a bound of a sum", "# TYPE a histogram\na_sum{le=\"1\"} 1\n"),
        ("no samples", "# TYPE a gauge\n"),
        ("no end", "# TYPE a gauge\na 1"),
        ("two helps", "# HELP a x\n# HELP a y\n# TYPE a gauge\na 1\n"),
    ] {
        assert!(read(bad).is_err(), "{what}: {bad:?} was taken");
    }
}
