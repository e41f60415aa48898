//! The protocols of redis (RESP) and memcached (text), as far as a client needs them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// Which one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Resp,
    Memcached,
}

/// A server that does not answer for this time has hung.
const PATIENCE: Duration = Duration::from_secs(120);
/// No value is longer.
const VALUE_MAX: usize = 1 << 20;

/// A connection, with one request under way, or several where the caller sends them together.
#[derive(Debug)]
pub struct Connection {
    protocol: Protocol,
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    line: Vec<u8>,
}

impl Connection {
    /// Connects to a port of this machine.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(protocol: Protocol, port: u16) -> Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("the server takes no connection")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { protocol, stream: BufReader::new(stream), request: Vec::new(), line: Vec::new() })
    }

    /// Adds a request that sets a value. [`Connection::go`] sends it.
    pub fn put_set(&mut self, key: &str, value: &[u8]) {
        match self.protocol {
            Protocol::Resp => self.put_words(&[b"SET", key.as_bytes(), value]),
            Protocol::Memcached => {
                self.request.extend(format!("set {key} 0 0 {}\r\n", value.len()).bytes());
                self.request.extend_from_slice(value);
                self.request.extend_from_slice(b"\r\n");
            }
        }
    }
    fn put_words(&mut self, words: &[&[u8]]) {
        self.request.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            self.request.extend(format!("${}\r\n", word.len()).bytes());
            self.request.extend_from_slice(word);
            self.request.extend_from_slice(b"\r\n");
        }
    }
    /// Sends what was added.
    ///
    /// # Errors
    /// The kernel's.
    pub fn go(&mut self) -> Result<()> {
        let sent = self.stream.get_mut().write_all(&self.request);
        self.request.clear();
        sent.context("the server closed its connection")
    }
    /// Waits for the answer to a request that sets.
    ///
    /// # Errors
    /// What it answered instead; the kernel's.
    pub fn stored(&mut self) -> Result<()> {
        let expected: &[u8] = match self.protocol {
            Protocol::Resp => b"+OK",
            Protocol::Memcached => b"STORED",
        };
        self.read_line()?;
        ensure!(self.line == expected, "a value was not stored: {}", String::from_utf8_lossy(&self.line));
        Ok(())
    }

    /// Reads a value. False when there is none.
    ///
    /// # Errors
    /// What it answered instead; the kernel's.
    pub fn get(&mut self, key: &str, into: &mut Vec<u8>) -> Result<bool> {
        match self.protocol {
            Protocol::Resp => self.put_words(&[b"GET", key.as_bytes()]),
            Protocol::Memcached => self.request.extend(format!("get {key}\r\n").bytes()),
        }
        self.go()?;
        self.read_line()?;
        match self.protocol {
            Protocol::Resp => self.read_bulk(into),
            Protocol::Memcached => {
                if self.line == b"END" {
                    return Ok(false);
                }
                let line = String::from_utf8_lossy(&self.line).into_owned();
                let mut words = line.split(' ');
                let named = (words.next(), words.next(), words.next()) == (Some("VALUE"), Some(key), Some("0"));
                let len = words.next().and_then(|text| text.parse().ok()).filter(|_| named);
                self.read_bytes(len.with_context(|| format!("no value, but: {line}"))?, into)?;
                self.read_line()?;
                ensure!(self.line == b"END", "more than one value");
                Ok(true)
            }
        }
    }
    /// Asks redis for something, in words, whose answer is a line or bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<String> {
        self.put_words(words);
        self.go()?;
        self.read_line()?;
        let mut bytes = Vec::new();
        if self.line.first() == Some(&b'$') {
            self.read_bulk(&mut bytes)?;
        } else {
            bytes.clone_from(&self.line);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Bytes whose length the line tells.
    fn read_bulk(&mut self, into: &mut Vec<u8>) -> Result<bool> {
        let text = String::from_utf8_lossy(&self.line).into_owned();
        match text.strip_prefix('$').and_then(|len| len.parse::<i64>().ok()) {
            Some(-1) => Ok(false),
            Some(len) => self.read_bytes(usize::try_from(len)?, into).map(|()| true),
            None => bail!("no value, but: {text}"),
        }
    }
    fn read_bytes(&mut self, len: usize, into: &mut Vec<u8>) -> Result<()> {
        ensure!(len <= VALUE_MAX, "a value of {len} bytes");
        into.resize(len + 2, 0);
        self.stream.read_exact(into).context("the server closed its connection")?;
        ensure!(into.ends_with(b"\r\n"), "a value does not end where it should");
        into.truncate(len);
        Ok(())
    }
    fn read_line(&mut self) -> Result<()> {
        self.line.clear();
        let read = (&mut self.stream).take(VALUE_MAX as u64).read_until(b'\n', &mut self.line);
        read.context("the server does not answer")?;
        ensure!(self.line.ends_with(b"\r\n"), "the server closed its connection");
        self.line.truncate(self.line.len() - 2);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers one connection with these bytes, and returns what it was sent.
    fn served(protocol: Protocol, answer: &'static [u8], what: impl FnOnce(&mut Connection)) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(answer).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut sent = Vec::new();
            stream.read_to_end(&mut sent).unwrap();
            sent
        });
        let mut connection = Connection::open(protocol, port).unwrap();
        what(&mut connection);
        drop(connection);
        server.join().unwrap()
    }

    #[test]
    fn requests_and_answers_are_those_of_the_protocols() {
        let sent = served(Protocol::Resp, b"+OK\r\n$3\r\na\r\n\r\n$-1\r\n-ERR no\r\n", |to| {
            to.put_set("k", b"v\r");
            to.go().unwrap();
            to.stored().unwrap();
            let mut value = Vec::new();
            assert!(to.get("k", &mut value).unwrap());
            assert_eq!(value, b"a\r\n");
            assert!(!to.get("k", &mut value).unwrap());
            assert!(to.get("k", &mut value).unwrap_err().to_string().contains("-ERR no"));
        });
        assert!(sent.starts_with(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nv\r\r\n*2\r\n$3\r\nGET\r\n"));
        let answer = b"STORED\r\nVALUE k 0 2\r\nab\r\nEND\r\nEND\r\nVALUE x 0 2\r\nab\r\nEND\r\n";
        let sent = served(Protocol::Memcached, answer, |to| {
            to.put_set("k", b"ab");
            to.go().unwrap();
            to.stored().unwrap();
            let mut value = Vec::new();
            assert!(to.get("k", &mut value).unwrap());
            assert_eq!(value, b"ab");
            assert!(!to.get("k", &mut value).unwrap());
            assert!(to.get("k", &mut value).is_err(), "another key's value");
        });
        assert!(sent.starts_with(b"set k 0 0 2\r\nab\r\nget k\r\n"));
    }
    #[test]
    fn a_server_that_goes_away_is_an_error() {
        served(Protocol::Resp, b"$9\r\nab", |to| {
            assert!(to.get("k", &mut Vec::new()).is_err());
        });
    }
}
