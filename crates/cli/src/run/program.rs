//! The program that is to be run: where it is, and whether a library can be loaded into it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a program cannot be run with a library in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsuitable {
    /// It is no program of this machine.
    Foreign,
    /// It does not load libraries.
    Static,
    /// It makes its system calls itself.
    Go,
    /// It has a sanitizer.
    Sanitized,
    /// It gets rights of its file's owner, with which libraries are not loaded.
    Setuid,
    /// It gets capabilities of its file, with which libraries are not loaded.
    Capable,
}

impl Unsuitable {
    /// In words.
    pub fn message(self) -> &'static str {
        match self {
            Unsuitable::Foreign => "it is no program for Linux on x86-64",
            Unsuitable::Static => "it is linked statically, so that it calls no function that could be replaced",
            Unsuitable::Go => "it is written in Go, whose runtime makes its system calls itself",
            Unsuitable::Sanitized => {
                "it is built with a sanitizer (-fsanitize), whose runtime has to be the first library and the only \
                 one that stands in for malloc and mmap"
            }
            Unsuitable::Setuid => "it gets the rights of its file's owner or group, and then loads no foreign library",
            Unsuitable::Capable => "its file has capabilities (getcap), and then it loads no foreign library",
        }
    }
}

/// Where the shell would find a program.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    let is_program =
        |path: &Path| fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let directories = std::env::var_os("PATH")?;
    std::env::split_paths(&directories).map(|directory| directory.join(name)).find(|path| is_program(path))
}

/// How much of a file is searched for the marks of a Go program, which stand in its first sections.
const SEARCHED_MAX: u64 = 64 << 20;
/// How much of it is read at a time, a multiple of 16.
const PART: usize = 64 << 10;
/// Bytes of entries for the dynamic linker that are read.
const DYNAMIC_MOST: u64 = 64 << 10;
/// How Go's information on a build begins, at a multiple of 16 bytes. The size of a pointer and a
/// few flags follow. (A program may have the words alone, as this one does.)
const GO: &[u8] = b"\xff Go buildinf:";

/// Judges a program, or the interpreter of a script.
///
/// # Errors
/// When it cannot be read.
pub fn judge(path: &Path) -> std::io::Result<Option<Unsuitable>> {
    judge_for(path, rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

fn judge_for(path: &Path, uid: u32, gid: u32) -> std::io::Result<Option<Unsuitable>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mode = metadata.permissions().mode();
    // Root has them anyway, and keeps its libraries.
    if uid != 0 && rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64]).is_ok() {
        return Ok(Some(Unsuitable::Capable));
    }
    if mode & 0o4000 != 0 && metadata.uid() != uid || mode & 0o2010 == 0o2010 && metadata.gid() != gid {
        return Ok(Some(Unsuitable::Setuid));
    }
    let mut head = [0; 256];
    let length = read_at(&file, 0, &mut head)?;
    if let Some(line) = head[..length].strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
        let interpreter = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        // One step, as the kernel's first: an interpreter is rarely a script itself.
        let interpreter = File::open(OsStr::from_bytes(interpreter))?;
        return judge_image(&|at, into| read_at(&interpreter, at, into));
    }
    judge_image(&|at, into| read_at(&file, at, into))
}

/// The first runtime of a sanitizer among libraries that are to be loaded before all others.
pub fn sanitizer_in(preload: &str) -> Option<&str> {
    let is_runtime = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        ["libasan.", "libhwasan.", "libtsan.", "libclang_rt."].iter().any(|runtime| name.starts_with(runtime))
    };
    preload.split([':', ' ']).find(is_runtime)
}

/// Reads bytes at an offset. Fewer than asked for are there only where the file ends.
type ReadAt<'a> = &'a dyn Fn(u64, &mut [u8]) -> std::io::Result<usize>;

fn read_at(file: &File, at: u64, into: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], at.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// ELF, 64 bits, least byte first.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const X86_64: u64 = 62;
/// Segments: what is loaded, what the dynamic linker needs, and its name.
const LOADED: u64 = 1;
const DYNAMIC: u64 = 2;
const INTERPRETER: u64 = 3;
/// Entries for the dynamic linker: the names of symbols, and how long they are.
const NAMES: u64 = 5;
const NAMES_BYTES: u64 = 10;
/// Functions of sanitizers that a program built with one calls, or has. (LeakSanitizer and
/// UndefinedBehaviorSanitizer do not mind another library.)
const SANITIZERS: [&[u8]; 4] = [b"__asan_init\0", b"__hwasan_init\0", b"__msan_init\0", b"__tsan_init\0"];

/// Judges a program file. It is read in parts, because a large one may not fit into the memory
/// that the program is to have.
fn judge_image(read: ReadAt<'_>) -> std::io::Result<Option<Unsuitable>> {
    let number = |at: u64, len: usize| -> std::io::Result<Option<u64>> {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..len];
        let whole = read(at, bytes)? == len;
        Ok(whole.then(|| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))))
    };
    let mut magic = [0; MAGIC.len()];
    if read(0, &mut magic)? < MAGIC.len() || magic != MAGIC || number(18, 2)? != Some(X86_64) {
        return Ok(Some(Unsuitable::Foreign));
    }
    if is_go(read)? {
        return Ok(Some(Unsuitable::Go));
    }
    let (Some(headers), Some(size), Some(count)) = (number(32, 8)?, number(54, 2)?, number(56, 2)?) else {
        return Ok(Some(Unsuitable::Foreign));
    };
    let (mut is_static, mut dynamic, mut loaded) = (true, None, Vec::new());
    for index in 0..count {
        let Some(at) = headers.checked_add(index * size).filter(|at| *at < i64::MAX as u64 - 48) else { break };
        let Some(kind) = number(at, 4)? else { break };
        let place = [at + 8, at + 16, at + 32].map(|at| number(at, 8));
        let [Ok(Some(offset)), Ok(Some(address)), Ok(Some(len))] = place else { break };
        match kind {
            INTERPRETER => is_static = false,
            DYNAMIC => dynamic = Some((offset, len)),
            LOADED => loaded.push((offset, address, len)),
            _ => {}
        }
    }
    if is_static {
        return Ok(Some(Unsuitable::Static));
    }
    let Some((dynamic, len)) = dynamic else { return Ok(None) };
    let (mut names, mut names_len) = (None, 0);
    for at in (0..len.min(DYNAMIC_MOST)).step_by(16).map_while(|at| dynamic.checked_add(at)) {
        match (number(at, 8)?, number(at.saturating_add(8), 8)?) {
            (Some(NAMES), value) => names = value,
            (Some(NAMES_BYTES), Some(value)) => names_len = value,
            (None | Some(0), _) => break,
            _ => {}
        }
    }
    // Where the file has what is at an address.
    let offset_of = |address: u64| {
        let inside = |(_, start, len): &&(u64, u64, u64)| address.checked_sub(*start).is_some_and(|at| at < *len);
        loaded.iter().find(inside).and_then(|(offset, start, _)| offset.checked_add(address - start))
    };
    let Some(names) = names.and_then(offset_of) else { return Ok(None) };
    Ok(has_sanitizer(read, names, names_len)?.then_some(Unsuitable::Sanitized))
}

/// Whether a sanitizer's functions are among the names of symbols.
fn has_sanitizer(read: ReadAt<'_>, names: u64, len: u64) -> std::io::Result<bool> {
    // A name may cross from one part to the next.
    const OVERLAP: usize = 16;
    let mut part = vec![0; PART + OVERLAP];
    for at in (0..len.min(SEARCHED_MAX)).step_by(PART) {
        let length = read(names.saturating_add(at), &mut part)?;
        let looked = &part[..length];
        if SANITIZERS.iter().any(|name| looked.windows(name.len()).any(|window| window == *name)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_go(read: ReadAt<'_>) -> std::io::Result<bool> {
    let is_mark = |head: &[u8]| head.starts_with(GO) && matches!(head[14..], [0 | 4 | 8, 0..=3]);
    let mut part = vec![0; PART];
    for at in (0..SEARCHED_MAX).step_by(PART) {
        let length = read(at, &mut part)?;
        if part[..length].chunks_exact(16).any(is_mark) {
            return Ok(true);
        }
        if length < PART {
            break;
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge_bytes(bytes: &[u8]) -> Option<Unsuitable> {
        let read = |at: u64, into: &mut [u8]| {
            let rest = bytes.get(at as usize..).unwrap_or_default();
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        };
        judge_image(&read).unwrap()
    }

    #[test]
    fn programs_are_found_and_judged() {
        let directory = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        assert_eq!(judge(&own).unwrap(), None, "a test program is linked dynamically");
        assert_eq!(find(own.as_os_str()).as_deref(), Some(&*own));
        assert_eq!(find(OsStr::new("/no/such/program")), None);
        assert!(find(OsStr::new("sh")).is_some_and(|sh| judge(&sh).unwrap().is_none()));
        let write = |name: &str, bytes: &[u8], mode| {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        assert_eq!(judge(&write("script", b"#! /bin/sh -e\nexit", 0o755)).unwrap(), None);
        assert_eq!(judge(&write("text", b"hello", 0o755)).unwrap(), Some(Unsuitable::Foreign));
        assert_eq!(find(write("data", b"", 0o644).as_os_str()), None);
        // Version 2, effective: CAP_NET_BIND_SERVICE.
        let mut capabilities = [0u8; 20];
        (capabilities[0], capabilities[3], capabilities[5]) = (1, 2, 4);
        let capable = write("capable", &fs::read(&own).unwrap(), 0o755);
        let create = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(&capable, "security.capability", &capabilities, create) {
            Ok(()) => {
                assert_eq!(judge_for(&capable, 1000, 1000).unwrap(), Some(Unsuitable::Capable));
                assert_eq!(judge_for(&capable, 0, 0).unwrap(), None, "root keeps its libraries");
            }
            Err(error) => println!("SKIPPED: no right to give a file capabilities ({error}); run as root"),
        }
        // Of root's, for another user. Their own keep their libraries.
        if rustix::process::getuid().is_root() {
            let setuid = write("setuid", &fs::read(&own).unwrap(), 0o4755);
            assert_eq!(judge_for(&setuid, 1000, 1000).unwrap(), Some(Unsuitable::Setuid));
            assert_eq!(judge_for(&setuid, 0, 0).unwrap(), None);
            let setgid = write("setgid", &fs::read(&own).unwrap(), 0o2755);
            assert_eq!(judge_for(&setgid, 1000, 1000).unwrap(), Some(Unsuitable::Setuid));
            assert_eq!(judge_for(&setgid, 1000, 0).unwrap(), None);
        } else {
            println!("SKIPPED: no right to make programs of root that are setuid; run as root");
        }
        // One program header, of another kind.
        let mut elf = [MAGIC, &[0; 200]].concat();
        (elf[18], elf[32], elf[54], elf[56]) = (62, 64, 56, 1);
        assert_eq!(judge_bytes(&elf), Some(Unsuitable::Static));
        elf[64] = 3;
        assert_eq!(judge_bytes(&elf), None);
        elf[112..112 + GO.len()].copy_from_slice(GO);
        assert_eq!(judge_bytes(&elf), Some(Unsuitable::Go));
        elf[112] = 0;
        // For the dynamic linker: where the names are, and how long they are.
        let entry = |tag: u64, value: u64| [tag.to_le_bytes(), value.to_le_bytes()].concat();
        let header = |kind: u64, offset: u64, address: u64, len: u64| {
            [kind, offset, address, 0, len, len, 8].map(u64::to_le_bytes).concat()
        };
        let head = [MAGIC, &[0; 58]].concat();
        let segments = [header(3, 0, 0, 0), header(2, 232, 0, 48), header(1, 280, 0x1000, 64)].concat();
        let entries = [entry(5, 0x1000), entry(10, 64), entry(0, 0)].concat();
        let sanitized = |names: &[u8]| {
            let mut elf = [&head[..], &segments, &entries, names].concat();
            (elf[18], elf[32], elf[54], elf[56]) = (62, 64, 56, 3);
            judge_bytes(&elf)
        };
        assert_eq!(sanitized(b"\0printf\0__asan_init\0"), Some(Unsuitable::Sanitized));
        assert_eq!(sanitized(b"\0my__tsan_init\0"), Some(Unsuitable::Sanitized), "names may share their ends");
        assert_eq!(sanitized(b"\0printf\0__asan_initial\0__ubsan_handle_abort\0"), None);
        assert_eq!(sanitized(b""), None);
        elf[112] = 0xff;
        // In another part of it.
        let late = [&elf[..112], &[0; 2 * PART], &elf[112..]].concat();
        assert_eq!(judge_bytes(&late), Some(Unsuitable::Go));
        elf[32..40].fill(0xff);
        elf[112] = 0;
        assert_eq!(judge_bytes(&elf), Some(Unsuitable::Static), "headers beyond the end");
        assert_eq!(judge_bytes(&elf[..20]), Some(Unsuitable::Foreign));
    }
}
