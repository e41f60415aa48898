//! Doubly linked lists whose links live in an array of the caller's, by index.
//!
//! Invariants: front to back by `next`, back to front by `prev`. A link that is in no list is
//! [`Link::OUT`]. Which list a link is in is for the owner of the array to know.

use core::ops::ControlFlow;

use fulgurite_format::LocalFrame;

use crate::replacement::ColdCursor;

/// Beyond the end of a list.
const END: u32 = u32::MAX;
/// In no list.
const NOWHERE: u32 = u32::MAX - 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    prev: u32,
    next: u32,
}

impl Link {
    pub(crate) const OUT: Link = Link { prev: NOWHERE, next: NOWHERE };

    #[inline(always)]
    pub(crate) fn is_out(self) -> bool {
        self.prev == NOWHERE
    }
}

/// An array of links, or of things that have one.
pub(crate) trait Links {
    fn link(&mut self, at: u32) -> &mut Link;
}

impl Links for [Link] {
    #[inline(always)]
    fn link(&mut self, at: u32) -> &mut Link {
        &mut self[at as usize]
    }
}

pub(crate) struct List {
    front: u32,
    back: u32,
    len: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { front: END, back: END, len: 0 };

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// From there on, or from the back.
    pub(crate) fn back_to_front<'l>(
        &self,
        from: Option<u32>,
        link: impl Fn(u32) -> Link + 'l,
    ) -> impl Iterator<Item = u32> + 'l {
        let mut at = from.unwrap_or(self.back);
        std::iter::from_fn(move || {
            let here = (at != END).then_some(at)?;
            at = link(here).prev;
            Some(here)
        })
    }

    #[inline(always)]
    pub(crate) fn back(&self) -> Option<u32> {
        (self.back != END).then_some(self.back)
    }

    /// Tells of frames from there on, or from the back: see `Replacement::coldest`.
    pub(crate) fn coldest(
        &self,
        from: Option<u32>,
        most: usize,
        link: impl Fn(u32) -> Link,
        each: &mut dyn FnMut(LocalFrame) -> ControlFlow<()>,
    ) -> ColdCursor {
        let mut rest = self.back_to_front(from, link).peekable();
        for _ in 0..most {
            let Some(at) = rest.next() else { break };
            if each(LocalFrame(at)).is_break() {
                break;
            }
        }
        rest.peek().map_or(ColdCursor::START, |&at| ColdCursor(at))
    }

    #[inline(always)]
    pub(crate) fn front(&self) -> Option<u32> {
        (self.front != END).then_some(self.front)
    }

    #[inline]
    pub(crate) fn push_front<L: Links + ?Sized>(&mut self, links: &mut L, at: u32) {
        *links.link(at) = Link { prev: END, next: self.front };
        if self.front == END {
            self.back = at;
        } else {
            links.link(self.front).prev = at;
        }
        self.front = at;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn remove<L: Links + ?Sized>(&mut self, links: &mut L, at: u32) {
        let Link { prev, next } = core::mem::replace(links.link(at), Link::OUT);
        debug_assert!(prev != NOWHERE, "link {at} is in no list");
        if prev == END {
            self.front = next;
        } else {
            links.link(prev).next = next;
        }
        if next == END {
            self.back = prev;
        } else {
            links.link(next).prev = prev;
        }
        self.len -= 1;
    }

    #[inline]
    pub(crate) fn pop_back<L: Links + ?Sized>(&mut self, links: &mut L) -> Option<u32> {
        if self.back == END {
            return None;
        }
        let at = self.back;
        self.remove(links, at);
        Some(at)
    }

    /// Asserts the invariants and returns what is in it, front to back.
    pub(crate) fn check(&self, link: impl Fn(u32) -> Link) -> Vec<u32> {
        let (mut at, mut prev, mut found) = (self.front, END, Vec::new());
        while at != END {
            assert_eq!(link(at).prev, prev, "link {at} points back to where it was reached from");
            found.push(at);
            assert!(found.len() <= self.len(), "the list does not end");
            (prev, at) = (at, link(at).next);
        }
        assert_eq!((self.back, self.len()), (prev, found.len()), "back and length");
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_there_front_to_back_until_it_is_taken() {
        let (mut links, mut list) = ([Link::OUT; 6], List::EMPTY);
        let found = |list: &List, links: &[Link]| list.check(|at| links[at as usize]);
        assert_eq!(found(&list, &links), [0; 0]);
        for at in [4, 1, 5, 2] {
            list.push_front(&mut links[..], at);
        }
        assert_eq!(found(&list, &links), [2, 5, 1, 4]);
        assert_eq!(list.back_to_front(None, |at| links[at as usize]).collect::<Vec<_>>(), [4, 1, 5, 2]);
        assert_eq!(list.back_to_front(Some(5), |at| links[at as usize]).collect::<Vec<_>>(), [5, 2]);
        list.remove(&mut links[..], 5);
        assert_eq!(list.pop_back(&mut links[..]), Some(4));
        assert_eq!((found(&list, &links), list.len(), list.front()), (vec![2, 1], 2, Some(2)));
        let out = links.map(Link::is_out);
        assert_eq!(out, [true, false, false, true, true, true]);
    }
    #[test]
    #[should_panic(expected = "points back to where it was reached from")]
    fn a_list_that_was_cut_is_found() {
        let (mut links, mut list) = ([Link::OUT; 3], List::EMPTY);
        (0..3).for_each(|at| list.push_front(&mut links[..], at));
        links[1].prev = 0;
        list.check(|at| links[at as usize]);
    }
}
