//! A `Flash` as a block device for other programs, over the NBD protocol.
//!
//! Holds a server ([`NbdServer`]) for fixed newstyle clients: fio, qemu, libnbd's tools, the
//! kernel's nbd driver. It serves one export, to many clients at a time, over a Unix socket of its
//! owner's or over TCP on loopback.
//!
//! ```text
//!              a client's socket
//!    commands │                 ▲ replies, in any order
//!      ┌──────▼──────┐   ┌──────┴──────┐
//!      │ reader      │──►│ engine      │   two threads for each client; between them the commands
//!      │ checks all  │   │ owns a queue│   that were read, and the frames that payloads are in
//!      └─────────────┘   └──────┬──────┘
//!                               ▼ subpages, up to `depth` in flight
//!                             Flash
//! ```
//!
//! Invariants: nothing a client sends crashes the server, or makes it keep more than was decided
//! when the client connected. What is wrong in itself is answered by an error, what breaks the
//! framing or the time ends that connection. A write that was replied to is seen by all clients. A
//! flush, or a write with FUA, is durable when it is replied to. Ranges of bytes that are no whole
//! subpages are read, changed and written back, and lose nothing that others write next to them.
//!
//! What it does not do: TLS and passwords (so nothing but loopback), block status and resizing.
//! Where the medium has no trim, the flag is not offered, and a client that asks nevertheless gets
//! ENOTSUP. There are no time-outs of the medium either: a hanging medium hangs its clients, which
//! have time-outs of their own.
#![forbid(unsafe_code)]

mod address;
mod counters;
mod engine;
mod error;
mod exchange;
#[cfg(test)]
mod fuzz;
mod negotiate;
mod reader;
mod server;
mod stream;
mod wire;
mod write_locks;

pub use address::NbdAddress;
pub use counters::NbdCounters;
pub use error::NbdError;
pub use server::{NbdConfig, NbdServer};
