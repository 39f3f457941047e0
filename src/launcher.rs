//! The program `simse` of the npm package: it loads the addon that lies beside it, which has the whole server, and runs that as a
//! program. So the package carries one native file for both faces, not two of some 20 MB.
//!
//! Of the standard library alone, for `scripts/build.mjs` compiles it by itself: as a part of the crate it would wait for all of it.
//!
//! Promises: arguments and exit code go through as they are; memory is the addon's business (`src/node/allocator.rs`). What is
//! missing is named, with exit code 3.

#![allow(
    unsafe_code,
    clippy::print_stderr,
    reason = "what the loader of libraries offers is C; who starts this reads what is missing"
)]

use std::env::consts::{ARCH, OS};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;

/// As of a server that cannot start.
const CANNOT_START: u8 = 3;
/// `RTLD_NOW` of dlfcn.h: everything is resolved at once, or it is said what is not.
const NOW: c_int = 2;

type Main = unsafe extern "C" fn(c_int, *const *const c_char) -> c_int;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

fn main() -> ExitCode {
    let given: Result<Vec<CString>, _> = std::env::args_os().map(|word| CString::new(word.into_vec())).collect();
    match (given, addon().and_then(|path| load(&path))) {
        (Ok(words), Ok(run)) => {
            let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
            let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
            // SAFETY: as many pointers as are counted, to strings that live until the process ends.
            std::process::exit(unsafe { run(count, pointers.as_ptr()) })
        }
        (Err(cause), _) => refuse(&cause.to_string()),
        (_, Err(problem)) => refuse(&problem),
    }
}

fn refuse(problem: &str) -> ExitCode {
    eprintln!("simse: {problem}");
    ExitCode::from(CANNOT_START)
}

/// The addon's file name, as npm and napi call platforms (`js/platform.cjs`).
fn name() -> String {
    let system = if OS == "macos" { "darwin" } else { OS };
    let processor = match ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let libc = match (cfg!(target_os = "linux"), cfg!(target_env = "musl")) {
        (true, true) => "-musl",
        (true, false) => "-gnu",
        (false, _) => "",
    };
    format!("simse.{system}-{processor}{libc}.node")
}

/// Where it lies: a folder above this program's, through whatever links lead to it.
fn addon() -> Result<PathBuf, String> {
    let own = std::env::current_exe().and_then(|own| own.canonicalize());
    let own = own.map_err(|cause| format!("the system does not say where this program lies: {cause}"))?;
    let folder = own.parent().and_then(|bin| bin.parent()).ok_or("this program lies in no folder")?;
    let path = folder.join(name());
    if path.exists() { Ok(path) } else { Err(format!("{} is missing: install the package anew", path.display())) }
}

fn load(path: &std::path::Path) -> Result<Main, String> {
    let text = CString::new(path.as_os_str().as_bytes()).map_err(|cause| cause.to_string())?;
    // SAFETY: a path that ends with a zero. What runs when it is loaded is our own addon's.
    let library = unsafe { dlopen(text.as_ptr(), NOW) };
    if library.is_null() {
        return Err(format!("cannot load {}: {}", path.display(), said()));
    }
    // SAFETY: a library that was loaded and is never given up; a name that ends with a zero.
    let found = unsafe { dlsym(library, c"simse_main".as_ptr()) };
    if found.is_null() {
        return Err(format!("{} is of another version: {}", path.display(), said()));
    }
    // SAFETY: this is the type that `src/cli/exported.rs` gives it.
    Ok(unsafe { std::mem::transmute::<*mut c_void, Main>(found) })
}

/// The loader's own words on what it could not do.
fn said() -> String {
    // SAFETY: the text is the loader's, and stands until its next call by this thread.
    let words = unsafe { dlerror() };
    if words.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: as above; it is not null.
    OsStr::from_bytes(unsafe { CStr::from_ptr(words) }.to_bytes()).to_string_lossy().into_owned()
}
