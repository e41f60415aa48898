//! Goal: whatever a client sends, and wherever it stops, the server answers with an error or hangs
//! up. It never crashes, never keeps more memory than was decided, writes nothing of a command that
//! did not come whole, and serves others meanwhile.
//! Method: each way to break the protocol by hand. Then sessions that are right, with random bytes
//! changed, cut out, repeated or left off (seeds are printed), each followed by an honest client.

use crate::common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use fulgurite_flash::{EmulatedConfig, EmulatedFlash, Fault, FaultPlan, FaultyFlash, Flash, MemoryFlash, Op, When};

const SHORT: Duration = Duration::from_millis(300);

fn impatient(subpages: u32) -> (Arc<MemoryFlash>, Served) {
    let flash = memory(subpages);
    let served = serve(flash.clone(), |c| (c.stall, c.handshake) = (SHORT, SHORT));
    (flash, served)
}

/// An honest client is served.
fn well(path: &Path) {
    let (mut client, export) = Client::open(path, true);
    client.write(export.bytes - 3, b"end");
    assert_eq!(client.read(export.bytes - 4, 4)[1..], *b"end");
}

#[test]
fn a_broken_handshake_ends() {
    let (_, served) = impatient(16);
    let options = |count: usize| [&3u32.to_be_bytes()[..], &b"IHAVEOPT\0\0\0\x4d\0\0\0\0".repeat(count)].concat();
    let cases: [(&str, Vec<u8>); 7] = [
        ("a flag that does not exist", vec![0, 0, 0, 255]),
        ("an option without magic", b"\0\0\0\x03IHAVEOPS\0\0\0\x07\0\0\0\0".to_vec()),
        ("an option of 4 GiB", b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff".to_vec()),
        ("endless options", options(2000)),
        ("an option without the fixed handshake", b"\0\0\0\0IHAVEOPT\0\0\0\x03\0\0\0\0".to_vec()),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("TLS", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec()),
    ];
    for (i, (what, bytes)) in cases.iter().enumerate() {
        let mut client = Client::greet(&served.path);
        // It may hang up before it has read all of it.
        let _ = client.stream.write_all(bytes);
        assert!(client.hung_up(), "{what}");
        eventually(what, || served.server.counters().broken > i as u64);
        well(&served.path);
    }
}

#[test]
fn silence_ends_where_something_is_due() {
    let (flash, served) = impatient(16);
    let before = flash.counters().writes;
    let mut client = Client::greet(&served.path);
    assert!(client.hung_up(), "no handshake");
    let mut client = Client::greet(&served.path);
    client.put(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x20half");
    assert!(client.hung_up(), "half an option");
    let (mut client, _) = Client::open(&served.path, false);
    client.put(&command_bytes(READ, 0, 1, 0, 4096)[..13]);
    assert!(client.hung_up(), "half a request");
    let (mut client, _) = Client::open(&served.path, false);
    client.send(WRITE, 0, 0, 64 << 10);
    client.put(&[7; 63 << 10]);
    assert!(client.hung_up(), "half a payload");
    assert_eq!(served.server.counters().stalled, 4);
    assert_eq!(flash.counters().writes, before, "nothing of a write that did not come whole");
    // A client without anything to say is left alone for as long as it likes.
    let (mut client, _) = Client::open(&served.path, false);
    std::thread::sleep(3 * SHORT);
    assert_eq!(client.read(0, 4), [0; 4]);
}

#[test]
fn a_byte_now_and_then_buys_no_time() {
    let (_, served) = impatient(16);
    let drip = |stream: &mut UnixStream, bytes: &[u8]| {
        let end = std::time::Instant::now() + PATIENCE;
        for byte in bytes.iter().cycle() {
            assert!(std::time::Instant::now() < end, "the server still listens");
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(SHORT / 20);
        }
    };
    let mut client = Client::greet(&served.path);
    drip(&mut client.stream, &[&b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\x01\0"[..], &[0; 256]].concat());
    let (mut client, _) = Client::open(&served.path, false);
    client.send(WRITE, 0, 0, 4 << 20 >> 6);
    drip(&mut client.stream, &[9]);
    well(&served.path);
}

#[test]
fn broken_requests_end_the_connection() {
    let (flash, served) = impatient(16);
    let magic = |bytes: &mut Vec<u8>| bytes[0] ^= 1;
    let mut wrong = command_bytes(READ, 0, 1, 0, 4096);
    magic(&mut wrong);
    let huge = command_bytes(WRITE, 0, 1, 0, u32::MAX);
    let simple_reply = b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    for bytes in [wrong, huge, simple_reply] {
        let (mut client, _) = Client::open(&served.path, false);
        client.put(&bytes);
        assert!(client.hung_up());
    }
    eventually("three are counted", || served.server.counters().broken == 3);
    // 20 MiB is more than the server takes, and a client that does not know that may send it: it is
    // refused, and the framing is kept.
    let (mut client, _) = Client::open(&served.path, false);
    let cookie = client.send(WRITE, 0, 0, 20 << 20);
    for _ in 0..20 {
        client.put(&vec![5; 1 << 20]);
    }
    assert_eq!(client.reply(|_| 0), (cookie, 22, vec![]));
    assert_eq!(client.read(0, 4), [0; 4]);
    assert_eq!(flash.counters().writes, 0);
}

#[test]
fn who_leaves_in_the_middle_takes_nobody_along() {
    let (_, served) = impatient(64);
    for round in 0..40u32 {
        let (mut client, _) = Client::open(&served.path, round % 2 == 0);
        for i in 0..20 {
            client.send(READ, 0, i << 12, 64 << 10);
            client.send(WRITE, FUA, 0, 20_000);
            client.put(&vec![round as u8; if i < 19 { 20_000 } else { round as usize * 400 }]);
        }
        drop(client);
    }
    well(&served.path);
    eventually("all are gone", || served.server.connected() <= 1);
}

#[test]
fn who_takes_no_replies_is_given_up() {
    let (_, served) = impatient(1024);
    let (mut client, _) = Client::open(&served.path, false);
    // More than the socket's buffers hold. A client that never reads meets a closed connection, or
    // blocks until then.
    let asked = (0..10_000).all(|_| client.stream.write_all(&command_bytes(READ, 0, 1, 0, 1 << 20)).is_ok());
    assert!(!asked, "10 GiB of replies were kept for somebody who does not take them");
    well(&served.path);
    eventually("it is gone", || served.server.connected() <= 1);
}

/// A client that takes no replies has a write under way. Another one wants the same place, and gets
/// it as soon as the write has ended.
#[test]
fn who_takes_no_replies_keeps_no_place() {
    let write_latency = Duration::from_millis(500);
    let config = EmulatedConfig { write_latency, read_latency: Duration::from_micros(1), ..EmulatedConfig::new(1024) };
    // It is not given up while this test runs: a client's own reads end sooner.
    let flash = Arc::new(EmulatedFlash::new(config).unwrap());
    let served = serve(flash.clone(), |c| c.stall = 10 * PATIENCE);
    let (mut client, _) = Client::open(&served.path, false);
    let mut bytes = Vec::new();
    // In whole, and in part, which takes a read before the write.
    for (offset, length) in [(0, 4096), (8192, 100)] {
        bytes.extend(command_bytes(WRITE, 0, 7, offset, length));
        bytes.extend(vec![1; length as usize]);
    }
    (0..8).for_each(|_| bytes.extend(command_bytes(READ, 0, 1, 1 << 20, 1 << 20)));
    client.stream.write_all(&bytes).unwrap();
    eventually("its replies wait", || served.server.counters().commands == 10);
    // Commands are begun in order, so both writes have their places once anything was read.
    eventually("its writes are under way", || flash.counters().reads > 0);
    let (mut other, _) = Client::open(&served.path, false);
    for offset in [0, 8192] {
        other.write(offset, b"mine");
        assert_eq!(other.read(offset, 5), b"mine\x01");
    }
    assert_eq!(served.server.connected(), 2, "the first one is still there");
}

#[test]
fn clients_are_numbered() {
    let served = serve(memory(16), |c| c.clients_max = 3);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::open(&served.path, false).0).collect();
    let mut more = UnixStream::connect(&served.path).unwrap();
    more.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(more.read(&mut [0; 8]).unwrap_or(0), 0, "turned away");
    assert_eq!(served.server.counters().refused, 1);
    assert_eq!(clients[2].read(0, 1), [0]);
    clients.pop();
    eventually("there is room again", || served.server.connected() == 2);
    well(&served.path);
}

#[test]
fn a_medium_that_hangs_hangs_only_its_clients() {
    let plan = FaultPlan::rule(Some(Op::Write), When::Nth(1), Fault::Hangs);
    let flash = Arc::new(FaultyFlash::new(MemoryFlash::new(16).unwrap(), plan));
    let served = serve(flash.clone(), |c| c.stall = 3 * SHORT);
    let (mut client, _) = Client::open(&served.path, false);
    client.send(WRITE, 0, 0, 4096);
    client.put(&[1; 4096]);
    assert_eq!(client.read(8192, 4), [0; 4], "what does not need it goes on");
    let (mut other, _) = Client::open(&served.path, false);
    assert_eq!(other.read(0, 4), [0; 4]);
    other.write(4096, b"beside");
}

/// A session that is right: handshake, commands with payloads, the end.
fn session(random: &mut Random, bytes: u64) -> Vec<u8> {
    let mut out = 3u32.to_be_bytes().to_vec();
    let mut option = |kind: u32, content: &[u8]| {
        out.extend(b"IHAVEOPT");
        out.extend(kind.to_be_bytes());
        out.extend((content.len() as u32).to_be_bytes());
        out.extend(content);
    };
    if random.below(2) == 0 {
        option(8, b"");
    }
    if random.below(3) == 0 {
        option(3, b"");
    }
    option(7, b"\0\0\0\x09fulgurite\0\x01\0\x03");
    for cookie in 0..random.below(30) {
        let length = 1 + random.below(10_000);
        let offset = random.below(bytes - length);
        let command = [READ, READ, WRITE, WRITE, WRITE_ZEROES, FLUSH, TRIM][random.below(7) as usize];
        out.extend(command_bytes(command, random.below(2) as u16, cookie, offset, length as u32));
        if command == WRITE {
            out.extend(random.bytes(length as usize));
        }
    }
    if random.below(2) == 0 {
        out.extend(command_bytes(DISC, 0, 0, 0, 0));
    }
    out
}

/// Breaks it in one to four places.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        // Mostly where it hurts: in what is not payload.
        let reach = if random.below(2) == 0 { bytes.len().min(80) } else { bytes.len() };
        let at = random.below(reach.max(1) as u64) as usize;
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..(at + 1 + random.below(20) as usize).min(bytes.len()))),
            2 => {
                let copy = bytes[at..(at + 1 + random.below(40) as usize).min(bytes.len())].to_vec();
                bytes.splice(at..at, copy);
            }
            3 => {
                let (end, edge) = ((at + 4).min(bytes.len()), [0u8, 0xff, 0x7f, 0x80][random.below(4) as usize]);
                bytes[at..end].fill(edge);
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn random_breakage_is_survived() {
    const SESSIONS: u64 = 400;
    let seed = seed();
    let mut random = Random(seed);
    let (_, served) = impatient(256);
    well(&served.path);
    let before = resident_bytes();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // An honest client is connected all the time.
        let honest = scope.spawn(|| {
            let (mut client, _) = Client::open(&served.path, false);
            let mut rounds = 0u64;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(client.read(rounds % 1000, 5000).len(), 5000);
                rounds += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            rounds
        });
        for n in 0..SESSIONS {
            let mut bytes = session(&mut random, 256 << 12);
            spoil(&mut random, &mut bytes);
            let mut stream = UnixStream::connect(&served.path).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let reads = random.below(4) != 0;
            let _ = stream.write_all(&bytes);
            if reads {
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut rest = Vec::new();
                if let Err(error) = stream.read_to_end(&mut rest) {
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "session {n}, seed {seed}: {error}");
                }
                assert!(rest.starts_with(b"NBDMAGICIHAVEOPT"), "session {n}, seed {seed}");
            }
            drop(stream);
            eventually("there is room for the next one", || served.server.connected() < 12);
        }
        stop.store(true, Ordering::Relaxed);
        assert!(honest.join().unwrap() > 0);
    });
    eventually("all are gone", || served.server.connected() == 0);
    well(&served.path);
    let grown = resident_bytes().saturating_sub(before);
    // 16 clients with a buffer and replies of 8 MiB each, were they all to fill them.
    assert!(grown < 300 << 20, "{} MiB more than before, seed {seed}", grown >> 20);
    trials::figure(12, "broken sessions of NBD clients", SESSIONS);
}
