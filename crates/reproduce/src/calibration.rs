//! A calibration: the values that one paper's checks stand on, each with its unit, its kind and its
//! source, read strictly from TOML.
//!
//! ```toml
//! [flash]
//! read = { value = 50, unit = "us", kind = "text", source = "section II-C" }
//! ```
//!
//! | kind | the value |
//! |---|---|
//! | `text` | is in the paper's text |
//! | `cited` | is in a source that the paper cites |
//! | `public-config` | is in a published configuration of the authors |
//! | `datasheet` | is in the data sheet of a part that the paper names or that is usual for it |
//! | `fitted(CHECK)` | was chosen so that this check's result comes out |
//! | `chosen` | is an assumption: the source says why |
//!
//! Everything wrong is an error with its line: another key in a value, a unit that is missing or
//! unknown, a missing source, and, once all checks have run, a value that none has read.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fulgurite_sim::system::{did_you_mean, nearest};
use fulgurite_sim::{Fnv, Time};
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::units::{self, Dimension};

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The paper's text.
    Text,
    /// A source that the paper cites.
    Cited,
    /// A published configuration of the authors.
    PublicConfig,
    /// A data sheet.
    Datasheet,
    /// This check's result: `A14`, or `A14.share` for one of its findings.
    Fitted(String),
    /// An assumption.
    Chosen,
}

impl Kind {
    fn read(text: &str) -> Option<Kind> {
        let fitted = text.strip_prefix("fitted(").and_then(|rest| rest.strip_suffix(')'));
        Some(match (text, fitted) {
            (_, Some(check)) if !check.is_empty() => Kind::Fitted(check.to_owned()),
            ("text", _) => Kind::Text,
            ("cited", _) => Kind::Cited,
            ("public-config", _) => Kind::PublicConfig,
            ("datasheet", _) => Kind::Datasheet,
            ("chosen", _) => Kind::Chosen,
            _ => return None,
        })
    }
    /// Whether it was fitted to this finding of a check.
    pub fn is_fitted_to(&self, check: &str, finding: &str) -> bool {
        match self {
            Kind::Fitted(to) => to == check || to.split_once('.') == Some((check, finding)),
            _ => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Text => f.write_str("text"),
            Kind::Cited => f.write_str("cited"),
            Kind::PublicConfig => f.write_str("public-config"),
            Kind::Datasheet => f.write_str("datasheet"),
            Kind::Fitted(check) => write!(f, "fitted({check})"),
            Kind::Chosen => f.write_str("chosen"),
        }
    }
}

/// A value as it is written.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// One number or several, in the leaf's unit.
    Numbers(Vec<f64>),
    /// Words.
    Text(String),
}

/// A value with what is said of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Leaf {
    /// The value.
    pub value: Value,
    /// Its unit, which is known.
    pub unit: String,
    /// Where it comes from.
    pub kind: Kind,
    /// In words.
    pub source: String,
    /// Its line in the file.
    pub line: usize,
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}{}: {problem}", .line.map_or(String::new(), |line| format!(":{line}")))]
pub struct CalibrationError {
    /// The file's name.
    pub file: String,
    /// The line, where it has one.
    pub line: Option<usize>,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a calibration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// It is no TOML.
    #[error("{0}")]
    Syntax(String),
    /// A value has a key that means nothing.
    #[error("{leaf} has the unknown key \"{key}\"; a value has value, unit, kind and source")]
    UnknownKey {
        /// The value.
        leaf: String,
        /// Its key.
        key: String,
    },
    /// A value lacks a key.
    #[error("{leaf} has no {key}")]
    NoKey {
        /// The value.
        leaf: String,
        /// What it lacks.
        key: &'static str,
    },
    /// A number or a text stands alone.
    #[error("{leaf} is not a value with unit, kind and source: {{ value = .., unit = .., kind = .., source = .. }}")]
    NoLeaf {
        /// Its name.
        leaf: String,
    },
    /// A key has a value of a type that it cannot have.
    #[error("{key} of {leaf} is {got}, and not {expected}")]
    Type {
        /// The value.
        leaf: String,
        /// Its key.
        key: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// A unit that is not known.
    #[error("{leaf} has the unknown unit \"{unit}\"{}", did_you_mean(.nearest))]
    UnknownUnit {
        /// The value.
        leaf: String,
        /// Its unit.
        unit: String,
        /// One of a similar name.
        nearest: Option<String>,
    },
    /// A kind that is not known.
    #[error("{leaf} has the unknown kind \"{kind}\"; text, cited, public-config, datasheet, fitted(CHECK) or chosen")]
    UnknownKind {
        /// The value.
        leaf: String,
        /// Its kind.
        kind: String,
    },
    /// A check reads a value that is not there.
    #[error("there is no {leaf}{}", did_you_mean(.nearest))]
    Missing {
        /// The value.
        leaf: String,
        /// One of a similar name.
        nearest: Option<String>,
    },
    /// A check reads a value as something else.
    #[error("{leaf} is in {unit}, and {expected} is needed")]
    Dimension {
        /// The value.
        leaf: String,
        /// Its unit.
        unit: String,
        /// What is needed.
        expected: &'static str,
    },
    /// A number that cannot be used.
    #[error("{leaf} is {got}, and {expected} is needed")]
    Range {
        /// The value.
        leaf: String,
        /// The number.
        got: String,
        /// What is needed.
        expected: String,
    },
    /// No check has read it.
    #[error("no check reads {leaf}")]
    Unread {
        /// The value.
        leaf: String,
    },
}

/// The values of one paper.
#[derive(Clone, PartialEq, Debug)]
pub struct Calibration {
    file: String,
    leaves: BTreeMap<String, Leaf>,
}

/// The keys of a value.
const LEAF_KEYS: [&str; 4] = ["value", "unit", "kind", "source"];

/// Reads one text.
struct Reader<'t> {
    file: &'t str,
    text: &'t str,
    leaves: BTreeMap<String, Leaf>,
}

impl<'t> Reader<'t> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }
    fn error(&self, at: usize, problem: Problem) -> CalibrationError {
        CalibrationError { file: self.file.to_owned(), line: Some(self.line(at)), problem }
    }

    fn section(&mut self, before: &str, table: &DeTable<'t>) -> Result<(), CalibrationError> {
        for (key, value) in table {
            let name =
                if before.is_empty() { key.get_ref().to_string() } else { format!("{before}.{}", key.get_ref()) };
            let at = key.span().start;
            let Some(inner) = value.get_ref().as_table() else {
                return Err(self.error(at, Problem::NoLeaf { leaf: name }));
            };
            // A section may hold a section of such a name, but no bare value.
            let says = |key: &str| inner.get(key).is_some_and(|value| !value.get_ref().is_table());
            let is_leaf = LEAF_KEYS.into_iter().any(says);
            if is_leaf {
                let leaf = self.leaf(&name, at, inner)?;
                self.leaves.insert(name, leaf);
            } else {
                self.section(&name, inner)?;
            }
        }
        Ok(())
    }

    fn leaf(&self, name: &str, at: usize, table: &DeTable<'t>) -> Result<Leaf, CalibrationError> {
        for key in table.keys() {
            if !LEAF_KEYS.contains(&&**key.get_ref()) {
                let problem = Problem::UnknownKey { leaf: name.to_owned(), key: key.get_ref().to_string() };
                return Err(self.error(key.span().start, problem));
            }
        }
        let of = |key: &'static str| -> Result<&Spanned<DeValue<'t>>, CalibrationError> {
            table.get(key).ok_or_else(|| self.error(at, Problem::NoKey { leaf: name.to_owned(), key }))
        };
        let text = |key: &'static str| -> Result<String, CalibrationError> {
            let value = of(key)?;
            match value.get_ref().as_str() {
                Some(text) if text.trim().is_empty() => {
                    Err(self.error(value.span().start, Problem::NoKey { leaf: name.to_owned(), key }))
                }
                Some(text) => Ok(text.to_owned()),
                None => Err(self.wrong_type(name, key, "text", value)),
            }
        };
        let (unit, kind, source) = (text("unit")?, text("kind")?, text("source")?);
        let Some((dimension, _)) = units::unit(&unit) else {
            let nearest = nearest(&unit, units::names());
            return Err(self.error(at, Problem::UnknownUnit { leaf: name.to_owned(), unit, nearest }));
        };
        let Some(kind) = Kind::read(&kind) else {
            return Err(self.error(at, Problem::UnknownKind { leaf: name.to_owned(), kind }));
        };
        let written = of("value")?;
        let value = if dimension == Dimension::Text {
            Value::Text(text("value")?)
        } else {
            Value::Numbers(self.numbers(name, written)?)
        };
        Ok(Leaf { value, unit, kind, source, line: self.line(at) })
    }

    fn numbers(&self, name: &str, value: &Spanned<DeValue<'t>>) -> Result<Vec<f64>, CalibrationError> {
        let number = |value: &Spanned<DeValue<'t>>| -> Result<f64, CalibrationError> {
            let written = value.get_ref();
            let text = written.as_float().map(|float| float.as_str()).or_else(|| {
                // Hexadecimal digits mean addresses, of which there are none here.
                written.as_integer().filter(|integer| integer.radix() == 10).map(|integer| integer.as_str())
            });
            let number = text.and_then(|text| text.parse::<f64>().ok()).filter(|number| number.is_finite());
            number.ok_or_else(|| self.wrong_type(name, "value", "a finite number or an array of them", value))
        };
        match value.get_ref().as_array() {
            Some(array) => array.iter().map(number).collect(),
            None => Ok(vec![number(value)?]),
        }
    }

    fn wrong_type(
        &self,
        leaf: &str,
        key: &'static str,
        expected: &'static str,
        value: &Spanned<DeValue<'t>>,
    ) -> CalibrationError {
        let got = self.text[value.span()].to_owned();
        self.error(value.span().start, Problem::Type { leaf: leaf.to_owned(), key, expected, got })
    }
}

impl Calibration {
    /// Reads a text. `file` is its name in errors.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(file: &str, text: &str) -> Result<Calibration, CalibrationError> {
        let mut reader = Reader { file, text, leaves: BTreeMap::new() };
        let table = DeTable::parse(text).map_err(|error| {
            let problem = Problem::Syntax(error.message().to_owned());
            reader.error(error.span().map_or(0, |span| span.start), problem)
        })?;
        reader.section("", table.get_ref())?;
        Ok(Calibration { file: file.to_owned(), leaves: reader.leaves })
    }

    /// The values by their names.
    pub fn leaves(&self) -> &BTreeMap<String, Leaf> {
        &self.leaves
    }
    /// The file's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What was resolved, as TOML, in the order of the names.
    pub fn print(&self) -> String {
        let mut text = format!("# {}: {}\n", self.file, self.hash());
        for (name, leaf) in &self.leaves {
            let Leaf { unit, kind, source, .. } = leaf;
            text += &format!(
                "{name} = {{ value = {}, unit = \"{unit}\", kind = \"{kind}\", source = {source:?} }}\n",
                leaf.shown()
            );
        }
        text
    }

    /// A hash of all names, values and units: FNV-1a, 64 bits. Sources and comments do not change
    /// it.
    pub fn hash(&self) -> String {
        let mut hash = Fnv::default();
        for (name, leaf) in &self.leaves {
            hash.add(format!("{name}={} {}\n", leaf.shown(), leaf.unit).as_bytes());
        }
        hash.to_string()
    }

    /// An error for the first value that is not among those that were read.
    ///
    /// # Errors
    /// [`Problem::Unread`].
    pub fn all_read(&self, read: &BTreeSet<String>) -> Result<(), CalibrationError> {
        match self.leaves.iter().find(|(name, _)| !read.contains(*name)) {
            None => Ok(()),
            Some((name, leaf)) => Err(CalibrationError {
                file: self.file.clone(),
                line: Some(leaf.line),
                problem: Problem::Unread { leaf: name.clone() },
            }),
        }
    }
}

/// A count as it is used: a whole number, one at least.
fn whole(count: f64) -> u64 {
    ((count + 0.5) as u64).max(1)
}

impl Leaf {
    /// Whether a factor changes what is read as whole counts.
    fn moves_whole(&self, factor: f64) -> bool {
        match (&self.value, units::unit(&self.unit)) {
            (Value::Numbers(counts), Some((Dimension::Count, _))) => {
                counts.iter().any(|count| whole(*count) != whole(count * factor))
            }
            _ => true,
        }
    }
    fn shown(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("{text:?}"),
            Value::Numbers(numbers) if numbers.len() == 1 => format!("{}", numbers[0]),
            Value::Numbers(numbers) => {
                let all: Vec<String> = numbers.iter().map(|number| format!("{number}")).collect();
                format!("[{}]", all.join(", "))
            }
        }
    }
}

/// What moves with a value, by its name: the value alone. Values of workloads move with the same
/// value of all other workloads, in one set of runs. So what they do adds up.
pub fn moves_as(name: &str) -> Cow<'_, str> {
    match name.strip_prefix("workloads.").and_then(|rest| rest.split_once('.')) {
        Some((_, value)) => Cow::Owned(format!("workloads.each.{value}")),
        None => Cow::Borrowed(name),
    }
}

/// A calibration as one run of a check sees it: one value may be moved, or one of each workload,
/// and what is read is noted. What reads a value fails where there is none of the name, or it is of
/// another dimension.
#[derive(Debug)]
pub struct Values<'c> {
    calibration: &'c Calibration,
    moved: Option<(String, f64)>,
    read: RefCell<Read>,
}

/// Which values were read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Read {
    /// Their names.
    pub names: BTreeSet<String>,
    /// Of them, those that were not read as whole counts only.
    pub exact: BTreeSet<String>,
}

impl Read {
    /// Whether what has read these values can see one move by a factor: two are two, also a fifth
    /// more or less of them.
    pub fn sees(&self, name: &str, leaf: &Leaf, factor: f64) -> bool {
        self.names.contains(name) && (self.exact.contains(name) || leaf.moves_whole(factor))
    }
}

impl<'c> Values<'c> {
    /// As it stands.
    pub fn new(calibration: &'c Calibration) -> Values<'c> {
        Values { calibration, moved: None, read: RefCell::default() }
    }
    /// With what has a name of [`moves_as`] multiplied, where there is any.
    pub fn of(calibration: &'c Calibration, moved: Option<(&str, f64)>) -> Values<'c> {
        let known = |(moved, _): &(&str, f64)| calibration.leaves.keys().any(|name| moves_as(name) == *moved);
        let moved = moved.filter(known).map(|(name, by)| (name.to_owned(), by));
        Values { calibration, moved, read: RefCell::default() }
    }
    /// The calibration.
    pub fn calibration(&self) -> &'c Calibration {
        self.calibration
    }
    /// What is multiplied, and by what.
    pub fn moved(&self) -> Option<(&str, f64)> {
        self.moved.as_ref().map(|(name, by)| (name.as_str(), *by))
    }
    /// These were read as well.
    pub fn also_read(&self, other: &Read) {
        let mut read = self.read.borrow_mut();
        read.names.extend(other.names.iter().cloned());
        read.exact.extend(other.exact.iter().cloned());
    }
    /// The values that were read.
    pub fn read(&self) -> Read {
        self.read.borrow().clone()
    }

    fn error(&self, leaf: Option<&Leaf>, problem: Problem) -> CalibrationError {
        CalibrationError { file: self.calibration.file.clone(), line: leaf.map(|leaf| leaf.line), problem }
    }
    fn leaf(&self, name: &str, wanted: Dimension) -> Result<(&'c Leaf, f64), CalibrationError> {
        let Some(leaf) = self.calibration.leaves.get(name) else {
            let nearest = nearest(name, self.calibration.leaves.keys().map(String::as_str));
            return Err(self.error(None, Problem::Missing { leaf: name.to_owned(), nearest }));
        };
        self.read.borrow_mut().names.insert(name.to_owned());
        match units::unit(&leaf.unit) {
            Some((dimension, factor)) if dimension == wanted => {
                let moved = self.moved().filter(|(moved, _)| moves_as(name) == *moved).map_or(1.0, |(_, by)| by);
                Ok((leaf, factor * moved))
            }
            _ => {
                let problem =
                    Problem::Dimension { leaf: name.to_owned(), unit: leaf.unit.clone(), expected: wanted.name() };
                Err(self.error(Some(leaf), problem))
            }
        }
    }

    /// Numbers in the base unit of a dimension.
    pub fn numbers(&self, name: &str, dimension: Dimension) -> Result<Vec<f64>, CalibrationError> {
        self.read.borrow_mut().exact.insert(name.to_owned());
        self.all_numbers(name, dimension)
    }
    fn all_numbers(&self, name: &str, dimension: Dimension) -> Result<Vec<f64>, CalibrationError> {
        let (leaf, factor) = self.leaf(name, dimension)?;
        match &leaf.value {
            Value::Numbers(numbers) => Ok(numbers.iter().map(|number| number * factor).collect()),
            Value::Text(text) => Err(self.error(
                Some(leaf),
                Problem::Range { leaf: name.to_owned(), got: text.clone(), expected: "a number".to_owned() },
            )),
        }
    }
    /// One number in the base unit of a dimension.
    ///
    /// # Errors
    /// As [`Values::numbers`], and when there is not exactly one.
    pub fn number(&self, name: &str, dimension: Dimension) -> Result<f64, CalibrationError> {
        self.read.borrow_mut().exact.insert(name.to_owned());
        self.one_number(name, dimension)
    }
    fn one_number(&self, name: &str, dimension: Dimension) -> Result<f64, CalibrationError> {
        self.this_many(name, self.all_numbers(name, dimension)?).map(|[number]| number)
    }
    /// A fixed number of numbers in the base unit of a dimension.
    ///
    /// # Errors
    /// As [`Values::numbers`], and when there are fewer or more.
    pub fn exactly<const N: usize>(&self, name: &str, dimension: Dimension) -> Result<[f64; N], CalibrationError> {
        self.this_many(name, self.numbers(name, dimension)?)
    }
    fn this_many<T, const N: usize>(&self, name: &str, all: Vec<T>) -> Result<[T; N], CalibrationError> {
        let counted = |count: usize| if count == 1 { "a single number".to_owned() } else { format!("{count} numbers") };
        all.try_into().map_err(|all: Vec<T>| {
            let (got, expected) = (counted(all.len()), counted(N));
            let problem = Problem::Range { leaf: name.to_owned(), got, expected };
            self.error(self.calibration.leaves.get(name), problem)
        })
    }
    /// A time.
    ///
    /// # Errors
    /// As [`Values::number`], and when it is negative.
    pub fn time(&self, name: &str) -> Result<Time, CalibrationError> {
        let ps = self.positive(name, Dimension::Time)?;
        Ok(Time((ps + 0.5) as u64))
    }
    /// A time that a part's clock gives: cycles at a frequency.
    pub fn cycles(&self, name: &str, clock: &str) -> Result<Time, CalibrationError> {
        let (cycles, hertz) = (self.positive(name, Dimension::Cycles)?, self.positive(clock, Dimension::Frequency)?);
        Ok(Time((cycles * 1e12 / hertz + 0.5) as u64))
    }
    /// A share or a factor.
    pub fn share(&self, name: &str) -> Result<f64, CalibrationError> {
        self.number(name, Dimension::Share)
    }
    /// Bytes.
    pub fn bytes(&self, name: &str) -> Result<f64, CalibrationError> {
        self.positive(name, Dimension::Bytes)
    }
    /// A count of at least one. One that was moved is rounded.
    pub fn count(&self, name: &str) -> Result<u64, CalibrationError> {
        Ok(whole(self.positive(name, Dimension::Count)?))
    }
    /// Counts, each as [`Values::count`] has it.
    pub fn counts(&self, name: &str) -> Result<Vec<u64>, CalibrationError> {
        Ok(self.all_numbers(name, Dimension::Count)?.into_iter().map(whole).collect())
    }
    /// Words.
    pub fn text(&self, name: &str) -> Result<&'c str, CalibrationError> {
        match self.leaf(name, Dimension::Text)?.0 {
            Leaf { value: Value::Text(text), .. } => Ok(text),
            leaf => Err(self.error(
                Some(leaf),
                Problem::Range { leaf: name.to_owned(), got: "a number".to_owned(), expected: "text".to_owned() },
            )),
        }
    }

    fn positive(&self, name: &str, dimension: Dimension) -> Result<f64, CalibrationError> {
        let number = self.one_number(name, dimension)?;
        if number < 0.0 {
            let got = format!("{number}");
            let problem =
                Problem::Range { leaf: name.to_owned(), got, expected: "a number of at least zero".to_owned() };
            return Err(self.error(self.calibration.leaves.get(name), problem));
        }
        Ok(number)
    }
}
