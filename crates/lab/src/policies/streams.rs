//! Streams of subpages: block traces, Zipf keys, and what the workloads touch.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use fulgurite_memory::{
    AccessError, Address, NoLatch, PAGE_BYTES, PlainMemory, PlainPin, RawMemory, Region, View, ViewMut,
};
use fulgurite_sys::Backed;
use fulgurite_workloads::{Params, Random, Site, Visitor, Workload, ZipfKeys};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::Interrupt;

#[derive(Clone, Debug)]
pub struct Stream {
    /// The trace, or the workload and the exponent of its keys.
    pub name: String,
    /// Subpages, in order; never the same twice in a row where the stream was recorded here.
    pub keys: Vec<u64>,
    /// Accesses behind the keys: adjacent repetitions are one key, as they always hit.
    pub accesses: u64,
}

impl Stream {
    /// The keys, until the program is interrupted, which makes their results void.
    pub fn keys_until(&self, interrupt: &Interrupt) -> impl Iterator<Item = u64> {
        self.keys.iter().copied().take_while(|_| !interrupt.asked())
    }
}

/// Trace files in a directory, by name.
pub fn traces(directory: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(Vec::new()) };
    let name = |path: &PathBuf| {
        path.file_name().is_some_and(|n| {
            let name = n.to_string_lossy();
            name.ends_with(".lis") || name.ends_with(".lis.zst")
        })
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(name).collect();
    paths.sort();
    Ok(paths)
}

/// What `zstd` has compressed, uncompressed as it is read: frames, one after the other, each with
/// the checksum that it may end with.
struct Zstandard<R: BufRead> {
    reader: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Zstandard<R> {
    fn new(reader: R) -> Zstandard<R> {
        Zstandard { reader, decoder: FrameDecoder::new(), in_frame: false }
    }
    /// Begins the next frame. Returns whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.reader.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.reader) {
                Ok(()) => return Ok(true),
                // What other programs keep in such a file.
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut (&mut self.reader).take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstandard<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 {
            if !self.in_frame {
                self.in_frame = self.begin()?;
                if !self.in_frame {
                    return Ok(0);
                }
            } else if self.decoder.is_finished() {
                let kept = self.decoder.get_checksum_from_data();
                if kept.is_some() && kept != self.decoder.get_calculated_checksum() {
                    return Err(io::Error::other("it is damaged: a checksum does not agree with the data"));
                }
                self.in_frame = false;
            } else {
                let strategy = BlockDecodingStrategy::UptoBytes(into.len().max(1));
                self.decoder.decode_blocks(&mut self.reader, strategy).map_err(io::Error::other)?;
            }
        }
        self.decoder.read(into)
    }
}

/// Reads a trace: lines of `first-page count 0 sequence`, plain or compressed.
pub fn read_trace(path: &Path, limit: usize) -> Result<Stream> {
    let what = || format!("the trace {} cannot be read", path.display());
    let file = File::open(path).with_context(what)?;
    let reader: Box<dyn BufRead> = if path.extension().is_some_and(|e| e == "zst") {
        Box::new(BufReader::new(Zstandard::new(BufReader::new(file))))
    } else {
        Box::new(BufReader::new(file))
    };
    let mut keys = Vec::new();
    for (number, line) in reader.lines().enumerate() {
        let line = line.with_context(what)?;
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        match (words.next(), words.next()) {
            (None, _) => continue,
            (Some(Ok(first)), Some(Ok(count))) if count <= 1 << 20 => keys.extend(first..first.saturating_add(count)),
            _ => bad_input!("{}: line {} is not \"first-page count 0 sequence\"", path.display(), number + 1),
        }
        if keys.len() >= limit {
            break;
        }
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(".zst").trim_end_matches(".lis").to_owned();
    Ok(Stream { name, accesses: keys.len() as u64, keys })
}

pub fn zipf_stream(exponent: f64, count: u64, length: usize, seed: u64) -> Result<Stream> {
    let keys = ZipfKeys::new("zipf", count, exponent)?;
    let mut random = Random::new(seed, 0);
    let keys: Vec<u64> = (0..length).map(|_| keys.rank(&mut random)).collect();
    Ok(Stream { name: format!("zipf-{exponent}"), accesses: length as u64, keys })
}

/// Plain memory that notes which subpages are touched.
struct Recorder {
    memory: PlainMemory,
    keys: Vec<u64>,
    accesses: u64,
}

impl Recorder {
    fn note(&mut self, at: Address) {
        self.accesses += 1;
        let subpage = at.linear() >> 12;
        if self.keys.last() != Some(&subpage) {
            self.keys.push(subpage);
        }
    }
}

impl RawMemory for Recorder {
    type Pin = PlainPin;
    type Section = ();
    type Inner = Self;
    fn identity(&self) -> fulgurite_memory::Identity<'_> {
        self.memory.identity()
    }

    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.note(at);
        self.memory.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.note(at);
        self.memory.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<PlainPin, AccessError> {
        self.note(at);
        self.memory.pin(at)
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.memory.park(word, expected)
    }
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
}

struct Record<'r> {
    params: Params,
    zipf: &'r [f64],
    length: usize,
}

impl Visitor for Record<'_> {
    type Output = Result<Vec<Stream>>;
    fn visit<W: Workload>(self) -> Self::Output {
        let region = Region::new(Address::from_linear(0), self.params.bytes.next_multiple_of(PAGE_BYTES as u64));
        let mut streams = Vec::new();
        for exponent in self.zipf {
            // Fresh data each time: requests change it.
            let mut memory = PlainMemory::new(Backed::HugePages)?;
            let params = Params { zipf: *exponent, ..self.params.clone() };
            W::build(&mut memory, Site::new(region, &params, &mut |_| ()))?;
            let workload = W::open(&mut memory, region, &params)?;
            let keys = Vec::with_capacity(self.length);
            let mut recorder = Recorder { memory, keys, accesses: 0 };
            // A request within the last one's subpage adds nothing, so their number is bounded.
            let mut requests = 0..self.length as u64;
            while let Some(number) = requests.next().filter(|_| recorder.keys.len() < self.length) {
                workload.execute(&mut recorder, &workload.request(self.params.seed, number))?;
            }
            let Recorder { keys, accesses, .. } = recorder;
            streams.push(Stream { name: format!("{} {exponent}", W::NAME), keys, accesses });
        }
        Ok(streams)
    }
}

/// A workload's subpages, for each exponent of its keys: `length`, or as many requests.
pub fn record(name: &str, params: Params, zipf: &[f64], length: usize) -> Result<Vec<Stream>> {
    fulgurite_workloads::dispatch::<NoLatch, _>(name, Record { params, zipf, length })?
        .with_context(|| format!("{name} could not be recorded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    #[test]
    fn traces_are_read_plain_and_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let text = "100 3 0 1\n7 1 0 2\n\n";
        std::fs::write(directory.path().join("b.lis"), text).unwrap();
        let (first, second) = text.split_at(9);
        let [first, second] = [first, second].map(|part| compress_to_vec(part.as_bytes(), CompressionLevel::Fastest));
        let skippable = [&0x184d_2a50_u32.to_le_bytes()[..], &3_u32.to_le_bytes(), b"abc"].concat();
        let whole = [&skippable[..], &first, &second].concat();
        std::fs::write(directory.path().join("a.lis.zst"), &whole).unwrap();
        let paths = traces(directory.path()).unwrap();
        assert_eq!(paths.len(), 2);
        for path in paths {
            assert_eq!(read_trace(&path, usize::MAX).unwrap().keys, [100, 101, 102, 7]);
        }
        let cut = &whole[..whole.len() - 1];
        // The last bytes are a checksum.
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        for (name, bytes) in [
            ("c.lis", &b"x\n"[..]),
            ("d.lis.zst", text.as_bytes()),
            ("e.lis.zst", cut),
            ("f.lis.zst", &damaged),
            ("g.lis.zst", &skippable[..9]),
        ] {
            std::fs::write(directory.path().join(name), bytes).unwrap();
            assert!(read_trace(&directory.path().join(name), 10).is_err(), "{name}");
        }
    }
    #[test]
    fn a_recorded_workload_touches_its_data() {
        let params = Params { bytes: 1 << 20, zipf: 0.99, seed: 1, ..Params::default() };
        let streams = record("array-swap", params, &[0.8, 0.99], 1000).unwrap();
        assert_eq!(streams.len(), 2);
        for stream in &streams {
            assert!(stream.keys.len() >= 1000 && stream.accesses >= stream.keys.len() as u64);
            assert!(stream.keys.iter().all(|k| *k < 256));
            assert!(stream.keys.windows(2).all(|w| w[0] != w[1]));
        }
        assert_ne!(streams[0].keys, streams[1].keys);
    }
}
