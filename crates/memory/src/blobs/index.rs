//! What leads from keys to values: a hash map, or a trie for keys in order.

use fulgurite_runtime::AccessError;

use crate::{HashMap, KeyHash, Latch, Masstree, Memory, hash_bytes};

/// The longest byte string that is a key: 64 KiB.
pub const KEY_BYTES_MAX: usize = 1 << 16;

/// A map from keys to words that survives failed accesses: a failed change has changed nothing.
pub trait BlobIndex {
    /// Keys.
    type Key: ?Sized;
    /// Its latch.
    type Latch: Latch;
    /// Refuses what cannot be a key.
    fn fits(key: &Self::Key) -> Result<(), AccessError>;
    /// A hash that is equal for equal keys.
    fn hash(key: &Self::Key) -> u64;
    /// The word of a key.
    fn word<M: Memory>(&self, memory: &mut M, key: &Self::Key) -> Result<Option<u64>, AccessError>;
    /// Sets the word of a key, and returns the one that it had.
    fn set<M: Memory>(&self, memory: &mut M, key: &Self::Key, word: u64) -> Result<Option<u64>, AccessError>;
    /// Removes a key, and returns the word that it had.
    fn unset<M: Memory>(&self, memory: &mut M, key: &Self::Key) -> Result<Option<u64>, AccessError>;
    /// Checks its invariants, and shows the word of each key. Nothing may change it meanwhile.
    fn check_words<M: Memory>(&self, memory: &mut M, each: &mut dyn FnMut(u64)) -> Result<(), AccessError>;
}

impl<K: KeyHash + Eq, L: Latch> BlobIndex for HashMap<K, u64, L> {
    type Key = K;
    type Latch = L;
    fn fits(_: &K) -> Result<(), AccessError> {
        Ok(())
    }
    #[inline]
    fn hash(key: &K) -> u64 {
        key.key_hash()
    }
    #[inline]
    fn word<M: Memory>(&self, memory: &mut M, key: &K) -> Result<Option<u64>, AccessError> {
        self.get(memory, key)
    }
    fn set<M: Memory>(&self, memory: &mut M, key: &K, word: u64) -> Result<Option<u64>, AccessError> {
        self.insert(memory, key, word)
    }
    fn unset<M: Memory>(&self, memory: &mut M, key: &K) -> Result<Option<u64>, AccessError> {
        self.remove(memory, key)
    }
    fn check_words<M: Memory>(&self, memory: &mut M, each: &mut dyn FnMut(u64)) -> Result<(), AccessError> {
        self.check(memory)?;
        self.for_each(memory, |_, word| each(*word))
    }
}

impl<L: Latch> BlobIndex for Masstree<L> {
    type Key = [u8];
    type Latch = L;
    fn fits(key: &[u8]) -> Result<(), AccessError> {
        if key.len() <= KEY_BYTES_MAX {
            return Ok(());
        }
        Err(AccessError::TooLong { what: "key", bytes: key.len() as u64, most: KEY_BYTES_MAX as u64 })
    }
    #[inline]
    fn hash(key: &[u8]) -> u64 {
        hash_bytes(key)
    }
    #[inline]
    fn word<M: Memory>(&self, memory: &mut M, key: &[u8]) -> Result<Option<u64>, AccessError> {
        self.get(memory, key)
    }
    fn set<M: Memory>(&self, memory: &mut M, key: &[u8], word: u64) -> Result<Option<u64>, AccessError> {
        self.insert(memory, key, word)
    }
    fn unset<M: Memory>(&self, memory: &mut M, key: &[u8]) -> Result<Option<u64>, AccessError> {
        self.remove(memory, key)
    }
    fn check_words<M: Memory>(&self, memory: &mut M, each: &mut dyn FnMut(u64)) -> Result<(), AccessError> {
        self.check(memory)?;
        self.scan(memory, b"", usize::MAX, |_, word| {
            each(word);
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(())
    }
}
