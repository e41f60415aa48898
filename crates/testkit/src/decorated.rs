//! Decorators over a medium: each is a medium like any other.

use std::sync::{Arc, Mutex};

use fulgurite_flash::*;
use fulgurite_sys::Clock;

use crate::suite::{SUBPAGES, behaves, conform};

/// The suite over a medium, which `make` makes with a given number of subpages, as it is and under
/// every decorator but the model of NAND.
pub fn conform_decorated<F: Flash + 'static>(mut make: impl FnMut(u32) -> F, seed: u64) {
    conform(&make(SUBPAGES), seed);
    let plan = FaultPlan { seed, reorder: true, record: true, ..FaultPlan::default() };
    conform(&FaultyFlash::new(make(SUBPAGES), plan.clone()), seed);
    conform(&PartOfFlash::new(Arc::new(make(SUBPAGES + 50)), 17, SUBPAGES).unwrap(), seed);
    conform(&striped(|subpages| Arc::new(make(subpages))), seed);
    conform(&striped(|subpages| Arc::new(FaultyFlash::new(make(subpages), plan.clone()))), seed);
    // Its flushes are its own, as a store's are.
    behaves(&Layered::new(Arc::new(Log::new(Arc::new(make(SUBPAGES + 100)), SUBPAGES))), seed);
    let faulty = FaultyFlash::new(make(SUBPAGES + 100), plan);
    behaves(&Layered::new(Arc::new(Log::new(Arc::new(faulty), SUBPAGES))), seed);
}

/// Three members, the second smaller, in two bands; their own numbers do not begin at 0.
fn striped(mut member: impl FnMut(u32) -> Arc<dyn Flash>) -> StripedFlash {
    let column = |member, first| Column { member, first };
    let mut layout = StripeLayout::new(4);
    layout.push(12, vec![column(0, 0), column(1, 1), column(2, 1)]);
    layout.push(7, vec![column(0, 12), column(2, 13)]);
    let members = (0..3).map(|i| member(layout.extents_of(i) * 4)).collect();
    StripedFlash::new(members, layout)
}

/// A log without reclaim: each write goes to a place that is free, and frees the one before it.
struct Log {
    medium: Arc<dyn Flash>,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    lies: Vec<Option<FlashAddress>>,
    free: Vec<u32>,
}

impl Log {
    /// Over a medium that has more subpages than these.
    fn new(medium: Arc<dyn Flash>, subpages: u32) -> Log {
        let free = (0..medium.subpages()).collect();
        Log { state: Mutex::new(State { lies: vec![None; subpages as usize], free }), clock: Clock::get(), medium }
    }
}

impl Layer for Log {
    fn medium(&self) -> &Arc<dyn Flash> {
        &self.medium
    }
    fn subpages(&self) -> u32 {
        self.state.lock().unwrap().lies.len() as u32
    }
    fn describe(&self) -> String {
        format!("a log on {}", self.medium.describe())
    }
    fn dram_bytes(&self) -> usize {
        self.medium.traits().dram_bytes
    }
    fn locate(&self, subpage: u32) -> Location {
        self.state.lock().unwrap().lies[subpage as usize].into()
    }
    fn place(&self, subpages: &[u32], places: &mut Vec<u32>) -> Result<(), FlashError> {
        let free = &mut self.state.lock().unwrap().free;
        places.extend(subpages.iter().map_while(|_| free.pop()));
        Ok(())
    }
    fn written(&self, writes: &mut Vec<Written>) -> Result<(), FlashError> {
        let mut state = self.state.lock().unwrap();
        for write in writes.drain(..) {
            let old = state.lies[write.subpage as usize].replace(write.place);
            state.free.extend(old.map(|place| place.flash_page));
        }
        Ok(())
    }
    fn not_written(&self, _: u32, _: FlashError) -> bool {
        false
    }
    fn unreadable(&self, _: u32, _: FlashError) {}
    fn work(&self) -> bool {
        false
    }
    fn clock(&self) -> &Clock {
        &self.clock
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.medium.backing()
    }
    fn begin_flush(&self) -> Result<u64, FlashError> {
        Ok(0)
    }
    fn is_flushed(&self, _: u64) -> Result<bool, FlashError> {
        Ok(true)
    }
}
