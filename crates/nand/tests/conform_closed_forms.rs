//! Goal: the device takes as long as its profile says, alone and under load, within 1% of the
//! closed forms.
//! Method: one request alone. Streams of requests that keep one resource busy all the time, so that
//! its rate is known: the arrays of planes, a bus, a plane with one register and with two. Built-in
//! profiles, and bus rates of 330, 400 and 800 MB/s.

use fulgurite_nand::{Block, Command, Done, Nand, NandOp, Plane, Profile, Status};

const DEPTH: usize = 8192;

/// A built-in profile without errors and bad blocks, of 1 GiB on `planes` planes.
fn profile(name: &str, planes: u32) -> Profile {
    let mut profile = Profile::built_in(name).unwrap().scaled(1 << 30, planes).unwrap();
    profile.wear.factory_bad = 0.0;
    (profile.ecc.bit_errors_fresh, profile.ecc.bit_errors_worn) = (0.0, 0.0);
    profile
}

/// Runs until nothing is under way.
fn run(nand: &mut Nand) -> Vec<Done> {
    let mut done = Vec::new();
    while let Some(next) = nand.next_event_ns() {
        nand.advance(next, &mut done);
        nand.check();
    }
    done
}

fn submit(nand: &mut Nand, tag: u64, op: NandOp) {
    nand.submit(nand.now_ns(), Command { tag, op, reclaim: false }).unwrap();
}

/// Programs the first `pages` pages of block 0 of each plane.
fn fill(nand: &mut Nand, pages: u32) {
    let g = nand.geometry();
    for page in 0..pages {
        for plane in 0..g.planes() {
            let page = g.page(g.block(Plane(plane), 0), page);
            submit(nand, 0, NandOp::Program { page });
        }
    }
    run(nand);
}

/// Nanoseconds that `count` reads of `bytes` take, which are all submitted at once. Read `i` is of
/// plane `plane(i)`.
fn reads(nand: &mut Nand, count: u32, bytes: u32, plane: impl Fn(u32) -> u32) -> f64 {
    let g = nand.geometry();
    let begin = nand.now_ns();
    for i in 0..count {
        let page = g.page(g.block(Plane(plane(i)), 0), 0);
        submit(nand, i.into(), NandOp::Read { page, offset: 0, bytes });
    }
    let done = run(nand);
    assert_eq!(done.len(), count as usize);
    assert!(done.iter().all(|d| d.status == Status::Ok));
    (nand.now_ns() - begin) as f64
}

fn near(what: &str, found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.01, "{what}: {found}, and {expected} expected");
}

#[test]
fn a_read_alone_takes_command_array_and_transfer() {
    for name in Profile::built_in_names() {
        for rate in [330_000_000, 400_000_000, 800_000_000] {
            let mut profile = profile(name, 16);
            profile.timing.bus_bytes_per_second = rate;
            let mut nand = Nand::new(profile, DEPTH, 1);
            fill(&mut nand, 1);
            let t = profile.timing;
            let sent = 4096.0 / rate as f64 * 1e9;
            let expected = t.command_ns as f64 + t.read_ns as f64 + sent;
            near(name, reads(&mut nand, 1, 4096, |_| 3), expected);
        }
    }
}

#[test]
fn a_program_and_an_erase_alone_take_what_the_profile_says() {
    for name in ["slc", "mlc", "tlc", "nvmm"] {
        let profile = profile(name, 16);
        let (g, t) = (profile.geometry, profile.timing);
        let mut nand = Nand::new(profile, DEPTH, 1);
        submit(&mut nand, 1, NandOp::Program { page: g.page(Block(0), 0) });
        let done = run(&mut nand);
        near(name, done[0].done_ns as f64, (t.command_ns + t.transfer_ns(g.page_bytes()) + t.program_ns) as f64);
        let begin = nand.now_ns();
        submit(&mut nand, 2, NandOp::Erase { block: Block(0) });
        let done = run(&mut nand);
        near(name, (done[0].done_ns - begin) as f64, (t.command_ns + t.erase_ns) as f64);
    }
}

#[test]
fn the_peak_is_channels_times_bus_rate() {
    for rate in [330_000_000, 400_000_000, 800_000_000] {
        // Whole pages of SLC from eight planes on each of eight channels: arrays are faster than
        // buses.
        let mut profile = profile("slc", 64);
        profile.timing.bus_bytes_per_second = rate;
        profile.timing.command_ns = 0;
        let mut nand = Nand::new(profile, DEPTH, 1);
        fill(&mut nand, 1);
        let ns = reads(&mut nand, 8000, 4096, |i| i % 64);
        // The first array access is not hidden.
        let expected = 8000.0 * 4096.0 / (8.0 * rate as f64) * 1e9 + profile.timing.read_ns as f64;
        near("peak", ns, expected);
    }
}

#[test]
fn commands_take_their_part_of_the_bus() {
    let profile = profile("slc", 64);
    let mut nand = Nand::new(profile, DEPTH, 1);
    fill(&mut nand, 1);
    let ns = reads(&mut nand, 8000, 4096, |i| i % 64);
    let t = profile.timing;
    near("with commands", ns, 1000.0 * (t.command_ns + t.transfer_ns(4096)) as f64 + t.read_ns as f64);
}

#[test]
fn dies_work_in_parallel() {
    // So little is sent that only arrays count.
    for planes in [1, 4, 16, 64] {
        let profile = profile("mlc", planes);
        let mut nand = Nand::new(profile, DEPTH, 1);
        fill(&mut nand, 1);
        let count = 100 * planes;
        let ns = reads(&mut nand, count, 64, |i| i % planes);
        let t = profile.timing;
        near("arrays", ns, 100.0 * (t.command_ns + t.read_ns) as f64);
    }
}

#[test]
fn a_second_register_hides_the_transfer() {
    for (registers, name) in [(1, "one register"), (2, "two registers")] {
        let mut profile = profile("mlc", 1);
        profile.timing.registers = registers;
        let mut nand = Nand::new(profile, DEPTH, 1);
        fill(&mut nand, 1);
        let t = profile.timing;
        let (read, sent) = ((t.command_ns + t.read_ns) as f64, t.transfer_ns(16_384) as f64);
        assert!(sent < read, "else the bus would be what counts");
        let expected = if registers == 1 { 500.0 * (read + sent) } else { 500.0 * read + sent };
        near(name, reads(&mut nand, 500, 16_384, |_| 0), expected);
    }
}

#[test]
fn commands_first_keeps_planes_busy() {
    // Four planes on one bus that is busy for most of an array's time: when commands wait behind
    // data, arrays idle meanwhile.
    let time = |first: bool| {
        let mut profile = profile("mlc", 4);
        profile.geometry = profile.geometry.scaled(1 << 30, 1, 32).unwrap();
        let mut parts = profile.geometry.parts();
        parts.planes_per_die = 4;
        profile.geometry = fulgurite_nand::Geometry::new(parts).unwrap();
        profile.timing.commands_first = first;
        let mut nand = Nand::new(profile, DEPTH, 1);
        fill(&mut nand, 1);
        reads(&mut nand, 4000, 4096, |i| i % 4)
    };
    let (first, in_turn) = (time(true), time(false));
    assert!(1.02 * first < in_turn, "{first} ns with commands first, and {in_turn} ns in turn");
    // Read time of 50.2 µs for four planes, and 41 µs of transfers: with commands first, arrays
    // never wait.
    near("arrays", first, 1000.0 * 50_200.0);
}

#[test]
fn writes_are_as_fast_as_the_planes_program() {
    for (name, planes) in [("slc", 16), ("mlc", 64), ("tlc", 16)] {
        let mut profile = profile(name, planes);
        // The bus is no limit.
        profile.timing.bus_bytes_per_second = 100_000_000_000;
        let g = profile.geometry;
        let mut nand = Nand::new(profile, DEPTH, 1);
        let pages = g.pages_per_block().min(DEPTH as u32 / planes);
        for page in 0..pages {
            for plane in 0..planes {
                submit(&mut nand, 0, NandOp::Program { page: g.page(g.block(Plane(plane), 0), page) });
            }
        }
        run(&mut nand);
        let bytes = f64::from(pages * planes) * f64::from(g.page_bytes());
        let rate = bytes / nand.now_ns() as f64;
        let expected = f64::from(planes) * f64::from(g.page_bytes()) / profile.timing.program_ns as f64;
        near(name, rate, expected);
    }
}

#[test]
fn energy_is_the_sum_of_what_was_done() {
    let profile = profile("mlc", 16);
    let g = profile.geometry;
    let mut nand = Nand::new(profile, DEPTH, 1);
    fill(&mut nand, 3);
    reads(&mut nand, 100, 4096, |i| i % 16);
    submit(&mut nand, 0, NandOp::Erase { block: g.block(Plane(2), 0) });
    run(&mut nand);
    let (c, e) = (*nand.counters(), profile.energy);
    assert_eq!((c.programs, c.reads, c.erases), (48, 100, 1));
    let bytes = 48 * u64::from(g.page_bytes()) + 100 * 4096;
    assert_eq!(c.bus_bytes, bytes);
    let expected = 48 * e.program_pj + 100 * e.read_pj + e.erase_pj + bytes * e.transfer_pj;
    assert_eq!(c.energy_pj(), expected);
}
