//! Goal: a read ends although the knowledge where its subpage is stored leaves DRAM again and
//! again.
//! Method: a layer that forgets a place as soon as it was learnt, as one does whose DRAM other
//! requests need. It learns places from two flash pages in turn, or always from the same one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fulgurite_flash::*;
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex, crc32c};
use fulgurite_sys::{Arena, Backed, Clock, Notifier};

const OBJECT: &[u8] = b"an object that shares its flash page";
const OFFSET: usize = 100;
/// The flash page of the object, and the two that say so.
const AT: u32 = 3;
const SAYS: [u32; 2] = [5, 6];

struct Forgetful {
    medium: Arc<dyn Flash>,
    clock: Clock,
    knows: AtomicBool,
    learnt: AtomicU32,
    /// After each of the first `moves` answers, the other flash page is the one that says so.
    moves: u32,
}

impl Forgetful {
    fn says(&self) -> u32 {
        let learnt = self.learnt.load(Ordering::SeqCst);
        SAYS[(learnt.min(self.moves) % 2) as usize]
    }
}

impl Layer for Forgetful {
    fn medium(&self) -> &Arc<dyn Flash> {
        &self.medium
    }
    fn clock(&self) -> &Clock {
        &self.clock
    }
    fn subpages(&self) -> u32 {
        1
    }
    fn describe(&self) -> String {
        "forgetful".to_owned()
    }
    fn dram_bytes(&self) -> usize {
        0
    }
    fn locate(&self, _: u32) -> Location {
        if !self.knows.swap(false, Ordering::SeqCst) {
            return Location::Indirect(self.says());
        }
        let part = Part { offset: OFFSET as u16, length: OBJECT.len() as u16 };
        Location::At(FlashAddress { flash_page: AT, checksum: crc32c(OBJECT), part: Some(part) })
    }
    fn learn(&self, _: u32, flash_page: u32, content: &[u8; SUBPAGE_BYTES]) -> Result<(), FlashError> {
        assert_eq!((flash_page, content[0]), (self.says(), flash_page as u8));
        self.knows.store(true, Ordering::SeqCst);
        self.learnt.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn place(&self, _: &[u32], _: &mut Vec<u32>) -> Result<(), FlashError> {
        Err(FlashError::NoSpace)
    }
    fn written(&self, _: &mut Vec<Written>) -> Result<(), FlashError> {
        Ok(())
    }
    fn not_written(&self, _: u32, _: FlashError) -> bool {
        false
    }
    fn unreadable(&self, flash_page: u32, error: FlashError) {
        panic!("flash page {flash_page}: {error}");
    }
    fn work(&self) -> bool {
        false
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    fn begin_flush(&self) -> Result<u64, FlashError> {
        Ok(0)
    }
    fn is_flushed(&self, _: u64) -> Result<bool, FlashError> {
        Ok(true)
    }
}

fn run(flash: &dyn Flash, op: Op, subpage: u32, page: &mut [u8; SUBPAGE_BYTES]) {
    let frames = Arc::new(Arena::anonymous(SUBPAGE_BYTES, Backed::BasePages).unwrap());
    frames.write(0, &page[..]);
    let mut queue = flash.open_queue(frames.clone(), 1, Arc::new(Notifier::new().unwrap())).unwrap();
    queue.submit(Request { tag: 7, op, subpage: SubpageIndex(subpage), frame: FrameIndex(0) }).unwrap();
    queue.flush().unwrap();
    let mut ended = Vec::new();
    for _ in 0..100_000 {
        queue.poll(&mut ended);
        if let Some(completion) = ended.pop() {
            assert_eq!(completion.result, Ok(()));
            frames.read(0, &mut page[..]);
            return;
        }
    }
    panic!("it does not end");
}

#[test]
fn a_read_ends_whose_place_is_forgotten_again_and_again() {
    for moves in [0, 1, 4] {
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(8).unwrap());
        let mut page = [9; SUBPAGE_BYTES];
        page[OFFSET..][..OBJECT.len()].copy_from_slice(OBJECT);
        run(&*medium, Op::Write, AT, &mut page);
        for says in SAYS {
            run(&*medium, Op::Write, says, &mut [says as u8; SUBPAGE_BYTES]);
        }
        let (knows, learnt) = (AtomicBool::new(false), AtomicU32::new(0));
        let layer = Arc::new(Forgetful { medium, clock: Clock::default(), knows, learnt, moves });
        let mut found = [1; SUBPAGE_BYTES];
        run(&Layered::new(layer.clone()), Op::Read, 0, &mut found);
        assert_eq!(&found[..OBJECT.len()], OBJECT);
        assert!(found[OBJECT.len()..].iter().all(|byte| *byte == 0));
        // Where another flash page says so, it was asked again.
        assert_eq!(layer.learnt.load(Ordering::SeqCst), moves + 1);
    }
}
