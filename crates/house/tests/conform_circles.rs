//! Goal: no circle of more than three files, so that a file can be understood and changed with few
//! others. Method: read the imports and paths of each crate's sources into a graph of files, and
//! look for strongly connected ones. A name that a file only hands on (`pub use`, or an import that
//! others reach through it) leads to the file that defines it. `mod x;` is no import, and unit
//! tests at the foot of a file do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most files of a circle.
const CIRCLE_MAX: usize = 3;

/// The path to a module: names, from the crate's root.
type Module = Vec<String>;

/// What a file says of others.
#[derive(Default)]
struct Source {
    /// Paths that it imports for itself, and paths in its code.
    taken: BTreeSet<Vec<String>>,
    /// What it imports or hands on, by the name that it has here.
    names: BTreeMap<String, Vec<String>>,
}

/// The code without comments, texts and characters.
fn code_of(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |end| end + 5)
        } else if rest.starts_with('"') {
            let mut end = 1;
            while end < rest.len() && rest.as_bytes()[end] != b'"' {
                end += 1 + usize::from(rest.as_bytes()[end] == b'\\');
            }
            end + 1
        } else if let Some(escaped) = rest.strip_prefix("'\\") {
            escaped.find('\'').map_or(1, |end| end + 3)
        } else if let Some(quoted) = rest.strip_prefix('\'') {
            let mut next = quoted.chars();
            let length = next.next().map_or(0, char::len_utf8);
            if next.next() == Some('\'') { length + 2 } else { 1 }
        } else {
            0
        };
        if skipped > 0 {
            code.push(' ');
            at += skipped;
        } else {
            let c = rest.chars().next().expect("there is more");
            code.push(c);
            at += c.len_utf8();
        }
    }
    code
}

/// The paths of an import: `a::{b, c as d}` has two. With each, the name that it has here.
fn paths_of(tree: &str, before: &[String], into: &mut Vec<(Vec<String>, String)>) {
    let tree = tree.trim();
    if let Some(open) = tree.find('{') {
        let names = tree[..open].split("::").map(str::trim).filter(|name| !name.is_empty());
        let before: Vec<String> = before.iter().cloned().chain(names.map(str::to_owned)).collect();
        let inside = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
        let (mut depth, mut from) = (0, 0);
        for (i, c) in inside.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    paths_of(&inside[from..i], &before, into);
                    from = i + 1;
                }
                _ => {}
            }
        }
        return paths_of(&inside[from..], &before, into);
    }
    if tree.is_empty() {
        return;
    }
    let (path, name) = match tree.split_once(" as ") {
        Some((path, name)) => (path, Some(name.trim().to_owned())),
        None => (tree, None),
    };
    let mut path: Vec<String> =
        before.iter().cloned().chain(path.split("::").map(|part| part.trim().to_owned())).collect();
    path.retain(|part| !part.is_empty());
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
    into.push((path, name));
}

/// Every `a::b::c` in code that is no import.
fn paths_in(code: &str, into: &mut BTreeSet<Vec<String>>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = code;
    while let Some(start) = rest.find(is_word) {
        rest = &rest[start..];
        let mut path = Vec::new();
        loop {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            path.push(rest[..end].to_owned());
            rest = &rest[end..];
            match rest.strip_prefix("::") {
                Some(more) if more.starts_with(is_word) => rest = more,
                _ => break,
            }
        }
        if path.len() > 1 {
            into.insert(path);
        }
    }
}

fn read(text: &str) -> Source {
    let mut source = Source::default();
    let code = code_of(text);
    let mut others = String::new();
    let mut rest = code.as_str();
    // A word, so that nothing else that ends in "use" is one.
    while let Some(at) = rest.match_indices("use ").map(|(at, _)| at).find(|at| {
        let before = rest[..*at].chars().next_back();
        before.is_none_or(|c| c.is_whitespace() || c == '{' || c == '}' || c == ';')
    }) {
        let end = rest[at..].find(';').map_or(rest.len(), |end| at + end);
        let declared = rest[..at].trim_end();
        let line = declared.rsplit(['\n', ';', '{', '}']).next().unwrap_or_default().trim();
        let handed_on = line.starts_with("pub") && (line == "pub" || line.ends_with(')'));
        others.push_str(&rest[..at]);
        let mut paths = Vec::new();
        paths_of(&rest[at + 4..end], &[], &mut paths);
        for (path, name) in paths {
            if !handed_on {
                source.taken.insert(path.clone());
            }
            source.names.insert(name, path);
        }
        rest = &rest[end..];
    }
    others.push_str(rest);
    paths_in(&others, &mut source.taken);
    source
}

/// The files of a crate.
struct Crate {
    sources: BTreeMap<Module, Source>,
}

impl Crate {
    fn read(directory: &Path) -> Crate {
        fn walk(root: &Path, directory: &Path, into: &mut BTreeMap<Module, Source>) {
            for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
                let path = entry.expect("a directory can be read").path();
                if path.is_dir() {
                    walk(root, &path, into);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let within = path.strip_prefix(root).expect("below the root").with_extension("");
                    let mut module: Module = within.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                    if module.last().is_some_and(|last| last == "mod")
                        || module.len() == 1 && ["lib", "main"].contains(&module[0].as_str())
                    {
                        module.pop();
                    }
                    into.insert(module, read(&fs::read_to_string(&path).expect("a source can be read")));
                }
            }
        }
        let mut sources = BTreeMap::new();
        walk(directory, directory, &mut sources);
        Crate { sources }
    }
    /// A path that a module names, from the root; none when it leads out of the crate.
    fn rooted(&self, module: &Module, path: &[String], depth: usize) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => {
                let mut base = module.clone();
                base.pop();
                let up = rest.iter().take_while(|part| *part == "super").count();
                base.truncate(base.len().saturating_sub(up));
                base.extend_from_slice(&rest[up..]);
                return Some(base);
            }
            name => {
                let mut inner = module.clone();
                inner.push(name.to_owned());
                if self.sources.contains_key(&inner) {
                    inner
                } else {
                    let imported = self.sources[module].names.get(name)?;
                    if depth == 0 || imported.first() == Some(first) {
                        return None;
                    }
                    self.rooted(module, imported, depth - 1)?
                }
            }
        };
        base.extend_from_slice(rest);
        Some(base)
    }
    /// The file that holds what a path from the root leads to. None if that is a module by its
    /// name, or is elsewhere.
    fn file_of(&self, path: &[String], depth: usize) -> Option<Module> {
        let length = (0..=path.len()).rev().find(|length| self.sources.contains_key(&path[..*length]))?;
        let (file, rest) = path.split_at(length);
        let name = rest.first()?;
        let file = file.to_vec();
        match self.sources[&file].names.get(name) {
            Some(handed_on) if depth > 0 => {
                let mut path = self.rooted(&file, handed_on, 8)?;
                path.extend_from_slice(&rest[1..]);
                self.file_of(&path, depth - 1)
            }
            _ => Some(file),
        }
    }
    /// What each file takes from which other one.
    fn arrows(&self) -> BTreeMap<&Module, BTreeMap<Module, String>> {
        let mut arrows: BTreeMap<&Module, BTreeMap<Module, String>> = BTreeMap::new();
        for (module, source) in &self.sources {
            for path in &source.taken {
                let Some(mut whole) = self.rooted(module, path, 8) else { continue };
                // All of a module: that is what its file holds.
                if whole.last().is_some_and(|last| last == "*") {
                    *whole.last_mut().expect("there is one") = String::from("everything of it");
                }
                if let Some(file) = self.file_of(&whole, 8).filter(|file| file != module) {
                    arrows.entry(module).or_default().insert(file, path.join("::"));
                }
            }
        }
        arrows
    }
    /// The circles that are too large, each as what its files take from each other.
    fn too_large(&self) -> Vec<Vec<String>> {
        let arrows = self.arrows();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> = self
            .sources
            .keys()
            .map(|from| {
                let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
                while let Some(file) = next.pop() {
                    for to in arrows.get(file).into_iter().flat_map(BTreeMap::keys) {
                        if seen.insert(to) {
                            next.push(to);
                        }
                    }
                }
                (from, seen)
            })
            .collect();
        let mut done = BTreeSet::new();
        let mut circles = Vec::new();
        for from in self.sources.keys() {
            let circle: BTreeSet<&Module> =
                reached[from].iter().copied().filter(|to| reached[*to].contains(from)).collect();
            if circle.len() > CIRCLE_MAX && done.insert(circle.clone()) {
                let shown = |module: &Module| if module.is_empty() { "lib".to_owned() } else { module.join("::") };
                let within = circle.iter().flat_map(|file| {
                    let taken = arrows.get(file).into_iter().flatten().filter(|(to, _)| circle.contains(to));
                    taken.map(|(to, path)| format!("{} -> {} ({path})", shown(file), shown(to)))
                });
                circles.push(within.collect());
            }
        }
        circles
    }
}

#[test]
fn no_circle_of_files_is_large() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found: Vec<PathBuf> =
        fs::read_dir(&crates).expect("the crates").map(|entry| entry.expect("a crate").path()).collect();
    found.retain(|path| path.join("src").is_dir());
    found.sort();
    let mut offenders = Vec::new();
    let mut arrows = 0;
    for path in found {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let sources = Crate::read(&path.join("src"));
        arrows += sources.arrows().values().map(BTreeMap::len).sum::<usize>();
        let circles = sources.too_large();
        offenders.extend(circles.iter().map(|circle| format!("crates/{name}:\n    {}", circle.join("\n    "))));
    }
    assert!(arrows > 500, "{arrows} arrows: the sources were not understood");
    assert!(offenders.is_empty(), "circles of more than {CIRCLE_MAX} files:\n  {}", offenders.join("\n  "));
}

/// Files by their modules, with their text.
fn made_of(files: &[(&str, &str)]) -> Crate {
    let module = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    Crate { sources: files.iter().map(|(name, text)| (module(name), read(text))).collect() }
}

#[test]
fn a_circle_is_found_through_names_that_are_handed_on() {
    let text = [
        ("", "mod a; pub mod b; mod c; mod d; pub use a::{A, b_of as other}; pub use d::*;"),
        ("a", "use crate::b::{self, B};\npub struct A; pub fn b_of() -> B { b::B }"),
        ("b", "pub struct B(Option<super::c::C>);"),
        ("c", "use crate::d::{Deep, inner::{Inner}};\npub struct C;"),
        ("d", "pub struct Deep; fn f() { crate::other(); }"),
        ("d::inner", "use super::super::A; // use crate::never::Seen;\npub struct Inner(A, &'static str);"),
    ];
    let circles = made_of(&text).too_large();
    assert_eq!(circles.len(), 1, "{circles:?}");
    let said = circles[0].join("\n");
    for arrow in ["a -> b (", "b -> c (super::c::C)", "c -> d (", "d -> a (crate::other)", "d::inner -> a ("] {
        assert!(said.contains(arrow), "{arrow}: {said}");
    }
    // What only hands names on is in no circle.
    assert!(!said.contains("lib"), "{said}");
}

#[test]
fn what_is_no_import_makes_no_arrow() {
    let text = [
        ("", "mod a; mod b; mod c; mod d;"),
        ("a", "use super::b::B; pub struct A;"),
        ("b", "use super::c::C; pub struct B;"),
        ("c", "use super::d::D; pub struct C;"),
        (
            "d",
            "// crate::a::A\nconst TEXT: &str = \"crate::a::A\"; pub struct D;\n#[cfg(test)]\nmod tests { use crate::a::A; }",
        ),
    ];
    assert_eq!(made_of(&text).too_large(), Vec::<Vec<String>>::new());
    let open = [text[0], text[1], text[2], text[3], ("d", "pub struct D; fn f() -> crate::a::A { todo() }")];
    assert_eq!(made_of(&open).too_large().len(), 1);
}
