//! An io_uring on one file and one arena, safe to call: whatever it is given, the kernel touches
//! only the arena.
//!
//! One thread uses a ring: the first that calls [`Uring::submit`], [`Uring::reap`] or
//! [`Uring::wait`]. (The ring is set up disabled, so that it may be made on one thread and used on
//! another.) Completions are run by that thread at its own entries into the kernel
//! (`DEFER_TASKRUN`), and a flag in shared memory says when such an entry is worth while, so that
//! looking for completions is free when there are none.
//!
//! Drop it on the same thread: another one cannot wait for operations in flight, so that arena and
//! file are then leaked. So they are when the device does not end them within 35 seconds.
//!
//! Invariants: arena, file, notifier and the memory that writes are staged in live until no
//! operation is in flight. User data is 63 bits, the top bit marks the ring's own poll of the
//! notifier. The pieces of a gathered write are listed in memory that does not change before the
//! kernel has taken the operation, which copies the list. It retries nothing: short results and
//! `EAGAIN` are the caller's.

use std::collections::TryReserveError;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, opcode, squeue, types};

use crate::direct_file::DirectFile;
use crate::{Arena, ArenaError, Backed, Notifier, planted};

/// The kernel takes at most 1 GiB per registered buffer.
const BUFFER_BYTES: usize = 1 << 30;
/// User data of the poll of the notifier.
const WAKE: u64 = 1 << 63;
/// How long the kernel is left alone when it has no room, before a ring that is closed asks again.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(1);

/// How long a ring that is dropped waits for operations in flight: as long as Linux gives an NVMe
/// device for one (`nvme_core.io_timeout`, 30 s), and then some. After that the device hangs for
/// good, perhaps, and arena and file are leaked.
const DRAIN_LIMIT: Duration = Duration::from_secs(35);

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
    /// That poll is perhaps among what the kernel has not taken yet.
    poll_waits: bool,
    /// The kernel is handed nothing any more.
    abandoned: bool,
    /// The poll ended since the last wait.
    notified: bool,
    /// How long dropping the ring waits for operations in flight.
    drain_limit: Duration,
    /// Lists of pieces of gathered writes and scattered reads that were pushed, one after the
    /// other. Never grows. Begun anew when the kernel has taken all that was pushed.
    pieces: Vec<Piece>,
    /// How requests can have several pieces.
    gathers: Gathers,
    /// Memory in which the bytes of staged writes are side by side. None before
    /// [`Uring::make_staging`].
    staging: ManuallyDrop<Option<Arena>>,
}

/// A piece of a gathered write or a scattered read, as the kernel wants it.
#[repr(transparent)]
struct Piece(libc::iovec);
// SAFETY: it points into an arena, which threads may share, and only the kernel follows it.
unsafe impl Send for Piece {}

/// The direction in which the bytes are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    /// From the file into the arena.
    Read,
    /// From the arena to the file.
    Write,
}

/// How one request can move bytes of several places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gathers {
    /// Not at all: the kernel would read the list later than it takes the operation (before Linux
    /// 5.5).
    No,
    /// From memory whose pages it pins for each write.
    Plain,
    /// Also from registered memory (from Linux 6.15 on).
    Registered,
}

/// The users of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingUser {
    /// The thread that uses it first, and no other: completions wait until it polls.
    OneThread,
    /// One thread at a time. What a thread has under way when it ends is cancelled by the kernel.
    ///
    /// When an operation ends, the kernel interrupts the thread that handed it over: a system call
    /// in which that thread waits by then ends early, as by a signal (`EINTR`, or fewer bytes).
    /// `IORING_SETUP_COOP_TASKRUN` spares an interrupt between processors, and not that. So a
    /// thread that goes on to other system calls waits for its operations first.
    AnyThread,
}

impl Uring {
    /// Makes a ring for up to `depth` operations in flight. Where `register` asks for it and the
    /// kernel allows it, memory of the arena can be registered ([`Uring::register`]).
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM` where io_uring is missing or forbidden. Others when the kernel has no
    /// memory.
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
        planted::set_up(libc::ENOMEM)?;
        let (ring, deferred) = crate::ring::new(entries, user)?;
        // Before Linux 5.11 a wait cannot time out.
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        planted::set_up(libc::ENOMEM)?;
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
            poll_waits: false,
            abandoned: false,
            notified: false,
            drain_limit: DRAIN_LIMIT,
            pieces: Vec::new(),
            gathers: Gathers::No,
            staging: ManuallyDrop::new(None),
        };
        uring.gathers = uring.find_gathers();
        if uring.gathers != Gathers::No {
            uring.pieces.try_reserve_exact(depth).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        // Refusal (RLIMIT_MEMLOCK, no rights) costs speed only. One page tells.
        uring.may_register = register && uring.arena.len() >= 4096 && uring.register_pieces(0..4096).is_ok();
        if uring.may_register {
            uring.ring.submitter().unregister_buffers()?;
        }
        Ok(uring)
    }

    fn find_gathers(&self) -> Gathers {
        if !self.ring.params().is_feature_submit_stable() {
            return Gathers::No;
        }
        let mut known = Probe::new();
        let probed = planted::set_up(libc::ENOMEM).and_then(|()| self.ring.submitter().register_probe(&mut known));
        match probed {
            Ok(()) if known.is_supported(opcode::WritevFixed::CODE) => Gathers::Registered,
            _ => Gathers::Plain,
        }
    }

    /// Registers this range of the arena, and no other, with the kernel, which then need not pin
    /// its pages at each operation. What is registered stays pinned: memory that is to be given
    /// back must not be in the range, or the ring would go on using the pages that the arena no
    /// longer has. The range is empty afterwards if the kernel refuses. To be called on the ring's
    /// own thread.
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
                // Never seen. Nothing registered is used any more, and nothing else can be
                // registered.
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
        planted::set_up(libc::ENOMEM)?;
        // SAFETY: the buffers are the arena's mapping, which we hold until the ring is closed
        // (`drop`).
        unsafe { self.ring.submitter().register_buffers(&buffers) }
    }

    /// Notifies at each operation that ends, or no more, so that another thread than the ring's may
    /// wait for it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn notify_each(&mut self, notify: bool) -> io::Result<()> {
        match notify {
            true => self.ring.submitter().register_eventfd(self.wake.event().as_raw_fd()),
            false => self.ring.submitter().unregister_eventfd(),
        }
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
            + self.pieces.capacity() * size_of::<Piece>()
            + self.staging.as_ref().map_or(0, Arena::len)
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
    /// Pieces that the next gathered write may have ([`Uring::push_gathered_write`]): as many as
    /// the ring is deep, less the pieces of gathered writes that were pushed and not yet taken by
    /// the kernel. 0 where the kernel cannot.
    #[must_use]
    pub fn gather_room(&mut self) -> usize {
        if self.ring.submission().is_empty() {
            self.pieces.clear();
        }
        self.pieces.capacity() - self.pieces.len()
    }
    /// Puts one write in the batch that takes `len` bytes at each of these offsets of the arena,
    /// one after the other. Pieces that are neighbours in the arena are listed as one, and where
    /// all are, it is a write like any other. The kernel takes no more than 1024 (`IOV_MAX`).
    ///
    /// # Errors
    /// [`RingFull`], also when there are more pieces than [`Uring::gather_room`] says.
    ///
    /// # Panics
    /// When a range is not inside the arena, or there is none.
    pub fn push_gathered_write(
        &mut self,
        file_offset: u64,
        offsets: impl IntoIterator<Item = usize>,
        len: u32,
        user: u64,
    ) -> Result<(), RingFull> {
        self.push_pieces(Direction::Write, file_offset, offsets, len, user)
    }
    /// The opposite: one read that puts `len` bytes at each of these offsets of the arena, one
    /// after the other. Ranges may overlap. What is stored there then is from one of them.
    ///
    /// # Errors
    /// As [`Uring::push_gathered_write`].
    ///
    /// # Panics
    /// As [`Uring::push_gathered_write`].
    pub fn push_scattered_read(
        &mut self,
        file_offset: u64,
        offsets: impl IntoIterator<Item = usize>,
        len: u32,
        user: u64,
    ) -> Result<(), RingFull> {
        self.push_pieces(Direction::Read, file_offset, offsets, len, user)
    }
    fn push_pieces(
        &mut self,
        direction: Direction,
        file_offset: u64,
        offsets: impl IntoIterator<Item = usize>,
        len: u32,
        user: u64,
    ) -> Result<(), RingFull> {
        let room = self.gather_room();
        let begin = self.pieces.len();
        let (mut run, mut registered) = (None::<Range<usize>>, None);
        for offset in offsets {
            match &mut run {
                Some(run) if run.end == offset => run.end += len as usize,
                _ => {
                    if !self.list(run.replace(offset..offset + len as usize), begin + room, &mut registered) {
                        self.pieces.truncate(begin);
                        return Err(RingFull);
                    }
                }
            }
        }
        let last = run.expect("a write of something");
        if self.pieces.len() == begin {
            let bytes = u32::try_from(last.len()).expect("far fewer than 4 GiB");
            return match direction {
                Direction::Read => self.push_read(file_offset, last.start, bytes, user),
                Direction::Write => self.push_write(file_offset, last.start, bytes, user),
            };
        }
        if !self.list(Some(last), begin + room, &mut registered) {
            self.pieces.truncate(begin);
            return Err(RingFull);
        }
        let count = (self.pieces.len() - begin) as u32;
        let list = self.pieces[begin..].as_ptr().cast::<libc::iovec>();
        let file = types::Fixed(0);
        let buffer = registered.flatten().filter(|_| self.gathers == Gathers::Registered);
        let entry = match (direction, buffer) {
            (Direction::Read, Some(buffer)) => {
                opcode::ReadvFixed::new(file, list, count, buffer).offset(file_offset).build()
            }
            (Direction::Read, None) => opcode::Readv::new(file, list, count).offset(file_offset).build(),
            (Direction::Write, Some(buffer)) => {
                opcode::WritevFixed::new(file, list, count, buffer).offset(file_offset).build()
            }
            (Direction::Write, None) => opcode::Writev::new(file, list, count).offset(file_offset).build(),
        };
        let pushed = self.push(entry, user);
        if pushed.is_err() {
            self.pieces.truncate(begin);
        }
        pushed
    }
    /// Makes memory for staged writes ([`Uring::push_staged_write`]), once. Later calls change
    /// nothing. In huge pages where it is as long as one, so that it is contiguous for the device,
    /// too.
    ///
    /// # Errors
    /// [`ArenaError::Map`] when the kernel refuses.
    pub fn make_staging(&mut self, bytes: usize) -> Result<(), ArenaError> {
        if self.staging.is_none() {
            *self.staging = Some(Arena::anonymous(bytes, Backed::HugePages)?);
        }
        Ok(())
    }
    /// Puts one write in the batch as [`Uring::push_gathered_write`] does, but copies the bytes
    /// first, so that they are side by side at `stage` of the staging memory. The arena is not read
    /// any more after this call, and the device meets one long piece. The bytes in the stage must
    /// not be replaced before the operation has ended, or the file gets some of either.
    ///
    /// # Errors
    /// [`RingFull`].
    ///
    /// # Panics
    /// When a range is not inside the arena or the staging memory, or there is none.
    pub fn push_staged_write(
        &mut self,
        file_offset: u64,
        stage: usize,
        offsets: impl IntoIterator<Item = usize>,
        len: u32,
        user: u64,
    ) -> Result<(), RingFull> {
        let staging = self.staging.as_ref().expect("staging memory was made");
        let mut end = stage;
        for offset in offsets {
            Arena::copy(&self.arena, offset, staging, end, len as usize);
            end += len as usize;
        }
        let bytes = u32::try_from(end - stage).expect("far fewer than 4 GiB");
        let memory = staging.range(stage, end - stage).as_ptr().cast_const();
        self.push(opcode::Write::new(types::Fixed(0), memory, bytes).offset(file_offset).build(), user)
    }
    /// Lists a piece of a gathered write. `registered` is, when a first piece was listed, the
    /// registered buffer that holds all of them, if one does. False when there is no room.
    fn list(&mut self, piece: Option<Range<usize>>, end: usize, registered: &mut Option<Option<u16>>) -> bool {
        let Some(piece) = piece else { return true };
        let iov_base = self.arena.range(piece.start, piece.len()).as_ptr().cast();
        if self.pieces.len() == end {
            return false;
        }
        self.pieces.push(Piece(libc::iovec { iov_base, iov_len: piece.len() }));
        let buffer = self.buffer(piece.start, piece.len() as u32);
        *registered = Some(registered.map_or(buffer, |before| before.filter(|_| before == buffer)));
        true
    }
    /// Puts an `fdatasync` in the batch. It is not ordered after the operations before it.
    ///
    /// # Errors
    /// [`RingFull`].
    pub fn push_sync(&mut self, user: u64) -> Result<(), RingFull> {
        self.push(opcode::Fsync::new(types::Fixed(0)).flags(types::FsyncFlags::DATASYNC).build(), user)
    }

    /// The registered buffer that holds the whole range.
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
        if self.abandoned || queue.len() + 1 >= queue.capacity() {
            return Err(RingFull);
        }
        // SAFETY: memory is a checked range of the arena or of the staging memory, which outlive
        // the operation: `drop` either waits for all operations or leaks both. A list of pieces
        // stays as it is until the kernel has taken the operation and with it a copy of the list
        // (`IORING_FEAT_SUBMIT_STABLE`). It is overwritten only when nothing pushed is left
        // (`gather_room`), never moves (it was reserved whole), and is freed after the ring.
        unsafe { queue.push(&entry.user_data(user)) }.map_err(|_| RingFull)?;
        drop(queue);
        self.in_flight += 1;
        self.pushed += 1;
        Ok(())
    }

    /// Hands the batch to the kernel.
    ///
    /// # Errors
    /// The kernel's (`EBUSY`: reap, then submit again, `EAGAIN` or `ENOMEM`: after a while, the
    /// batch is kept).
    pub fn submit(&mut self) -> io::Result<()> {
        if self.pushed == 0 {
            return Ok(());
        }
        self.enable()?;
        let taken = self.ring.submit()?;
        self.took(taken);
        Ok(())
    }
    fn took(&mut self, taken: usize) {
        self.pushed = self.pushed.saturating_sub(taken);
        self.poll_waits &= self.pushed > 0;
    }

    /// Forgets what was pushed, if the kernel has taken none of it. From then on it gets nothing of
    /// this ring, and a push and a wait are refused. Returns whether that is so. For a ring that
    /// may not be entered any more.
    pub fn abandon(&mut self) -> bool {
        let none_taken = self.in_flight + usize::from(self.poll_waits) <= self.pushed;
        if none_taken {
            (self.abandoned, self.in_flight, self.pushed) = (true, 0, 0);
        }
        self.abandoned
    }

    /// Calls `each` with the user data and result (bytes, or a negative errno) of each operation
    /// that has ended. Enters the kernel only when completions wait there for this thread.
    pub fn reap(&mut self, mut each: impl FnMut(u64, i32)) {
        if self.abandoned {
            return;
        }
        if self.ring.completion().is_empty() {
            let queue = self.ring.submission();
            if !(queue.taskrun() || queue.cq_overflow()) {
                return;
            }
            drop(queue);
            // Any error leaves the flag set, and the next call tries again.
            if let Ok(taken) = self.ring.submit() {
                self.took(taken);
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

    /// Hands the batch over and sleeps until an operation has ended, the notifier was notified, or
    /// `timeout` is over.
    ///
    /// # Errors
    /// The kernel's, but for an interrupted sleep or one that timed out.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.abandoned {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.enable()?;
        if self.in_flight == 0 {
            // The ring holds at most a wake-up, which has no other reader: callers reap when they
            // await something.
            self.reap(|_, _| {});
        }
        if std::mem::take(&mut self.notified) || !self.ring.completion().is_empty() {
            return self.submit();
        }
        if !self.armed {
            let poll = opcode::PollAdd::new(types::Fd(self.wake.as_fd().as_raw_fd()), libc::POLLIN as u32);
            // SAFETY: a poll has no buffer. The notifier is held until the ring is closed.
            let pushed = unsafe { self.ring.submission().push(&poll.build().user_data(WAKE)) };
            if pushed.is_ok() {
                (self.armed, self.poll_waits) = (true, true);
                self.pushed += 1;
            }
        }
        let time = timeout.map(|t| types::Timespec::new().sec(t.as_secs().min(1 << 31)).nsec(t.subsec_nanos()));
        let mut arguments = types::SubmitArgs::new();
        if let Some(time) = &time {
            arguments = arguments.timespec(time);
        }
        let result = self.ring.submitter().submit_with_args(1, &arguments);
        // What the call took is known from the ring: the count it returns is lost when it timed
        // out.
        let left = self.ring.submission().len();
        self.took(self.pushed.saturating_sub(left));
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

    /// Waits until the kernel has nothing of this ring. False when it does not let this thread, or
    /// does not end it in time.
    fn drain(&mut self) -> bool {
        if !self.enabled {
            return true; // The kernel has not seen a single entry.
        }
        let begun = Instant::now();
        // A poll of the notifier may stay: it names no memory, and closing the ring ends it.
        while self.in_flight > 0 {
            if self.ring.completion().is_empty() {
                let left = self.drain_limit.saturating_sub(begun.elapsed());
                if left.is_zero() {
                    return false;
                }
                let time = types::Timespec::new().sec(left.as_secs()).nsec(left.subsec_nanos());
                let arguments = types::SubmitArgs::new().timespec(&time);
                match self.ring.submitter().submit_with_args(1, &arguments) {
                    Ok(_) => {}
                    Err(e) => match e.raw_os_error() {
                        Some(libc::ETIME | libc::EINTR | libc::EBUSY) => {}
                        // Without room at the moment: it says so at once, and is left alone for a
                        // while.
                        Some(libc::EAGAIN | libc::ENOMEM) => std::thread::sleep(NO_ROOM_PAUSE.min(left)),
                        _ => return false,
                    },
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
            // Closing the ring lets go of file and memory some time later. This does it now. Only
            // the ring's own thread may.
            let _ = self.ring.submitter().unregister_files();
            if !self.registered.is_empty() {
                let _ = self.ring.submitter().unregister_buffers();
            }
            // SAFETY: each is dropped once, here, and not used afterwards. The ring goes first.
            unsafe {
                ManuallyDrop::drop(&mut self.ring);
                ManuallyDrop::drop(&mut self.file);
                ManuallyDrop::drop(&mut self.wake);
                ManuallyDrop::drop(&mut self.arena);
                ManuallyDrop::drop(&mut self.staging);
            }
            return;
        }
        // Another thread than the ring's own drops it with operations in flight, or a device does
        // not end them. The kernel ends them by itself when the ring is closed, but does not say
        // when: the arenas are leaked rather than unmapped under the device, and the file rather
        // than unlocked.
        // SAFETY: as above. Arenas and file are never dropped.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            ManuallyDrop::drop(&mut self.wake);
        }
    }
}

#[cfg(test)]
mod tests;
