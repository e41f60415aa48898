//! The command line: commands, their help and examples. [`crate::args`] has the options of the
//! benchmarks.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};

use crate::args::{AllocArgs, CheckpointArgs, LiveArgs, MicroArgs, PoliciesArgs, StoreArgs, TailArgs};
use crate::device::args::{BenchArgs, DeviceProcessArgs};
use crate::reproduce::ReproduceArgs;
use crate::run::args::RunBenchArgs;
use crate::sim::SimCommand;

/// Measure Fulgurite, simulate it, and compare it with what papers report.
#[derive(Debug, Parser)]
#[command(name = "fulgurite-lab", version, max_term_width = 110, disable_help_subcommand = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  # the cost of a switch, a hit and a miss
  fulgurite-lab micro
  # seven workloads compared with DRAM, swap and mmap, in under a minute
  fulgurite-lab live --quick
  fulgurite-lab live --workload tatp,silo --miss-every 5us \\
    --json results.json --plot results.svg
  # load against tail latency, open loop
  fulgurite-lab tail --workload tatp
  # miss ratios of the replacement policies
  fulgurite-lab policies
  # a flash device reached by loads and stores, compared with io_uring
  fulgurite-lab device --quick
  # every number of the papers next to Fulgurite's
  fulgurite-lab reproduce
  # a memory system that does not exist yet
  fulgurite-lab sim run systems/nand-only.toml

Benchmarks that need a memory cgroup and a swap file (os-swap, mmap) need
root. Without root they are skipped.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure the cost of the primitives: switch, hit, miss.
    #[command(after_help = MICRO_EXAMPLES)]
    Micro(MicroArgs),
    /// Measure throughput and latency of workloads, each configuration against plain DRAM,
    /// interleaved.
    #[command(after_help = LIVE_EXAMPLES)]
    Live(LiveArgs),
    /// Measure tail latency against load (Poisson arrivals, latency from arrival).
    #[command(after_help = TAIL_EXAMPLES)]
    Tail(TailArgs),
    /// Measure the journaled store: extra flash writes, DRAM, speed, recovery and sync.
    #[command(after_help = STORE_EXAMPLES)]
    Store(StoreArgs),
    /// Save a long computation by `sync`, by writing its changes to a file, or by dumping its
    /// memory.
    #[command(after_help = CHECKPOINT_EXAMPLES)]
    Checkpoint(CheckpointArgs),
    /// Measure programs that change only their allocation calls: with SSDAlloc's allocators, on
    /// swap, on a mapped file, and rewritten on blobs.
    #[command(after_help = ALLOC_EXAMPLES)]
    Alloc(AllocArgs),
    /// Measure miss ratios of all replacement policies on traces and workloads.
    #[command(after_help = POLICIES_EXAMPLES)]
    Policies(PoliciesArgs),
    /// Measure unmodified programs under `fulgurite run`, compared with swap and with enough DRAM.
    #[command(after_help = crate::run::args::EXAMPLES)]
    Run(RunBenchArgs),
    /// Run the evaluation of the DRAM-interface paper: protocol, depth, buffer, chunks. io_uring is
    /// the baseline.
    #[command(after_help = crate::device::args::EXAMPLES)]
    Device(BenchArgs),
    /// Compare with redb, fjall, LMDB and foyer on one disk. A program of its own, by `make peers`.
    #[command(after_help = PEERS_EXAMPLES)]
    Peers {
        /// Its arguments: `fulgurite-lab peers -- --help`, once it is built.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Print every number of the papers next to what the simulator and the runtime find.
    #[command(after_help = crate::reproduce::EXAMPLES)]
    Reproduce(ReproduceArgs),
    /// Run a memory system under a simulated clock, sweep its keys, compare it, explain its times.
    #[command(subcommand, after_help = crate::sim::EXAMPLES)]
    Sim(SimCommand),
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
    /// One configuration under measurement: driven by the parent over stdin and stdout.
    #[command(name = "__child", hide = true)]
    Child,
    /// One program with one allocator under measurement.
    #[command(name = "__alloc", hide = true)]
    Allocating,
    /// The device in another process that `device` measures: it serves until its standard input
    /// ends.
    #[command(name = "__device", hide = true)]
    DeviceProcess(DeviceProcessArgs),
    /// Touches its memory as it is asked over stdin: a program of `run`.
    #[command(name = "__touch", hide = true)]
    Touch,
    /// Sets up swap and cgroups, and removes them when stdin closes.
    #[command(name = "__privileged", hide = true)]
    Privileged,
}

const PEERS_EXAMPLES: &str = "\
Examples:
  fulgurite-lab peers --quick
  fulgurite-lab peers values --peers redb,lmdb --json=peers.json";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  fulgurite-lab completions bash \\
    > ~/.local/share/bash-completion/completions/fulgurite-lab
  fulgurite-lab completions zsh > ~/.zfunc/_fulgurite-lab";

const MAN_EXAMPLES: &str = "\
Examples:
  fulgurite-lab man ~/.local/share/man/man1";

const LIVE_EXAMPLES: &str = "\
Examples:
  fulgurite-lab live --workload all --flash emulated --miss-every 10us \\
    --json live.json --plot live.svg
  fulgurite-lab live --workload tatp \\
    --config dram-only,fulgurite,flash-sync --dram 64M --data 2G
  fulgurite-lab live --flash /mnt/nvme/flash.img --create --miss-every 10us
  fulgurite-lab live --workload masstree --workers 2 \\
    --config dram-only,resident
  fulgurite-lab live --workload all --miss-every 10us \\
    --config fulgurite,pool,pool-unchecked
  fulgurite-lab live --workload gups,mmap-bench --mix 0,100 --work 10us \\
    --config fulgurite,pool,mmap,os-swap --flash FILE
  fulgurite-lab live --workload all --miss-every 10us --flash nand:slc \\
    --also nand:mlc --config fulgurite,fixed-latency
  fulgurite-lab live --workload tatp --miss-every 10us \\
    --flash nand:tlc --planes 64 --also nand:tlc/256 --block-pages 16 \\
    --config fulgurite,fixed-latency

Workloads: `all` means the seven of AstriFlash's figure 9. There are more, as
blobs and NVMM's GUPS (gups, which only reads with --mix 100) and MMAP
(mmap-bench), which are uniform unless --zipf is given. A name that there is
none of lists them.

Configurations:
  dram-only        plain references in huge pages: the denominator, which
                   always runs
  resident         guarded, all data in frames: the cost of hits
  fulgurite        guarded, fibers switch on a miss, arrived ones first by age
  on-device        fulgurite with requests made by a device on a core of its
                   own, so that the worker makes no system calls
  pool             fulgurite over a journaled pool that the data fills to 80%:
                   versions, checksums, reclaim
  pool-unchecked   the same without checksums: shows their cost
  pool-on-device   the pool's store in a device of our own, whose core drives
                   the log and reclaim
  priority-aging   fulgurite with AstriFlash's scheduling: new jobs first, and
                   aging
  fifo             fulgurite, first come first served
  flash-sync       guarded, blocks on every miss
  fixed-latency    fulgurite over flash of the NAND's latencies without its
                   queues, buses and wear (only with --flash nand:)
  os-swap          plain memory, a swap file: best of 1, 8, 32 threads
  mmap             plain memory, a mapped file: best of 1, 8, 32 threads

os-swap and mmap need a memory cgroup.";

const MICRO_EXAMPLES: &str = "\
Examples:
  fulgurite-lab micro --json micro.json --plot micro.svg
  fulgurite-lab micro --quick --rounds 7 --config switch,hit
  fulgurite-lab micro --config miss --flash /mnt/nvme/flash.img --create
  fulgurite-lab micro --config miss --flash nand:slc
  fulgurite-lab micro --config fault --rounds 9
  fulgurite-lab micro --config miss --flash device:flash.sock --data 1G

Measurements: switch, hit, miss (with its parts), and fault (a page fault of
`fulgurite run` without I/O).

On nand:PROFILE, misses go to a device in this process, whose firmware has a
store over the model, as in `live`. On flash that is slower than the
computing of 64 fibers, all of them wait at most misses. Those are left out.
If too few remain, the cost of a miss is not reported.";

const STORE_EXAMPLES: &str = "\
Examples:
  fulgurite-lab store --json store.json
  fulgurite-lab store --victims longest-chains,greedy,cost-benefit
  fulgurite-lab store --flash /mnt/nvme/flash.img --create
  fulgurite-lab store --recovery --dir /mnt/nvme --json recovery.json \\
    --plot recovery.svg
  fulgurite-lab store --sync --dir /mnt/nvme

The store's flash writes and DRAM are counted, not timed. The store decides as
in a pool, over flash that answers at once and keeps only metadata. `full` is
live data as a share of the pool without the reserves for reclaim, journal and
checkpoints. The store's speed is compared with its medium (--flash), in
turns.

--recovery times a crash until the first subpage read. Since the last
checkpoint a quarter of the pool was written, 4 GiB at most. --sync times the
first write of 4 KiB to 256 MiB of dirty data until a durable token names it,
next to plain writes of 1 MiB and a flush. With these, --flash defaults to a
file in --dir.";

const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  fulgurite-lab checkpoint --dir /mnt/nvme --plot checkpoint.svg
  fulgurite-lab checkpoint --data 2G --json checkpoint.json
  fulgurite-lab checkpoint --quick

Variants of one computation on one core. Helper threads may use other cores:
  plain      memory in huge pages, nothing is saved: the denominator
  file       the simplest: the computing thread writes changed pages in
             place, then fsync. A crash in the middle corrupts it
  dump       the simplest crash-safe one: it writes all memory to a new file,
             then fsync and rename
  fork       a forked child dumps the memory, as Redis' BGSAVE does. Pages
             written to meanwhile are copied
  behind     it copies changed pages, and another thread appends them to a
             log, then fsync. The log is never folded into the image
  fulgurite  a pool behind DRAM for a quarter of the data, nothing is saved
  sync       the same, with a token for each checkpoint

A sixteenth of the data changes between two checkpoints. A checkpoint that is
due while another is being made is postponed. After the last there is one more
interval. The last checkpoint of each variant is read back and must equal the
memory at its cut.";

const ALLOC_EXAMPLES: &str = "\
Examples:
  fulgurite-lab alloc --dir /mnt/nvme --json alloc.json --plot alloc.svg
  fulgurite-lab alloc --quick
  fulgurite-lab alloc --workload array --data 4G --dram 256M
  fulgurite-lab alloc --workload slab-cache \\
    --config object-per-page,object-per-page-compatible,os-swap

Workloads, programs of SSDAlloc's evaluation, with four clients each:
  array         records of 128 bytes: Zipf 0.99 and uniform, reads and 50/50
  slab-cache    values of 64 to 960 bytes under keys, as in memcached: 50/50
                and 90/10
  b-plus-tree   an index whose nodes are objects of 1 KiB: 50/50
  packet-cache  packets of 1 KiB, the oldest leaves: half are stored again
  hash-cache    bins of 128 bytes, as in HashCache's index: 50/50

Configurations:
  object-per-page             the thread that faults fills the page in
  object-per-page-compatible  threads of the allocator do, and system calls
                              may be given objects
  memory-page                 pages of 4 KiB are cached; a thread of the
                              allocator fills them in
  memory-page-in-line         the same, and the thread that faults does
  os-swap, mmap               the kernel's paging, of a swap file and of a
                              mapped file, with the same layout of blocks
  blobs                       the program rewritten: values are copied out of
                              a pool and in, by jobs

All have a memory cgroup of the same size, of --dram and 24 MiB for the
process itself. It needs root, as do os-swap and mmap. \"lines\" are those that
a configuration changes of the program: of the allocators the lines that name
one, of blobs all lines of the new program.

\"x memory-page\" compares with the memory-page allocator in the same mode. With
fio, \"of disk\" is how many pages were read and written in a second, as a
share of what fio does in the same mix and at the same depth: 1 is the disk's
own limit.

The first table is the cost of the runtime itself, where no flash is read.";

const POLICIES_EXAMPLES: &str = "\
Examples:
  fulgurite-lab policies --traces DIR --plot policies.svg
  fulgurite-lab policies --input /usr/share --json policies.json

Each of the workloads is recorded twice, with its keys' Zipf exponents 0.8 and
0.99, and replayed with DRAM for 1 to 20% of the subpages that it touches.";

const TAIL_EXAMPLES: &str = "\
Examples:
  fulgurite-lab tail --workload tatp --flash emulated --plot tail.svg
  fulgurite-lab tail --quick --loads 30,60,90

max_share compares the highest throughputs. work_hash covers the requests at
that load.";

#[cfg(test)]
#[path = "../../cli/tests/common/examples.rs"]
mod examples;
#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use fulgurite_term::pages::{Shell, completion_script, manual};

    use crate::values::Config;

    use super::*;

    #[test]
    fn examples_can_be_pasted_from_a_terminal_of_80_columns() {
        let parsed = examples::check(&Cli::command(), Cli::try_parse_from);
        assert!(parsed > 50, "{parsed} examples");
    }
    /// Each is one more thing to know. Lower the number when one is removed.
    #[test]
    fn options_are_few() {
        let all = fulgurite_term::pages::options(&Cli::command());
        println!("{} options: {all:?}", all.len());
        assert!(all.len() <= 67, "{} options", all.len());
    }
    #[test]
    fn lists_of_names_are_read_and_slips_are_understood() {
        let read = |words: &str| Cli::try_parse_from(words.split(' '));
        let Ok(Cli { command: Command::Live(args) }) = read("fulgurite-lab live --config fulgurite,os-swap") else {
            panic!("a list of two");
        };
        assert_eq!(args.config, [Config::Fulgurite, Config::OsSwap]);
        let refused = read("fulgurite-lab live --config os-swap,fulgurit").unwrap_err().to_string();
        assert!(refused.contains("did you mean \"fulgurite\"?"), "{refused}");
    }
    #[test]
    fn completion_knows_what_people_use() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = completion_script(&Cli::command(), shell);
            for internal in ["__child", "__privileged"] {
                assert!(!script.contains(internal), "{shell} offers {internal}");
            }
            assert!(script.contains("checkpoint") && script.contains("predict"), "{shell}");
        }
    }
    #[test]
    fn completion_knows_the_names_and_where_paths_are() {
        let bash = completion_script(&Cli::command(), Shell::Bash);
        for names in ["all array-swap", "longest-chains greedy cost-benefit"] {
            assert!(bash.contains(&format!("compgen -W \"{names}")), "{names}");
        }
        assert!(bash.contains("compgen -W \"dram-only resident fulgurite on-device pool"));
        assert!(completion_script(&Cli::command(), Shell::Zsh).contains("(longest-chains greedy cost-benefit)"));
        let fish = completion_script(&Cli::command(), Shell::Fish);
        assert!(fish.contains("__fish_complete_directories"));
        // A size is no file.
        let size = fish.lines().find(|l| l.contains("-l data ")).unwrap();
        assert!(size.contains(" -r -f"), "{size}");
        let file = fish.lines().find(|l| l.contains("-l flash ")).unwrap();
        assert!(file.contains(" -r -F"), "{file}");
    }
    #[test]
    fn hidden_commands_have_no_page() {
        let directory = tempfile::tempdir().unwrap();
        manual(&Cli::command(), directory.path()).unwrap();
        let pages: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|page| page.unwrap().file_name()).collect();
        assert!(pages.iter().any(|page| page == "fulgurite-lab-live.1"), "{pages:?}");
        assert!(pages.iter().all(|page| !page.to_string_lossy().contains("__")), "{pages:?}");
    }
}
