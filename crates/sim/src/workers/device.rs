//! The device below a worker's frames, by what was measured of it: latencies, how many requests it
//! serves at once, and how many a second at most.

use crate::planted::Planted;
use crate::time::Time;

/// What a device was measured to be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceShape {
    /// From request to completion of a read on an idle device.
    pub read: Time,
    /// Latency of a write.
    pub write: Time,
    /// Requests served at once: subpage s is on plane s mod `planes`.
    pub planes: u32,
    /// The least time between two reads that begin, whatever the depth.
    pub read_gap: Time,
    /// The least time between two writes that begin.
    pub write_gap: Time,
    /// Subpages that the store reads and writes again for each that is written back.
    pub copies: f64,
}

/// A device: until when its parts are busy.
#[derive(Clone, Debug)]
pub struct Device {
    shape: DeviceShape,
    planes: Vec<Time>,
    gate: Time,
    /// Copies that are owed, below one.
    owed: f64,
    reads: u64,
    writes: u64,
    planted: Planted,
}

impl Device {
    /// An idle one, with a bug that is planted.
    pub fn new(shape: DeviceShape, planted: Planted) -> Device {
        let planes = vec![Time::ZERO; shape.planes as usize];
        Device { shape, planes, gate: Time::ZERO, owed: 0.0, reads: 0, writes: 0, planted }
    }
    fn serve(&mut self, now: Time, subpage: u32, gap: Time, latency: Time) -> Time {
        let through = now.max(self.gate);
        self.gate = through + gap;
        let plane = subpage as usize % self.planes.len();
        let free = if self.planted == Planted::EndlessPlanes { Time::ZERO } else { self.planes[plane] };
        let ends = through.max(free) + latency;
        self.planes[plane] = ends;
        ends
    }
    /// Reads a subpage. Returns when it is there.
    pub fn read(&mut self, now: Time, subpage: u32) -> Time {
        self.reads += 1;
        self.serve(now, subpage, self.shape.read_gap, self.shape.read)
    }
    /// Writes a subpage back, with the copies that this makes the store do. Returns when it is
    /// written.
    pub fn write(&mut self, now: Time, subpage: u32) -> Time {
        self.writes += 1;
        let ends = self.serve(now, subpage, self.shape.write_gap, self.shape.write);
        self.owed += self.shape.copies;
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            // Elsewhere on the device.
            let other = subpage.wrapping_mul(0x9e37_79b1) ^ self.reads as u32;
            self.read(now, other);
            self.writes += 1;
            self.serve(now, other, self.shape.write_gap, self.shape.write);
        }
        ends
    }
    /// Reads and writes so far, copies included.
    pub fn counts(&self) -> (u64, u64) {
        (self.reads, self.writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: DeviceShape = DeviceShape {
        read: Time::us(50),
        write: Time::us(100),
        planes: 4,
        read_gap: Time::ZERO,
        write_gap: Time::ZERO,
        copies: 0.0,
    };

    #[test]
    fn planes_work_at_once_and_one_in_turn() {
        let mut device = Device::new(SHAPE, Planted::None);
        assert_eq!(device.read(Time::us(1), 0), Time::us(51));
        assert_eq!(device.read(Time::us(1), 1), Time::us(51));
        assert_eq!(device.read(Time::us(1), 4), Time::us(101));
        device.write(Time::us(1), 1);
        assert_eq!(device.read(Time::us(2), 5), Time::us(201));
        assert_eq!(device.counts(), (4, 1));
    }
    #[test]
    fn a_gap_limits_the_rate_and_not_the_latency() {
        let mut device = Device::new(DeviceShape { read_gap: Time::us(10), planes: 1000, ..SHAPE }, Planted::None);
        let ends: Vec<Time> = (0..3).map(|subpage| device.read(Time::ZERO, subpage)).collect();
        assert_eq!(ends, [Time::us(50), Time::us(60), Time::us(70)]);
    }
    #[test]
    fn copies_come_in_their_share() {
        let mut device = Device::new(DeviceShape { copies: 1.5, ..SHAPE }, Planted::None);
        (0..10).for_each(|subpage| _ = device.write(Time::ZERO, subpage));
        assert_eq!(device.counts(), (15, 25));
    }
}
