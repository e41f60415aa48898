//! A system as it is written: TOML in which each key is read, each quantity has its unit, and every
//! error has its line.
//!
//! There are no defaults. A key that a model needs and does not find is an error, and so is a key
//! that no model has read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use fulgurite_nand::ProfileError;
use fulgurite_policy::{PrefetchPolicy, UnknownName};

use super::units::Quantity;
use crate::flash::map::Map;
use crate::fnv::Fnv;
use crate::time::Time;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}{}: {problem}", .line.map_or(String::new(), |line| format!(":{line}")))]
pub struct SystemError {
    /// The file's name.
    pub file: String,
    /// The line, where it has one.
    pub line: Option<usize>,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a system.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// It is no TOML.
    #[error("{0}")]
    Syntax(String),
    /// A key that is needed is not there.
    #[error("there is no {key}, which this model needs{}", did_you_mean(.nearest))]
    Missing {
        /// The key.
        key: String,
        /// One of a similar name.
        nearest: Option<String>,
    },
    /// A key that no model reads.
    #[error("nothing reads {key}; remove it{}", did_you_mean(.nearest))]
    Unread {
        /// The key.
        key: String,
        /// One of a similar name that was read.
        nearest: Option<String>,
    },
    /// A value that cannot be.
    #[error("{key} = {got}: {expected}")]
    Value {
        /// The key.
        key: String,
        /// What is there.
        got: String,
        /// What is wrong, or what to write.
        expected: String,
    },
    /// A key that was given on the command line is not in the file.
    #[error("--set {key}: the system has no such key{}", did_you_mean(.nearest))]
    NoSuchKey {
        /// The key.
        key: String,
        /// One of a similar name.
        nearest: Option<String>,
    },
    /// The NAND device.
    #[error("[nand] {0}")]
    Nand(String),
    /// The system as a whole cannot be.
    #[error("{0}")]
    Impossible(String),
}

/// The end of a sentence about a name that is not known.
pub fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |name| format!("; did you mean {name}?"))
}

/// The name that a word may have been meant to be.
pub fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let all = names.map(|name| (strsim::damerau_levenshtein(word, name), name));
    all.min().filter(|(distance, _)| *distance <= 1 + word.len() / 4).map(|(_, name)| name.to_owned())
}

/// A value as it is written.
#[derive(Clone, PartialEq, Debug)]
enum Value {
    Text(String),
    Integer(u64),
    Float(f64),
    Bool(bool),
}

impl Value {
    /// As TOML has it.
    fn shown(&self) -> String {
        match self {
            Value::Text(text) => format!("{text:?}"),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Bool(value) => value.to_string(),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Leaf {
    value: Value,
    line: usize,
}

/// A system's keys and values, each under its dotted name.
///
/// What reads a value fails where there is no such key, or its value is not what is asked for. The
/// error has the line, and says what to write.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    leaves: BTreeMap<String, Leaf>,
    read: RefCell<BTreeSet<String>>,
    /// What the system is given in addition to its file, distinct from all else that could be
    /// given.
    pub(super) beside: Option<String>,
}

struct Reader<'t> {
    file: &'t str,
    text: &'t str,
    leaves: BTreeMap<String, Leaf>,
}

impl<'t> Reader<'t> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }
    fn error(&self, at: usize, problem: Problem) -> SystemError {
        SystemError { file: self.file.to_owned(), line: Some(self.line(at)), problem }
    }
    fn table(&mut self, before: &str, table: &DeTable<'t>) -> Result<(), SystemError> {
        for (key, value) in table {
            let name =
                if before.is_empty() { key.get_ref().to_string() } else { format!("{before}.{}", key.get_ref()) };
            match value.get_ref().as_table() {
                Some(inner) => self.table(&name, inner)?,
                None => {
                    let read = self.value(&name, value)?;
                    let line = self.line(key.span().start);
                    self.leaves.insert(name, Leaf { value: read, line });
                }
            }
        }
        Ok(())
    }
    fn value(&self, name: &str, value: &Spanned<DeValue<'t>>) -> Result<Value, SystemError> {
        let written = value.get_ref();
        let read = match written {
            DeValue::String(text) => Some(Value::Text(text.to_string())),
            DeValue::Boolean(value) => Some(Value::Bool(*value)),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok().map(Value::Integer),
            DeValue::Float(number) => {
                number.as_str().parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::Float)
            }
            _ => None,
        };
        read.ok_or_else(|| {
            let got = self.text[value.span()].to_owned();
            let expected = "write a text, a number that is not negative, true or false".to_owned();
            self.error(value.span().start, Problem::Value { key: name.to_owned(), got, expected })
        })
    }
}

impl Document {
    /// Reads a text, and puts values in the place of others: `("requests.depth", "16")`. `file` is
    /// its name in errors.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(file: &str, text: &str, set: &[(String, String)]) -> Result<Document, SystemError> {
        let mut reader = Reader { file, text, leaves: BTreeMap::new() };
        let table = DeTable::parse(text).map_err(|error| {
            reader.error(error.span().map_or(0, |span| span.start), Problem::Syntax(error.message().to_owned()))
        })?;
        reader.table("", table.get_ref())?;
        let (file, read) = (file.to_owned(), RefCell::new(BTreeSet::new()));
        let mut document = Document { file, leaves: reader.leaves, read, beside: None };
        for (key, value) in set {
            document.set(key, value)?;
        }
        Ok(document)
    }
    /// A value in the place of another. A number stays a number, and all else is text, as a unit
    /// would have to be quoted twice.
    fn set(&mut self, key: &str, value: &str) -> Result<(), SystemError> {
        let Some(leaf) = self.leaves.get_mut(key) else {
            let nearest = nearest(key, self.leaves.keys().map(String::as_str));
            return Err(self.error(None, Problem::NoSuchKey { key: key.to_owned(), nearest }));
        };
        leaf.value = if let Ok(number) = value.parse() {
            Value::Integer(number)
        } else if let Some(number) = value.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0) {
            Value::Float(number)
        } else if let Ok(value) = value.parse() {
            Value::Bool(value)
        } else {
            Value::Text(value.to_owned())
        };
        Ok(())
    }

    /// Its file's name.
    pub fn file(&self) -> &str {
        &self.file
    }
    /// The names of the keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.leaves.keys().map(String::as_str)
    }
    /// What was resolved, as TOML, in the order of the names.
    pub fn print(&self) -> String {
        let mut text = format!("# {}: {}\n", self.file, self.hash());
        if let Some(beside) = &self.beside {
            let _ = writeln!(text, "# {beside}");
        }
        for (name, leaf) in &self.leaves {
            let _ = writeln!(text, "{name} = {}", leaf.value.shown());
        }
        text
    }
    /// A hash of all names and values, and of what the system is given in addition to them: FNV-1a,
    /// 64 bits.
    pub fn hash(&self) -> String {
        let mut hash = Fnv::default();
        for (name, leaf) in &self.leaves {
            hash.add(format!("{name}={}\n", leaf.value.shown()).as_bytes());
        }
        hash.add(self.beside.as_deref().unwrap_or_default().as_bytes());
        hash.to_string()
    }
    /// An error for the first key that nothing has read.
    ///
    /// # Errors
    /// [`Problem::Unread`].
    pub fn all_read(&self) -> Result<(), SystemError> {
        let read = self.read.borrow();
        match self.leaves.iter().find(|(name, _)| !read.contains(*name)) {
            None => Ok(()),
            Some((name, leaf)) => {
                let nearest = nearest(name, read.iter().map(String::as_str));
                Err(self.error(Some(leaf.line), Problem::Unread { key: name.clone(), nearest }))
            }
        }
    }

    fn error(&self, line: Option<usize>, problem: Problem) -> SystemError {
        SystemError { file: self.file.clone(), line, problem }
    }
    /// An error about the system as a whole, at the line of one of its keys.
    pub fn impossible(&self, key: &str, told: impl Into<String>) -> SystemError {
        self.error(self.leaves.get(key).map(|leaf| leaf.line), Problem::Impossible(told.into()))
    }
    /// An error about the value of a key.
    pub fn refuse(&self, key: &str, expected: impl Into<String>) -> SystemError {
        let leaf = self.leaves.get(key);
        let got = leaf.map_or_else(String::new, |leaf| leaf.value.shown());
        let problem = Problem::Value { key: key.to_owned(), got, expected: expected.into() };
        self.error(leaf.map(|leaf| leaf.line), problem)
    }
    fn leaf(&self, key: &str) -> Result<&Leaf, SystemError> {
        self.read.borrow_mut().insert(key.to_owned());
        self.leaves.get(key).ok_or_else(|| {
            let read = self.read.borrow();
            let nearest = nearest(key, self.keys().filter(|name| !read.contains(*name)));
            self.error(None, Problem::Missing { key: key.to_owned(), nearest })
        })
    }
    /// Whether a key, or one below it, is there.
    pub fn has(&self, key: &str) -> bool {
        let below = format!("{key}.");
        self.leaves.contains_key(key) || self.keys().any(|name| name.starts_with(&below))
    }
    /// Keys that may be there, and say nothing here: another one has made them void.
    pub fn void(&self, keys: &[&str]) {
        self.read.borrow_mut().extend(keys.iter().map(|key| (*key).to_owned()));
    }
    fn quantity(&self, key: &str, quantity: Quantity) -> Result<f64, SystemError> {
        let Value::Text(text) = &self.leaf(key)?.value else {
            return Err(self.refuse(key, format!("a text with a unit is needed, for example {}", quantity.example())));
        };
        quantity
            .read(text)
            .map_err(|told| self.refuse(key, format!("{told}; write for example {}", quantity.example())))
    }
    /// A quantity within what a model can count with.
    fn within(&self, key: &str, of: Quantity, low: f64, high: f64, told: &str) -> Result<f64, SystemError> {
        let value = self.quantity(key, of)?;
        if (low..=high).contains(&value) { Ok(value) } else { Err(self.refuse(key, told)) }
    }
    /// A time, of 1,000 s at most.
    pub fn time(&self, key: &str) -> Result<Time, SystemError> {
        let ps = self.within(key, Quantity::Time, 0.0, 1e15, "a time is at most 1000s")?;
        Ok(Time((ps + 0.5) as u64))
    }
    /// A time of a command, of 1 ms at most, because what happens in between is simulated step by
    /// step.
    pub fn command_time(&self, key: &str) -> Result<Time, SystemError> {
        let time = self.time(key)?;
        if time <= Time::us(1000) { Ok(time) } else { Err(self.refuse(key, "it is at most 1ms")) }
    }
    /// Bytes.
    pub fn bytes(&self, key: &str) -> Result<u64, SystemError> {
        Ok((self.quantity(key, Quantity::Size)? + 0.5) as u64)
    }
    /// Watts.
    pub fn power(&self, key: &str) -> Result<f64, SystemError> {
        self.quantity(key, Quantity::Power)
    }
    /// Joules.
    pub fn energy(&self, key: &str) -> Result<f64, SystemError> {
        self.quantity(key, Quantity::Energy)
    }
    /// Bytes a second, from 1 KB/s to 1,000 TB/s.
    pub fn rate(&self, key: &str) -> Result<f64, SystemError> {
        self.within(key, Quantity::Rate, 1e3, 1e15, "a rate is from 1KB/s to 1000000GB/s")
    }
    /// Hertz, so that a cycle is from 1 ps to 1 µs.
    pub fn frequency(&self, key: &str) -> Result<f64, SystemError> {
        self.within(key, Quantity::Frequency, 1e6, 1e12, "a frequency is from 1MHz to 1000GHz")
    }
    /// A share from 0 to 1.
    pub fn share(&self, key: &str) -> Result<f64, SystemError> {
        let share = self.quantity(key, Quantity::Share)?;
        if share <= 1.0 { Ok(share) } else { Err(self.refuse(key, "a share is at most \"100%\"")) }
    }
    /// A plain number in a range.
    pub fn number(&self, key: &str, low: f64, high: f64) -> Result<f64, SystemError> {
        let number = match self.leaf(key)?.value {
            Value::Integer(number) => number as f64,
            Value::Float(number) => number,
            _ => f64::NAN,
        };
        if (low..=high).contains(&number) {
            Ok(number)
        } else {
            Err(self.refuse(key, format!("a number from {low} to {high} is needed")))
        }
    }
    /// A count in a range.
    pub fn count(&self, key: &str, low: u64, high: u64) -> Result<u64, SystemError> {
        match self.leaf(key)?.value {
            Value::Integer(count) if (low..=high).contains(&count) => Ok(count),
            _ => Err(self.refuse(key, format!("a whole number from {low} to {high} is needed"))),
        }
    }
    /// Yes or no.
    pub fn flag(&self, key: &str) -> Result<bool, SystemError> {
        match self.leaf(key)?.value {
            Value::Bool(value) => Ok(value),
            _ => Err(self.refuse(key, "true or false is needed")),
        }
    }
    /// Words.
    pub fn text(&self, key: &str) -> Result<&str, SystemError> {
        match &self.leaf(key)?.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.refuse(key, "a text is needed")),
        }
    }
    /// Words, or a whole number, as text.
    pub fn text_or_count(&self, key: &str) -> Result<String, SystemError> {
        match &self.leaf(key)?.value {
            Value::Text(text) => Ok(text.clone()),
            Value::Integer(count) => Ok(count.to_string()),
            _ => Err(self.refuse(key, "a text or a whole number is needed")),
        }
    }
    /// One of several words.
    pub fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<T, SystemError> {
        let text = self.text(key)?;
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.refuse(key, format!("write one of {}", known.join(", ")))
        })
    }
    /// A NAND device: a built-in profile by its name (`nand.profile`), or written out below
    /// `[nand.geometry]`, `[nand.timing]` and so on, as in a profile of its own.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn nand(&self) -> Result<fulgurite_nand::Profile, SystemError> {
        let told = |line, text: String| self.error(line, Problem::Nand(text));
        if self.leaves.contains_key("nand.profile") {
            let name = self.text("nand.profile")?;
            let line = self.leaves.get("nand.profile").map(|leaf| leaf.line);
            return fulgurite_nand::Profile::built_in(name).map_err(|error| told(line, error.to_string()));
        }
        // Each key on the line that it has here, so that the parser's errors name that line.
        let keys = || self.leaves.iter().filter_map(|(name, leaf)| Some((name.strip_prefix("nand.")?, leaf)));
        let mut lines = vec![String::new(); keys().map(|(_, leaf)| leaf.line).max().unwrap_or(0)];
        for (name, leaf) in keys() {
            self.read.borrow_mut().insert(format!("nand.{name}"));
            let line = &mut lines[leaf.line - 1];
            if !line.is_empty() {
                return Err(told(Some(leaf.line), "write one key on each line".to_owned()));
            }
            let _ = write!(line, "{name} = {}", leaf.value.shown());
        }
        let Some(first) = keys().map(|(_, leaf)| leaf.line).min() else {
            let profile = "it is missing: write nand.profile = \"mlc\", or a profile's sections";
            return Err(told(None, profile.to_owned()));
        };
        fulgurite_nand::Profile::parse(&lines.join("\n")).map_err(|error| match &error {
            // What is missing has no line of its own.
            ProfileError::Toml { line, reported: text, .. } => {
                let line = line.filter(|line| *line >= first).unwrap_or(first);
                let key = keys().find(|(_, leaf)| leaf.line == line).map_or("", |(name, _)| name);
                if text.starts_with("missing") {
                    told(Some(first), text.clone())
                } else {
                    told(Some(line), format!("{key}: {text}"))
                }
            }
            ProfileError::Value { section, key, .. } => {
                let leaf = self.leaves.get(&format!("nand.{section}.{key}"));
                told(Some(leaf.map_or(first, |leaf| leaf.line)), error.to_string())
            }
            _ => told(Some(first), error.to_string()),
        })
    }
    /// A NAND device ([`Document::nand`]), and the share of its pages that is used: `flash.filled`.
    /// Reclaim must have some spare blocks.
    pub fn filled_nand(&self) -> Result<(fulgurite_nand::Profile, f64), SystemError> {
        let (nand, filled) = (self.nand()?, self.share("flash.filled")?);
        match Map::new(nand.geometry, filled) {
            Ok(_) => Ok((nand, filled)),
            Err(most) => {
                let percent = (most * 1000.0) as u64 as f64 / 10.0;
                let told = format!("reclaim needs some spare blocks: write \"{percent}%\" or less, but not 0");
                Err(self.refuse("flash.filled", told))
            }
        }
    }
    /// What is read ahead.
    pub fn prefetch(&self, key: &str) -> Result<PrefetchPolicy, SystemError> {
        let refuse = |error: UnknownName| self.refuse(key, format!("write {}", error.expected));
        self.text_or_count(key)?.parse().map_err(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        Document::read("s.toml", text, &[]).unwrap()
    }
    fn message_of<T: std::fmt::Debug>(got: Result<T, SystemError>) -> String {
        got.unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let document = document("[a]\nb = \"75us\"\nc.d = 5\ne = true\nf = \"2GHz\"\ng = 1.5\nh = \"lru\"\n");
        assert_eq!(document.time("a.b"), Ok(Time::us(75)));
        assert_eq!(document.count("a.c.d", 1, 9), Ok(5));
        assert_eq!((document.flag("a.e"), document.frequency("a.f")), (Ok(true), Ok(2e9)));
        assert!(document.has("a.c") && !document.has("a.x"));
        assert!(message_of(document.all_read()).starts_with("s.toml:6: nothing reads a.g"));
        assert_eq!(document.number("a.g", 0.0, 2.0), Ok(1.5));
        assert_eq!(document.word("a.h", &[("lru", 1), ("clock", 2)]), Ok(1));
        document.all_read().unwrap();
    }
    #[test]
    fn what_is_wrong_has_its_line() {
        let written = document("a = 5\nb = \"5\"\n\nc = \"x\"\n");
        assert_eq!(message_of(written.time("a")).split(": ").next(), Some("s.toml:1"));
        assert!(message_of(written.time("b")).starts_with("s.toml:2: b = \"5\": has no unit"));
        assert!(message_of(written.count("a", 6, 9)).contains("from 6 to 9"));
        assert!(
            message_of(written.word("c", &[("y", ()), ("z", ())])).contains("s.toml:4: c = \"x\": write one of y, z")
        );
        assert!(message_of(written.time("d")).contains("there is no d"));
        assert!(message_of(Document::read("s.toml", "a = 1\na = 2\n", &[])).starts_with("s.toml:2: "));
        assert!(message_of(Document::read("s.toml", "x = 1\na = [1]\n", &[])).starts_with("s.toml:2: a = [1]"));
        assert!(message_of(Document::read("s.toml", "a = -1\n", &[])).contains("not negative"));
        assert!(message_of(Document::read("s.toml", "a = nan\n", &[])).starts_with("s.toml:1: "));
    }
    #[test]
    fn values_are_put_in_the_place_of_others() {
        let set = |key: &str, value: &str| {
            Document::read("s.toml", "[requests]\ndepth = 5\n", &[(key.to_owned(), value.to_owned())])
        };
        let moved = set("requests.depth", "16").unwrap();
        assert_eq!(moved.count("requests.depth", 1, 99), Ok(16));
        assert_ne!(moved.hash(), document("[requests]\ndepth = 5\n").hash());
        assert_eq!(moved.hash(), document("requests.depth = 16\n").hash());
        assert!(message_of(set("requests.dept", "16")).contains("did you mean requests.depth?"));
        let text = set("requests.depth", "16us").unwrap();
        assert_eq!(text.time("requests.depth"), Ok(Time::us(16)));
    }
    #[test]
    fn a_device_is_that_of_its_profile() {
        let text = fulgurite_nand::Profile::built_in_text("slc").unwrap();
        let written: String = text
            .lines()
            .map(|line| format!("{}\n", line.strip_prefix('[').map_or(line.to_owned(), |l| format!("[nand.{l}"))))
            .collect();
        let built_in = fulgurite_nand::Profile::built_in("slc").unwrap();
        assert_eq!(document(&written).nand().unwrap(), built_in);
        assert_eq!(document("nand.profile = \"slc\"\n").nand().unwrap(), built_in);
        assert!(message_of(document("\nnand.profile = \"sloc\"\n").nand()).starts_with("s.toml:2: [nand]"));
        // The parser's own line number is the file's.
        let (at, _) = written.lines().enumerate().find(|(_, line)| line.starts_with("erase")).unwrap();
        let wrong = document(&written.replacen("erase = \"1.5ms\"", "erase = \"1.5\"", 1)).nand();
        let wrong = message_of(wrong);
        assert!(wrong.starts_with(&format!("s.toml:{}: ", at + 1)), "{wrong}");
    }
}
