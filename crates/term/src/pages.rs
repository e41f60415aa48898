//! Completion scripts and manual pages of a command line.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Arg, Command, ValueHint};
pub use clap_complete::Shell;
use clap_mangen::Man;

use crate::bad_input::bad_input;
use crate::report::write_stdout;

/// The commands for people: internal ones are in no completion and on no page.
fn for_people(whole: &Command) -> Command {
    let shown = whole.get_subcommands().filter(|c| !c.is_hide_set()).cloned();
    // A command can only gain subcommands, so the outermost is made again.
    Command::new(whole.get_name().to_owned())
        .version(env!("CARGO_PKG_VERSION"))
        .about(whole.get_about().cloned().unwrap_or_default())
        .after_help(whole.get_after_help().cloned().unwrap_or_default())
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .subcommands(shown)
}

/// With nothing to complete where there is nothing: a size or a count is no file.
fn with_hints(command: Command) -> Command {
    let hinted = |arg: Arg| {
        let unknown = arg.get_value_hint() == ValueHint::Unknown && arg.get_possible_values().is_empty();
        if arg.get_action().takes_values() && unknown { arg.value_hint(ValueHint::Other) } else { arg }
    };
    command.mut_args(hinted).mut_subcommands(with_hints)
}

/// The options of a command and of all below it that are not hidden, by name and help. One that
/// several commands share is there once.
pub fn options(command: &Command) -> BTreeSet<(String, String)> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let named = shown.filter_map(|arg| Some((arg.get_long()?.to_owned(), arg.get_help()?.to_string())));
    let below = command.get_subcommands().filter(|inner| !inner.is_hide_set()).flat_map(options);
    named.chain(below).collect()
}

/// The completion script of a command for a shell.
pub fn completion_script(whole: &Command, shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_hints(for_people(whole)), whole.get_name(), &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes it to standard output.
///
/// # Errors
/// The kernel's.
pub fn completions(whole: &Command, shell: Shell) -> Result<()> {
    write_stdout(completion_script(whole, shell).as_bytes())
}

/// Writes one manual page for each command.
///
/// # Errors
/// Bad input where there is no such directory; the kernel's.
pub fn manual(whole: &Command, directory: &Path) -> Result<()> {
    if !directory.is_dir() {
        bad_input!("{} is not a directory; make it first", directory.display());
    }
    let mut command = for_people(whole);
    command.build();
    manual_of(&command, directory)
        .with_context(|| format!("the manual pages cannot be written to {}", directory.display()))
}

fn manual_of(command: &Command, directory: &Path) -> std::io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        manual_of(inner, directory)?;
    }
    let (page, text) = (Man::new(command.clone()), manual_page(command)?);
    std::fs::write(directory.join(page.get_filename()), text)
}

/// The page of one command. Examples and lists keep their lines, to be pasted.
fn manual_page(command: &Command) -> std::io::Result<Vec<u8>> {
    let (page, mut text) = (Man::new(command.clone()), Vec::new());
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        page.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(below) = command.get_after_help() {
        text.extend(below_options(&below.to_string()).into_bytes());
    }
    if command.get_version().is_some() {
        page.render_version_section(&mut text)?;
    }
    Ok(text)
}

/// As roff: an unindented line with a colon before indented ones is a heading, indented lines stay
/// as they are, and all else is paragraphs.
fn below_options(text: &str) -> String {
    let mut roff = String::new();
    let mut as_it_is = false;
    let lines: Vec<&str> = text.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        let indented = line.starts_with("  ");
        if indented != as_it_is {
            roff.push_str(if indented { ".nf\n" } else { ".fi\n" });
            as_it_is = indented;
        }
        let before_indented = lines.get(i + 1).is_some_and(|next| next.starts_with("  "));
        match line.strip_suffix(':') {
            _ if line.is_empty() => roff.push_str(".PP\n"),
            Some(heading) if before_indented && !indented => {
                roff.push_str(&format!(".SH {}\n", roff_text(&heading.to_uppercase())));
            }
            _ => roff.push_str(&format!("{}\n", roff_text(line.strip_prefix("  ").unwrap_or(line)))),
        }
    }
    if as_it_is {
        roff.push_str(".fi\n");
    }
    roff
}

/// Text of which roff makes exactly these characters.
fn roff_text(text: &str) -> String {
    let mut roff = String::new();
    // At the beginning of a line these would begin a request.
    if text.starts_with(['.', '\'']) {
        roff.push_str("\\&");
    }
    for c in text.chars() {
        match c {
            '\\' => roff.push_str("\\e"),
            '-' => roff.push_str("\\-"),
            '\'' => roff.push_str("\\(aq"),
            '`' => roff.push_str("\\(ga"),
            '~' => roff.push_str("\\(ti"),
            '^' => roff.push_str("\\(ha"),
            other => roff.push(other),
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_manual_pages_keep_their_lines() {
        let roff = below_options("Examples:\n  a   b \\\n    -c 'd'\n\nA list:\n  e  f:\n     g\n\nText\n.more: of it");
        let examples = ".SH EXAMPLES\n.nf\na   b \\e\n  \\-c \\(aqd\\(aq\n.fi\n.PP\n";
        let expected = format!("{examples}.SH A LIST\n.nf\ne  f:\n   g\n.fi\n.PP\nText\n\\&.more: of it\n");
        assert_eq!(roff, expected);
        let command =
            Command::new("a-b").arg(Arg::new("c").long("c")).after_help("Examples:\n  a-b --c 1\n  a-b --c 2");
        let page = String::from_utf8(manual_page(&command).unwrap()).unwrap();
        let examples = page.split_once(".SH EXAMPLES\n.nf\n").unwrap().1.split_once(".fi\n").unwrap().0;
        assert_eq!(examples.lines().count(), 2, "{examples}");
        assert!(page.contains(".SH OPTIONS") && page.contains("a\\-b"));
    }
}
