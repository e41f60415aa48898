//! Goal: a child after `fork` is refused at once by every function that may wait or write, whatever
//! its parent's threads hold, and the parent goes on. Method: the process forks while other threads
//! use the memory, and the child calls each function, under an alarm that would kill it.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_capi::fulgurite_status::*;
use fulgurite_capi::*;

use crate::calls::{get, last, open_blobs, options, put, start_pool, string};

/// An address in the heap.
static IN_HEAP: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn nothing(_: *mut fulgurite_context, _: *mut c_void) -> c_int {
    0
}

/// Each function in a child: what it returned.
///
/// # Safety
/// `pool` and the others are handles of the parent.
unsafe fn all_functions(
    pool: *mut fulgurite_pool,
    blobs: *mut fulgurite_blobs,
    numbers: *mut fulgurite_u64_blobs,
    heap: *mut fulgurite_heap,
    region: *mut fulgurite_region,
    root: *mut fulgurite_root,
    of_parent: *mut fulgurite_job,
) -> Vec<(&'static str, fulgurite_status)> {
    unsafe extern "C" fn name(_: *mut c_void, _: *const c_char, _: *const c_char, _: u64) {}
    unsafe extern "C" fn number(_: *mut c_void, _: u64, _: usize) {}
    unsafe extern "C" fn value(_: *mut c_void, _: *const c_void, _: usize, _: *const c_void, _: usize) -> c_int {
        1
    }
    let (mut length, mut word, mut buffer) = (0usize, 0u64, [0u8; 64]);
    let key = b"key".as_ptr().cast::<c_void>();
    let into = buffer.as_mut_ptr().cast::<c_void>();
    let (mut job, mut other_blobs, mut other_heap) = (null_mut(), null_mut(), null_mut());
    let (mut other_numbers, mut other_region, mut other_root) = (null_mut(), null_mut(), null_mut());
    let (mut permissions, mut ended) = (0, false);
    let mut statistics = std::mem::MaybeUninit::<fulgurite_statistics>::uninit();
    macro_rules! told {
        ($($call:expr),* $(,)?) => { vec![$((stringify!($call), $call)),*] };
    }
    // SAFETY: the caller's contract, and buffers of this function.
    unsafe {
        told![
            fulgurite_blobs_get(null_mut(), blobs, key, 3, into, 64, &raw mut length),
            fulgurite_blobs_put(null_mut(), blobs, key, 3, key, 3),
            fulgurite_blobs_length(null_mut(), blobs, key, 3, &raw mut length),
            fulgurite_blobs_remove(null_mut(), blobs, key, 3),
            fulgurite_blobs_append(null_mut(), blobs, key, 3, key, 3, &raw mut length),
            fulgurite_u64_blobs_get(null_mut(), numbers, 1, into, 64, &raw mut length),
            fulgurite_u64_blobs_put(null_mut(), numbers, 1, key, 3),
            fulgurite_heap_allocate(null_mut(), heap, 8, &raw mut word),
            fulgurite_heap_read(null_mut(), heap, IN_HEAP.load(Ordering::Relaxed), into, 8),
            fulgurite_region_read_at(null_mut(), region, 0, into, 8),
            fulgurite_region_write_at(null_mut(), region, 0, into, 8),
            fulgurite_root_load(null_mut(), root, &raw mut word),
            fulgurite_root_store(null_mut(), root, 1),
            fulgurite_blobs_open(pool, c"new".as_ptr(), 10, 1 << 20, &raw mut other_blobs),
            fulgurite_heap_open(pool, c"new heap".as_ptr(), 1 << 20, &raw mut other_heap),
            fulgurite_blobs_read_at(null_mut(), blobs, key, 3, 0, into, 64, &raw mut length),
            fulgurite_blobs_write_at(null_mut(), blobs, key, 3, 0, key, 3),
            fulgurite_blobs_compare_and_put(null_mut(), blobs, key, 3, key, 3, key, 3),
            fulgurite_blobs_scan(null_mut(), blobs, key, 3, 10, Some(value), null_mut(), &raw mut length),
            fulgurite_u64_blobs_length(null_mut(), numbers, 1, &raw mut length),
            fulgurite_u64_blobs_read_at(null_mut(), numbers, 1, 0, into, 64, &raw mut length),
            fulgurite_u64_blobs_write_at(null_mut(), numbers, 1, 0, key, 3),
            fulgurite_u64_blobs_append(null_mut(), numbers, 1, key, 3, &raw mut length),
            fulgurite_u64_blobs_compare_and_put(null_mut(), numbers, 1, key, 3, key, 3),
            fulgurite_u64_blobs_remove(null_mut(), numbers, 1),
            fulgurite_u64_blobs_keys(null_mut(), numbers, Some(number), null_mut()),
            fulgurite_heap_write(null_mut(), heap, IN_HEAP.load(Ordering::Relaxed), key, 3),
            fulgurite_heap_release(null_mut(), heap, IN_HEAP.load(Ordering::Relaxed), 8),
            fulgurite_region_permissions(region, 0, &raw mut permissions),
            fulgurite_region_set_permissions(region, 0, 1 << 16, FULGURITE_MAY_READ),
            fulgurite_u64_blobs_open(pool, c"new numbers".as_ptr(), 10, 1 << 20, &raw mut other_numbers),
            fulgurite_region_open(pool, c"new region".as_ptr(), 1 << 16, &raw mut other_region),
            fulgurite_root_open(pool, c"new root".as_ptr(), 7, &raw mut other_root),
            fulgurite_job_has_ended(of_parent, &raw mut ended),
            fulgurite_job_cancel(of_parent),
            fulgurite_job_wait(of_parent, null_mut()),
            fulgurite_submit(pool, Some(nothing), null_mut(), 0, &raw mut job),
            fulgurite_run(pool, Some(nothing), null_mut(), null_mut()),
            fulgurite_sync(pool, &raw mut word),
            fulgurite_roll_back(pool, 1),
            fulgurite_tokens(pool, null_mut(), 0, &raw mut length),
            fulgurite_pin_token(pool, 1, true),
            fulgurite_names(pool, Some(name), null_mut()),
            fulgurite_remove(pool, c"b".as_ptr()),
            fulgurite_set_dram_bytes(pool, 12 << 20),
            fulgurite_get_statistics(pool, statistics.as_mut_ptr(), size_of::<fulgurite_statistics>()),
            fulgurite_prometheus(pool, null_mut(), 0, &raw mut length),
            fulgurite_close(pool),
            fulgurite_abandon(pool),
        ]
    }
}

/// Forks; the child's exit code is what `child` returns. An alarm kills one that hangs.
fn in_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: other threads' locks may be held in the child for good: that is what is tested.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: plain calls.
            unsafe { libc::alarm(20) };
            let code = child();
            // SAFETY: as above.
            unsafe { libc::_exit(code) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: the child is ours.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1000 + libc::WTERMSIG(status) }
        }
    }
}

/// Ends threads also where the test fails.
struct Ends<'a>(&'a AtomicBool);
impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_child_after_fork_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let pool = start_pool(&path);
    let blobs = open_blobs(pool, c"b".as_ptr());
    assert_eq!(put(blobs, b"key", b"parent"), FULGURITE_OK);
    let (mut numbers, mut heap, mut region, mut root) = (null_mut(), null_mut(), null_mut(), null_mut());
    let mut job = null_mut();
    // SAFETY: handles and strings of this function.
    unsafe {
        assert_eq!(fulgurite_u64_blobs_open(pool, c"n".as_ptr(), 100, 1 << 20, &raw mut numbers), FULGURITE_OK);
        assert_eq!(fulgurite_heap_open(pool, c"h".as_ptr(), 1 << 20, &raw mut heap), FULGURITE_OK);
        let mut address = 0;
        assert_eq!(fulgurite_heap_allocate(null_mut(), heap, 8, &raw mut address), FULGURITE_OK);
        IN_HEAP.store(address, Ordering::Relaxed);
        assert_eq!(fulgurite_region_open(pool, c"r".as_ptr(), 1 << 20, &raw mut region), FULGURITE_OK);
        assert_eq!(fulgurite_root_open(pool, c"root".as_ptr(), 7, &raw mut root), FULGURITE_OK);
        assert_eq!(fulgurite_submit(pool, Some(nothing), null_mut(), 0, &raw mut job), FULGURITE_OK);
    }
    // Threads that hold what they may hold, at any moment.
    let ends = AtomicBool::new(false);
    let shared = [pool as usize, blobs as usize];
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            let ends = &ends;
            scope.spawn(move || {
                let (pool, blobs) = (shared[0] as *mut fulgurite_pool, shared[1] as *mut fulgurite_blobs);
                while !ends.load(Ordering::Relaxed) {
                    assert_eq!(put(blobs, &[thread], b"busy"), FULGURITE_OK, "{}", last());
                    // SAFETY: the handle is open until the scope ends.
                    assert_eq!(unsafe { fulgurite_sync(pool, null_mut()) }, FULGURITE_OK, "{}", last());
                }
            });
        }
        let _ends = Ends(&ends);
        for _ in 0..20 {
            let code = in_child(|| {
                // SAFETY: handles of the parent.
                let told = unsafe { all_functions(pool, blobs, numbers, heap, region, root, job) };
                let wrong = told.iter().position(|(_, status)| *status != FULGURITE_FORKED);
                wrong.map_or(0, |wrong| 1 + wrong as i32)
            });
            assert_eq!(code, 0, "the function of this number, from 1 on; 1014: it hangs");
            // Handles that it frees, and a way out through all that runs at an exit.
            let code = in_child(|| {
                // SAFETY: handles of the parent, whose copies these are.
                unsafe {
                    fulgurite_blobs_free(blobs);
                    fulgurite_u64_blobs_free(numbers);
                    fulgurite_heap_free(heap);
                    libc::exit(7)
                }
            });
            assert_eq!(code, 7);
            assert_eq!(get(blobs, b"key").as_deref(), Ok(&b"parent"[..]), "the parent goes on");
        }
    });
    // A memory of the child's own is none of its parent's.
    let code = in_child(|| {
        let pool = start_pool(&directory.path().join("pool of the child"));
        let blobs = open_blobs(pool, c"b".as_ptr());
        let put = put(blobs, b"key", b"child");
        // SAFETY: handles of this process.
        let closed = unsafe {
            fulgurite_blobs_free(blobs);
            fulgurite_close(pool)
        };
        i32::from(put != FULGURITE_OK || closed != FULGURITE_OK)
    });
    assert_eq!(code, 0);
    // SAFETY: handles of this function.
    unsafe {
        fulgurite_blobs_free(blobs);
        fulgurite_u64_blobs_free(numbers);
        fulgurite_heap_free(heap);
        fulgurite_region_free(region);
        fulgurite_root_free(root);
        assert_eq!(fulgurite_job_wait(job, null_mut()), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
    }
}

/// Each function of the allocators in a child: what it refused with, or why that was wrong.
///
/// # Safety
/// `allocator` and the others are handles of the parent.
unsafe fn all_of_allocators(
    allocator: *mut fulgurite_allocator,
    objects: *mut fulgurite_objects,
    named: *mut fulgurite_object_pool,
    [block, object, array]: [*mut c_void; 3],
) -> Vec<(&'static str, bool)> {
    let (mut bytes, mut word, mut number) = (0usize, 0u64, 0u32);
    let (mut found, mut pool) = (null_mut(), null_mut());
    let mut of_blocks = std::mem::MaybeUninit::<fulgurite_allocator_statistics>::uninit();
    let mut of_objects = std::mem::MaybeUninit::<fulgurite_objects_statistics>::uninit();
    macro_rules! refused {
        ($($call:expr),* $(,)?) => { vec![$((stringify!($call), $call == FULGURITE_FORKED)),*] };
    }
    macro_rules! null {
        ($($call:expr),* $(,)?) => { vec![$((stringify!($call), $call.is_null() && last().contains("a child, by fork"))),*] };
    }
    // SAFETY: the caller's contract, and variables of this function.
    unsafe {
        let mut all = refused![
            fulgurite_free(allocator, block),
            fulgurite_usable_size(allocator, block, &raw mut bytes),
            fulgurite_split(allocator, block, 4096),
            fulgurite_join(allocator, block, block),
            fulgurite_discard(allocator, block, 4096),
            fulgurite_allocator_set_permissions(allocator, block, 4096, FULGURITE_MAY_READ),
            fulgurite_allocator_get_statistics(allocator, of_blocks.as_mut_ptr(), size_of_val(&of_blocks)),
            fulgurite_object_free(objects, object),
            fulgurite_object_array_free(objects, array),
            fulgurite_object_size(objects, object, &raw mut bytes),
            fulgurite_objects_get_statistics(objects, of_objects.as_mut_ptr(), size_of_val(&of_objects)),
            fulgurite_object_array_set_permanent(objects, array, c"new".as_ptr()),
            fulgurite_objects_set_temporary(objects, c"array".as_ptr()),
            fulgurite_object_array_named(objects, c"array".as_ptr(), 10, 64, &raw mut found),
            fulgurite_object_pool_named(objects, c"list".as_ptr(), 64, &raw mut pool),
            fulgurite_object_pool_set_root(named, object),
            fulgurite_object_reference(objects, object, &raw mut number),
            fulgurite_objects_sync(objects, &raw mut word),
        ];
        all.extend(null![
            fulgurite_malloc(allocator, 8),
            fulgurite_calloc(allocator, 1, 8),
            fulgurite_aligned_alloc(allocator, 64, 8),
            fulgurite_realloc(allocator, block, 16),
            fulgurite_object_alloc(objects, 64),
            fulgurite_object_array_alloc(objects, 10, 64),
            fulgurite_object_pool_alloc(named),
            fulgurite_object_pool_root(named),
            fulgurite_object_at(objects, 0),
        ]);
        all.push(("fulgurite_owns", !fulgurite_owns(allocator, block)));
        all
    }
}

#[test]
fn a_child_after_fork_is_refused_by_allocators() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects");
    // The budget of the blocks is for all of the process.
    let roomy = |options| {
        // SAFETY: the handle is the caller's.
        assert_eq!(unsafe { fulgurite_options_dram(options, c"512M".as_ptr()) }, FULGURITE_OK, "{}", last());
        options
    };
    let (mut allocator, mut objects, mut named) = (null_mut(), null_mut(), null_mut());
    // SAFETY: handles and strings of this function.
    let [block, object, array] = unsafe {
        let medium = roomy(options(|options| fulgurite_options_memory(options)));
        assert_eq!(fulgurite_allocator_start_in_line(medium, &raw mut allocator), FULGURITE_OK, "{}", last());
        fulgurite_options_free(medium);
        let path = string(&path);
        let medium = options(|options| fulgurite_options_pool(options, path.as_ptr()));
        let started = fulgurite_objects_start(medium, 10_000, FULGURITE_OBJECTS_IN_LINE, &raw mut objects);
        assert_eq!(started, FULGURITE_OK, "{}", last());
        fulgurite_options_free(medium);
        let array = fulgurite_object_array_alloc(objects, 10, 64);
        array.cast::<u64>().write(7);
        assert_eq!(fulgurite_object_array_set_permanent(objects, array, c"array".as_ptr()), FULGURITE_OK);
        let opened = fulgurite_object_pool_named(objects, c"list".as_ptr(), 64, &raw mut named);
        assert_eq!(opened, FULGURITE_OK, "{}", last());
        [fulgurite_malloc(allocator, 1 << 16), fulgurite_object_pool_alloc(named), array]
    };
    assert!(!block.is_null() && !object.is_null(), "{}", last());
    // A thread that holds what it may hold, at any moment.
    let ends = AtomicBool::new(false);
    let shared = [allocator as usize, objects as usize, array as usize];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let allocator = shared[0] as *mut fulgurite_allocator;
            let (objects, array) = (shared[1] as *mut fulgurite_objects, shared[2] as *mut u64);
            while !ends.load(Ordering::Relaxed) {
                // SAFETY: the handles live as long as the process, and the array is this thread's.
                unsafe {
                    array.write(array.read() + 1);
                    assert_eq!(fulgurite_objects_sync(objects, null_mut()), FULGURITE_OK, "{}", last());
                    let block = fulgurite_malloc(allocator, 100);
                    assert_eq!(fulgurite_free(allocator, block), FULGURITE_OK, "{}", last());
                }
            }
        });
        let _ends = Ends(&ends);
        for _ in 0..20 {
            let code = in_child(|| {
                // SAFETY: handles of the parent.
                let all = unsafe { all_of_allocators(allocator, objects, named, [block, object, array]) };
                all.iter().position(|(_, refused)| !refused).map_or(0, |wrong| 1 + wrong as i32)
            });
            assert_eq!(code, 0, "the function of this number, from 1 on; 1014: it hangs");
        }
    });
    // SAFETY: handles of this function.
    unsafe {
        assert!(array.cast::<u64>().read() > 7, "the parent goes on");
        assert_eq!(fulgurite_objects_sync(objects, null_mut()), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_object_free(objects, object), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_free(allocator, block), FULGURITE_OK, "{}", last());
        fulgurite_object_pool_free(named);
    }
}

#[test]
fn a_child_after_fork_is_refused_at_once_in_rust() {
    use fulgurite::latches::VersionLatch;
    use fulgurite::runtime::SubmitError;
    use fulgurite::{AccessError, Error, Fulgurite, HashMap, JobError, Medium, Rooted, SyncError};
    type Map = Arc<Rooted<HashMap<u64, u64, VersionLatch>>>;
    fn open(path: &Path) -> (Fulgurite, Map) {
        let memory = Fulgurite::builder(Medium::pool_or_new(path, "24M")).dram("12M").start().unwrap();
        let map = memory.named("map").hash_map(1000).unwrap();
        (memory, map)
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let (memory, map) = open(&path);
    let (memory, shared) = (Arc::new(memory), map.clone());
    let put = |key, value| memory.run(|m| map.insert(m, &key, value).map(drop));
    put(1, 1).unwrap();
    for round in 2..12 {
        // A job that is under way in the parent, whose handle the child has as well.
        let (go, goes) = std::sync::mpsc::channel::<()>();
        let job = memory.submit(move |_| goes.recv().is_ok()).unwrap();
        let (mut job, child_map) = (Some(job), shared.clone());
        let code = in_child(|| {
            let refused = [
                matches!(memory.submit(|_| ()), Err(SubmitError::Forked)),
                matches!(memory.run(|_| Ok(())), Err(AccessError::Forked)),
                matches!(memory.run(|m| child_map.get(m, &1)), Err(AccessError::Forked)),
                matches!(memory.run_here(|m| child_map.get(m, &1)), Err(AccessError::Forked)),
                matches!(memory.sync(), Err(Error::Sync(SyncError::Forked))),
                matches!(memory.roll_back(1), Err(Error::Sync(SyncError::Forked))),
                memory.tokens().is_err(),
                matches!(job.take().map(|job| job.wait()), Some(Err(JobError::Forked))),
            ];
            // What the parent's threads own is not ended here.
            drop(child_map);
            // SAFETY: the child ends by `_exit`, and does not use its copy again.
            drop(unsafe { Arc::from_raw(Arc::as_ptr(&memory)) });
            refused.iter().position(|refused| !refused).map_or(0, |wrong| 1 + wrong as i32)
        });
        assert_eq!(code, 0, "the call of this number, from 1 on, is not refused; 1014: it hangs");
        go.send(()).unwrap();
        assert!(job.unwrap().wait().unwrap(), "the parent's job goes on");
        put(round, round).unwrap();
        // From the next round on, the thread that forks has used the memory itself.
        memory.run_here(|m| map.insert(m, &(100 + round), round)).unwrap();
        memory.sync().unwrap();
    }
    drop((memory, map, shared));
    let (memory, map) = open(&path);
    (1..12).for_each(|key| assert_eq!(memory.run(|m| map.get(m, &key)).unwrap(), Some(key)));
}
