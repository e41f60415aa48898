//! Goal: maps by the C interface have what was put last, from any thread and in the next run, and
//! bad input is an error that says what to do. Method: the functions are called as C calls them,
//! over a pool whose maps are larger than the DRAM for their records.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use fulgurite_capi::fulgurite_status::*;
use fulgurite_capi::*;

use crate::calls::{last, options, start, string};

/// A handle that threads share.
#[derive(Clone, Copy)]
struct Map(*mut fulgurite_map);
// SAFETY: any thread may use a handle.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

fn open(path: &Path) -> (*mut fulgurite_pool, Map) {
    let path = string(path);
    // SAFETY: handles and strings of this function.
    unsafe {
        let options = options(|options| fulgurite_options_pool(options, path.as_ptr()));
        assert_eq!(fulgurite_options_record_cache(options, c"2M".as_ptr()), FULGURITE_OK, "{}", last());
        let pool = start(options);
        let mut map = null_mut();
        assert_eq!(fulgurite_map_open(pool, c"map".as_ptr(), &raw mut map), FULGURITE_OK, "{}", last());
        (pool, Map(map))
    }
}

impl Map {
    fn put(self, key: &[u8], value: &[u8]) -> fulgurite_status {
        // SAFETY: the handle is open, and the bytes outlive the call.
        unsafe { fulgurite_map_put(self.0, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len()) }
    }
    fn get(self, key: &[u8], capacity: usize) -> (fulgurite_status, usize, Vec<u8>) {
        let (mut value, mut length) = (vec![0; capacity], usize::MAX);
        let into = value.as_mut_ptr().cast();
        // SAFETY: as in `put`.
        let status =
            unsafe { fulgurite_map_get(self.0, key.as_ptr().cast(), key.len(), into, capacity, &raw mut length) };
        value.truncate(length);
        (status, length, value)
    }
    fn remove(self, key: &[u8]) -> fulgurite_status {
        // SAFETY: as in `put`.
        unsafe { fulgurite_map_remove(self.0, key.as_ptr().cast(), key.len()) }
    }
}

fn value(key: u64) -> Vec<u8> {
    vec![key as u8; 500 + key as usize % 3000]
}

unsafe extern "C" fn in_a_job(_: *mut fulgurite_context, user: *mut c_void) -> c_int {
    // SAFETY: `user` is the handle of the test, which waits.
    let map = unsafe { *user.cast::<Map>() };
    map.put(b"key", b"value") as c_int
}

#[test]
fn a_map_has_what_was_put_last() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let keys = 2000_u64;
    let (pool, map) = open(&path);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for key in (thread..keys).step_by(4) {
                    assert_eq!(map.put(&key.to_le_bytes(), b"before"), FULGURITE_OK, "{}", last());
                    assert_eq!(map.put(&key.to_le_bytes(), &value(key)), FULGURITE_OK, "{}", last());
                }
            });
        }
    });
    assert_eq!(
        (map.remove(&7_u64.to_le_bytes()), map.remove(&7_u64.to_le_bytes())),
        (FULGURITE_OK, FULGURITE_NOT_FOUND)
    );
    // SAFETY: handles of this function.
    unsafe {
        fulgurite_map_free(map.0);
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
    }

    let (pool, map) = open(&path);
    for key in 0..keys {
        let (status, length, found) = map.get(&key.to_le_bytes(), 4096);
        match key {
            7 => assert_eq!(status, FULGURITE_NOT_FOUND),
            _ => assert_eq!((status, length, found), (FULGURITE_OK, value(key).len(), value(key)), "key {key}"),
        }
    }
    // A buffer that is too small has the beginning.
    assert_eq!(map.get(&0_u64.to_le_bytes(), 3), (FULGURITE_BUFFER_TOO_SMALL, 500, vec![0; 3]));
    assert_eq!(map.put(b"", b""), FULGURITE_OK);
    assert_eq!(map.get(b"", 0), (FULGURITE_OK, 0, vec![]));
    // SAFETY: handles and data of this function, and null where an error is expected.
    unsafe {
        let mut length = 0;
        let mut result = 0;
        let got = fulgurite_map_get(map.0, null(), 5, null_mut(), 0, &raw mut length);
        assert_eq!(got, FULGURITE_INVALID_ARGUMENT);
        assert_eq!(fulgurite_map_put(null_mut(), null(), 0, null(), 0), FULGURITE_INVALID_ARGUMENT);
        assert_eq!(map.put(&vec![0; (64 << 10) + 1], b""), FULGURITE_TOO_LONG, "{}", last());
        assert_eq!(map.put(b"long", &vec![0; 1 << 20]), FULGURITE_TOO_LONG, "{}", last());
        let user = (&raw const map).cast_mut().cast();
        assert_eq!(fulgurite_run(pool, Some(in_a_job), user, &raw mut result), FULGURITE_OK);
        assert_eq!(result, FULGURITE_IN_A_JOB as c_int);
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
        assert_eq!(map.put(b"key", b"value"), FULGURITE_CLOSED, "{}", last());
        fulgurite_map_free(map.0);
        fulgurite_map_free(null_mut());
    }
}

#[test]
fn a_pool_without_dram_for_records_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = string(directory.path().join("pool"));
    // SAFETY: handles and strings of this function.
    unsafe {
        let pool = start(options(|options| fulgurite_options_pool(options, path.as_ptr())));
        let mut map = null_mut();
        assert_eq!(fulgurite_map_open(pool, c"map".as_ptr(), &raw mut map), FULGURITE_BAD_OPTION, "{}", last());
        assert!(map.is_null());
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
    }
}
