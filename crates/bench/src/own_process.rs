//! Other processes of this program, over a pipe: one JSON object a line, one answer to each.

use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Serialize, de::DeserializeOwned};

/// Starts one, with both ends of its pipes. Without its input it ends.
pub fn start(arguments: &[&OsStr]) -> Result<(Child, ChildStdin, ChildStdout)> {
    let mut command = Command::new("/proc/self/exe");
    // A process group of its own: Ctrl-C at the terminal is the program's affair.
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut process = command.spawn()?;
    let (input, output) = (process.stdin.take().context("no input")?, process.stdout.take().context("no output")?);
    Ok((process, input, output))
}

/// Writes one object.
pub fn tell(output: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    output.write_all(line.as_bytes())?;
    output.flush()
}

/// An answer: a value, or why there is none.
pub type Answer = Result<serde_json::Value, String>;

/// Reads an answer.
pub fn value<T: DeserializeOwned>(line: &str) -> Result<T> {
    match serde_json::from_str(line).context("no answer")? {
        Ok(value) => Ok(serde_json::from_value(value)?),
        Err::<_, String>(sentence) => bail!(sentence),
    }
}

/// Answers what comes over standard input, until that closes or nobody reads the answers.
pub fn serve<Q: DeserializeOwned, A: Serialize>(mut answer: impl FnMut(serde_json::Result<Q>) -> A) {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in input.lines().map_while(Result::ok) {
        if tell(&mut output, &answer(serde_json::from_str(&line))).is_err() {
            break;
        }
    }
}
