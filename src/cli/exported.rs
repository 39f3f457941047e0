//! The program as a function of the addon, for the launcher of the package (`src/launcher.rs`): one native file has both faces.

#![allow(unsafe_code, reason = "what C calls has a name that is not mangled, and takes pointers")]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// Runs the program with the given arguments, the first of them its own name; answers with its exit code. The caller ends the
/// process with it: threads may still be there.
///
/// # Safety
/// `arguments` points at `count` C strings that nobody changes until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simse_main(count: c_int, arguments: *const *const c_char) -> c_int {
    let count = usize::try_from(count).unwrap_or_default();
    // SAFETY: the caller promises so many strings.
    let arguments = (0..count).map(|at| unsafe { CStr::from_ptr(*arguments.add(at)) });
    let arguments: Vec<OsString> = arguments.map(|text| OsStr::from_bytes(text.to_bytes()).to_owned()).collect();
    // No panic crosses into C. What it says it has said by then.
    match std::panic::catch_unwind(|| super::run_with(arguments)) {
        Ok(exit) => c_int::from(exit.code()),
        Err(_) => PANICKED,
    }
}

/// What the standard library ends a program with that panicked.
const PANICKED: c_int = 101;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_exit_codes_cross() {
        let run = |words: &[&CStr]| {
            let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
            // SAFETY: as many pointers as are counted, to strings that live longer than the call.
            unsafe { simse_main(pointers.len().try_into().unwrap(), pointers.as_ptr()) }
        };
        assert_eq!(run(&[c"simse", c"--version"]), 0);
        assert_eq!(run(&[c"simse", c"no-such-command"]), 2);
        assert_eq!(run(&[c"simse", c"check", c"--data-dir", c"/nowhere/at/all"]), 3);
    }
}
