//! Goal: arrows between crates point down only, unsafe code stays where it is allowed, and the
//! documents that say so are true. Method: read the order and the rules from the table in
//! `crates/README.md`, so that document and check cannot differ; compare them with every manifest
//! and source file; compare the manifests with `docs/dependencies.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What tests share.
const TESTKIT: &str = "fulgurite-testkit";

/// A line of the table in `crates/README.md`.
struct Layer {
    name: String,
    rule: Unsafe,
}

/// What the table says of unsafe code.
#[derive(PartialEq)]
enum Unsafe {
    Forbidden,
    Allowed,
    OnlyIn(String),
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of the rows of the first table in a document, without its head.
fn table(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().skip_while(|l| !l.starts_with('|')).take_while(|l| l.starts_with('|'));
    rows.skip(2).map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The layers, lowest first.
fn layers() -> Vec<Layer> {
    let rows = table(&read(&root().join("crates/README.md")));
    let layers: Vec<Layer> = rows
        .into_iter()
        .map(|cells| {
            let rule = match cells[2].as_str() {
                "forbidden" => Unsafe::Forbidden,
                "allowed" => Unsafe::Allowed,
                other => match other.strip_prefix("only in ") {
                    Some(file) => Unsafe::OnlyIn(file.to_owned()),
                    None => panic!("{}: \"{other}\" is neither forbidden, allowed nor only in a file", cells[0]),
                },
            };
            Layer { name: cells[0].clone(), rule }
        })
        .collect();
    assert!(layers.len() >= 10, "the table of layers in crates/README.md was not found");
    layers
}

/// The names under all the dependency sections of a manifest: normal, for tests, for builds, for
/// one platform.
fn dependencies(manifest: &str) -> Vec<String> {
    dependencies_under(manifest, |_| true)
}

/// The names under those dependency sections of a manifest whose own names are wanted.
fn dependencies_under(manifest: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies") && wanted(section);
            // One dependency may have a section of its own.
            let alone = section.rsplit_once("dependencies.").filter(|_| wanted(section));
            names.extend(alone.map(|(_, name)| name.trim_matches('"').to_owned()));
        } else if let (true, Some((name, _))) = (inside, line.split_once('=')) {
            names.push(name.trim().trim_end_matches(".workspace").to_owned());
        }
    }
    names
}

/// The manifest of each crate, by the name of its directory.
fn manifests() -> BTreeMap<String, String> {
    let entries = fs::read_dir(root().join("crates")).expect("crates/ exists").map(|e| e.expect("crates/ can be read"));
    let found: BTreeMap<String, String> = entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path().join("Cargo.toml")))
        .filter(|(_, manifest)| manifest.is_file())
        .map(|(name, manifest)| (name, read(&manifest)))
        .collect();
    assert!(!found.is_empty());
    for (name, manifest) in &found {
        // By another name it would not be known here.
        assert!(
            !manifest.replace(' ', "").contains("package="),
            "crates/{name}/Cargo.toml gives a dependency another name"
        );
    }
    found
}

/// The directory of one of our packages.
fn ours(package: &str) -> Option<&str> {
    if package == "fulgurite" { Some(package) } else { package.strip_prefix("fulgurite-") }
}

fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let path = entry.expect("a directory can be read").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

fn sources_of(name: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    sources(&root().join("crates").join(name).join("src"), &mut files);
    files
}

#[test]
fn every_crate_has_its_place() {
    let listed: Vec<String> = layers().into_iter().map(|l| l.name).collect();
    for name in manifests().keys() {
        assert!(listed.contains(name), "crates/{name} is not in the table of crates/README.md");
    }
    for name in &listed {
        assert!(manifests().contains_key(name), "crates/README.md lists {name}, which does not exist");
    }
}

#[test]
fn arrows_point_down_only() {
    let order: Vec<String> = layers().into_iter().map(|l| l.name).collect();
    let rank = |name: &str| order.iter().position(|n| n == name);
    let mut upward = Vec::new();
    for (name, manifest) in manifests() {
        // Tests of every layer may use what tests share; products may not, so it makes no circle of
        // them.
        let in_products = dependencies_under(&manifest, |section| !section.contains("dev-dependencies"));
        if in_products.contains(&TESTKIT.to_owned()) {
            upward.push(format!("{name} uses {TESTKIT} outside its tests"));
        }
        for dependency in dependencies(&manifest) {
            if let Some(used) = ours(&dependency)
                && dependency != TESTKIT
                && rank(used) >= rank(&name)
            {
                upward.push(format!("{name} uses {used}, which is not below it"));
            }
        }
    }
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}

/// Crates that only measure, simulate or reproduce.
const LABORATORY: [&str; 5] = ["harness", "lab", "reproduce", "sim", "workloads"];

/// An installation of the command builds and runs none of the laboratory.
#[test]
fn the_command_has_no_laboratory() {
    let all = manifests();
    let (mut seen, mut open) = (Vec::new(), vec!["cli".to_owned()]);
    while let Some(name) = open.pop() {
        let needed = dependencies_under(&all[&name], |section| !section.contains("dev-dependencies"));
        open.extend(needed.iter().filter_map(|package| ours(package)).map(str::to_owned));
        if !seen.contains(&name) {
            seen.push(name);
        }
        open.retain(|name| !seen.contains(name));
    }
    assert!(seen.len() > 10, "{seen:?}");
    let found: Vec<&String> = seen.iter().filter(|name| LABORATORY.contains(&name.as_str())).collect();
    assert!(found.is_empty(), "the command needs {found:?}");
    for name in LABORATORY {
        assert!(all.contains_key(name), "there is no crate {name}");
    }
}

#[test]
fn every_crate_has_the_common_lints() {
    for (name, manifest) in manifests() {
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "crates/{name}/Cargo.toml does not say [lints] workspace = true"
        );
    }
}

#[test]
fn unsafe_code_is_where_it_is_allowed() {
    for Layer { name, rule } in layers() {
        let source = root().join("crates").join(&name).join("src");
        let head = ["lib.rs", "main.rs"].map(|f| source.join(f)).into_iter().find(|f| f.is_file());
        let head = read(&head.unwrap_or_else(|| panic!("crates/{name} has neither lib.rs nor main.rs")));
        let forbids = head.lines().any(|l| l.trim() == "#![forbid(unsafe_code)]");
        match rule {
            Unsafe::Forbidden => assert!(forbids, "crates/{name} does not forbid unsafe code"),
            Unsafe::Allowed => assert!(!forbids, "crates/{name} forbids unsafe code; say so in crates/README.md"),
            Unsafe::OnlyIn(only) => {
                for path in sources_of(&name).iter().filter(|p| !p.ends_with(&only)) {
                    let code = read(path);
                    let found = code.lines().find(|l| {
                        let l = l.trim();
                        !l.starts_with("//") && ["unsafe {", "unsafe impl", "unsafe fn"].iter().any(|u| l.contains(u))
                    });
                    assert!(found.is_none(), "{}: unsafe code outside {only}: {found:?}", path.display());
                }
            }
        }
    }
}

#[test]
fn policy_nand_and_records_have_no_io_clock_or_threads() {
    // All that it may have of the standard library; a group in braces is none of these.
    let inside = ["collections", "iter", "mem", "fmt", "ops", "cmp", "num", "hash", "array", "vec"];
    for path in ["policy", "nand", "records"].into_iter().flat_map(sources_of) {
        for rest in read(&path).split("std::").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(inside.contains(&name.as_str()), "{}: std::{name}", path.display());
        }
    }
}

/// Crates that take the time from a `fulgurite_sys::Clock` that they are given, real or simulated.
const BY_CLOCK: [&str; 5] = ["cache", "flash", "store", "device", "runtime"];
/// Every other means to read the time, or to wait for one.
const OTHER_TIME: [&str; 9] = [
    "Instant",
    "SystemTime",
    "UNIX_EPOCH",
    "thread::sleep",
    "recv_timeout",
    "wait_timeout",
    "clock_gettime",
    "nanosleep",
    "arch::ticks",
];
/// Where the real clock is taken rather than one that was given, and why.
const REAL: [(&str, &str); 10] = [
    ("flash/src/file/mod.rs", "the default of a configuration"),
    ("flash/src/file/open.rs", "another process holds a lock"),
    ("flash/src/latency/fixed.rs", "the default of a configuration"),
    ("flash/src/latency/nand.rs", "the default of a constructor"),
    ("store/src/pool.rs", "the default of a constructor"),
    ("device/src/device.rs", "the default of a configuration"),
    ("device/src/host/link.rs", "the default of a configuration"),
    ("device/src/socket/link.rs", "another process answers"),
    ("device/src/socket/server.rs", "another process asks"),
    ("runtime/src/config.rs", "the default of a configuration"),
];

/// The lines of a source file that are neither comments nor its tests.
fn code(path: &Path) -> Vec<String> {
    let text = read(path);
    let lines = text.lines().map(str::trim).take_while(|line| *line != "mod tests {");
    lines.filter(|line| !line.starts_with("//")).map(str::to_owned).collect()
}

#[test]
fn time_comes_from_a_clock_that_was_given() {
    let (mut wrong, mut real) = (Vec::new(), Vec::new());
    for path in BY_CLOCK.into_iter().flat_map(sources_of).filter(|path| !path.ends_with("tests.rs")) {
        let name = path.strip_prefix(root().join("crates")).expect("a crate's").display().to_string();
        let code = code(&path);
        for word in OTHER_TIME {
            wrong.extend(code.iter().filter(|line| line.contains(word)).map(|line| format!("{name}: {line}")));
        }
        if code.iter().any(|line| line.contains("Clock::get()") || line.contains("Clock::default()")) {
            real.push(name);
        }
    }
    assert!(wrong.is_empty(), "time is read or waited for past the clock:\n{}", wrong.join("\n"));
    real.sort();
    let mut listed = REAL.map(|(name, _)| name);
    listed.sort_unstable();
    assert_eq!(real, listed, "where the real clock is taken is listed here, with the reason");
}

#[test]
fn every_dependency_is_explained() {
    let document = read(&root().join("docs/dependencies.md"));
    let explained: Vec<String> = table(&document).into_iter().map(|cells| cells[0].clone()).collect();
    let mut used: Vec<String> = manifests().values().flat_map(|m| dependencies(m)).collect();
    used.sort();
    used.dedup();
    used.retain(|name| ours(name).is_none());
    for name in &used {
        assert!(explained.contains(name), "{name} has no line in docs/dependencies.md");
    }
    for name in &explained {
        assert!(used.contains(name), "docs/dependencies.md explains {name}, which nothing uses");
    }
}

/// The crates that the table names use the dependency, and it names all products that do.
#[test]
fn every_dependency_names_its_users() {
    let (manifests, mut wrong) = (manifests(), Vec::new());
    for cells in table(&read(&root().join("docs/dependencies.md"))) {
        let (dependency, users) = (&cells[0], &cells[2]);
        let named: Vec<&str> = users.split(", ").filter_map(|user| user.split(' ').next()).collect();
        for user in named.iter().filter(|user| !["all", "tests"].contains(user)) {
            if !manifests.get(*user).is_some_and(|m| dependencies(m).contains(dependency)) {
                wrong.push(format!("{dependency}: {user} does not use it"));
            }
        }
        for (name, manifest) in &manifests {
            let in_product = dependencies_under(manifest, |section| !section.contains("dev-dependencies"));
            if in_product.contains(dependency) && !named.contains(&name.as_str()) && users != "all" {
                wrong.push(format!("{dependency}: {name} uses it, and is not named"));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/dependencies.md:\n{}", wrong.join("\n"));
}

#[test]
fn every_dependency_is_used() {
    let mut idle = Vec::new();
    for (name, manifest) in manifests() {
        let mut files = Vec::new();
        sources(&root().join("crates").join(&name), &mut files);
        let code: String = files.iter().map(|f| read(f)).collect();
        for dependency in dependencies(&manifest) {
            let word = dependency.replace('-', "_");
            // The last is a library that is loaded into other programs.
            if ![format!("{word}::"), format!("use {word};"), format!("use {word} as "), format!("lib{word}.so")]
                .iter()
                .any(|w| code.contains(w.as_str()))
            {
                idle.push(format!("crates/{name}/Cargo.toml: {dependency} is not used"));
            }
        }
    }
    let manifest = read(&root().join("Cargo.toml"));
    let named: Vec<String> = manifests().values().flat_map(|m| dependencies(m)).collect();
    for dependency in dependencies(&manifest) {
        if ours(&dependency).is_none() && !named.contains(&dependency) {
            idle.push(format!("Cargo.toml: {dependency} is in no crate's manifest"));
        }
    }
    assert!(idle.is_empty(), "{}", idle.join("\n"));
}

/// A package can be made only of what is published, in versions, and from a list of files.
#[test]
fn published_crates_need_published_ones_only() {
    let all = manifests();
    let is_published = |name: &str| !all[name].contains("publish = false");
    let script = read(&root().join("scripts/package"));
    let listed: Vec<&str> =
        script.lines().find_map(|line| line.strip_prefix("crates=\"")).unwrap_or("").split_whitespace().collect();
    for (name, manifest) in all.iter().filter(|(name, _)| is_published(name)) {
        for what in
            ["description", "license.workspace", "repository.workspace", "readme.workspace", "include.workspace"]
        {
            assert!(manifest.contains(what), "crates/{name}/Cargo.toml has no {what}");
        }
        let needed = dependencies_under(manifest, |section| !section.contains("dev-dependencies"));
        for needed in needed.iter().filter_map(|package| ours(package)) {
            assert!(is_published(needed), "{name} is published and needs {needed}, which is not");
        }
        let is_listed = name == "fulgurite" || listed.iter().any(|l| l.trim_end_matches('"') == name);
        assert!(is_listed, "scripts/package does not name {name}");
    }
    let workspace = read(&root().join("Cargo.toml"));
    for line in workspace.lines().filter(|line| line.starts_with("fulgurite") && line.contains("path = ")) {
        // With a version, even what only tests need has to be found where packages are.
        let has_version = line.contains("version = \"");
        let name = line.split(" = ").next().and_then(ours).expect("one of ours");
        assert_eq!(has_version, is_published(name), "a path has a version if it is published: {line}");
    }
}

/// The least version of each dependency that is asked for is the one that everything is tested
/// with. So a program of others never builds with an older one, which nobody tried.
#[test]
fn the_least_versions_are_those_that_are_tested() {
    let manifest = read(&root().join("Cargo.toml"));
    let lock = read(&root().join("Cargo.lock"));
    let locked: Vec<(&str, &str)> = lock
        .split("[[package]]")
        .filter_map(|package| {
            let value = |key: &str| package.lines().find_map(|line| line.strip_prefix(key)?.strip_suffix('"'));
            // What is behind a plus is no part of the order of versions.
            Some((value("name = \"")?, value("version = \"")?.split('+').next()?))
        })
        .collect();
    let (_, dependencies) = manifest.split_once("[workspace.dependencies]").expect("the section exists");
    let others =
        dependencies.lines().take_while(|line| !line.starts_with('[')).filter(|line| !line.contains("path = "));
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (name, what) in others.filter_map(|line| line.split_once(" = ")) {
        let least = what.strip_prefix("{ version = ").unwrap_or(what).trim_start_matches('"').split('"').next();
        let least = least.unwrap_or_else(|| panic!("{name} has no version"));
        seen += 1;
        if !locked.contains(&(name, least)) {
            let is: Vec<&str> = locked.iter().filter(|(n, _)| n == &name).map(|(_, version)| *version).collect();
            wrong.push(format!("{name}: Cargo.toml asks for {least}, and Cargo.lock has {}", is.join(", ")));
        }
    }
    assert!(seen > 30, "{seen} dependencies were found");
    assert!(wrong.is_empty(), "ask for what is tested:\n{}", wrong.join("\n"));
}

#[test]
fn the_comparisons_lock_file_is_up_to_date() {
    // The comparison is no member of the workspace, so nothing else notices: `--locked` refuses it.
    let lock = read(&root().join("peers/Cargo.lock"));
    let packages: BTreeMap<&str, &str> = lock
        .split("[[package]]")
        .filter_map(|package| Some((package.split_once("name = \"")?.1.split_once('"')?.0, package)))
        .collect();
    let (mut missing, mut seen) = (Vec::new(), 0);
    for (name, manifest) in manifests() {
        let Some(package) = packages.get(format!("fulgurite-{name}").as_str()) else { continue };
        seen += 1;
        for dependency in dependencies_under(&manifest, |section| section == "dependencies") {
            let listed = [format!("\"{dependency}\""), format!("\"{dependency} ")];
            if !listed.iter().any(|listed| package.contains(listed)) {
                missing.push(format!("fulgurite-{name}: {dependency}"));
            }
        }
    }
    assert!(seen > 10, "{seen} of our crates are in peers/Cargo.lock");
    assert!(missing.is_empty(), "cargo metadata --manifest-path peers/Cargo.toml mends its lock file: {missing:?}");
}

#[test]
fn the_peers_share_the_artefacts_of_the_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let profile = |text: &str| text[text.find("[profile.dev]").expect("a profile of tests")..].to_owned();
    let (ours, theirs) = (profile(&manifest("Cargo.toml")), profile(&manifest("peers/Cargo.toml")));
    let differ: Vec<&str> = theirs.lines().filter(|line| !ours.lines().any(|other| other == *line)).collect();
    assert!(theirs.lines().count() > 15 && differ.is_empty(), "of the peers' profile the workspace has not {differ:?}");
}
