//! D6 and D10: four kinds of programs on the three systems, by technology.
//!
//! Rates of accesses and numbers of cores are missing in the text, so these are signs. The
//! Videoserver, where the SSD is slightly ahead of DRAM, has no row (`docs/reproduction.md`).

use fulgurite_sim::Time;

use fulgurite_sim::paging::{Backend, Program, Slots};

use super::memory::{controller, flash, page, ssd, system};
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::paging::{Flash, PLAIN, base, run};
use crate::units::Dimension;

/// Pages of data, and of DRAM: data is larger, and some of it is in the DRAM.
const PAGES: u64 = 8192;
const FRAMES: u64 = 4096;

/// Computing over all time.
struct Ipc {
    nvmm: f64,
    ssd: f64,
}

/// What each workload does.
fn workloads(inputs: &Inputs<'_>, threads: u32) -> Result<Vec<(Program, u32)>, CheckError> {
    let random = inputs.numbers("workloads.random", Dimension::Share)?;
    let work = inputs.numbers("workloads.work", Dimension::Time)?;
    let around = inputs.numbers("workloads.around", Dimension::Count)?;
    let names = inputs.text("workloads.names")?.split(", ").count();
    if random.len() != names || work.len() != names || around.len() != names {
        return Err(CheckError::NoAnswer("each workload needs a share, a time and a window".to_owned()));
    }
    let (count, page) = (inputs.volume(inputs.count("workloads.accesses")?).max(ACCESSES_LEAST), page(inputs)?);
    let each = random.into_iter().zip(work).zip(around).map(|((random, work), around)| {
        // What streams is dd. What share writes is not in the text.
        let work = if random == 0.0 { inputs.time("dd.read_cpu")? } else { Time(work as u64) };
        let (data, object) = (PAGES * page, page);
        let program = Program { threads, data, object, random, work, count, ..PLAIN };
        Ok((program, around as u32))
    });
    each.collect()
}

/// The least accesses of a workload: all of DRAM is used.
const ACCESSES_LEAST: u64 = 1_500;

/// The share of the time in which the threads of a program compute.
fn computes(program: &Program, time: Time) -> f64 {
    (program.work * program.count).as_s() / time.as_s() / f64::from(program.threads)
}

/// For each workload, at a read latency, with `threads` threads on as many cores. `is_flash`: pages
/// cross the flash's bus.
fn ipc(inputs: &Inputs<'_>, read: Time, is_flash: bool, threads: u32) -> Result<Vec<Ipc>, CheckError> {
    let its = flash(inputs, read)?;
    // Memory that is byte-addressable gives a block at a time.
    let its = if is_flash { its } else { Flash { command: Time::ZERO, bus: u64::MAX, ..its } };
    let mut all = Vec::new();
    for (program, around) in workloads(inputs, threads)? {
        let share = |backend| -> Result<f64, CheckError> {
            let outcome = run(&system(inputs, program, FRAMES * its.page, backend, its)?, inputs.seed)?;
            Ok(computes(&program, outcome.time))
        };
        // The next page is looked up ahead, as the text has it for these figures.
        all.push(Ipc { nvmm: share(controller(inputs, 1)?)?, ssd: share(ssd(inputs, read, around, Slots::File)?)? });
    }
    Ok(all)
}

/// For each workload, where all memory is DRAM.
fn all_dram(inputs: &Inputs<'_>) -> Result<Vec<f64>, CheckError> {
    let read = inputs.time("technology.dram.read")?;
    let backend = Backend::Flat { read, write: inputs.time("technology.dram.write")? };
    let each = workloads(inputs, 1)?.into_iter().map(|(program, _)| {
        let outcome = run(&base(program, backend), inputs.seed)?;
        Ok(computes(&program, outcome.time))
    });
    each.collect()
}

/// Read latencies of the table, fastest first, and whether each is flash.
fn table(inputs: &Inputs<'_>) -> Result<Vec<(Time, bool)>, CheckError> {
    let mut all: Vec<(f64, bool)> = Vec::new();
    for name in ["technology.dram.read", "technology.pcm.read"] {
        all.extend(inputs.numbers(name, Dimension::Time)?.into_iter().map(|read| (read, false)));
    }
    for name in ["technology.slc.divided", "technology.slc.read", "technology.mlc.read"] {
        all.extend(inputs.numbers(name, Dimension::Time)?.into_iter().map(|read| (read, true)));
    }
    Ok(all.into_iter().map(|(read, is_flash)| (Time(read as u64), is_flash)).collect())
}

/// Accesses before those that count, by which all data has come.
const UNTIMED: u64 = 20 * FRAMES / 2;

/// A program whose data is in DRAM, as all of it fits: half of the DRAM, at random and in order.
fn light(inputs: &Inputs<'_>) -> Result<Ipc, CheckError> {
    let read = inputs.time("flash.mlc")?;
    let its = flash(inputs, read)?;
    let Some((mixed, around)) = workloads(inputs, 1)?.into_iter().nth(1) else {
        return Err(CheckError::NoAnswer("the second workload is the mixed one".to_owned()));
    };
    let program = Program { data: FRAMES / 2 * its.page, random: 0.5, untimed: UNTIMED, ..mixed };
    let share = |backend| -> Result<f64, CheckError> {
        let outcome = run(&system(inputs, program, FRAMES * its.page, backend, its)?, inputs.seed)?;
        Ok(computes(&program, outcome.time))
    };
    Ok(Ipc { nvmm: share(controller(inputs, 1)?)?, ssd: share(ssd(inputs, read, around, Slots::Swap)?)? })
}

pub fn technologies(inputs: &Inputs<'_>) -> Found {
    let light = light(inputs)?;
    let mut columns = Vec::new();
    for (read, is_flash) in table(inputs)? {
        columns.push(ipc(inputs, read, is_flash, 1)?);
    }
    let workloads = columns[0].len();
    let falls = |of: fn(&Ipc) -> f64| {
        (0..workloads).all(|w| columns.windows(2).all(|pair| of(&pair[1][w]) <= of(&pair[0][w]) + 1e-9))
    };
    let (first, last) = (&columns[0], &columns[columns.len() - 1]);
    // What is left of the IPC from the fastest technology to the slowest.
    let left = |w: usize| (last[w].nvmm / first[w].nvmm, last[w].ssd / first[w].ssd);
    let flattest = (0..workloads).all(|w| left(w).1 >= left(w).0);
    Ok(vec![
        Finding::trend(
            "monotone",
            "slower technologies, lower IPC",
            falls(|ipc| ipc.nvmm) && falls(|ipc| ipc.ssd),
            (columns.len() as f64, "technologies, each for four kinds of programs"),
            "computing over all time: misses wait for the technology's read",
        ),
        Finding::trend(
            "flattest",
            "SSDs are the least sensitive to latency",
            flattest,
            (left(0).1, "of the IPC is left from DRAM to MLC, SSD, random"),
            "most of a fault is software, and a fault brings 128 KB",
        )
        .also("NVMM", left(0).0),
        Finding::trend(
            "sequential",
            "SSDs do well on sequential workloads",
            last[2].ssd > last[2].nvmm && last[0].nvmm > last[0].ssd,
            (last[2].ssd / last[2].nvmm, "of NVMM's IPC, sequential at MLC"),
            "Linux reads far ahead, and NVMM one page here",
        )
        .also("random at MLC", last[0].ssd / last[0].nvmm),
        Finding::trend(
            "light-mix",
            "the SSD is ahead in the Light mix",
            light.ssd > light.nvmm,
            (light.ssd / light.nvmm, "of NVMM's IPC, where all data is in DRAM"),
            "the text says that this workload fits into main memory. The system then does nothing at an access, and NVMM's \
             controller looks up each one. Swap tokens, the text's reason for its larger gap, are not modelled",
        ),
    ])
}

pub fn systems(inputs: &Inputs<'_>) -> Found {
    let table = table(inputs)?;
    let mlc = table.len() - 1;
    let dram = all_dram(inputs)?;
    let (of_slc, of_mlc) = (ipc(inputs, table[mlc - 1].0, true, 1)?, ipc(inputs, table[mlc].0, true, 1)?);
    let threaded = ipc(inputs, table[mlc].0, true, inputs.count("system.cores")? as u32)?;
    let mean = |of: &dyn Fn(usize) -> f64| {
        let logs: f64 = (0..dram.len()).map(|w| libm::log(of(w))).sum();
        libm::exp(logs / dram.len() as f64)
    };
    let of_dram = mean(&|w| of_mlc[w].nvmm / dram[w]);
    let slc_of_dram = mean(&|w| of_slc[w].nvmm / dram[w]);
    let one = mean(&|w| of_mlc[w].nvmm / of_mlc[w].ssd);
    let many = mean(&|w| threaded[w].nvmm / threaded[w].ssd);
    let computing = of_slc[3].nvmm / dram[3];
    let streaming = of_slc[2].nvmm / dram[2];
    let ssd_streaming = of_slc[2].ssd / dram[2];
    Ok(vec![
        Finding::trend(
            "over-ssd",
            "1.5-2x over SSD systems on average",
            one > 1.0,
            (one, "times, geometric mean of four kinds of programs, one thread, MLC"),
            "of one thread the text says itself, for MMAP, that both are the same; rates of accesses and the share of \
             programs with threads are missing",
        ),
        Finding::trend(
            "over-ssd-threads",
            "1.5-2x over SSD systems on average",
            many > 1.0,
            (many, "times, the same with several threads"),
            "a miss waits for the flash and for no software, which one lock serialises",
        ),
        Finding::trend(
            "of-dram",
            "within a factor of 2 of an all-DRAM system",
            of_dram >= 0.5,
            (of_dram, "of DRAM, geometric mean of four kinds of programs, one thread, MLC"),
            "three of the four miss at nearly every page. How often the text's programs miss is not in it, and it says \
             that neither system approaches DRAM on those that always do",
        ),
        Finding::trend(
            "cells",
            "SLC nearer to DRAM than MLC",
            slc_of_dram > of_dram,
            (slc_of_dram, "of DRAM, SLC"),
            "half the latency",
        ),
        Finding::trend(
            "programs",
            "SLC: 95% of DRAM for realistic programs of one thread",
            computing >= 0.95,
            (computing, "of DRAM, a program that mostly computes, SLC"),
            "how often a program misses decides",
        ),
        Finding::trend(
            "file-systems",
            "both fail to approach DRAM for file-system workloads",
            streaming < 0.5 && ssd_streaming < 0.5,
            (streaming, "of DRAM, streaming, SLC"),
            "each page comes from the flash, as the file is larger than the DRAM. The draft's 6x for dd (D11) leaves 11 µs \
             of computing a page, behind which Linux's reading ahead hides the flash; the final text has the limit in the \
             channel",
        )
        .also("of DRAM, the SSD", ssd_streaming),
    ])
}
