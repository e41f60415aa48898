//! What the kernel asks for pages that leave a program's memory and come back:
//!
//! * Moved there and back (`UFFDIO_MOVE`).
//! * Copied there, moved back.
//! * Copied there and write-protected. What was not written to is dropped together, and the rest is
//!   moved back. The page buffer has this one.
//! * Write-protected, scanned (`PAGEMAP_SCAN`) and copied back.
//! * Pages of a file, dropped from the program together, then copied back from the file.
//! * Hidden, and copied through a file. The page buffer has this one without userfaultfd.
//!
//! For each page, in nanoseconds, the least of several rounds: its eviction when it was written to
//! and when it was not, its installation, and the first write to it. Pages are scattered. None of
//! the methods reads what a page holds, so the cost of finding changes by contents has a line of
//! its own. The time of the first write to a protected page excludes the signal or message that it
//! causes.
//!
//! With `busy`, another thread of the program computes on the other processors. Then each change of
//! what is mapped interrupts them.
//!
//! `cargo run --release -p fulgurite-sys --example eviction`, as root, on Linux 6.8 or later

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const PAGE: usize = 4096;
const PAGES: usize = 4096;
const ROUNDS: usize = 15;
/// Most pages that are evicted together.
const BATCH: usize = 64;
/// `PIDFD_SELF_THREAD` (Linux 6.14).
const THIS_PROCESS: i32 = -10_000;

/// Numbers of the kernel's `userfaultfd.h` and `fs.h`.
const API: u64 = 0xc018_aa3f;
const REGISTER: u64 = 0xc020_aa00;
const COPY: u64 = 0xc028_aa03;
const MOVE: u64 = 0xc028_aa05;
const PROTECT: u64 = 0xc018_aa06;
const SCAN: u64 = 0xc060_6610;
const FEATURES: u64 = 1 | 1 << 5 | 1 << 16;
/// The kernel itself takes the protection of a page away that is written to.
const BY_ITSELF: u64 = 1 << 13 | 1 << 15;
const MISSING: u64 = 1;
const PROTECTED: u64 = 2;
const COPY_PROTECTED: u64 = 2;
const SCAN_PROTECTS: u64 = 1;
const IS_WRITTEN: u64 = 2;

fn call<const N: usize>(fd: &OwnedFd, number: u64, words: &mut [u64; N]) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes as many words as the number says, which is `N`. Addresses
    // among them are of mappings of this program.
    match unsafe { libc::ioctl(fd.as_raw_fd(), number, words.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Memory of this program.
#[derive(Clone, Copy)]
struct Memory(usize);

impl Memory {
    fn new(file: Option<&OwnedFd>) -> Memory {
        let (kind, fd) =
            file.map_or((libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1), |f| (libc::MAP_SHARED, f.as_raw_fd()));
        // SAFETY: a new mapping, wherever the kernel puts it.
        let at = unsafe { libc::mmap(null_mut(), PAGES * PAGE, libc::PROT_READ | libc::PROT_WRITE, kind, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        // SAFETY: that mapping.
        unsafe { libc::madvise(at, PAGES * PAGE, libc::MADV_NOHUGEPAGE) };
        Memory(at as usize)
    }
    fn page(self, page: usize) -> usize {
        self.0 + page * PAGE
    }
    /// Drops pages from the program, with one interruption of the other processors (Linux 6.16).
    fn drop_all(self, pages: &[usize]) {
        let part = |page: &usize| libc::iovec { iov_base: self.page(*page) as *mut _, iov_len: PAGE };
        let parts: Vec<_> = pages.iter().map(part).collect();
        let (call, advice) = (libc::SYS_process_madvise, libc::MADV_DONTNEED);
        // SAFETY: pages of this mapping, which nothing refers to.
        let done = unsafe { libc::syscall(call, THIS_PROCESS, parts.as_ptr(), parts.len(), advice, 0) };
        if done != (pages.len() * PAGE) as i64 {
            pages.iter().for_each(|page| self.advise(*page, 1, advice));
        }
    }
    fn touch(self, page: usize, byte: u8) {
        // SAFETY: a page of this mapping, which one thread uses.
        unsafe { (self.page(page) as *mut u8).write_volatile(byte) };
    }
    fn copy(self, from: Memory, page: usize) {
        // SAFETY: pages of two mappings.
        unsafe { (self.page(page) as *mut u8).copy_from_nonoverlapping(from.page(page) as *const u8, PAGE) };
    }
    fn advise(self, page: usize, pages: usize, advice: i32) {
        // SAFETY: pages of this mapping, which nothing refers to.
        let result = unsafe { libc::madvise(self.page(page) as *mut _, pages * PAGE, advice) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
    fn protect(self, page: usize, pages: usize, access: i32) {
        // SAFETY: as above.
        let result = unsafe { libc::mprotect(self.page(page) as *mut _, pages * PAGE, access) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}

/// A method by which pages leave the program's memory, or come back.
trait Method {
    fn install(&mut self, page: usize);
    fn write(&mut self, page: usize) {
        self.program().touch(page, 2);
    }
    fn evict(&mut self, pages: &[usize]);
    fn program(&self) -> Memory;
}

fn userfault(features: u64) -> io::Result<OwnedFd> {
    // SAFETY: a system call with numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for this program.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    call(&fd, API, &mut [0xaa, FEATURES | features, 0])?;
    Ok(fd)
}
fn register(fd: &OwnedFd, memory: Memory, mode: u64) -> io::Result<()> {
    call(fd, REGISTER, &mut [memory.0 as u64, (PAGES * PAGE) as u64, mode, 0]).map(drop)
}

/// How pages come, and go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Moved,
    CopiedIn,
    CopiedInProtected,
}

struct Private {
    fd: OwnedFd,
    program: Memory,
    frames: Memory,
    kind: Kind,
    /// Frames whose pages were copied.
    spare: Vec<usize>,
    written: [bool; PAGES],
}
impl Private {
    fn new(kind: Kind) -> io::Result<Private> {
        let (fd, program, frames) = (userfault(0)?, Memory::new(None), Memory::new(None));
        (0..PAGES).for_each(|page| frames.touch(page, 1));
        register(&fd, program, MISSING | PROTECTED)?;
        register(&fd, frames, PROTECTED)?;
        Ok(Private { fd, program, frames, kind, spare: Vec::new(), written: [false; PAGES] })
    }
    fn shift(&self, to: Memory, from: Memory, page: usize) {
        let mut words = [to.page(page) as u64, from.page(page) as u64, PAGE as u64, 0, 0];
        call(&self.fd, MOVE, &mut words).expect("pages of this program, which nothing else uses");
    }
}
impl Method for Private {
    fn install(&mut self, page: usize) {
        if self.kind == Kind::Moved {
            self.shift(self.program, self.frames, page);
            return;
        }
        let mode = if self.kind == Kind::CopiedInProtected { COPY_PROTECTED } else { 0 };
        let mut words = [self.program.page(page) as u64, self.frames.page(page) as u64, PAGE as u64, mode, 0];
        call(&self.fd, COPY, &mut words).expect("missing pages of this program");
        self.written[page] = self.kind == Kind::CopiedIn;
        self.spare.push(page);
        if self.spare.len() == BATCH {
            self.frames.drop_all(&self.spare);
            self.spare.clear();
        }
    }
    fn write(&mut self, page: usize) {
        if self.kind == Kind::CopiedInProtected {
            let mut words = [self.program.page(page) as u64, PAGE as u64, 0];
            call(&self.fd, PROTECT, &mut words).expect("a page of this program");
            self.written[page] = true;
        }
        self.program.touch(page, 2);
    }
    fn evict(&mut self, pages: &[usize]) {
        // What was copied in has its page in its frame still.
        self.frames.drop_all(&std::mem::take(&mut self.spare));
        let (written, clean): (Vec<_>, Vec<_>) =
            pages.iter().partition(|page| self.kind == Kind::Moved || self.written[**page]);
        if !clean.is_empty() {
            self.program.drop_all(&clean);
            // The next read makes pages for them.
            clean.iter().for_each(|page| self.frames.touch(*page, 1));
        }
        written.iter().for_each(|page| self.shift(self.frames, self.program, *page));
    }
    fn program(&self) -> Memory {
        self.program
    }
}

struct Protected {
    fd: OwnedFd,
    pagemap: OwnedFd,
    program: Memory,
    frames: Memory,
}
impl Protected {
    fn new() -> io::Result<Protected> {
        let (fd, program, frames) = (userfault(BY_ITSELF)?, Memory::new(None), Memory::new(None));
        (0..PAGES).for_each(|page| frames.touch(page, 1));
        register(&fd, program, MISSING | PROTECTED)?;
        Ok(Protected { fd, pagemap: std::fs::File::open("/proc/self/pagemap")?.into(), program, frames })
    }
}
impl Method for Protected {
    fn install(&mut self, page: usize) {
        let (to, from) = (self.program.page(page) as u64, self.frames.page(page) as u64);
        let mut words = [to, from, PAGE as u64, COPY_PROTECTED, 0];
        call(&self.fd, COPY, &mut words).expect("missing pages of this program");
    }
    fn evict(&mut self, pages: &[usize]) {
        for &page in pages {
            let (from, to) = (self.program.page(page) as u64, self.program.page(page + 1) as u64);
            // Whether it was written since, protected again in the same step.
            let mut range = [0u64; 3];
            let at = range.as_mut_ptr() as u64;
            let mut words = [96, SCAN_PROTECTS, from, to, 0, at, 1, 0, 0, IS_WRITTEN, 0, IS_WRITTEN];
            if call(&self.pagemap, SCAN, &mut words).expect("a range of this program") > 0 {
                self.frames.copy(self.program, page);
            }
        }
        self.program.drop_all(pages);
    }
    fn program(&self) -> Memory {
        self.program
    }
}

fn file() -> io::Result<OwnedFd> {
    // SAFETY: a system call with a string that ends in 0.
    let fd = unsafe { libc::memfd_create(c"eviction".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for this program.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::fs::ftruncate(&file, (PAGES * PAGE) as u64)?;
    Ok(file)
}
/// The bytes of a frame.
fn bytes(frames: Memory, page: usize) -> &'static mut [u8] {
    // SAFETY: a page of the frames, which stay mapped, and of which one slice is used at a time.
    unsafe { std::slice::from_raw_parts_mut(frames.page(page) as *mut u8, PAGE) }
}

/// Memory of a file, whose missing pages userfaultfd finds.
struct Shared {
    fd: OwnedFd,
    file: OwnedFd,
    program: Memory,
    frames: Memory,
}
impl Shared {
    fn new() -> io::Result<Shared> {
        let (fd, file) = (userfault(0)?, file()?);
        let (program, frames) = (Memory::new(Some(&file)), Memory::new(None));
        (0..PAGES).for_each(|page| frames.touch(page, 1));
        register(&fd, program, MISSING)?;
        Ok(Shared { fd, file, program, frames })
    }
}
impl Method for Shared {
    fn install(&mut self, page: usize) {
        let mut words = [self.program.page(page) as u64, self.frames.page(page) as u64, PAGE as u64, 0, 0];
        call(&self.fd, COPY, &mut words).expect("missing pages of this program");
    }
    fn evict(&mut self, pages: &[usize]) {
        self.program.drop_all(pages);
        for page in pages {
            rustix::io::pread(&self.file, bytes(self.frames, *page), (page * PAGE) as u64).expect("memory");
            let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&self.file, flags, (page * PAGE) as u64, PAGE as u64).expect("memory");
        }
    }
    fn program(&self) -> Memory {
        self.program
    }
}

struct Hidden {
    file: OwnedFd,
    program: Memory,
    frames: Memory,
}
impl Hidden {
    fn new() -> io::Result<Hidden> {
        let file = file()?;
        let (program, frames) = (Memory::new(Some(&file)), Memory::new(None));
        (0..PAGES).for_each(|page| frames.touch(page, 1));
        program.protect(0, PAGES, libc::PROT_NONE);
        Ok(Hidden { file, program, frames })
    }
}
impl Method for Hidden {
    fn install(&mut self, page: usize) {
        rustix::io::pwrite(&self.file, bytes(self.frames, page), (page * PAGE) as u64).expect("memory");
        self.program.protect(page, 1, libc::PROT_READ | libc::PROT_WRITE);
    }
    fn evict(&mut self, pages: &[usize]) {
        for &page in pages {
            self.program.protect(page, 1, libc::PROT_NONE);
            rustix::io::pread(&self.file, bytes(self.frames, page), (page * PAGE) as u64).expect("memory");
            self.program.advise(page, 1, libc::MADV_REMOVE);
        }
    }
    fn program(&self) -> Memory {
        self.program
    }
}

/// All pages, scattered: none is next to the one before it.
fn scattered() -> Vec<usize> {
    (0..PAGES).map(|index| index * 1021 % PAGES).collect()
}

/// Nanoseconds that `step` takes for each page, when it gets `batch` pages at a time.
fn each(batch: usize, mut step: impl FnMut(&[usize])) -> u64 {
    let pages = scattered();
    let begun = Instant::now();
    pages.chunks(batch).for_each(&mut step);
    begun.elapsed().as_nanos() as u64 / PAGES as u64
}

/// Installs, writes and evicts all pages, round by round.
fn measure(name: &str, mut method: impl Method) {
    for batch in [1, BATCH] {
        let [mut install, mut write, mut dirty, mut clean] = [u64::MAX; 4];
        for _ in 0..ROUNDS {
            install = install.min(each(1, |page| method.install(page[0])));
            write = write.min(each(1, |page| method.write(page[0])));
            dirty = dirty.min(each(batch, |pages| method.evict(pages)));
            each(1, |page| method.install(page[0]));
            clean = clean.min(each(batch, |pages| method.evict(pages)));
        }
        println!("| {name} | {batch} | {dirty} | {clean} | {install} | {write} |");
    }
}

fn main() -> io::Result<()> {
    let (is_busy, ends) = (std::env::args().any(|word| word == "busy"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        if is_busy {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let done = all();
        ends.store(true, Ordering::Relaxed);
        done
    })
}

fn all() -> io::Result<()> {
    println!("| method | pages at a time | eviction, written | not written | installation | first write |");
    println!("|---|---|---|---|---|---|");
    measure("moved", Private::new(Kind::Moved)?);
    measure("copied in, moved out", Private::new(Kind::CopiedIn)?);
    measure("copied in and protected, dropped or moved out", Private::new(Kind::CopiedInProtected)?);
    measure("protected, scanned and copied", Protected::new()?);
    measure("dropped and copied from a file", Shared::new()?);
    measure("hidden and copied by a file", Hidden::new()?);
    let memory = Memory::new(None);
    let mut sum = 0;
    let look = (0..ROUNDS).map(|_| {
        each(1, |page| {
            // SAFETY: a page of that mapping, to which nothing writes.
            let words = unsafe { std::slice::from_raw_parts(memory.page(page[0]) as *const u64, PAGE / 8) };
            sum ^= words.iter().fold(0, |sum: u64, word| sum.rotate_left(5) ^ word);
        })
    });
    println!("a read of all bytes of a page: {} ns ({sum})", look.min().unwrap_or(0));
    Ok(())
}
