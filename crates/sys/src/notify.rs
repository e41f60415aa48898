//! A wake-up that any thread may send to one sleeper: an eventfd, so that a ring or a poll can wait
//! for it too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

use crate::descriptors::above_standard;
use crate::gate;

/// Wakes one sleeper. A wake-up without a sleeper is kept for the next wait.
#[derive(Debug)]
pub struct Notifier {
    event: OwnedFd,
    /// Readable when the event or another descriptor is.
    both: Option<OwnedFd>,
}

impl Notifier {
    /// Makes one.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> io::Result<Notifier> {
        crate::planted::set_up(libc::EMFILE)?;
        let event = above_standard(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        Ok(Notifier { event, both: None })
    }
    /// Makes one that also wakes its sleeper while `other` can be read.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn with_other(other: BorrowedFd<'_>) -> io::Result<Notifier> {
        let notifier = Notifier::new()?;
        let both = above_standard(|| epoll::create(epoll::CreateFlags::CLOEXEC))?;
        for fd in [notifier.event.as_fd(), other] {
            epoll::add(&both, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Notifier { both: Some(both), ..notifier })
    }
    /// The event itself, for a ring that is to notify.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
    /// Wakes the sleeper, now or when it next waits.
    pub fn notify(&self) {
        // EAGAIN means that the counter is full, that is, a wake-up is kept already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
    /// Sleeps until notified or until `timeout`. Returns whether it was notified. Takes the
    /// notification.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout =
            timeout.map(|t| Timespec { tv_sec: t.as_secs().min(1 << 31) as i64, tv_nsec: t.subsec_nanos().into() });
        let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
        // EINTR ends the wait early, which every caller must expect anyway.
        if poll(&mut fds, timeout.as_ref()) == Err(rustix::io::Errno::INVAL) {
            nap_without_poll();
        }
        self.take()
    }
    /// As [`Notifier::wait`], and also ends when `other` can be read or has been closed at its
    /// other end. Returns whether it was notified.
    pub fn wait_with(&self, other: BorrowedFd<'_>, timeout: Option<Duration>) -> bool {
        let timeout =
            timeout.map(|t| Timespec { tv_sec: t.as_secs().min(1 << 31) as i64, tv_nsec: t.subsec_nanos().into() });
        let mut fds = [self.as_fd(), other].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        if poll(&mut fds, timeout.as_ref()) == Err(rustix::io::Errno::INVAL) {
            nap_without_poll();
        }
        self.take()
    }
    /// Takes a kept notification, if there is one, without sleeping.
    pub fn take(&self) -> bool {
        rustix::io::read(&self.event, &mut [0u8; 8]).is_ok()
    }
}

/// A process that may have no descriptors (`RLIMIT_NOFILE`) may not poll those that it has. Then
/// the sleeper tries again after a moment.
fn nap_without_poll() {
    gate::nap(Duration::from_micros(200));
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.both.as_ref().unwrap_or(&self.event).as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_is_kept() {
        let n = Notifier::new().unwrap();
        assert!(!n.wait(Some(Duration::from_millis(1))));
        n.notify();
        n.notify();
        assert!(n.wait(None));
        assert!(!n.take());
        let other = Notifier::new().unwrap();
        assert!(!n.wait_with(other.as_fd(), Some(Duration::from_millis(1))));
        other.notify();
        assert!(!n.wait_with(other.as_fd(), None));
        n.notify();
        assert!(n.wait_with(other.as_fd(), None));
    }
    #[test]
    fn another_descriptor_ends_a_wait_as_long_as_it_can_be_read() {
        let other = Notifier::new().unwrap();
        let n = Notifier::with_other(other.as_fd()).unwrap();
        assert!(!n.wait(Some(Duration::from_millis(1))));
        other.notify();
        assert!(!n.wait(None) && !n.wait(None), "it ends, and was not notified");
        assert!(other.take());
        n.notify();
        assert!(n.wait(None));
        assert!(!n.wait(Some(Duration::from_millis(1))));
    }
}
