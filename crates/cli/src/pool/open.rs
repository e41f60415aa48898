//! Opens a pool by its path, and says in words why that cannot be.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use fulgurite_flash::OpenError;
use fulgurite_format::{NotMetadata, PoolId, SUBPAGE_BYTES, format_bytes};
use fulgurite_store::admin::{AdminError, OpenedPool, PoolFiles, Step};
use fulgurite_store::{MemberError, PoolError, RecoverError, StoreConfig, Victims};
use fulgurite_term::bad_input::open_error;

use super::args::PoolArgs;
use fulgurite_term::bad_input::BadInput;
use fulgurite_term::interrupt::{Interrupt, Interrupted};
use fulgurite_term::progress::{self, ProgressBar};
use fulgurite_term::stderr::log;

/// Identity of a pool as people see it.
pub fn name_of(id: PoolId) -> String {
    id.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How these commands behave as a user of a pool: they drop no token unless they were asked to.
pub fn config(keep: Option<u32>) -> StoreConfig {
    let mut config = StoreConfig::default();
    config.keep_tokens = keep.map_or(usize::MAX, |keep| keep as usize);
    config.victims = Victims::Greedy;
    config
}

/// Why a pool at this path cannot be used, for people.
pub fn pool_error(path: &Path, error: PoolError) -> Error {
    let shown = path.display();
    let bytes = |pages: u32| format_bytes(u64::from(pages) * SUBPAGE_BYTES as u64);
    let said = match error {
        PoolError::Recover(RecoverError::NotAPool(e @ NotMetadata::Newer(_))) => {
            format!("{shown} is a pool of a later program: {e}")
        }
        PoolError::Recover(RecoverError::NotAPool(e)) => {
            format!("{shown} was a pool, but no copy of its superblock can be used ({e}); restore it from a copy")
        }
        PoolError::Recover(RecoverError::Truncated { needed, found }) => format!(
            "{shown} is truncated: the pool has {}, and {} are there; restore it from a copy",
            bytes(needed),
            bytes(found)
        ),
        PoolError::Recover(RecoverError::Geometry(e)) => format!("{shown}: {e}"),
        PoolError::NoToken { .. } => format!("{shown}: {error}"),
        PoolError::Recover(RecoverError::Lost(loss)) => {
            return anyhow!(
                "{shown} has lost promised data: {loss}; inspect the remaining data with `fulgurite pool export`, or \
                 accept the loss with `fulgurite pool check {shown} --repair --force --accept-loss`"
            );
        }
        PoolError::Recover(e @ RecoverError::Newer { .. }) => format!("{shown} is a pool of a later program: {e}"),
        PoolError::Recover(
            e @ (RecoverError::NoAnchor(_) | RecoverError::Checkpoint(_) | RecoverError::Journal(_)),
        ) => {
            return anyhow!("{shown} is a pool that cannot be opened: {e}");
        }
        PoolError::Recover(e @ RecoverError::Flash { .. }) => {
            return anyhow!("{shown} is a pool that cannot be opened: {e}; restore it from a copy");
        }
        error => return Error::new(error).context(shown.to_string()),
    };
    BadInput(said).into()
}

/// Why the files of a pool cannot be put together, for people.
pub fn member_error(error: MemberError) -> Error {
    match error {
        MemberError::Open(e) => open_error(e),
        e @ (MemberError::Driver { .. } | MemberError::Flash { .. }) => e.into(),
        e => BadInput(e.to_string()).into(),
    }
}

/// Why a pool cannot be administered, for people.
pub fn admin_error(error: AdminError) -> Error {
    match error {
        AdminError::Open(error) => open_error(error),
        AdminError::Member(error) => member_error(error),
        AdminError::Pool { path, source } => pool_error(&path, source),
        AdminError::Stopped => Interrupted.into(),
        AdminError::NotAPool { .. } => {
            BadInput(format!("{error}; name a pool, or make one with `fulgurite pool create`")).into()
        }
        AdminError::Truncated { .. } | AdminError::NoRoom => BadInput(error.to_string()).into(),
        error => error.into(),
    }
}

/// What a pool is stored on: claimed, and found to begin like a pool; with all that it spans.
pub fn files(pool: &PoolArgs) -> Result<PoolFiles> {
    PoolFiles::find(&pool.path, &pool.members).map_err(admin_error)
}

/// Says what recovery found to be lost.
fn with_losses_reported(opened: Result<OpenedPool, AdminError>) -> Result<OpenedPool> {
    let opened = opened.map_err(admin_error)?;
    if let Some(loss) = opened.report.lost {
        log(format_args!("fulgurite: {}: {loss}", opened.path.display()));
    }
    Ok(opened)
}

/// Opens a pool to read it, in its newest state or in the state of a token. Writes nothing.
pub fn to_read(pool: &PoolArgs, token: Option<u64>) -> Result<OpenedPool> {
    with_losses_reported(files(pool)?.inspect(config(None), token))
}

/// Tries to read a pool that another process uses, and the time between two of them.
const READS: u32 = 40;
const READ_AGAIN: Duration = Duration::from_millis(50);

/// As [`to_read`] in its newest state, also while another process uses the pool. What it has
/// committed by then is shown.
pub fn to_read_in_use(pool: &PoolArgs) -> Result<OpenedPool> {
    let is_used = |error: &AdminError| {
        matches!(
            error,
            AdminError::Open(OpenError::InUse { .. }) | AdminError::Member(MemberError::Open(OpenError::InUse { .. }))
        )
    };
    match PoolFiles::find(&pool.path, &pool.members) {
        Err(error) if is_used(&error) => {}
        found => return with_losses_reported(found.map_err(admin_error)?.inspect(config(None), None)),
    }
    for reads in 1.. {
        let opened =
            PoolFiles::find_unlocked(&pool.path, &pool.members).and_then(|files| files.inspect(config(None), None));
        // What seems damaged may have changed while it was read.
        let is_torn = match &opened {
            Ok(opened) => opened.report.lost.is_some(),
            Err(error) => matches!(error, AdminError::Pool { .. } | AdminError::Member(_)),
        };
        if !is_torn || reads == READS {
            let opened = with_losses_reported(opened)?;
            log(format_args!("fulgurite: {} is in use: this is the last state that it committed", pool.path.display()));
            return Ok(opened);
        }
        std::thread::sleep(READ_AGAIN);
    }
    unreachable!("the reads are counted")
}

pub fn to_change(pool: &PoolArgs, config: StoreConfig) -> Result<OpenedPool> {
    with_losses_reported(files(pool)?.open(config))
}

/// Shows how far a step is, and stops when the program is interrupted.
pub struct Watched<'i> {
    interrupt: &'i Interrupt,
    bar: Option<(Step, ProgressBar)>,
}

impl Watched<'_> {
    pub fn by(interrupt: &Interrupt) -> Watched<'_> {
        Watched { interrupt, bar: None }
    }
    pub fn at(&mut self, step: Step, share: f64) -> ControlFlow<()> {
        if self.bar.as_ref().is_none_or(|(shown, _)| *shown != step) {
            self.end();
            let bar = match step {
                Step::Metadata => progress::share("reading metadata"),
                Step::Data => progress::share("reading data"),
                Step::OlderData => progress::share("reading what tokens keep"),
                Step::Extending => progress::share("extending the pool's files"),
                _ => progress::waiting("moving live data"),
            };
            self.bar = Some((step, bar));
        }
        if let Some((_, bar)) = self.bar.as_ref().filter(|_| step != Step::Moving) {
            progress::set_share(bar, share);
        }
        if self.interrupt.asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
    fn end(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
