//! The tokens that are kept: names of states that can be returned to.

use fulgurite_format::{KeptToken, TOKENS_MAX};

/// When a token was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenTime {
    /// The token.
    pub epoch: u64,
    /// In the pool's own time, which never goes back.
    pub age: u64,
    /// What the clock said.
    pub clock: u64,
}

/// Tokens, ascending; of some it is known when they were made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tokens(Vec<KeptToken>, Vec<TokenTime>);

impl Tokens {
    /// Those of an anchor.
    pub fn new(tokens: Vec<KeptToken>) -> Tokens {
        Tokens(tokens, Vec::new())
    }
    /// All of them.
    pub fn as_slice(&self) -> &[KeptToken] {
        &self.0
    }
    /// The newest.
    pub fn newest(&self) -> Option<u64> {
        self.0.last().map(|t| t.epoch)
    }
    /// Whether there is one.
    pub fn contains(&self, epoch: u64) -> bool {
        self.0.binary_search_by_key(&epoch, |t| t.epoch).is_ok()
    }
    /// Whether a token names a state of the epochs from `first` up to but not including `end`.
    pub fn any_in(&self, first: u64, end: u64) -> bool {
        let at = self.0.partition_point(|t| t.epoch < first);
        self.0.get(at).is_some_and(|t| t.epoch < end)
    }
    /// The first that names a state of this epoch or a later one.
    pub fn first_from(&self, epoch: u64) -> Option<u64> {
        self.0.get(self.0.partition_point(|t| t.epoch < epoch)).map(|t| t.epoch)
    }
    /// The oldest that a user wants kept.
    pub fn oldest_pinned(&self) -> Option<u64> {
        self.0.iter().find(|t| t.pinned).map(|t| t.epoch)
    }
    /// Whether no more fit.
    pub fn is_full(&self) -> bool {
        self.0.len() >= TOKENS_MAX
    }
    /// A new one, newer than all others.
    pub fn push(&mut self, epoch: u64) {
        debug_assert!(self.newest().is_none_or(|newest| newest < epoch));
        self.0.push(KeptToken { epoch, pinned: false });
    }
    /// Says when one was made; of one that is kept no more it is not remembered.
    pub fn set_time(&mut self, epoch: u64, age: u64, clock: u64) {
        if self.contains(epoch) {
            self.1.retain(|t| t.epoch != epoch);
            let at = self.1.partition_point(|t| t.epoch < epoch);
            self.1.insert(at, TokenTime { epoch, age, clock });
        }
    }
    /// When they were made, ascending, as far as that is known.
    pub fn times(&self) -> &[TokenTime] {
        &self.1
    }
    /// Forgets one.
    pub fn remove(&mut self, epoch: u64) {
        self.0.retain(|t| t.epoch != epoch);
        self.1.retain(|t| t.epoch != epoch);
    }
    /// Forgets all that are newer.
    pub fn cut(&mut self, epoch: u64) {
        self.0.retain(|t| t.epoch <= epoch);
        self.1.retain(|t| t.epoch <= epoch);
    }
    /// Pins one, or no more.
    pub fn pin(&mut self, epoch: u64, pinned: bool) {
        if let Some(token) = self.0.iter_mut().find(|t| t.epoch == epoch) {
            token.pinned = pinned;
        }
    }
    /// Those that a policy which keeps the newest `keep` lets go: the older ones that nobody pinned.
    pub fn superfluous(&self, keep: usize) -> Vec<u64> {
        let older = self.0.len().saturating_sub(keep);
        self.0[..older].iter().filter(|t| !t.pinned).map(|t| t.epoch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let mut tokens = Tokens::default();
        [2, 5, 9].into_iter().for_each(|epoch| tokens.push(epoch));
        assert!(tokens.any_in(2, 3) && tokens.any_in(0, 6) && tokens.any_in(9, u64::MAX));
        assert!(!tokens.any_in(3, 5) && !tokens.any_in(10, u64::MAX) && !tokens.any_in(5, 5));
    }
    #[test]
    fn the_newest_and_the_pinned_stay() {
        let mut tokens = Tokens::default();
        (1..=5).for_each(|epoch| tokens.push(epoch));
        tokens.pin(2, true);
        assert_eq!(tokens.superfluous(2), [1, 3]);
        tokens.cut(3);
        assert_eq!(tokens.newest(), Some(3));
    }
    #[test]
    fn tokens_are_found_by_epoch_and_kept_while_they_are_pinned() {
        let mut tokens = Tokens::default();
        assert_eq!((tokens.newest(), tokens.oldest_pinned(), tokens.first_from(0)), (None, None, None));
        [2, 5, 9].into_iter().for_each(|epoch| tokens.push(epoch));
        assert!(tokens.contains(5) && !tokens.contains(4));
        assert_eq!([0, 2, 3, 9, 10].map(|e| tokens.first_from(e)), [Some(2), Some(2), Some(5), Some(9), None]);
        tokens.pin(9, true);
        tokens.pin(5, true);
        tokens.pin(7, true);
        assert_eq!((tokens.oldest_pinned(), tokens.superfluous(0)), (Some(5), vec![2]));
        tokens.pin(5, false);
        assert_eq!((tokens.oldest_pinned(), tokens.superfluous(0)), (Some(9), vec![2, 5]));
        tokens.remove(5);
        assert_eq!(tokens.as_slice().iter().map(|t| t.epoch).collect::<Vec<_>>(), [2, 9]);
        tokens.cut(9);
        assert_eq!(tokens.newest(), Some(9));
    }
    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut tokens = Tokens::default();
        (1..TOKENS_MAX as u64).for_each(|epoch| tokens.push(epoch));
        assert!(!tokens.is_full());
        tokens.push(TOKENS_MAX as u64);
        assert!(tokens.is_full());
    }
    #[test]
    fn times_are_those_of_tokens_that_are_kept() {
        let mut tokens = Tokens::default();
        [2, 5, 9].into_iter().for_each(|epoch| tokens.push(epoch));
        let epochs = |tokens: &Tokens| tokens.times().iter().map(|t| (t.epoch, t.age)).collect::<Vec<_>>();
        [(9, 90), (2, 20), (4, 40), (5, 50), (9, 91)].into_iter().for_each(|(e, age)| tokens.set_time(e, age, 7));
        assert_eq!((epochs(&tokens), tokens.times()[0].clock), (vec![(2, 20), (5, 50), (9, 91)], 7));
        tokens.remove(2);
        assert_eq!(epochs(&tokens), [(5, 50), (9, 91)]);
        tokens.cut(5);
        assert_eq!(epochs(&tokens), [(5, 50)]);
    }
}
