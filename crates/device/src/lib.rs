//! Flash behind the DRAM interface: loads and stores to a small shared memory reach a device, with
//! queues and firmware, and no kernel on the data path.
//!
//! After *Design and Implementation of a Mobile Storage Leveraging the DRAM Interface* (Seo et
//! al.), whose figure 2 has nine steps:
//!
//! ```text
//!   host                              shared memory                       device
//!   #1 write: data to the buffer      [ data buffer       ]
//!   #2 submit; ring the doorbell      [ submission queue  ]  ──>   #3 fetch, check
//!                                     [ data buffer       ]  <──   #4 execute
//!                                     [ completion queue  ]  <──   #5 complete
//!                                                                  #6 notify, if the host sleeps
//!   #7 find the completion
//!   #8 process it
//!   #9 read: data from the buffer     [ data buffer       ]
//! ```
//!
//! | step | where |
//! |---|---|
//! | 1, 2, 7, 8, 9 | the host driver, [`DeviceFlash`] |
//! | 3, 4, 5, 6 | [`Firmware`], turned by a [`Device`]'s thread |
//! | the memory between them | [`Region`], the rings and bells in it |
//!
//! Where the host's frames can be the data buffer (same process), steps 1 and 9 move nothing.
//!
//! Behind the firmware is any [`fulgurite_flash::Flash`]: plain memory, a file, or the journaled
//! store over NAND as the translation layer. [`DeviceFlash`] is one again, for the runtime.
//!
//! Invariants: whatever the other side writes into the shared memory, neither side panics, touches
//! anything outside the data buffer, or completes a request that has not ended. Each request
//! completes exactly once.
//!
//! What this crate does not do: it keeps no data (media do), it translates nothing (the store
//! does), and it does not model NAND.
#![deny(unsafe_code)]

mod bell;
mod boot;
mod cached;
#[expect(unsafe_code, reason = "media promise what no type can check")]
mod contract;
mod device;
mod dram;
mod entry;
mod firmware;
mod host;
mod hosts;
mod identity;
mod planted;
mod region;
mod ring;
mod session;
mod socket;
mod standing;
mod window;

pub use bell::Bell;
pub use boot::BootImage;
pub use cached::CachedFlash;
pub use device::{Attachment, Device, DeviceConfig, Life};
pub use dram::DeviceDram;
pub use entry::{
    COMPLETION_WORDS, Command, DEPTH_MAX, Ended, NO_ID, Opcode, SAY_CHECKSUM, SECTOR_BYTES, SUBMISSION_WORDS, Status,
    VERIFY_CHECKSUM,
};
pub use firmware::{Backend, Closing, Firmware, FirmwareConfig, FirmwareCounters, Port, Wake};
pub use host::{Buddy, Commands, DeviceFlash, Done, Hold, HostConfig, HostCounters, Link, Linked, OldState, Want};
pub use hosts::HostIdentity;
pub use identity::Identity;
#[doc(hidden)]
pub use planted::{PlantedPanic, PlantedReplay};
pub use region::{Capability, DeviceStatus, Features, PAIRS_MAX, Region, RegionError};
pub use ring::{Consumer, Damaged, Producer};
pub use socket::{Listening, Server, ServerConfig, SocketError, SocketLink};
pub use standing::Standing;
