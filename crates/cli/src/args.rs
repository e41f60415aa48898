//! The command line: commands, their help and examples.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};
use fulgurite_term::bad_input::bad_input;

use crate::device::args::DeviceCommand;
use crate::pool::args::PoolCommand;
use crate::run::args::RunArgs;
use crate::top::args::TopArgs;

/// Flash that passes for DRAM.
#[derive(Debug, Parser)]
#[command(name = "fulgurite", version, max_term_width = 110, disable_help_subcommand = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  # a program as it is, with a memory larger than its DRAM
  fulgurite run --dram 512M --flash /mnt/nvme -- redis-server
  # memory that survives a crash: a journaled pool in a file
  fulgurite pool create data.pool --size 16G
  fulgurite pool info data.pool
  # a flash device reached by loads and stores
  fulgurite device serve --socket flash.sock --size 8G --data flash.img
  # the programs that run under fulgurite run
  fulgurite top

fulgurite-lab measures and simulates; fulgurite-demo is the demonstration.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program as it is, with memory larger than its DRAM and under a hard cap.
    #[command(after_help = crate::run::args::EXAMPLES)]
    Run(RunArgs),
    /// Show the programs that run under `fulgurite run`, live.
    #[command(after_help = crate::top::args::EXAMPLES)]
    Top(TopArgs),
    /// Create, inspect, check, roll back, export and import pools.
    #[command(subcommand, after_help = crate::pool::args::EXAMPLES)]
    Pool(PoolCommand),
    /// Serve a storage device behind the DRAM interface, and show its state.
    #[command(subcommand, after_help = crate::device::args::EXAMPLES)]
    Device(DeviceCommand),
    /// Remove swap files, cgroups and temporary files of an earlier run (left only after kill -9 of
    /// its helper), and flash files of starts of `fulgurite run` that were killed.
    #[command(after_help = CLEANUP_EXAMPLES)]
    Cleanup {
        /// Where `--flash` pointed [default: the current and the temporary directory]
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directories: Vec<PathBuf>,
    },
    /// Print a completion script for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// bash, elvish, fish, powershell or zsh.
        shell: fulgurite_term::pages::Shell,
    },
    /// Write manual pages.
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// An existing directory.
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// Moved to `fulgurite-lab`, where each benchmark is a command.
    #[command(hide = true, disable_help_flag = true)]
    Bench(Moved),
    /// Moved to `fulgurite-demo`.
    #[command(hide = true, disable_help_flag = true)]
    Demo(Moved),
    /// Moved to `fulgurite-lab reproduce`.
    #[command(hide = true, disable_help_flag = true)]
    Reproduce(Moved),
    /// Moved to `fulgurite-lab sim`.
    #[command(hide = true, disable_help_flag = true)]
    Sim(Moved),
}

/// The words after the name of a command that is in another program now.
#[derive(Debug, clap::Args)]
pub struct Moved {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Moved {
    /// Refuses it, with the name of the command that took its place.
    ///
    /// # Errors
    /// Always: bad input.
    pub fn refuse(&self, old: &str) -> anyhow::Result<()> {
        let first = self.words.first().and_then(|word| word.to_str()).filter(|word| !word.starts_with('-'));
        let (was, is) = match (old, first) {
            ("bench", Some(name)) => (format!("bench {name}"), format!("fulgurite-lab {name}")),
            ("bench", None) => ("bench".to_owned(), "fulgurite-lab".to_owned()),
            ("demo", _) => ("demo".to_owned(), "fulgurite-demo (or `make demo` in the sources)".to_owned()),
            ("device bench", _) => (old.to_owned(), "fulgurite-lab device".to_owned()),
            (old, _) => (old.to_owned(), format!("fulgurite-lab {old}")),
        };
        bad_input!("`fulgurite {was}` has moved: use {is}")
    }
}

const CLEANUP_EXAMPLES: &str = "\
Examples:
  fulgurite cleanup        # as the user whose run was killed
  sudo fulgurite cleanup   # after root's runs: swap files, cgroups
  fulgurite cleanup /mnt/nvme   # flash files that older versions left";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  fulgurite completions bash \\
    > ~/.local/share/bash-completion/completions/fulgurite
  fulgurite completions zsh > ~/.zfunc/_fulgurite";

const MAN_EXAMPLES: &str = "\
Examples:
  fulgurite man ~/.local/share/man/man1";

#[cfg(test)]
#[path = "../tests/common/examples.rs"]
mod examples;
#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn examples_can_be_pasted_from_a_terminal_of_80_columns() {
        let parsed = examples::check(&Cli::command(), Cli::try_parse_from);
        assert!(parsed > 30, "{parsed} examples");
    }
    /// Each is one more thing to know. Lower the number when one is removed.
    #[test]
    fn options_are_few() {
        let all = fulgurite_term::pages::options(&Cli::command());
        println!("{} options: {all:?}", all.len());
        assert!(all.len() <= 60, "{} options", all.len());
    }
    #[test]
    fn what_moved_says_where_it_is() {
        for (words, reported) in [
            ("fulgurite bench live --quick", "fulgurite-lab live"),
            ("fulgurite bench --quick", "use fulgurite-lab"),
            ("fulgurite demo --help", "fulgurite-demo"),
            ("fulgurite reproduce A5", "fulgurite-lab reproduce"),
            ("fulgurite sim run x.toml --json", "fulgurite-lab sim"),
            ("fulgurite device bench --quick", "fulgurite-lab device"),
        ] {
            let cli = Cli::try_parse_from(words.split(' ')).unwrap();
            let refused = crate::execute(&cli.command).unwrap_err();
            assert!(refused.is::<fulgurite_term::bad_input::BadInput>(), "{words}");
            assert!(refused.to_string().contains(reported), "{words}: {refused}");
        }
    }
}
