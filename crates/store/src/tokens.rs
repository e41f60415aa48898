//! The tokens that are kept: names of states that can be returned to.

use fulgurite_format::{KeptToken, TOKENS_MAX};

/// When a token was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenTime {
    /// The token.
    pub token: u64,
    /// In the pool's own time, which never goes back.
    pub age: u64,
    /// What the clock said.
    pub clock: u64,
}

/// Tokens, ascending; of some it is known when they were made, and some are being read.
///
/// A token that is read stays while its readers live, like a pinned one. No record says so, so a
/// process that ends, however it ends, leaves nothing pinned but the user's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tokens {
    kept: Vec<KeptToken>,
    times: Vec<TokenTime>,
    /// Those that are read, each with how many readers, in no order.
    read: Vec<(u64, u32)>,
}

impl Tokens {
    /// The tokens of an anchor.
    pub fn new(tokens: Vec<KeptToken>) -> Tokens {
        Tokens { kept: tokens, ..Tokens::default() }
    }
    /// All of them.
    pub fn as_slice(&self) -> &[KeptToken] {
        &self.kept
    }
    /// The numbers of all of them.
    pub fn to_vec(&self) -> Vec<u64> {
        self.kept.iter().map(|t| t.token).collect()
    }
    /// The newest.
    pub fn newest(&self) -> Option<u64> {
        self.kept.last().map(|t| t.token)
    }
    /// Whether there is one.
    pub fn contains(&self, token: u64) -> bool {
        self.kept.binary_search_by_key(&token, |t| t.token).is_ok()
    }
    /// Whether there is a token from `first` up to but not including `end`.
    pub fn any_in(&self, first: u64, end: u64) -> bool {
        let at = self.kept.partition_point(|t| t.token < first);
        self.kept.get(at).is_some_and(|t| t.token < end)
    }
    /// The first that is this one or newer.
    pub fn first_from(&self, token: u64) -> Option<u64> {
        self.kept.get(self.kept.partition_point(|t| t.token < token)).map(|t| t.token)
    }
    /// The oldest that a user wants kept, or that is read.
    pub fn oldest_pinned(&self) -> Option<u64> {
        self.kept.iter().find(|t| self.stays(t)).map(|t| t.token)
    }
    /// The oldest behind this one that a user wants kept.
    pub fn pinned_behind(&self, token: u64) -> Option<u64> {
        self.kept.iter().find(|t| t.token > token && t.pinned).map(|t| t.token)
    }
    /// The oldest behind this one that is read.
    pub fn read_behind(&self, token: u64) -> Option<u64> {
        self.read.iter().map(|(read, _)| *read).filter(|read| *read > token).min()
    }
    /// Whether this one is read.
    pub fn is_read(&self, token: u64) -> bool {
        self.read.iter().any(|(read, _)| *read == token)
    }
    fn stays(&self, token: &KeptToken) -> bool {
        token.pinned || self.is_read(token.token)
    }
    /// One more reader of a token. Returns whether there is such a token.
    pub fn begin_read(&mut self, token: u64) -> bool {
        let known = self.contains(token);
        if known {
            match self.read.iter_mut().find(|(read, _)| *read == token) {
                Some((_, readers)) => *readers += 1,
                None => self.read.push((token, 1)),
            }
        }
        known
    }
    /// One reader less of a token.
    pub fn end_read(&mut self, token: u64) {
        if let Some(at) = self.read.iter().position(|(read, _)| *read == token) {
            self.read[at].1 -= 1;
            if self.read[at].1 == 0 {
                self.read.swap_remove(at);
            }
        }
    }
    /// Whether no more fit.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= TOKENS_MAX
    }
    /// A new one, newer than all others.
    pub fn push(&mut self, token: u64) {
        debug_assert!(self.newest().is_none_or(|newest| newest < token));
        self.kept.push(KeptToken { token, pinned: false });
    }
    /// Records when a token was made. It is not remembered of a token that is not kept any more.
    pub fn set_time(&mut self, token: u64, age: u64, clock: u64) {
        if self.contains(token) {
            self.times.retain(|t| t.token != token);
            let at = self.times.partition_point(|t| t.token < token);
            self.times.insert(at, TokenTime { token, age, clock });
        }
    }
    /// When they were made, ascending, as far as that is known.
    pub fn times(&self) -> &[TokenTime] {
        &self.times
    }
    /// Forgets one.
    pub fn remove(&mut self, token: u64) {
        self.kept.retain(|t| t.token != token);
        self.times.retain(|t| t.token != token);
    }
    /// Forgets all that are newer.
    pub fn cut(&mut self, token: u64) {
        self.kept.retain(|t| t.token <= token);
        self.times.retain(|t| t.token <= token);
    }
    /// Pins one, or no more.
    pub fn pin(&mut self, token: u64, pinned: bool) {
        if let Some(token) = self.kept.iter_mut().find(|t| t.token == token) {
            token.pinned = pinned;
        }
    }
    /// Tokens that a policy of the newest `keep` drops: older ones, neither pinned nor read.
    pub fn superfluous(&self, keep: usize) -> Vec<u64> {
        let older = self.kept.len().saturating_sub(keep);
        self.kept[..older].iter().filter(|t| !self.stays(t)).map(|t| t.token).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let mut tokens = Tokens::default();
        [2, 5, 9].into_iter().for_each(|token| tokens.push(token));
        assert!(tokens.any_in(2, 3) && tokens.any_in(0, 6) && tokens.any_in(9, u64::MAX));
        assert!(!tokens.any_in(3, 5) && !tokens.any_in(10, u64::MAX) && !tokens.any_in(5, 5));
    }
    #[test]
    fn the_newest_and_the_pinned_stay() {
        let mut tokens = Tokens::default();
        (1..=5).for_each(|token| tokens.push(token));
        tokens.pin(2, true);
        assert_eq!(tokens.superfluous(2), [1, 3]);
        tokens.cut(3);
        assert_eq!(tokens.newest(), Some(3));
    }
    #[test]
    fn tokens_are_found_by_number_and_kept_while_they_are_pinned() {
        let mut tokens = Tokens::default();
        assert_eq!((tokens.newest(), tokens.oldest_pinned(), tokens.first_from(0)), (None, None, None));
        [2, 5, 9].into_iter().for_each(|token| tokens.push(token));
        assert!(tokens.contains(5) && !tokens.contains(4));
        assert_eq!([0, 2, 3, 9, 10].map(|e| tokens.first_from(e)), [Some(2), Some(2), Some(5), Some(9), None]);
        tokens.pin(9, true);
        tokens.pin(5, true);
        tokens.pin(7, true);
        assert_eq!((tokens.oldest_pinned(), tokens.superfluous(0)), (Some(5), vec![2]));
        tokens.pin(5, false);
        assert_eq!((tokens.oldest_pinned(), tokens.superfluous(0)), (Some(9), vec![2, 5]));
        tokens.remove(5);
        assert_eq!(tokens.to_vec(), [2, 9]);
        tokens.cut(9);
        assert_eq!(tokens.newest(), Some(9));
    }
    #[test]
    fn there_is_room_for_that_number_and_no_more() {
        let mut tokens = Tokens::default();
        (1..TOKENS_MAX as u64).for_each(|token| tokens.push(token));
        assert!(!tokens.is_full());
        tokens.push(TOKENS_MAX as u64);
        assert!(tokens.is_full());
    }
    #[test]
    fn times_are_of_tokens_that_are_kept() {
        let mut tokens = Tokens::default();
        [2, 5, 9].into_iter().for_each(|token| tokens.push(token));
        let ages = |tokens: &Tokens| tokens.times().iter().map(|t| (t.token, t.age)).collect::<Vec<_>>();
        [(9, 90), (2, 20), (4, 40), (5, 50), (9, 91)].into_iter().for_each(|(e, age)| tokens.set_time(e, age, 7));
        assert_eq!((ages(&tokens), tokens.times()[0].clock), (vec![(2, 20), (5, 50), (9, 91)], 7));
        tokens.remove(2);
        assert_eq!(ages(&tokens), [(5, 50), (9, 91)]);
        tokens.cut(5);
        assert_eq!(ages(&tokens), [(5, 50)]);
    }
    #[test]
    fn what_is_read_stays_until_its_last_reader_ends() {
        let mut tokens = Tokens::default();
        (1..=5).for_each(|token| tokens.push(token));
        assert!(!tokens.begin_read(9) && tokens.begin_read(2) && tokens.begin_read(2) && tokens.begin_read(4));
        tokens.pin(4, true);
        assert_eq!((tokens.superfluous(1), tokens.oldest_pinned()), (vec![1, 3], Some(2)));
        assert_eq!((tokens.read_behind(1), tokens.read_behind(2), tokens.read_behind(4)), (Some(2), Some(4), None));
        assert_eq!((tokens.pinned_behind(2), tokens.pinned_behind(4)), (Some(4), None));
        assert!(tokens.as_slice().iter().all(|t| t.pinned == (t.token == 4)), "a reader pins nothing that others see");
        tokens.end_read(2);
        assert_eq!(tokens.superfluous(1), [1, 3]);
        tokens.end_read(2);
        tokens.end_read(4);
        assert_eq!(tokens.superfluous(1), [1, 2, 3], "the user's pin stays");
        tokens.end_read(4);
    }
}
