//! Servers of one queue inside a model: which request is served, and which wait.

use std::collections::VecDeque;

use crate::time::Time;

/// Servers of one queue, first come first served. The model schedules the ends.
#[derive(Clone, Debug)]
pub struct Servers<J> {
    free: u32,
    count: u32,
    waiting: VecDeque<(J, Time)>,
    busy: Time,
}

impl<J> Servers<J> {
    /// `count` servers, all free.
    pub fn new(count: u32) -> Servers<J> {
        Servers { free: count, count, waiting: VecDeque::new(), busy: Time::ZERO }
    }
    /// A job that takes this time comes. Returns it if it begins at once.
    pub fn begin(&mut self, job: J, span: Time) -> Option<(J, Time)> {
        if self.free == 0 {
            self.waiting.push_back((job, span));
            return None;
        }
        self.free -= 1;
        self.busy += span;
        Some((job, span))
    }
    /// A job has ended. Returns the one that begins in its place.
    pub fn end(&mut self) -> Option<(J, Time)> {
        let next = self.waiting.pop_front();
        match &next {
            Some((_, span)) => self.busy += *span,
            None => self.free += 1,
        }
        next
    }
    /// The time of all jobs that have begun, by server.
    pub fn busy(&self) -> Time {
        Time(self.busy.0 / u64::from(self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_wait_in_their_order() {
        let mut servers = Servers::new(2);
        assert!(servers.begin('a', Time::ns(1)).is_some() && servers.begin('b', Time::ns(2)).is_some());
        assert!(servers.begin('c', Time::ns(3)).is_none() && servers.begin('d', Time::ns(4)).is_none());
        assert_eq!(servers.end(), Some(('c', Time::ns(3))));
        assert_eq!(servers.end().map(|(job, _)| job), Some('d'));
        assert!(servers.end().is_none() && servers.end().is_none());
        assert_eq!(servers.busy(), Time::ns(5));
    }
}
