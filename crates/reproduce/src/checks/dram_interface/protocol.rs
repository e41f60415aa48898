//! C3: the entries, the order of the steps, the barrier, and conflicts in the banks.

use fulgurite_device::{Command, Ended, Status};

use super::system::{Op, load, prototype, run as run_load};
use crate::check::{Finding, Found, Inputs};
use crate::models::Planted;
use crate::models::protocol::{conflicts, stale_orders};
use crate::units::Dimension;

/// Cycles of the banks in a run.
const CYCLES: u64 = 400_000;

pub fn run(inputs: &Inputs<'_>) -> Found {
    let command = Command { id: 513, opcode: 2, flags: 0, sector: 1 << 33 | 7, count: 64, buffer: 96, argument: 0 };
    let ended = Ended { id: 513, status: Status::UNREADABLE, result: 0 };
    let entries = Command::unpack(command.pack()) == command && Ended::unpack(ended.pack()) == ended;

    let system = prototype(inputs, true)?;
    let steps = |op| -> Result<Vec<u8>, _> {
        let report = run_load(&system, load(op, 4096, 1, false, inputs))?;
        Ok::<_, crate::CheckError>(report.first_steps.iter().map(|(step, _)| *step).collect())
    };
    let in_order = steps(Op::Read)? == [2, 3, 4, 5, 7, 9] && steps(Op::Write)? == [1, 2, 3, 4, 5, 7];

    // Words of a cache line of data, and words of an entry.
    let (data, words) = (8, fulgurite_device::SUBMISSION_WORDS as u32);
    let stale = stale_orders(data, words, inputs.planted != Some(Planted::NoBarrier));
    let without = stale_orders(data, words, false);

    let banks = inputs.count("chip.banks")?;
    let width = inputs.number("chip.host_width", Dimension::Bits)?;
    let transfers = inputs.number("chip.host_interface", Dimension::Frequency)? * inputs.share("chip.edges")?;
    let host = inputs.number("driver.dma", Dimension::Rate)? / (transfers * width / 8.0);
    let cycles = inputs.volume(CYCLES * 20).max(CYCLES);
    let share = conflicts(banks, host, 0.5, cycles, inputs.seed);
    Ok(vec![
        Finding::of("entries", "submission: id, opcode, start, count, buffer; completion: id, status")
            .trend(entries, 8.0 * words as f64, "bytes of a submission entry")
            .by("the codec of fulgurite-device gives back each field"),
        Finding::of("order", "the nine steps in their order")
            .trend(in_order, 9.0, "steps")
            .by("times of the stages of a read and of a write; 6 follows 5 and 8 follows 7 at once"),
        Finding::of("barrier", "write data before the command, by a barrier")
            .within(stale as f64, "orders with stale data", (0.0, 0.0))
            .by("all orders in which the stores of a write may become visible")
            .also("without the barrier", without as f64),
        Finding::of("conflicts", "below 1/8")
            .within(share, "of the controller's accesses", (0.0, 0.125))
            .by("the host comes first in one of eight banks, at the rate of its DMA engine")
            .also("the host's share of the cycles / 8", host / banks as f64),
    ])
}
