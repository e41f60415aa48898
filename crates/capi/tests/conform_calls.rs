//! Goal: each call does what the header says, and bad arguments are errors: NULL, misaligned, not
//! UTF-8, out of range, closed, of another pool or thread. Method: the functions are called as C
//! calls them, over plain memory and over a pool in a file.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use fulgurite_capi::fulgurite_status::*;
use fulgurite_capi::*;

fn last() -> String {
    // SAFETY: a string that lasts until the next failure.
    unsafe { CStr::from_ptr(fulgurite_last_message()) }.to_str().unwrap().to_owned()
}

fn string(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).unwrap()
}

/// Opens a memory. No path: plain memory, which keeps nothing.
fn open(path: Option<&Path>) -> *mut fulgurite_pool {
    let options = fulgurite_options_new();
    let mut pool = null_mut();
    // SAFETY: handles and strings of this function.
    unsafe {
        match path {
            Some(path) => {
                let path = string(path.to_str().unwrap());
                assert_eq!(fulgurite_options_pool(options, path.as_ptr()), FULGURITE_OK);
                assert_eq!(fulgurite_options_keep_tokens(options, 3), FULGURITE_OK);
            }
            None => assert_eq!(fulgurite_options_memory(options), FULGURITE_OK),
        }
        assert_eq!(fulgurite_options_size(options, c"24M".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_dram_bytes(options, 16 << 20), FULGURITE_OK);
        assert_eq!(fulgurite_open(options, &mut pool), FULGURITE_OK, "{}", last());
        fulgurite_options_free(options);
    }
    assert!(!pool.is_null());
    pool
}

#[test]
fn statuses_have_sentences() {
    let mut sentences = Vec::new();
    for status in -1..28 {
        // SAFETY: a string that lasts as long as the program.
        sentences.push(unsafe { CStr::from_ptr(fulgurite_strerror(status)) }.to_str().unwrap());
    }
    assert_eq!(sentences[0], sentences[28], "numbers that are no status");
    assert_eq!((sentences[1], sentences[2]), ("done", "there is no such key, name or token"));
    sentences.pop();
    let count = sentences.len();
    sentences.sort_unstable();
    sentences.dedup();
    assert_eq!(sentences.len(), count, "each has its own");
}

#[test]
fn options_are_checked() {
    let options = fulgurite_options_new();
    let mut pool = std::ptr::dangling_mut();
    // SAFETY: handles and strings of this function; null where an error is expected.
    unsafe {
        assert_eq!(fulgurite_open(options, &mut pool), FULGURITE_BAD_OPTION);
        assert!(pool.is_null() && last().contains("fulgurite_options_pool()"), "{}", last());
        assert_eq!(fulgurite_options_memory(options), FULGURITE_OK);
        assert_eq!(fulgurite_open(options, &mut pool), FULGURITE_BAD_OPTION);
        assert!(last().contains("fulgurite_options_size()"), "{}", last());
        assert_eq!(fulgurite_options_size(options, c"many".as_ptr()), FULGURITE_BAD_OPTION);
        assert!(last().contains("many"), "{}", last());
        assert_eq!(fulgurite_options_size(options, c"\xff\xfe".as_ptr()), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_options_size(options, null()), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_options_size(null_mut(), c"1M".as_ptr()), FULGURITE_INVALID_ARGUMENT);
        assert!(last().starts_with("options is NULL"), "{}", last());
        assert_eq!(fulgurite_options_size_bytes(options, 8 << 20), FULGURITE_OK);
        assert_eq!(fulgurite_options_dram(options, c"1K".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_open(options, &mut pool), FULGURITE_BAD_OPTION);
        assert!(last().contains("raise it to"), "{}", last());
        assert_eq!(fulgurite_options_dram(options, c"16M".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_durability_sync(options), FULGURITE_OK);
        assert_eq!(fulgurite_open(options, &mut pool), FULGURITE_BAD_OPTION, "plain memory promises nothing");
        assert_eq!(fulgurite_open(options, null_mut()), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_open(null(), &mut pool), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_options_pool(options, c"no/such/directory/pool".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_open(options, &mut pool), FULGURITE_CANNOT_OPEN);
        assert!(pool.is_null() && last().contains("no/such/directory"), "{}", last());
        fulgurite_options_free(options);
        fulgurite_options_free(null_mut());
        assert_eq!(fulgurite_close(null_mut()), FULGURITE_OK);
    }
}

#[test]
fn values_come_back_whole() {
    let pool = open(None);
    let mut blobs = null_mut();
    let mut length = 0;
    let key = b"a key".as_ptr().cast::<c_void>();
    let mut buffer = [0u8; 8];
    let into = buffer.as_mut_ptr().cast::<c_void>();
    // SAFETY: handles, keys and buffers of this function; null where an error is expected.
    unsafe {
        assert_eq!(fulgurite_blobs_open(pool, c"name".as_ptr(), 100, 1 << 20, &mut blobs), FULGURITE_NO_POOL);
        assert!(blobs.is_null());
        assert_eq!(fulgurite_blobs_open(pool, null(), 100, 4 << 20, &mut blobs), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_blobs_get(null_mut(), blobs, key, 5, into, 8, &mut length), FULGURITE_NOT_FOUND);
        let value = b"eight by".as_ptr().cast::<c_void>();
        assert_eq!(fulgurite_blobs_put(null_mut(), blobs, key, 5, value, 8), FULGURITE_OK, "{}", last());
        // Just as long as the buffer, shorter, and longer.
        assert_eq!(fulgurite_blobs_get(null_mut(), blobs, key, 5, into, 8, &mut length), FULGURITE_OK);
        assert_eq!((length, &buffer), (8, b"eight by"));
        let appended = fulgurite_blobs_append(null_mut(), blobs, key, 5, b"tes".as_ptr().cast(), 3, &mut length);
        assert_eq!((appended, length), (FULGURITE_OK, 11));
        buffer.fill(0);
        let into = buffer.as_mut_ptr().cast::<c_void>();
        let got = fulgurite_blobs_get(null_mut(), blobs, key, 5, into, 8, &mut length);
        assert_eq!((got, length, &buffer), (FULGURITE_BUFFER_TOO_SMALL, 11, b"eight by"));
        assert!(last().contains("11 bytes") && last().contains("buffer 8"), "{}", last());
        assert_eq!(fulgurite_blobs_read_at(null_mut(), blobs, key, 5, 8, into, 8, &mut length), FULGURITE_OK);
        assert_eq!((length, &buffer[..3]), (3, &b"tes"[..]));
        assert_eq!(fulgurite_blobs_write_at(null_mut(), blobs, key, 5, 6, b"B".as_ptr().cast(), 1), FULGURITE_OK);
        let past = fulgurite_blobs_write_at(null_mut(), blobs, key, 5, 11, b"B".as_ptr().cast(), 1);
        assert_eq!(past, FULGURITE_NOT_FOUND);
        let swap = |expected: &[u8], with: &[u8]| {
            let (at, with_at) = (expected.as_ptr().cast(), with.as_ptr().cast());
            fulgurite_blobs_compare_and_put(null_mut(), blobs, key, 5, at, expected.len(), with_at, with.len())
        };
        assert_eq!(swap(b"eight bytes", b"x"), FULGURITE_DIFFERENT);
        assert_eq!(swap(b"eight Bytes", b""), FULGURITE_OK);
        assert_eq!(fulgurite_blobs_length(null_mut(), blobs, key, 5, &mut length), FULGURITE_OK);
        assert_eq!(length, 0);
        let none = fulgurite_blobs_compare_and_put(null_mut(), blobs, key, 5, null(), 0, value, 8);
        assert_eq!(none, FULGURITE_DIFFERENT, "NULL expects no value at all");
        assert_eq!(fulgurite_blobs_remove(null_mut(), blobs, key, 5), FULGURITE_OK);
        assert_eq!(fulgurite_blobs_remove(null_mut(), blobs, key, 5), FULGURITE_NOT_FOUND);
        // Bad arguments change nothing.
        assert_eq!(fulgurite_blobs_put(null_mut(), blobs, null(), 5, value, 8), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_blobs_put(null_mut(), blobs, key, usize::MAX, value, 8), FULGURITE_OUT_OF_RANGE);
        assert_eq!(fulgurite_blobs_put(null_mut(), null_mut(), key, 5, value, 8), FULGURITE_INVALID_ARGUMENT);
        let skewed = blobs.cast::<u8>().add(1).cast();
        assert_eq!(fulgurite_blobs_put(null_mut(), skewed, key, 5, value, 8), FULGURITE_INVALID_ARGUMENT);
        assert!(last().contains("aligned"), "{}", last());
        let long = vec![0u8; (64 << 10) + 1];
        let put = fulgurite_blobs_put(null_mut(), blobs, long.as_ptr().cast(), long.len(), value, 8);
        assert_eq!(put, FULGURITE_TOO_LONG);
        let large = vec![1u8; 8 << 20];
        let put = fulgurite_blobs_put(null_mut(), blobs, key, 5, large.as_ptr().cast(), large.len());
        assert_eq!(put, FULGURITE_NO_SPACE, "{}", last());
        assert_eq!(fulgurite_blobs_length(null_mut(), blobs, key, 5, &mut length), FULGURITE_NOT_FOUND);
        fulgurite_blobs_free(blobs);
        assert_eq!(fulgurite_close(pool), FULGURITE_OK);
    }
}

/// Notes keys, until there are three.
unsafe extern "C" fn note(
    user: *mut c_void,
    key: *const c_void,
    key_length: usize,
    _: *const c_void,
    value_length: usize,
) -> c_int {
    // SAFETY: `user` is the list of the test, which waits. The key has this length.
    let (seen, key) = unsafe {
        (&mut *user.cast::<Vec<(Vec<u8>, usize)>>(), std::slice::from_raw_parts(key.cast::<u8>(), key_length))
    };
    seen.push((key.to_vec(), value_length));
    c_int::from(seen.len() < 3)
}

unsafe extern "C" fn count(user: *mut c_void, key: u64, length: usize) {
    // SAFETY: `user` is the sum of the test, which waits.
    unsafe { *user.cast::<u64>() += key * length as u64 };
}

#[test]
fn visitors_see_keys() {
    let pool = open(None);
    let (mut blobs, mut numbers) = (null_mut(), null_mut());
    // SAFETY: handles, keys and buffers of this function; null where an error is expected.
    unsafe {
        assert_eq!(fulgurite_blobs_open(pool, null(), 100, 4 << 20, &mut blobs), FULGURITE_OK);
        for key in [b"d", b"a", b"c", b"b", b"e"] {
            let put = fulgurite_blobs_put(null_mut(), blobs, key.as_ptr().cast(), 1, b"12345".as_ptr().cast(), 5);
            assert_eq!(put, FULGURITE_OK);
        }
        let (mut seen, mut shown) = (Vec::<(Vec<u8>, usize)>::new(), 0);
        let user = (&raw mut seen).cast::<c_void>();
        let scan = fulgurite_blobs_scan(null_mut(), blobs, b"b".as_ptr().cast(), 1, 9, Some(note), user, &mut shown);
        assert_eq!((scan, shown), (FULGURITE_OK, 3), "{}", last());
        let expected = [b"b", b"c", b"d"].map(|key| (key.to_vec(), 5));
        assert_eq!(seen, expected);
        let scan = fulgurite_blobs_scan(null_mut(), blobs, null(), 0, 9, None, user, &mut shown);
        assert_eq!(scan, FULGURITE_INVALID_ARGUMENT);
        fulgurite_blobs_free(blobs);

        assert_eq!(fulgurite_u64_blobs_open(pool, null(), 100, 1 << 20, &mut numbers), FULGURITE_OK, "{}", last());
        for key in 0..5 {
            let put = fulgurite_u64_blobs_put(null_mut(), numbers, key, b"12345".as_ptr().cast(), 2);
            assert_eq!(put, FULGURITE_OK);
        }
        let mut sum = 0u64;
        let user = (&raw mut sum).cast::<c_void>();
        assert_eq!(fulgurite_u64_blobs_keys(null_mut(), numbers, Some(count), user), FULGURITE_OK);
        assert_eq!(sum, 2 * (1 + 2 + 3 + 4));
        fulgurite_u64_blobs_free(numbers);
        assert_eq!(fulgurite_close(pool), FULGURITE_OK);
    }
}

/// What the jobs of a test use.
struct Shared {
    pool: *mut fulgurite_pool,
    other: *mut fulgurite_pool,
    root: *mut fulgurite_root,
    region: *mut fulgurite_region,
    foreign: *mut fulgurite_region,
}

/// Adds 1 to the root, in a write section, and tries what a job must not do.
unsafe extern "C" fn add(context: *mut fulgurite_context, user: *mut c_void) -> c_int {
    // SAFETY: `user` is the test's, which waits; its handles are open.
    unsafe {
        let shared = &mut *user.cast::<Shared>();
        let mut value = 0;
        assert_eq!(fulgurite_section_begin(context), FULGURITE_OK);
        assert_eq!(fulgurite_root_load(context, shared.root, &mut value), FULGURITE_OK);
        assert_eq!(fulgurite_root_store(context, shared.root, value + 1), FULGURITE_OK);
        let bytes = value.to_le_bytes();
        let written = fulgurite_region_write_at(context, shared.region, 4092, bytes.as_ptr().cast(), 8);
        assert_eq!(written, FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_section_end(context), FULGURITE_OK);
        assert_eq!(fulgurite_section_end(context), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_yield(context), FULGURITE_OK);
        let mut copied = [0u8; 8];
        let to = copied.as_mut_ptr().cast();
        assert_eq!(fulgurite_copy(context, to, bytes.as_ptr().cast(), 8), FULGURITE_OK);
        assert_eq!(copied, bytes);
        assert_eq!(fulgurite_copy(context, to, null(), 8), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_copy(context, null_mut(), to, 8), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_copy(null_mut(), to, to, 0), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_copy(context, to, to, usize::MAX), FULGURITE_OUT_OF_RANGE);
        assert_eq!(fulgurite_copy(context, null_mut(), null(), 0), FULGURITE_OK);
        // It would wait for itself.
        assert_eq!(fulgurite_sync(shared.pool, null_mut()), FULGURITE_IN_A_JOB);
        assert_eq!(fulgurite_root_load(null_mut(), shared.root, &mut value), FULGURITE_IN_A_JOB);
        assert!(last().contains("context"), "{}", last());
        assert_eq!(fulgurite_run(shared.other, Some(add), user, null_mut()), FULGURITE_IN_A_JOB);
        assert_eq!(fulgurite_close(shared.pool), FULGURITE_IN_A_JOB);
        // And this is not its own.
        let mut byte = 0u8;
        let read = fulgurite_region_read_at(context, shared.foreign, 0, (&raw mut byte).cast(), 1);
        assert_eq!(read, FULGURITE_INVALID_ARGUMENT);
        let its = context as usize;
        // The job waits for this thread.
        let elsewhere = std::thread::spawn(move || fulgurite_yield(its as *mut fulgurite_context));
        assert_eq!(elsewhere.join().unwrap(), FULGURITE_INVALID_ARGUMENT);
        // A section is left open, and ends with the job.
        assert_eq!(fulgurite_section_begin(context), FULGURITE_OK);
        value as c_int
    }
}

#[test]
fn jobs_run_on_fibers() {
    let directory = tempfile::tempdir().unwrap();
    let (pool, other) = (open(Some(&directory.path().join("pool"))), open(None));
    let mut shared = Shared { pool, other, root: null_mut(), region: null_mut(), foreign: null_mut() };
    let user = (&raw mut shared).cast::<c_void>();
    let mut result = -1;
    // SAFETY: handles of this function; null where an error is expected.
    unsafe {
        assert_eq!(fulgurite_root_open(pool, c"sum".as_ptr(), 5, &mut shared.root), FULGURITE_OK, "{}", last());
        let opened = fulgurite_region_open(pool, c"bytes".as_ptr(), 5000, &mut shared.region);
        assert_eq!(opened, FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_region_open(other, null(), 100, &mut shared.foreign), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_run(pool, Some(add), user, &mut result), FULGURITE_OK, "{}", last());
        assert_eq!(result, 5);
        let mut job = null_mut();
        assert_eq!(fulgurite_submit(pool, Some(add), user, 10_000, &mut job), FULGURITE_OK);
        assert_eq!(fulgurite_job_wait(job, &mut result), FULGURITE_OK, "{}", last());
        assert_eq!(result, 6);
        let mut value = 0;
        assert_eq!(fulgurite_root_load(null_mut(), shared.root, &mut value), FULGURITE_OK);
        assert_eq!(value, 7);
        // The sections are closed: a sync does not wait for them.
        assert_eq!(fulgurite_sync(pool, &mut value), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_submit(pool, None, user, 0, &mut job), FULGURITE_INVALID_ARGUMENT);
        assert!(job.is_null());
        assert_eq!(fulgurite_job_wait(null_mut(), null_mut()), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_submit(pool, Some(add), user, 0, &mut job), FULGURITE_OK);
        let mut ended = false;
        while !ended {
            assert_eq!(fulgurite_job_has_ended(job, &mut ended), FULGURITE_OK);
        }
        assert_eq!(fulgurite_job_cancel(job), FULGURITE_OK);
        fulgurite_job_free(job);

        fulgurite_root_free(shared.root);
        fulgurite_region_free(shared.region);
        fulgurite_region_free(shared.foreign);
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_close(other), FULGURITE_OK);
    }
}

unsafe extern "C" fn names(user: *mut c_void, name: *const c_char, type_name: *const c_char, bytes: u64) {
    // SAFETY: `user` is the list of the test, which waits. The strings last as long as the call.
    unsafe {
        let seen = &mut *user.cast::<Vec<String>>();
        let text = |at| CStr::from_ptr(at).to_str().unwrap();
        assert!(bytes > 0);
        seen.push(format!("{}: {}", text(name), text(type_name)));
    }
}

#[test]
fn what_is_rolled_back_or_removed_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let pool = open(Some(&path));
    let (mut region, mut heap, mut late) = (null_mut(), null_mut(), null_mut());
    let (mut token, mut at) = (0, 0);
    let mut word = 0u64;
    let word_at = (&raw mut word).cast::<c_void>();
    // SAFETY: handles and buffers of this function; null where an error is expected.
    unsafe {
        assert_eq!(fulgurite_region_open(pool, c"region".as_ptr(), 100_000, &mut region), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_region_bytes(region), 100_000);
        assert_eq!(fulgurite_region_read_at(null_mut(), region, 99_992, word_at, 8), FULGURITE_OK);
        assert_eq!(word, 0, "a new one reads as zeros");
        assert_eq!(fulgurite_region_read_at(null_mut(), region, 99_993, word_at, 8), FULGURITE_OUT_OF_RANGE);
        assert_eq!(fulgurite_region_read_at(null_mut(), region, u64::MAX, word_at, 8), FULGURITE_OUT_OF_RANGE);
        assert_eq!(fulgurite_region_read_at(null_mut(), region, 0, null_mut(), 8), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_region_write_at(null_mut(), region, 5, b"written!".as_ptr().cast(), 8), FULGURITE_OK);
        assert_eq!(fulgurite_sync(pool, &mut token), FULGURITE_OK, "{}", last());

        assert_eq!(fulgurite_heap_open(pool, c"heap".as_ptr(), 1 << 20, &mut heap), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_heap_allocate(null_mut(), heap, 5000, &mut at), FULGURITE_OK, "{}", last());
        let text = b"in a heap".as_ptr().cast::<c_void>();
        assert_eq!(fulgurite_heap_write(null_mut(), heap, at + 4990, text, 9), FULGURITE_OK);
        let mut read = [0u8; 9];
        let read_at = read.as_mut_ptr().cast::<c_void>();
        assert_eq!(fulgurite_heap_read(null_mut(), heap, at + 4990, read_at, 9), FULGURITE_OK);
        assert_eq!(&read, b"in a heap");
        for outside in [0, at - (1 << 20), at + (1 << 20), u64::MAX] {
            assert_eq!(fulgurite_heap_read(null_mut(), heap, outside, read_at, 9), FULGURITE_OUT_OF_RANGE);
        }
        assert_eq!(fulgurite_heap_release(null_mut(), heap, at + 8, 5000), FULGURITE_CORRUPT);
        assert_eq!(fulgurite_heap_release(null_mut(), heap, at, 5000), FULGURITE_OK);
        // Another type under a name is refused.
        assert_eq!(fulgurite_region_open(pool, c"heap".as_ptr(), 1, &mut late), FULGURITE_WRONG_TYPE);
        assert!(late.is_null() && last().contains("heap"), "{}", last());

        // Back to before the heap: it is gone, and the region has what it had.
        assert_eq!(fulgurite_region_write_at(null_mut(), region, 5, b"mistaken".as_ptr().cast(), 8), FULGURITE_OK);
        assert_eq!(fulgurite_roll_back(pool, token + 100), FULGURITE_NOT_FOUND);
        assert_eq!(fulgurite_roll_back(pool, token), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_heap_read(null_mut(), heap, at, read_at, 1), FULGURITE_POISONED);
        assert_eq!(fulgurite_heap_allocate(null_mut(), heap, 8, &mut at), FULGURITE_POISONED);
        assert_eq!(fulgurite_region_read_at(null_mut(), region, 5, word_at, 8), FULGURITE_OK, "{}", last());
        assert_eq!(&word.to_le_bytes(), b"written!");

        let (mut tokens, mut count) = ([0; 2], 0);
        assert_eq!(fulgurite_sync(pool, null_mut()), FULGURITE_OK);
        let told = fulgurite_tokens(pool, null_mut(), 0, &mut count);
        assert_eq!((told, count), (FULGURITE_BUFFER_TOO_SMALL, 2));
        assert_eq!(fulgurite_tokens(pool, tokens.as_mut_ptr(), 2, &mut count), FULGURITE_OK);
        assert!(tokens[0] == token && tokens[1] > token, "{tokens:?}");
        assert_eq!(fulgurite_pin_token(pool, tokens[1], true), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_roll_back(pool, token), FULGURITE_BUSY);
        assert_eq!(fulgurite_pin_token(pool, tokens[1], false), FULGURITE_OK);

        let mut seen = Vec::<String>::new();
        let user = (&raw mut seen).cast::<c_void>();
        assert_eq!(fulgurite_names(pool, Some(names), user), FULGURITE_OK);
        assert_eq!(seen, ["region: fulgurite.region/1"]);
        assert_eq!(fulgurite_remove(pool, c"none".as_ptr()), FULGURITE_NOT_FOUND);
        assert_eq!(fulgurite_remove(pool, c"region".as_ptr()), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_region_read_at(null_mut(), region, 5, word_at, 8), FULGURITE_POISONED);
        fulgurite_region_free(region);
        assert_eq!(fulgurite_region_open(pool, c"region".as_ptr(), 64, &mut region), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_region_read_at(null_mut(), region, 5, word_at, 8), FULGURITE_OK);
        assert_eq!((word, fulgurite_region_bytes(region)), (0, 64), "a new one reads as zeros");

        // Handles outlive the pool, and say so.
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_region_read_at(null_mut(), region, 5, word_at, 8), FULGURITE_CLOSED);
        fulgurite_region_free(region);
        fulgurite_heap_free(heap);
        let pool = open(Some(&path));
        assert_eq!(fulgurite_region_open(pool, c"region".as_ptr(), 999, &mut region), FULGURITE_OK);
        assert_eq!(fulgurite_region_bytes(region), 64, "it keeps its size");
        fulgurite_region_free(region);
        assert_eq!(fulgurite_abandon(pool), FULGURITE_OK);
    }
}

#[test]
fn pages_have_permissions() {
    const ALL: u32 = FULGURITE_MAY_READ | FULGURITE_MAY_WRITE;
    const PAGE: u64 = 65536;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let pool = open(Some(&path));
    let (mut region, mut flat, mut token) = (null_mut(), null_mut(), 0);
    // SAFETY: handles and buffers of this function; null where an error is expected.
    unsafe {
        let word = |region, page: u64| {
            let mut word = 0u64;
            (fulgurite_region_read_at(null_mut(), region, page * PAGE, (&raw mut word).cast(), 8), word)
        };
        let write = |region, page: u64, word: u64| {
            fulgurite_region_write_at(null_mut(), region, page * PAGE, (&raw const word).cast(), 8)
        };
        let set = |region, first: u64, bytes, permissions| {
            fulgurite_region_set_permissions(region, first, bytes, permissions)
        };
        let of = |region, page: u64| {
            let mut permissions = 77;
            assert_eq!(fulgurite_region_permissions(region, page * PAGE, &mut permissions), FULGURITE_OK, "{}", last());
            permissions
        };
        assert_eq!(
            fulgurite_region_open(pool, c"region".as_ptr(), 3 * PAGE + 9, &mut region),
            FULGURITE_OK,
            "{}",
            last()
        );
        for page in 0..4 {
            assert_eq!(of(region, page), ALL);
            assert_eq!(write(region, page, 10 + page), FULGURITE_OK, "{}", last());
        }
        assert_eq!(fulgurite_sync(pool, &mut token), FULGURITE_OK);

        for (first, bytes) in [(0, 0), (0, 4096), (4096, PAGE), (PAGE, PAGE + 1), (3 * PAGE, 8)] {
            assert_eq!(set(region, first, bytes, ALL), FULGURITE_INVALID_ARGUMENT, "{first}, {bytes}: {}", last());
        }
        for (first, bytes) in [(0, 4 * PAGE), (4 * PAGE, PAGE), (u64::MAX, 2)] {
            assert_eq!(set(region, first, bytes, ALL), FULGURITE_OUT_OF_RANGE, "{first}, {bytes}");
        }
        assert_eq!(set(region, 0, PAGE, 4), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(set(null_mut(), 0, PAGE, ALL), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_region_permissions(region, 4 * PAGE, null_mut()), FULGURITE_INVALID_ARGUMENT);

        assert_eq!(set(region, PAGE, PAGE, FULGURITE_MAY_READ), FULGURITE_OK, "{}", last());
        assert_eq!((write(region, 1, 99), word(region, 1)), (FULGURITE_NOT_PERMITTED, (FULGURITE_OK, 11)));
        assert_eq!(set(region, PAGE, PAGE, 0), FULGURITE_OK, "{}", last());
        assert_eq!(word(region, 1).0, FULGURITE_NOT_PERMITTED);
        assert_eq!((of(region, 0), of(region, 1), of(region, 2)), (ALL, 0, ALL));
        // As the data, so the permissions.
        assert_eq!(fulgurite_roll_back(pool, token), FULGURITE_OK, "{}", last());
        assert_eq!((of(region, 1), word(region, 1)), (ALL, (FULGURITE_OK, 11)));

        // Over a restart as well.
        assert_eq!(set(region, 2 * PAGE, PAGE + 9, FULGURITE_MAY_READ), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
        assert_eq!(set(region, 0, PAGE, ALL), FULGURITE_CLOSED);
        fulgurite_region_free(region);
        let pool = open(Some(&path));
        assert_eq!(fulgurite_region_open(pool, c"region".as_ptr(), 1, &mut region), FULGURITE_OK, "{}", last());
        assert_eq!([0, 1, 2, 3].map(|page| of(region, page)), [ALL, ALL, FULGURITE_MAY_READ, FULGURITE_MAY_READ]);
        assert_eq!((word(region, 3), write(region, 3, 1)), ((FULGURITE_OK, 13), FULGURITE_NOT_PERMITTED));
        assert_eq!(set(region, 2 * PAGE, PAGE + 9, ALL), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_remove(pool, c"region".as_ptr()), FULGURITE_OK, "{}", last());
        assert_eq!(set(region, 0, PAGE, ALL), FULGURITE_POISONED);
        fulgurite_region_free(region);
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());

        let memory = open(None);
        assert_eq!(fulgurite_region_open(memory, null(), PAGE, &mut flat), FULGURITE_OK, "{}", last());
        assert_eq!(set(flat, 0, PAGE, ALL), FULGURITE_NO_POOL, "{}", last());
        fulgurite_region_free(flat);
        assert_eq!(fulgurite_close(memory), FULGURITE_OK, "{}", last());
    }
}

#[test]
fn statistics_fit_older_programs() {
    let pool = open(None);
    let mut numbers = fulgurite_statistics { misses_joined: 77, miss_p99_ns: 77, ..Default::default() };
    let mut length = 0;
    // SAFETY: handles and buffers of this function; null where an error is expected.
    unsafe {
        assert_eq!(fulgurite_get_statistics(pool, &mut numbers, 16), FULGURITE_OK);
        assert_eq!((numbers.dram_bytes, numbers.misses_joined), (16 << 20, 77), "only what it knows");
        assert!(numbers.frames > 0 && numbers.frames < (16 << 20) / 4096);
        let whole = size_of::<fulgurite_statistics>();
        assert_eq!(fulgurite_get_statistics(pool, &mut numbers, whole), FULGURITE_OK);
        assert_eq!(numbers.misses_joined, 0);
        assert_eq!(fulgurite_get_statistics(pool, null_mut(), whole), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_prometheus(pool, null_mut(), 0, &mut length), FULGURITE_BUFFER_TOO_SMALL);
        let mut text = vec![1 as c_char; length + 1];
        let (at, len) = (text.as_mut_ptr(), text.len());
        assert_eq!(fulgurite_prometheus(pool, at, len - 1, &mut length), FULGURITE_BUFFER_TOO_SMALL);
        let told = fulgurite_prometheus(pool, at, len, &mut length);
        // Numbers may have grown by a digit.
        if told == FULGURITE_OK {
            assert!(CStr::from_ptr(at).to_str().unwrap().contains("fulgurite_misses_total{worker=\"0\"}"));
        }
        assert_eq!(fulgurite_set_dram_bytes(pool, 1), FULGURITE_BAD_OPTION);
        assert_eq!(fulgurite_set_dram_bytes(pool, 12 << 20), FULGURITE_OK, "{}", last());
        assert_eq!(fulgurite_close(pool), FULGURITE_OK);
    }
}

#[test]
fn blocks_need_no_right_in_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = string(directory.path().join("flash").to_str().unwrap());
    let (options, mut allocator) = (fulgurite_options_new(), null_mut());
    // SAFETY: handles and blocks of this function; null where an error is expected.
    unsafe {
        assert_eq!(fulgurite_allocator_start_in_line(null(), &mut allocator), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_options_size(options, c"64M".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_pool(options, path.as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_allocator_start_in_line(options, &mut allocator), FULGURITE_BAD_OPTION);
        assert_eq!(fulgurite_options_flat(options, path.as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_dram(options, c"32M".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_allocator_start_in_line(options, &mut allocator), FULGURITE_OK, "{}", last());
        fulgurite_options_free(options);
        // More than DRAM holds.
        let words = 48usize << 17;
        let block = fulgurite_malloc(allocator, 8 * words).cast::<u64>();
        assert!(!block.is_null(), "{}", last());
        for at in (0..words).step_by(512) {
            block.add(at).write(at as u64);
        }
        for at in (0..words).step_by(512) {
            assert_eq!(block.add(at).read(), at as u64);
        }
        let mut met = fulgurite_allocator_statistics::default();
        let size = size_of::<fulgurite_allocator_statistics>();
        assert_eq!(fulgurite_allocator_get_statistics(allocator, &mut met, size), FULGURITE_OK);
        assert!(met.reads > 0 && met.errors == 0, "{met:?}");
        assert_eq!(fulgurite_free(allocator, block.cast()), FULGURITE_OK);
    }
}

#[test]
fn blocks_are_allocated_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    let options = fulgurite_options_new();
    let mut allocator = null_mut();
    // SAFETY: handles and blocks of this function; null and others where an error is expected.
    unsafe {
        let at = string(path.to_str().unwrap());
        assert_eq!(fulgurite_options_size(options, c"16M".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_pool(options, at.as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_allocator_start(options, &mut allocator), FULGURITE_BAD_OPTION);
        assert!(allocator.is_null() && last().contains("fulgurite_options_flat()"), "{}", last());
        assert_eq!(fulgurite_options_flat(options, at.as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_dram(options, c"1M".as_ptr()), FULGURITE_OK);
        let too_small = fulgurite_allocator_start(options, &mut allocator);
        if too_small == FULGURITE_NOT_PERMITTED {
            println!("SKIPPED: {}", last());
            return;
        }
        assert_eq!(too_small, FULGURITE_BAD_OPTION, "{}", last());
        assert!(!path.exists(), "the file is gone");
        assert_eq!(fulgurite_options_dram(options, c"256M".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_allocator_start(options, &mut allocator), FULGURITE_OK, "{}", last());
        fulgurite_options_free(options);

        let block = fulgurite_malloc(allocator, 100);
        assert!(!block.is_null() && fulgurite_owns(allocator, block), "{}", last());
        block.cast::<[u8; 100]>().write([7; 100]);
        let mut bytes = 0;
        assert_eq!((fulgurite_usable_size(allocator, block, &mut bytes), bytes), (FULGURITE_OK, 112));
        let block = fulgurite_realloc(allocator, block, 100_000);
        assert_eq!(block.cast::<[u8; 100]>().read(), [7; 100]);
        assert!(fulgurite_realloc(allocator, block, 1 << 30).is_null());
        assert!(last().contains("no room"), "{}", last());
        let zeros = fulgurite_calloc(allocator, 10, 7);
        assert_eq!(zeros.cast::<[u8; 70]>().read(), [0; 70]);
        assert!(fulgurite_calloc(allocator, usize::MAX, 2).is_null());
        assert!(fulgurite_malloc(allocator, usize::MAX).is_null());
        assert!(fulgurite_aligned_alloc(allocator, 3, 8).is_null());
        assert!(last().contains("power of two"), "{}", last());
        let aligned = fulgurite_aligned_alloc(allocator, 8192, 8);
        assert!(!aligned.is_null() && (aligned as usize).is_multiple_of(8192));
        assert!(fulgurite_malloc(null_mut(), 8).is_null() && !fulgurite_owns(null(), block));
        for block in [block, zeros, aligned] {
            assert_eq!(fulgurite_free(allocator, block.byte_add(1)), FULGURITE_INVALID_ARGUMENT);
            assert_eq!(fulgurite_free(allocator, block), FULGURITE_OK);
            assert_eq!(fulgurite_free(allocator, block), FULGURITE_INVALID_ARGUMENT);
        }
        assert_eq!(fulgurite_free(allocator, null_mut()), FULGURITE_OK);
        let (pages, set) = (fulgurite_aligned_alloc(allocator, 4096, 40_960), fulgurite_allocator_set_permissions);
        assert_eq!(set(allocator, pages, 8192, FULGURITE_MAY_READ), FULGURITE_OK, "{}", last());
        assert_eq!(set(allocator, pages, 8192, 0), FULGURITE_OK);
        let all = FULGURITE_MAY_READ | FULGURITE_MAY_WRITE;
        assert_eq!(set(allocator, pages, 8192, all), FULGURITE_OK);
        pages.cast::<u64>().write(1);
        assert_eq!(set(allocator, pages, 8192, all | FULGURITE_PERMANENT), FULGURITE_NO_POOL);
        assert!(last().contains("cannot be permanent"), "{}", last());
        for (at, bytes, permissions) in
            [(pages, 8192, 8), (pages, 8192, FULGURITE_MAY_WRITE), (pages, 100, all), (null_mut(), 8192, all)]
        {
            assert_eq!(set(allocator, at, bytes, permissions), FULGURITE_INVALID_ARGUMENT);
        }
        assert_eq!(fulgurite_free(allocator, pages), FULGURITE_OK);
        let mut met = fulgurite_allocator_statistics::default();
        let size = size_of::<fulgurite_allocator_statistics>();
        assert_eq!(fulgurite_allocator_get_statistics(allocator, &mut met, size), FULGURITE_OK);
        assert!(met.used_bytes == 0 && met.faults > 0 && met.errors == 0, "{met:?}");
        assert_eq!(met.faults_of_workers, 0, "no job has touched it");

        // A job that touches pages waits with its worker, and is counted.
        let (pool, mut result) = (open(None), 0);
        let block = fulgurite_malloc(allocator, TOUCHED * 4096);
        assert_eq!(fulgurite_run(pool, Some(touch), block, &mut result), FULGURITE_OK, "{}", last());
        let faults = met.faults;
        assert_eq!(fulgurite_allocator_get_statistics(allocator, &mut met, size), FULGURITE_OK);
        assert!(result == 7 && met.faults_of_workers >= TOUCHED as u64, "{result}, {met:?}");
        assert!(met.faults_of_workers <= met.faults - faults, "{met:?}");
        assert_eq!(fulgurite_free(allocator, block), FULGURITE_OK);
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
    }
}

/// Pages that [`touch`] reaches.
const TOUCHED: usize = 50;

/// Objects of [`copy_objects`], 4000 bytes each: more than their DRAM.
const COPIED: u32 = 4000;

unsafe extern "C" fn copy_objects(context: *mut fulgurite_context, array: *mut c_void) -> c_int {
    let (mut object, mut right) = ([0u32; 1000], 0);
    for index in 0..COPIED {
        // SAFETY: the array has `COPIED` objects, and is this job's.
        unsafe {
            let at = array.byte_add(index as usize * FULGURITE_OBJECT_STRIDE);
            let into = object.as_mut_ptr().cast::<c_void>();
            assert_eq!(fulgurite_copy(context, into, at, 4000), FULGURITE_OK, "{}", last());
            right += c_int::from(object == [index; 1000]);
            object = [index + 1; 1000];
            assert_eq!(fulgurite_copy(context, at, into, 4000), FULGURITE_OK, "{}", last());
        }
    }
    right
}

#[test]
fn copies_of_objects_let_other_jobs_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = string(directory.path().join("flash").to_str().unwrap());
    let (options, mut objects) = (fulgurite_options_new(), null_mut());
    // SAFETY: handles, objects and strings of this function.
    unsafe {
        assert_eq!(fulgurite_options_flat(options, path.as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_size(options, c"32M".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_dram_bytes(options, 8 << 20), FULGURITE_OK);
        let started = fulgurite_objects_start(options, 8192, FULGURITE_OBJECTS_IN_LINE, &mut objects);
        fulgurite_options_free(options);
        if started == FULGURITE_NOT_PERMITTED {
            return println!("SKIPPED: {}", last());
        }
        assert_eq!(started, FULGURITE_OK, "{}", last());
        let array = fulgurite_object_array_alloc(objects, COPIED, 4000);
        assert!(!array.is_null(), "{}", last());
        for index in 0..COPIED {
            array.byte_add(index as usize * FULGURITE_OBJECT_STRIDE).cast::<[u32; 1000]>().write([index; 1000]);
        }
        let (pool, mut result) = (open(None), 0);
        assert_eq!(fulgurite_run(pool, Some(copy_objects), array, &mut result), FULGURITE_OK, "{}", last());
        assert_eq!(result, COPIED as c_int);
        let last_one = array.byte_add((COPIED as usize - 1) * FULGURITE_OBJECT_STRIDE);
        assert_eq!(last_one.cast::<[u32; 1000]>().read(), [COPIED; 1000]);
        let (mut met, size) = (fulgurite_objects_statistics::default(), size_of::<fulgurite_objects_statistics>());
        assert_eq!(fulgurite_objects_get_statistics(objects, &mut met, size), FULGURITE_OK);
        assert!(met.faults_switched > u64::from(COPIED) / 4 && met.errors == 0, "{met:?}");
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
    }
}

/// Starts objects over a pool in a file. NULL where the machine gives no userfaultfd, which is
/// said.
fn objects(path: &Path, flags: u32) -> *mut fulgurite_objects {
    let options = fulgurite_options_new();
    let mut objects = null_mut();
    let path = string(path.to_str().unwrap());
    // SAFETY: handles and strings of this function.
    unsafe {
        assert_eq!(fulgurite_options_pool(options, path.as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_size(options, c"24M".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_dram_bytes(options, 16 << 20), FULGURITE_OK);
        let started = fulgurite_objects_start(options, 4096, flags, &mut objects);
        fulgurite_options_free(options);
        if started == FULGURITE_NOT_PERMITTED {
            println!("SKIPPED: {}", last());
            assert!(objects.is_null());
            return objects;
        }
        assert_eq!(started, FULGURITE_OK, "{}", last());
    }
    objects
}

#[test]
fn objects_are_made_permanent_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let objects = objects(&path, FULGURITE_OBJECTS_SYNC_ONLY_WHEN_TOLD);
    if objects.is_null() {
        return;
    }
    let name = c"array".as_ptr();
    let (mut found, mut pool, mut token, mut reference) = (null_mut(), null_mut(), 0, 0);
    // SAFETY: handles, objects and strings of this function.
    unsafe {
        assert_eq!(fulgurite_object_array_named(objects, name, 10, 64, &mut found), FULGURITE_NOT_FOUND);
        assert!(found.is_null());
        let array = fulgurite_object_array_alloc(objects, 10, 64);
        assert!(!array.is_null(), "{}", last());
        array.cast::<u64>().write(7);
        let (object, set) = (fulgurite_object_alloc(objects, 64), fulgurite_object_array_set_permanent);
        assert_eq!(set(objects, object, name), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(set(objects, null_mut(), name), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(set(objects, array, null()), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(set(objects, array, c"".as_ptr()), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(set(null_mut(), array, name), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(set(objects, array, name), FULGURITE_OK, "{}", last());
        assert_eq!(set(objects, array, c"other".as_ptr()), FULGURITE_INVALID_ARGUMENT);
        let other = fulgurite_object_array_alloc(objects, 10, 64);
        assert_eq!(set(objects, other, name), FULGURITE_WRONG_TYPE);

        assert_eq!(fulgurite_object_array_named(objects, name, 10, 64, &mut found), FULGURITE_OK);
        assert_eq!(found, array);
        for (count, bytes) in [(9, 64), (10, 65)] {
            let named = fulgurite_object_array_named(objects, name, count, bytes, &mut found);
            assert_eq!((named, found), (FULGURITE_WRONG_TYPE, null_mut()));
            assert!(last().contains("an array of 10 objects of 64 bytes"), "{}", last());
        }
        assert_eq!(fulgurite_object_pool_named(objects, name, 64, &mut pool), FULGURITE_WRONG_TYPE);
        assert_eq!(fulgurite_object_pool_named(objects, c"pool".as_ptr(), 5000, &mut pool), FULGURITE_INVALID_ARGUMENT);
        assert!(pool.is_null());
        assert_eq!(fulgurite_object_pool_named(objects, c"pool".as_ptr(), 16, &mut pool), FULGURITE_OK);
        assert!(fulgurite_object_pool_root(pool).is_null() && last().contains("no root"));
        let node = fulgurite_object_pool_alloc(pool);
        assert_eq!(fulgurite_object_pool_set_root(pool, object), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_object_pool_set_root(pool, node), FULGURITE_OK);
        assert_eq!(fulgurite_object_pool_root(pool), node);
        assert_eq!(fulgurite_object_reference(objects, node, &mut reference), FULGURITE_OK);
        assert_eq!(fulgurite_object_at(objects, reference), node);
        assert!(fulgurite_object_at(objects, u32::MAX).is_null());
        assert_eq!(fulgurite_object_reference(objects, node.byte_add(8), &mut reference), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_objects_sync(objects, &mut token), FULGURITE_OK, "{}", last());
        assert!(token > 0);
        assert_eq!(fulgurite_objects_sync(objects, null_mut()), FULGURITE_OK);
        assert_eq!(fulgurite_objects_sync(null_mut(), &mut token), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_objects_set_temporary(objects, c"pool".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_objects_set_temporary(objects, c"pool".as_ptr()), FULGURITE_NOT_FOUND);
        assert_eq!(fulgurite_object_pool_set_root(pool, node), FULGURITE_INVALID_ARGUMENT);
        fulgurite_object_pool_free(pool);
        fulgurite_object_pool_free(null_mut());
        let mut met = fulgurite_objects_statistics::default();
        let size = size_of::<fulgurite_objects_statistics>();
        assert_eq!(fulgurite_objects_get_statistics(objects, &mut met, size), FULGURITE_OK);
        assert_eq!((met.objects, met.own_syncs), (22, 0));

        // What objects cannot have is refused.
        let refused: [fn(*mut fulgurite_options) -> fulgurite_status; 5] = [
            |options| fulgurite_options_durability_sync(options),
            |options| fulgurite_options_durability_lazy(options, 10, 1 << 20),
            |options| fulgurite_options_durability_cache(options),
            |options| fulgurite_options_on_device(options),
            |options| {
                assert_eq!(fulgurite_options_memory(options), FULGURITE_OK);
                fulgurite_options_keep_tokens(options, 3)
            },
        ];
        for set in refused {
            let (options, mut others) = (fulgurite_options_new(), null_mut());
            let new = directory.path().join("new");
            assert_eq!(fulgurite_options_pool(options, string(new.to_str().unwrap()).as_ptr()), FULGURITE_OK);
            assert_eq!(fulgurite_options_size(options, c"24M".as_ptr()), FULGURITE_OK);
            assert_eq!(set(options), FULGURITE_OK);
            assert_eq!(fulgurite_objects_start(options, 4096, 0, &mut others), FULGURITE_BAD_OPTION, "{}", last());
            assert!(others.is_null() && !new.exists(), "{}", last());
            fulgurite_options_free(options);
        }

        // The pool of objects is in use, and a pool of other things is none of theirs.
        let options = fulgurite_options_new();
        let mut others = null_mut();
        assert_eq!(fulgurite_options_pool(options, string(path.to_str().unwrap()).as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_dram_bytes(options, 16 << 20), FULGURITE_OK);
        assert_eq!(fulgurite_objects_start(options, 4096, 8, &mut others), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_objects_start(options, 4096, 0, &mut others), FULGURITE_CANNOT_OPEN);
        let used = directory.path().join("used");
        assert_eq!(fulgurite_close(open(Some(&used))), FULGURITE_OK);
        assert_eq!(fulgurite_options_pool(options, string(used.to_str().unwrap()).as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_objects_start(options, 4096, 0, &mut others), FULGURITE_CANNOT_OPEN);
        assert!(others.is_null() && last().contains("holds other data"), "{}", last());
        fulgurite_options_free(options);
        // Nor has it become another kind of pool.
        assert_eq!(fulgurite_close(open(Some(&used))), FULGURITE_OK);
    }
}

unsafe extern "C" fn touch(_: *mut fulgurite_context, block: *mut c_void) -> c_int {
    for page in 0..TOUCHED {
        // SAFETY: the block has `TOUCHED` pages, and is this job's.
        unsafe { block.byte_add(page * 4096).cast::<u8>().write(7) };
    }
    // SAFETY: as above.
    unsafe { block.cast::<u8>().read().into() }
}

/// Lets others run until it must end, and returns why.
unsafe extern "C" fn wait_for_the_end(context: *mut fulgurite_context, _: *mut c_void) -> c_int {
    loop {
        // SAFETY: the context of this job.
        match unsafe { fulgurite_yield(context) } {
            FULGURITE_OK => {}
            status => return status as c_int,
        }
    }
}

/// Uses up any stack.
#[expect(unconditional_recursion, reason = "its stack ends")]
unsafe extern "C" fn overflow(context: *mut fulgurite_context, _: *mut c_void) -> c_int {
    let room = std::hint::black_box([context as usize; 64]);
    // SAFETY: as this call.
    let deeper = unsafe { overflow(room[63] as *mut fulgurite_context, null_mut()) };
    deeper + std::hint::black_box(room)[0] as c_int
}

#[test]
fn jobs_end_early_and_say_why() {
    let pool = open(None);
    let (mut job, mut result) = (null_mut(), -1);
    // SAFETY: handles of this function.
    unsafe {
        assert_eq!(fulgurite_submit(pool, Some(wait_for_the_end), null_mut(), 0, &mut job), FULGURITE_OK);
        let mut ended = true;
        assert_eq!((fulgurite_job_has_ended(job, &mut ended), ended), (FULGURITE_OK, false));
        assert_eq!(fulgurite_job_cancel(job), FULGURITE_OK);
        // It may not even have begun.
        let waited = fulgurite_job_wait(job, &mut result);
        assert!(waited == FULGURITE_CANCELLED || result == FULGURITE_CANCELLED as c_int, "{waited:?}, {result}");
        assert_eq!(fulgurite_submit(pool, Some(wait_for_the_end), null_mut(), 50, &mut job), FULGURITE_OK);
        let waited = fulgurite_job_wait(job, &mut result);
        let late = FULGURITE_DEADLINE_EXCEEDED;
        assert!(waited == late || result == late as c_int, "{waited:?}, {result}");

        assert_eq!(fulgurite_run(pool, Some(overflow), null_mut(), &mut result), FULGURITE_STACK_OVERFLOW);
        assert!(last().contains("larger stacks"), "{}", last());
        // The worker goes on.
        let mut blobs = null_mut();
        assert_eq!(fulgurite_u64_blobs_open(pool, null(), 10, 1 << 20, &mut blobs), FULGURITE_OK, "{}", last());
        fulgurite_u64_blobs_free(blobs);
        assert_eq!(fulgurite_close(pool), FULGURITE_OK);
    }
}
