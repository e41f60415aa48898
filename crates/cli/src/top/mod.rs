//! `fulgurite top`: the programs under `fulgurite run`, live.

pub mod args;
mod sample;
mod screen;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fulgurite_fault::Published;
use fulgurite_term::bad_input;
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::report;

use args::TopArgs;
use sample::Samples;

/// What is said when there is no program.
const NONE: &str = "no program runs under `fulgurite run`, or none that this user may inspect";

/// Runs `fulgurite top`.
pub fn run(args: &TopArgs) -> Result<()> {
    let look = || match args.pids.as_slice() {
        [] => Published::all(),
        pids => pids.iter().copied().filter_map(Published::of).collect(),
    };
    if let Some(pid) = args.pids.iter().find(|pid| Published::of(**pid).is_none()) {
        bad_input!("process {pid} does not run under `fulgurite run`, or this user may not inspect it");
    }
    if args.json {
        return print_figures(args.every, look);
    }
    if args.once {
        let rows = Samples::of(look()).rows();
        return report::say(&if rows.is_empty() { NONE.to_owned() } else { sample::table(&rows) });
    }
    if !std::io::stdout().is_terminal() {
        bad_input!("standard output is no terminal; choose --once for a table, or --json for a script");
    }
    let interrupt = Interrupt::catch_quietly()?;
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let every = args.every.unwrap_or(Duration::from_secs(1));
    let result = screen::run(&mut terminal, every, &interrupt, look);
    ratatui::try_restore().context("the terminal cannot be restored; `reset` does it")?;
    result
}

/// Figures for scripts: once, or a line for every sample until this ends.
fn print_figures(every: Option<Duration>, look: impl Fn() -> Vec<Published>) -> Result<()> {
    let Some(every) = every else {
        return report::say(&serde_json::to_string_pretty(&Samples::of(look()).rows())?);
    };
    let (mut samples, begun) = (Samples::default(), Instant::now());
    loop {
        samples.add(look(), begun.elapsed());
        report::say(&serde_json::to_string(&samples.rows())?)?;
        std::thread::sleep(every);
    }
}
