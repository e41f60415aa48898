//! What a program is to its clients: requests, and how they are executed.

use anyhow::Result;

use super::memory::Counted;

/// A request: what to do with which key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub key: u64,
    pub writes: bool,
    /// A number of its own, which what it writes is made of.
    pub number: u64,
}

/// What a client does with what executes a request: all of its requests, one after the other.
pub type Drive<'d> = &'d mut (dyn FnMut(&mut dyn FnMut(Request) -> Result<()>) -> Result<()> + Send);

/// A program with its data, in whichever configuration.
pub trait Program: Send + Sync {
    /// How many keys requests may name.
    fn keys(&self) -> u64;
    /// Is a client until `drive` ends. Several threads call at a time.
    ///
    /// # Errors
    /// What `drive` says. A request fails when the program finds something other than it wrote, or
    /// when the memory is full.
    fn client(&self, drive: Drive<'_>) -> Result<()>;
    /// Walks all data, and returns a number that depends on what is there, and not on when it came.
    ///
    /// # Errors
    /// When it finds something other than it wrote.
    fn check(&self) -> Result<u64>;
    /// What has been counted since the beginning. None where the kernel counts.
    fn counted(&self) -> Option<Counted>;
    /// How its memory works, in a line.
    fn describe(&self) -> String;
}

/// A program over an allocator, which names the allocator where it allocates only.
pub trait Plain: Send + Sync {
    /// As [`Program::keys`].
    fn keys(&self) -> u64;
    /// Executes a request. Several threads call at a time.
    ///
    /// # Errors
    /// As [`Program::client`].
    fn execute(&self, request: Request) -> Result<()>;
    /// As [`Program::check`].
    ///
    /// # Errors
    /// As that.
    fn check(&self) -> Result<u64>;
}
