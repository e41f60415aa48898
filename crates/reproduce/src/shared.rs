//! What several checks find by the same runs: each set of runs happens once.
//!
//! A11's runs give A12 and A13 what a miss costs a core, and A13 its interval between misses. Runs
//! with a moved value that they do not read are those without.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::calibration::{Read, Values, moves_as};
use crate::check::{CheckError, Inputs};
use crate::checks::astriflash::cores::Measured;
use crate::models::Planted;

/// What the runs are a function of, in addition to the calibration.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    seed: u64,
    shorter: u64,
    planted: Option<Planted>,
    /// The moved value, and the bits of its factor.
    moved: Option<(String, u64)>,
}

#[derive(Clone, Debug)]
struct Made {
    result: Result<Arc<Measured>, CheckError>,
    read: Read,
}

/// Runs of one command.
#[derive(Default, Debug)]
pub struct Shared {
    made: Mutex<HashMap<Key, Arc<OnceLock<Made>>>>,
}

impl Shared {
    /// What `make` gives with these inputs. What it reads counts as read by the check that asks.
    ///
    /// # Errors
    /// What `make` returns.
    pub fn get(
        &self,
        inputs: &Inputs<'_>,
        make: fn(&Inputs<'_>) -> Result<Measured, CheckError>,
    ) -> Result<Arc<Measured>, CheckError> {
        let mut made = self.of(inputs, None, make);
        if let Some((moved, factor)) = inputs.values.moved()
            && (made.result.is_err() || made.read.names.iter().any(|name| moves_as(name) == moved))
        {
            made = self.of(inputs, Some((moved, factor)), make);
        }
        inputs.values.also_read(&made.read);
        made.result
    }
    fn of(
        &self,
        inputs: &Inputs<'_>,
        moved: Option<(&str, f64)>,
        make: fn(&Inputs<'_>) -> Result<Measured, CheckError>,
    ) -> Made {
        let Inputs { seed, shorter, planted, .. } = *inputs;
        let key = Key { seed, shorter, planted, moved: moved.map(|(leaf, by)| (leaf.to_owned(), by.to_bits())) };
        let cell = Arc::clone(self.made.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        // Another thread that wants the same waits here, and no other does.
        let made = cell.get_or_init(|| {
            let values = Values::of(inputs.values.calibration(), moved);
            let own = Inputs { values, seed, shorter, planted, shared: self };
            let result = make(&own).map(Arc::new);
            Made { result, read: own.values.read() }
        });
        made.clone()
    }
}
