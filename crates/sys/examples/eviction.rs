//! What the kernel asks for pages that leave a program's memory and come back, in three ways: moved
//! (`UFFDIO_MOVE`), write-protected, scanned and copied (`PAGEMAP_SCAN`), and hidden and copied
//! through a file. The page buffer has the first and, without userfaultfd, the last.
//!
//! For each page, in nanoseconds, the least of several rounds: its eviction when it was written to
//! and when it was not, its installation, and the first write to it. None of them looks at what a
//! page holds, so what telling changes by contents costs has a line of its own.
//!
//! `cargo run --release -p fulgurite-sys --example eviction`, as root, on Linux 6.8 or later

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::time::Instant;

const PAGE: usize = 4096;
const PAGES: usize = 4096;
const ROUNDS: usize = 15;

/// Numbers of the kernel's `userfaultfd.h` and `fs.h`.
const API: u64 = 0xc018_aa3f;
const REGISTER: u64 = 0xc020_aa00;
const COPY: u64 = 0xc028_aa03;
const MOVE: u64 = 0xc028_aa05;
const SCAN: u64 = 0xc060_6610;
const FEATURES: u64 = 1 << 13 | 1 << 15 | 1 << 16;
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

/// A way. `run` pages from `page` on leave the program's memory, or come back.
trait Way {
    fn install(&mut self, page: usize, run: usize);
    fn evict(&mut self, page: usize, run: usize);
    fn program(&self) -> Memory;
}

fn userfault() -> io::Result<OwnedFd> {
    // SAFETY: a system call with numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for this program.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    call(&fd, API, &mut [0xaa, FEATURES, 0])?;
    Ok(fd)
}
fn register(fd: &OwnedFd, memory: Memory, mode: u64) -> io::Result<()> {
    call(fd, REGISTER, &mut [memory.0 as u64, (PAGES * PAGE) as u64, mode, 0]).map(drop)
}

struct Moved {
    fd: OwnedFd,
    program: Memory,
    frames: Memory,
}
impl Moved {
    fn new() -> io::Result<Moved> {
        let (fd, program, frames) = (userfault()?, Memory::new(None), Memory::new(None));
        (0..PAGES).for_each(|page| frames.touch(page, 1));
        register(&fd, program, MISSING)?;
        register(&fd, frames, MISSING)?;
        Ok(Moved { fd, program, frames })
    }
    fn shift(&self, to: Memory, from: Memory, page: usize, run: usize) {
        let mut words = [to.page(page) as u64, from.page(page) as u64, (run * PAGE) as u64, 0, 0];
        call(&self.fd, MOVE, &mut words).expect("pages of this program, which nothing else uses");
    }
}
impl Way for Moved {
    fn install(&mut self, page: usize, run: usize) {
        self.shift(self.program, self.frames, page, run);
    }
    fn evict(&mut self, page: usize, run: usize) {
        self.shift(self.frames, self.program, page, run);
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
        let (fd, program, frames) = (userfault()?, Memory::new(None), Memory::new(None));
        (0..PAGES).for_each(|page| frames.touch(page, 1));
        register(&fd, program, MISSING | PROTECTED)?;
        Ok(Protected { fd, pagemap: std::fs::File::open("/proc/self/pagemap")?.into(), program, frames })
    }
}
impl Way for Protected {
    fn install(&mut self, page: usize, run: usize) {
        let (to, from) = (self.program.page(page) as u64, self.frames.page(page) as u64);
        let mut words = [to, from, (run * PAGE) as u64, COPY_PROTECTED, 0];
        call(&self.fd, COPY, &mut words).expect("missing pages of this program");
    }
    fn evict(&mut self, page: usize, run: usize) {
        let (from, to) = (self.program.page(page) as u64, self.program.page(page + run) as u64);
        // What was written since, protected again in the same step.
        let mut ranges = [[0u64; 3]; 64];
        let (at, most) = (ranges.as_mut_ptr() as u64, ranges.len() as u64);
        let mut words = [96, SCAN_PROTECTS, from, to, 0, at, most, 0, 0, IS_WRITTEN, 0, IS_WRITTEN];
        let found = call(&self.pagemap, SCAN, &mut words).expect("a range of this program") as usize;
        for [from, to, _] in &ranges[..found] {
            let first = (*from as usize - self.program.0) / PAGE;
            (first..first + (to - from) as usize / PAGE).for_each(|page| self.frames.copy(self.program, page));
        }
        self.program.advise(page, run, libc::MADV_DONTNEED);
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
        // SAFETY: a system call with a string that ends in 0.
        let fd = unsafe { libc::memfd_create(c"eviction".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for this program.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::fs::ftruncate(&file, (PAGES * PAGE) as u64)?;
        let (program, frames) = (Memory::new(Some(&file)), Memory::new(None));
        (0..PAGES).for_each(|page| frames.touch(page, 1));
        program.protect(0, PAGES, libc::PROT_NONE);
        Ok(Hidden { file, program, frames })
    }
    fn bytes(&self, page: usize, run: usize) -> &'static mut [u8] {
        // SAFETY: pages of the frames, which stay mapped, and of which one slice is used at a time.
        unsafe { std::slice::from_raw_parts_mut(self.frames.page(page) as *mut u8, run * PAGE) }
    }
}
impl Way for Hidden {
    fn install(&mut self, page: usize, run: usize) {
        rustix::io::pwrite(&self.file, self.bytes(page, run), (page * PAGE) as u64).expect("memory");
        self.program.protect(page, run, libc::PROT_READ | libc::PROT_WRITE);
    }
    fn evict(&mut self, page: usize, run: usize) {
        self.program.protect(page, run, libc::PROT_NONE);
        rustix::io::pread(&self.file, self.bytes(page, run), (page * PAGE) as u64).expect("memory");
        self.program.advise(page, run, libc::MADV_REMOVE);
    }
    fn program(&self) -> Memory {
        self.program
    }
}

/// Nanoseconds for each page of `step`, for runs of pages.
fn each(run: usize, mut step: impl FnMut(usize)) -> u64 {
    let begun = Instant::now();
    (0..PAGES).step_by(run).for_each(&mut step);
    begun.elapsed().as_nanos() as u64 / PAGES as u64
}

/// Installs, writes and evicts all pages, round by round.
fn measure(name: &str, mut way: impl Way) {
    for run in [1, 64] {
        let [mut install, mut write, mut dirty, mut clean] = [u64::MAX; 4];
        for _ in 0..ROUNDS {
            install = install.min(each(run, |page| way.install(page, run)));
            write = write.min(each(1, |page| way.program().touch(page, 2)));
            dirty = dirty.min(each(run, |page| way.evict(page, run)));
            (0..PAGES).step_by(run).for_each(|page| way.install(page, run));
            clean = clean.min(each(run, |page| way.evict(page, run)));
        }
        println!("| {name} | {run} | {dirty} | {clean} | {install} | {write} |");
    }
}

fn main() -> io::Result<()> {
    println!("| way | pages at a time | eviction, written | not written | installation | first write |");
    println!("|---|---|---|---|---|---|");
    measure("moved", Moved::new()?);
    measure("protected, scanned and copied", Protected::new()?);
    measure("hidden and copied by a file", Hidden::new()?);
    let memory = Memory::new(None);
    let mut sum = 0;
    let look = (0..ROUNDS).map(|_| {
        each(1, |page| {
            // SAFETY: a page of that mapping, to which nothing writes.
            let words = unsafe { std::slice::from_raw_parts(memory.page(page) as *const u64, PAGE / 8) };
            sum ^= words.iter().fold(0, |sum: u64, word| sum.rotate_left(5) ^ word);
        })
    });
    println!("a look at all bytes of a page: {} ns ({sum})", look.min().unwrap_or(0));
    Ok(())
}
