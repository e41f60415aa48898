//! `pool check`: names what is damaged, and mends it where that is asked for.

use anyhow::{Context, Result, bail};
use fulgurite_format::format_bytes;
use fulgurite_store::PoolError;
use fulgurite_store::RecoverError;
use fulgurite_store::admin::{AdminError, Check, Finding, RepairEvent, check, repair};
use fulgurite_term::bad_input;
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::values::Output;
use fulgurite_term::{checks, report};
use serde::Serialize;

use super::args::CheckArgs;
use super::open::{self, Watched, admin_error, config, name_of};

/// One thing that is damaged, in JSON.
#[derive(Debug, Serialize)]
struct Shown {
    kind: &'static str,
    /// Where it is; of a member's list, in the member.
    flash_page: Option<u32>,
    /// Of data: the subpage, and its first byte in the data.
    subpage: Option<u32>,
    first_byte: Option<u64>,
    /// It was given up by a repair before.
    given_up: bool,
    sentence: String,
}

impl From<Finding> for Shown {
    fn from(finding: Finding) -> Shown {
        let Finding { kind, flash_page, subpage, first_byte, given_up, sentence } = finding;
        Shown { kind: kind.name(), flash_page, subpage, first_byte, given_up, sentence }
    }
}

/// What a check found, in JSON.
#[derive(Debug, Serialize)]
struct Checked {
    path: String,
    id: Option<String>,
    sound: bool,
    /// The token of the state that was checked, 0 for the empty pool. None: it cannot be opened.
    token: Option<u64>,
    /// The journal ends in part of a page: what was synced last may be lost.
    torn: bool,
    live_bytes: Option<u64>,
    damaged: Vec<Shown>,
    /// What is no damage, or may be none.
    notes: Vec<String>,
    repaired: Vec<String>,
}

/// `pool check`.
pub fn run(args: &CheckArgs) -> Result<()> {
    let (path, shown) = (&args.pool.path, args.pool.path.display());
    if args.repair && !args.force {
        bad_input!("--repair writes to {shown}; add --force if that is meant");
    }
    if let Some(Output::File(file)) = &args.json {
        checks::writable("--json", file)?;
        if file.exists() && file.canonicalize().ok() == path.canonicalize().ok() {
            bad_input!("--json {} is the pool itself; name another file", file.display());
        }
    }
    match open::files(&args.pool)?.superblock() {
        Ok(_) => {}
        // A pool nevertheless, of which much is lost.
        Err(e @ AdminError::Pool { source: PoolError::Recover(RecoverError::Truncated { .. }), .. }) => {
            bail!("damaged: {}", admin_error(e))
        }
        Err(e) => return Err(admin_error(e)),
    }
    let interrupt = Interrupt::catch()?;
    let mut watched = Watched::by(&interrupt);
    // With JSON, sentences are part of that.
    let mut unsaid = Ok(());
    let mut say = |sentence: &str| {
        if args.json.is_none() && unsaid.is_ok() {
            unsaid = report::say(sentence);
        }
    };
    let (mut repaired, mut mended) = (Vec::new(), Ok(()));
    if args.repair {
        let mut on_event = |mended: RepairEvent| match mended {
            RepairEvent::Found(sentence) => say(&sentence),
            RepairEvent::Done(sentence) => {
                say(&sentence);
                repaired.push(sentence);
            }
        };
        let watch = &mut |step, share| watched.at(step, share);
        mended =
            repair(open::files(&args.pool)?, config(None), args.accept_loss, watch, &mut on_event).map_err(admin_error);
    }
    // What was mended is checked like anything else.
    let watch = &mut |step, share| watched.at(step, share);
    let Check { mut damaged, notes, seen } =
        check(open::files(&args.pool)?, config(None), watch).map_err(admin_error)?;
    notes.iter().chain(damaged.iter().map(|finding| &finding.sentence)).for_each(|sentence| say(sentence));
    unsaid?;
    let seen = seen.map_err(admin_error);
    if let Err(error) = &seen {
        damaged.push(Finding::of_pool(format!("damaged: {error:#}")));
    }
    let count = damaged.len();
    if let Some(output) = &args.json {
        let seen = seen.as_ref().ok();
        let checked = Checked {
            path: shown.to_string(),
            id: seen.map(|seen| name_of(seen.id)),
            sound: count == 0,
            token: seen.map(|seen| seen.token),
            torn: seen.is_some_and(|seen| seen.is_torn),
            live_bytes: seen.map(|seen| seen.live_bytes),
            damaged: damaged.into_iter().map(Shown::from).collect(),
            notes,
            repaired,
        };
        report::write_as(Some(output), &checked, String::new)?;
    }
    let seen = seen?;
    mended.context("not everything could be repaired")?;
    if count > 0 {
        bail!("{shown}: {count} damaged {}, named above", if count == 1 { "thing" } else { "things" });
    }
    if args.json.is_none() {
        let (id, live) = (name_of(seen.id), format_bytes(seen.live_bytes));
        report::say(&format!("{shown} is whole: pool {id}, {live} of data read"))?;
    }
    Ok(())
}
