//! One life of the counting program: started, listened to, and killed at a random moment. Then what
//! must be in the pool.
//!
//! Invariant of [`Expected`]: `least` of each piece is at most `most`.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::counter::{Line, Task};
use super::text::Contents;
use fulgurite_harness::own_process;
use fulgurite_term::interrupt::Interrupt;

/// How often Ctrl-C is checked while the program prints nothing.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// It has stopped for good when it has saved nothing for this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A state of the pool as seen from outside: the pieces certainly in it, and those that may be.
/// Pieces counted during its save are either.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Expected {
    pub token: u64,
    /// How often each piece was counted, at least.
    pub least: Vec<u64>,
    pub most: Vec<u64>,
}

/// A state that the program said is saved.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Saved {
    pub token: u64,
    /// Pieces that are in it for certain.
    pub pieces: u64,
    /// How long it took, as far as can be heard.
    pub took_ms: f64,
}

/// What was heard of the program.
#[derive(Clone, Debug)]
pub struct Heard {
    counted: Vec<u64>,
    begun: Vec<u64>,
    /// What had been counted when it began to save, while it does.
    saving: Option<(Instant, Vec<u64>)>,
    /// The last state that it said is saved.
    acknowledged: Expected,
    pub saved: Vec<Saved>,
}

impl Heard {
    /// Nothing yet, of a program that starts with this state.
    pub fn from(token: u64, times: &[u64]) -> Heard {
        let times = || times.to_vec();
        let acknowledged = Expected { token, least: times(), most: times() };
        Heard { counted: times(), begun: times(), saving: None, acknowledged, saved: Vec::new() }
    }
    /// Takes a line in; one that names a piece there is not is nonsense and changes nothing.
    pub fn take(&mut self, line: &Line) {
        let count = |times: &mut Vec<u64>, piece: u32| times.get_mut(piece as usize).into_iter().for_each(|t| *t += 1);
        match line {
            Line::Opened | Line::Failed(_) => {}
            Line::Begun(piece) => count(&mut self.begun, *piece),
            Line::Counted(piece) => count(&mut self.counted, *piece),
            Line::Saving => self.saving = Some((Instant::now(), self.counted.clone())),
            Line::Saved(token) => {
                let (since, least) = self.saving.take().unwrap_or_else(|| (Instant::now(), self.counted.clone()));
                let took_ms = since.elapsed().as_secs_f64() * 1e3;
                self.saved.push(Saved { token: *token, pieces: least.iter().sum(), took_ms });
                self.acknowledged = Expected { token: *token, least, most: self.begun.clone() };
            }
        }
    }
    /// Whether it was saving last.
    pub fn was_saving(&self) -> bool {
        self.saving.is_some()
    }
    /// The token of the last state that it said is saved.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.token
    }

    /// Whether the pool holds the last acknowledged state, or the one that was being saved, whole.
    ///
    /// # Errors
    /// A sentence that says what is not as it must be.
    pub fn agrees(&self, token: u64, found: &Contents) -> Result<(), String> {
        let last = self.acknowledged.token;
        let expected = match &self.saving {
            _ if token == last => self.acknowledged.clone(),
            Some((_, counted)) if token > last => Expected { token, least: counted.clone(), most: self.begun.clone() },
            _ if token > last => {
                return Err(format!("state {token} is there, which was never saved; the last one was {last}"));
            }
            _ => {
                return Err(format!(
                    "state {last} was reported as saved, and after the kill the newest one there is {token}"
                ));
            }
        };
        for (piece, times) in found.times.iter().enumerate() {
            let (least, most) = (expected.least[piece], expected.most[piece]);
            if !(least..=most).contains(times) {
                return Err(format!(
                    "state {token} has piece {piece} of the text {times} times; {least} to {most} times is what was counted"
                ));
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub struct Life {
    pub heard: Heard,
    pub lived: Duration,
}

/// The moment of a kill: after a number of saved states, or while the next one is saved.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub saved: usize,
    /// Whether the next one must have begun to be saved.
    pub saving: bool,
    pub delay: Duration,
}

/// A process that does not outlive this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program, kills it with SIGKILL at that moment, and says what was heard until then.
///
/// # Errors
/// When it cannot be started, ended by itself, or saved nothing for a minute.
/// [`fulgurite_term::interrupt::Interrupted`].
pub fn life(task: &Task, mut heard: Heard, moment: Moment, interrupt: &Interrupt) -> Result<Life> {
    let start = Instant::now();
    let started = own_process::start(&["__counter".as_ref()]);
    let (process, mut input, output) = started.context("the program that counts could not be started")?;
    let mut process = Ended(process);
    // Should it be gone already, the end of its lines says so.
    let _ = own_process::send(&mut input, task);
    let lines = listen(output)?;
    let (mut opened, mut kill_at, mut spoke) = (false, None, Instant::now());
    loop {
        if kill_at.is_none() && opened && heard.saved.len() >= moment.saved && (heard.was_saving() || !moment.saving) {
            kill_at = Some(Instant::now() + moment.delay);
        }
        interrupt.check()?;
        let now = Instant::now();
        if kill_at.is_some_and(|at| at <= now) {
            break;
        }
        let wait = kill_at.map_or(POLL_EVERY, |at| POLL_EVERY.min(at - now));
        match lines.recv_timeout(wait) {
            Ok(Line::Failed(sentence)) => bail!("the program that counts could not continue: {sentence}"),
            Ok(line) => {
                opened |= line == Line::Opened;
                if matches!(line, Line::Opened | Line::Saved(_)) {
                    spoke = now;
                }
                heard.take(&line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let status = process.0.wait().map_or("?".to_owned(), |status| status.to_string());
                bail!("the program that counts ended before it was killed ({status})");
            }
        }
        if spoke.elapsed() > PATIENCE {
            bail!("the program that counts has saved nothing for {} s", PATIENCE.as_secs());
        }
    }
    process.0.kill().context("the program that counts could not be killed")?;
    process.0.wait().context("the program that counts could not be killed")?;
    let lived = start.elapsed();
    // What it said last is still in the pipe.
    lines.iter().for_each(|line| heard.take(&line));
    Ok(Life { heard, lived })
}

/// Its lines, as they come. The last may be cut off, and then was not said.
fn listen(output: std::process::ChildStdout) -> Result<Receiver<Line>> {
    let (tell, told) = channel();
    let reader = std::thread::Builder::new().name("listener".into());
    reader
        .spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            let _ = lines.map_while(|line| serde_json::from_str(&line).ok()).try_for_each(|line| tell.send(line));
        })
        .context("a thread cannot be started")?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[Line]) -> Heard {
        let mut heard = Heard::from(7, &[1, 0, 0]);
        lines.iter().for_each(|line| heard.take(line));
        heard
    }
    fn found(times: [u64; 3]) -> Contents {
        Contents { times: times.to_vec(), ..Contents::default() }
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        let heard =
            heard(&[Line::Begun(1), Line::Counted(1), Line::Begun(2), Line::Saving, Line::Saved(8), Line::Begun(0)]);
        assert_eq!(heard.agrees(8, &found([1, 1, 0])), Ok(()));
        // What was being counted meanwhile may be there or not; nothing else may.
        assert_eq!(heard.agrees(8, &found([1, 1, 1])), Ok(()));
        for wrong in [[1, 0, 0], [0, 1, 0], [1, 2, 0], [2, 1, 0]] {
            assert!(heard.agrees(8, &found(wrong)).unwrap_err().contains("what was counted"), "{wrong:?}");
        }
        assert!(heard.agrees(7, &found([1, 0, 0])).unwrap_err().contains("newest one there is 7"));
        assert!(heard.agrees(9, &found([1, 1, 0])).unwrap_err().contains("was never saved"));
        assert_eq!((heard.saved[0].token, heard.saved[0].pieces), (8, 2));
    }
    #[test]
    fn what_was_being_saved_may_be_there_whole() {
        let heard = heard(&[Line::Begun(1), Line::Counted(1), Line::Saving, Line::Begun(2)]);
        assert!(heard.was_saving());
        assert_eq!(heard.agrees(7, &found([1, 0, 0])), Ok(()));
        for whole in [[1, 1, 0], [1, 1, 1]] {
            assert_eq!(heard.agrees(8, &found(whole)), Ok(()));
        }
        // Not less than was counted when saving began, and no old name with new contents.
        assert!(heard.agrees(8, &found([1, 0, 0])).is_err());
        assert!(heard.agrees(7, &found([1, 1, 0])).is_err());
    }
}
