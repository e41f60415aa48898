//! Functions of the C library that start programs, where faults are signals (`calls`): they pass
//! copies of what is in memory of flash.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::ptr::null;

use crate::allocator::next;
use crate::calls::{Out, PAGE, Text, errno, in_line, needs_pages, one, text, with};

next!(next_execve, c"execve", (path: Text, words: *const Text, environment: *const Text) -> c_int);
next!(next_execvpe, c"execvpe", (name: Text, words: *const Text, environment: *const Text) -> c_int);
next!(next_fexecve, c"fexecve", (fd: c_int, words: *const Text, environment: *const Text) -> c_int);
next!(next_spawn, c"posix_spawn", (pid: Out<libc::pid_t>, path: Text, actions: Actions, attributes: Attributes, words: *const Text, environment: *const Text) -> c_int);
next!(next_spawnp, c"posix_spawnp", (pid: Out<libc::pid_t>, path: Text, actions: Actions, attributes: Attributes, words: *const Text, environment: *const Text) -> c_int);

type Actions = *const libc::posix_spawn_file_actions_t;
type Attributes = *const libc::posix_spawnattr_t;

unsafe extern "C" {
    static environ: *const Text;
}

/// A list of strings that ends in null: copies in DRAM where any of it is in memory of flash.
struct Strings {
    given: *const Text,
    copies: Option<(Vec<Text>, Vec<Vec<u8>>)>,
}

impl Strings {
    /// # Safety
    /// The list is null, or one of strings that ends in null.
    unsafe fn of(list: *const Text) -> Strings {
        let mut count = 0;
        // SAFETY: the caller's contract.
        while !list.is_null() && !unsafe { *list.add(count) }.is_null() {
            count += 1;
        }
        // SAFETY: as above. `count` of them were read.
        let strings = if list.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(list, count) } };
        let is_there = |string: &Text| {
            // SAFETY: as above.
            !needs_pages((*string as usize, unsafe { CStr::from_ptr(*string) }.count_bytes() + 1))
        };
        if !needs_pages((list as usize, (count + 1) * size_of::<Text>())) && strings.iter().all(is_there) {
            return Strings { given: list, copies: None };
        }
        // SAFETY: as above.
        let copy = |string: &Text| unsafe { CStr::from_ptr(*string) }.to_bytes_with_nul().to_vec();
        let copies: Vec<Vec<u8>> = strings.iter().map(copy).collect();
        let pointers = copies.iter().map(|string| string.as_ptr().cast()).chain([std::ptr::null()]).collect();
        Strings { given: list, copies: Some((pointers, copies)) }
    }
    fn list(&self) -> *const Text {
        self.copies.as_ref().map_or(self.given, |(list, _)| list.as_ptr())
    }
}

thread_local! {
    /// What this thread has passed to a program that took its place. After `vfork` the thread is
    /// its parent's, which goes on with the memory that the call leaves.
    static PASSED: Cell<Option<[Strings; 3]>> = const { Cell::new(None) };
}

/// Becomes another program, by a function of the C library. Nothing is held meanwhile: after
/// `vfork`, nobody would let it go.
///
/// # Safety
/// As the C library's. The path may be null.
unsafe fn becomes(
    next: impl Fn(Text, *const Text, *const Text) -> c_int,
    path: Text,
    words: *const Text,
    environment: *const Text,
) -> c_int {
    if in_line().is_none() {
        return next(path, words, environment);
    }
    let paths = [path, std::ptr::null()];
    // SAFETY: the caller's contract.
    let strings = [paths.as_ptr(), words, environment].map(|list| unsafe { Strings::of(list) });
    let [paths, words, environment] = strings.each_ref().map(Strings::list);
    // Of a thread that ends they are here until the call has failed.
    let mut strings = Some(strings);
    let _ = PASSED.try_with(|passed| passed.set(strings.take()));
    // SAFETY: the path is the first of its list.
    let failed = next(unsafe { *paths }, words, environment);
    let kept = errno();
    let _ = PASSED.try_with(Cell::take);
    crate::errno::fail(kept);
    failed
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: Text, words: *const Text, environment: *const Text) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { becomes(|path, words, environment| next_execve(path, words, environment), path, words, environment) }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, words: *const Text, environment: *const Text) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { becomes(|_, words, environment| next_fexecve(fd, words, environment), null(), words, environment) }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: Text, words: *const Text) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { execve(path, words, environ) }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(name: Text, words: *const Text, environment: *const Text) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { becomes(|name, words, environment| next_execvpe(name, words, environment), name, words, environment) }
}
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(name: Text, words: *const Text) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { execvpe(name, words, environ) }
}

/// The words of a call that gives them one by one, as x86-64 passes them: the first behind the path
/// in registers, which [`listed`] has stored, and all others on the stack.
struct ListedWords {
    in_registers: *const Text,
    on_stack: *const Text,
}

impl ListedWords {
    const IN_REGISTERS: usize = 5;

    /// # Safety
    /// Word `at` is one of the words that were given, the null behind them, or what comes after it.
    unsafe fn get(&self, at: usize) -> Text {
        let place = match at.checked_sub(ListedWords::IN_REGISTERS) {
            None => self.in_registers.wrapping_add(at),
            Some(at) => self.on_stack.wrapping_add(at),
        };
        // SAFETY: the caller's contract.
        unsafe { *place }
    }
    /// Calls with the list of all words, and what is behind its end. A list that is not long is on
    /// the stack: after `vfork`, this memory is the parent's.
    ///
    /// # Safety
    /// The words end in null.
    unsafe fn with(&self, call: impl Fn(*const Text, *const Text) -> c_int) -> c_int {
        let mut count = 1;
        // SAFETY: the caller's contract.
        while !unsafe { self.get(count - 1) }.is_null() {
            count += 1;
        }
        let (mut few, mut many) = ([null(); 128], Vec::new());
        let list = if count <= few.len() {
            &mut few[..count]
        } else {
            many.resize(count, null());
            &mut many[..]
        };
        for (at, word) in list.iter_mut().enumerate() {
            // SAFETY: the word was counted.
            *word = unsafe { self.get(at) };
        }
        // SAFETY: the stack of the caller goes on behind the words, whatever is there.
        call(list.as_ptr(), unsafe { self.get(count) }.cast())
    }
}

/// Defines functions that take words one by one. Each stores the registers in the order of the
/// words, and calls `$to` with the path, their place, and the place of the words on the stack.
macro_rules! listed {
    ($($name:ident, $to:ident, |$path:ident, $words:ident, $behind:ident| $call:expr;)*) => {$(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            // The stack is aligned to 16 bytes at the call: the return address and five words.
            std::arch::naked_asm!(
                "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                "mov rsi, rsp", "lea rdx, [rsp + 48]",
                "call {to}",
                "add rsp, 40", "ret",
                to = sym $to
            )
        }
        /// # Safety
        /// As the C library's, of the words that are given.
        unsafe extern "C" fn $to($path: Text, in_registers: *const Text, on_stack: *const Text) -> c_int {
            // SAFETY: the caller's contract. What is behind the words is only used where it is an
            // environment.
            unsafe { ListedWords { in_registers, on_stack }.with(|$words, $behind| { let _ = $behind; $call }) }
        }
    )*};
}

listed! {
    execl, execl_of, |path, words, behind| execve(path, words, environ);
    execlp, execlp_of, |path, words, behind| execvpe(path, words, environ);
    execle, execle_of, |path, words, behind| execve(path, words, behind);
}

/// Defines the functions that start a program. Until that has begun, the child is in this memory
/// with all signals blocked, so what it reads is held.
macro_rules! spawners {
    ($($name:ident, $next:ident;)*) => {$(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut libc::pid_t,
            path: Text,
            actions: Actions,
            attributes: Attributes,
            words: *const Text,
            environment: *const Text,
        ) -> c_int {
            if in_line().is_none() {
                // SAFETY: the caller's contract.
                return unsafe { $next(pid, path, actions, attributes, words, environment) };
            }
            // SAFETY: the caller's contract. The actions are two numbers and an address of a list
            // (glibc's `posix_spawn_file_actions_t`).
            unsafe {
                let (words, environment) = (Strings::of(words), Strings::of(environment));
                let list = if actions.is_null() { (0, 0) } else { (actions.cast::<usize>().add(1).read(), 2 * PAGE) };
                with(&[text(path), one(actions), one(attributes), list], || {
                    $next(pid, path, actions, attributes, words.list(), environment.list())
                })
            }
        }
    )*};
}

spawners! {
    posix_spawn, next_spawn;
    posix_spawnp, next_spawnp;
}
