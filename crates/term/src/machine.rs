//! The machine of the numbers, above every table and in every JSON object.

use std::fs;
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The machine, as far as it bears on the numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Cores that this process may run on.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Main memory.
    pub memory_bytes: u64,
    /// Memory that is free or can be made so.
    pub available_bytes: u64,
    /// Transparent huge pages: always, madvise or never.
    pub thp: String,
    /// Versions of mounted cgroup hierarchies.
    pub cgroup: String,
    /// The hypervisor, if there is one.
    pub virtualised: Option<String>,
    /// A dependent load from 256 KiB of memory, which fit a core's own cache: nanoseconds, median.
    pub near_load_ns: f64,
    /// A dependent load from 8 MiB, which fit the last level of the caches. In a virtual machine,
    /// neighbours share that level, and the time differs from hour to hour.
    pub far_load_ns: f64,
    /// Operating system.
    pub os: String,
    /// Version of this program, and the commit it was built from where the build said so.
    pub program: String,
    /// The day of the numbers, UTC: `2026-11-25`.
    pub day: String,
}

/// Both load times, measured once: some 30 ms.
static LOADS: LazyLock<[f64; 2]> = LazyLock::new(|| [256 << 10, 8 << 20].map(load_ns));

/// Walks once round all lines of memory, in an order that no prefetcher knows, several times.
fn load_ns(bytes: usize) -> f64 {
    const LOADS: u32 = 8192;
    const TIMES: usize = 25;
    let mut next: Vec<[u32; 16]> = (0..bytes as u32 / 64).map(|line| [line; 16]).collect();
    let mut random = 1u64;
    for line in (1..next.len()).rev() {
        // One cycle over all of them (Sattolo, 1986).
        // A linear congruential generator, of which the high bits count (Knuth, MMIX).
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        next.swap(line, ((random >> 33) % line as u64) as usize);
    }
    let (mut at, mut times) = (0, Vec::with_capacity(TIMES));
    for _ in 0..TIMES {
        let begun = Instant::now();
        for _ in 0..LOADS {
            at = next[at as usize][0];
        }
        times.push(begun.elapsed().as_nanos() as f64 / f64::from(LOADS));
        std::hint::black_box(at);
    }
    times.sort_unstable_by(f64::total_cmp);
    times[TIMES / 2]
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value of a line `key<separator>value`.
fn field<'a>(text: &'a str, key: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// A line of /proc/meminfo, in bytes.
fn memory(text: &str, key: &str) -> u64 {
    let kib = field(text, key, ':').and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The year, month, day, hour, minute and second of a time in seconds since 1970, UTC (Howard
/// Hinnant's `civil_from_days`).
pub fn civil(seconds: u64) -> [u64; 6] {
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    [year, month, day, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60]
}

/// The day of a time in seconds since 1970.
fn day_of(seconds: u64) -> String {
    let [year, month, day, ..] = civil(seconds);
    format!("{year}-{month:02}-{day:02}")
}

impl Machine {
    /// Reads what this machine is.
    pub fn describe() -> Machine {
        let cpuinfo = read("/proc/cpuinfo");
        let meminfo = read("/proc/meminfo");
        let thp = read("/sys/kernel/mm/transparent_hugepage/enabled");
        let mounts = read("/proc/mounts");
        let mounted = |kind: &str| mounts.lines().any(|line| line.split(' ').nth(2) == Some(kind));
        let cgroup = match (mounted("cgroup"), mounted("cgroup2")) {
            (true, true) => "v1 and v2",
            (true, false) => "v1",
            (false, true) => "v2",
            (false, false) => "none",
        };
        let hypervisor = field(&cpuinfo, "flags", ':').is_some_and(|f| f.split(' ').any(|f| f == "hypervisor"));
        let product = read("/sys/class/dmi/id/sys_vendor");
        let vendor = if product.trim().is_empty() { "yes" } else { product.trim() };
        Machine {
            cpu: field(&cpuinfo, "model name", ':').unwrap_or("unknown").to_owned(),
            cores: fulgurite_sys::affinity::cores().len(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_bytes: memory(&meminfo, "MemTotal"),
            available_bytes: memory(&meminfo, "MemAvailable"),
            thp: thp.split(['[', ']']).nth(1).unwrap_or("absent").to_owned(),
            cgroup: cgroup.to_owned(),
            virtualised: hypervisor.then(|| vendor.to_owned()),
            near_load_ns: LOADS[0],
            far_load_ns: LOADS[1],
            program: match option_env!("FULGURITE_COMMIT") {
                Some(commit) if !commit.is_empty() => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
                _ => env!("CARGO_PKG_VERSION").to_owned(),
            },
            day: day_of(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            os: field(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or("Linux").trim_matches('"').to_owned(),
        }
    }
    /// One line for people.
    pub fn line(&self) -> String {
        let memory = fulgurite_format::format_bytes(self.memory_bytes);
        let virtualised = if self.virtualised.is_some() { ", virtual machine" } else { "" };
        let (cpu, cores, kernel, thp, cgroup) = (&self.cpu, self.cores, &self.kernel, &self.thp, &self.cgroup);
        let far = self.far_load_ns;
        format!(
            "{cpu}, {cores} cores, {memory}, Linux {kernel}{virtualised}, huge pages {thp}, cgroup {cgroup}; a load from 8 MiB \
             takes {far:.0} ns"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_the_calendars() {
        let days = [0, 68_169_599, 68_169_600, 951_782_400, 1_735_689_599, 4_107_542_400].map(day_of);
        assert_eq!(days, ["1970-01-01", "1972-02-28", "1972-02-29", "2000-02-29", "2024-12-31", "2100-03-01"]);
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::describe();
        assert!(machine.cores > 0 && machine.memory_bytes > machine.available_bytes / 2, "{machine:?}");
        assert!(machine.line().contains("cores"));
        assert!(machine.near_load_ns > 0.1 && machine.far_load_ns > 0.1, "{machine:?}");
    }
    #[test]
    fn fields_are_found() {
        assert_eq!(memory("MemTotal:       24683520 kB\nMemFree: 1 kB\n", "MemTotal"), 24_683_520 * 1024);
        assert_eq!(field("a : 1\nmodel name\t: X Y\n", "model name", ':'), Some("X Y"));
    }
}
