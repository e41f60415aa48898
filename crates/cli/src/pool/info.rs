//! `pool info` and `pool tokens`: how a pool stands. Nothing is written to it.

use std::path::Path;

use anyhow::Result;
use fulgurite_backing::{HISTORY_SHARE, leaf_bytes};
use fulgurite_device::Standing;
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::admin::{OpenedPool, TokenKept};
use fulgurite_store::{Geometry, LEAF_BYTES, SUBPAGES_PER_PAGE, StoreConfig, overwritten_max};
use serde::Serialize;

use super::args::{InfoArgs, PoolArgs, ReadArgs};
use super::maps;
use super::open::{name_of, to_read_in_use};
use super::served::{self, Known, StoreReader};
use fulgurite_term::bad_input;
use fulgurite_term::machine::civil;
use fulgurite_term::report::table::{table, thousands};
use fulgurite_term::values::Output;
use fulgurite_term::{checks, report};

#[derive(Debug, Serialize)]
struct Token {
    token: u64,
    pinned: bool,
    newest: bool,
    /// Milliseconds since 1970, by its maker's clock. Not always known, and never of a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_ms: Option<u64>,
}

/// One of the files or devices that a pool spans.
#[derive(Debug, Serialize)]
struct Member {
    path: String,
    id: String,
    bytes: u64,
}

fn members_of(opened: &OpenedPool) -> Vec<Member> {
    let Some(members) = &opened.members else { return Vec::new() };
    let all = members.paths().zip(members.ids()).zip(members.bytes());
    all.map(|((path, id), bytes)| Member { path: path.display().to_string(), id: name_of(id), bytes }).collect()
}

/// The DRAM budget of a program that sets none.
const DRAM_BYTES: u64 = 64 << 20;

/// What a program with this DRAM may overwrite before older contents need more of it.
#[derive(Clone, Copy, Debug, Serialize)]
struct History {
    dram_bytes: u64,
    history_bytes: u64,
    overwritten_max_bytes: u64,
}

/// How a program with `dram_bytes` of DRAM would open a pool of this geometry.
fn config_of(geometry: Geometry, dram_bytes: u64) -> StoreConfig {
    let mut config = StoreConfig::default();
    config.history_bytes = usize::try_from(dram_bytes / HISTORY_SHARE).unwrap_or(usize::MAX - 1);
    config.leaf_bytes = leaf_bytes(geometry, config, dram_bytes);
    config
}

/// The DRAM that is taken by the places of a pool's objects. A program with a given DRAM in all has
/// part of the places there, and the rest on flash.
#[derive(Clone, Copy, Debug, Serialize)]
struct ObjectTable {
    objects: u64,
    bytes: u64,
    dram_bytes: u64,
    in_dram_bytes: u64,
}

impl ObjectTable {
    fn of(opened: &OpenedPool, dram_bytes: u64) -> Option<ObjectTable> {
        let geometry = opened.pool().geometry();
        let objects = u64::from(opened.pool().info().objects);
        // A page of sixteen has the most.
        let bytes = objects * LEAF_BYTES as u64 / u64::from(SUBPAGES_PER_PAGE);
        let most = config_of(geometry, dram_bytes).leaf_bytes as u64;
        geometry.objects.then_some(ObjectTable { objects, bytes, dram_bytes, in_dram_bytes: bytes.min(most) })
    }
}

impl History {
    fn of(geometry: Geometry, dram_bytes: u64) -> History {
        let StoreConfig { history_bytes, leaf_bytes, .. } = config_of(geometry, dram_bytes);
        // At the worst each is an object of another page.
        let subpages = overwritten_max(geometry, history_bytes).min((leaf_bytes / LEAF_BYTES) as u64);
        let history_bytes = history_bytes as u64;
        History { dram_bytes, history_bytes, overwritten_max_bytes: subpages.saturating_mul(SUBPAGE_BYTES as u64) }
    }
}

#[derive(Debug, Serialize)]
struct Info {
    path: String,
    medium: String,
    /// The files or devices that it spans, if there are several.
    members: Vec<Member>,
    id: String,
    /// Seconds since 1970. A device does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<u64>,
    size_bytes: u64,
    data_bytes: u64,
    /// Of the data, what was ever written and not deleted. A device does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    written_bytes: Option<u64>,
    extent_bytes: u64,
    extents: u64,
    extents_free: u64,
    extents_data: u64,
    extents_metadata: u64,
    /// Current content, and older versions that tokens keep.
    live_bytes: u64,
    older_versions: u64,
    /// Written and not synced, so not reclaimable: now, and at most before writers must sync.
    uncommitted_bytes: u64,
    uncommitted_max_bytes: u64,
    /// The DRAM of a program (--dram), and the least that it may overwrite between two syncs.
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<History>,
    /// Of a pool that packs objects. A device has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    places: Option<ObjectTable>,
    tokens: Vec<Token>,
    /// Flash pages that failed and are not used any more, and extents with too many of them.
    bad_pages: u64,
    extents_retired: u64,
    /// How often extents were filled since the pool was made.
    fills_min: u64,
    fills_median: u64,
    fills_max: u64,
    /// With --endurance: at the rate at which the pool was written since it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_left_seconds: Option<u64>,
    journal_pages: u64,
    /// A device does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_pages: Option<u64>,
    /// What it takes when it is open, and what it takes when all of it is written.
    dram_bytes: u64,
    dram_bytes_max: u64,
    durability: String,
}

fn tokens_of(opened: &OpenedPool) -> Vec<Token> {
    let token = |t: TokenKept| Token { token: t.token, pinned: t.is_pinned, newest: t.is_newest, made_ms: t.made_ms };
    opened.tokens().into_iter().map(token).collect()
}

/// `2026-11-22 06:22 UTC`.
fn date(seconds: u64) -> String {
    let [year, month, day, hour, minute, _] = civil(seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// `2026-11-22T06:22:05Z` (ISO 8601).
fn moment(seconds: u64) -> String {
    let [year, month, day, hour, minute, second] = civil(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

impl Info {
    /// What a file's pool and a served store have both.
    fn of(path: &Path, medium: String, tokens: Vec<Token>, standing: &Standing) -> Info {
        let bytes = |pages: u64| pages.saturating_mul(SUBPAGE_BYTES as u64);
        Info {
            path: path.display().to_string(),
            medium,
            members: Vec::new(),
            id: name_of(standing.id),
            made: None,
            size_bytes: bytes(standing.flash_pages),
            data_bytes: bytes(standing.sectors),
            written_bytes: None,
            extent_bytes: bytes(standing.extent_pages),
            extents: standing.extents,
            extents_free: standing.extents_free,
            extents_data: standing.extents_data,
            extents_metadata: standing.extents_metadata,
            live_bytes: bytes(standing.live),
            older_versions: standing.versions,
            uncommitted_bytes: bytes(standing.uncommitted),
            uncommitted_max_bytes: bytes(standing.uncommitted_max),
            history: None,
            places: None,
            durability: durability(&tokens),
            tokens,
            bad_pages: standing.bad_pages,
            extents_retired: standing.extents_retired,
            fills_min: standing.fills_min,
            fills_median: standing.fills_median,
            fills_max: standing.fills_max,
            lifetime_left_seconds: None,
            journal_pages: standing.journal_pages,
            checkpoint_pages: None,
            dram_bytes: standing.dram_bytes,
            dram_bytes_max: standing.dram_bytes_max,
        }
    }
    fn of_pool(opened: &OpenedPool, args: &InfoArgs) -> Info {
        let (dram_bytes, dram_bytes_max) = opened.dram_bytes();
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let standing = Standing::of_pool(opened.pool());
        Info {
            members: members_of(opened),
            made: Some(opened.superblock.made),
            written_bytes: Some(opened.written_bytes()),
            history: Some(History::of(opened.pool().geometry(), args.dram.unwrap_or(DRAM_BYTES))),
            places: ObjectTable::of(opened, args.dram.unwrap_or(DRAM_BYTES)),
            lifetime_left_seconds: args.endurance.and_then(|cycles| opened.lifetime_left(cycles, now)),
            journal_pages: opened.report.journal_pages,
            checkpoint_pages: Some(opened.report.checkpoint_pages),
            dram_bytes,
            dram_bytes_max,
            ..Info::of(&opened.path, opened.medium.describe(), tokens_of(opened), &standing)
        }
    }
    fn of_served(pool: &PoolArgs, mut look: StoreReader) -> Result<Info> {
        let (standing, tokens) = (look.standing(pool)?, tokens_of_served(pool, &mut look)?);
        Ok(Info::of(&pool.path, look.describe(), tokens, &standing))
    }
}

fn tokens_of_served(pool: &PoolArgs, look: &mut StoreReader) -> Result<Vec<Token>> {
    let known = look.tokens(pool)?;
    let newest = known.last().map(|t| t.token);
    let token = |t: &Known| Token { token: t.token, pinned: t.pinned, newest: Some(t.token) == newest, made_ms: None };
    Ok(known.iter().map(token).collect())
}

fn durability(tokens: &[Token]) -> String {
    match tokens.last() {
        Some(newest) => {
            format!("opening it finds the state of token {}, also after a crash", newest.token)
        }
        None => "nothing was synced yet: opening it finds it empty".to_owned(),
    }
}

/// `12 years`, `34 days`, `5 hours`.
fn long_time(seconds: u64) -> String {
    match seconds {
        0..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        172_800..63_072_000 => format!("{} days", seconds / 86_400),
        _ => format!("{} years", thousands((seconds / 31_557_600).cast_signed())),
    }
}

fn text(info: &Info) -> String {
    let pinned = info.tokens.iter().filter(|t| t.pinned).count();
    let count = |of: u64| thousands(of.cast_signed());
    let mut lines = vec![
        ("pool", info.id.clone()),
        ("stored on", info.medium.clone()),
        ("made", info.made.map(date).unwrap_or_default()),
        ("size", format_bytes(info.size_bytes)),
        (
            "data",
            match info.written_bytes {
                Some(written) => {
                    format!("{}, {} of it written", format_bytes(info.data_bytes), format_bytes(written))
                }
                None => format_bytes(info.data_bytes),
            },
        ),
        ("live", format!("{}, older versions that tokens keep included", format_bytes(info.live_bytes))),
        (
            "extents",
            format!(
                "{} of {}: {} free, {} with data, {} with metadata",
                count(info.extents),
                format_bytes(info.extent_bytes),
                count(info.extents_free),
                count(info.extents_data),
                count(info.extents_metadata)
            ),
        ),
        (
            "failed",
            format!(
                "{} flash pages, which are not used any more; {} extents with too many of them",
                count(info.bad_pages),
                count(info.extents_retired)
            ),
        ),
        (
            "wear",
            format!(
                "extents were filled {} to {} times, the median {}{}",
                count(info.fills_min),
                count(info.fills_max),
                count(info.fills_median),
                info.lifetime_left_seconds.map_or(String::new(), |left| format!(
                    "; worn out in {} at the rate since the pool was made",
                    long_time(left)
                ))
            ),
        ),
        ("tokens", format!("{}, {pinned} of them pinned", info.tokens.len())),
        (
            "not synced",
            format!(
                "{}; there is space for {} between two syncs",
                format_bytes(info.uncommitted_bytes),
                format_bytes(info.uncommitted_max_bytes)
            ),
        ),
        (
            "history",
            info.history.map_or(String::new(), |history| {
                format!(
                    "with {} of DRAM (--dram) a program may overwrite {} between two syncs",
                    format_bytes(history.dram_bytes),
                    format_bytes(history.overwritten_max_bytes.min(info.uncommitted_max_bytes))
                )
            }),
        ),
        (
            "objects",
            info.places.map_or(String::new(), |places| {
                format!(
                    "{}; their places take {} of DRAM, of which {} are there with {} in all (--dram)",
                    count(places.objects),
                    format_bytes(places.bytes),
                    format_bytes(places.in_dram_bytes),
                    format_bytes(places.dram_bytes)
                )
            }),
        ),
        ("versions", format!("{} older entries in the page table", count(info.older_versions))),
        (
            "to replay",
            match info.checkpoint_pages {
                Some(pages) => {
                    format!("{} pages of checkpoint, {} of journal", count(pages), count(info.journal_pages))
                }
                None => format!("{} pages of journal behind the last checkpoint", count(info.journal_pages)),
            },
        ),
        (
            "DRAM",
            format!(
                "{} when open, in addition to the frames, and up to {} when all of it is written",
                format_bytes(info.dram_bytes),
                format_bytes(info.dram_bytes_max)
            ),
        ),
        ("durability", info.durability.clone()),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    lines.iter().map(|(name, value)| format!("{name:<11}{value}\n")).collect()
}

/// Judges where the JSON is to go.
fn judge(args: &ReadArgs) -> Result<()> {
    if let Some(Output::File(path)) = &args.json {
        checks::writable("--json", path)?;
        // A slip in the order of the words would replace the pool by its description.
        let pool = served::socket_of(&args.pool.path).unwrap_or_else(|| args.pool.path.clone());
        if path.exists() && path.canonicalize().ok() == pool.canonicalize().ok() {
            bad_input!("--json {} is the pool itself; name another file", path.display());
        }
    }
    Ok(())
}

/// `pool info`.
pub fn info(args: &InfoArgs) -> Result<()> {
    if let Some(socket) = served::socket_of(&args.read.pool.path) {
        if args.dram.is_some() {
            bad_input!("--dram is for pools in files: a device's store has DRAM of its own; leave it out");
        }
        if args.maps.is_some() {
            bad_input!(
                "--maps is for pools in files: a device does not say what each of its extents holds; leave it out"
            );
        }
        if args.endurance.is_some() {
            bad_input!(
                "--endurance is for pools in files: a device does not say when its store was made; leave it out"
            );
        }
        judge(&args.read)?;
        let info = Info::of_served(&args.read.pool, StoreReader::at(&args.read.pool, &socket)?)?;
        return report::write_as(args.read.json.as_ref(), &info, || text(&info));
    }
    if let Some(path) = &args.maps {
        if path.extension().is_none_or(|end| end != "svg") {
            bad_input!("--maps {} does not end in .svg; drawings are SVG", path.display());
        }
        checks::writable("--maps", path)?;
        if path.exists() && path.canonicalize().ok() == args.read.pool.path.canonicalize().ok() {
            bad_input!("--maps {} is the pool itself; name another file", path.display());
        }
    }
    judge(&args.read)?;
    let opened = to_read_in_use(&args.read.pool)?;
    if let Some(path) = &args.maps {
        report::write_file(path, maps::draw(&opened).as_bytes())?;
    }
    let info = Info::of_pool(&opened, args);
    report::write_as(args.read.json.as_ref(), &info, || text(&info))
}

/// `pool tokens`.
pub fn tokens(args: &ReadArgs) -> Result<()> {
    judge(args)?;
    let tokens = match served::socket_of(&args.pool.path) {
        Some(socket) => tokens_of_served(&args.pool, &mut StoreReader::at(&args.pool, &socket)?)?,
        None => tokens_of(&to_read_in_use(&args.pool)?),
    };
    report::write_as(args.json.as_ref(), &serde_json::json!({ "tokens": tokens }), || {
        if tokens.is_empty() {
            return "there are no tokens: nothing was synced yet\n".to_owned();
        }
        let row = |t: &Token| {
            let words = [(t.pinned, "pinned"), (t.newest, "newest")];
            let words: Vec<&str> = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
            let made = t.made_ms.map_or_else(|| "-".to_owned(), |ms| moment(ms / 1000));
            vec![t.token.to_string(), made, words.join(", ")]
        };
        table(&["token", "made", ""], 3, tokens.iter().map(row)) + "\n"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!([60, 7200, 99 * 86_400].map(long_time), ["1 minutes", "2 hours", "99 days"]);
    }
    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59 UTC");
        assert_eq!(
            [0, 951_827_696, 1_798_761_599].map(moment),
            ["1970-01-01T00:00:00Z", "2000-02-29T12:34:56Z", "2026-12-31T23:59:59Z"]
        );
    }
}
