//! Goal: a system that is wrong is refused with its line, before anything runs. Method: one thing
//! wrong at a time, in a file that is right otherwise.

use fulgurite_sim::Time;
use fulgurite_sim::system::{RunInput, System};
use fulgurite_sim::trace::{Format, Record, Trace};

use crate::common::{cores_text, flash_text, interface_text, traced_text, ufs_text, workers_text};

/// DRAM that is a cache of flash pages, and DRAM alone.
const MEMORY: [&str; 2] =
    [include_str!("../../../systems/compat-hybridsim.toml"), include_str!("../../../systems/compat-dramsim3.toml")];

/// The file without what only other arrivals read.
fn right() -> String {
    flash_text().replace("between = \"1ms\"\n", "")
}
fn message_of(text: &str, trace: Option<&Trace>) -> String {
    System::read("s.toml", text, &[], trace.map_or(RunInput::Nothing, RunInput::Trace)).unwrap_err().to_string()
}
fn line_of(text: &str, key: &str) -> usize {
    1 + text.lines().position(|line| line.starts_with(key)).unwrap()
}

#[test]
fn what_is_right_runs() {
    System::read("s.toml", &right(), &[], RunInput::Nothing).unwrap().run(1).unwrap();
    System::read("s.toml", &interface_text(), &[], RunInput::Nothing).unwrap().run(1).unwrap();
    System::read("s.toml", &ufs_text(), &[], RunInput::Nothing).unwrap().run(1).unwrap();
    System::read("s.toml", &cores_text(), &[], RunInput::Nothing).unwrap().run(1).unwrap();
    System::read("s.toml", &workers_text(), &[], RunInput::Nothing).unwrap().run(1).unwrap();
}
#[test]
fn what_is_wrong_is_reported_with_its_line() {
    for (key, wrong, part) in [
        ("depth = 1", "depth = 0", "a whole number from 1"),
        ("depth = 1", "depth = \"1\"", "a whole number from 1"),
        ("size = \"8K\"", "size = \"8192\"", "has no unit"),
        ("size = \"8K\"", "size = \"0B\"", "write 1 B or more"),
        ("size = \"8K\"", "size = \"8T\"", "the device holds"),
        ("reads = \"100%\"", "reads = \"101%\"", "at most"),
        ("filled = \"50%\"", "filled = \"99%\"", "\"87.5%\" or less"),
        ("rate = \"4GB/s\"", "rate = \"0GB/s\"", "a rate is from 1KB/s"),
        ("pattern = \"sequential\"", "pattern = \"zipf\"", "write one of random, sequential, trace"),
        ("pattern = \"sequential\"", "pattern = \"trace\"", "--trace"),
        ("arrivals = \"closed\"", "arrivals = \"trace\"", "only with pattern"),
        ("aged = 0", "agd = 0", "there is no flash.aged"),
        ("aged = 0", "aged = 0\nold = 1", "nothing reads flash.old"),
        ("model = \"flash\"", "model = \"flush\"", "write one of flash, interface, cores, workers, memory, paging"),
        ("blocks_per_plane = 32", "blocks_per_plane = 0", "blocks_per_plane"),
        ("channels = 2", "channels = 99999999", "too many"),
        ("erase = \"3800us\"", "erase = \"3800\"", "has no unit"),
        ("die_queue = 64", "die_queue = 0", "die_queue"),
    ] {
        let text = right();
        assert!(text.contains(key), "{key}");
        let message = message_of(&text.replacen(key, wrong, 1), None);
        assert!(message.contains(part), "{wrong}: {message}");
        let missing = part.starts_with("there is no");
        let line = line_of(&text, key.split(" =").next().unwrap()) + usize::from(wrong.contains("\nold"));
        // NAND's own errors name the line of the key, or the first line of [nand].
        let named = message.starts_with(&format!("s.toml:{line}:")) || message.contains("[nand]");
        assert!(named || missing, "{wrong}, line {line}: {message}");
    }
    assert!(message_of("model = ", None).starts_with("s.toml:1: "));
}
#[test]
fn interfaces_that_cannot_be_are_reported() {
    for (key, wrong, part) in [
        ("interface = \"ufs\"", "interface = \"emmc\"", "write one of dram, ufs"),
        ("interface = \"ufs\"", "interface = \"dram\"", "there is no dma.setup"),
        ("slots = 32", "slots = 0", "a whole number from 1"),
        ("lane = \"5.8304GHz\"", "lane = 5.8", "a text with a unit"),
        ("code = \"80%\"", "code = \"0%\"", "some of the bits are data"),
        ("lane = \"5.8304GHz\"", "lane = \"1000Hz\"", "a frequency is from 1MHz"),
        ("frame_overhead = \"8B\"", "frame_overhead = \"1G\"", "at most 1M"),
        ("frame = \"286B\"", "frame = \"0B\"", "1B to 1M"),
        ("data = \"4K\"", "data = \"64B\"", "512B to 1M"),
        ("transfers = 2", "transfers = 0", "a whole number from 1"),
        ("lanes = 2", "lanes = 2\nsetup = \"17us\"", "nothing reads link.setup"),
    ] {
        let text = ufs_text();
        assert!(text.contains(key), "{key}");
        let message = message_of(&text.replacen(key, wrong, 1), None);
        assert!(message.starts_with("s.toml") && message.contains(part), "{wrong}: {message}");
    }
    for (key, wrong, part) in [
        ("setup = \"17us\"", "setup = 17", "a text with a unit"),
        ("setup = \"17us\"", "setup = \"2000s\"", "at most 1000s"),
        ("setup = \"17us\"\n", "", "there is no dma.setup"),
        ("rate = \"450MB/s\"", "rate = \"0MB/s\"", "a rate is from 1KB/s"),
        ("invalidate = \"1800MB/s\"", "invalidate = \"1B/s\"", "a rate is from 1KB/s"),
        ("invalidate = \"1800MB/s\"\n", "", "there is no host.invalidate"),
        ("interface = \"dram\"", "interface = \"ufs\"", "there is no link.lanes"),
        ("interface = \"dram\"", "interface = \"dram\"\ntransfers = 2", "nothing reads device.transfers"),
        ("buffer = \"512K\"", "buffer = \"513B\"", "sectors of 512 B"),
        ("split = \"256K\"", "split = \"2G\"", "at most 1G"),
        ("filled = \"50%\"", "filled = \"100%\"", "some spare blocks"),
    ] {
        let text = interface_text();
        assert!(text.contains(key), "{key}");
        let message = message_of(&text.replacen(key, wrong, 1), None);
        assert!(message.starts_with("s.toml:") && message.contains(part), "{wrong}: {message}");
    }
    // Frames that are hardly anything but what they add.
    let text = ufs_text().replace("frame = \"286B\"", "frame = \"1B\"");
    let message = message_of(&text.replace("frame_overhead = \"8B\"", "frame_overhead = \"1M\""), None);
    assert!(message.contains("link.frame_overhead = \"1M\": with it, a UPIU"), "{message}");
}
#[test]
fn memories_that_cannot_be_are_reported() {
    for (key, wrong, part) in [
        ("\nrow = \"8K\"", "\nrow = \"100B\"", "a row must be whole lines"),
        ("\nrow = \"8K\"", "\nrow = \"2M\"", "a row is at most 1M"),
        ("\nline = \"64B\"", "\nline = \"0B\"", "a row must be whole lines"),
        ("\nline = \"64B\"", "\nline = \"8K\"", "a page of NAND must be whole lines"),
        ("burst = \"6ns\"", "burst = \"0ns\"", "more than no time is needed"),
        ("open = \"13500ps\"", "open = \"2ms\"", "at most 1ms"),
        ("refresh = \"160ns\"", "refresh = \"8us\"", "shorter than dram.refresh_every"),
        ("channels = 1\n", "channels = 0\n", "a whole number from 1"),
        ("queue = 32", "queue = 0", "a whole number from 1"),
        ("size = \"64B\"", "size = \"0B\"", "which is all there is"),
        ("size = \"64B\"", "size = \"1T\"", "which is all there is"),
        ("sets = 2048", "sets = 8192", "cache.sets = 8192: DRAM has 1073741824 B"),
        ("tags = \"3ns\"\n", "", "there is no cache.tags"),
        ("kind = \"pages\"", "kind = \"blocks\"", "write one of none, pages"),
        ("kind = \"pages\"", "kind = \"none\"", "nothing reads cache.sets"),
        ("filled = \"90%\"", "filled = \"100%\"", "reclaim needs some spare blocks"),
    ] {
        let text = MEMORY[0];
        assert!(text.contains(key), "{key}");
        let message = message_of(&text.replacen(key, wrong, 1), None);
        assert!(message.starts_with("s.toml:") && message.contains(part), "{wrong}: {message}");
    }
    // Requests for the last byte, and for one more.
    let all = MEMORY[1].replace("size = \"64B\"", "size = \"8G\"");
    System::read("s.toml", &all, &[], RunInput::Nothing).unwrap();
    let more = message_of(&MEMORY[1].replace("size = \"64B\"", "size = \"8589934593B\""), None);
    let line = line_of(MEMORY[1], "size");
    let said = format!("s.toml:{line}: requests.size = \"8589934593B\": 1 B to 8589934592 B, which is all there is");
    assert_eq!(more, said);
}
#[test]
fn workers_that_cannot_be_are_reported() {
    for (key, wrong, part) in [
        ("name = \"array-swap\"", "name = \"search\"", "write one of array-swap"),
        ("data = \"8M\"", "data = \"8K\"", "1M to 1T"),
        ("frames = 300", "frames = 200", "260 frames are needed"),
        ("read_around = 1", "read_around = 3", "a power of two"),
        ("read_around = 1", "read_around = 8", "16 times as many frames"),
        ("prefetch = \"off\"", "prefetch = \"next-99\"", "next-1 to next-16"),
        ("writes = \"dirty\"", "writes = \"some\"", "write one of dirty, all"),
        ("planes = 256", "planes = 0", "a whole number from 1"),
        ("miss = \"391ns\"", "miss = 391", "a text with a unit"),
        ("copies = 0", "copies = -1", "not negative"),
        ("replacement = \"s3-fifo\"", "replacement = \"random\"", "clock, s3-fifo, lru, 4-way"),
    ] {
        let text = workers_text();
        assert!(text.contains(key), "{key}");
        let message = message_of(&text.replacen(key, wrong, 1), None);
        assert!(message.starts_with("s.toml:") && message.contains(part), "{wrong}: {message}");
    }
}
#[test]
fn cores_that_cannot_be_are_reported() {
    for (key, wrong, part) in [
        ("data = \"128M\"", "data = \"100M\"", "a power of two"),
        ("page = \"4K\"", "page = \"8K\"", "must be of 4K"),
        ("size = \"64K\"", "size = \"64B\"", "a block of 64 B in each way"),
        ("size = \"64K\"", "size = \"4G\"", "4G on all cores is the most"),
        ("size = \"256K\"", "size = \"2049M\"", "4G on all cores is the most"),
        ("refresh = \"350ns\"", "refresh = \"9us\"", "shorter than"),
        ("exponent = 1.0", "exponent = 9.0", "from 0.1 to 4"),
        ("name = \"hash-table\"", "name = \"hash\"", "array-swap, rbt"),
        ("paging = \"switch\"", "paging = \"wait\"", "nothing reads cache.backside_command"),
        ("backside_command = 3\n", "", "there is no cache.backside_command"),
        ("[flash]\nfilled = \"50%\"\n", "", "there is no flash.filled"),
        ("lookup = 2", "lookup = \"2ns\"", "a whole number from 0"),
        ("cores = 2", "cores = 2000", "a whole number from 1 to 1024"),
    ] {
        let message = message_of(&cores_text().replacen(key, wrong, 1), None);
        assert!(message.contains(part) && message.starts_with("s.toml:"), "{wrong}: {message}");
    }
    // Where all pages are in DRAM, nothing reads what is of flash.
    let threads = "[threads]\ncount = 32\nswitch = \"100ns\"\npolicy = \"priority-aging\"\n";
    let dram = cores_text().replace(threads, "").replace("paging = \"switch\"", "paging = \"dram-only\"");
    let dram = dram.replace("status_entries = 2048\nbackside_command = 3\nqueue = 16\nevict_pages = 64\n", "");
    assert!(message_of(&dram, None).contains("nothing reads flash.filled"), "{}", message_of(&dram, None));
    let dram = dram.replace("[flash]\nfilled = \"50%\"\n", "");
    let (dram, nand) = dram.split_at(dram.find("[nand.geometry]").unwrap());
    assert!(message_of(&format!("{dram}{nand}"), None).contains("nothing reads nand."));
    System::read("s.toml", dram, &[], RunInput::Nothing).unwrap();
}
/// Quantities at both ends and beyond them, by the unit that the value has.
fn extremes(value: &str) -> &'static [&'static str] {
    let unit = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    match unit {
        _ if unit == value => &[],
        "ps" | "ns" | "us" | "ms" | "s" => &["0ns", "1000s", "100000s"],
        _ if unit.ends_with("B/s") => &["0.001B/s", "1KB/s", "1000000GB/s", "900000000GB/s"],
        _ if unit.ends_with("Hz") => &["0.001Hz", "1MHz", "1000GHz", "9000000GHz"],
        "B" | "K" | "M" | "G" | "T" => &["0B", "1B", "900000T"],
        _ => &[],
    }
}
#[test]
fn no_quantity_at_its_ends_is_a_panic() {
    let file = |name: &str, set: &[(&str, &str)]| {
        let path = format!("{}/../../systems/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        set.iter().fold(std::fs::read_to_string(path).unwrap(), |text, (key, value)| {
            let line = text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap();
            text.replacen(line, &format!("{key} = {value}"), 1)
        })
    };
    let paging = [("untimed", "500"), ("warm_up", "20"), ("count", "100")];
    let texts = [
        right().replace("count = 2000", "count = 300"),
        interface_text().replace("count = 400", "count = 60"),
        ufs_text().replace("count = 400", "count = 60"),
        cores_text(),
        workers_text(),
        file("compat-dramsim3", &[("warm_up", "10"), ("count", "100")]),
        file("nvmm", &paging),
        file("ssd-swap", &paging),
        file("ssdalloc-objects", &paging),
    ];
    let (mut tried, mut ran, mut bad) = (0, 0, Vec::new());
    for (number, text) in texts.into_iter().enumerate() {
        let mut section = "";
        for line in text.lines() {
            section = line.strip_prefix('[').and_then(|line| line.split(']').next()).unwrap_or(section);
            let Some((key, value)) = line.split_once(" = \"") else { continue };
            // The device is the same in all of them.
            if number > 0 && section.starts_with("nand") {
                continue;
            }
            for extreme in extremes(value.split('"').next().unwrap()) {
                tried += 1;
                let set = vec![(format!("{section}.{key}"), (*extreme).to_owned())];
                let result = std::panic::catch_unwind(|| {
                    System::read("s.toml", &text, &set, RunInput::Nothing).ok().map(|system| system.run(1).is_ok())
                });
                match result {
                    Ok(done) => ran += u32::from(done == Some(true)),
                    Err(_) => bad.push(format!("{section}.{key}={extreme}")),
                }
            }
        }
    }
    assert!(bad.is_empty(), "panics: {bad:#?}");
    assert!(tried > 150 && ran > 30, "{tried} {ran}");
}
#[test]
fn traces_that_do_not_fit_are_reported() {
    let read = |text: &str| Trace::read(text.as_bytes(), Some(Format::Mqsim), None).unwrap();
    let of_trace = |arrivals: &str| {
        let text = right().replace("pattern = \"sequential\"\nreads = \"100%\"\nsize = \"8K\"", "pattern = \"trace\"");
        let text = text.replace("count = 2000\n", "").replace("warm_up = 100\n", "warm_up = 0\n");
        match arrivals {
            "trace" => text.replace("arrivals = \"closed\"\ndepth = 1\n", "arrivals = \"trace\"\n"),
            _ => text,
        }
    };
    let good = read("0 0 0 16 1\n5000 0 16 16 0\n900000 0 64 33 1\n");
    for arrivals in ["trace", "closed"] {
        let report = System::read("s.toml", &of_trace(arrivals), &[], RunInput::Trace(&good)).unwrap().run(1).unwrap();
        assert_eq!(report.counted().requests, 3);
    }
    assert!(message_of(&right(), Some(&good)).contains("write \"trace\""));
    assert!(message_of(&interface_text(), Some(&good)).contains("runs no trace"));
    let far = read("0 0 0 16 1\n\n1 0 99999999 16 1\n");
    assert!(message_of(&of_trace("closed"), Some(&far)).contains("line 3 of the trace"));
    let unsorted = read("9000 0 0 16 1\n0 0 0 16 1\n");
    assert!(message_of(&of_trace("trace"), Some(&unsorted)).contains("line 2 of the trace comes before"));
    let untimed = Trace::read(b"LD 0x40\n", None, None).unwrap();
    assert!(message_of(&of_trace("trace"), Some(&untimed)).contains("line 1 of the trace has no time"));
    // What made requests have may stand, and nothing else.
    let text =
        flash_text().replace("pattern = \"sequential\"", "pattern = \"trace\"").replace("warm_up = 100", "warm_up = 0");
    let timed = text.replace("arrivals = \"closed\"", "arrivals = \"trace\"");
    for text in [&text, &timed] {
        let report = System::read("s.toml", text, &[], RunInput::Trace(&good)).unwrap().run(1).unwrap();
        assert_eq!(report.counted().requests, 3);
    }
    let other = message_of(&timed.replace("[flash]", "[requests.other]\nkey = 1\n[flash]"), Some(&good));
    assert!(other.contains("nothing reads requests.other.key"), "{other}");
    let poisson = message_of(&text.replace("arrivals = \"closed\"", "arrivals = \"poisson\""), Some(&good));
    assert!(poisson.contains("a trace has \"trace\", or \"closed\""), "{poisson}");
    // As long as its warm-up, which is reported before it runs.
    let warm = of_trace("closed").replace("warm_up = 0", "warm_up = 3");
    let short = message_of(&warm, Some(&good));
    assert!(short.contains("requests.warm_up = 3: the trace has 3 requests"), "{short}");
    // Without a device, and with one that cannot be.
    let sections = right();
    let (before, _) = sections.split_once("[nand.geometry]").unwrap();
    assert!(message_of(before, None).contains("[nand] it is missing: write nand.profile"));
    let line = sections.lines().position(|line| line == "read = \"75us\"").unwrap() + 1;
    let number = message_of(&sections.replace("read = \"75us\"", "read = 75"), None);
    assert!(number.starts_with(&format!("s.toml:{line}: [nand] timing.read: ")), "{number}");
    assert!(message_of("", None).contains("there is no model; write one of flash, interface"));
}
#[test]
fn traces_that_do_not_fit_memory_are_reported() {
    let cycle = Some(Time::ns(2));
    let read = |text: &str| Trace::read(text.as_bytes(), Some(Format::Hybridsim), cycle).unwrap();
    let of = |system: usize, arrivals: &str, warm_up: u64, trace: &Trace| {
        let set = [("pattern", "trace"), ("arrivals", arrivals), ("warm_up", &warm_up.to_string())];
        let set = set.map(|(key, value)| (format!("requests.{key}"), value.to_owned()));
        System::read("s.toml", MEMORY[system], &set, RunInput::Trace(trace)).map_err(|error| error.to_string())
    };
    let good = read("0 0 0\n10 1 4096\n20 0 64\n");
    for (system, text) in MEMORY.into_iter().enumerate() {
        for arrivals in ["trace", "closed"] {
            let report = of(system, arrivals, 0, &good).unwrap().run(1).unwrap();
            assert_eq!(report.counted().requests, 3);
        }
        let far = of(system, "trace", 0, &read("0 0 0\n\n10 0 8589934592\n")).unwrap_err();
        let key = ["filled", "rows"][system];
        let line = line_of(text, key);
        assert!(far.starts_with(&format!("s.toml:{line}: line 3 of the trace is for 64 B at 8589934592")), "{far}");
        let unsorted = read("20 0 0\n10 0 64\n");
        let told = of(system, "trace", 0, &unsorted).unwrap_err();
        assert!(told.contains("line 2 of the trace comes before the line above it"), "{told}");
        of(system, "closed", 0, &unsorted).unwrap();
        let untimed = Trace::read(b"LD 0x40\n", None, None).unwrap();
        let told = of(system, "trace", 0, &untimed).unwrap_err();
        assert!(told.contains("line 1 of the trace has no time"), "{told}");
        let short = of(system, "trace", 3, &good).unwrap_err();
        assert!(short.contains("requests.warm_up = 3: the trace has 3 requests"), "{short}");
    }
}
#[test]
fn traces_that_do_not_fit_cores_are_reported() {
    let of = |records: &[(Option<u64>, u64)]| {
        let record = |(line, (at, offset)): (usize, &(Option<u64>, u64))| Record {
            line: line as u64 + 1,
            at: at.map(Time::ns),
            writes: false,
            offset: *offset,
            bytes: 64,
        };
        Trace { format: Format::Mqsim, records: records.iter().enumerate().map(record).collect() }
    };
    let good = of(&(0..20u64).map(|number| (Some(number), 4096 * number)).collect::<Vec<_>>());
    let text = traced_text("wait", 1);
    System::read("s.toml", &text, &[], RunInput::Trace(&good)).unwrap().run(1).unwrap();
    assert!(message_of(&text, None).contains("give the trace's file with --trace"));
    assert!(message_of(&cores_text(), Some(&good)).contains("write \"traced\""));
    for (key, wrong, part) in [
        ("accesses = 1", "accesses = 0", "a whole number from 1"),
        ("accesses = 1", "accesses = 4", "it has 5 jobs of 4 accesses, and up to 10 begin here, on 1 threads"),
        ("jobs = 8", "jobs = 19", "it has 20 jobs of 1 accesses, and up to 21 begin here"),
        ("instructions = 30", "instructions = \"some\"", "write \"trace\", or a number"),
        ("instructions = 30", "instructions = 1048577", "from 0 to 1048576"),
        ("depends = true", "depends = \"true\"", "true or false"),
        ("addresses = \"physical\"", "addresses = \"linear\"", "write one of physical, virtual"),
        ("front = \"traced\"", "front = \"traced\"\nname = \"rbt\"", "nothing reads workload.name"),
        ("front = \"traced\"", "front = \"recorded\"", "there is no workload.name"),
        ("warmed = false\n", "", "there is no workload.warmed"),
    ] {
        assert!(text.contains(key), "{key}");
        let message = message_of(&text.replacen(key, wrong, 1), Some(&good));
        assert!(message.starts_with("s.toml:") && message.contains(part), "{wrong}: {message}");
    }
    let far = of(&[(Some(0), 0), (Some(0), (128 << 20) - 63)]);
    assert!(
        message_of(&text, Some(&far)).contains("line 2 of the trace is for 64 B at 134217665"),
        "{}",
        message_of(&text, Some(&far))
    );
    let timed = text.replace("instructions = 30", "instructions = \"trace\"");
    let unsorted = of(&[(Some(5), 0), (Some(4), 0)]);
    assert!(message_of(&timed, Some(&unsorted)).contains("line 2 of the trace comes before"));
    let untimed = of(&[(Some(5), 0), (None, 0)]);
    assert!(message_of(&timed, Some(&untimed)).contains("line 2 of the trace has neither"));
    // Where a number is stated, times do not matter.
    assert!(message_of(&text, Some(&unsorted)).contains("the trace ends before the run"));
}
