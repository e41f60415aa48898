//! Goal: a call that fails has its message, whenever a thread makes it, and the message has no
//! number that only stands for "too much". Method: calls that fail in destructors of a thread's own
//! data, before and after the library's; capacities of 2^64 - 1.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};
use std::sync::mpsc;

use fulgurite_capi::fulgurite_status::*;
use fulgurite_capi::*;

fn last() -> String {
    // SAFETY: a string that lasts until the next failure.
    unsafe { CStr::from_ptr(fulgurite_last_message()) }.to_str().unwrap().to_owned()
}

#[test]
fn destructors_of_a_threads_data_have_messages() {
    struct AtTheEnd(mpsc::Sender<String>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            // SAFETY: NULL is refused.
            let refused = unsafe { fulgurite_options_size(null_mut(), c"1M".as_ptr()) };
            assert_eq!(refused, FULGURITE_INVALID_ARGUMENT);
            self.0.send(last()).unwrap();
        }
    }
    thread_local! {
        static BEFORE: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
        static AFTER: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    }
    let (sender, messages) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // Destructors run in the reverse order, so one is before the library's and one after it.
        BEFORE.set(Some(AtTheEnd(sender.clone())));
        let options = fulgurite_options_new();
        // SAFETY: a handle of this function.
        unsafe {
            assert_eq!(fulgurite_options_size(options, c"many".as_ptr()), FULGURITE_BAD_OPTION);
            fulgurite_options_free(options);
        }
        AFTER.set(Some(AtTheEnd(sender)));
    });
    thread.join().unwrap();
    let messages: Vec<String> = messages.into_iter().collect();
    assert!(messages.len() == 2 && messages.iter().all(|m| m.starts_with("options is NULL")), "{messages:?}");
}

#[test]
fn a_capacity_that_no_memory_has_is_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = CString::new(directory.path().join("pool").to_str().unwrap()).unwrap();
    for name in [null(), c"large".as_ptr()] {
        let options = fulgurite_options_new();
        let mut pool = null_mut();
        // SAFETY: handles and strings of this function.
        unsafe {
            let set = match name.is_null() {
                true => fulgurite_options_memory(options),
                false => fulgurite_options_pool(options, path.as_ptr()),
            };
            assert_eq!(set, FULGURITE_OK);
            assert_eq!(fulgurite_options_size(options, c"24M".as_ptr()), FULGURITE_OK);
            assert_eq!(fulgurite_options_dram(options, c"16M".as_ptr()), FULGURITE_OK);
            assert_eq!(fulgurite_open(options, &mut pool), FULGURITE_OK, "{}", last());
            fulgurite_options_free(options);
        }
        let (mut numbers, mut blobs, mut heap) = (null_mut(), null_mut(), null_mut());
        type Open<'a> = &'a mut dyn FnMut(u64) -> fulgurite_status;
        // SAFETY: handles and strings of this function.
        let doors: [(&str, Open<'_>); 3] = unsafe {
            [
                ("u64 blobs", &mut |most| fulgurite_u64_blobs_open(pool, name, most, 1 << 20, &mut numbers)),
                ("blobs", &mut |most| fulgurite_blobs_open(pool, name, 100, most, &mut blobs)),
                ("heap", &mut |most| fulgurite_heap_open(pool, name, most, &mut heap)),
            ]
        };
        for (door, open) in doors {
            assert_ne!(open(u64::MAX), FULGURITE_OK, "{door}");
            assert!(!last().contains(&u64::MAX.to_string()), "{door}: {}", last());
            let is_counted_in_pages = !name.is_null() || door != "u64 blobs";
            assert!(is_counted_in_pages || last().contains("more bytes than any memory has"), "{}", last());
        }
        // SAFETY: a handle of this function.
        assert_eq!(unsafe { fulgurite_close(pool) }, FULGURITE_OK, "{}", last());
    }
}
