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
    let deviations = inputs.numbers("system.deviations", Dimension::Time)?;
    let [slc_total, slc_hardware, mlc_total, mlc_hardware] = deviations[..] else {
        return Err(CheckError::NoAnswer("system.deviations needs four times".to_owned()));
    };
    let wider = f64::midpoint(slc_total / slc_hardware, mlc_total / mlc_hardware);
    let why = "read, 4 KB at 400 MB/s, and the host's interface";
    let total = "hardware as above, and the software's mean, which is an input";
    Ok(vec![
        Finding::within("hardware-slc", "38,901 ns", of_slc, "ns", band(38_901.0), why),
        Finding::within("hardware-mlc", "88,750 ns", of_mlc, "ns", band(88_750.0), why),
        Finding::within("total-slc", "85,361 ns", of_slc + soft_slc, "ns", band(85_361.0), total),
        Finding::within("total-mlc", "162,149 ns", of_mlc + soft_mlc, "ns", band(162_149.0), total),
        Finding::within(
            "share-slc",
            "54.43% of software",
            soft_slc / (of_slc + soft_slc) * 100.0,
            "%",
            band(54.43),
            total,
        ),
        Finding::within(
            "share-mlc",
            "45.27% of software",
            soft_mlc / (of_mlc + soft_mlc) * 100.0,
            "%",
            band(45.27),
            total,
        ),
        Finding::within(
            "deviation",
            "the total deviates roughly five times as much as the hardware",
            wider,
            "times",
            (4.25, 5.75),
            "of the deviations that table 3 has, which are inputs",
        ),
        Finding::trend(
            "constant",
            "the software's time remains relatively constant",
            soft_mlc / soft_slc < mlc.as_ns() / slc.as_ns(),
            (soft_mlc / soft_slc, "times at MLC"),
            "it grows by 27 µs, and less than the latency does",
        ),
    ])
}
