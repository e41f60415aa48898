//! The charts of `docs/figures.md`, one for each claim, drawn from the kept results as SVG.

use std::fmt::Write;

use serde_json::Value;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 280.0;
const RIGHT: f64 = 170.0;
const ROW: f64 = 24.0;
const OURS: &str = "#c2410c";
const OTHERS: &str = "#94a3b8";
const REFERENCE: &str = "#475569";

/// One bar.
struct Bar {
    label: String,
    value: f64,
    shown: String,
    color: &'static str,
}

fn bar(label: impl Into<String>, value: f64, shown: impl Into<String>, color: &'static str) -> Bar {
    Bar { label: label.into(), value, shown: shown.into(), color }
}

/// Bars in groups, each with a heading.
struct Bars {
    title: &'static str,
    below: &'static str,
    groups: Vec<(String, Vec<Bar>)>,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn text(svg: &mut String, x: f64, y: f64, style: &str, text: &str) {
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>", escaped(text)).expect("a string grows");
}

/// The frame of a chart with its title, and the note below.
fn framed(title: &str, below: &str, height: f64, body: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" \
         height=\"{height:.0}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, 16.0, 26.0, "font-size=\"16\" font-weight=\"600\" fill=\"#0f172a\"", title);
    svg += body;
    text(&mut svg, 16.0, height - 12.0, "font-size=\"12\" fill=\"#475569\"", below);
    svg + "</svg>\n"
}

impl Bars {
    fn svg(&self) -> String {
        let most = self.groups.iter().flat_map(|(_, bars)| bars).map(|bar| bar.value).fold(0.0, f64::max);
        let mut body = String::new();
        let mut y = 44.0;
        for (heading, bars) in &self.groups {
            if !heading.is_empty() {
                text(&mut body, 16.0, y + 16.0, "font-weight=\"600\" fill=\"#334155\"", heading);
                y += ROW;
            }
            for Bar { label, value, shown, color } in bars {
                let width = (WIDTH - LEFT - RIGHT) * value / most;
                text(&mut body, LEFT - 10.0, y + 16.0, "text-anchor=\"end\" fill=\"#0f172a\"", label);
                writeln!(
                    body,
                    "<rect x=\"{LEFT:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"{color}\"/>",
                    y + 3.0,
                    ROW - 7.0
                )
                .expect("a string grows");
                text(&mut body, LEFT + width + 8.0, y + 16.0, "fill=\"#0f172a\"", shown);
                y += ROW;
            }
            y += 8.0;
        }
        framed(self.title, self.below, y + 26.0, &body)
    }
}

/// A line: its name, its colour, its points.
struct Line(&'static str, &'static str, Vec<(f64, f64)>);

/// Lines over a share in per cent on the x axis, both axes from zero.
struct Lines {
    title: &'static str,
    below: &'static str,
    x: &'static str,
    y: &'static str,
    /// The ends of both axes, and the step between two marks of the y axis.
    ends: (f64, f64, f64),
    lines: Vec<Line>,
}

impl Lines {
    fn svg(&self) -> String {
        let (left, top, right, bottom) = (60.0, 56.0, WIDTH - 190.0, 316.0);
        let (x_end, y_end, y_step) = self.ends;
        let at =
            |(x, y): (f64, f64)| (left + (right - left) * x / x_end, bottom - (bottom - top) * y.min(y_end) / y_end);
        let mut body = String::new();
        text(&mut body, left, top - 10.0, "font-size=\"12\" fill=\"#475569\"", self.y);
        for step in 0..=(y_end / y_step).round() as u32 {
            let value = f64::from(step) * y_step;
            let (_, y) = at((0.0, value));
            writeln!(body, "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#e2e8f0\"/>")
                .expect("a string grows");
            text(
                &mut body,
                left - 8.0,
                y + 4.0,
                "text-anchor=\"end\" font-size=\"12\" fill=\"#475569\"",
                &format!("{value}"),
            );
        }
        for step in 0..=5 {
            let value = x_end / 5.0 * f64::from(step);
            let (x, _) = at((value, 0.0));
            let style = "text-anchor=\"middle\" font-size=\"12\" fill=\"#475569\"";
            text(&mut body, x, bottom + 18.0, style, &format!("{value:.0}%"));
        }
        text(
            &mut body,
            f64::midpoint(left, right),
            bottom + 36.0,
            "text-anchor=\"middle\" font-size=\"12\" fill=\"#475569\"",
            self.x,
        );
        // Names stand next to the ends of their lines, moved apart where those are close.
        let mut names: Vec<(f64, &str, &str)> = Vec::new();
        for Line(name, color, points) in &self.lines {
            let path: Vec<String> =
                points.iter().map(|&point| at(point)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            writeln!(
                body,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2.5\"/>",
                path.join(" ")
            )
            .expect("a string grows");
            for (x, y) in points.iter().map(|&point| at(point)) {
                writeln!(body, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>")
                    .expect("a string grows");
            }
            names.push((points.last().map_or(bottom, |&point| at(point).1), name, color));
        }
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut above = f64::MIN;
        for (y, name, color) in names {
            above = y.max(above + 17.0);
            text(&mut body, right + 10.0, above + 4.0, &format!("font-weight=\"600\" fill=\"{color}\""), name);
        }
        framed(self.title, self.below, 386.0, &body)
    }
}

fn rows<'a>(result: &'a Value, wanted: impl Fn(&Value) -> bool + 'a) -> impl Iterator<Item = &'a Value> {
    super::rows(result).iter().filter(move |row| wanted(row))
}

fn median(value: &Value) -> f64 {
    value["median"].as_f64().expect("a median")
}

/// The mean over the workloads of a configuration's share of plain memory, in per cent.
fn mean_share(result: &Value, config: &str) -> f64 {
    let shares: Vec<f64> =
        rows(result, |row| row["config"] == config).map(|row| median(&row["share_of_dram_only"])).collect();
    100.0 * shares.iter().sum::<f64>() / shares.len() as f64
}

fn shares(result: &Value, configs: &[(&str, &str, &'static str)]) -> Vec<Bar> {
    let share = |(config, label, color): &(&str, &str, &'static str)| {
        let share = mean_share(result, config);
        bar(*label, share, format!("{share:.1}%"), color)
    };
    configs.iter().map(share).collect()
}

/// All charts by the names of their files.
pub fn all(results: &std::collections::BTreeMap<String, Value>) -> Vec<(&'static str, String)> {
    let result = |name: &str| results.get(name).unwrap_or_else(|| panic!("there is no result {name}"));
    let one = |groups: Vec<Bar>| vec![(String::new(), groups)];
    let mut charts = vec![
        (
            "disk",
            Bars {
                title: "Speed on a disk with 3% of the data in DRAM, a miss every 10 µs",
                below: "Share of the same programs on plain DRAM, mean of seven workloads. Longer is better.",
                groups: one(shares(
                    result("live-file-pool"),
                    &[
                        ("dram-only", "all data in DRAM", REFERENCE),
                        ("pool-on-device", "Fulgurite, the store on its own core", OURS),
                        ("pool", "Fulgurite, one core", OURS),
                        ("os-swap", "kernel swap, best of 1 to 32 threads", OTHERS),
                    ],
                )),
            }
            .svg(),
        ),
        (
            "emulated",
            Bars {
                title: "Speed on emulated flash (50 µs a read) with 3% of the data in DRAM",
                below: "Share of the same programs on plain DRAM, a miss every 10 µs, mean of seven workloads.",
                groups: one(shares(
                    result("live-10us"),
                    &[
                        ("dram-only", "all data in DRAM", REFERENCE),
                        ("resident", "Fulgurite without misses", OURS),
                        ("fulgurite", "Fulgurite", OURS),
                        ("flash-sync", "waiting for each miss", OTHERS),
                    ],
                )),
            }
            .svg(),
        ),
    ];
    let hits = |row: &Value| {
        let share = 100.0 * median(&row["share_of_dram_only"]);
        bar(super::text(row, "workload"), share, format!("{share:.1}%"), OURS)
    };
    charts.push((
        "hits",
        Bars {
            title: "What hits cost: all data in DRAM, nothing added",
            below: "Share of the same program on plain memory, 1 GiB of data. Longer is better.",
            groups: one(std::iter::once(bar("plain memory", 100.0, "100%", REFERENCE))
                .chain(rows(result("live-hits"), |row| row["config"] == "resident").map(hits))
                .collect()),
        }
        .svg(),
    ));
    let against_mmap = |workload: &str| {
        let named = [
            ("dram-only", "all data in DRAM", REFERENCE),
            ("pool", "Fulgurite, a pool that survives", OURS),
            ("fulgurite", "Fulgurite, flat file", OURS),
            ("mmap", "mapped file", OTHERS),
            ("os-swap", "kernel swap", OTHERS),
        ];
        let share = |(config, label, color): &(&str, &str, &'static str)| {
            let row = rows(result("live-file-nvmm"), |row| row["workload"] == workload && row["config"] == *config);
            let share = row.map(|row| 100.0 * median(&row["share_of_dram_only"])).next().expect("a row");
            bar(*label, share, format!("{share:.1}%"), color)
        };
        named.iter().map(share).collect::<Vec<_>>()
    };
    charts.push((
        "mmap",
        Bars {
            title: "Uniform updates and reads on a disk, 10 µs of work for each",
            below: "Share of the same program on plain DRAM, 3% of the data in DRAM. Longer is better.",
            groups: vec![
                ("read and write (GUPS)".to_owned(), against_mmap("gups")),
                ("read only".to_owned(), against_mmap("gups --mix 100")),
            ],
        }
        .svg(),
    ));
    let search = |row: &Value| {
        let queries = row["ops_per_s"].as_f64().expect("a rate");
        let (label, color) = match super::text(row, "config") {
            "dram-only" => ("all of the index in DRAM", REFERENCE),
            "fulgurite" => ("Fulgurite", OURS),
            "flash-sync" => ("waiting for each miss", OTHERS),
            _ => ("kernel swap", OTHERS),
        };
        let p50 = row["p50_us"].as_f64().expect("a latency");
        bar(label, queries, format!("{}/s, p50 {} µs", super::number(queries), super::number(p50)), color)
    };
    let searched = |medium: &'static str| rows(result("demo"), move |row| row["medium"] == medium);
    charts.push((
        "search",
        Bars {
            title: "Search over a machine's text, 3% of the index in DRAM",
            below: "Queries a second, and the median latency of a query. Nothing was added to a query.",
            groups: [("on a disk", "disk"), ("on emulated flash", "emulated")]
                .map(|(heading, medium)| (heading.to_owned(), searched(medium).map(search).collect()))
                .into(),
        }
        .svg(),
    ));
    let recovery = |row: &Value| {
        let (gib, seconds) = (row["pool_bytes"].as_u64().expect("bytes") >> 30, median(&row["total_s"]));
        bar(format!("pool of {gib} GiB"), seconds, format!("{seconds:.2} s"), OURS)
    };
    charts.push((
        "recovery",
        Bars {
            title: "From a crash to the first access",
            below: "A disk, a million changes since the last checkpoint for 16 GiB. Shorter is better.",
            groups: one(rows(result("store-recovery"), |_| true).map(recovery).collect()),
        }
        .svg(),
    ));
    let sizes: Vec<&Value> = DRAM_SIZES.iter().map(|size| result(&format!("live-dram-{size}"))).collect();
    charts.push(("dram", by_dram(&sizes).svg()));
    charts.push(("checkpoint", checkpoint(result("checkpoint")).svg()));
    charts.push(("tail", tail(result("tail")).svg()));
    charts.push(("values", values(result("peers-values")).svg()));
    charts.push(("bank", bank(result("peers-bank")).svg()));
    charts.push(("unmodified", unmodified(result("unmodified")).svg()));
    charts
}

/// The DRAM of the results of which [`by_dram`] is drawn, in MiB.
const DRAM_SIZES: [u64; 5] = [32, 96, 256, 512, 768];

/// Throughput by the share of the data that the limit of memory has room for.
fn by_dram(results: &[&Value]) -> Lines {
    let line = |config: &str| {
        let point = |result: &&Value| {
            let row = rows(result, |row| row["config"] == config).next().expect("a row");
            let limit = row["cgroup_limit_bytes"].as_f64().expect("a limit");
            let data = row["data_bytes"].as_f64().expect("bytes");
            (100.0 * limit / data, 100.0 * median(&row["share_of_dram_only"]))
        };
        results.iter().map(point).collect::<Vec<_>>()
    };
    Lines {
        title: "Speed by the share of the data that fits into DRAM",
        below: "Gets from a hash table of 1 GiB on a disk, 10 µs of work for each. All have the same limit of memory.",
        x: "limit of memory, of the data",
        y: "% of the same program on plain DRAM",
        ends: (100.0, 100.0, 20.0),
        lines: vec![
            Line("Fulgurite, flat file", OURS, line("fulgurite")),
            Line("Fulgurite, a pool", "#ea9a6b", line("pool")),
            Line("mapped file", REFERENCE, line("mmap")),
            Line("kernel swap", OTHERS, line("os-swap")),
        ],
    }
}

fn checkpoint(result: &Value) -> Bars {
    let way = |row: &Value| {
        let (label, color) = match super::text(row, "way") {
            "plain" => ("nothing is saved", REFERENCE),
            "file" => ("changed pages in place, not crash-safe", OTHERS),
            "dump" => ("all memory to a new file", OTHERS),
            "fork" => ("a forked child dumps", OTHERS),
            "behind" => ("a log that another thread writes", OTHERS),
            "fulgurite" => ("Fulgurite, nothing is saved", OURS),
            _ => ("Fulgurite, sync", OURS),
        };
        let (speed, pause) = (100.0 * median(&row["share_of_plain"]), median(&row["longest_gap_ms"]));
        bar(label, speed, format!("{speed:.1}%, pause {} ms", super::number(pause)), color)
    };
    Bars {
        title: "A computation that is saved twice a second",
        below: "Speed as a share of plain memory, and the longest pause.",
        groups: vec![(String::new(), rows(result, |_| true).map(way).collect())],
    }
}

fn tail(result: &Value) -> Lines {
    let line = |config: &str| {
        let points = rows(result, |row| row["config"] == config && row["saturated"] == false);
        points
            .filter_map(|row| Some((row["load_percent"].as_f64()?, row["service_p99_of_flash_sync"].as_f64()?)))
            .collect::<Vec<_>>()
    };
    Lines {
        title: "Latency under load: p99 of service times",
        below: "As a multiple of waiting for each miss. TATP, emulated flash, 3% of the data in DRAM. Lower is better.",
        x: "load, of what plain memory can serve",
        y: "p99, multiple",
        ends: (100.0, 3.0, 0.5),
        lines: vec![
            Line("oldest request first", OURS, line("fulgurite")),
            Line("first come, first served", OTHERS, line("fifo")),
        ],
    }
}

/// The stores of a part, with what they did in a second.
fn stores<'a>(result: &'a Value, clients: u64, gets: u64) -> Vec<Bar> {
    let store = |row: &'a Value| {
        let (label, color) = match (super::text(row, "store"), row["fibers"] == true) {
            ("fulgurite", true) => ("Fulgurite, clients are fibers", OURS),
            ("fulgurite", false) => ("Fulgurite, clients are threads", OURS),
            ("lmdb", _) => ("LMDB", OTHERS),
            ("foyer", _) => ("foyer, which drops keys", OTHERS),
            (name, _) => (name, OTHERS),
        };
        let rate = median(&row["ops_per_s"]);
        bar(label, rate, format!("{}/s", super::number(rate)), color)
    };
    rows(result, move |row| row["clients"] == clients && row["gets"] == gets).map(store).collect()
}

fn values(result: &Value) -> Bars {
    Bars {
        title: "Values larger than memory, compared with other stores",
        below: "2 million values of 900 bytes, one limit of 320 MiB for each process, a sync each second.",
        groups: vec![
            ("32 clients, gets only".to_owned(), stores(result, 32, 100)),
            ("32 clients, half gets and half puts".to_owned(), stores(result, 32, 50)),
            ("1 client, gets only".to_owned(), stores(result, 1, 100)),
        ],
    }
}

fn bank(result: &Value) -> Bars {
    Bars {
        title: "Transactions between accounts, compared with other stores",
        below: "2 million accounts in the same limit of memory, 10% reads, a sync each second.",
        groups: vec![
            ("32 clients".to_owned(), stores(result, 32, 10)),
            ("2 clients".to_owned(), stores(result, 2, 10)),
        ],
    }
}

fn unmodified(result: &Value) -> Bars {
    let group = |workload: &str, threads: u64| {
        let config = |row: &Value| {
            let (label, color) = match super::text(row, "config") {
                "swap" => ("kernel swap", OTHERS),
                "compatible" => ("fulgurite run, compatible mode", OURS),
                _ => ("fulgurite run, in-line mode", OURS),
            };
            let ratio = median(&row["ratio_to_swap"]);
            bar(label, ratio, format!("{ratio:.2}"), color)
        };
        let wanted = |row: &Value| row["workload"] == workload && row["threads"] == threads && row["config"] != "dram";
        rows(result, wanted).map(config).collect::<Vec<_>>()
    };
    Bars {
        title: "Unmodified programs: where kernel swap is faster",
        below: "Throughput as a multiple of kernel swap's, in the same cgroup on the same disk.",
        groups: vec![
            ("random reads, 8 threads".to_owned(), group("touch, reads", 8)),
            ("random writes, 8 threads".to_owned(), group("touch, writes", 8)),
            ("redis, 90% reads".to_owned(), group("redis 90/10", 16)),
            ("redis, 50% reads".to_owned(), group("redis 50/50", 16)),
        ],
    }
}
