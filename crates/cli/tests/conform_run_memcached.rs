//! Goal: memcached, with its threads and its slabs, holds four times its cap under `fulgurite run`,
//! and answers as it must. Method: several connections at a time set values that are a function of
//! their key and round, in memcached's text protocol, change some, and read all. It must neither
//! evict nor forget one. What is not installed is said.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fulgurite_testkit::{Random, share};

use crate::runs::{TIMES, command, peak_of_summary};

const CONNECTIONS: u64 = 3;
const VALUE: usize = 4000;
/// MiB of its cap.
const CAP: u64 = 14;

fn value(key: u64, round: u64) -> Vec<u8> {
    let seed = (key << 20 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..VALUE as u64).map(|i| b'a' + ((seed.rotate_left((i % 59) as u32) ^ i) % 26) as u8).collect()
}

fn set(to: &mut BufReader<TcpStream>, key: u64, round: u64) {
    let mut bytes = format!("set key:{key} 0 0 {VALUE}\r\n").into_bytes();
    bytes.extend(value(key, round));
    bytes.extend(b"\r\n");
    to.get_mut().write_all(&bytes).unwrap();
    assert_eq!(line(to), "STORED", "key {key}");
}

fn line(from: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn get(from: &mut BufReader<TcpStream>, key: u64) -> Vec<u8> {
    from.get_mut().write_all(format!("get key:{key}\r\n").as_bytes()).unwrap();
    assert_eq!(line(from), format!("VALUE key:{key} 0 {VALUE}"));
    let mut bytes = vec![0; VALUE + 2];
    from.read_exact(&mut bytes).unwrap();
    assert_eq!(line(from), "END");
    bytes.truncate(VALUE);
    bytes
}

fn connect(child: &mut Child, port: u16) -> Option<BufReader<TcpStream>> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) && child.try_wait().unwrap().is_none() {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            return Some(BufReader::new(stream));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

#[test]
fn memcached_holds_four_times_its_cap() {
    if Command::new("memcached").arg("-V").output().is_err() {
        println!("SKIPPED: no memcached; apt-get install memcached");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let dram = format!("{CAP}M");
    let words = ["--dram", &dram, "--flash", directory.path().to_str().unwrap(), "--flash-size", "512M", "--"];
    let user = if rustix::process::getuid().is_root() { &["-u", "root"][..] } else { &[] };
    let program = ["memcached", "-A", "-l", "127.0.0.1", "-U", "0", "-t", "3", "-m", "400", "-p", &port];
    let mut command = command(None, &[&words[..], &program, user].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let port = port.parse().unwrap();
    let Some(mut first) = connect(&mut child, port) else {
        let _ = child.kill();
        let logged = child.wait_with_output().unwrap();
        panic!("{}", String::from_utf8_lossy(&logged.stderr));
    };
    let keys = share(40_000).max(16_000);
    std::thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            scope.spawn(move || {
                let mut stream = BufReader::new(stream);
                let mut random = Random::seeded("memcached", connection);
                let mine = || (0..keys).filter(|key| key % CONNECTIONS == connection);
                let mut rounds = std::collections::HashMap::new();
                mine().for_each(|key| set(&mut stream, key, 0));
                for round in 1..keys / 10 {
                    let key = random.below(keys) / CONNECTIONS * CONNECTIONS + connection;
                    if key < keys {
                        let before = rounds.insert(key, round).unwrap_or(0);
                        assert!(get(&mut stream, key) == value(key, before), "key {key}");
                        set(&mut stream, key, round);
                    }
                }
                for key in mine() {
                    assert!(get(&mut stream, key) == value(key, rounds.get(&key).copied().unwrap_or(0)), "key {key}");
                }
            });
        }
    });
    first.get_mut().write_all(b"stats\r\n").unwrap();
    let stats: Vec<String> = std::iter::repeat_with(|| line(&mut first)).take_while(|line| line != "END").collect();
    let stat = |name: &str| {
        let line = stats.iter().find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("{name}: {stats:?}"))
    };
    assert_eq!((stat("evictions"), stat("curr_items")), (0, keys), "{stats:?}");
    assert!(stat("bytes") >= TIMES * (CAP << 20), "{CAP} MiB are the cap: {stats:?}");
    first.get_mut().write_all(b"shutdown\r\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    let logged = String::from_utf8_lossy(&ended.stderr);
    assert!(peak_of_summary(&logged) <= CAP << 20, "{logged}");
    println!("{logged}");
}
