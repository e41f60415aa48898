//! The commands that measure.

mod beside;
mod calibrate;
pub mod checkpoint;
pub mod demo;
mod disturbance;
mod fio;
mod floor;
mod image;
pub mod live;
mod medium;
pub mod micro;
pub mod policies;
mod rounds;
mod session;
pub mod store;
pub mod survive;
pub mod tail;
