//! Goal: the library installs, and the examples in C and C++ compile with all warnings against what
//! was installed, run, and find after a restart what they kept. Method: `scripts/install` into a
//! directory of this test, `pkg-config` for the compiler's options, and each example twice over one
//! pool, its words compared.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where this test has installed the library.
struct Installed {
    directory: tempfile::TempDir,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn run(command: &mut Command) -> String {
    let output =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/with-tools installs it"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{told}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

impl Installed {
    fn new() -> Installed {
        let directory = tempfile::tempdir().unwrap();
        let built = std::env::current_exe().unwrap();
        let mut install = Command::new(root().join("scripts/install"));
        run(install
            .arg("library")
            .arg(directory.path().join("usr"))
            .arg(built.parent().unwrap())
            .env_remove("DESTDIR"));
        Installed { directory }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What pkg-config says of the library.
    fn flags(&self, options: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        let said = run(command.args(options).arg("fulgurite").env("PKG_CONFIG_PATH", self.path("usr/lib/pkgconfig")));
        said.split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles an example.
    fn compile(&self, source: &str, flags: &[String]) -> PathBuf {
        let (compiler, standard) = if source.ends_with(".c") { ("cc", "-std=c11") } else { ("c++", "-std=c++17") };
        let name = Path::new(source).file_name().expect("a file").to_string_lossy();
        let program = self.path(&name.replace('.', "_"));
        let mut command = Command::new(compiler);
        command.args([standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-g", "-D_POSIX_C_SOURCE=200809L"]);
        run(command.arg(root().join("examples/c").join(source)).args(flags).arg("-o").arg(&program));
        program
    }

    /// What a program says to some input, linked to the library that was installed.
    fn said(&self, program: &Path, pool: &str, input: &str) -> String {
        let path = self.path("input");
        fs::write(&path, input).unwrap();
        let mut command = Command::new(program);
        command.arg(self.path(pool)).stdin(File::open(path).unwrap());
        run(command.env("LD_LIBRARY_PATH", self.path("usr/lib")))
    }
}

#[test]
fn examples_compile_run_and_go_on() {
    let installed = Installed::new();
    let shared = installed.flags(&["--cflags", "--libs"]);
    let sessions = installed.compile("sessions.c", &shared);
    let said = [(), ()].map(|()| installed.said(&sessions, "sessions.pool", ""));
    assert_eq!(said[0], "runs before this one: 0\nsession 7: [run 1]\n");
    assert_eq!(said[1], "runs before this one: 1\nsession 7: [run 1][run 2]\n");

    let accounts = installed.compile("accounts.c", &shared);
    let said = [(), ()].map(|()| installed.said(&accounts, "accounts.pool", ""));
    assert_eq!(said[0], "6400 transfers, a sum of 0, and some have gained\n");
    assert_eq!(said[1], "12800 transfers, a sum of 0, and some have gained\n");

    let words = installed.compile("words.cpp", &shared);
    let said = [(), ()].map(|()| installed.said(&words, "words.pool", "some words and some more\n"));
    assert_eq!(said[0], "and 1\nmore 1\nsome 2\nwords 1\n");
    assert_eq!(said[1], "and 2\nmore 2\nsome 4\nwords 2\n");

    let permanent = installed.compile("permanent.c", &shared);
    let said = [(), ()].map(|()| installed.said(&permanent, "permanent.pool", ""));
    if said[0].starts_with("skipped: ") {
        println!("SKIPPED: {}", said[0]);
        return;
    }
    assert_eq!(said[0], "counted 10000\n");
    assert_eq!(said[1], "counted 20000\ncounted 10000\n");
}

#[test]
fn the_program_of_the_document_runs_and_runs_again() {
    let installed = Installed::new();
    let document = fs::read_to_string(root().join("docs/c.md")).unwrap();
    let block =
        document.split("```c\n").nth(1).and_then(|rest| rest.split_once("```")).expect("docs/c.md has a program");
    let source = installed.path("document.c");
    fs::write(&source, block.0).unwrap();
    let program = installed.compile(source.to_str().unwrap(), &installed.flags(&["--cflags", "--libs"]));
    for _ in 0..2 {
        let mut command = Command::new(&program);
        command.current_dir(installed.directory.path()).env("LD_LIBRARY_PATH", installed.path("usr/lib"));
        assert_eq!(run(&mut command), "countess\n");
    }
}

#[test]
fn containers_live_in_flash() {
    let installed = Installed::new();
    let shared = installed.flags(&["--cflags", "--libs"]);
    for (source, expected) in [
        ("list.c", "200000 nodes, a sum of 19999900000\nall is freed, and the cap was held\n"),
        ("map.cpp", "150000 names in order\na vector next to them\n"),
        ("objects.c", "counted 100000 in 63379 counters\n"),
    ] {
        let program = installed.compile(source, &shared);
        let flash = installed.path("flash");
        let output = Command::new(program).arg(&flash).env("LD_LIBRARY_PATH", installed.path("usr/lib")).output();
        let output = output.unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!flash.exists(), "the file has no name afterwards");
        if told.contains("userfaultfd") && !output.status.success() {
            println!("SKIPPED: {told}");
            continue;
        }
        assert!(output.status.success(), "{source}: {}\n{told}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{source}");
    }
}

#[test]
fn an_arena_of_jemalloc_is_flash() {
    if !Path::new("/usr/include/jemalloc/jemalloc.h").exists() {
        println!("SKIPPED: there is no jemalloc to compile against; install libjemalloc-dev");
        return;
    }
    let installed = Installed::new();
    let mut flags = installed.flags(&["--cflags", "--libs"]);
    flags.push("-ljemalloc".to_owned());
    let program = installed.compile("jemalloc.c", &flags);
    let output = Command::new(program)
        .arg(installed.path("flash"))
        .env("LD_LIBRARY_PATH", installed.path("usr/lib"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("userfaultfd") && !output.status.success() {
        println!("SKIPPED: {told}");
        return;
    }
    assert!(output.status.success(), "{}\n{told}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200000 nodes in order\n0 bytes are left\n");
}

#[test]
fn a_program_without_the_shared_library_runs() {
    let installed = Installed::new();
    // The archive alone.
    fs::remove_file(installed.path("usr/lib/libfulgurite.so")).unwrap();
    let sessions = installed.compile("sessions.c", &installed.flags(&["--cflags", "--libs", "--static"]));
    let program = Command::new(&sessions).arg(installed.path("sessions.pool")).env_remove("LD_LIBRARY_PATH").output();
    let program = program.unwrap();
    assert!(program.status.success(), "{}", String::from_utf8_lossy(&program.stderr));
}
