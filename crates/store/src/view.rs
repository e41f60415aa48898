//! An old state of a pool beside the live one: a layer that answers where subpages lay at a token.
//!
//! It has no tables of its own: it asks the live store, which moves what it reclaims and knows where to. So nothing is recovered a
//! second time, and a reader costs no DRAM of the store's. The token is pinned for as long as the view lives, and the pool is not
//! rolled back to before it.

use std::sync::Arc;

use fulgurite_flash::{Flash, FlashError, Layer, Layered, Place, Written};
use fulgurite_format::format_bytes;

use crate::pool::{EROFS, Pool, PoolError};

/// The state of a token, to be read.
#[derive(Debug)]
pub struct View {
    pool: Arc<Pool>,
    token: u64,
}

/// A token that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Viewed {
    pub token: u64,
    /// By how many.
    readers: u32,
    /// It was pinned for them, and not by the user.
    pinned_here: bool,
}

impl Pool {
    /// The state of a token, to be read beside this one.
    ///
    /// # Errors
    /// When there is no such token, or it cannot be pinned.
    pub fn view(self: &Arc<Self>, token: u64) -> Result<View, PoolError> {
        let mut views = self.views();
        let tokens = self.tokens();
        let Some(found) = tokens.as_slice().iter().find(|t| t.epoch == token) else {
            return Err(self.no_token(token));
        };
        match views.iter_mut().find(|viewed| viewed.token == token) {
            Some(viewed) => viewed.readers += 1,
            None => {
                let pinned_here = !found.pinned;
                if pinned_here {
                    self.pin(token, true)?;
                }
                views.push(Viewed { token, readers: 1, pinned_here });
            }
        }
        Ok(View { pool: self.clone(), token })
    }
}

impl View {
    /// The same, as a medium for a runtime. Every write to it fails.
    #[must_use]
    pub fn into_flash(self) -> Layered<View> {
        Layered::new(Arc::new(self))
    }
    /// The token.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut views = self.pool.views();
        let index = views.iter().position(|viewed| viewed.token == self.token).expect("it was noted when it was made");
        views[index].readers -= 1;
        if views[index].readers == 0 && views.swap_remove(index).pinned_here {
            // Where that fails the pool takes no more changes; the token stays pinned, as the user may see.
            let _ = self.pool.pin(self.token, false);
        }
    }
}

impl Layer for View {
    fn medium(&self) -> &Arc<dyn Flash> {
        self.pool.medium()
    }
    fn subpages(&self) -> u32 {
        self.pool.subpages()
    }
    fn describe(&self) -> String {
        let bytes = u64::from(self.pool.subpages()) << 12;
        format!("token {} of a pool of {}", self.token, format_bytes(bytes))
    }
    fn dram_bytes(&self) -> usize {
        size_of::<View>()
    }
    fn locate(&self, subpage: u32) -> Option<Place> {
        self.pool.locate_at(subpage, self.token)
    }
    fn restricts(&self) -> bool {
        true
    }
    fn may(&self, _: u32, write: bool) -> bool {
        !write
    }
    fn place(&self, _: &[u32], _: &mut Vec<u32>) -> Result<(), FlashError> {
        Err(FlashError::Io(EROFS))
    }
    fn written(&self, _: &mut Vec<Written>) -> Result<(), FlashError> {
        Err(FlashError::Io(EROFS))
    }
    fn not_written(&self, _: u32, _: FlashError) -> bool {
        false
    }
    fn unreadable(&self, flash_page: u32, error: FlashError) {
        self.pool.unreadable(flash_page, error);
    }
    fn work(&self) -> bool {
        false
    }
    fn begin_flush(&self) -> Result<u64, FlashError> {
        Ok(0)
    }
    fn is_flushed(&self, _: u64) -> Result<bool, FlashError> {
        Ok(true)
    }
}
