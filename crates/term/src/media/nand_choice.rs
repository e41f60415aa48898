//! Which NAND an option names.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::bad_input::{OrBadInput, bad_input};
use crate::values::nearest;

/// Which NAND.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NandChoice {
    /// A profile that is built in, by its name.
    BuiltIn(&'static str),
    /// A profile in a file.
    File(PathBuf),
}

impl fmt::Display for NandChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NandChoice::BuiltIn(name) => f.write_str(name),
            NandChoice::File(path) => path.display().fmt(f),
        }
    }
}

/// Reads [`NandChoice`]: a built-in profile, with or without `.toml`, where no file has that name.
pub fn nand(text: &str) -> Result<NandChoice, String> {
    let names = fulgurite_nand::Profile::built_in_names;
    if text.is_empty() {
        return Err(format!("an empty name; write a TOML file, or one of {}", names().collect::<Vec<_>>().join(", ")));
    }
    let there = std::path::Path::new(text).exists();
    let word = text.strip_suffix(".toml").unwrap_or(text);
    match names().find(|name| *name == word) {
        Some(name) if !there => Ok(NandChoice::BuiltIn(name)),
        None if !there && !text.contains('/') && !text.ends_with(".toml") => Err(match nearest(word, names()) {
            Some(name) => format!("no such file or profile; did you mean \"{name}\"?"),
            None => format!("no such file or profile; built in are {}", names().collect::<Vec<_>>().join(", ")),
        }),
        _ => Ok(NandChoice::File(text.into())),
    }
}

/// No description of NAND is longer than this.
const NAND_FILE_MAX: u64 = 1 << 20;

/// The text of a profile of NAND.
pub fn nand_profile(choice: &NandChoice) -> Result<String> {
    let text = match choice {
        NandChoice::BuiltIn(name) => fulgurite_nand::Profile::built_in_text(name).unwrap_or_default().to_owned(),
        NandChoice::File(path) => {
            let file = match fs::symlink_metadata(path) {
                Ok(found) if found.is_file() && found.len() <= NAND_FILE_MAX => fs::read_to_string(path),
                Ok(found) if found.is_file() => bad_input!("{} is too large to describe NAND", path.display()),
                Ok(_) => bad_input!("{} is no regular file; name a TOML file that describes NAND", path.display()),
                Err(error) => Err(error),
            };
            file.or_bad_input(|error| format!("{} cannot be read: {error}", path.display()))?
        }
    };
    fulgurite_nand::Profile::parse(&text).or_bad_input(|error| format!("{choice}: {error}"))?;
    Ok(text)
}
