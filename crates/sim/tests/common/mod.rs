//! Small systems that the tests change.

use fulgurite_sim::flash::FlashSystem;
use fulgurite_sim::interface::InterfaceSystem;
use fulgurite_sim::system::Document;

/// NAND of a few planes that reads no bit wrong.
const NAND: &str = r#"
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
size = "256K"
writes = false
warm_up = 20
count = 400
[device]
buffer = "512K"
bypass = false
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

fn document(text: &str, set: &[(&str, &str)]) -> Document {
    let set: Vec<(String, String)> = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Document::read("test.toml", text, &set).unwrap()
}
/// That flash system with some values changed.
pub fn flash(set: &[(&str, &str)]) -> FlashSystem {
    FlashSystem::read(&document(&flash_text(), set), None).unwrap()
}
/// That device with some values changed.
pub fn interface(set: &[(&str, &str)]) -> InterfaceSystem {
    InterfaceSystem::read(&document(&interface_text(), set)).unwrap()
}
