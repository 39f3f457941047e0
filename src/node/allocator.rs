//! Whose memory the addon takes: that of the Node process that it lives in, else mimalloc's.
//!
//! One library has both faces. In Node there is an allocator already, and two of them keep what the other could use; as the program
//! `simse` (see `src/launcher.rs`) there is only the C library's, and mimalloc is a fifth faster (ADR 0066).
//!
//! Promise: the answer is found at the first piece of memory and never changes, so that each piece is given back to whom it came from.

#![allow(unsafe_code, reason = "an allocator is unsafe by its nature; the loader of libraries is C")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Chosen = Chosen;

/// Not looked yet.
const UNKNOWN: u8 = 0;
const NODE: u8 = 1;
const ALONE: u8 = 2;

static WHERE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Where the loader looks through all that is loaded (`RTLD_DEFAULT` of dlfcn.h).
#[cfg(target_os = "macos")]
const EVERYWHERE: *mut c_void = -2_isize as *mut c_void;
#[cfg(not(target_os = "macos"))]
const EVERYWHERE: *mut c_void = std::ptr::null_mut();

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// Whether this process is none of Node's.
#[inline]
fn is_alone() -> bool {
    match WHERE.load(Ordering::Relaxed) {
        NODE => false,
        ALONE => true,
        _ => look(),
    }
}

/// Two threads that look at once find the same.
#[cold]
fn look() -> bool {
    // SAFETY: the name ends with a zero; the loader reads it and keeps nothing. It takes no memory of ours to answer.
    let found = unsafe { dlsym(EVERYWHERE, c"napi_create_function".as_ptr()) };
    let alone = found.is_null();
    WHERE.store(if alone { ALONE } else { NODE }, Ordering::Relaxed);
    alone
}

struct Chosen;

// SAFETY: every piece goes to and comes from one of two allocators, and which of them is the same for the whole life of the process.
unsafe impl GlobalAlloc for Chosen {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what the caller promises is what is asked for.
        unsafe { if is_alone() { MiMalloc.alloc(layout) } else { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { if is_alone() { MiMalloc.alloc_zeroed(layout) } else { System.alloc_zeroed(layout) } }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above; the piece came from the same one.
        unsafe {
            if is_alone() { MiMalloc.realloc(piece, layout, new_size) } else { System.realloc(piece, layout, new_size) }
        }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: as above; the piece came from the same one.
        unsafe { if is_alone() { MiMalloc.dealloc(piece, layout) } else { System.dealloc(piece, layout) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_node_is_found_alone_and_stays_so() {
        let grown: Vec<Vec<u64>> = (0..64).map(|size| (0..size * 64).collect()).collect();
        assert_eq!(WHERE.load(Ordering::Relaxed), ALONE);
        assert!(is_alone() && look());
        let given_back = std::thread::spawn(move || grown.iter().map(Vec::len).sum::<usize>()).join();
        assert_eq!(given_back.ok(), Some(64 * 63 / 2 * 64));
    }
}
