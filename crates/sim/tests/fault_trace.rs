//! Goal: no bytes make a trace's parser panic, and what is written is read again. Method: samples
//! of each format, compressed or not, whole, cut, and with bytes changed; then random records
//! through each format and back.

use std::io::BufReader;

use fulgurite_sim::Time;
use fulgurite_sim::trace::{CompressedError, Format, Record, Trace, TraceError};
use fulgurite_testkit as trials;
use fulgurite_testkit::Random;

const CYCLE: Option<Time> = Some(Time::ns(2));

/// A sample of each format that is text, as the programs write it.
const SAMPLES: [(Format, &str); 8] = [
    (Format::Msr, include_str!("traces/msr.csv")),
    (Format::Mqsim, include_str!("traces/mqsim.trace")),
    (Format::Dramsim3, include_str!("traces/dramsim3.trace")),
    (Format::Hybridsim, include_str!("traces/hybridsim.trace")),
    (Format::Ramulator2, include_str!("traces/ramulator2.trace")),
    (Format::Lis, include_str!("traces/arc.lis")),
    (Format::Blkparse, include_str!("traces/blkparse.txt")),
    (Format::Fio, include_str!("traces/fio.log")),
];

#[test]
fn samples_are_read_and_detected() {
    for (format, text) in SAMPLES {
        let trace = Trace::read(text.as_bytes(), None, CYCLE).unwrap();
        assert_eq!(trace.format, format);
        let summary = trace.summary();
        assert!(summary.accesses >= 3, "{summary:?}");
        let timed = !matches!(format, Format::Ramulator2 | Format::Lis);
        assert_eq!(summary.sorted, timed.then_some(true), "{summary:?}");
        assert_eq!(format.counts_cycles(), Trace::read(text.as_bytes(), None, None) == Err(TraceError::Clock(format)));
    }
    // Of each, one access as the format says it.
    let first = |format: Format| {
        let text = SAMPLES.iter().find(|(of, _)| *of == format).unwrap().1;
        Trace::read(text.as_bytes(), Some(format), CYCLE).unwrap().records[1]
    };
    let of = |line, at: Option<Time>, writes, offset, bytes| Record { line, at, writes, offset, bytes };
    assert_eq!(first(Format::Msr), of(2, Some(Time::ns(1_500_000)), true, 512 * 1024, 4096));
    assert_eq!(first(Format::Mqsim), of(2, Some(Time::ns(7000)), true, 512 * 4096, 512 * 8));
    assert_eq!(first(Format::Dramsim3), of(2, Some(Time::ns(20)), true, 0x1040, 64));
    assert_eq!(first(Format::Hybridsim), of(2, Some(Time::ns(20)), true, 4096, 64));
    assert_eq!(first(Format::Ramulator2), of(2, None, true, 0x2040, 64));
    assert_eq!(first(Format::Lis), of(2, None, false, 512 * 200, 512 * 2));
    assert_eq!(first(Format::Blkparse), of(6, Some(Time::ns(1_000_250)), true, 512 * 2048, 512 * 16));
    assert_eq!(first(Format::Fio), of(2, Some(Time::us(1000)), true, 8192, 4096));
}
/// An instruction as ChampSim writes it (`input_instr` of its trace_instruction.h).
fn instruction(branch: [u8; 2], written: [u64; 2], read: [u64; 4]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&0x40_1136_u64.to_le_bytes());
    bytes[8..10].copy_from_slice(&branch);
    // Registers: the instruction pointer, the stack, and others.
    bytes[10..16].copy_from_slice(&[26, 6, 26, 6, 25, 1]);
    for (turn, address) in written.iter().chain(&read).enumerate() {
        bytes[16 + turn * 8..][..8].copy_from_slice(&address.to_le_bytes());
    }
    bytes
}
#[test]
fn instructions_of_champsim_are_read_and_detected() {
    const STACK: u64 = 0x7ffd_1234_5678;
    let bytes = [
        instruction([0, 0], [0, 0], [STACK, 0, 0, 0]),
        instruction([1, 1], [0, 0], [0, 0, 0, 0]),
        // An operand in memory, which is read and written. An address may be in any place.
        instruction([0, 0], [0, STACK + 8], [0x60_2000, 0, STACK + 8, 0]),
        instruction([1, 0], [STACK - 8, 0], [0, 0, 0, 0]),
    ];
    let trace = Trace::read(&bytes.concat(), None, None).unwrap();
    assert_eq!(trace.format, Format::Champsim);
    let of = |line, writes, offset| Record { line, at: None, writes, offset, bytes: 8 };
    let records = [
        of(1, false, STACK),
        of(3, false, 0x60_2000),
        of(3, false, STACK + 8),
        of(3, true, STACK + 8),
        of(4, true, STACK - 8),
    ];
    assert_eq!(trace.records, records);
    let summary = trace.summary();
    assert_eq!((summary.accesses, summary.writes, summary.bytes, summary.sorted), (5, 2, 40, None));
    // What is written is the same instructions, without branches and registers.
    let written = trace.write(Format::Champsim, None).unwrap();
    assert_eq!(written.len(), 4 * 64);
    assert_eq!(Trace::read(&written, Some(Format::Champsim), None).unwrap(), trace);
    // An instruction writes to two places at most, and the third goes to the next one.
    let three = Trace { format: Format::Champsim, records: vec![of(2, true, 8), of(2, true, 16), of(2, true, 24)] };
    let read = Trace::read(&three.write(Format::Champsim, None).unwrap(), Some(Format::Champsim), None).unwrap();
    assert_eq!(read.records, [of(2, true, 8), of(2, true, 16), of(3, true, 24)]);
    let nowhere = Trace { format: Format::Champsim, records: vec![of(1, false, 0)] };
    assert!(nowhere.write(Format::Champsim, None).unwrap_err().to_string().contains("address 0"));
    // Cut within an instruction, and with a flag that is none.
    let told = |bytes: &[u8]| Trace::read(bytes, Some(Format::Champsim), None).unwrap_err().to_string();
    let cut = told(&bytes.concat()[..64 * 3 + 5]);
    assert!(cut.contains("line 4") && cut.contains("not whole"), "{cut}");
    let flag = told(&[bytes[0], instruction([2, 0], [0, 0], [STACK, 0, 0, 0])].concat());
    assert!(flag.contains("line 2") && flag.contains("neither 0 nor 1"), "{flag}");
}
#[test]
fn the_sample_of_champsim_is_read_and_detected() {
    // A loop over an array of four elements, and a function's end.
    let bytes = include_bytes!("traces/champsim.trace");
    let trace = Trace::read(bytes, None, None).unwrap();
    assert_eq!(trace.format, Format::Champsim);
    let of = |line, writes, offset| Record { line, at: None, writes, offset, bytes: 8 };
    let array = (0..4).map(|turn| of(1 + 4 * turn, false, 0x60_2040 + 64 * turn));
    let end = [
        of(17, true, 0x7ffd_1234_5670),
        of(18, false, 0x7ffd_1234_5678),
        of(18, true, 0x7ffd_1234_5678),
        of(19, false, 0x7ffd_1234_5680),
    ];
    assert_eq!(trace.records, array.chain(end).collect::<Vec<_>>());
}
/// The sample of ChampSim, plain and as `gzip -9n` and `xz -9` compress it, and one of text.
const BYTES: [(Format, &[u8]); 4] = [
    (Format::Champsim, include_bytes!("traces/champsim.trace")),
    (Format::Champsim, include_bytes!("traces/champsim.trace.gz")),
    (Format::Champsim, include_bytes!("traces/champsim.trace.xz")),
    (Format::Msr, include_bytes!("traces/msr.csv.gz")),
];

/// A reader that gives `count` bytes at a time, as a pipe may.
fn pieces(bytes: &[u8], count: usize) -> Result<Trace, TraceError> {
    Trace::read_from(BufReader::with_capacity(count, bytes), None, None)
}
#[test]
fn compressed_traces_are_what_they_were() {
    let plain = Trace::read(BYTES[0].1, None, None).unwrap();
    for (_, bytes) in &BYTES[1..3] {
        for count in [1, 2, 7, 1 << 16] {
            assert_eq!(pieces(bytes, count).unwrap(), plain, "{count} bytes at a time");
        }
        // Twice the same file is twice the trace, as `cat` makes it.
        let twice = pieces(&[*bytes, *bytes].concat(), 5).unwrap();
        let of = |trace: &Trace| trace.records.iter().map(|record| record.offset).collect::<Vec<_>>();
        assert_eq!(of(&twice), of(&plain).repeat(2));
    }
    let lines = Trace::read(SAMPLES[0].1.as_bytes(), None, None).unwrap();
    assert_eq!(Trace::read(BYTES[3].1, None, None).unwrap(), lines);
}
#[test]
fn what_is_wrong_with_compressed_bytes_has_its_place() {
    for ((_, bytes), by) in BYTES[1..3].iter().zip(["gzip", "xz"]) {
        // Wherever it ends, what is there is no trace.
        for end in 6..bytes.len() {
            let error = pieces(&bytes[..end], 16).unwrap_err();
            assert_eq!(error, CompressedError::Truncated { by, byte: end as u64 }.into(), "{by}");
        }
        let told = Trace::read(&bytes[..40], None, None).unwrap_err().to_string();
        assert!(told.contains("truncated") && told.contains("40 bytes"), "{told}");
        // Any byte that was changed is found, but for bytes of gzip's header that say nothing.
        for at in if by == "gzip" { 10..bytes.len() } else { 6..bytes.len() } {
            let mut wrong = bytes.to_vec();
            wrong[at] ^= 0x10;
            match pieces(&wrong, 16).unwrap_err() {
                TraceError::Compressed(
                    CompressedError::Damaged { by: told, byte, .. } | CompressedError::Truncated { by: told, byte },
                ) => assert!(told == by && byte <= bytes.len() as u64, "{by}: {byte}"),
                // What was read before the sum was checked is no record of ChampSim.
                other => assert!(matches!(other, TraceError::Unknown { .. } | TraceError::Line { .. }), "{other:?}"),
            }
        }
    }
    let behind = [BYTES[2].1, b"more"].concat();
    let error = Trace::read(&behind, None, None).unwrap_err();
    assert!(matches!(error, TraceError::Compressed(CompressedError::Damaged { by: "xz", .. })), "{error:?}");
}
#[test]
fn memory_that_a_header_asks_for_has_a_bound() {
    // "LD 4096" by xz, whose header says that it needs a dictionary of 512 MiB.
    const LARGE: [u8; 60] = [
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0x00, 0x21, 0x01, 0x22, 0x00,
        0x00, 0x00, 0x82, 0x40, 0xac, 0xdc, 0x01, 0x00, 0x07, 0x4c, 0x44, 0x20, 0x34, 0x30, 0x39, 0x36, 0x0a, 0x00,
        0x04, 0x1c, 0x01, 0x4a, 0x00, 0x01, 0x1c, 0x08, 0x44, 0x60, 0x2a, 0xc8, 0x90, 0x42, 0x99, 0x0d, 0x01, 0x00,
        0x00, 0x00, 0x00, 0x01, 0x59, 0x5a,
    ];
    let told = Trace::read(&LARGE, None, None).unwrap_err().to_string();
    assert!(told.contains("more than 128 MiB"), "{told}");
}
#[test]
fn damaged_samples_never_panic() {
    let mut random = Random::seeded("damaged_samples_never_panic", 11);
    let texts = SAMPLES.map(|(format, text)| (format, text.as_bytes()));
    let samples: Vec<(Format, &[u8])> = texts.into_iter().chain(BYTES).collect();
    for run in 0..trials::share(6000) {
        let (format, bytes) = samples[(run % samples.len() as u64) as usize];
        let mut bytes = bytes.to_vec();
        for _ in 0..1 + random.below(4u64) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4u64) {
                0 => bytes.truncate(at + 1),
                1 => bytes[at] = random.next() as u8,
                2 => bytes[at] = b"0123456789,.-+xXRW \n"[random.below(20u64) as usize],
                _ => drop(bytes.splice(at..at, *b"99999999999999999999")),
            }
        }
        let named = if random.one_in(2u64) { Some(format) } else { None };
        if let Ok(trace) = Trace::read(&bytes, named, CYCLE) {
            let summary = trace.summary();
            assert!(summary.accesses > 0 && summary.writes <= summary.accesses);
        }
    }
}
#[test]
fn what_is_wrong_has_its_line() {
    let told = |text: &str, format| Trace::read(text.as_bytes(), format, CYCLE).unwrap_err().to_string();
    assert_eq!(told("", None), "the trace has no accesses");
    assert_eq!(told("\n# nothing\n", Some(Format::Mqsim)), "the trace has no accesses");
    assert!(told("\nwhat is this\n", None).starts_with("line 2 is of no known format"));
    assert!(told("0 0 0 8 1\n0 0 0 8\n", None).starts_with("line 2 is not of the format mqsim"));
    assert!(told("0 0 0 8 2\n", Some(Format::Mqsim)).contains("0 (write) or 1 (read)"));
    assert!(told("0 0 99999999999999999999 8 1\n", Some(Format::Mqsim)).contains("line 1"));
    assert!(told("0 0 36028797018963967 8 1\n", Some(Format::Mqsim)).contains("beyond 2^64"));
    assert!(told("0 0 0 8 1\n99999999999999999 0 0 8 1\n", None).contains("100 days"));
    // Without log_offset=1, by a fio that has priorities and by one that has not. Its fifth field
    // is no offset.
    for text in ["0, 81920, 0, 4096, 0\n", "0, 81920, 0, 4096, 0x4004\n", "0, 81920, 0, 4096\n"] {
        for format in [None, Some(Format::Fio)] {
            let told = told(text, format);
            assert!(told.starts_with("line 1 is not of the format fio") && told.contains("log_offset=1"), "{told}");
        }
    }
    let with = Trace::read(b"0, 81920, 0, 4096, 8192, 0x4004\n", None, None).unwrap();
    assert_eq!((with.format, with.records[0].offset), (Format::Fio, 8192));
    // Other kinds of Ramulator 2's traces. Its processor traces could be of other programs, too.
    for (text, format) in [("R 0,1,2,3\n", None), ("W 0\n", None), ("3 20734016\n", Some(Format::Ramulator2))] {
        let told = told(text, format);
        assert!(told.contains("vectors of addresses (R 0,1,2,3) nor processor traces"), "{told}");
    }
    // Two outputs of blkparse, one behind the other.
    let blkparse = SAMPLES[6].1;
    let lines = blkparse.lines().count();
    let told = told(&blkparse.repeat(2), None);
    assert!(told.starts_with(&format!("line {} is", lines + 5)) && told.contains("behind the summary"), "{told}");
    let told = |bytes: &[u8]| Trace::read(bytes, None, None).unwrap_err().to_string();
    assert!(told(&[0x28, 0xb5, 0x2f, 0xfd]).contains("zstd -dc") && told(b"BZh9").contains("bzip2 -dc"));
}
#[test]
fn records_come_back() {
    let mut random = Random::seeded("records_come_back", 12);
    for format in Format::ALL {
        let block = matches!(format, Format::Dramsim3 | Format::Hybridsim | Format::Ramulator2 | Format::Champsim);
        let bytes = match format {
            Format::Champsim => 8,
            _ if block => 64,
            _ => 4096,
        };
        let timed = !matches!(format, Format::Ramulator2 | Format::Champsim | Format::Lis);
        let mut at = 0;
        let records: Vec<Record> = (0..trials::share(500))
            .map(|number| {
                let record = Record {
                    line: number + 1,
                    // Milliseconds are whole in every unit.
                    at: timed.then_some(Time::us(1000) * at),
                    writes: format != Format::Lis && random.one_in(2u64),
                    offset: (1 + random.below(1u64 << 30)) * 512,
                    bytes,
                };
                at += random.below(3u64);
                record
            })
            .collect();
        let trace = Trace { format, records };
        let written = trace.write(format, CYCLE).unwrap();
        assert_eq!(Trace::read(&written, Some(format), CYCLE).unwrap(), trace, "{}", format.name());
        assert_eq!(Trace::read(&written, None, CYCLE).unwrap().format, format);
    }
    let timeless = Trace::read(b"LD 0x40\n", None, None).unwrap();
    let large = Trace::read(b"7000 0 4096 16 0\n", Some(Format::Mqsim), None).unwrap();
    assert!(large.write(Format::Champsim, None).unwrap_err().to_string().contains("64 B at most"));
    assert!(timeless.write(Format::Fio, None).unwrap_err().to_string().contains("a time is needed"));
    assert!(timeless.write(Format::Lis, None).unwrap_err().to_string().contains("whole sectors"));
}
