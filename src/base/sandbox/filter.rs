//! Calls to the kernel that a confined program is refused, because no rule for files holds them and they reach what
//! runs outside: other programs' limits and turns, the keys of the user, the terminal of whoever started us, sockets.
//!
//! Promises: what a program does to itself works; what it does to another is refused, its own children included, where
//! the kernel does not say whose a number is.

use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;
#[cfg(target_arch = "riscv64")]
const ARCHITECTURE: TargetArch = TargetArch::riscv64;
/// The bit that marks the calls of the x32 face on x86_64, where they mostly have the same numbers.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
/// `ioctl` of that face, which has a number of its own.
#[cfg(target_arch = "x86_64")]
const X32_IOCTL: i64 = X32 + 514;

/// Types into a terminal as if a person did.
const TIOCSTI: u64 = 0x5412;
/// Does the same on the console, by way of its clipboard.
const TIOCLINUX: u64 = 0x541C;
/// "All programs of a user", for the priority of turns, and for that of the disk.
const PRIORITY_OF_USER: u64 = 2;
const DISK_PRIORITY_OF_USER: u64 = 3;
/// The kinds of a socket, without the flags that may stand beside them.
const SOCKET_KIND: u64 = 0xf;

/// A call, and when it is refused: one of these must hold, each of which is several. None: always.
type Refused = (i64, Vec<SeccompRule>);
type Built<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What is refused. Without a network also sockets: with a loopback of its own those that leave it, without one all.
pub(super) fn filters(network: bool, own_loopback: bool) -> Built<Vec<BpfProgram>> {
    let mut all = vec![compile(others()?, libc::EPERM)?, compile(missing(), libc::ENOSYS)?];
    if !network {
        all.push(compile(sockets(own_loopback)?, libc::EACCES)?);
    }
    Ok(all)
}

/// Puts them on, in the child.
pub(super) fn put_on(filters: &[BpfProgram]) -> io::Result<()> {
    for filter in filters {
        seccompiler::apply_filter(filter).map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
    }
    Ok(())
}

fn holds(argument: u8, is: SeccompCmpOp, value: u64) -> Built<SeccompCondition> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value)?)
}

fn when<const N: usize>(conditions: [SeccompCondition; N]) -> Built<SeccompRule> {
    Ok(SeccompRule::new(conditions.into())?)
}

/// What would change other programs. 0 means the caller itself.
fn others() -> Built<Vec<Refused>> {
    let another = |argument| holds(argument, SeccompCmpOp::Ne, 0);
    let user = |value| holds(0, SeccompCmpOp::Eq, value);
    let sets_limits = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let types = |value| holds(1, SeccompCmpOp::Eq, value);
    let mut calls = vec![
        (libc::SYS_prlimit64, vec![when([another(0)?, sets_limits])?]),
        (libc::SYS_setpriority, vec![when([another(1)?])?, when([user(PRIORITY_OF_USER)?])?]),
        (libc::SYS_ioprio_set, vec![when([another(1)?])?, when([user(DISK_PRIORITY_OF_USER)?])?]),
        (libc::SYS_ioctl, vec![when([types(TIOCSTI)?])?, when([types(TIOCLINUX)?])?]),
    ];
    for number in
        [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setattr, libc::SYS_sched_setparam]
    {
        calls.push((number, vec![when([another(0)?])?]));
    }
    #[cfg(target_arch = "x86_64")]
    calls.push((X32_IOCTL, vec![when([types(TIOCSTI)?])?, when([types(TIOCLINUX)?])?]));
    Ok(calls)
}

/// What this kernel seems not to have: programs that use it can do without.
fn missing() -> Vec<Refused> {
    // Reading and writing another's memory is left to the kernel's rule for tracing, which Landlock sharpens: debuggers
    // work on what a program itself has started.
    [
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_process_madvise,
        libc::SYS_process_mrelease,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
    ]
    .map(|number| (number, Vec::new()))
    .into()
}

fn sockets(own_loopback: bool) -> Built<Vec<Refused>> {
    let not = |family: i32| holds(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()));
    let kind = |kind: i32| holds(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), u64::from(kind.unsigned_abs()));
    let outside = if own_loopback {
        vec![when([not(libc::AF_INET)?, not(libc::AF_INET6)?, not(libc::AF_NETLINK)?])?]
    } else {
        Vec::new()
    };
    Ok(vec![
        (libc::SYS_io_uring_setup, Vec::new()),
        (libc::SYS_socket, outside),
        // One of a pair can be sent from, and connected, to any other of its kind; the kernel takes RAW for the same.
        (libc::SYS_socketpair, vec![when([kind(libc::SOCK_DGRAM)?])?, when([kind(libc::SOCK_RAW)?])?]),
    ])
}

#[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut, reason = "only there are the calls twice"))]
fn compile(mut calls: Vec<Refused>, error: i32) -> Built<BpfProgram> {
    #[cfg(target_arch = "x86_64")]
    for at in 0..calls.len() {
        let (number, rules) = calls[at].clone();
        calls.push((number | X32, rules));
    }
    let refuse = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(calls.into_iter().collect(), SeccompAction::Allow, refuse, ARCHITECTURE)?;
    Ok(filter.try_into()?)
}
