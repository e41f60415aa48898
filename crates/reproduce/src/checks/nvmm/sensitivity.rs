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
        return Err(CheckError::no_answer("each workload needs a share, a time and a window"));
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

/// A program on both systems, over one flash. NVMM looks up as many pages ahead as the text has for
/// these figures: one. A fault of the SSD's system brings `around` pages.
fn on_both(inputs: &Inputs<'_>, program: &Program, flash: Flash, around: u32, slots: Slots) -> Result<Ipc, CheckError> {
    let share = |backend| -> Result<f64, CheckError> {
        let outcome = run(&system(inputs, *program, FRAMES * flash.page, backend, flash)?, inputs.seed)?;
        Ok(computes(program, outcome.time))
    };
    let ssd = ssd(inputs, flash.read, around, slots)?;
    Ok(Ipc { nvmm: share(controller(inputs, 1)?)?, ssd: share(ssd)? })
}

/// For each workload, at a read latency, with `threads` threads on as many cores. `is_flash`: pages
/// cross the flash's bus.
fn ipc(inputs: &Inputs<'_>, read: Time, is_flash: bool, threads: u32) -> Result<Vec<Ipc>, CheckError> {
    let its = flash(inputs, read)?;
    // Memory that is byte-addressable gives a block at a time.
    let its = if is_flash { its } else { Flash { command: Time::ZERO, bus: u64::MAX, ..its } };
    let on = |(program, around)| on_both(inputs, &program, its, around, Slots::File);
    workloads(inputs, threads)?.into_iter().map(on).collect()
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
    let its = flash(inputs, inputs.time("flash.mlc")?)?;
    let Some((mixed, around)) = workloads(inputs, 1)?.into_iter().nth(1) else {
        return Err(CheckError::no_answer("the second workload is the mixed one"));
    };
    let program = Program { data: FRAMES / 2 * its.page, random: 0.5, untimed: UNTIMED, ..mixed };
    on_both(inputs, &program, its, around, Slots::Swap)
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
        Finding::of("monotone", "slower technologies, lower IPC")
            .trend(
                falls(|ipc| ipc.nvmm) && falls(|ipc| ipc.ssd),
                columns.len() as f64,
                "technologies, each for four kinds of programs",
            )
            .by("computing over all time: misses wait for the technology's read"),
        Finding::of("flattest", "SSDs are the least sensitive to latency")
            .trend(flattest, left(0).1, "of the IPC is left from DRAM to MLC, SSD, random")
            .by("most of a fault is software, and a fault brings 128 KB")
            .also("NVMM", left(0).0),
        Finding::of("sequential", "SSDs do well on sequential workloads")
            .trend(
                last[2].ssd > last[2].nvmm && last[0].nvmm > last[0].ssd,
                last[2].ssd / last[2].nvmm,
                "of NVMM's IPC, sequential at MLC",
            )
            .by("Linux reads far ahead, and NVMM one page here")
            .also("random at MLC", last[0].ssd / last[0].nvmm),
        Finding::of("light-mix", "the SSD is ahead in the Light mix")
            .trend(light.ssd > light.nvmm, light.ssd / light.nvmm, "of NVMM's IPC, where all data is in DRAM")
            .by("the text says that this workload fits into main memory. The system then does nothing at an access, \
                 and NVMM's controller looks up each one. Swap tokens, the text's reason for its larger gap, are not \
                 modelled"),
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
        Finding::of("over-ssd", "1.5-2x over SSD systems on average")
            .trend(one > 1.0, one, "times, geometric mean of four kinds of programs, one thread, MLC")
            .by(
                "of one thread the text says itself, for MMAP, that both are the same; rates of accesses and the share \
                 of programs with threads are missing",
            ),
        Finding::of("over-ssd-threads", "1.5-2x over SSD systems on average")
            .trend(many > 1.0, many, "times, the same with several threads")
            .by("a miss waits for the flash and for no software, which one lock serialises"),
        Finding::of("of-dram", "within a factor of 2 of an all-DRAM system")
            .trend(of_dram >= 0.5, of_dram, "of DRAM, geometric mean of four kinds of programs, one thread, MLC")
            .by(
                "three of the four miss at nearly every page. How often the text's programs miss is not in it, and it \
                 says that neither system approaches DRAM on those that always do",
            ),
        Finding::of("cells", "SLC nearer to DRAM than MLC")
            .trend(slc_of_dram > of_dram, slc_of_dram, "of DRAM, SLC")
            .by("half the latency"),
        Finding::of("programs", "SLC: 95% of DRAM for realistic programs of one thread")
            .trend(computing >= 0.95, computing, "of DRAM, a program that mostly computes, SLC")
            .by("how often a program misses decides"),
        Finding::of("file-systems", "both fail to approach DRAM for file-system workloads")
            .trend(streaming < 0.5 && ssd_streaming < 0.5, streaming, "of DRAM, streaming, SLC")
            .by("each page comes from the flash, as the file is larger than the DRAM. The draft's 6x for dd (D11) \
                 leaves 11 µs of computing a page, behind which Linux's reading ahead hides the flash; the final text \
                 has the limit in the channel")
            .also("of DRAM, the SSD", ssd_streaming),
    ])
}
