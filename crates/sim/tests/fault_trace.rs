//! Goal: no bytes make a trace's parser panic, and what is written is read again. Method: samples
//! of each format, whole, cut, with bytes changed and lines exchanged; then records by chance
//! through each format and back.

use fulgurite_sim::Time;
use fulgurite_sim::trace::{Format, Record, Trace, TraceError};
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
    assert_eq!(first(Format::Blkparse), of(4, Some(Time::ns(1_000_250)), true, 512 * 2048, 512 * 16));
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
#[test]
fn damaged_samples_never_panic() {
    let mut random = Random::seeded("damaged_samples_never_panic", 11);
    for run in 0..trials::share(4000) {
        let (format, text) = SAMPLES[(run % SAMPLES.len() as u64) as usize];
        let mut bytes = text.as_bytes().to_vec();
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
    let compressed = Trace::read(&[0x1f, 0x8b, 8, 0], None, None).unwrap_err();
    assert!(compressed.to_string().contains("gzip -dc"));
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
