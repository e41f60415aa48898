//! Goal: what surrounds a process costs no data and no hang. A program that was started without
//! standard input, output and error has no pool under their numbers, through any door. A filter of
//! system calls costs an error at most, and a debugger nothing. Method: the test's own program once
//! more, for a process of its own. It closes 0, 1 and 2, opens everything, asks whether they are
//! still free, and writes to them as a log would. Or it denies itself the calls that read and write
//! files, or is read and stopped from outside while it works.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;

use fulgurite_capi::fulgurite_status::*;
use fulgurite_capi::*;
use fulgurite_testkit as testkit;

use crate::calls::{close, get, last, open_blobs, options, put, put_durably, start, start_pool, string};

const DIRECTORY: &str = "FULGURITE_TEST_DIRECTORY";

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
