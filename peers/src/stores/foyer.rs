//! foyer: a hybrid cache. It may drop any entry, so keys can be missing, and they are counted.

use std::ops::Range;

use ::foyer::{BlockEngineConfig, DeviceBuilder as _, FsDeviceBuilder, HybridCache, HybridCacheBuilder};
use anyhow::{Result, bail};
use fulgurite_format::format_bytes;
use tokio::runtime::Runtime;

use super::{Client, Spec, Store};

/// What its process takes in addition to the cache.
const PROCESS_BYTES: u64 = 64 << 20;
/// Bytes that are put before the load waits for the disk: more would be dropped.
const LOAD_BYTES: usize = 4 << 20;

pub struct Foyer {
    runtime: Runtime,
    cache: HybridCache<u64, Vec<u8>>,
    memory_bytes: usize,
    device_bytes: usize,
}

impl Foyer {
    pub fn open(spec: &Spec) -> Result<Foyer> {
        // Its index of the disk and its buffers need the rest.
        let memory_bytes = usize::try_from(spec.cache_bytes(PROCESS_BYTES, 2))?;
        let device_bytes = usize::try_from(spec.data_bytes() * 2 + (256 << 20))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(spec.workers).enable_all().build()?;
        let device =
            FsDeviceBuilder::new(spec.directory.join("foyer")).with_capacity(device_bytes).with_direct(true).build()?;
        let builder = HybridCacheBuilder::new()
            .memory(memory_bytes)
            .with_weighter(|_, value: &Vec<u8>| size_of::<u64>() + value.len())
            .storage()
            .with_engine_config(BlockEngineConfig::new(device));
        let cache = runtime.block_on(builder.build())?;
        Ok(Foyer { runtime, cache, memory_bytes, device_bytes })
    }
}

impl Store for Foyer {
    fn settings(&self) -> String {
        let (memory, device) = (format_bytes(self.memory_bytes as u64), format_bytes(self.device_bytes as u64));
        format!("foyer 0.22: memory {memory}, block engine {device} with direct I/O, else the defaults")
    }
    fn load(&self, keys: Range<u64>, value: &(dyn Fn(u64, &mut Vec<u8>) + Sync)) -> Result<()> {
        let mut put = 0;
        for key in keys {
            let mut bytes = Vec::new();
            value(key, &mut bytes);
            put += bytes.len();
            self.cache.insert(key, bytes);
            if put >= LOAD_BYTES {
                put = 0;
                self.settle()?;
            }
        }
        Ok(())
    }
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(self)
    }
    fn sync(&self) -> Result<()> {
        // It has none.
        Ok(())
    }
    fn settle(&self) -> Result<()> {
        self.runtime.block_on(self.cache.storage().wait());
        Ok(())
    }
}

impl Client for &Foyer {
    fn get(&mut self, key: u64, look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.runtime.block_on(async { self.cache.get(&key).await })?;
        if let Some(entry) = &found {
            look(entry.value());
        }
        Ok(found.is_some())
    }
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        self.cache.insert(key, value.to_vec());
        Ok(())
    }
    fn transfer(&mut self, _from: u64, _to: u64, _amount: u64) -> Result<()> {
        bail!("foyer has no transactions")
    }
}
