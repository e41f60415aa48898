//! A key-value service whose values have outgrown DRAM.
//!
//! Speaks lines over TCP on loopback (`SET key value`, `GET key`, `STATS`, `QUIT`); each request is
//! a job on a fiber, so a value that is in flash delays its own client and nobody else.
//!
//! ```text
//! cargo run --release -p fulgurite --example key_value            # until stopped, on 127.0.0.1:7070
//! cargo run --release -p fulgurite --example key_value -- --once  # with its own client, then ends
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use fulgurite::{AccessError, Fulgurite, HashMap, Medium, latches::VersionLatch};

/// A value of up to 247 bytes with its length in front.
const VALUE_BYTES: usize = 248;
type Map = HashMap<u64, [u8; VALUE_BYTES], VersionLatch>;

fn pack(text: &str) -> Option<[u8; VALUE_BYTES]> {
    let mut value = [0; VALUE_BYTES];
    value[0] = u8::try_from(text.len()).ok().filter(|&n| usize::from(n) < VALUE_BYTES)?;
    value[1..=text.len()].copy_from_slice(text.as_bytes());
    Some(value)
}

fn unpack(value: &[u8; VALUE_BYTES]) -> String {
    String::from_utf8_lossy(&value[1..=usize::from(value[0])]).into_owned()
}

/// Answers one line. Keys are numbers, to keep the example short.
fn answer(memory: &Fulgurite, map: &Arc<Map>, line: &str) -> Result<String, AccessError> {
    let mut words = line.splitn(3, ' ');
    let map = map.clone();
    match (words.next(), words.next().map(str::parse::<u64>), words.next()) {
        (Some("SET"), Some(Ok(key)), Some(text)) => match pack(text) {
            Some(value) => memory.run(move |m| map.insert(m, &key, value)).map(|_| "OK".to_owned()),
            None => Ok(format!("ERROR a value has at most {} bytes", VALUE_BYTES - 1)),
        },
        (Some("GET"), Some(Ok(key)), None) => {
            memory.run(move |m| map.get(m, &key)).map(|v| v.map_or_else(|| "NONE".to_owned(), |v| unpack(&v)))
        }
        (Some("STATS"), None, None) => Ok(memory.statistics().prometheus()),
        _ => Ok("ERROR say SET <number> <text>, GET <number>, STATS or QUIT".to_owned()),
    }
}

fn serve(memory: &Fulgurite, map: &Arc<Map>, stream: TcpStream) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if line == "QUIT" {
            break;
        }
        // An I/O error of the flash is an answer like any other; the service goes on.
        let reply = answer(memory, map, &line).unwrap_or_else(|error| format!("ERROR {error}"));
        writeln!(out, "{reply}")?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Arc::new(Fulgurite::builder(Medium::emulated(1 << 30)).dram("32M").start()?);
    let map = memory.hash_map::<u64, [u8; VALUE_BYTES]>(1_000_000)?;
    let once = std::env::args().any(|a| a == "--once");
    let listener = TcpListener::bind(if once { "127.0.0.1:0" } else { "127.0.0.1:7070" })?;
    println!("listening on {}", listener.local_addr()?);
    let client = once.then(|| listener.local_addr()).transpose()?.map(|at| {
        std::thread::spawn(move || -> std::io::Result<()> {
            let stream = TcpStream::connect(at)?;
            let (mut out, mut lines) = (stream.try_clone()?, BufReader::new(stream).lines());
            for ask in ["SET 7 flash that passes for DRAM", "GET 7", "GET 8", "SET 9", "QUIT"] {
                writeln!(out, "{ask}")?;
                if let Some(reply) = lines.next() {
                    println!("{ask} -> {}", reply?);
                }
            }
            Ok(())
        })
    });
    for stream in listener.incoming() {
        let (memory, map, stream) = (memory.clone(), map.clone(), stream?);
        let connection = std::thread::spawn(move || serve(&memory, &map, stream));
        if once {
            connection.join().expect("a connection does not panic")?;
            break;
        }
    }
    if let Some(client) = client {
        client.join().expect("the client does not panic")?;
    }
    Ok(())
}
