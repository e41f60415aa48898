//! Goal: the clients that people have can use the server: libnbd's `nbdinfo` and `nbdcopy`, qemu's
//! `qemu-io`, `qemu-img` and `qemu-nbd`, fio by its own engine, and what of `nbd-client` needs no
//! kernel.
//! Method: each is run against a server over a Unix socket. What it wrote is compared with the
//! medium, what it read with what was written. Where a client is not installed, the test says so
//! and ends.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::*;

/// Runs a client. `None`, and a sentence, where it is not installed.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(args).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: no {program}");
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {}\n{text}\n{said}", output.status);
    Some(text)
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn nbdinfo_reads_what_the_export_is() {
    let served = serve(memory(256), |_| {});
    let Some(text) = run("nbdinfo", &[&served.server.uri()]) else { return };
    for expected in [
        "newstyle-fixed without TLS, using structured packets",
        "export=\"fulgurite\"",
        "export-size: 1048576",
        "can_fua: true",
        "can_flush: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "is_read_only: false",
        "block_size_minimum: 1",
        "block_size_preferred: 4096",
        "block_size_maximum: 4194304",
    ] {
        assert!(text.contains(expected), "no \"{expected}\" in\n{text}");
    }
    let list = run("nbdinfo", &["--list", &served.server.uri()]).unwrap();
    assert!(list.contains("export=\"fulgurite\""), "{list}");
}

#[test]
fn nbdcopy_copies_there_and_back() {
    let seed = seed();
    let (directory, bytes) = (tempfile::tempdir().unwrap(), 24 << 20);
    let served = serve(memory(bytes as u32 >> 12), |_| {});
    let [there, back] = ["there", "back"].map(|n| directory.path().join(n));
    let mut data = Random(seed).bytes(bytes);
    // A hole, which is written as zeroes, and an end that is no whole subpage.
    data[3 << 20..9 << 20].fill(0);
    data.truncate(bytes - 1000);
    std::fs::write(&there, &data).unwrap();
    let uri = served.server.uri();
    if run("nbdcopy", &["--flush", name(&there), &uri]).is_none() {
        return;
    }
    // As many connections as it likes, since the export says that it may.
    run("nbdcopy", &["--threads=4", "--connections=4", "--requests=64", &uri, name(&back)]);
    let copied = std::fs::read(&back).unwrap();
    assert_eq!(copied.len(), bytes);
    assert!(copied[..data.len()] == data, "seed {seed}");
    assert!(served.server.counters().clients > 4);
    assert_eq!((served.server.counters().broken, served.server.counters().errors), (0, 0));
}

#[test]
fn qemu_io_reads_writes_and_zeroes() {
    let served = serve(memory(1024), |_| {});
    let uri = served.server.uri();
    let commands = [
        "write -P 0x11 0 65536",
        "write -P 0x22 512 512",
        "write -P 0x33 -f 100352 3072",
        "write -z 8192 20480",
        "flush",
        "read -P 0x11 0 512",
        "read -P 0x22 512 512",
        "read -P 0x11 1024 7168",
        "read -P 0 8192 20480",
        "read -P 0x33 100352 3072",
        "aio_write -P 0x44 1M 1M",
        "aio_read -P 0x11 28672 4096",
        "aio_flush",
        "read -P 0x44 1M 1M",
    ];
    let mut args = vec!["-f", "raw"];
    for command in &commands {
        args.extend(["-c", command]);
    }
    args.push(&uri);
    let Some(text) = run("qemu-io", &args) else { return };
    assert!(!text.contains("Pattern verification failed"), "{text}");
    // What it says of a past-the-end write is an error of its own. The server is not even asked.
    let (mut client, _) = Client::open(&served.path, false);
    assert_eq!(client.read(511, 2), [0x11, 0x22]);
    assert_eq!(client.read(2 << 20, 1), [0]);
}

#[test]
fn qemu_img_converts_and_compares() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let served = serve(memory(2048), |_| {});
    let image = directory.path().join("image");
    std::fs::write(&image, Random(seed).bytes(8 << 20)).unwrap();
    let (image, uri) = (name(&image), served.server.uri());
    if run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &uri]).is_none() {
        return;
    }
    let text = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &uri]).unwrap();
    assert!(text.contains("identical"), "{text}");
}

#[test]
fn over_tcp_too() {
    let config = fulgurite_nbd::NbdConfig::new("localhost:0".parse().unwrap());
    let server = fulgurite_nbd::NbdServer::start(memory(64), config).unwrap();
    let Some(text) = run("nbdinfo", &["--size", &server.uri()]) else { return };
    assert_eq!(text.trim(), (64 << 12).to_string());
}

/// fio's engine of this name is libnbd: no kernel is between. What it wrote it reads back and
/// verifies, several requests at a time.
#[test]
fn fio_writes_and_verifies() {
    let served = serve(memory(1024), |_| {});
    let Some(engines) = run("fio", &["--enghelp"]) else { return };
    if !engines.lines().any(|line| line.trim() == "nbd") {
        return eprintln!("SKIPPED: a fio without its engine nbd");
    }
    let uri = format!("--uri={}", served.server.uri());
    let job = [
        "--name=verified",
        "--ioengine=nbd",
        uri.as_str(),
        "--rw=randwrite",
        "--bsrange=512-64k",
        "--blockalign=512",
        "--size=4M",
        "--iodepth=16",
        "--verify=crc32c",
        "--do_verify=1",
        "--verify_fatal=1",
        "--fsync=32",
        "--thread",
    ];
    run("fio", &job);
    let counters = served.server.counters();
    assert!(counters.written_bytes >= 2 << 20 && counters.read_bytes >= 2 << 20, "{counters:?}");
    assert_eq!((counters.broken, counters.errors), (0, 0));
}

#[test]
fn qemu_nbd_lists_the_export() {
    let served = serve(memory(256), |_| {});
    let Some(text) = run("qemu-nbd", &["--list", "-k", name(&served.path)]) else { return };
    assert!(text.contains("fulgurite") && text.contains("1048576"), "{text}");
}

/// To attach a device takes the kernel's driver. To ask for the names of exports does not.
#[test]
fn nbd_client_lists_the_export() {
    let config = fulgurite_nbd::NbdConfig::new("localhost:0".parse().unwrap());
    let server = fulgurite_nbd::NbdServer::start(memory(64), config).unwrap();
    let uri = server.uri();
    let address = uri.strip_prefix("nbd://").and_then(|rest| rest.split('/').next()).unwrap();
    let (host, port) = address.rsplit_once(':').unwrap();
    let host = host.trim_matches(['[', ']']);
    let Some(text) = run("nbd-client", &["-l", host, port]) else { return };
    assert!(text.contains("fulgurite"), "{text}");
}
