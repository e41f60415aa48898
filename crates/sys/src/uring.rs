//! An io_uring on one file and one arena, safe to call: whatever it is given, the kernel touches only the arena.
//!
//! One thread uses a ring: the first that calls [`Uring::submit`], [`Uring::reap`] or [`Uring::wait`]. (The ring is set up
//! disabled, so that it may be made on one thread and used on another.) Completions are run by that thread at its own
//! entries into the kernel (`DEFER_TASKRUN`), and a flag in shared memory says when such an entry is worth while, so that
//! looking for completions is free when there are none.
//!
//! Drop it on the same thread: another one cannot wait for operations in flight, so that arena and file are then leaked.
//!
//! Invariants: arena, file and notifier live until no operation is in flight; user data is 63 bits, the top bit marks the
//! ring's own poll of the notifier. It retries nothing: short results and `EAGAIN` are the caller's.

use std::collections::TryReserveError;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

use crate::direct_file::DirectFile;
use crate::{Arena, Notifier};

/// The kernel takes at most 1 GiB per registered buffer.
const BUFFER_BYTES: usize = 1 << 30;
/// User data of the poll of the notifier.
const WAKE: u64 = 1 << 63;

/// The submission ring is full: submit, reap, try again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the submission ring is full; submit and reap first")]
pub struct RingFull;

/// A ring on a file and an arena.
pub struct Uring {
    ring: ManuallyDrop<IoUring>,
    file: ManuallyDrop<Arc<DirectFile>>,
    arena: ManuallyDrop<Arc<Arena>>,
    wake: ManuallyDrop<Arc<Notifier>>,
    /// The kernel lets us register memory.
    may_register: bool,
    /// Bytes of the arena that are registered with the kernel, in pieces of [`BUFFER_BYTES`].
    registered: Range<usize>,
    /// `DEFER_TASKRUN` was granted.
    deferred: bool,
    enabled: bool,
    /// Pushed and not reaped, polls of the notifier aside.
    in_flight: usize,
    /// Pushed, not yet taken by the kernel.
    pushed: usize,
    /// A poll of the notifier is in the ring.
    armed: bool,
    /// The poll ended since the last wait.
    notified: bool,
}

/// Who uses a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingUser {
    /// The thread that uses it first, and no other: completions wait until it looks.
    OneThread,
    /// One thread at a time. What a thread has under way when it ends is cancelled by the kernel.
    AnyThread,
}

impl Uring {
    /// Makes a ring for up to `depth` operations in flight. Where `register` asks for it and the kernel allows it, memory of
    /// the arena can be registered ([`Uring::register`]).
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM` where io_uring is missing or forbidden; others when the kernel has no memory.
    pub fn new(
        depth: usize,
        file: Arc<DirectFile>,
        arena: Arc<Arena>,
        wake: Arc<Notifier>,
        register: bool,
        user: RingUser,
    ) -> io::Result<Uring> {
        // One more, for the poll of the notifier.
        let entries = u32::try_from(depth + 1).map_err(|_| io::ErrorKind::InvalidInput)?.next_power_of_two();
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_r_disabled();
        let (ring, deferred) = match builder.build(entries) {
            // The kernel refuses a deferred ring to all threads but the first that uses it.
            _ if user == RingUser::AnyThread => (IoUring::builder().build(entries)?, false),
            Ok(ring) => (ring, true),
            // Before Linux 6.1: completions interrupt the thread, nothing else changes.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (IoUring::builder().build(entries)?, false),
            Err(e) => return Err(e),
        };
        // Before Linux 5.11 a wait cannot time out.
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        ring.submitter().register_files(&[file.as_fd().as_raw_fd()])?;
        let mut uring = Uring {
            ring: ManuallyDrop::new(ring),
            file: ManuallyDrop::new(file),
            arena: ManuallyDrop::new(arena),
            wake: ManuallyDrop::new(wake),
            may_register: false,
            registered: 0..0,
            deferred,
            enabled: !deferred,
            in_flight: 0,
            pushed: 0,
            armed: false,
            notified: false,
        };
        // Refusal (RLIMIT_MEMLOCK, no rights) costs speed only; one page tells.
        uring.may_register = register && uring.arena.len() >= 4096 && uring.register_pieces(0..4096).is_ok();
        if uring.may_register {
            uring.ring.submitter().unregister_buffers()?;
        }
        Ok(uring)
    }

    /// Registers this range of the arena, and no other, with the kernel, which then need not pin its pages at each operation.
    /// What is registered stays pinned: memory that is to be given back must not be in the range, or the ring would go on
    /// using the pages that the arena no longer has. The range is empty afterwards if the kernel refuses. To be called on
    /// the ring's own thread.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn register(&mut self, range: Range<usize>) {
        assert!(range.end <= self.arena.len() && range.start <= range.end, "{range:?} is outside the arena");
        if !self.may_register || range == self.registered {
            return;
        }
        if !self.registered.is_empty() {
            self.registered = 0..0;
            if self.ring.submitter().unregister_buffers().is_err() {
                // Never seen; nothing registered is used any more, and nothing else can be registered.
                self.may_register = false;
                return;
            }
        }
        if !range.is_empty() && self.register_pieces(range.clone()).is_ok() {
            self.registered = range;
        }
    }

    fn register_pieces(&self, range: Range<usize>) -> io::Result<()> {
        let mut buffers = Vec::new();
        let reserved: Result<(), TryReserveError> = buffers.try_reserve(range.len().div_ceil(BUFFER_BYTES));
        reserved.map_err(|_| io::ErrorKind::OutOfMemory)?;
        for offset in range.clone().step_by(BUFFER_BYTES) {
            let len = BUFFER_BYTES.min(range.end - offset);
            buffers.push(libc::iovec { iov_base: self.arena.range(offset, len).as_ptr().cast(), iov_len: len });
        }
        // SAFETY: the buffers are the arena's mapping, which we hold until the ring is closed (`drop`).
        unsafe { self.ring.submitter().register_buffers(&buffers) }
    }

    /// Whether memory can be registered: operations then need not pin its pages each time.
    #[must_use]
    pub fn may_register(&self) -> bool {
        self.may_register
    }
    /// Whether completions wait for this thread to come for them (`DEFER_TASKRUN`).
    #[must_use]
    pub fn deferred(&self) -> bool {
        self.deferred
    }
    /// Operations pushed and not reaped.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
    /// Memory of the rings in this process.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let p = self.ring.params();
        p.sq_entries() as usize * (size_of::<squeue::Entry>() + 4)
            + p.cq_entries() as usize * size_of::<io_uring::cqueue::Entry>()
    }

    /// Puts a read of `len` bytes of the file into the arena in the batch.
    ///
    /// # Errors
    /// [`RingFull`].
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn push_read(&mut self, file_offset: u64, offset: usize, len: u32, user: u64) -> Result<(), RingFull> {
        let memory = self.arena.range(offset, len as usize).as_ptr();
        let entry = match self.buffer(offset, len) {
            Some(buffer) => opcode::ReadFixed::new(types::Fixed(0), memory, len, buffer).offset(file_offset).build(),
            None => opcode::Read::new(types::Fixed(0), memory, len).offset(file_offset).build(),
        };
        self.push(entry, user)
    }
    /// Puts a write of `len` bytes of the arena to the file in the batch.
    ///
    /// # Errors
    /// [`RingFull`].
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn push_write(&mut self, file_offset: u64, offset: usize, len: u32, user: u64) -> Result<(), RingFull> {
        let memory = self.arena.range(offset, len as usize).as_ptr().cast_const();
        let entry = match self.buffer(offset, len) {
            Some(buffer) => opcode::WriteFixed::new(types::Fixed(0), memory, len, buffer).offset(file_offset).build(),
            None => opcode::Write::new(types::Fixed(0), memory, len).offset(file_offset).build(),
        };
        self.push(entry, user)
    }
    /// Puts an `fdatasync` in the batch. It is not ordered after the operations before it.
    ///
    /// # Errors
    /// [`RingFull`].
    pub fn push_sync(&mut self, user: u64) -> Result<(), RingFull> {
        self.push(opcode::Fsync::new(types::Fixed(0)).flags(types::FsyncFlags::DATASYNC).build(), user)
    }

    /// The registered buffer that holds the range.
    fn buffer(&self, offset: usize, len: u32) -> Option<u16> {
        let end = offset + len as usize;
        if offset < self.registered.start || end > self.registered.end || len == 0 {
            return None;
        }
        let (first, last) = (offset - self.registered.start, end - 1 - self.registered.start);
        u16::try_from(first / BUFFER_BYTES).ok().filter(|_| first / BUFFER_BYTES == last / BUFFER_BYTES)
    }

    fn push(&mut self, entry: squeue::Entry, user: u64) -> Result<(), RingFull> {
        debug_assert!(user < WAKE, "the top bit of user data is the ring's own");
        // Room is kept for the poll of the notifier.
        let mut queue = self.ring.submission();
        if queue.len() + 1 >= queue.capacity() {
            return Err(RingFull);
        }
        // SAFETY: memory is a checked range of the arena, which outlives the operation: `drop` either waits for all
        // operations or leaks the arena.
        unsafe { queue.push(&entry.user_data(user)) }.map_err(|_| RingFull)?;
        drop(queue);
        self.in_flight += 1;
        self.pushed += 1;
        Ok(())
    }

    /// Hands the batch to the kernel.
    ///
    /// # Errors
    /// The kernel's (`EAGAIN` or `EBUSY`: reap, then submit again; the batch is kept).
    pub fn submit(&mut self) -> io::Result<()> {
        if self.pushed == 0 {
            return Ok(());
        }
        self.enable()?;
        let taken = self.ring.submit()?;
        self.pushed = self.pushed.saturating_sub(taken);
        Ok(())
    }

    /// Calls `each` with the user data and result (bytes, or a negative errno) of each operation that has ended.
    /// Enters the kernel only when completions wait there for this thread.
    pub fn reap(&mut self, mut each: impl FnMut(u64, i32)) {
        if self.ring.completion().is_empty() {
            let queue = self.ring.submission();
            if !(queue.taskrun() || queue.cq_overflow()) {
                return;
            }
            drop(queue);
            // Any error leaves the flag set, and the next call tries again.
            if let Ok(taken) = self.ring.submit() {
                self.pushed = self.pushed.saturating_sub(taken);
            }
        }
        let (mut ended, mut notified) = (0, false);
        for entry in self.ring.completion() {
            match entry.user_data() {
                WAKE => notified = true,
                user => {
                    ended += 1;
                    each(user, entry.result());
                }
            }
        }
        self.in_flight -= ended;
        if notified {
            (self.armed, self.notified) = (false, true);
            self.wake.take();
        }
    }

    /// Hands the batch over and sleeps until an operation has ended, the notifier was notified, or `timeout` is over.
    ///
    /// # Errors
    /// The kernel's, but for an interrupted sleep or one that timed out.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.enable()?;
        if self.in_flight == 0 {
            // What is in the ring is a wake-up at most, for which nobody else comes: callers reap when they await something.
            self.reap(|_, _| {});
        }
        if std::mem::take(&mut self.notified) || !self.ring.completion().is_empty() {
            return self.submit();
        }
        if !self.armed {
            let poll = opcode::PollAdd::new(types::Fd(self.wake.as_fd().as_raw_fd()), libc::POLLIN as u32);
            // SAFETY: a poll has no buffer; the notifier is held until the ring is closed.
            let pushed = unsafe { self.ring.submission().push(&poll.build().user_data(WAKE)) };
            if pushed.is_ok() {
                self.armed = true;
                self.pushed += 1;
            }
        }
        let time = timeout.map(|t| types::Timespec::new().sec(t.as_secs().min(1 << 31)).nsec(t.subsec_nanos()));
        let mut arguments = types::SubmitArgs::new();
        if let Some(time) = &time {
            arguments = arguments.timespec(time);
        }
        let result = self.ring.submitter().submit_with_args(1, &arguments);
        // What the call took is known from the ring: the count it returns is lost when it timed out.
        let left = self.ring.submission().len();
        self.pushed = left;
        match result {
            Ok(_) => Ok(()),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Binds the ring to the calling thread, the first time.
    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    /// Waits until the kernel has nothing of ours. False when it does not let this thread.
    fn drain(&mut self) -> bool {
        if !self.enabled {
            return true; // The kernel has not seen a single entry.
        }
        // A poll of the notifier may stay: it has no memory of ours, and closing the ring ends it.
        while self.in_flight > 0 {
            if self.ring.completion().is_empty() {
                match self.ring.submit_and_wait(1) {
                    Ok(_) => {}
                    Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                    Err(_) => return false,
                }
            }
            self.reap(|_, _| {});
        }
        true
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.drain() {
            // Closing the ring lets go of file and memory some time later; this does it now. Only the ring's own thread may.
            let _ = self.ring.submitter().unregister_files();
            if !self.registered.is_empty() {
                let _ = self.ring.submitter().unregister_buffers();
            }
            // SAFETY: each is dropped once, here, and not used afterwards; the ring goes first.
            unsafe {
                ManuallyDrop::drop(&mut self.ring);
                ManuallyDrop::drop(&mut self.file);
                ManuallyDrop::drop(&mut self.wake);
                ManuallyDrop::drop(&mut self.arena);
            }
            return;
        }
        // Another thread than the ring's own drops it with operations in flight. The kernel ends them by itself when the
        // ring is closed, but does not say when: the arena is leaked rather than unmapped under the device, and the file
        // rather than unlocked.
        // SAFETY: as above; arena and file are never dropped.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            ManuallyDrop::drop(&mut self.wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backed;

    /// A ring on an unlinked file of `pages` pages, or none where io_uring is missing.
    fn ring(name: &str, pages: usize, depth: usize) -> Option<(Uring, Arc<Arena>, Arc<Notifier>)> {
        let path = std::env::temp_dir().join(format!("fulgurite-uring-{name}-{}", std::process::id()));
        let file = Arc::new(DirectFile::create(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let arena = Arc::new(Arena::anonymous(pages * 4096, Backed::BasePages).unwrap());
        for page in 0..pages {
            arena.write(page * 4096, &[page as u8 + 1; 4096]);
            file.write_at(page as u64 * 4096, &arena, page * 4096, 4096).unwrap();
        }
        let wake = Arc::new(Notifier::new().unwrap());
        let mut ring = Uring::new(depth, file, arena.clone(), wake.clone(), true, RingUser::OneThread).ok()?;
        ring.register(0..arena.len());
        Some((ring, arena, wake))
    }

    #[test]
    fn reads_on_another_thread_than_it_was_made_on() {
        let Some((mut ring, arena, _)) = ring("reads", 8, 4) else { return };
        std::thread::spawn(move || {
            for i in 0..100u64 {
                ring.push_read(i % 8 * 4096, 0, 4096, i).unwrap();
                ring.submit().unwrap();
                let mut got = Vec::new();
                while got.is_empty() {
                    ring.wait(None).unwrap();
                    ring.reap(|user, result| got.push((user, result)));
                }
                assert_eq!(got, [(i, 4096)]);
                let mut bytes = [0; 4096];
                arena.read(0, &mut bytes);
                assert_eq!(bytes, [(i % 8) as u8 + 1; 4096]);
            }
        })
        .join()
        .unwrap();
    }
    #[test]
    fn memory_that_was_given_back_is_not_the_rings_any_more() {
        let Some((mut ring, arena, _)) = ring("discard", 8, 4) else { return };
        let read = |ring: &mut Uring, page: usize| {
            ring.push_read(page as u64 * 4096, page * 4096, 4096, 0).unwrap();
            let mut ended = 0;
            while ended == 0 {
                ring.wait(None).unwrap();
                ring.reap(|_, result| ended = result);
            }
            let mut bytes = [0; 4096];
            arena.read(page * 4096, &mut bytes);
            assert_eq!((ended, bytes), (4096, [page as u8 + 1; 4096]), "page {page}");
        };
        for registered in [8, 3, 8, 0, 1] {
            // First the ring lets go, then the kernel gets the memory back.
            ring.register(0..registered * 4096);
            arena.discard(registered * 4096, (8 - registered) * 4096);
            (0..8).for_each(|page| read(&mut ring, page));
        }
    }
    #[test]
    fn a_wake_up_ends_a_wait_and_is_kept() {
        let Some((mut ring, _, wake)) = ring("wake", 1, 1) else { return };
        for _ in 0..3 {
            wake.notify();
            ring.wait(None).unwrap();
            ring.reap(|_, _| panic!("nothing was asked for"));
            ring.wait(Some(Duration::from_millis(1))).unwrap();
        }
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            wake.notify();
        });
        while !ring.notified {
            ring.wait(None).unwrap();
            ring.reap(|_, _| {});
        }
        other.join().unwrap();
    }
    #[test]
    fn a_wake_up_that_nobody_reaps_ends_one_wait_and_not_all() {
        let Some((mut ring, _, wake)) = ring("idle", 1, 1) else { return };
        ring.wait(Some(Duration::from_millis(1))).unwrap();
        wake.notify();
        let begin = std::time::Instant::now();
        let mut waits = 0;
        while begin.elapsed() < Duration::from_millis(50) {
            ring.wait(Some(Duration::from_millis(10))).unwrap();
            waits += 1;
        }
        assert!(waits <= 10, "{waits} waits of 10 ms in 50 ms");
    }
    #[test]
    fn it_is_bounded_and_drains_when_dropped() {
        let Some((mut ring, _, _)) = ring("drop", 64, 64) else { return };
        let mut pushed = 0;
        while ring.push_read(0, pushed % 64 * 4096, 4096, pushed as u64).is_ok() {
            pushed += 1;
            assert!(pushed < 1000);
        }
        assert!(pushed >= 64);
        assert_eq!(ring.push_sync(0), Err(RingFull));
        ring.submit().unwrap();
        drop(ring);
    }
    #[test]
    fn another_thread_may_drop_it() {
        let Some((mut ring, _, _)) = ring("elsewhere", 8, 8) else { return };
        ring.push_read(0, 0, 4096, 1).unwrap();
        ring.submit().unwrap();
        std::thread::spawn(move || drop(ring)).join().unwrap();
    }
}
