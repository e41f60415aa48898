//! A hash map of the standard library, whose values are boxes: what a program without flash has.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use anyhow::{Result, bail};

use super::{Client, Store};

#[derive(Default)]
pub struct Boxes(RwLock<HashMap<u64, Box<[u8]>>>);

impl Store for Boxes {
    fn settings(&self) -> String {
        "std: a HashMap of boxes behind a RwLock".to_owned()
    }
    fn load(&self, keys: Range<u64>, value: &(dyn Fn(u64, &mut Vec<u8>) + Sync)) -> Result<()> {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        map.reserve(usize::try_from(keys.end - keys.start)?);
        let mut bytes = Vec::new();
        for key in keys {
            value(key, &mut bytes);
            map.insert(key, bytes.as_slice().into());
        }
        Ok(())
    }
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(self)
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    fn flash_reads(&self) -> Option<u64> {
        Some(0)
    }
}

impl Client for &Boxes {
    fn get(&mut self, key: u64, look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = map.get(&key);
        if let Some(value) = found {
            look(value);
        }
        Ok(found.is_some())
    }
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        map.insert(key, value.into());
        Ok(())
    }
    fn transfer(&mut self, _from: u64, _to: u64, _amount: u64) -> Result<()> {
        bail!("a hash map has no transactions")
    }
}
