//! A search over the text of this machine, with a few percent of its index in DRAM, then
//! the act in which memory survives ([`super::survive`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use fulgurite_format::format_bytes;
use fulgurite_memory::{Address, NoLatch, PAGE_BYTES, PlainMemory, Region};
use fulgurite_runtime::DEFAULT_STACK_BYTES;
use fulgurite_workloads::{Corpus, IndexSummary, Params, Search, Workload as _};

use crate::WORKLOADS;
use crate::args::{Act, Args};
use crate::survive::{self, Survived};
use fulgurite_harness::args::{FlashArgs, WorkArgs};
use fulgurite_harness::checks;
use fulgurite_harness::comparison::{Measure, latency_curves, measured, planned, plot, share_bars};
use fulgurite_harness::image::Image;
use fulgurite_harness::rows::LiveRow;
use fulgurite_harness::session::{Session, Setup, swap_bytes};
use fulgurite_harness::values::{Config, FlashChoice, Size};
use fulgurite_term::bad_input::{BadInput, bad_input};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::machine::Machine;
use fulgurite_term::progress;
use fulgurite_term::report::html::Page;
use fulgurite_term::report::table::{self, Columns, or_dash};
use fulgurite_term::report::{self, Report};

/// DRAM of a fiber: its stack, guard and context.
const STACK_BYTES: u64 = DEFAULT_STACK_BYTES as u64 + (6 << 10);
/// Text to index at most: what is indexed and served three ways within three minutes.
const TEXT_BYTES_MAX: u64 = 512 << 20;
/// The limit with `--quick`.
const QUICK_TEXT_BYTES_MAX: u64 = 96 << 20;
/// With less flash an index does not pay: the runtime's tables and stacks would be larger.
const FLASH_BYTES_MIN: u64 = 4 << 20;

/// Prices of a gigabyte in US dollars, 50 to 1 (AstriFlash, section I). Only the ratio matters.
const DRAM_DOLLARS_PER_GB: f64 = 3.0;
const FLASH_DOLLARS_PER_GB: f64 = 0.06;

/// Runs it.
pub fn run(args: &Args) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    checks::writable("--report", &args.report)?;
    if let Some(input) = &args.input {
        checks::input(input)?;
    }
    let start = Instant::now();
    let quick = args.output.quick;
    let machine = Machine::describe();
    let (searches, survives) = (args.act.contains(&Act::Search), args.act.contains(&Act::Survive));
    if !searches && args.output.plot.is_some() {
        bad_input!("--plot draws the search; leave it out, or add search to --act");
    }
    if args.create && args.flash.is_none() {
        bad_input!("--create needs --flash FILE");
    }
    let media = args.media()?;
    if searches {
        for medium in &media {
            checks::before_data(medium, on_flash(args, medium), &machine)?;
        }
    }
    let scratch = checks::scratch(&media[0])?;
    if survives {
        checks::writable("--dir", &scratch.join("fulgurite-demo.pool"))?;
        // The pool, and a copy of the text.
        checks::space("--dir", &scratch, survive::POOL_BYTES + survive::copy_bytes(quick))?;
    }
    // The image, copies that play flash, and the DRAM-only copy are each up to 1.3 times the text.
    let most = if quick { QUICK_TEXT_BYTES_MAX } else { TEXT_BYTES_MAX }.min(machine.available_bytes / 8);
    let limit = if searches { text_that_fits(args, &media[0], most)? } else { most.min(survive::text_bytes(quick)) };
    let corpus = Arc::new(scan(args.input.clone(), limit, &interrupt)?);
    let scan_time = start.elapsed();
    let text = format!(
        "{} of text in {} files under {}",
        format_bytes(corpus.text_bytes()),
        table::thousands(corpus.files().len() as i64),
        corpus.dir().display()
    );
    report::print(&args.output, &machine.line())?;
    if searches && limit < most && !corpus.is_complete() {
        let flash = media[0].choice();
        report::print(&args.output, &format!("--flash {flash} has room for the index of no more text than this."))?;
    }
    let found = Found { corpus: &corpus, text: &text, limit, scan_time, start };
    let searched = if searches { Some(search(args, &media, &found, &interrupt)?) } else { None };
    let interrupted = searched.as_ref().is_some_and(|s| s.interrupted);
    if let (Some(flash), true) = (&args.flash, survives && !interrupted) {
        let scratch = scratch.display();
        let sentence = format!("The act survive has a pool of its own in {scratch}; it does not use --flash {flash}.");
        report::print(&args.output, &sentence)?;
    }
    let survived = (survives && !interrupted).then(|| survive::run(&args.output, &scratch, &corpus, &interrupt));
    if let Some(survived) = &survived {
        report::print(&args.output, &survive::ending(survived))?;
    }

    let interrupted = interrupted || survived.as_ref().is_some_and(|s| s.interrupted);
    let rows = searched.as_ref().map_or(&[][..], |s| &s.rows);
    let mut setting = searched.as_ref().map_or_else(|| serde_json::json!({}), |s| s.setting.clone());
    setting["text_bytes"] = corpus.text_bytes().into();
    let mut failed = searched.as_ref().map_or_else(Vec::new, |s| s.failed.clone());
    failed.extend(survived.as_ref().and_then(|s| s.failure.clone()));
    let seconds = start.elapsed().as_secs_f64();
    let (report, kept) = (args.report.display(), interrupted && args.report.is_file());
    if !kept {
        let page = page(&machine, &text, searched.as_ref(), survived.as_ref(), interrupted);
        report::write_file(&args.report, page.as_bytes())?;
    }
    let sentence = match (kept, interrupted) {
        (true, _) => format!("Interrupted: {report} is still the report of an earlier run"),
        (false, true) => {
            format!("Interrupted: the report in {report} is incomplete, and says so; {seconds:.0} s in all")
        }
        (false, false) => format!("The report is in {report}; {seconds:.0} s in all"),
    };
    report::print(&args.output, &sentence)?;
    if !interrupted {
        report::print(&args.output, NEXT)?;
    }
    Report { interrupted, failed: &failed, ..Report::new(&machine, setting, rows) }
        .with("survive", &survived)?
        .finish(&args.output, || plot(rows))
}

/// What a visitor may try after this.
const NEXT: &str = "\
To try next:
  cargo run --release -p fulgurite --example first   # a counter: kill it at any moment, and run it again
  cargo run --release -p fulgurite-cli -- run --dram 64M --flash . --flash-size 2G -- \\
    python3 -c 'print(sum(list(range(20_000_000))))'   # a program as it is, in 64 MiB of DRAM
  make demo ARGS=\"--flash /mnt/nvme/flash.img --create --dram 5%\"   # this search on a disk of your choice";

/// Configurations of the search on a medium: dram-only is the denominator, whether it was named or
/// not. Where no medium was named there are two: the disk, compared with the kernel's paging to the
/// same disk, and the emulated device, compared with waiting for each of its reads.
fn configs(args: &Args, medium: &FlashArgs) -> Vec<Config> {
    let two = args.flash.is_none();
    let runs = |config: Config| match medium.choice() {
        FlashChoice::Emulated => !two || config.guarded(),
        _ => !two || config != Config::FlashSync,
    };
    let named = Config::ALL.iter().copied().filter(|c| *c != Config::DramOnly && args.config.contains(c) && runs(*c));
    std::iter::once(Config::DramOnly).chain(named).collect()
}

/// Processes that use a medium at the same time.
fn on_flash(args: &Args, medium: &FlashArgs) -> u64 {
    let setups = |config| Setup::all(config, 1, &[0], args.output.quick);
    configs(args, medium).into_iter().filter(|config| config.on_named_flash()).flat_map(setups).count() as u64
}

/// Bytes of text to look for: `most`, or what the file or device of --flash has room for.
fn text_that_fits(args: &Args, medium: &FlashArgs, most: u64) -> Result<u64> {
    let Some(mut bytes) = checks::flash_bytes(medium)? else { return Ok(most) };
    let (mut each, mut larger) = ("", "make it larger, or name a new file and add --create");
    if let FlashChoice::Device(_) = medium.choice() {
        let on_flash = on_flash(args, medium);
        bytes = checks::part_of_device(bytes, on_flash);
        (each, larger) = (if on_flash > 1 { " for each configuration" } else { "" }, "serve a larger one");
    }
    // A pool has half as much again for what it writes in addition to the data.
    let room = if args.config.contains(&Config::Pool) { bytes / 3 * 2 } else { bytes };
    if room < FLASH_BYTES_MIN {
        bad_input!(
            "--flash {} has {}{each}, too little for an index (at least {}); {larger}",
            medium.choice(),
            format_bytes(bytes),
            format_bytes(FLASH_BYTES_MIN)
        );
    }
    // An image may take up to 1.3 times its text.
    Ok(most.min(room / 13 * 10))
}

/// The text that was found.
struct Found<'f> {
    corpus: &'f Arc<Corpus>,
    /// It, in words.
    text: &'f str,
    /// Bytes that were looked for, at most.
    limit: u64,
    /// How long that took.
    scan_time: Duration,
    /// When all began.
    start: Instant,
}

/// The search, measured.
struct Searched {
    /// The DRAM budget.
    dram_bytes: u64,
    summary: IndexSummary,
    rows: Vec<LiveRow>,
    notes: Vec<String>,
    setting: serde_json::Value,
    failed: Vec<String>,
    interrupted: bool,
}

/// What rows call the file in --dir.
const DISK: &str = "disk";

/// Indexes the text, searches it in all configurations, and prints what came out.
fn search(args: &Args, media: &[FlashArgs], found: &Found<'_>, interrupt: &Interrupt) -> Result<Searched> {
    let (corpus, quick) = (found.corpus, args.output.quick);
    let setups = |clusters: &'static [u32]| move |config| Setup::all(config, 1, clusters, quick);
    report::print(&args.output, &format!("Indexing {}", found.text))?;
    let left_out = left_out(corpus, found.limit);
    if let Some(sentence) = &left_out {
        report::print(&args.output, sentence)?;
    }

    let printed: Vec<String> = left_out.into_iter().collect();
    let mut notes = printed.clone();
    // An index takes about 1.2 times its text (from above). Its real size decides about DRAM below.
    let data_bytes = corpus.text_bytes() / 5 * 6;
    let (clusters, one_cluster) = clusters(args, &media[0], data_bytes, found.scan_time)?;
    let mut sessions = Vec::new();
    for medium in media {
        let (mut medium, mut configs) = (medium.clone(), configs(args, medium));
        add(&mut notes, fit(&mut medium, &mut configs, corpus));
        sessions.push((Session::start(&medium, data_bytes, &mut configs, &setups(clusters), interrupt)?, configs));
    }
    notes.extend(one_cluster.filter(|_| sessions.iter().any(|(_, configs)| configs.contains(&Config::OsSwap))));
    let params =
        Params { bytes: 0, zipf: 0.99, seed: args.output.seed, input: args.input.clone(), ..Params::default() };
    let (mut image, summary) = index(corpus, &params, interrupt)?;
    for (session, _) in &mut sessions {
        session.data_bytes = image.region_bytes;
        session.dram_bytes = session.flash.dram.of(image.region_bytes);
        if matches!(args.dram, Size::Percent(_)) {
            let least = least_dram(&session.flash, corpus);
            session.dram_bytes = session.dram_bytes.max(least + image.workload_bytes(session.flash.workers as usize)?);
        }
    }
    let dram_bytes = sessions[0].0.dram_bytes;
    report::print(
        &args.output,
        &format!(
            "The index has {} ({} words, {} postings, the texts themselves once); DRAM for it: {} ({:.1}%); {:.0} s",
            format_bytes(summary.index_bytes),
            table::thousands(summary.words.cast_signed()),
            table::thousands(summary.postings.cast_signed()),
            format_bytes(dram_bytes),
            dram_bytes as f64 / summary.index_bytes as f64 * 100.0,
            found.start.elapsed().as_secs_f64(),
        ),
    )?;
    let work = WorkArgs { miss_every: None, work: None, zipf: None }.or_headline(quick);
    let (rounds, round_time) = if quick { (2, Duration::from_millis(100)) } else { (3, Duration::from_millis(1000)) };
    let (mut rows, mut failed, mut interrupted) = (Vec::new(), Vec::new(), false);
    // All media get the same requests. A repeated round has other requests, so one medium repeats.
    let mut plan = None;
    for (session, configs) in &mut sessions {
        let repeats = if media.len() == 1 { rounds } else { 0 };
        let how = Measure { configs, clusters, rounds, repeats, round_time, work: &work, output: &args.output };
        let made = plan.map_or_else(|| planned(session, &mut image, &how), Ok)?;
        plan = Some(made);
        let (mut these, ran) = measured(session, &image, &how, &made)?;
        for row in &mut these {
            row.media = media.len();
            if args.flash.is_none() && matches!(session.flash.choice(), FlashChoice::File(_)) {
                row.medium = DISK.to_owned();
            }
        }
        rows.append(&mut these);
        failed.extend(ran.failed);
        add(&mut notes, session.experiment.notes.clone());
        interrupted = ran.interrupted;
        if interrupted {
            break;
        }
    }
    report::print(&args.output, &columns(&shown(&rows)).table())?;
    report::print_all(&args.output, notes.iter().filter(|note| !printed.contains(note)))?;
    let mut setting = sessions[0].0.setting();
    if let Some((other, _)) = sessions.get(1) {
        setting["also"] = serde_json::json!([other.setting()]);
    }
    setting["index_bytes"] = summary.index_bytes.into();
    setting["documents"] = summary.documents.into();
    setting["dollars_per_gb"] = serde_json::json!({ "dram": DRAM_DOLLARS_PER_GB, "flash": FLASH_DOLLARS_PER_GB });
    Ok(Searched { dram_bytes, summary, rows, notes, setting, failed, interrupted })
}

/// Adds sentences that are not there yet.
fn add(notes: &mut Vec<String>, sentences: Vec<String>) {
    for sentence in sentences {
        if !notes.contains(&sentence) {
            notes.push(sentence);
        }
    }
}

/// The least DRAM for the index of a text.
fn least_dram(medium: &FlashArgs, corpus: &Corpus) -> u64 {
    checks::least_dram(corpus.text_bytes() * 2, medium.workers, medium.fibers)
}

/// Fits fibers, DRAM and configurations to the size of the text. Returns what changed, in
/// sentences.
fn fit(medium: &mut FlashArgs, configs: &mut Vec<Config>, corpus: &Corpus) -> Vec<String> {
    let mut notes = Vec::new();
    // A small budget is for frames and not for stacks: these get a quarter of it.
    let stacks = medium.dram.of(corpus.text_bytes()) / 4 / STACK_BYTES / u64::from(medium.workers);
    if stacks < u64::from(medium.fibers) {
        medium.fibers = stacks.max(8) as u32;
        notes.push(format!("{} fibers, so that no more than a quarter of the DRAM is stacks.", medium.fibers));
    }
    let least = least_dram(medium, corpus);
    if matches!(medium.dram, Size::Percent(_)) && medium.dram.of(corpus.text_bytes()) < least {
        notes.push(format!(
            "So little text: DRAM is {}, the least that the runtime's tables, stacks and frames need, and not {}.",
            format_bytes(least),
            medium.dram
        ));
        medium.dram = Size::Bytes(least.next_multiple_of(4096));
    }
    let kernel_bytes = medium.dram.of(corpus.text_bytes()).max(least) + medium.allowance_bytes;
    if corpus.text_bytes() < kernel_bytes {
        configs.retain(|c| {
            if c.paged_by_kernel() {
                notes.push(format!(
                    "{c} is skipped: its cgroup of {} would hold the whole index, so that nothing is paged.",
                    format_bytes(kernel_bytes)
                ));
            }
            !c.paged_by_kernel()
        });
    }
    notes
}

/// Indexes a corpus of text, for the search workload. The data is the index, not what was
/// reserved.
///
/// # Errors
/// When no file of the corpus is text any more, or there is no memory.
fn index(corpus: &Arc<Corpus>, params: &Params, interrupt: &Interrupt) -> Result<(Image, IndexSummary)> {
    let reserved = Search::<NoLatch>::bytes_needed(corpus).next_multiple_of(PAGE_BYTES as u64);
    let arena = Image::reserved()?;
    let bar = progress::share("indexing");
    let mut memory = PlainMemory::over(arena.clone());
    let region = Region::new(Address::from_linear(0), reserved);
    let (corpus, seed) = (corpus.clone(), params.seed);
    let (mut of_thread, shown) = (memory.clone(), bar.clone());
    interrupt.unless_asked(move || {
        let progress = &mut |share| progress::set_share(&shown, share);
        Search::<NoLatch>::build_from(&mut of_thread, region, &corpus, seed, progress)
    })??;
    bar.finish_and_clear();
    let summary = Search::<NoLatch>::open(&mut memory, region, params)?.summary();
    let region_bytes = summary.index_bytes.next_multiple_of(PAGE_BYTES as u64);
    let params = Params { bytes: region_bytes, ..params.clone() };
    Ok((Image::of(Search::<NoLatch>::NAME, params, WORKLOADS, arena), summary))
}

/// A longer scan for text leaves no time for os-swap with both values of `vm.page-cluster`: a slow
/// disk is slow with swap, too, and the second costs half a minute of three.
const SCAN_TIME_MAX: Duration = Duration::from_secs(15);

/// Values of `vm.page-cluster` for os-swap: both, or one and the reason (time, room).
fn clusters(
    args: &Args,
    medium: &FlashArgs,
    data_bytes: u64,
    scan_time: Duration,
) -> Result<(&'static [u32], Option<String>)> {
    const BOTH: &[u32] = &[0, 3];
    if args.output.quick {
        return Ok((&BOTH[..1], None));
    }
    let scratch = checks::scratch(medium)?;
    let processes = Setup::all(Config::OsSwap, 1, BOTH, false).len() as u64;
    let swap_bytes = swap_bytes(data_bytes, processes);
    let why_not = if scan_time > SCAN_TIME_MAX {
        format!(
            "to search for text took {:.0} s already, and all is to end within three minutes",
            scan_time.as_secs_f64()
        )
    } else if fulgurite_sys::DirectFile::free_bytes(&scratch)? < swap_bytes {
        format!("with 3 as well, {} of swap would be needed in {}", format_bytes(swap_bytes), scratch.display())
    } else {
        return Ok((BOTH, None));
    };
    let sentence = format!("os-swap runs with vm.page-cluster 0 only: {why_not}. `live` measures both.");
    Ok((&BOTH[..1], Some(sentence)))
}

/// What of the text under the directory is not in the index, in a sentence; none when all of it is.
fn left_out(corpus: &Corpus, limit: u64) -> Option<String> {
    let skipped = corpus.skipped();
    let mut parts = Vec::new();
    if !corpus.is_complete() {
        parts.push(format!(
            "all text after the first {} (no more than {})",
            format_bytes(corpus.text_bytes()),
            format_bytes(limit)
        ));
    }
    for (count, what) in [
        (skipped.binary, "without text"),
        (skipped.large, "larger than 1 MiB"),
        (skipped.duplicate, "with the text of another"),
        (skipped.unreadable, "without the right to read"),
    ] {
        if count > 0 {
            let files = if count == 1 { "file" } else { "files" };
            parts.push(format!("{} {files} {what}", table::thousands(count.cast_signed())));
        }
    }
    (!parts.is_empty()).then(|| format!("Left out: {}.", parts.join(", ")))
}

fn scan(input: Option<PathBuf>, limit: u64, interrupt: &Interrupt) -> Result<Corpus> {
    let waiting = progress::waiting("looking for text");
    let shown = waiting.clone();
    let mut found = move |files: u64, bytes: u64| {
        if files.is_multiple_of(256) {
            shown.set_message(format!(
                "looking for text: {} files, {}",
                table::thousands(files as i64),
                format_bytes(bytes)
            ));
        }
    };
    let corpus = interrupt.unless_asked(move || match input {
        Some(directory) => Corpus::scan(&directory, limit, &mut found),
        None => Corpus::of_this_machine(limit, &mut found),
    })?;
    waiting.finish_and_clear();
    let corpus = corpus.map_err(|e| BadInput(e.to_string()))?;
    if corpus.files().is_empty() {
        bad_input!(
            "{} holds no text that fits in {}; name another directory",
            corpus.dir().display(),
            format_bytes(limit)
        );
    }
    Ok(corpus)
}

/// Bytes of DRAM that a configuration's process may use: its cgroup's limit, if it has one.
fn allowed_bytes(row: &LiveRow) -> u64 {
    row.cgroup_limit_bytes.unwrap_or(row.dram_bytes)
}

/// The rows of the table: dram-only is measured with every medium, and shown once.
fn shown(rows: &[LiveRow]) -> Vec<LiveRow> {
    let first = |i: usize| rows[..i].iter().all(|row| row.label() != rows[i].label());
    (0..rows.len()).filter(|i| first(*i)).map(|i| rows[i].clone()).collect()
}

fn paged_by_kernel(row: &LiveRow) -> bool {
    Config::ALL.iter().any(|c| c.paged_by_kernel() && c.name() == row.config)
}

fn either<T: ToString>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

fn threads(count: usize) -> String {
    if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") }
}

/// What a gigabyte of index costs.
fn cost(row: &LiveRow) -> f64 {
    let dram = allowed_bytes(row) as f64 / row.data_bytes as f64;
    let flash = if row.config == Config::DramOnly.name() { 0.0 } else { FLASH_DOLLARS_PER_GB };
    dram * DRAM_DOLLARS_PER_GB + flash
}

fn columns(rows: &[LiveRow]) -> Columns<'_, LiveRow> {
    let config = |row: &LiveRow| {
        let cluster = row.page_cluster.map_or(String::new(), |cluster| format!(", page-cluster {cluster}"));
        match paged_by_kernel(row) {
            true => format!("{} ({}{cluster})", row.label(), threads(row.fibers_or_threads)),
            false => row.label(),
        }
    };
    Columns::of(rows)
        .left("config", config)
        .right("queries/s", |row| table::number(row.ops_per_s))
        .right("of DRAM-only", |row| or_dash(row.share_of_dram_only, |s| table::percent(s.median)))
        .right("p50 µs", |row| table::number(row.p50_us))
        .right("p99 µs", |row| table::number(row.p99_us))
        .right("p99.9 µs", |row| table::number(row.p999_us))
        .right("DRAM it may use", |row| format_bytes(allowed_bytes(row)))
        .right("peak", |row| or_dash(row.cgroup_peak_bytes, format_bytes))
        .right("misses/query", |row| table::number(row.misses_per_op))
        .right("$ per GB of index", |row| format!("{:.2}", cost(row)))
}

/// The report.
fn page(
    machine: &Machine,
    text: &str,
    searched: Option<&Searched>,
    survived: Option<&Survived>,
    interrupted: bool,
) -> String {
    let title = searched.map_or_else(|| "Fulgurite".to_owned(), |s| title(&s.rows));
    let mut page = Page::new(&if interrupted { format!("{title} (incomplete)") } else { title });
    if interrupted {
        page.paragraph("This run was interrupted. What is here is whole, and the rest is missing.");
    }
    if let Some(searched) = searched {
        search_page(&mut page, text, searched);
    }
    if let Some(survived) = survived {
        survive::page(&mut page, survived);
    }
    page.heading("How it was measured");
    page.paragraph(&machine.line());
    if let Some(searched) = searched {
        if let Some(ours) = searched.rows.iter().find(|r| r.config == Config::Fulgurite.name()) {
            page.paragraph(&format!("Flash: {}. Worker on core {:?}.", ours.flash, ours.cores));
        }
        for note in &searched.notes {
            page.paragraph(note);
        }
    }
    page.paragraph(&format!("Command: {}", report::command_line()));
    page.finish()
}

/// The title of a search: it promises what was measured, and no more.
fn title(rows: &[LiveRow]) -> String {
    let ours = rows.iter().find(|row| row.config == Config::Fulgurite.name());
    match ours.and_then(|row| Some((row, row.share_of_dram_only?))) {
        Some((row, share)) => {
            let disturbed = if row.disturbed_rounds > 0 { ", on a machine that other work disturbed" } else { "" };
            format!("Fulgurite: search from flash at {} of the speed of DRAM{disturbed}", table::percent(share.median))
        }
        None => "Fulgurite: search from flash".to_owned(),
    }
}

/// Throughput as a multiple of kernel swap's, and how swap ran. None where either did not.
fn against_swap(rows: &[LiveRow]) -> Option<(String, String)> {
    let of = |config: Config| rows.iter().find(|r| r.config == config.name());
    let (over, swap) = (of(Config::Fulgurite)?.over_os_swap?, of(Config::OsSwap)?);
    let cluster = swap.page_cluster.map_or(String::new(), |cluster| format!(", vm.page-cluster {cluster}"));
    let best = if swap.variants.len() > 1 {
        let mut counts: Vec<usize> = swap.variants.iter().map(|v| v.threads).collect();
        let mut clusters: Vec<u32> = swap.variants.iter().filter_map(|v| v.page_cluster).collect();
        counts.sort_unstable();
        counts.dedup();
        clusters.sort_unstable();
        clusters.dedup();
        format!("; the best of {} threads with page-cluster {}", either(&counts), either(&clusters))
    } else {
        "; the only way that was tried".to_owned()
    };
    let ran = threads(swap.fibers_or_threads);
    Some((format!("{:.1}x", over.median), format!("the throughput of kernel swap ({ran}{cluster}{best})")))
}

/// The search's part of it.
fn search_page(page: &mut Page, text: &str, searched: &Searched) {
    let Searched { dram_bytes, summary, rows, .. } = searched;
    page.paragraph(&format!(
        "An index over {text} is in flash: {}. The DRAM in front of it may hold {:.1}% of that ({}). Each query looks up two or \
         three words, ranks the files that hold them all and reads snippets of the best.",
        format_bytes(summary.index_bytes),
        *dram_bytes as f64 / summary.index_bytes as f64 * 100.0,
        format_bytes(*dram_bytes)
    ));
    let of = |config: Config| rows.iter().find(|r| r.config == config.name());
    let both = rows.iter().any(|row| row.medium == DISK);
    let mut figures = Vec::new();
    if let Some(ours) = of(Config::Fulgurite) {
        if let Some(share) = ours.share_of_dram_only {
            let on = if both { ", on this machine's disk" } else { "" };
            figures.push((table::percent(share.median), format!("of the throughput of DRAM-only{on}")));
        }
        figures.extend(against_swap(rows));
        figures.push((
            format!("{:.1}%", ours.dram_bytes as f64 / ours.data_bytes as f64 * 100.0),
            format!(
                "of the index is the DRAM budget, {}: frames, tables, stacks, rings and the table of queries{}",
                format_bytes(ours.dram_bytes),
                ours.cgroup_peak_bytes.map_or(String::new(), |peak| format!(
                    "; the whole process, with program and measurement, peaked at {}",
                    format_bytes(peak)
                ))
            ),
        ));
        if let Some(dram) = of(Config::DramOnly) {
            figures
                .push((format!("{:.0}x", cost(dram) / cost(ours)), "cheaper memory per gigabyte of index".to_owned()));
        }
    }
    if let Some(ours) = rows.iter().rfind(|r| r.config == Config::Fulgurite.name() && r.medium != DISK) {
        if let Some(share) = ours.share_of_dram_only.filter(|_| both) {
            let disturbed = if ours.disturbed_rounds > 0 { ", which other work on this machine disturbed" } else { "" };
            figures.push((table::percent(share.median), format!("of it on an emulated device{disturbed}")));
        }
        if let Some(sync) = of(Config::FlashSync) {
            figures.push((
                format!("{:.1}x", ours.ops_per_s / sync.ops_per_s.max(1e-9)),
                "the throughput of waiting for every miss".to_owned(),
            ));
        }
    }
    page.figures(&figures);
    page.heading("All configurations");
    page.table(&columns(&shown(rows)), |row| row.first().is_some_and(|c| c == Config::Fulgurite.name()));
    page.paragraph(&format!(
        "Cost: DRAM that it may use at ${DRAM_DOLLARS_PER_GB} and flash at ${FLASH_DOLLARS_PER_GB} a gigabyte; only their ratio \
         matters. All but DRAM-only have the same memory: a cgroup whose limit is the budget and {} for the process itself. \
         Peak: the highest use of the process's cgroup while it served, program and measurement included. Every \
         configuration executed the same queries and found the same index in the end ({}).",
        format_bytes(rows.iter().find_map(|r| Some(r.cgroup_limit_bytes? - r.dram_bytes)).unwrap_or(0)),
        rows.iter().find_map(|r| r.work_hash.clone()).map_or("not checked".to_owned(), |h| format!("work hash {h}"))
    ));
    page.heading("Throughput");
    page.drawing(&share_bars(rows).draw().finish());
    page.heading("Latency");
    page.drawing(&latency_curves(rows, "search").draw().finish());
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_harness::Spread;
    use fulgurite_harness::rows::Variant;

    #[test]
    fn flash_is_what_makes_it_cheap() {
        let row = |config: Config, dram_bytes| LiveRow {
            config: config.to_string(),
            dram_bytes,
            data_bytes: 1 << 30,
            ..LiveRow::default()
        };
        let (dram, ours) = (cost(&row(Config::DramOnly, 1 << 30)), cost(&row(Config::Fulgurite, 1 << 25)));
        assert!(dram / ours > 10.0, "{dram} {ours}");
        // The memory of the process itself is memory, too.
        let mut limited = row(Config::Fulgurite, 1 << 25);
        limited.cgroup_limit_bytes = Some((1 << 25) + (8 << 20));
        assert!(cost(&limited) > ours && allowed_bytes(&limited) == 40 << 20);
    }
    /// A row of the report, with this share of the throughput of dram-only.
    fn row(config: Config, share: Option<f64>) -> LiveRow {
        let share_of_dram_only = share.map(|share| Spread::of([share]));
        LiveRow { config: config.to_string(), share_of_dram_only, ..LiveRow::default() }
    }

    #[test]
    fn the_title_promises_what_was_measured() {
        for (share, said) in [(0.39, "39.0%"), (0.971, "97.1%"), (1.02, "102.0%")] {
            let title = title(&[row(Config::DramOnly, Some(1.0)), row(Config::Fulgurite, Some(share))]);
            assert!(title.contains(said), "{title}");
        }
        let disturbed = LiveRow { disturbed_rounds: 1, ..row(Config::Fulgurite, Some(0.32)) };
        assert!(title(&[disturbed]).ends_with("32.0% of the speed of DRAM, on a machine that other work disturbed"));
        // Where dram-only ended no round there is nothing to promise.
        assert_eq!(title(&[row(Config::Fulgurite, None)]), "Fulgurite: search from flash");
    }
    #[test]
    fn swap_is_compared_by_round_and_its_ways_are_named() {
        let mut ours = row(Config::Fulgurite, Some(0.9));
        let mut swap = row(Config::OsSwap, Some(0.5));
        (ours.ops_per_s, swap.ops_per_s) = (1000.0, 100.0);
        (swap.fibers_or_threads, swap.page_cluster) = (8, Some(0));
        // Medians alone make no ratio.
        assert_eq!(against_swap(&[ours.clone(), swap.clone()]), None);
        ours.over_os_swap = Some(Spread::of([2.2, 2.0, 9.0]));
        let (figure, caption) = against_swap(&[ours.clone(), swap.clone()]).unwrap();
        assert!(
            figure == "2.2x" && caption.contains("8 threads, vm.page-cluster 0; the only way"),
            "{figure} {caption}"
        );
        assert_eq!(columns(&[swap.clone()]).lines[0][0], "os-swap (8 threads, page-cluster 0)");
        let variant = |threads| Variant {
            threads,
            page_cluster: Some(3),
            rounds: 3,
            ops_per_s: 1.0,
            share_of_dram_only: None,
            p99_us: 1.0,
        };
        swap.variants = vec![variant(1), variant(8), variant(32)];
        let (_, caption) = against_swap(&[ours, swap]).unwrap();
        assert!(caption.contains("the best of 1 or 8 or 32 threads with page-cluster 3"), "{caption}");
    }
    #[test]
    fn what_is_not_indexed_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
        write("a.txt", b"some words");
        let scan = |limit| Corpus::scan(directory.path(), limit, &mut |_, _| ()).unwrap();
        assert_eq!(left_out(&scan(1 << 20), 1 << 20), None);
        write("b.txt", b"some words");
        write("c.bin", &[0, 1, 2]);
        write("d.txt", b"some more words");
        let sentence = left_out(&scan(12), 12).unwrap();
        for part in ["1 file with the text of another", "1 file without text", "after the first 10 B"] {
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
