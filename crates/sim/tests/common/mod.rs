//! Small systems that the tests change.

use fulgurite_sim::cores::CoresSystem;
use fulgurite_sim::flash::FlashSystem;
use fulgurite_sim::interface::InterfaceSystem;
use fulgurite_sim::system::Document;
use fulgurite_sim::workers::WorkersSystem;

/// NAND of a few planes that reads no bit wrong.
pub const NAND: &str = r#"
[nand.geometry]
channels = 2
packages_per_channel = 1
dies_per_package = 2
planes_per_die = 2
registers_per_plane = 1
blocks_per_plane = 32
pages_per_block = 16
page = "8K"

[nand.timing]
cell = "mlc"
command = "300ns"
read = "75us"
program = "750us"
erase = "3800us"
bus = "333MB/s"
commands_first = true

[nand.queues]
die_queue = 64
reorder = true

[nand.wear]
endurance = "10000 cycles"
failure = "20000 cycles"
spread = 0.0
factory_bad = 0.0

[nand.ecc]
codeword = "1K"
corrects = "40 bits"
bit_errors_fresh = 0.0
bit_errors_worn = 0.0

[nand.energy]
read = "1.5uJ"
program = "36uJ"
erase = "90uJ"
transfer = "75pJ"
"#;

/// One read of 8 KiB at a time, over a link of 4 GB/s.
pub fn flash_text() -> String {
    let own = r#"
model = "flash"
about = "a test"
[requests]
arrivals = "closed"
depth = 1
between = "1ms"
pattern = "sequential"
reads = "100%"
size = "8K"
warm_up = 100
count = 2000
[flash]
filled = "50%"
aged = 0
[link]
command = "500ns"
rate = "4GB/s"
"#;
    format!("{own}{NAND}")
}

/// Reads of 256 KiB by four threads, a buffer of 512 KiB.
pub fn interface_text() -> String {
    let own = r#"
model = "interface"
about = "a test"
[requests]
threads = 4
pattern = "sequential"
size = "256K"
writes = false
warm_up = 20
count = 400
[device]
interface = "dram"
buffer = "512K"
bypass = false
firmware = "0us"
cached_writes = false
[driver]
split = "256K"
protocol = "56us"
[dma]
setup = "17us"
rate = "450MB/s"
[host]
processors = 2
invalidate = "1800MB/s"
[flash]
filled = "50%"
"#;
    format!("{own}{NAND}")
}

/// The keys of a device over UFS: two lanes of HS-G3, 32 slots.
pub fn ufs_text() -> String {
    let dram = "[dma]\nsetup = \"17us\"\nrate = \"450MB/s\"\n";
    let ufs = r#"[controller]
slots = 32
command = "1us"
[link]
lanes = 2
lane = "5.8304GHz"
code = "80%"
frame = "286B"
frame_overhead = "8B"
upiu = "32B"
data = "4K"
"#;
    interface_text()
        .replace(dram, ufs)
        .replace("invalidate = \"1800MB/s\"\n", "")
        .replace("interface = \"dram\"", "interface = \"ufs\"\ntransfers = 2")
        .replace("firmware = \"0us\"", "firmware = \"20us\"")
}

/// What an operation of each workload is like, as in `systems/astriflash.toml`.
pub const SHAPES: &str = r#"[workload.shapes]
array-swap = { operations = 1, compute = 220, levels = 0, records = 2, blocks = 2, writes = "100%", own = 8, path = false }
rbt = { operations = 1, compute = 110, levels = 5, records = 4, blocks = 1, writes = "20%", own = 10, path = true }
hash-table = { operations = 1, compute = 180, levels = 1, records = 1, blocks = 3, writes = "20%", own = 10, path = false }
tatp = { operations = 1, compute = 280, levels = 5, records = 3, blocks = 6, writes = "34%", own = 16, path = false }
tpcc = { operations = 1, compute = 420, levels = 5, records = 14, blocks = 6, writes = "60%", own = 12, path = false }
silo = { operations = 2, compute = 260, levels = 4, records = 2, blocks = 5, writes = "30%", own = 14, path = false }
masstree = { operations = 2, compute = 220, levels = 5, records = 1, blocks = 4, writes = "10%", own = 14, path = false }
"#;

/// Two cores over a small DRAM cache that switches, as AstriFlash does.
pub fn cores_text() -> String {
    let own = r#"
model = "cores"
about = "a test"
[system]
cores = 2
paging = "switch"
[threads]
count = 32
switch = "100ns"
policy = "priority-aging"
[workload]
name = "hash-table"
data = "128M"
exponent = 1.0
front = "modelled"
[run]
warm_up = 5000
jobs = 20000
[core]
clock = "2GHz"
per_cycle = 1.5
reorder_buffer = 128
store_buffer = 32
front_end = 13
mshrs = 32
[tlb]
first = 48
second = 1024
ways = 4
latency = 5
[l1]
size = "64K"
ways = 4
latency = 2
[llc]
size = "256K"
ways = 16
latency = 6
[directory]
lookup = 2
[mesh]
row = 2
hop = 3
link = "16B" # a cycle
[dram]
tables = "flat"
banks = 16
command = 1
open = 55
close = 0
column = 3
refresh_every = "7800ns"
refresh = "350ns"
[energy]
standby = "60mW"
refresh = "10mW"
byte = "500pJ"
[cache]
controllers = 1
sets = 4096
ways = 4
status_entries = 2048
backside_command = 3
queue = 16
evict_pages = 64
[flash]
filled = "50%"
"#;
    let own = own.replace("[run]\n", &format!("{SHAPES}[run]\n"));
    // Enough planes, and erases that are rare and short: reads hardly wait.
    let nand = NAND.replace("page = \"8K\"", "page = \"4K\"").replace("channels = 2", "channels = 16");
    let nand = nand
        .replace("pages_per_block = 16", "pages_per_block = 256")
        .replace("3800us", "200us")
        .replace("750us", "100us");
    format!("{own}{nand}")
}

/// One core, or several, that does jobs of one access of a trace: one that is not measured, and
/// eight that are. DRAM begins empty.
pub fn traced_text(paging: &str, cores: u32) -> String {
    let threads = "[threads]\ncount = 32\nswitch = \"100ns\"\npolicy = \"priority-aging\"\n";
    let workload = "name = \"hash-table\"\ndata = \"128M\"\nexponent = 1.0\nfront = \"modelled\"\n";
    let traced = "data = \"128M\"\nfront = \"traced\"\naccesses = 1\ninstructions = 30\ndepends = true\n\
                  addresses = \"physical\"\nwarmed = false\n";
    let text = cores_text().replace(workload, traced).replace(SHAPES, "");
    let text = text.replace("cores = 2\n", &format!("cores = {cores}\n"));
    let text = text.replace("warm_up = 5000\njobs = 20000", "warm_up = 1\njobs = 8");
    let text = text.replace("paging = \"switch\"", &format!("paging = \"{paging}\""));
    if paging == "switch" {
        return text;
    }
    let text = text
        .replace(threads, "")
        .replace("status_entries = 2048\nbackside_command = 3\nqueue = 16\nevict_pages = 64\n", "");
    match (paging, text.find("[flash]")) {
        // It has no flash, and no keys behind the cache's.
        ("dram-only", Some(flash)) => text[..flash].to_owned(),
        _ => text,
    }
}

/// One worker over 300 frames, for which two elements of an array change places.
pub fn workers_text() -> String {
    r#"
model = "workers"
configuration = "fulgurite"
about = "a test"
[workload]
name = "array-swap"
data = "8M"
exponent = 0.9
computing = "between-misses"
time = "10us"
[run]
warm_up = 10000
requests = 10000
[threads]
count = 64
policy = "arrived-first"
[dram]
frames = 300
replacement = "s3-fifo"
writes = "dirty"
read_around = 1
prefetch = "off"
[costs]
request = "10ns"
hit = "1ns"
far_hit = "15ns"
near = 64
miss = "391ns"
write_back = "46ns"
join = "391ns"
read_around = "0ns"
[device]
read = "50us"
write = "100us"
planes = 256
read_gap = "0ns"
write_gap = "0ns"
copies = 0
"#
    .to_owned()
}

/// A text as a document, with some values changed.
pub fn document(text: &str, set: &[(&str, &str)]) -> Document {
    let set: Vec<(String, String)> = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Document::read("test.toml", text, &set).unwrap()
}
/// That flash system with some values changed.
pub fn flash(set: &[(&str, &str)]) -> FlashSystem {
    FlashSystem::read(&document(&flash_text(), set), None).unwrap()
}
/// That worker with some values changed.
pub fn workers(set: &[(&str, &str)]) -> WorkersSystem {
    WorkersSystem::read(&document(&workers_text(), set)).unwrap()
}
/// That device with some values changed.
pub fn interface(set: &[(&str, &str)]) -> InterfaceSystem {
    InterfaceSystem::read(&document(&interface_text(), set)).unwrap()
}
/// A system over UFS, with some values changed.
pub fn ufs(set: &[(&str, &str)]) -> InterfaceSystem {
    InterfaceSystem::read(&document(&ufs_text(), set)).unwrap()
}
/// Those cores with some values changed. What only switching threads read is left out without
/// them.
pub fn cores(set: &[(&str, &str)]) -> CoresSystem {
    let paging = set.iter().find(|(key, _)| *key == "system.paging").map_or("switch", |(_, value)| value);
    let mut text = cores_text();
    if paging != "switch" {
        let threads = "[threads]\ncount = 32\nswitch = \"100ns\"\npolicy = \"priority-aging\"\n";
        let own = if paging == "system" { "[threads]\ncount = 32\nfault = \"5us\"\nswitch = \"5us\"\n" } else { "" };
        text = text.replace(threads, own);
    }
    CoresSystem::read(&document(&text, set)).unwrap()
}
