//! What flash may hold after a crash, made from a log of what was written to it; and what a pool
//! opened on that must be.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use fulgurite_flash::FlashError;
use fulgurite_format::{PageBuffer, zero_page};
use fulgurite_store::{ReadPages, RecoverError, Store, StoreConfig, recover};

use super::{Content, Contents, bytes_of, checksum_of, objects};

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write.
    Write(u32, Content),
    /// All writes before it are durable.
    Flush,
    /// A token was made of this content.
    Token(u64, Rc<Contents>),
    /// This token holds from now on.
    Acknowledged(u64),
    /// Newer tokens are dropped for good.
    OnlyUpTo(u64),
}

/// What must be there after a crash.
#[derive(Clone, Debug)]
pub struct Promise {
    pub acknowledged: u64,
    pub tokens: BTreeMap<u64, Rc<Contents>>,
}
impl Default for Promise {
    fn default() -> Promise {
        Promise { acknowledged: 0, tokens: BTreeMap::from([(0, Rc::default())]) }
    }
}

/// Flash at one moment: what is durable, and what is on its way there.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    pub durable: HashMap<u32, Content>,
    pub cached: Vec<(u32, Content)>,
    pub promise: Promise,
    pub pages: u32,
}

impl Moment {
    /// Goes on by one event. Returns whether it was a write.
    pub fn step(&mut self, event: &Event) -> bool {
        match event {
            Event::Write(place, content) => {
                self.cached.push((*place, content.clone()));
                return true;
            }
            Event::Flush => self.durable.extend(self.cached.drain(..)),
            Event::Token(token, contents) => {
                self.promise.tokens.insert(*token, contents.clone());
            }
            Event::Acknowledged(token) => self.promise.acknowledged = *token,
            Event::OnlyUpTo(token) => self.promise.tokens.retain(|t, _| t <= token),
        }
        false
    }
    /// The flash when of the writes on their way these have arrived.
    pub fn image(&self, arrived: impl IntoIterator<Item = (u32, Content)>) -> Image<'_> {
        Image { durable: &self.durable, over: arrived.into_iter().collect(), pages: self.pages, unreadable: None }
    }
    pub fn all(&self) -> Image<'_> {
        self.image(self.cached.iter().cloned())
    }
}

/// Flash as a crash left it.
#[derive(Clone, Debug)]
pub struct Image<'m> {
    durable: &'m HashMap<u32, Content>,
    pub over: HashMap<u32, Content>,
    pages: u32,
    /// A flash page that cannot be read.
    pub unreadable: Option<u32>,
}

impl Image<'_> {
    pub fn content(&self, place: u32) -> Option<&Content> {
        self.over.get(&place).or_else(|| self.durable.get(&place))
    }
    pub fn places(&self) -> Vec<u32> {
        let mut places: Vec<u32> = self.durable.keys().chain(self.over.keys()).copied().collect();
        places.sort_unstable();
        places.dedup();
        places
    }
    pub fn bytes(&self, place: u32) -> PageBuffer {
        match self.content(place) {
            Some(Content::Metadata(page)) => PageBuffer::clone(page),
            Some(Content::Data(number)) => bytes_of(*number),
            Some(Content::Torn) | None => zero_page(),
        }
    }
}
impl ReadPages for Image<'_> {
    fn read(&mut self, place: u32, _: u32) -> Result<PageBuffer, FlashError> {
        if self.unreadable == Some(place) { Err(FlashError::Io(5)) } else { Ok(self.bytes(place)) }
    }
    fn flash_pages(&self) -> u32 {
        self.pages
    }
}

/// How what a pool holds compares with what it held once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// All of it.
    Whole,
    /// This number of subpages are damaged, and their checksums say so.
    Damaged(usize),
}

/// Compares what a store says with the content of a token.
pub fn compare(store: &Store, image: &Image<'_>, expected: &Contents) -> Result<Found, String> {
    let wrong = store.state().audit();
    if !wrong.is_empty() {
        return Err(format!("{wrong:?}"));
    }
    let map = store.map();
    let mut damaged = 0;
    for subpage in 0..store.geometry().subpages {
        match (map.get(subpage), expected.get(&subpage)) {
            (None, None) => {}
            (Some(found), Some(number)) if objects::is_object(*number) => {
                let page = |place| image.content(place).cloned();
                let whole = objects::compare(store, page, found, *number);
                damaged += usize::from(!whole.map_err(|e| format!("subpage {subpage}: {e}"))?);
            }
            (Some(found), Some(number)) => {
                if found.checksum != checksum_of(*number) {
                    return Err(format!("subpage {subpage}: the checksum of something else"));
                }
                if image.content(found.place) != Some(&Content::Data(*number)) {
                    // Content of another number has another checksum, so every reader finds out.
                    damaged += 1;
                }
            }
            (found, expected) => return Err(format!("subpage {subpage}: {found:?} instead of {expected:?}")),
        }
    }
    Ok(if damaged == 0 { Found::Whole } else { Found::Damaged(damaged) })
}

/// Opens a pool, compares it with the token that it says it came back to, and all older tokens that
/// it keeps with theirs.
///
/// The error of the outer result is a violation, the error of the inner one a refusal.
pub fn open(
    image: &Image<'_>,
    config: StoreConfig,
    promise: &Promise,
) -> Result<Result<(u64, Found), RecoverError>, String> {
    let (mut store, report) = match recover(&mut image.clone(), config) {
        Ok(opened) => opened,
        Err(e) => return Ok(Err(e)),
    };
    let Some(expected) = promise.tokens.get(&report.token) else {
        return Err(format!("token {} was never made", report.token));
    };
    let found = compare(&store, image, expected).map_err(|e| format!("token {}: {e}", report.token))?;
    let kept: Vec<u64> = store.state().tokens().as_slice().iter().rev().skip(1).map(|t| t.token).collect();
    // All of a few, some of many.
    let every = 1 + kept.len() / 8;
    for token in kept.into_iter().step_by(every) {
        let Some(expected) = promise.tokens.get(&token) else { return Err(format!("token {token} was never made")) };
        match store.roll_back(token) {
            Ok(true) => {}
            other => return Err(format!("roll back to {token}: {other:?}")),
        }
        let older = compare(&store, image, expected).map_err(|e| format!("back at token {token}: {e}"))?;
        if older != Found::Whole && found == Found::Whole {
            return Ok(Ok((report.token, older)));
        }
    }
    Ok(Ok((report.token, found)))
}

/// Opens a pool after a crash, where nothing may be damaged or refused.
pub fn open_whole(image: &Image<'_>, config: StoreConfig, promise: &Promise) -> Result<u64, String> {
    match open(image, config, promise)? {
        Ok((token, Found::Whole)) if token >= promise.acknowledged => Ok(token),
        Ok((token, Found::Whole)) => Err(format!("token {} was promised, {token} came back", promise.acknowledged)),
        Ok((token, damaged)) => Err(format!("token {token}: {damaged:?}")),
        Err(e) => Err(format!("it cannot be opened: {e}")),
    }
}
