//! Syncs: a cut through what is in the frames. What differs then is written, and must not change before it is; what is written to
//! afterwards stays off flash until the state is named; who syncs waits until the token is durable.

use std::rc::Rc;

use fulgurite_flash::{FlashError, Layer, VersionError, Versions};

use super::fibers::Wake;
use super::frames::Life;
use super::machine::Machine;
use super::world::{Contents, Harness, World};

#[derive(Debug)]
pub struct Cut {
    contents: Contents,
    /// Frames that are to be on flash before the state is named.
    left: usize,
    failed: Option<FlashError>,
    token: Option<u64>,
    waiter: Option<u32>,
}

pub fn flash_error(error: VersionError) -> FlashError {
    match error {
        VersionError::Flash(error) => error,
        other => panic!("a sync ends with \"{other}\""),
    }
}

impl Machine {
    pub fn begin_cut(&mut self, world: &mut World, waiter: Option<u32>) {
        assert!(self.cut.is_none());
        let mut left = 0;
        for frame in self.frames.iter_mut().filter(|f| f.dirty) {
            assert!(matches!(frame.life, Life::Resident | Life::Leaving));
            frame.before_cut = true;
            left += 1;
        }
        world.note(&[10, left as u64]);
        let contents = Rc::new(world.now.clone());
        self.cut = Some(Cut { contents, left, failed: None, token: None, waiter });
    }
    /// Whether what was written since the cut must not reach flash.
    pub fn holds_back(&self, world: &World) -> bool {
        self.cut.as_ref().is_some_and(|cut| cut.token.is_none()) && !world.has(Harness::LeakyCut)
    }
    pub fn cut_has_one_less(&mut self, error: Option<FlashError>) {
        let cut = self.cut.as_mut().expect("a frame is of before a cut");
        cut.left -= 1;
        cut.failed = cut.failed.or(error);
    }
    pub fn written_in_place(&mut self, world: &mut World, frame: u32, result: Result<(), FlashError>) {
        let result = self.write_ended(world, result);
        let here = &mut self.frames[frame as usize];
        (here.in_place, here.before_cut) = (false, false);
        here.pins -= 1;
        here.dirty = result.is_err();
        self.cut_has_one_less(result.err());
        self.wake_cut_waiters(world);
    }
    fn wake_cut_waiters(&mut self, world: &World) {
        for fiber in std::mem::take(&mut self.cut_waiters) {
            self.wake(world, fiber, Wake::Retry);
        }
    }
    pub fn advance_cut(&mut self, world: &mut World) {
        let Some(cut) = &self.cut else { return };
        if let Some(token) = cut.token {
            return self.is_it_durable(world, token);
        }
        if cut.left > 0 {
            for frame in 0..self.frames.len() as u32 {
                let here = &self.frames[frame as usize];
                let waits = here.before_cut && here.life == Life::Resident && !here.in_place;
                if waits && !self.write_in_place(world, frame) {
                    break;
                }
            }
            return;
        }
        let contents = cut.contents.clone();
        if let Some(error) = cut.failed {
            return self.end_cut(world, Err(error));
        }
        match Versions::name_state(&*self.pool) {
            Ok(_) if !world.keeps() => self.end_cut(world, Ok(())),
            Ok(token) => {
                assert!(world.tokens.insert(token, contents).is_none(), "token {token} was named twice");
                self.cut.as_mut().expect("seen above").token = Some(token);
                world.note(&[11, token]);
            }
            Err(error) => {
                let error = flash_error(error);
                world.allow("naming a state", error);
                self.end_cut(world, Err(error));
            }
        }
    }
    fn is_it_durable(&mut self, world: &mut World, token: u64) {
        let durable = if world.random.one_in(16) {
            Versions::wait_durable(&*self.pool, token).map(|()| true).map_err(flash_error)
        } else {
            self.pool.work();
            self.pool.is_flushed(token)
        };
        match durable {
            Ok(false) if !world.has(Harness::EarlySync) => {}
            Ok(_) => {
                world.acknowledged = token;
                world.report.syncs += 1;
                self.end_cut(world, Ok(()));
            }
            Err(error) => {
                world.allow("making a token durable", error);
                self.operator.is_poisoned = true;
                self.end_cut(world, Err(error));
            }
        }
    }
    fn end_cut(&mut self, world: &mut World, result: Result<(), FlashError>) {
        world.note(&[12, u64::from(result.is_ok())]);
        world.report.failed_syncs += u64::from(result.is_err());
        self.operator.sync_ended(result);
        let cut = self.cut.take().expect("it ends");
        if let Some(fiber) = cut.waiter {
            self.wake(world, fiber, result.map_or_else(Wake::Failed, |()| Wake::Synced));
        }
        self.wake_cut_waiters(world);
    }
}
