//! Goal: the server speaks fixed newstyle NBD as `doc/proto.md` has it: the handshake, what the
//! export says it can do, each command and its errors.
//! Method: a client that sends the bytes of the document and compares what comes back byte by byte,
//! over plain memory.

use crate::common;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use common::*;
use fulgurite_flash::{EmulatedConfig, EmulatedFlash, Fault, FaultPlan, FaultyFlash, Flash, FlashError, Op, When};
use fulgurite_nbd::{NbdAddress, NbdConfig, NbdError, NbdServer};

#[test]
fn the_export_says_what_it_can_do() {
    let served = serve(memory(64), |_| {});
    let (_, export) = Client::open(&served.path, false);
    // HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, MULTI_CONN.
    assert_eq!(export, Export { bytes: 64 << 12, flags: 0b1_0110_1101, block_sizes: [1, 4096, 4 << 20] });
    let (_, export) = Client::open(&served.path, true);
    assert_eq!(export.flags, 0b1_1110_1101, "DF with structured replies");
    let read_only = serve(memory(64), |c| c.read_only = true);
    let (mut client, export) = Client::open(&read_only.path, false);
    assert_eq!(export.flags & 2, 2);
    assert_eq!(client.call(WRITE, 0, 0, 1, b"x").0, 1, "EPERM");
    assert_eq!(client.call(WRITE_ZEROES, 0, 0, 1, b"").0, 1);
    assert_eq!(client.call(TRIM, 0, 0, 4096, b"").0, 1);
    assert_eq!(client.read(0, 4), [0; 4]);
}

#[test]
fn options_are_answered() {
    let served = serve(memory(64), |c| c.export = "pool".into());
    let mut client = Client::greet(&served.path);
    client.put(&3u32.to_be_bytes());
    client.option(3, b"");
    assert_eq!(client.option_reply(), (3, 2, b"\0\0\0\x04pool".to_vec()));
    assert_eq!(client.option_reply(), (3, 1, vec![]));
    client.option(3, b"x");
    assert_eq!(client.option_reply().1, 0x8000_0003, "LIST has no content");
    for unknown in [0, 5, 9, 10, 11, 77, u32::MAX] {
        client.option(unknown, b"whatever");
        assert_eq!(client.option_reply(), (unknown, 0x8000_0001, vec![]), "unsupported, and the handshake goes on");
    }
    client.option(5, &vec![0; 9000]);
    assert_eq!(client.option_reply().1, 0x8000_0009, "too big");
    client.option(6, b"\0\0\0\x03who\0\0");
    assert_eq!(client.option_reply().1, 0x8000_0006, "unknown export");
    for askew in
        [&b""[..], b"\0\0\0\x09pool\0\0", b"\0\0\0\x04pool\0\x01", b"\0\0\0\x04pool\0\0!", b"\xff\xff\xff\xff\0\0"]
    {
        client.option(7, askew);
        assert_eq!(client.option_reply().1, 0x8000_0003, "{askew:?}");
    }
    // INFO with name and description: export, block sizes, name, description, acknowledged, and
    // then more options.
    client.option(6, b"\0\0\0\x04pool\0\x02\0\x01\0\x02");
    let replies: Vec<_> = (0..5).map(|_| client.option_reply()).collect();
    assert_eq!(replies.iter().map(|r| r.1).collect::<Vec<_>>(), [3, 3, 3, 3, 1]);
    assert_eq!(replies[2].2, b"\0\x01pool");
    assert!(replies[3].2.starts_with(b"\0\x02memory"));
    client.option(2, b"");
    assert_eq!(client.option_reply(), (2, 1, vec![]));
    assert!(client.hung_up(), "ABORT ends the connection");
}

#[test]
fn the_old_way_to_choose_an_export_works() {
    let served = serve(memory(64), |_| {});
    for (flags, zeroes) in [(3u32, 0), (1, 124), (0, 124)] {
        let mut client = Client::greet(&served.path);
        client.put(&flags.to_be_bytes());
        client.option(1, b"");
        assert_eq!(client.take(8), (64u64 << 12).to_be_bytes());
        assert_eq!(client.take(2), [1, 0b0110_1101]);
        assert_eq!(client.take(zeroes), vec![0; zeroes]);
        client.write(5, b"hello");
        assert_eq!(client.read(3, 9), b"\0\0hello\0\0");
        client.write(5, &[0; 5]);
    }
    let mut client = Client::greet(&served.path);
    client.put(&3u32.to_be_bytes());
    client.option(1, b"nobody");
    assert!(client.hung_up(), "EXPORT_NAME has no other way to say no");
}

#[test]
fn commands_do_what_they_say() {
    let flash = memory(64);
    let served = serve(flash.clone(), |_| {});
    for structured in [false, true] {
        let (mut client, export) = Client::open(&served.path, structured);
        let data: Vec<u8> = (0..20_000u32).map(|i| (i * 7 + 1) as u8).collect();
        client.write(4000, &data);
        assert_eq!(client.read(4000, 20_000), data);
        assert_eq!(client.read(3999, 1), [0]);
        assert_eq!(client.call(WRITE_ZEROES, 2, 5000, 10_000, b"").0, 0, "no hole: none is ever made");
        let mut expected = data;
        expected[1000..11_000].fill(0);
        assert_eq!(client.read(4000, 20_000), expected);
        let flushes = flash.counters().flushes;
        assert_eq!(client.call(FLUSH, 0, 0, 0, b"").0, 0);
        assert_eq!(client.call(WRITE, FUA, 0, 3, b"abc").0, 0);
        assert_eq!(client.call(WRITE_ZEROES, FUA, 0, 3, b"").0, 0);
        assert_eq!(flash.counters().flushes, flushes + 3);
        assert_eq!(client.call(WRITE_ZEROES, 0, 0, export.bytes as u32, b"").0, 0);
        assert_eq!(client.read(0, export.bytes as u32), vec![0; export.bytes as usize]);
        client.send(DISC, 0, 0, 0);
        assert!(client.hung_up());
    }
}

#[test]
fn what_is_wrong_is_an_error_and_the_connection_goes_on() {
    let served = serve(memory(64), |c| (c.request_bytes_max, c.buffer_bytes) = (64 << 10, 128 << 10));
    for structured in [false, true] {
        let (mut client, export) = Client::open(&served.path, structured);
        let (einval, enospc) = (22, 28);
        for (command, flags, offset, length, error) in [
            (READ, 0, export.bytes, 1, einval),
            (READ, 0, export.bytes - 1, 2, einval),
            (READ, 0, u64::MAX, u32::MAX, einval),
            (READ, 0, u64::MAX - 10, 100, einval),
            (READ, 0, 0, 0, einval),
            (READ, 0, 0, (64 << 10) + 1, einval),
            (READ, 1 << 15, 0, 1, einval),
            (WRITE, 0, export.bytes - 1, 2, enospc),
            (WRITE, 0, u64::MAX, 70_000, einval),
            (WRITE, 4, 0, 3, einval),
            (WRITE, 0, 0, 0, einval),
            (WRITE_ZEROES, 0, 1, export.bytes as u32, enospc),
            (WRITE_ZEROES, 0, 0, u32::MAX, enospc),
            (WRITE_ZEROES, 1 << 4, 0, 1, einval), // FAST_ZERO
            (TRIM, 1 << 4, 0, 4096, einval),
            (TRIM, 0, 0, 0, einval),
            (TRIM, 0, 1, export.bytes as u32, enospc),
            (5, 0, 0, 0, einval),
            (7, 0, 0, 0, einval),
            (u16::MAX, 0, 0, 0, einval),
        ] {
            let payload = vec![7; if command == WRITE { length as usize } else { 0 }];
            assert_eq!(client.call(command, flags, offset, length, &payload).0, error, "{command} {offset} {length}");
        }
        assert_eq!(client.read(0, 64 << 10), vec![0; 64 << 10], "nothing of it was written");
    }
}

/// Only what is wholly in the range is given up. Where the flash behind does not heed trims, they
/// are not offered, and are refused.
#[test]
fn what_is_trimmed_is_given_up_and_its_neighbours_stay() {
    let flash = memory(64);
    let served = serve(flash.clone(), |c| (c.request_bytes_max, c.buffer_bytes) = (64 << 10, 128 << 10));
    let (mut client, export) = Client::open(&served.path, false);
    let data: Vec<u8> = (0..64u32 << 10).map(|i| (i % 255) as u8 + 1).collect();
    client.write(0, &data);
    let mut expected = data.clone();
    for (offset, length) in [(4096, 8192), (20_481, 4095 + 4096), (40_000, 100), (49_152, 1)] {
        assert_eq!(client.call(TRIM, 0, offset, length, b"").0, 0);
    }
    expected[4096..12_288].fill(0);
    expected[24_576..28_672].fill(0);
    assert_eq!(client.read(0, 64 << 10), expected);
    let flushes = flash.counters().flushes;
    // Longer than any other request may be. Durable before the reply.
    assert_eq!(client.call(TRIM, FUA, 0, export.bytes as u32, b"").0, 0);
    assert_eq!(flash.counters().flushes, flushes + 1);
    assert_eq!(client.read(0, 64 << 10), vec![0; 64 << 10]);
    client.write(4096, b"again");
    assert_eq!(client.read(4096, 6), b"again\0");
    let deaf = serve(Arc::new(EmulatedFlash::new(EmulatedConfig::new(64)).unwrap()), |_| {});
    let (mut client, export) = Client::open(&deaf.path, false);
    assert_eq!((export.flags & 1 << 5, client.call(TRIM, 0, 0, 4096, b"").0), (0, 95));
}

#[test]
fn replies_come_as_they_are_done() {
    // A write that takes half a second on the medium, before a read of a tenth of a millisecond.
    let slow = std::time::Duration::from_millis(500);
    let config = EmulatedConfig { write_latency: slow, ..EmulatedConfig::new(64) };
    let served = serve(Arc::new(EmulatedFlash::new(config).unwrap()), |_| {});
    let (mut client, _) = Client::open(&served.path, true);
    let write = client.send(WRITE, 0, 0, 4096);
    client.put(&[1; 4096]);
    let read = client.send(READ, 0, 8192, 4096);
    let length = |cookie| if cookie == read { 4096 } else { 0 };
    let order = [client.reply(length).0, client.reply(length).0];
    assert_eq!(order, [read, write]);
}

#[test]
fn errors_of_the_flash_are_reported() {
    let plan = |op, error| FaultPlan::rule(Some(op), When::Nth(1), Fault::Fails(error));
    for (op, command, error, reported) in [
        (Op::Read, READ, FlashError::Io(5), 5),
        (Op::Read, READ, FlashError::Corrupt, 5),
        (Op::Write, WRITE, FlashError::NoSpace, 28),
        (Op::Write, WRITE_ZEROES, FlashError::Io(5), 5),
        (Op::Flush, FLUSH, FlashError::Io(5), 5),
    ] {
        for structured in [false, true] {
            let flash = FaultyFlash::new(fulgurite_flash::MemoryFlash::new(64).unwrap(), plan(op, error));
            let served = serve(Arc::new(flash), |_| {});
            let (mut client, _) = Client::open(&served.path, structured);
            let payload = vec![1; if command == WRITE { 9000 } else { 0 }];
            let length = if command == FLUSH { 0 } else { 9000 };
            assert_eq!(client.call(command, 0, 100, length, &payload).0, reported, "{op:?}");
            assert_eq!(served.server.counters().errors, 1);
            // The next one is not in the plan: the command was given up as a whole, and left
            // nothing behind.
            let (again, _) = client.call(READ, 0, 100, 9000, b"");
            assert_eq!(again, 0);
            assert_eq!(client.call(WRITE, 0, 100, 9000, &[2; 9000]).0, if op == Op::Flush { 5 } else { 0 });
        }
    }
    // FUA: the write went well, the flush did not, and only the whole counts.
    let flash = FaultyFlash::new(fulgurite_flash::MemoryFlash::new(64).unwrap(), plan(Op::Flush, FlashError::Io(5)));
    let served = serve(Arc::new(flash), |_| {});
    let (mut client, _) = Client::open(&served.path, true);
    assert_eq!(client.call(WRITE, FUA, 0, 3, b"abc").0, 5);
}

#[test]
fn a_socket_is_its_owners_and_is_removed_with_the_server() {
    let served = serve(memory(64), |_| {});
    let mode = std::fs::metadata(&served.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = NbdConfig::new(NbdAddress::Unix(served.path.clone()));
    assert!(matches!(again.address.check(), Err(NbdError::InUse { .. })));
    assert!(matches!(NbdServer::start(memory(1), again.clone()), Err(NbdError::InUse { .. })));
    let (mut client, _) = Client::open(&served.path, false);
    assert_eq!(client.read(0, 1), [0], "who asked harmed nobody");
    let path = served.path.clone();
    let Served { server, .. } = served;
    // (The directory is gone with `Served`, the socket first, with the server.)
    drop(server);
    assert!(!path.exists());
    assert!(client.hung_up());
}

#[test]
fn what_is_in_the_way_stays() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let start = |name: &str| NbdServer::start(memory(1), NbdConfig::new(NbdAddress::Unix(at(name))));
    std::fs::write(at("file"), "precious").unwrap();
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    std::os::unix::fs::symlink(at("nothing"), at("dangling")).unwrap();
    assert!(matches!(start("file"), Err(NbdError::NotASocket { .. })));
    assert!(matches!(start("link"), Err(NbdError::Symlink { .. })));
    assert!(matches!(start("dangling"), Err(NbdError::Symlink { .. })));
    assert!(matches!(start("no/such/directory"), Err(NbdError::Listen { .. })));
    assert!(matches!(start(&"x".repeat(200)), Err(NbdError::Listen { .. })), "longer than an address can be");
    assert_eq!(std::fs::read(at("file")).unwrap(), b"precious");
    assert!(!at("nothing").exists());
    // Another user's is left alone, also by root, which could remove it.
    drop(std::os::unix::net::UnixListener::bind(at("foreign")).unwrap());
    if std::os::unix::fs::chown(at("foreign"), Some(54321), None).is_ok() {
        assert!(matches!(start("foreign"), Err(NbdError::Foreign { uid: 54321, .. })));
        assert!(at("foreign").exists());
    } else {
        println!("only root can give a file away, so that another user's socket is not tested here");
    }
    // What a dead server left is no obstacle.
    drop(std::os::unix::net::UnixListener::bind(at("stale")).unwrap());
    assert!(at("stale").exists());
    let server = start("stale").unwrap();
    Client::open(&at("stale"), false);
    drop(server);
    assert!(!at("stale").exists());
}

#[test]
fn loopback_and_nothing_else() {
    let config = NbdConfig::new("127.0.0.1:0".parse().unwrap());
    let server = NbdServer::start(memory(16), config).unwrap();
    let NbdAddress::Tcp(address) = *server.address() else { panic!("not TCP") };
    assert_ne!(address.port(), 0);
    assert_eq!(server.uri(), format!("nbd://127.0.0.1:{}/fulgurite", address.port()));
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let mut magic = [0; 8];
    std::io::Read::read_exact(&mut stream, &mut magic).unwrap();
    assert_eq!(&magic, b"NBDMAGIC");
    let far = NbdConfig::new(NbdAddress::Tcp("0.0.0.0:0".parse().unwrap()));
    assert!(matches!(NbdServer::start(memory(1), far), Err(NbdError::NotLoopback { .. })));
    let taken = NbdConfig::new(NbdAddress::Tcp(address));
    assert!(matches!(NbdServer::start(memory(1), taken), Err(NbdError::InUse { .. })));
}
