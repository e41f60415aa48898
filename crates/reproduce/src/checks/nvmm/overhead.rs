//! D13: an access to the SSD, in hardware and in software.

use super::memory::{flash, software};
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

pub fn run(inputs: &Inputs<'_>) -> Found {
    let (slc, mlc) = (inputs.time("flash.slc")?, inputs.time("flash.mlc")?);
    let interface = inputs.time("system.interface")?;
    let hardware = |read| -> Result<f64, CheckError> {
        let flash = flash(inputs, read)?;
        Ok((flash.read + flash.transfer() + interface).as_ns())
    };
    let (of_slc, of_mlc) = (hardware(slc)?, hardware(mlc)?);
    let (soft_slc, soft_mlc) = (software(inputs, slc)?.as_ns(), software(inputs, mlc)?.as_ns());
    let band = |stated: f64| (stated * 0.95, stated * 1.05);
    let [slc_total, slc_hardware, mlc_total, mlc_hardware] = inputs.exactly("system.deviations", Dimension::Time)?;
    let wider = f64::midpoint(slc_total / slc_hardware, mlc_total / mlc_hardware);
    let why = "read, 4 KB at 400 MB/s, and the host's interface";
    let total = "hardware as above, and the software's mean, which is an input";
    Ok(vec![
        Finding::of("hardware-slc", "38,901 ns").within(of_slc, "ns", band(38_901.0)).by(why),
        Finding::of("hardware-mlc", "88,750 ns").within(of_mlc, "ns", band(88_750.0)).by(why),
        Finding::of("total-slc", "85,361 ns").within(of_slc + soft_slc, "ns", band(85_361.0)).by(total),
        Finding::of("total-mlc", "162,149 ns").within(of_mlc + soft_mlc, "ns", band(162_149.0)).by(total),
        Finding::of("share-slc", "54.43% of software")
            .within(soft_slc / (of_slc + soft_slc) * 100.0, "%", band(54.43))
            .by(total),
        Finding::of("share-mlc", "45.27% of software")
            .within(soft_mlc / (of_mlc + soft_mlc) * 100.0, "%", band(45.27))
            .by(total),
        Finding::of("deviation", "the total deviates roughly five times as much as the hardware")
            .within(wider, "times", (4.25, 5.75))
            .by("of the deviations that table 3 has, which are inputs"),
        Finding::of("constant", "the software's time remains relatively constant")
            .trend(soft_mlc / soft_slc < mlc.as_ns() / slc.as_ns(), soft_mlc / soft_slc, "times at MLC")
            .by("it grows by 27 µs, and less than the latency does"),
    ])
}
