//! The workloads by name, and the way from a name to a type.
//!
//! A workload is a type, so that its loops are compiled for the memory and latch they run on. A
//! name becomes a type in [`dispatch`] only, once per run.

use fulgurite_memory::{Latch, NoLatch};

use crate::Workload;

/// The seven workloads of AstriFlash's figure 9, in its order.
pub const THE_SEVEN: [&str; 7] = ["array-swap", "rbt", "hash-table", "tatp", "tpcc", "silo", "masstree"];

/// NVMM's workloads, whose keys are uniform unless something else is asked for.
pub const UNIFORM: [&str; 2] = ["gups", "mmap-bench"];

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
    ($($name:literal $kind:ty;)*) => {
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
    "array-swap" crate::ArraySwap<L>;
    "rbt" crate::Rbt<L>;
    "hash-table" crate::HashTable<L>;
    "tatp" crate::Tatp<L>;
    "tpcc" crate::Tpcc<L>;
    "tpcc-mix" crate::TpccMix<L>;
    "silo" crate::SiloYcsb<L>;
    "masstree" crate::MasstreeStore<L>;
    "blobs" crate::BlobValues<L>;
    "gups" crate::Gups<L>;
    "mmap-bench" crate::MmapBench<L>;
    "search" crate::Search<L>;
}

/// The names of all workloads.
#[must_use]
pub fn names() -> &'static [&'static str] {
    NAMES
}

/// [`Workload::GETS`] of the workload of this name.
#[must_use]
pub fn gets(name: &str) -> Option<u32> {
    struct Gets;
    impl Visitor for Gets {
        type Output = Option<u32>;
        fn visit<W: Workload>(self) -> Option<u32> {
            W::GETS
        }
    }
    dispatch_known::<NoLatch, _>(name, Gets).flatten()
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

    struct Name;
    impl Visitor for Name {
        type Output = &'static str;
        fn visit<W: Workload>(self) -> &'static str {
            W::NAME
        }
    }

    #[test]
    fn names_lead_to_their_workloads() {
        for name in names() {
            assert_eq!(dispatch::<NoLatch, _>(name, Name), Ok(*name));
        }
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
