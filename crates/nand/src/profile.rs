//! A NAND device as people describe it: a TOML file in which every quantity has its unit.
//!
//! ```toml
//! [geometry]
//! channels = 8
//! packages_per_channel = 2
//! dies_per_package = 2
//! planes_per_die = 2
//! registers_per_plane = 2      # with 1 a plane cannot read while it sends
//! blocks_per_plane = 1024
//! pages_per_block = 256
//! page = "16K"
//!
//! [timing]
//! cell = "mlc"                 # slc, mlc, tlc or pcm: said in reports, decides nothing
//! command = "200ns"            # command and address cycles on the bus
//! read = "50us"                # tR: array to register
//! program = "1200us"           # tPROG: register to array
//! erase = "3ms"                # tBERS
//! bus = "400MB/s"              # of each channel
//! commands_first = true        # commands before return data (NVMM)
//!
//! [queues]
//! die_queue = 8                # requests that wait at a die
//! reorder = true               # whether a request may pass one whose die's queue is full
//!
//! [wear]
//! endurance = "3000 cycles"    # rated: up to it hardly a page is uncorrectable
//! failure = "6000 cycles"      # median of the erases after which blocks fail for good
//! spread = 0.1                 # deviation of the limits' logarithm
//! factory_bad = 0.02           # share of blocks that are bad from the beginning
//!
//! [ecc]
//! codeword = "1K"
//! corrects = "40 bits"         # in each codeword
//! bit_errors_fresh = 1e-7      # share of bits that are read wrong in a new block
//! bit_errors_worn = 1e-4       # the same in a block at its endurance; it goes on growing
//!
//! [energy]
//! read = "1.5uJ"               # of a page
//! program = "36uJ"             # of a page
//! erase = "90uJ"               # of a block
//! transfer = "75pJ"            # of a byte on the bus
//! ```

use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::geometry::{Geometry, GeometryError, Parts};
use crate::units;

/// What a cell holds. It is said in reports and decides nothing: times, wear and errors are given
/// in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// One bit in a cell of NAND.
    Slc,
    /// Two bits in a cell of NAND.
    Mlc,
    /// Three bits in a cell of NAND.
    Tlc,
    /// Phase-change memory.
    Pcm,
}

/// How long each step of an operation takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// What the cells are.
    pub cell: Cell,
    /// Command and address cycles on the bus, in nanoseconds.
    pub command_ns: u64,
    /// tR: from the array to a register, in nanoseconds.
    pub read_ns: u64,
    /// tPROG: from a register to the array, in nanoseconds.
    pub program_ns: u64,
    /// tBERS: erasing a block, in nanoseconds.
    pub erase_ns: u64,
    /// Bytes per second of each channel's bus. ONFI has 330, 400 and 800 MB/s (NVMM, "Background"
    /// and "Performance Comparisons").
    pub bus_bytes_per_second: u64,
    /// Commands go before data that is read on the bus, so that a plane begins its next access
    /// while the last one's data is sent (NVMM, "Nonvolatile Main Memory System Architecture").
    /// Else first come, first served.
    pub commands_first: bool,
    /// Registers of a plane: with 2, one holds what is sent or arrives while the other serves the
    /// array (cache read, cache program).
    pub registers: u32,
}

impl Timing {
    /// Nanoseconds that `bytes` bytes take on the bus, rounded up.
    #[must_use]
    pub fn transfer_ns(&self, bytes: u32) -> u64 {
        (u64::from(bytes) * 1_000_000_000).div_ceil(self.bus_bytes_per_second)
    }
}

/// The queues of the controller (NVMM: the FTL queue and the die queues).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queues {
    /// Requests that may wait at a die. The FTL queue feeds these queues. When the one of its head
    /// is full, that head blocks all others.
    pub die_queue: u32,
    /// Requests may pass requests whose die's queue is full. Requests for one die stay in order.
    pub reorder: bool,
}

/// How blocks wear out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wear {
    /// The rated endurance, in erases: up to it hardly a page has more wrong bits than are
    /// corrected.
    pub endurance: u32,
    /// The median of the blocks' limits, in erases: at its limit a block fails to be programmed or
    /// erased, for good.
    pub failure: u32,
    /// The deviation of the logarithm of the limits: with 0.1, two thirds of the blocks are within
    /// 10% of the median.
    pub spread: f64,
    /// The share of blocks that are bad from the beginning.
    pub factory_bad: f64,
}

/// How bits are read wrong, and how many of them are put right.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ecc {
    /// Bytes of a codeword.
    pub codeword_bytes: u32,
    /// Wrong bits of a codeword that are corrected.
    pub corrects: u32,
    /// The share of bits read wrong in a block that was never erased.
    pub bit_errors_fresh: f64,
    /// The share of bits read wrong in a block that was erased as often as its rated endurance. Its
    /// logarithm grows evenly with the erases, before and beyond.
    pub bit_errors_worn: f64,
}

/// Energy of each operation, in picojoules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Energy {
    /// Reading a page from the array.
    pub read_pj: u64,
    /// Programming a page.
    pub program_pj: u64,
    /// Erasing a block.
    pub erase_pj: u64,
    /// A byte on the bus.
    pub transfer_pj: u64,
}

/// A device: what it is made of, how fast, how it wears.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Profile {
    /// How it divides.
    pub geometry: Geometry,
    /// How fast it is.
    pub timing: Timing,
    /// Its controller's queues.
    pub queues: Queues,
    /// How it wears out.
    pub wear: Wear,
    /// How its errors are corrected.
    pub ecc: Ecc,
    /// What it takes.
    pub energy: Energy,
}

/// Why a profile cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No such built-in profile.
    #[error("there is no built-in NAND profile \"{0}\"; there are {known}", known = BUILT_IN.map(|(name, _)| name).join(", "))]
    Name(String),
    /// Not TOML, an unknown or missing key, or a quantity without its unit.
    #[error("{text}")]
    Toml {
        /// What is wrong, with the place.
        text: String,
        /// The line, where it has one.
        line: Option<usize>,
        /// What is wrong, without the place.
        reported: String,
    },
    /// No device divides like that.
    #[error("[geometry]: {0}")]
    Geometry(#[from] GeometryError),
    /// A value that makes no sense.
    #[error("[{section}] {key} = {found}: {expected}")]
    Value {
        /// The table it is in.
        section: &'static str,
        /// Its key.
        key: &'static str,
        /// What is there.
        found: String,
        /// What to write.
        expected: &'static str,
    },
}

/// The profiles that are built in, by name.
const BUILT_IN: [(&str, &str); 5] = [
    ("slc", include_str!("../profiles/slc.toml")),
    ("mlc", include_str!("../profiles/mlc.toml")),
    ("tlc", include_str!("../profiles/tlc.toml")),
    ("pcm", include_str!("../profiles/pcm.toml")),
    ("nvmm", include_str!("../profiles/nvmm.toml")),
];

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// When it is not TOML, has unknown or missing keys, a quantity without its unit, or is of no
    /// possible device. The message says where and what to write.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let line = |at: usize| 1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count();
        let raw: RawProfile = toml::from_str(text).map_err(|error| ProfileError::Toml {
            text: error.to_string(),
            line: error.span().map(|span| line(span.start)),
            reported: error.message().to_owned(),
        })?;
        raw.checked()
    }
    /// A profile that is built in: slc, mlc, tlc, pcm or nvmm. The files in `crates/nand/profiles`
    /// say where each number is from.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn built_in(name: &str) -> Result<Profile, ProfileError> {
        let text = Profile::built_in_text(name).ok_or_else(|| ProfileError::Name(name.to_owned()))?;
        Profile::parse(text)
    }
    /// The text of a profile that is built in, to begin one's own with.
    #[must_use]
    pub fn built_in_text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }
    /// The names of the built-in profiles.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }
    /// This device with `planes` planes and at least `bytes` of capacity, and at least 32 blocks in
    /// a plane ([`Geometry::scaled`]).
    ///
    /// # Errors
    /// When that cannot be.
    pub fn scaled(self, bytes: u64, planes: u32) -> Result<Profile, GeometryError> {
        Ok(Profile { geometry: self.geometry.scaled(bytes, planes, 32)?, ..self })
    }
}

// ---- as it is written ----

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    geometry: RawGeometry,
    timing: RawTiming,
    queues: RawQueues,
    wear: RawWear,
    ecc: RawEcc,
    energy: RawEnergy,
}
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGeometry {
    channels: u32,
    packages_per_channel: u32,
    dies_per_package: u32,
    planes_per_die: u32,
    registers_per_plane: u32,
    blocks_per_plane: u32,
    pages_per_block: u32,
    #[serde(deserialize_with = "size")]
    page: u64,
}
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTiming {
    cell: Cell,
    #[serde(deserialize_with = "time")]
    command: u64,
    #[serde(deserialize_with = "time")]
    read: u64,
    #[serde(deserialize_with = "time")]
    program: u64,
    #[serde(deserialize_with = "time")]
    erase: u64,
    #[serde(deserialize_with = "rate")]
    bus: u64,
    commands_first: bool,
}
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawQueues {
    die_queue: u32,
    reorder: bool,
}
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWear {
    #[serde(deserialize_with = "cycles")]
    endurance: u64,
    #[serde(deserialize_with = "cycles")]
    failure: u64,
    spread: f64,
    factory_bad: f64,
}
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEcc {
    #[serde(deserialize_with = "size")]
    codeword: u64,
    #[serde(deserialize_with = "bits")]
    corrects: u64,
    bit_errors_fresh: f64,
    bit_errors_worn: f64,
}
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEnergy {
    #[serde(deserialize_with = "energy")]
    read: u64,
    #[serde(deserialize_with = "energy")]
    program: u64,
    #[serde(deserialize_with = "energy")]
    erase: u64,
    #[serde(deserialize_with = "energy")]
    transfer: u64,
}

/// Takes text for a quantity, and says how it is written where it finds something else.
struct Quantity {
    parse: fn(&str) -> Result<u64, String>,
    example: &'static str,
}
impl Visitor<'_> for Quantity {
    type Value = u64;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "text with a unit, for example {}", self.example)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        (self.parse)(text).map_err(E::custom)
    }
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u64, E> {
        Err(E::invalid_type(Unexpected::Signed(number), &self))
    }
}
fn time<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    d.deserialize_any(Quantity { parse: units::time_ns, example: "\"75us\"" })
}
fn size<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    d.deserialize_any(Quantity { parse: units::size_bytes, example: "\"16K\"" })
}
fn rate<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    d.deserialize_any(Quantity { parse: units::bytes_per_second, example: "\"800MB/s\"" })
}
fn energy<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    d.deserialize_any(Quantity { parse: units::picojoules, example: "\"30uJ\"" })
}
fn cycles<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    d.deserialize_any(Quantity { parse: |text| units::count(text, "cycles"), example: "\"3000 cycles\"" })
}
fn bits<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    let bits = d.deserialize_any(Quantity { parse: |text| units::count(text, "bits"), example: "\"40 bits\"" })?;
    if bits > 4000 { Err(D::Error::custom("more than 4000 bits are corrected by no code")) } else { Ok(bits) }
}

impl RawProfile {
    fn checked(self) -> Result<Profile, ProfileError> {
        let RawProfile { geometry: g, timing: t, queues: q, wear: w, ecc: e, energy: j } = self;
        let geometry = Geometry::new(Parts {
            channels: g.channels,
            packages_per_channel: g.packages_per_channel,
            dies_per_package: g.dies_per_package,
            planes_per_die: g.planes_per_die,
            blocks_per_plane: g.blocks_per_plane,
            pages_per_block: g.pages_per_block,
            page_bytes: g.page,
        })?;
        let value = |section, key, found: String, expected| ProfileError::Value { section, key, found, expected };
        if !matches!(g.registers_per_plane, 1 | 2) {
            let found = g.registers_per_plane.to_string();
            return Err(value("geometry", "registers_per_plane", found, "write 1 or 2"));
        }
        if !(1..=4096).contains(&q.die_queue) {
            return Err(value("queues", "die_queue", q.die_queue.to_string(), "write 1 to 4096"));
        }
        if w.endurance == 0 {
            return Err(value("wear", "endurance", "0".to_owned(), "write for example \"3000 cycles\""));
        }
        if w.failure < w.endurance {
            return Err(value("wear", "failure", w.failure.to_string(), "write no less than the endurance"));
        }
        if !(0.0..=3.0).contains(&w.spread) {
            return Err(value("wear", "spread", w.spread.to_string(), "write 0 to 3"));
        }
        if !(0.0..=0.5).contains(&w.factory_bad) {
            return Err(value("wear", "factory_bad", w.factory_bad.to_string(), "write 0 to 0.5"));
        }
        let codeword_bytes = u32::try_from(e.codeword).ok().filter(|b| *b > 0 && geometry.page_bytes() % b == 0);
        let Some(codeword_bytes) = codeword_bytes else {
            let found = e.codeword.to_string();
            return Err(value("ecc", "codeword", found, "write a part of the page without rest, for example \"1K\""));
        };
        for (key, rate) in [("bit_errors_fresh", e.bit_errors_fresh), ("bit_errors_worn", e.bit_errors_worn)] {
            if !(0.0..=0.5).contains(&rate) {
                return Err(value("ecc", key, rate.to_string(), "write 0 to 0.5"));
            }
        }
        if e.bit_errors_worn < e.bit_errors_fresh {
            let found = e.bit_errors_worn.to_string();
            return Err(value("ecc", "bit_errors_worn", found, "write no less than bit_errors_fresh"));
        }
        Ok(Profile {
            geometry,
            timing: Timing {
                cell: t.cell,
                command_ns: t.command,
                read_ns: t.read,
                program_ns: t.program,
                erase_ns: t.erase,
                bus_bytes_per_second: t.bus,
                commands_first: t.commands_first,
                registers: g.registers_per_plane,
            },
            queues: Queues { die_queue: q.die_queue, reorder: q.reorder },
            wear: Wear {
                endurance: w.endurance as u32,
                failure: w.failure as u32,
                spread: w.spread,
                factory_bad: w.factory_bad,
            },
            ecc: Ecc {
                codeword_bytes,
                corrects: e.corrects as u32,
                bit_errors_fresh: e.bit_errors_fresh,
                bit_errors_worn: e.bit_errors_worn,
            },
            energy: Energy { read_pj: j.read, program_pj: j.program, erase_pj: j.erase, transfer_pj: j.transfer },
        })
    }
}
