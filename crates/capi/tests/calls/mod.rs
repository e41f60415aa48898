//! What tests do by the C interface: a pool with blobs, made, used and closed.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr::null_mut;

use fulgurite_capi::fulgurite_status::*;
use fulgurite_capi::*;

/// The message of the last failure.
pub fn last() -> String {
    // SAFETY: a string that lasts until the next failure.
    unsafe { CStr::from_ptr(fulgurite_last_message()) }.to_str().unwrap().to_owned()
}

pub fn string(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().to_str().unwrap()).unwrap()
}

/// Options of 24 MiB with 16 MiB of DRAM, over what `set_medium` chooses.
pub fn options(set_medium: impl FnOnce(*mut fulgurite_options) -> fulgurite_status) -> *mut fulgurite_options {
    let options = fulgurite_options_new();
    assert_eq!(set_medium(options), FULGURITE_OK, "{}", last());
    // SAFETY: handles and strings of this function.
    unsafe {
        assert_eq!(fulgurite_options_dram(options, c"16M".as_ptr()), FULGURITE_OK);
        assert_eq!(fulgurite_options_size(options, c"24M".as_ptr()), FULGURITE_OK);
    }
    options
}

pub fn start(options: *mut fulgurite_options) -> *mut fulgurite_pool {
    let mut pool = null_mut();
    // SAFETY: handles of this function.
    unsafe {
        assert_eq!(fulgurite_open(options, &raw mut pool), FULGURITE_OK, "{}", last());
        fulgurite_options_free(options);
    }
    pool
}

pub fn start_pool(path: &Path) -> *mut fulgurite_pool {
    let path = string(path);
    // SAFETY: handles and strings of this function.
    start(options(|options| unsafe { fulgurite_options_pool(options, path.as_ptr()) }))
}

pub fn open_blobs(pool: *mut fulgurite_pool, name: *const c_char) -> *mut fulgurite_blobs {
    let mut blobs = null_mut();
    // SAFETY: handles and strings of this function.
    let opened = unsafe { fulgurite_blobs_open(pool, name, 1000, 1 << 20, &raw mut blobs) };
    assert_eq!(opened, FULGURITE_OK, "{}", last());
    blobs
}

pub fn put(blobs: *mut fulgurite_blobs, key: &[u8], value: &[u8]) -> fulgurite_status {
    let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
    // SAFETY: the handle is the caller's, and the bytes outlive the call.
    unsafe { fulgurite_blobs_put(null_mut(), blobs, key_at, key.len(), value_at, value.len()) }
}

pub fn get(blobs: *mut fulgurite_blobs, key: &[u8]) -> Result<Vec<u8>, fulgurite_status> {
    let (mut value, mut length) = ([0u8; 64], 0);
    let (key_at, into) = (key.as_ptr().cast(), value.as_mut_ptr().cast());
    // SAFETY: as in `put`.
    match unsafe { fulgurite_blobs_get(null_mut(), blobs, key_at, key.len(), into, 64, &raw mut length) } {
        FULGURITE_OK => Ok(value[..length].to_vec()),
        status => Err(status),
    }
}

/// Puts a value, syncs, and finds it.
pub fn put_durably(pool: *mut fulgurite_pool, blobs: *mut fulgurite_blobs, key: &[u8], value: &[u8]) {
    assert_eq!(put(blobs, key, value), FULGURITE_OK, "{}", last());
    // SAFETY: the handle is the caller's.
    assert_eq!(unsafe { fulgurite_sync(pool, null_mut()) }, FULGURITE_OK, "{}", last());
    assert_eq!(get(blobs, key).as_deref(), Ok(value));
}

pub fn close(pool: *mut fulgurite_pool, blobs: *mut fulgurite_blobs) {
    // SAFETY: the handles are the caller's, which uses them no more.
    unsafe {
        fulgurite_blobs_free(blobs);
        assert_eq!(fulgurite_close(pool), FULGURITE_OK, "{}", last());
    }
}
