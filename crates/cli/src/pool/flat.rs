//! `pool export` and `pool import`: the data of a pool as a flat file.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};

use anyhow::{Context, Result, bail};
use fulgurite_flash::{Flash, FlashError, Layer};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::admin::damaged_subpage;
use fulgurite_term::report;

use super::args::{ExportArgs, ImportArgs};
use super::open::{self, admin_error, config, pool_error, to_read};
use fulgurite_flash::Mover;
use fulgurite_term::bad_input;
use fulgurite_term::bad_input::OrBadInput;
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::stderr::log;
use fulgurite_term::{checks, progress};

const SUBPAGE: u64 = SUBPAGE_BYTES as u64;

/// `pool export`.
pub fn export(args: &ExportArgs) -> Result<()> {
    let shown = args.file.display();
    if args.file.symlink_metadata().is_ok() {
        bad_input!("{shown} exists and is not overwritten; name another file, or delete it");
    }
    checks::writable("FILE", &args.file)?;
    let opened = to_read(&args.pool, args.token)?;
    let layer = opened.flash.layer();
    let subpages = opened.flash.subpages();
    let written: Vec<u32> = (0..subpages).filter(|s| layer.locate(*s).place().is_some()).collect();
    let bytes = written.len() as u64 * SUBPAGE;
    checks::space("FILE", &checks::parent_of(&args.file), bytes)?;
    let interrupt = Interrupt::catch()?;
    let what = || format!("{shown} cannot be written");
    // It gets its name when it is whole.
    let directory = checks::parent_of(&args.file);
    let file = tempfile::Builder::new().prefix(".fulgurite-").tempfile_in(directory).with_context(what)?;
    file.as_file().set_len(opened.data_bytes()).with_context(what)?;
    let bar = progress::share(&format!("exporting to {shown}"));
    let mut damaged = Vec::new();
    let mut done = 0;
    Mover::new(&opened.flash)?.read(written.iter().copied(), |(subpage, content)| {
        match content {
            Ok(content) => {
                file.as_file().write_all_at(content, u64::from(subpage) * SUBPAGE).with_context(what)?;
            }
            Err(error) => damaged.push(damaged_subpage(layer, subpage, error)),
        }
        done += 1;
        progress::set_share(&bar, f64::from(done) / written.len() as f64);
        interrupt.check()
    })?;
    bar.finish_and_clear();
    for sentence in &damaged {
        log(sentence);
    }
    if !damaged.is_empty() && !args.skip_damaged {
        bail!(
            "{} subpages are damaged, so nothing was exported; with --skip-damaged the others are, and holes in their places",
            damaged.len()
        );
    }
    file.as_file().sync_all().with_context(what)?;
    file.persist_noclobber(&args.file).map_err(|e| e.error).with_context(what)?;
    let exported = format_bytes(bytes - damaged.len() as u64 * SUBPAGE);
    report::say(&format!("{shown} has the data of {}: {exported} written", args.pool.path.display()))?;
    if !damaged.is_empty() {
        bail!("{} subpages are damaged; {shown} has holes in their places", damaged.len());
    }
    Ok(())
}

/// The file that is imported, and its length.
fn source(args: &ImportArgs) -> Result<(File, u64)> {
    let shown = args.file.display();
    let metadata = match fs::metadata(&args.file) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            bad_input!("{shown} does not exist; name a file to import")
        }
        Err(e) => bad_input!("{shown} cannot be checked: {e}"),
    };
    if !metadata.is_file() {
        bad_input!("{shown} is no regular file; name a file to import");
    }
    if metadata.len() == 0 {
        bad_input!("{shown} is empty; there is nothing to import");
    }
    if fs::metadata(&args.pool.path).is_ok_and(|pool| (pool.dev(), pool.ino()) == (metadata.dev(), metadata.ino())) {
        bad_input!("{shown} is the pool itself; name another file");
    }
    let file = File::open(&args.file).or_bad_input(|e| format!("{shown} cannot be read: {e}"))?;
    Ok((file, metadata.len()))
}

/// `pool import`.
pub fn import(args: &ImportArgs) -> Result<()> {
    let shown = args.file.display();
    let (file, bytes) = source(args)?;
    let mut config = config(args.keep);
    config.keep_bytes = args.keep_space.unwrap_or(0);
    let files = open::files(&args.pool)?;
    let (_, geometry, _) = files.superblock().map_err(admin_error)?;
    let data_bytes = u64::from(geometry.subpages) * SUBPAGE;
    if bytes > data_bytes {
        let (has, room) = (format_bytes(bytes), format_bytes(data_bytes));
        bad_input!("{shown} has {has}, and the pool {room} for data; make a larger pool, or import less");
    }
    let opened = files.open(config).map_err(admin_error)?;
    let interrupt = Interrupt::catch()?;
    let pool = opened.flash.layer();
    let mut mover = Mover::new(&opened.flash)?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let bar = progress::share(&format!("importing {shown}"));
    let subpages = u32::try_from(bytes.div_ceil(SUBPAGE)).expect("no more than the pool has");
    let step = args.sync_every.map_or(u32::MAX, |every| u32::try_from(every / SUBPAGE).unwrap_or(u32::MAX));
    let mut next = 0;
    let mut token = 0;
    let mut synced = 0;
    let mut run = || -> Result<()> {
        while next < subpages {
            let end = subpages.min(next.saturating_add(step));
            mover.write(|page| {
                while next < end {
                    interrupt.check()?;
                    let subpage = next;
                    let filled = (bytes - u64::from(subpage) * SUBPAGE).min(SUBPAGE) as usize;
                    page[filled..].fill(0);
                    reader.read_exact(&mut page[..filled]).with_context(|| format!("{shown} cannot be read"))?;
                    next += 1;
                    progress::set_share(&bar, f64::from(subpage) / f64::from(subpages));
                    // What was never written reads as zeros already.
                    if pool.locate(subpage).place().is_some() || page.iter().any(|byte| *byte != 0) {
                        return anyhow::Ok(Some(subpage));
                    }
                }
                Ok(None)
            })?;
            pool.tick();
            token = pool.sync().map_err(|e| pool_error(&args.pool.path, e))?;
            synced = next;
        }
        Ok(())
    };
    let result = run();
    bar.finish_and_clear();
    if let Err(error) = result {
        if synced == 0 {
            log("fulgurite: the pool is as it was before");
        } else {
            let until = u64::from(synced) * SUBPAGE;
            log(format_args!(
                "fulgurite: the first {until} bytes are in the pool, as token {token}; behind them it is as before"
            ));
        }
        if error.downcast_ref() == Some(&FlashError::NoSpace) {
            return Err(error.context(
                "the old data and the new do not fit next to each other; give --sync-every and --keep 1, or drop old tokens first (`fulgurite pool \
                 compact --keep 1`)",
            ));
        }
        return Err(error);
    }
    let (bytes, path) = (format_bytes(bytes), args.pool.path.display());
    report::say(&format!("{bytes} of {shown} are in {path}, as token {token}"))
}
