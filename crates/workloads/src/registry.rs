//! The workloads by name: what the command line and the tables know of them, and the way from a
//! name to a type.
//!
//! A workload is a type, so that its loops are compiled for the memory and latch they run on. A
//! name becomes a type in [`dispatch`] only, once per run.

use fulgurite_memory::Latch;

use crate::Workload;

/// One line of the list of workloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listing {
    /// Its name on the command line: [`Workload::NAME`].
    pub name: &'static str,
    /// What a request does.
    pub description: &'static str,
    /// Whether at most one request in ten changes anything.
    pub read_mostly: bool,
}

/// The seven workloads of AstriFlash's figure 9, in its order.
pub const THE_SEVEN: [&str; 7] = ["array-swap", "rbt", "hash-table", "tatp", "tpcc", "silo", "masstree"];

/// NVMM's workloads, whose keys are uniform unless something else is asked for.
pub const UNIFORM: [&str; 3] = ["gups", "gups-read", "mmap-bench"];

/// No workload has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no workload \"{name}\"; did you mean \"{nearest}\"? All of them: {}", names().join(", "))]
pub struct UnknownWorkload {
    /// What was asked for.
    pub name: String,
    /// The workload whose name is most like it.
    pub nearest: &'static str,
}

/// What to do with a workload once its type is known.
pub trait Visitor {
    /// What comes out.
    type Output;
    /// Does it.
    fn visit<W: Workload>(self) -> Self::Output;
}

macro_rules! workloads {
    ($($name:literal $kind:ty, $read_mostly:literal, $description:literal;)*) => {
        const LISTINGS: &[Listing] =
            &[$(Listing { name: $name, description: $description, read_mostly: $read_mostly }),*];
        const NAMES: &[&str] = &[$($name),*];

        fn dispatch_known<L: Latch, V: Visitor>(name: &str, visitor: V) -> Option<V::Output> {
            match name {
                $($name => Some(visitor.visit::<$kind>()),)*
                _ => None,
            }
        }
    };
}

workloads! {
    "array-swap" crate::ArraySwap<L>, false, "swaps two elements of an array";
    "rbt" crate::Rbt<L>, true, "looks up keys in a red-black tree, changes one in ten";
    "hash-table" crate::HashTable<L>, true, "looks up keys in a chained hash table, updates one in ten";
    "tatp" crate::Tatp<L>, false, "TATP's update of subscriber data: a row in each of two tables";
    "tpcc" crate::Tpcc<L>, false, "TPC-C's new order";
    "tpcc-mix" crate::TpccMix<L>, false, "TPC-C's five transactions by the standard's shares";
    "silo" crate::SiloYcsb<L>, false, "YCSB transactions under optimistic concurrency control";
    "masstree" crate::MasstreeStore<L>, true, "gets, and one put in twenty, of string keys in a trie of B+-trees";
    "blobs" crate::BlobValues<L>, true, "gets values (--value), and puts the next version of some (--mix)";
    "gups" crate::Gups<L>, false, "reads a random word of a table and writes it back, changed (NVMM's GUPS)";
    "gups-read" crate::GupsRead<L>, true, "reads a random word of a table";
    "mmap-bench" crate::MmapBench<L>, true, "reads a file at random places (NVMM's MMAP)";
    "search" crate::Search<L>, true, "ranks the files that hold two or three words, and shows the best with snippets";
}

/// All workloads.
#[must_use]
pub fn all() -> &'static [Listing] {
    LISTINGS
}

/// The names of all workloads.
#[must_use]
pub fn names() -> &'static [&'static str] {
    NAMES
}

/// Calls `visitor` with the workload of this name, over latches of type `L`.
///
/// # Errors
/// When there is none. The error suggests the nearest.
pub fn dispatch<L: Latch, V: Visitor>(name: &str, visitor: V) -> Result<V::Output, UnknownWorkload> {
    dispatch_known::<L, V>(name, visitor).ok_or_else(|| {
        let distance = |known: &&&str| strsim::damerau_levenshtein(&name.to_lowercase(), known);
        let nearest = NAMES.iter().min_by_key(distance).expect("there are workloads");
        UnknownWorkload { name: name.to_owned(), nearest }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_memory::NoLatch;

    struct Name;
    impl Visitor for Name {
        type Output = &'static str;
        fn visit<W: Workload>(self) -> &'static str {
            W::NAME
        }
    }

    #[test]
    fn names_lead_to_their_workloads() {
        for listing in all() {
            assert_eq!(dispatch::<NoLatch, _>(listing.name, Name), Ok(listing.name));
        }
        assert_eq!(names().len(), all().len());
    }
    #[test]
    fn the_seven_are_there() {
        assert!(THE_SEVEN.iter().chain(&UNIFORM).all(|name| names().contains(name)));
        assert!(UNIFORM.iter().all(|name| !THE_SEVEN.contains(name)));
    }
    #[test]
    fn a_slip_is_understood() {
        let error = dispatch::<NoLatch, _>("Array-Swpa", Name).unwrap_err();
        assert_eq!((error.name.as_str(), error.nearest), ("Array-Swpa", "array-swap"));
        assert!(error.to_string().contains("did you mean \"array-swap\"?"));
        assert!(dispatch::<NoLatch, _>("", Name).is_err());
    }
}
