//! Goal: what surrounds a process costs no data and no hang. A program that was started without
//! standard input, output and error has no pool under their numbers, through any door. A child
//! after `fork` is refused at once by every function that takes a handle, whatever its parent's
//! threads hold, and the parent goes on. A filter of system calls costs an error at most, and a
//! debugger nothing. Method: the test's own program once more, for a process of its own. It closes
//! 0, 1 and 2, opens everything, asks whether they are still free, and writes to them as a log
//! would. Or it forks while other threads use the memory, and the child calls each function, under
//! an alarm that would kill it. Or it denies itself the calls that read and write files, or is read
//! and stopped from outside while it works.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_capi::fulgurite_status::*;
use fulgurite_capi::*;
use fulgurite_testkit as testkit;

const DIRECTORY: &str = "FULGURITE_TEST_DIRECTORY";

fn last() -> String {
    // SAFETY: a string that lasts until the next failure.
    unsafe { CStr::from_ptr(fulgurite_last_message()) }.to_str().unwrap().to_owned()
}

fn string(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().to_str().unwrap()).unwrap()
}

/// Options of 24 MiB with 16 MiB of DRAM, over what `set_medium` chooses.
fn options(set_medium: impl FnOnce(*mut fulgurite_options) -> fulgurite_status) -> *mut fulgurite_options {
    let options = fulgurite_options_new();
    assert_eq!(set_medium(options), FULGURITE_OK, "{}", last());
    // SAFETY: handles and strings of this function.
    unsafe {
        assert_eq!(fulgurite_options_dram(options, c"16M".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_size(options, c"24M".as_ptr()), FULGURITE_OK);
    }
    options
}

fn start(options: *mut fulgurite_options) -> *mut fulgurite_pool {
    let mut pool = null_mut();
    // SAFETY: handles of this function.
    unsafe {
        assert_eq!(fulgurite_open(options, &raw mut pool), FULGURITE_OK, "{}", last());
        fulgurite_options_free(options);
    }
    pool
}

fn start_pool(path: &Path) -> *mut fulgurite_pool {
    let path = string(path);
    // SAFETY: handles and strings of this function.
    start(options(|options| unsafe { fulgurite_options_pool(options, path.as_ptr()) }))
}

fn open_blobs(pool: *mut fulgurite_pool, name: *const c_char) -> *mut fulgurite_blobs {
    let mut blobs = null_mut();
    // SAFETY: handles and strings of this function.
    let opened = unsafe { fulgurite_blobs_open(pool, name, 1000, 1 << 20, &raw mut blobs) };
    assert_eq!(opened, FULGURITE_OK, "{}", last());
    blobs
}

fn put(blobs: *mut fulgurite_blobs, key: &[u8], value: &[u8]) -> fulgurite_status {
    let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
    // SAFETY: the handle is the caller's, and the bytes outlive the call.
    unsafe { fulgurite_blobs_put(null_mut(), blobs, key_at, key.len(), value_at, value.len()) }
}

fn get(blobs: *mut fulgurite_blobs, key: &[u8]) -> Result<Vec<u8>, fulgurite_status> {
    let (mut value, mut length) = ([0u8; 64], 0);
    let (key_at, into) = (key.as_ptr().cast(), value.as_mut_ptr().cast());
    // SAFETY: as in `put`.
    match unsafe { fulgurite_blobs_get(null_mut(), blobs, key_at, key.len(), into, 64, &raw mut length) } {
        FULGURITE_OK => Ok(value[..length].to_vec()),
        status => Err(status),
    }
}

/// Puts a value, syncs, and finds it.
fn put_durably(pool: *mut fulgurite_pool, blobs: *mut fulgurite_blobs, key: &[u8], value: &[u8]) {
    assert_eq!(put(blobs, key, value), FULGURITE_OK, "{}", last());
    // SAFETY: the handle is the caller's.
    assert_eq!(unsafe { fulgurite_sync(pool, null_mut()) }, FULGURITE_OK, "{}", last());
    assert_eq!(get(blobs, key).as_deref(), Ok(value));
}

fn close(pool: *mut fulgurite_pool, blobs: *mut fulgurite_blobs) {
    // SAFETY: the handles are the caller's, which uses them no more.
    unsafe {
        fulgurite_blobs_free(blobs);
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
    }
}

/// The number of a test's child, or none in the run of all tests.
fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

// ---- descriptors ----

/// The descriptors among 0, 1 and 2 that are open.
fn standard() -> Vec<c_int> {
    // SAFETY: it is only asked whether there are such descriptors.
    (0..3).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } != -1).collect()
}

/// Opens through every door, one after the other. All stay open.
fn open_every_medium(directory: &Path) {
    type SetMedium<'a> = &'a dyn Fn(*mut fulgurite_options) -> fulgurite_status;
    let (pool, flat, device, in_memory) = (
        string(directory.join("pool")),
        string(directory.join("flat")),
        string(directory.join("device.sock")),
        string(std::env::var("FULGURITE_TEST_SHM").unwrap()),
    );
    // SAFETY: handles and strings of this function.
    let media: [(&str, SetMedium<'_>); 8] = unsafe {
        [
            ("memory", &|options| fulgurite_options_memory(options)),
            ("emulated", &|options| fulgurite_options_emulated(options)),
            ("pool", &|options| fulgurite_options_pool(options, pool.as_ptr())),
            ("pool in memory", &|options| fulgurite_options_pool(options, in_memory.as_ptr())),
            ("flat", &|options| fulgurite_options_flat(options, flat.as_ptr())),
            ("objects of a flat file", &|options| fulgurite_options_flat(options, c"".as_ptr())),
            ("blocks", &|options| fulgurite_options_memory(options)),
            ("device", &|options| fulgurite_options_device(options, device.as_ptr(), true)),
        ]
    };
    // The budget of these is for all of the process.
    let roomy = |options| {
        // SAFETY: the handle is the caller's.
        let set = unsafe { fulgurite_options_dram(options, c"512M".as_ptr()) };
        assert_eq!(set, FULGURITE_OK, "{}", last());
    };
    for (name, set_medium) in media {
        match name {
            "objects of a flat file" => {
                let file = string(directory.join("objects"));
                // SAFETY: as above.
                let options = options(|options| unsafe { fulgurite_options_flat(options, file.as_ptr()) });
                roomy(options);
                let mut objects = null_mut();
                // SAFETY: as above.
                let started = unsafe { fulgurite_objects_start(options, 1000, 0, &raw mut objects) };
                assert_eq!(started, FULGURITE_OK, "{}", last());
                // SAFETY: as above, and the object has 8 bytes.
                unsafe { fulgurite_object_alloc(objects, 8).cast::<u64>().write(7) };
            }
            "blocks" => {
                let (options, mut allocator) = (options(set_medium), null_mut());
                roomy(options);
                // SAFETY: as above.
                let started = unsafe { fulgurite_allocator_start(options, &raw mut allocator) };
                assert_eq!(started, FULGURITE_OK, "{}", last());
                // SAFETY: as above, and the block has 8 bytes.
                unsafe { fulgurite_malloc(allocator, 8).cast::<u64>().write(7) };
            }
            "device" => {
                let options = fulgurite_options_new();
                let mut pool = null_mut();
                // SAFETY: as above.
                unsafe {
                    assert_eq!(set_medium(options), FULGURITE_OK);
                    assert_eq!(fulgurite_options_dram(options, c"16M".as_ptr()), FULGURITE_OK);
                    assert_eq!(fulgurite_open(options, &raw mut pool), FULGURITE_OK, "{}", last());
                }
            }
            _ => {
                let pool = start(options(set_medium));
                if name.contains("pool") {
                    let blobs = open_blobs(pool, c"b".as_ptr());
                    for key in 0..100u8 {
                        assert_eq!(put(blobs, &[key], b"value"), FULGURITE_OK, "{}", last());
                        // As a log does.
                        let line =
                            "a line of the program's own log, which is some eighty bytes long, is written here\n";
                        // SAFETY: the bytes are the string's.
                        let written = [1, 2].map(|fd| unsafe { libc::write(fd, line.as_ptr().cast(), line.len()) });
                        assert_eq!(written, [-1, -1], "nobody has them");
                    }
                    // SAFETY: as above.
                    assert_eq!(unsafe { fulgurite_sync(pool, null_mut()) }, FULGURITE_OK, "{}", last());
                }
            }
        }
        assert!(standard().is_empty(), "{name}: {:?}", standard());
    }
}

#[test]
#[ignore = "the program of the next test"]
fn opens_without_standard_descriptors() {
    let Some(directory) = directory() else { return };
    // SAFETY: nothing here uses them.
    (0..3).for_each(|fd| assert_eq!(unsafe { libc::close(fd) }, 0));
    let ended = std::panic::catch_unwind(|| open_every_medium(&directory));
    let told = match ended {
        Ok(()) => "all is well".to_owned(),
        Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned()),
    };
    std::fs::write(directory.join("told"), told).unwrap();
    // SAFETY: the process ends, with all its memories open.
    unsafe { libc::_exit(0) };
}

#[test]
fn descriptors_of_the_library_are_3_and_up() {
    use fulgurite_device::{Device, DeviceConfig, Server, ServerConfig};
    use fulgurite_flash::{Flash, MemoryFlash};
    use fulgurite_format::PoolId;
    use fulgurite_store::{Geometry, Pool, StoreConfig};

    let directory = tempfile::tempdir().unwrap();
    // Without O_DIRECT, which would refuse a line of text.
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(8192).unwrap());
    Pool::format(&medium, Geometry::new(8192, 64, None).unwrap(), PoolId([5; 16]), 0).unwrap();
    let served = Pool::open(medium, StoreConfig::default()).unwrap().0;
    let device = Device::start_store(served.into_flash(), DeviceConfig::default()).unwrap();
    let socket = directory.path().join("device.sock");
    let _server = Server::start(Arc::new(device), &socket, ServerConfig::default()).unwrap();

    let shm = in_memory.path().join("pool");
    let mut child = testkit::again(module_path!(), "opens_without_standard_descriptors");
    let status = child.env(DIRECTORY, directory.path()).env("FULGURITE_TEST_SHM", &shm).status().unwrap();
    let told = std::fs::read_to_string(directory.path().join("told")).unwrap_or_default();
    assert_eq!((told.as_str(), status.success()), ("all is well", true));
    for path in [directory.path().join("pool"), shm] {
        let pool = start_pool(&path);
        let blobs = open_blobs(pool, c"b".as_ptr());
        for key in 0..100u8 {
            assert_eq!(get(blobs, &[key]).as_deref(), Ok(&b"value"[..]), "{}", path.display());
        }
        // SAFETY: handles of this function.
        unsafe { fulgurite_blobs_free(blobs) };
        // SAFETY: as above.
        assert_eq!(unsafe { fulgurite_close(pool) }, FULGURITE_OK);
    }
}

// ---- forks ----

/// An address in the heap.
static IN_HEAP: AtomicU64 = AtomicU64::new(0);

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
) -> Vec<(&'static str, fulgurite_status)> {
    unsafe extern "C" fn nothing(_: *mut fulgurite_context, _: *mut c_void) -> c_int {
        0
    }
    unsafe extern "C" fn name(_: *mut c_void, _: *const c_char, _: *const c_char, _: u64) {}
    let (mut length, mut word, mut buffer) = (0usize, 0u64, [0u8; 64]);
    let key = b"key".as_ptr().cast::<c_void>();
    let into = buffer.as_mut_ptr().cast::<c_void>();
    let (mut job, mut other_blobs, mut other_heap) = (null_mut(), null_mut(), null_mut());
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
    // SAFETY: handles and strings of this function.
    unsafe {
        assert_eq!(fulgurite_u64_blobs_open(pool, c"n".as_ptr(), 100, 1 << 20, &raw mut numbers), FULGURITE_OK);
        assert_eq!(fulgurite_heap_open(pool, c"h".as_ptr(), 1 << 20, &raw mut heap), FULGURITE_OK);
        let mut address = 0;
        assert_eq!(fulgurite_heap_allocate(null_mut(), heap, 8, &raw mut address), FULGURITE_OK);
        IN_HEAP.store(address, Ordering::Relaxed);
        assert_eq!(fulgurite_region_open(pool, c"r".as_ptr(), 1 << 20, &raw mut region), FULGURITE_OK);
        assert_eq!(fulgurite_root_open(pool, c"root".as_ptr(), 7, &raw mut root), FULGURITE_OK);
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
                let told = unsafe { all_functions(pool, blobs, numbers, heap, region, root) };
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
    use fulgurite::{AccessError, Error, Fulgurite, HashMap, JobError, Medium, Rooted, SubmitError, SyncError};
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
        memory.sync().unwrap();
    }
    drop((memory, map, shared));
    let (memory, map) = open(&path);
    (1..12).for_each(|key| assert_eq!(memory.run(|m| map.get(m, &key)).unwrap(), Some(key)));
}

// ---- filters of system calls ----

/// Denies the calls that read, write and flush files (`EPERM`): to the calling thread, or to all.
fn deny_files(all_threads: bool) {
    const LOAD_CALL: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let denied = [
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_setup,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_preadv,
        libc::SYS_pwritev,
        libc::SYS_preadv2,
        libc::SYS_pwritev2,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
    ];
    let line = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut filter = vec![line(LOAD_CALL, 0, 0)];
    for (at, call) in denied.iter().enumerate() {
        filter.push(line(IS, (denied.len() - at) as u8, *call as u32));
    }
    filter.push(line(RETURN, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(line(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let flags = if all_threads { libc::SECCOMP_FILTER_FLAG_TSYNC } else { 0 };
    // SAFETY: a filter of this function, which the kernel copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program), 0);
    }
}

#[test]
#[ignore = "the program of the next test"]
fn denies_itself_files() {
    let Some(directory) = directory() else { return };
    let pool = start_pool(&directory.join("pool"));
    let blobs = open_blobs(pool, c"b".as_ptr());
    assert_eq!(put(blobs, b"key", b"before"), FULGURITE_OK, "{}", last());
    // SAFETY: handles of this function.
    let sync = || unsafe { fulgurite_sync(pool, null_mut()) };
    assert_eq!(sync(), FULGURITE_OK, "{}", last());
    deny_files(std::env::var_os("FULGURITE_TEST_ALL_THREADS").is_some());
    let changed = put(blobs, b"key", b"after");
    let (synced, message) = (sync(), last());
    println!("\nput {changed:?}, sync {synced:?}: {message}");
    let found = get(blobs, b"key");
    // SAFETY: as above.
    let closed = unsafe {
        fulgurite_blobs_free(blobs);
        fulgurite_close(pool)
    };
    println!("\nget {found:?}, close {closed:?}");
    println!("\nsynced: {}", synced == FULGURITE_OK && closed == FULGURITE_OK);
    // SAFETY: the process ends. Nothing is left to be done at an exit.
    unsafe { libc::_exit(0) };
}

#[test]
fn a_filter_of_system_calls_is_an_error_at_most() {
    for all_threads in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("timeout");
        command.arg("30").arg(std::env::current_exe().unwrap());
        command.args(testkit::arguments(module_path!(), "denies_itself_files")).env(DIRECTORY, directory.path());
        if all_threads {
            command.env("FULGURITE_TEST_ALL_THREADS", "1");
        }
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        println!("{printed}");
        assert!(output.status.success() && !printed.contains("panicked"), "{:?}: {printed}", output.status);
        // The thread that asks for a sync makes it, so its filter counts as well.
        assert!(printed.contains("sync FULGURITE_IO") && printed.contains("\nsynced: false"), "{printed}");
        assert!(printed.contains("a filter of system calls"), "{printed}");
        // The new value may be there or not.
        let pool = start_pool(&directory.path().join("pool"));
        let blobs = open_blobs(pool, c"b".as_ptr());
        let found = get(blobs, b"key").unwrap();
        assert!(found == b"after" || found == b"before", "{found:?}");
        close(pool, blobs);
    }
    testkit::figure(27, "processes under filters of system calls", 2);
}

// ---- debuggers ----

#[test]
#[ignore = "the program of the next test"]
fn works_until_it_is_told_to_end() {
    let Some(directory) = directory() else { return };
    let pool = start_pool(&directory.join("pool"));
    let blobs = open_blobs(pool, c"b".as_ptr());
    for round in 0u64.. {
        let key = (round % 50).to_le_bytes();
        put_durably(pool, blobs, &key, b"what a debugger looks for");
        if round == 50 {
            std::fs::write(directory.join("works"), "").unwrap();
        }
        if directory.join("end").exists() {
            break;
        }
    }
    close(pool, blobs);
}

/// Reads all memory of another process that can be read, and counts where a value is in it.
fn read_all(pid: u32, value: &[u8]) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let range = line.split(' ').next().unwrap();
        let (first, end) = range.split_once('-').unwrap();
        let [first, end] = [first, end].map(|number| usize::from_str_radix(number, 16).unwrap());
        let mut bytes = vec![0u8; (end - first).min(32 << 20)];
        let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let there = libc::iovec { iov_base: first as *mut c_void, iov_len: bytes.len() };
        // SAFETY: the bytes are this function's.
        let read = unsafe { libc::process_vm_readv(pid as i32, &raw const here, 1, &raw const there, 1, 0) };
        let read = &bytes[..usize::try_from(read).unwrap_or(0)];
        found += read.windows(value.len()).filter(|window| *window == value).count();
    }
    found
}

#[test]
fn a_pool_that_a_debugger_reads_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = testkit::again(module_path!(), "works_until_it_is_told_to_end");
    let mut child = child.env(DIRECTORY, directory.path()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let begun = std::time::Instant::now();
    while !directory.path().join("works").exists() && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let found = read_all(child.id(), b"what a debugger looks for");
    let pid = child.id().to_string();
    let all_threads = ["-p", &pid, "-nx", "-batch", "-ex", "thread apply all backtrace 2", "-ex", "detach"];
    let by_gdb = std::process::Command::new("timeout").args(["60", "gdb"]).args(all_threads).output();
    std::fs::write(directory.path().join("end"), "").unwrap();
    let status = (0..600).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        child.try_wait().unwrap()
    });
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(status.is_some_and(|status| status.success()), "{status:?}; none: it hangs");
    assert!(found > 0, "the values are in DRAM");
    match by_gdb {
        Ok(output) if output.status.success() => println!("gdb: {}", String::from_utf8_lossy(&output.stdout)),
        other => println!("SKIPPED: gdb cannot stop it here, or is not installed ({other:?})"),
    }
    testkit::figure(27, "pools read by a debugger", 1);
}

// ---- valgrind ----

#[test]
#[ignore = "the program of the next test"]
fn uses_a_pool() {
    let Some(directory) = directory() else { return };
    let pool = start_pool(&directory.join("pool"));
    let blobs = open_blobs(pool, c"b".as_ptr());
    for key in 0..50u8 {
        put_durably(pool, blobs, &[key], b"value");
    }
    close(pool, blobs);
}

#[test]
fn a_pool_works_under_valgrind() {
    let Ok(valgrind) = std::process::Command::new("valgrind").arg("--version").output() else {
        return testkit::cannot(27, "pools under valgrind", "there is no valgrind here");
    };
    println!("{}", String::from_utf8_lossy(&valgrind.stdout));
    let directory = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("valgrind");
    // No tool: all of them run threads in the same way. Fibers have stacks of their own.
    command.args(["-q", "--tool=none"]).arg(std::env::current_exe().unwrap());
    command.args(testkit::arguments(module_path!(), "uses_a_pool")).env(DIRECTORY, directory.path());
    let mut child = command.spawn().unwrap();
    // It takes some seconds, and does not end where a wait holds up all threads.
    let status = (0..1200).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        child.try_wait().unwrap()
    });
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(status.is_some_and(|status| status.success()), "{status:?}; none: it hangs");
    testkit::figure(27, "pools under valgrind", 1);
}

// ---- killed while a pool is made ----

/// The doors by which a pool is made, or a file for what keeps nothing.
const DOORS: [&str; 8] = ["c", "new", "or new", "objects", "new file", "flat in c", "allocator", "object allocator"];

/// Makes a pool, or opens the one that was made.
fn make(door: &str, path: &Path) -> Result<(), String> {
    use fulgurite::{Fulgurite, Medium};
    let start_with = |medium| Fulgurite::builder(medium).dram("12M").start().map_err(|error| error.to_string());
    let c_path = string(path);
    // SAFETY: handles and strings of this function.
    let flat = || options(|options| unsafe { fulgurite_options_flat(options, c_path.as_ptr()) });
    let as_c_says = |status| if status == FULGURITE_OK { Ok(()) } else { Err(last()) };
    // Theirs is the budget of all of the process.
    let roomy = |options| {
        // SAFETY: the handle is the caller's.
        assert_eq!(unsafe { fulgurite_options_dram(options, c"512M".as_ptr()) }, FULGURITE_OK, "{}", last());
        options
    };
    let memory = match door {
        "c" => {
            let pool = start_pool(path);
            let blobs = open_blobs(pool, c"b".as_ptr());
            // SAFETY: handles of this function.
            return as_c_says(unsafe {
                fulgurite_blobs_free(blobs);
                fulgurite_close(pool)
            });
        }
        "flat in c" => {
            let pool = start(flat());
            // SAFETY: a handle of this function.
            return as_c_says(unsafe { fulgurite_close(pool) });
        }
        "allocator" => {
            let mut allocator = null_mut();
            // SAFETY: handles of this function.
            return as_c_says(unsafe { fulgurite_allocator_start(roomy(flat()), &raw mut allocator) });
        }
        "object allocator" => {
            let mut objects = null_mut();
            // SAFETY: handles of this function.
            return as_c_says(unsafe { fulgurite_objects_start(roomy(flat()), 1000, 0, &raw mut objects) });
        }
        "new file" if path.exists() => return start_with(Medium::file(path)).map(drop),
        "new file" => return start_with(Medium::new_file(path, "24M")).map(drop),
        // A program that makes it when it is not there.
        "new" if path.exists() => start_with(Medium::pool(path))?,
        "new" => start_with(Medium::new_pool(path, "24M"))?,
        "objects" => start_with(Medium::pool_or_new(path, "24M").objects(1000))?,
        _ => start_with(Medium::pool_or_new(path, "24M"))?,
    };
    memory.named("b").blobs::<u64>(100, "1M").map(drop).map_err(|error| error.to_string())
}

#[test]
#[ignore = "the program of the next test"]
fn makes_a_pool() {
    let (Some(directory), Ok(door)) = (directory(), std::env::var("FULGURITE_TEST_DOOR")) else { return };
    std::fs::write(directory.join("marks/begun"), "").unwrap();
    make(&door, &directory.join("data/pool")).unwrap();
    std::fs::write(directory.join("marks/made"), "made").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_pool_is_made_after_its_maker_was_killed_at_any_step() {
    let mut kills = 0;
    for door in DOORS {
        let directory = tempfile::tempdir().unwrap();
        kills += testkit::kill_makers(door, directory.path(), |directory| {
            let mut child = testkit::again(module_path!(), "makes_a_pool");
            child.env(DIRECTORY, directory).env("FULGURITE_TEST_DOOR", door);
            child
        });
    }
    testkit::figure(26, "kills of makers of pools", kills);
}
