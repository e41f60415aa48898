//! The device behind DRAM: `nand` as it is, or a drive of which a data sheet tells its rates.

use crate::memory::FlashPages;
use crate::time::Time;

/// Marks what no frame waits for: pages that are written, and pages that cleaning reads.
pub const WRITE: u64 = 1 << 40;
pub const CLEANING: u64 = 1 << 41;
/// Marks what a thread waits for that has written a page through the system.
pub const SYNC: u64 = 1 << 42;

/// What a drive is said to be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RatedShape {
    /// A read of a page on an idle drive.
    pub read: Time,
    /// A write.
    pub write: Time,
    /// Requests that it serves at once.
    pub planes: u32,
    /// Random reads of a page a second, at any depth.
    pub reads_per_s: f64,
    /// Random writes of a page a second, over the whole drive, in place.
    pub writes_per_s: f64,
    /// Bytes a second of sequential reads.
    pub read_rate: f64,
    /// Bytes a second of sequential writes: what a log has.
    pub write_rate: f64,
}

/// A drive: until when its parts are busy.
#[derive(Clone, Debug)]
pub struct Rated {
    shape: RatedShape,
    page: u64,
    planes: Vec<Time>,
    gate: Time,
    busy: Time,
}

fn seconds(seconds: f64) -> Time {
    Time((seconds * 1e12 + 0.5) as u64)
}

impl Rated {
    /// An idle one, of pages of `page` bytes.
    pub fn new(shape: RatedShape, page: u64) -> Rated {
        Rated { shape, page, planes: vec![Time::ZERO; shape.planes as usize], gate: Time::ZERO, busy: Time::ZERO }
    }
    fn serve(&mut self, now: Time, place: u32, takes: Time, latency: Time) -> Time {
        let through = now.max(self.gate);
        self.gate = through + takes;
        self.busy += takes;
        let plane = place as usize % self.planes.len();
        let ends = through.max(self.planes[plane]) + latency.max(takes);
        self.planes[plane] = ends;
        ends
    }
    /// Reads pages that are next to each other.
    pub fn read(&mut self, now: Time, place: u32, pages: u32) -> Time {
        let further = seconds(self.page as f64 * f64::from(pages - 1) / self.shape.read_rate);
        let takes = seconds(1.0 / self.shape.reads_per_s) + further;
        self.serve(now, place, takes, self.shape.read + further)
    }
    /// Writes a page in place, or to a log.
    pub fn write(&mut self, now: Time, place: u32, to_log: bool) -> Time {
        let shape = self.shape;
        let takes = if to_log { self.page as f64 / shape.write_rate } else { 1.0 / shape.writes_per_s };
        self.serve(now, place, seconds(takes), shape.write)
    }
}

/// Pages on a device.
#[derive(Debug)]
pub enum Device {
    /// NAND, with how many of its pages a page of this model takes.
    Nand(Box<FlashPages>, u32),
    /// A drive.
    Rated(Rated),
}

impl Device {
    /// Reads pages in one request, each for a tag. Returns when they are there, or none, when the
    /// tags come back: each as often as the device has pages for it.
    pub fn read(&mut self, now: Time, pages: &[(u32, u64)]) -> Option<Time> {
        match self {
            Device::Nand(flash, of_page) => {
                for (place, tag) in pages {
                    let first = place * *of_page;
                    (first..first + *of_page).for_each(|page| flash.read(now, page, *tag));
                }
                None
            }
            Device::Rated(rated) => Some(rated.read(now, pages.first()?.0, pages.len() as u32)),
        }
    }
    /// Writes a page for a tag. As [`Device::read`].
    pub fn write(&mut self, now: Time, place: u32, to_log: bool, tag: u64) -> Option<Time> {
        match self {
            Device::Nand(flash, of_page) => {
                let first = place * *of_page;
                (first..first + *of_page).for_each(|page| flash.write_and_tell(now, page, tag));
                None
            }
            Device::Rated(rated) => Some(rated.write(now, place, to_log)),
        }
    }
    /// How often a tag comes back.
    pub fn parts(&self) -> u32 {
        match self {
            Device::Nand(_, of_page) => *of_page,
            Device::Rated(_) => 1,
        }
    }
    /// When something may come back.
    pub fn next_at(&self) -> Option<Time> {
        match self {
            Device::Nand(flash, _) => flash.next_at(),
            Device::Rated(_) => None,
        }
    }
    /// What a reader has to know.
    pub fn warning(&self) -> Option<String> {
        match self {
            Device::Nand(flash, _) => flash.reclaimed().warning("run longer"),
            Device::Rated(_) => None,
        }
    }
    /// Joules that were counted, and seconds in which it was busy.
    pub fn spent(&self) -> (f64, f64) {
        match self {
            Device::Nand(flash, _) => (flash.energy_j(), 0.0),
            Device::Rated(rated) => (0.0, rated.busy.as_s()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_serves_as_many_as_its_sheet_says() {
        let shape = RatedShape {
            read: Time::us(100),
            write: Time::us(90),
            planes: 10,
            reads_per_s: 35_000.0,
            writes_per_s: 3300.0,
            read_rate: 250e6,
            write_rate: 170e6,
        };
        let mut drive = Rated::new(shape, 4096);
        assert_eq!(drive.read(Time::ZERO, 0, 1), Time::us(100));
        let rate = |ends: Time, count: f64| count / ends.as_s();
        let mut drive = Rated::new(shape, 4096);
        let last = (1..=10_000).map(|place| drive.read(Time::ZERO, place * 7, 1)).max().unwrap();
        assert!((rate(last, 10_000.0) / 35_000.0 - 1.0).abs() < 0.01);
        let mut drive = Rated::new(shape, 4096);
        let last = (0..3300).map(|place| drive.write(Time::ZERO, place, false)).max().unwrap();
        assert!((last.as_s() - 1.0).abs() < 0.01, "{last}");
        let mut drive = Rated::new(shape, 4096);
        let last = (0..41_504).map(|place| drive.write(Time::ZERO, place, true)).max().unwrap();
        assert!((last.as_s() - 1.0).abs() < 0.01, "{last}");
    }
}
