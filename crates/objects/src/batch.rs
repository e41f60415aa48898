//! Dirty objects on their way to flash.

/// Copies of dirty objects, oldest first, for one write.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Each number, and where its bytes end.
    ends: Vec<(u32, usize)>,
    bytes: Vec<u8>,
}

impl Batch {
    /// An empty one.
    pub fn new() -> Batch {
        Batch::default()
    }
    pub(crate) fn push(&mut self, number: u32, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push((number, self.bytes.len()));
    }
    /// How many objects it has.
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// Bytes of all objects.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
    /// The objects. Those that were freed have no bytes.
    pub fn objects(&self) -> Vec<(u32, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        self.ends.iter().zip(starts).map(|((number, end), start)| (*number, &self.bytes[start..*end])).collect()
    }
    /// Their numbers.
    pub fn numbers(&self) -> Vec<u32> {
        self.ends.iter().map(|(number, _)| *number).collect()
    }
}
