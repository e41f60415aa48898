//! The act in words: what is printed while it plays, and its part of the report.

use std::time::Duration;

use super::killed::Life;
use super::{Kill, Older, Survived};
use fulgurite_term::report::html::Page;
use fulgurite_term::report::table::{self, Columns, or_dash};

fn thousands(count: u64) -> String {
    table::thousands(count.cast_signed())
}

/// A time in seconds or milliseconds.
fn time(ms: f64) -> String {
    if ms < 1000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1000.0) }
}

pub fn opening(survived: &Survived) -> String {
    format!(
        "\nMemory that survives\nA program counts {}, {} pieces of text at a time, and saves its state every {} ms.\nIt is killed in \
         the middle, at random moments (kill -9; --seed {}). What is there then is compared with the text.\nPieces are first reported when saving begins; the program counts on until the \
         state is named, so that a state holds as many or more.",
        survived.setting(),
        survived.jobs,
        survived.save_every_ms,
        survived.seed
    )
}

pub fn death(kill: usize, life: &Life) -> String {
    let saved: Vec<String> =
        life.heard.saved.iter().map(|s| format!("state {} from {} pieces on", s.token, thousands(s.pieces))).collect();
    let saved = if saved.is_empty() { "nothing new".to_owned() } else { saved.join(", ") };
    let doing = if life.heard.was_saving() { ", while it was saving" } else { "" };
    format!("{:2}. saved {saved}; killed after {}{doing}", kill + 1, time(life.lived.as_secs_f64() * 1e3))
}

pub fn found(kill: &Kill) -> String {
    let begun = kill.saved.iter().find(|saved| saved.token == kill.found).map(|saved| saved.pieces);
    let more = match begun.map(|begun| kill.pieces.saturating_sub(begun)) {
        None | Some(0) => String::new(),
        Some(more) => format!(" ({} more than when its saving began)", thousands(more)),
    };
    let which = if kill.found == kill.acknowledged { "the last one saved" } else { "the one being saved, whole" };
    format!(
        "    opened again in {}: state {}, {which}: {} pieces{more}, {} words, each counted exactly as often as it is in them",
        time(kill.open_ms),
        kill.found,
        thousands(kill.pieces),
        thousands(kill.words)
    )
}

pub fn older(older: &Older) -> String {
    format!(
        "    State {} was read next to state {}, then made the newest again in {}: {} pieces, {} words, exact, also when opened once \
         more.",
        older.token,
        older.beside,
        time(older.roll_back_ms),
        thousands(older.pieces),
        thousands(older.words)
    )
}

/// The longest of the times that it took to open the pool.
fn slowest(kills: &[Kill]) -> Duration {
    Duration::from_secs_f64(kills.iter().map(|kill| kill.open_ms).fold(0.0, f64::max) / 1e3)
}

/// The end, in a line: what was shown, or what was not as it must be.
pub fn ending(survived: &Survived) -> String {
    let kills = survived.kills.len();
    let slowest = time(slowest(&survived.kills).as_secs_f64() * 1e3);
    match &survived.failure {
        Some(failure) => format!("Memory did not survive, after {} kills without loss: {failure}.", kills),
        None if survived.interrupted => format!("Interrupted after {kills} kills, without loss until then."),
        None => format!(
            "Killed {kills} times: nothing that was saved was lost, nothing was there partially, and to open it again took {slowest} \
             at most."
        ),
    }
}

fn columns(kills: &[Kill]) -> Columns<'_, Kill> {
    let saved = |kill: &Kill| {
        let ends = kill.saved.first().zip(kill.saved.last());
        or_dash(ends, |(first, last)| match first.token == last.token {
            true => format!("state {}", first.token),
            false => format!("states {} to {}", first.token, last.token),
        })
    };
    let mut number = 0;
    Columns::of(kills)
        .right("kill", |_| {
            number += 1;
            number
        })
        .right("saved before it", saved)
        .right("of pieces, at least", |kill| or_dash(kill.saved.last(), |last| thousands(last.pieces)))
        .right("killed after", |kill| {
            format!("{}{}", time(kill.lived_ms), if kill.was_saving { ", saving" } else { "" })
        })
        .right("opened again in", |kill| time(kill.open_ms))
        .right("found", |kill| format!("state {}: {} pieces", kill.found, thousands(kill.pieces)))
        .right("words, all exact", |kill| thousands(kill.words))
}

pub fn page(page: &mut Page, survived: &Survived) {
    page.heading("Memory that survives");
    page.paragraph(&format!(
        "A program counted {}, {} pieces of text at a time, and saved its state every {} ms. It was killed in the middle, at random \
         moments (kill -9). Each time the file was opened again, and the table compared with the text: it must be as it was last \
         saved, or as it was just being saved, with all words of a piece or none.",
        survived.setting(),
        survived.jobs,
        survived.save_every_ms
    ));
    let mut figures = vec![(survived.kills.len().to_string(), "kills without a loss".to_owned())];
    if !survived.kills.is_empty() {
        let slowest = slowest(&survived.kills).as_secs_f64() * 1e3;
        figures.push((time(slowest), "to open it again, at most".to_owned()));
        let words = survived.kills.iter().map(|kill| kill.words).max().unwrap_or(0);
        figures.push((thousands(words), "words counted in the end, each in its place".to_owned()));
    }
    if let Some(older) = &survived.older {
        figures.push((time(older.roll_back_ms), format!("to go back to state {}", older.token)));
    }
    page.figures(&figures);
    page.table(&columns(&survived.kills), |_| false);
    if let Some(older) = &survived.older {
        page.paragraph(&format!(
            "State {}, the one after the first kill, was kept. It was read while state {} was the newest, then made the newest again, \
             and was exact each time: {} pieces, {} words.",
            older.token,
            older.beside,
            thousands(older.pieces),
            thousands(older.words)
        ));
    }
    page.paragraph(&ending(survived));
}
