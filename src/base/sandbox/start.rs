//! Starts a program, in a room or as it is, without copying this process first.
//!
//! `fork` copies the tables of a whole process's memory, which takes longer than all else that a start needs. Here the child
//! borrows the memory instead (`CLONE_VM`), and the thread that started it waits until the child has become the program
//! or has given up (`CLONE_VFORK`): what the standard library does too, unless something is to happen in between.
//!
//! Invariants: the child writes to its own stack and to one number, allocates nothing, takes no lock, and drops nothing that
//! the parent owns; no signal handler of the parent runs in it. It leads a session, so that no terminal of ours is its own. While it is in the room and still has our memory, that memory
//! cannot be read or written by the programs in the room: it counts as not dumpable.

#![allow(unsafe_code, reason = "no safe wrapper starts a process that borrows the memory of its parent")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::Mutex;
use rustix::io::FdFlags;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, dumpable_behavior, getpid, kill_process, pidfd_open,
    set_dumpable_behavior, waitpid,
};
use rustix::thread::ThreadNameSpaceType;

use super::child::{Gear, Spaces};
use super::watch::Watched;
use super::{Program, Started};

/// The child's stack. It makes system calls and little else.
const STACK_BYTES: usize = 256 * 1024;
/// One more than the number of the last signal.
const SIGNALS_END: libc::c_int = 65;
/// The exit code of a child that could not become the program; nobody sees it.
const GAVE_UP: libc::c_int = 127;

/// All that the child needs, where it finds it.
struct Order<'a> {
    /// Where it enters, and what it wears there. None: it goes on as we are.
    room: Option<(&'a Spaces, &'a Gear)>,
    /// The end of another stack: numbers of the room's own begin with a child of the child.
    below: Option<*mut libc::c_void>,
    /// The number of that.
    number: &'a AtomicI32,
    on_terminal: bool,
    directory: &'a CStr,
    path: &'a CStr,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    streams: [RawFd; 3],
    kept: Option<&'a File>,
    /// Why it gave up: a number of the operating system's. 0: it did not.
    fault: AtomicI32,
}

/// Starts it. Blocks until it is the program.
///
/// # Errors
/// What the kernel says to one of the steps.
pub(super) fn start(program: &Program, directory: &CStr, room: Option<(&Spaces, &Gear)>) -> io::Result<Started> {
    // Above the numbers that they become, or one would be closed by the other.
    let above = |stream: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(stream, 3);
    let [input, output, error] = &program.streams;
    let streams = [above(input)?, above(output)?, above(error)?];
    let numbers = room.is_some_and(|(spaces, _)| spaces.joins.contains(ThreadNameSpaceType::PROCESS_ID));
    let mut below = Vec::<MaybeUninit<u8>>::with_capacity(if numbers { STACK_BYTES } else { 0 });
    let watched = Watched::begin(numbers);
    let order = Order {
        room,
        below: numbers.then(|| end_of(&mut below)),
        number: watched.number(),
        on_terminal: program.on_terminal,
        directory,
        path: &program.path,
        arguments: pointers(&program.arguments),
        environment: pointers(&program.environment),
        streams: [streams[0].as_raw_fd(), streams[1].as_raw_fd(), streams[2].as_raw_fd()],
        kept: program.kept.as_deref(),
        fault: AtomicI32::new(0),
    };
    let started = {
        let _unreadable = room.map(|_| Unreadable::begin());
        let _quiet = Quiet::begin();
        clone(&order)?
    };
    let number = Pid::from_raw(watched.number().load(Ordering::Acquire));
    let fault = order.fault.load(Ordering::Acquire);
    drop(watched);
    if numbers || fault != 0 {
        // It is gone already, and nobody else waits for it.
        reap(started.id);
    }
    match (numbers.then_some(number), fault) {
        (None, 0) => Ok(started),
        (Some(Some(id)), 0) => adopt(id),
        (Some(None), 0) => Err(io::ErrorKind::Interrupted.into()),
        (number, fault) => {
            let _reaped = number.flatten().map(reap);
            Err(io::Error::from_raw_os_error(fault))
        }
    }
}

/// Takes a program over that the child has started in our name.
fn adopt(id: Pid) -> io::Result<Started> {
    match pidfd_open(id, PidfdFlags::empty()) {
        Ok(handle) => Ok(Started { id, handle, stay: None }),
        Err(cause) => {
            let _already_gone = kill_process(id, Signal::KILL);
            reap(id);
            Err(cause.into())
        }
    }
}

/// Waits for one that has ended.
fn reap(id: Pid) {
    let _status = rustix::io::retry_on_intr(|| waitpid(Some(id), WaitOptions::empty()));
}

/// Where a stack begins, which grows downwards, aligned to what every architecture asks for.
fn end_of(stack: &mut Vec<MaybeUninit<u8>>) -> *mut libc::c_void {
    // SAFETY: it stays within the memory, or just behind it.
    unsafe {
        let end = stack.as_mut_ptr().add(stack.capacity());
        end.sub(end.addr() % 64).cast()
    }
}

/// Starts one that enters nothing and wears nothing.
///
/// # Errors
/// As above, and `Unsupported` where the kernel has no handles of processes, or only looks like Linux.
pub(super) fn start_free(program: &Program, directory: &CStr) -> io::Result<Started> {
    static HANDLES: LazyLock<bool> = LazyLock::new(|| pidfd_open(getpid(), PidfdFlags::empty()).is_ok());
    if !*HANDLES {
        return Err(io::ErrorKind::Unsupported.into());
    }
    start(program, directory, None).map_err(|cause| match cause.raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS) => io::ErrorKind::Unsupported.into(),
        Some(_) | None => cause,
    })
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

fn clone(order: &Order<'_>) -> io::Result<Started> {
    let mut stack = Vec::<MaybeUninit<u8>>::with_capacity(STACK_BYTES);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut handle: libc::c_int = -1;
    // SAFETY: the address is at the end of memory that is the child's alone while this thread waits in here. `order` and
    // `handle` live over the call.
    let id = unsafe {
        libc::clone(child, end_of(&mut stack), flags, ptr::from_ref(order).cast_mut().cast(), &raw mut handle)
    };
    if id < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows of it.
    let handle = unsafe { OwnedFd::from_raw_fd(handle) };
    let id = Pid::from_raw(id).ok_or(io::ErrorKind::NotFound)?;
    Ok(Started { id, handle, stay: None })
}

extern "C" fn child(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: it is the order that `start` made, which waits for us.
    let order = unsafe { &*order.cast_const().cast::<Order<'_>>() };
    let done = order.enter().and_then(|()| match order.below {
        Some(stack) => order.pass_on(stack),
        None => Err(order.carry_out()),
    });
    order.end(done)
}

extern "C" fn grandchild(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: it is the order that `start` made; the child, which waits for us, had it from there.
    let order = unsafe { &*order.cast_const().cast::<Order<'_>>() };
    order.end(Err(order.carry_out()))
}

impl Order<'_> {
    /// Ends this process.
    fn end(&self, done: io::Result<()>) -> libc::c_int {
        if let Err(cause) = &done {
            self.fault.store(cause.raw_os_error().unwrap_or(libc::EPERM), Ordering::Release);
        }
        let code = if done.is_ok() { 0 } else { GAVE_UP };
        // SAFETY: it ends this process at once; nothing of the parent's is dropped or flushed.
        unsafe { libc::_exit(code) }
    }

    /// Goes where the program is to be.
    fn enter(&self) -> io::Result<()> {
        forget_handlers();
        match self.room {
            Some((spaces, _)) => spaces.enter_room(),
            None => Ok(rustix::process::chdir(self.directory)?),
        }
    }

    /// Starts the program as another child of our parent, and waits until it is the program.
    fn pass_on(&self, stack: *mut libc::c_void) -> io::Result<()> {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::CLONE_PARENT_SETTID | libc::SIGCHLD;
        let order = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the stack is the grandchild's alone, and everything lives until the parent goes on. The number is written
        // before the grandchild runs.
        match unsafe { libc::clone(grandchild, stack, flags, order, self.number.as_ptr()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Becomes the program; comes back only when that fails.
    fn carry_out(&self) -> io::Error {
        match self.prepare() {
            Err(cause) => cause,
            Ok(()) => {
                // SAFETY: all three were made from NUL-terminated texts that live, and the lists end with a null pointer.
                unsafe { libc::execve(self.path.as_ptr(), self.arguments.as_ptr(), self.environment.as_ptr()) };
                io::Error::last_os_error()
            }
        }
    }

    fn prepare(&self) -> io::Result<()> {
        rustix::process::setsid()?;
        for (number, stream) in (0..).zip(self.streams) {
            // SAFETY: the numbers are in the child's own table, and nothing in the child owns either.
            if unsafe { libc::dup2(stream, number) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if let Some(kept) = self.kept {
            rustix::io::fcntl_setfd(kept, FdFlags::empty())?;
        }
        if self.on_terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        if let Some((_, gear)) = self.room {
            gear.put_on()?;
        }
        // As every started program finds it: nothing is held back.
        hold(&no_signals()).map(drop)
    }
}

/// Signals do what they do by themselves from here on; what is ignored stays so, but for a broken pipe.
fn forget_handlers() {
    for number in 1..SIGNALS_END {
        // SAFETY: all zeroes is a valid value of this plain C structure: no flags, no mask, the default.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: it writes to a structure that is ours. Numbers that are no signal's are refused.
        let known = unsafe { libc::sigaction(number, ptr::null(), &raw mut action) } == 0;
        let keeps = action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN;
        if known && (!keeps || number == libc::SIGPIPE) {
            // SAFETY: as above.
            let default: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: it reads a structure that is ours; the table of handlers is the child's own.
            unsafe { libc::sigaction(number, &raw const default, ptr::null_mut()) };
        }
    }
}

fn no_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call fills it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Holds these signals back from this thread, and no others; what was held before.
fn hold(set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = no_signals();
    // SAFETY: both sets live over the call.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::from_ref(set), &raw mut before) } {
        0 => Ok(before),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// No signal reaches this thread as long as it lives, nor a child that is made meanwhile.
struct Quiet(Option<libc::sigset_t>);

impl Quiet {
    fn begin() -> Self {
        let mut all = no_signals();
        // SAFETY: it fills a set that is ours.
        unsafe { libc::sigfillset(&raw mut all) };
        Self(hold(&all).ok())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // It was possible a moment ago.
            let _held = hold(before);
        }
    }
}

/// As long as one lives, other processes of this user cannot get at our memory.
struct Unreadable;

/// How many live, and how it was before the first.
static UNREADABLE: Mutex<(usize, Option<DumpableBehavior>)> = Mutex::new((0, None));

impl Unreadable {
    fn begin() -> Self {
        let mut state = UNREADABLE.lock();
        if state.0 == 0 {
            state.1 = dumpable_behavior().ok().filter(|now| *now == DumpableBehavior::Dumpable);
            if state.1.is_some() {
                // Every kernel that has rooms can.
                let _done = set_dumpable_behavior(DumpableBehavior::NotDumpable);
            }
        }
        state.0 += 1;
        Self
    }
}

impl Drop for Unreadable {
    fn drop(&mut self) {
        let mut state = UNREADABLE.lock();
        state.0 -= 1;
        if state.0 == 0
            && let Some(before) = state.1.take()
        {
            let _done = set_dumpable_behavior(before);
        }
    }
}
