//! Goal: a device that fails in the middle of a large value that is read or written in parts fails
//! that part alone, with a typed error. The old value stays, and the same part works when it is
//! tried again. Method: values of ten times the frames, over a medium whose nth request fails, for
//! many n: failures of one request, and ones that last until they are mended. Whole puts, gets and
//! appends of such values likewise.

use crate::guarded;

use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, FlashError, MemoryFlash, Op, When};
use fulgurite_memory::{AccessError, Blobs, Heap, Region};
use fulgurite_runtime::{Context, Runtime};
use guarded::{with_frames, within};

const PAGES: u32 = 2048;
/// Of each value, and of each part of it.
const BYTES: usize = 1 << 20;
const PART: usize = 50_000;
const FRAMES: u64 = 24;

type Flash = Arc<FaultyFlash<MemoryFlash>>;

fn value(number: u64) -> Vec<u8> {
    (0..BYTES as u64 / 8).flat_map(|word| (word * 0x9E37 + number).to_le_bytes()).collect()
}

fn made() -> (Flash, Runtime, Arc<Heap>, Blobs<u64>) {
    let flash = Arc::new(FaultyFlash::new(MemoryFlash::new(PAGES).unwrap(), FaultPlan::default()));
    let builder = Runtime::builder(flash.clone()).fibers(4).device_timeout(Duration::from_millis(100));
    let runtime = with_frames(builder.prefetch("off".parse().unwrap()), 1, FRAMES);
    let index = Blobs::<u64>::bytes_needed(100);
    let [heap, index] = [6 << 20, index].map(|bytes| Region::new(runtime.reserve_shared(bytes).unwrap(), bytes));
    let blobs = runtime.run(|m| {
        let heap = Arc::new(Heap::create(m, heap)?);
        let blobs = Blobs::<u64>::create(m, index, heap.clone(), 100, 4)?;
        blobs.put(m, &1, &value(1))?;
        Ok((heap, blobs))
    });
    let (heap, blobs) = blobs.unwrap();
    (flash, runtime, heap, blobs)
}

/// Tries until it works. Returns how often it did not, each time by what the medium said.
fn again<T>(flash: &Flash, error: FlashError, mut action: impl FnMut() -> Result<T, AccessError>) -> (T, u32) {
    for failures in 0.. {
        match action() {
            Ok(done) => return (done, failures),
            Err(AccessError::Flash { source, .. }) => assert_eq!(source, error),
            Err(other) => panic!("{other}"),
        }
        assert!(failures < 3, "it does not work when the medium does");
        flash.set_plan(FaultPlan::default());
    }
    unreachable!("it returns or panics")
}

/// Each kind of failure, of many requests in turn: one alone, and all from one on. Returns how
/// many of either were met.
fn each_failure(op: Op, mut attempt: impl FnMut(FlashError) -> u32, plan: impl Fn(FaultPlan)) -> [u32; 2] {
    let mut met = [0; 2];
    for (error, lasts) in [(FlashError::Io(5), false), (FlashError::Short, false), (FlashError::Io(5), true)] {
        for nth in (1..240).step_by(13) {
            let when = if lasts { When::From(nth) } else { When::Nth(nth) };
            plan(FaultPlan::rule(Some(op), when, Fault::Fails(error)));
            met[usize::from(lasts)] += attempt(error);
            plan(FaultPlan::default());
        }
    }
    met
}

#[test]
fn a_part_that_cannot_be_read_is_reported_and_read_again() {
    within(600, "reading in parts", || {
        let (flash, runtime, _heap, blobs) = made();
        let read = |error: FlashError| {
            let mut all = Vec::new();
            runtime
                .run(|m| {
                    let mut failed = 0;
                    let (reader, more) = again(&flash, error, || blobs.reader(m, &1));
                    let mut reader = reader.expect("it is there");
                    failed += more;
                    let mut part = vec![0; PART];
                    loop {
                        let at = reader.position();
                        let (read, more) = again(&flash, error, || {
                            assert_eq!(reader.position(), at, "a part that failed was read");
                            reader.read(m, &mut part)
                        });
                        failed += more;
                        all.extend_from_slice(&part[..read]);
                        if read == 0 {
                            return Ok(failed);
                        }
                    }
                })
                .inspect(|_| assert!(all == value(1), "what was read is not what is there"))
                .unwrap()
        };
        let met = each_failure(Op::Read, read, |plan| flash.set_plan(plan));
        assert!(met[0] > 15 && met[1] > 10, "{met:?} failures");
        // As a whole: all of it or an error.
        flash.set_plan(FaultPlan::rule(Some(Op::Read), When::From(3), Fault::Fails(FlashError::Io(5))));
        let mut found = Vec::new();
        let failed = runtime.run(|m| blobs.get(m, &1, &mut found));
        assert!(matches!(failed, Err(AccessError::Flash { .. })), "{failed:?}");
        flash.set_plan(FaultPlan::default());
        assert_eq!(runtime.run(|m| blobs.get(m, &1, &mut found)), Ok(true));
        assert!(found == value(1));
    });
}

/// Whether key 1 has the value of this number.
fn is(m: &mut Context, blobs: &Blobs<u64>, number: u64) -> Result<bool, AccessError> {
    let mut found = Vec::new();
    Ok(blobs.get(m, &1, &mut found)? && found == value(number))
}

#[test]
fn a_part_that_cannot_be_written_is_reported_and_the_old_value_stays() {
    within(600, "writing in parts", || {
        let (flash, runtime, heap, blobs) = made();
        let mut number = 1;
        let used = heap.used_bytes();
        // A write makes room for itself in DRAM, so what fails are the writes of other parts.
        for op in [Op::Write, Op::Read] {
            let write = |error: FlashError| {
                let new = value(number + 1);
                let failed = runtime.run(|m| {
                    let (writer, mut failed) = again(&flash, error, || blobs.writer(m, BYTES));
                    let mut writer = writer;
                    for part in new.chunks(PART) {
                        let at = writer.written();
                        let ((), more) = again(&flash, error, || {
                            assert_eq!(writer.written(), at, "a part that failed was written");
                            writer.write(m, part)
                        });
                        failed += more;
                        if more > 0 {
                            assert!(again(&flash, error, || is(m, &blobs, number)).0, "the old value went");
                        }
                    }
                    // A failure here leaves the old value, and the writer is gone.
                    match writer.finish(m, &1) {
                        Ok(replaced) => assert!(replaced),
                        Err(AccessError::Flash { source, .. }) => {
                            assert_eq!(source, error);
                            flash.set_plan(FaultPlan::default());
                            assert!(is(m, &blobs, number)?, "the old value went");
                            assert!(blobs.put(m, &1, &new)?);
                            failed += 1;
                        }
                        Err(other) => return Err(other),
                    }
                    Ok(failed)
                });
                number += 1;
                let failed = failed.unwrap();
                flash.set_plan(FaultPlan::default());
                assert!(runtime.run(|m| is(m, &blobs, number)).unwrap(), "the new value is not there");
                failed
            };
            if op == Op::Write {
                // One failure alone is not reported: another frame is written instead.
                let met = each_failure(op, write, |plan| flash.set_plan(plan));
                assert!(met[1] > 10, "{met:?} failures");
            } else {
                let mut write = write;
                for nth in 1..20 {
                    flash.set_plan(FaultPlan::rule(Some(op), When::Nth(nth), Fault::Fails(FlashError::Io(5))));
                    write(FlashError::Io(5));
                }
            }
        }
        assert_eq!(runtime.run(|m| blobs.check(m)), Ok((1, BYTES as u64)));
        assert_eq!(heap.used_bytes(), used, "a write that failed costs no space");
    });
}

#[test]
fn a_long_change_that_fails_leaves_the_old_value() {
    within(600, "changing at once", || {
        let (flash, runtime, heap, blobs) = made();
        let used = heap.used_bytes();
        let tail = &value(9)[..PART];
        let mut failures = 0;
        for (round, nth) in (1..).zip((1..300).step_by(11)) {
            let op = if round % 2 == 0 { Op::Read } else { Op::Write };
            flash.set_plan(FaultPlan::rule(Some(op), When::Nth(nth), Fault::Fails(FlashError::Io(5))));
            let appends = round % 3 == 0;
            let done = match appends {
                true => runtime.run(|m| blobs.append(m, &1, tail).map(drop)),
                false => runtime.run(|m| blobs.put(m, &1, &value(1)).map(drop)),
            };
            flash.set_plan(FaultPlan::default());
            let mut found = Vec::new();
            assert_eq!(runtime.run(|m| blobs.get(m, &1, &mut found)), Ok(true));
            if appends && done.is_ok() {
                assert!(found[..BYTES] == value(1) && found[BYTES..] == *tail, "round {round}");
                runtime.run(|m| blobs.put(m, &1, &value(1))).unwrap();
            } else {
                assert!(found == value(1), "round {round}: {done:?}");
            }
            if let Err(error) = done {
                failures += 1;
                assert!(matches!(error, AccessError::Flash { source: FlashError::Io(5), .. }), "{error}");
            }
        }
        assert!(failures > 8, "{failures} failures");
        assert_eq!(runtime.run(|m| blobs.check(m)), Ok((1, BYTES as u64)));
        assert_eq!(heap.used_bytes(), used);
    });
}
