//! Puts a cage on, in the child between fork and exec.
//!
//! There, only one thread of the parent's many goes on, and whatever lock another one held stays locked:
//! nothing here may allocate or take a lock. Everything is system calls on what was prepared before.

#![allow(unsafe_code, reason = "code between fork and exec, and one ioctl that no safe wrapper offers")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, move_mount, open_tree,
};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags, move_into_link_name_space,
    move_into_thread_name_spaces,
};
use seccompiler::BpfProgram;

use super::filter;
use super::home::Entry;
use super::room::Room;

/// Who the program is in its own name spaces.
#[derive(Debug, Clone)]
pub(super) enum Identity {
    /// The same; the parent may make name spaces as it is.
    Kept,
    /// The same user and group in a user name space of its own; these are the lines of its two maps.
    Mapped {
        /// `inside outside count`.
        users: Vec<u8>,
        /// The same for groups.
        groups: Vec<u8>,
    },
}

/// What a program sees of the network.
#[derive(Debug, Clone)]
pub(super) enum Network {
    /// Everything.
    Whole,
    /// A loopback of its own.
    Own,
    /// The loopback of its home.
    Shared,
}

/// Something laid over the tree.
#[derive(Debug, Clone)]
pub(super) enum Mount {
    /// A directory that seems empty.
    Empty { place: CString },
    /// A file that seems empty.
    Nothing { place: CString },
    /// A directory that cannot be moved.
    Pinned { place: CString },
    /// A link that cannot be exchanged.
    Link { place: CString },
    /// What cannot be changed, with all below.
    Frozen { place: CString },
    /// Terminals of their own instead of everybody's.
    Terminals,
}

/// The program's own view of mounts, and perhaps of the network.
#[derive(Debug)]
pub(super) struct Spaces {
    pub(super) identity: Identity,
    /// What stays writable when the whole tree becomes read-only. Landlock alone would leave the modes, owners
    /// and times of files open.
    pub(super) writable: Vec<CString>,
    /// Has room for one each of these, so that nothing grows in the child.
    pub(super) trees: Vec<OwnedFd>,
    /// Laid over the tree after that, in this order.
    pub(super) mounts: Vec<Mount>,
    pub(super) network: Network,
    /// Whose user name space and shared memory it joins, and whose network when that is shared.
    pub(super) home: Option<Entry>,
    /// What else of its home it joins.
    pub(super) joins: ThreadNameSpaceType,
    /// Whether new numbers of processes begin with its next child.
    pub(super) numbers: bool,
    /// A view of mounts that was prepared; what is said of them above is in it.
    pub(super) room: Option<Arc<Room>>,
    /// Landlock's rules that are to let its own terminals through, which are there only once it is.
    pub(super) rules: Option<Arc<Gear>>,
    /// Entered again once the mounts are there: the old way would lead past them.
    pub(super) directory: CString,
    /// Whether the user is root, whose powers are cut down.
    pub(super) root: bool,
}

/// What root keeps: its rights over files and the choice of a user. Nothing of the system.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Where terminals are.
const TERMINALS: &CStr = c"/dev/pts";

/// What it wears in its spaces, and never takes off.
#[derive(Debug, Default)]
pub(super) struct Gear {
    /// Landlock's rules for files. None: the kernel has none.
    pub(super) ruleset: Option<OwnedFd>,
    /// Calls that are refused. Empty: none.
    pub(super) filters: Vec<BpfProgram>,
}

impl Gear {
    /// Puts it on, in the child.
    pub(super) fn put_on(&self) -> io::Result<()> {
        if let Some(ruleset) = &self.ruleset {
            rustix::thread::set_no_new_privs(true)?;
            // SAFETY: it takes the number of an open descriptor and no flags, and returns a number.
            let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        filter::put_on(&self.filters)
    }
}

/// Makes `command` put these on when it starts.
pub(super) fn put_on(command: &mut tokio::process::Command, mut spaces: Option<Spaces>, gear: Arc<Gear>) {
    // SAFETY: `enter` makes system calls only, on memory that was prepared before the fork.
    unsafe {
        command.pre_exec(move || enter(spaces.as_mut(), &gear));
    }
}

/// The same for a command that is waited for.
pub(super) fn put_on_plain(command: &mut std::process::Command, mut spaces: Option<Spaces>, gear: Gear) {
    // SAFETY: as in `put_on`.
    unsafe {
        command.pre_exec(move || enter(spaces.as_mut(), &gear));
    }
}

/// The kernel's version of Landlock; 0 when it has none.
pub(super) fn landlock_version() -> u8 {
    const VERSION: libc::c_uint = 1;
    let nothing: *const libc::c_void = std::ptr::null();
    // SAFETY: with this flag the call takes no memory and makes nothing; it returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION) };
    u8::try_from(version).unwrap_or(0)
}

fn enter(spaces: Option<&mut Spaces>, gear: &Gear) -> io::Result<()> {
    match spaces {
        Some(spaces) if spaces.room.is_some() => spaces.enter_room()?,
        Some(spaces) => spaces.enter()?,
        None => {}
    }
    // Until it is another program its memory is a copy of ours, and no business of those that are held to the same.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    gear.put_on()
}

impl Spaces {
    fn enter(&mut self) -> io::Result<()> {
        self.part()?;
        mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        self.close_the_tree()?;
        for mount in &self.mounts {
            mount.lay()?;
            if let (Mount::Terminals, Some(Gear { ruleset: Some(ruleset), .. })) = (mount, self.rules.as_deref()) {
                let_through(ruleset, TERMINALS)?;
            }
        }
        self.settle()
    }

    /// Enters the view that was prepared. Changes nothing here.
    pub(super) fn enter_room(&self) -> io::Result<()> {
        let Some(room) = &self.room else { return Err(io::ErrorKind::NotFound.into()) };
        self.part()?;
        move_into_link_name_space(room.mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
        self.settle()
    }

    /// Once all is in its place.
    fn settle(&self) -> io::Result<()> {
        rustix::process::chdir(self.directory.as_c_str())?;
        if let Network::Own = self.network {
            raise_loopback()?;
        }
        if self.root {
            drop_powers()?;
        }
        Ok(())
    }
}

impl Spaces {
    /// Leaves the parent's name spaces.
    pub(super) fn part(&self) -> io::Result<()> {
        let mut flags = if self.room.is_some() { UnshareFlags::empty() } else { UnshareFlags::NEWNS };
        let mut identity = Some(&self.identity);
        let mut joins = self.joins | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
        match (&self.network, &self.home) {
            (Network::Whole, _) => {}
            (Network::Shared, Some(_)) => joins |= ThreadNameSpaceType::NETWORK,
            (Network::Own, _) | (Network::Shared, None) => flags |= UnshareFlags::NEWNET,
        }
        match &self.home {
            Some(entry) => {
                if let Identity::Mapped { .. } = self.identity {
                    joins |= ThreadNameSpaceType::USER;
                }
                move_into_thread_name_spaces(entry.handle.as_fd(), joins)?;
                identity = None;
            }
            None => flags |= UnshareFlags::NEWIPC,
        }
        if self.numbers {
            flags |= UnshareFlags::NEWPID;
        }
        if let Some(Identity::Mapped { .. }) = identity {
            flags |= UnshareFlags::NEWUSER;
        }
        if flags.is_empty() {
            return Ok(());
        }
        // SAFETY: no flag among them takes file descriptors apart from other threads, and there are none.
        unsafe { rustix::thread::unshare_unsafe(flags) }?;
        if let Some(Identity::Mapped { users, groups }) = identity {
            map(users, groups)?;
        }
        Ok(())
    }

    /// Makes everything read-only except the writable places, which are set aside before.
    fn close_the_tree(&mut self) -> io::Result<()> {
        let aside = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        for place in &self.writable {
            if self.trees.len() < self.trees.capacity() {
                // Opened here, for a tree is taken in its own view alone; and through no link.
                let found = openat2(
                    rustix::fs::CWD,
                    place.as_c_str(),
                    OFlags::PATH | OFlags::CLOEXEC,
                    Mode::empty(),
                    ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
                )?;
                self.trees.push(open_tree(&found, c"", aside)?);
            }
        }
        read_only(c"/", libc::AT_RECURSIVE)?;
        for (tree, place) in self.trees.iter().zip(&self.writable) {
            move_mount(tree, c"", rustix::fs::CWD, place.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        }
        Ok(())
    }
}

/// Adds to Landlock's rules that what is in a directory may be read, written and controlled.
fn let_through(ruleset: &OwnedFd, place: &CStr) -> io::Result<()> {
    /// As the kernel lays it out.
    #[repr(C, packed)]
    struct Beneath {
        allowed: u64,
        parent: libc::c_int,
    }
    const BENEATH: libc::c_int = 1;
    // Write, read, list; truncate since version 3, control devices since version 5.
    let newer = match landlock_version() {
        0..3 => 0,
        3..5 => 1 << 14,
        5.. => 1 << 14 | 1 << 15,
    };
    let open = rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let rule = Beneath { allowed: 0b1110 | newer, parent: open.as_raw_fd() };
    // SAFETY: the structure is laid out as the call expects it, lives over the call, and is only read.
    let done = unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), BENEATH, &raw const rule, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a mount read-only, and with `AT_RECURSIVE` all below it.
fn read_only(place: &CStr, flags: libc::c_int) -> io::Result<()> {
    let change = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let size = std::mem::size_of::<libc::mount_attr>();
    // SAFETY: the path ends with NUL, and the structure lives over the call, which only reads it.
    let done = unsafe {
        libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, place.as_ptr(), flags, &raw const change, size)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Mount {
    fn lay(&self) -> io::Result<()> {
        match self {
            Self::Empty { place } => {
                let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                mount(c"simse", place.as_c_str(), c"tmpfs", flags, c"size=4k,mode=0555")?;
            }
            Self::Nothing { place } => mount_bind(c"/dev/null", place.as_c_str())?,
            Self::Pinned { place } => mount_bind_recursive(place.as_c_str(), place.as_c_str())?,
            Self::Frozen { place } => {
                mount_bind_recursive(place.as_c_str(), place.as_c_str())?;
                read_only(place, libc::AT_RECURSIVE)?;
            }
            Self::Link { place } => {
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
                let link = open_tree(rustix::fs::CWD, place.as_c_str(), flags)?;
                move_mount(&link, c"", rustix::fs::CWD, place.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
            }
            Self::Terminals => {
                let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
                mount(c"simse", TERMINALS, c"devpts", flags, c"newinstance,ptmxmode=0666,mode=0620")?;
            }
        }
        Ok(())
    }
}

/// Says who is who in a new user name space.
fn map(users: &[u8], groups: &[u8]) -> io::Result<()> {
    // Of a process that hides its memory these files belong to root. What is shown for these three calls is this copy.
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let done = write(c"/proc/self/setgroups", b"deny")
        .and_then(|()| write(c"/proc/self/uid_map", users))
        .and_then(|()| write(c"/proc/self/gid_map", groups));
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    done
}

fn write(path: &CStr, text: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    // The kernel takes these files in one piece or not at all.
    rustix::io::write(&file, text)?;
    Ok(())
}

/// A new network's loopback is down.
pub(super) fn raise_loopback() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo\0") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(libc::c_short::MAX);
    // SAFETY: the request is a whole `ifreq` that lives over the call, which is what this ioctl reads.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes root's powers over the system away, for good.
fn drop_powers() -> io::Result<()> {
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // An older kernel does not know the newest of them.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets { effective: KEPT, permitted: KEPT, inheritable: CapabilitySet::empty() };
    // What the parent itself lacks cannot be kept.
    let now = rustix::thread::capabilities(None)?;
    let sets = CapabilitySets {
        effective: sets.effective & now.permitted,
        permitted: sets.permitted & now.permitted,
        inheritable: sets.inheritable,
    };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(())
}
