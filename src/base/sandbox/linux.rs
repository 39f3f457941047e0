//! Prepares a cage: everything that needs memory or a look at the disk, done before the fork.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::fs::{FileType, OFlags};
use rustix::thread::ThreadNameSpaceType;
use seccompiler::BpfProgram;

use super::super::beneath::way;
use super::child::{self, Gear, Identity, Mount, Network, Spaces};
use super::filter;
use super::guard::{self, Guarded};
use super::holder::Holder;
use super::home::{Entry, Home, Loopback};
use super::{Level, Policy, Program, Started, Stay, Support, start, support};

/// The newest version whose rights are asked for; an older kernel gives what it has.
const LANDLOCK: ABI = ABI::V6;
/// Devices that a program may write to, at any level. `/dev/pts` is meant as it is here: in a program's own view there is
/// another, and what it has of this one is the terminal that it was given.
const DEVICES: [&str; 8] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"];
/// Where temporary files lie, beside what the policy names.
pub(super) const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// What a program puts on before it begins.
#[derive(Debug)]
pub struct Cage {
    spaces: Option<Spaces>,
    gear: Arc<Gear>,
}

impl Cage {
    pub(super) fn probe() -> Support {
        let with = |spaces: Option<Spaces>, filters: Vec<BpfProgram>| {
            let mut command = std::process::Command::new("/bin/sh");
            command.args(["-c", ":"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            child::put_on_plain(&mut command, spaces, Gear { ruleset: None, filters });
            command.status().is_ok_and(|status| status.success())
        };
        let found = Support {
            landlock: child::landlock_version(),
            namespaces: with(Some(Spaces::new(&[], Vec::new(), Path::new("/"))), Vec::new()),
            processes: true,
            seccomp: filter::filters(false, false).is_ok_and(|filters| with(None, filters)),
        };
        // Without Landlock the programs of a session could trace what holds their numbers, and through it get out.
        let may = found.landlock > 0 && found.namespaces && may_enter_rooms();
        Support { processes: may && Holder::start(found).is_ok(), ..found }
    }

    /// Opens what a start in `directory` needs. `extra` are files that it may write beside the policy's places;
    /// `loopback` is where it meets others, when the policy has no network.
    ///
    /// # Errors
    /// When the kernel refuses what it said it could do, or a place cannot be opened.
    pub fn prepare(
        policy: &Policy,
        directory: &Path,
        extra: &[PathBuf],
        loopback: Option<Arc<Loopback>>,
    ) -> io::Result<Self> {
        Self::prepare_with(support(), policy, (directory, extra), loopback)
    }

    /// The same on a kernel that can do just this.
    pub(super) fn prepare_with(
        support: Support,
        policy: &Policy,
        (directory, extra): (&Path, &[PathBuf]),
        loopback: Option<Arc<Loopback>>,
    ) -> io::Result<Self> {
        let network = match (policy.network, &loopback) {
            (true, _) => Network::Whole,
            (false, None) => Network::Own,
            (false, Some(_)) => Network::Shared,
        };
        let home = loopback.map(|loopback| loopback.home().and_then(Entry::new)).transpose()?;
        let room = home.as_ref().and_then(|entry| entry.home.room(policy)).filter(|_| serves(policy, extra));
        if let (Some(room), true) = (room, support.namespaces) {
            let gear = Arc::clone(&room.gear);
            let plain = Spaces::new(&[], Vec::new(), directory);
            let numbers = home.as_ref().is_some_and(|entry| entry.home.holder.numbers);
            let joins = if numbers { ThreadNameSpaceType::PROCESS_ID } else { plain.joins };
            let spaces = Spaces { network, home, joins, room: Some(room), ..plain };
            return Ok(Self { spaces: Some(spaces), gear });
        }
        let gear = Arc::new(rules(support, policy, extra, false)?);
        let spaces = support.namespaces.then(|| {
            let mounts = mounts(policy, &guarded_here(policy));
            let plain = Spaces::new(&writable(policy, extra), mounts, directory);
            Spaces { network, home, rules: Some(Arc::clone(&gear)), ..plain }
        });
        Ok(Self { spaces, gear })
    }

    /// Whether [`Cage::start`] works: there is a room.
    pub fn can_start(&self) -> bool {
        self.spaces.as_ref().is_some_and(|spaces| spaces.room.is_some())
    }

    /// Starts a program that puts it on. Blocks for as long as that takes, which is less than for a command.
    ///
    /// # Errors
    /// What the kernel says: no such program, no such directory, no permission. Always, where it cannot.
    pub fn start(&self, program: &Program) -> io::Result<Started> {
        let spaces = self.spaces.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let mut started = start::start(program, &spaces.directory, Some((spaces, &self.gear)))?;
        started.stay = spaces.home.as_ref().map(|entry| -> Stay { Arc::<Home>::clone(&entry.home) });
        Ok(started)
    }

    /// Makes the command put it on when it starts; a start that cannot fails.
    pub fn put_on(self, command: &mut tokio::process::Command) {
        child::put_on(command, self.spaces, self.gear);
    }
}

/// Starts a program in these spaces, looks up its name spaces, and lets it end.
pub(super) fn held(spaces: Spaces, names: &[&str]) -> io::Result<Vec<OwnedFd>> {
    // It waits for its input, which never comes.
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", "read nothing"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    child::put_on_plain(&mut command, Some(spaces), Gear::default());
    let mut holder = command.spawn()?;
    let open = |name: &&str| std::fs::File::open(format!("/proc/{}/ns/{name}", holder.id())).map(OwnedFd::from);
    let held = names.iter().map(open).collect();
    drop(holder.stdin.take());
    let _exit_code = holder.wait();
    held
}

/// Whether this process may enter a view of mounts that was made for it.
pub(super) fn may_enter_rooms() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_CHROOT;
    // Another user has all powers in his own user name space.
    !has_admin_power() || capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Whether a room is all that a start with these further files needs.
fn serves(policy: &Policy, extra: &[PathBuf]) -> bool {
    let places = if extra.is_empty() { Vec::new() } else { writable(policy, &[]) };
    extra.iter().all(|file| places.iter().any(|place| file.starts_with(place)))
}

/// The rules for files and the filter of calls, as far as the kernel has them. `numbers`: programs have numbers of their own, and
/// so no name for what runs outside.
pub(super) fn rules(support: Support, policy: &Policy, extra: &[PathBuf], numbers: bool) -> io::Result<Gear> {
    let ruleset = match support.landlock {
        0 => None,
        _ => ruleset(policy, extra, support.namespaces, numbers).map_err(io::Error::other)?.into(),
    };
    let filters = if support.seccomp {
        filter::filters(policy.network, support.namespaces).map_err(io::Error::other)?
    } else {
        Vec::new()
    };
    Ok(Gear { ruleset, filters })
}

impl Spaces {
    /// With a network of its own.
    pub(super) fn new(writable: &[PathBuf], mounts: Vec<Mount>, directory: &Path) -> Self {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        // Root's powers over other people's files would be lost in a user name space of its own.
        let identity = if has_admin_power() {
            Identity::Kept
        } else {
            let line = |id: u32| format!("{id} {id} 1").into_bytes();
            Identity::Mapped { users: line(user.as_raw()), groups: line(group.as_raw()) }
        };
        let writable: Vec<CString> = writable.iter().map(|place| bytes(place)).collect();
        let trees = Vec::with_capacity(writable.len());
        Self {
            identity,
            writable,
            trees,
            mounts,
            network: Network::Own,
            home: None,
            joins: ThreadNameSpaceType::empty(),
            numbers: false,
            room: None,
            rules: None,
            directory: bytes(directory),
            root: user.is_root(),
        }
    }
}

fn has_admin_power() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// What exists of the places that a program may change, without links.
pub(super) fn writable(policy: &Policy, extra: &[PathBuf]) -> Vec<PathBuf> {
    // These may be links, and are ours or the system's. A link where the policy's own places were is somebody's.
    let followed = |place: &Path| place.canonicalize().ok();
    let level: Vec<PathBuf> = match policy.level {
        Level::ReadOnly => Vec::new(),
        Level::WorkspaceWrite => {
            let temporary = TEMPORARY.iter().filter_map(|place| followed(Path::new(place)));
            policy.writable.iter().filter(|place| place.exists()).cloned().chain(temporary).collect()
        }
    };
    level.into_iter().chain(extra.iter().filter_map(|file| followed(file))).collect()
}

/// What is laid over the tree: hidden places, and what must stay as it is inside writable ones.
pub(super) fn mounts(policy: &Policy, guarded: &Guarded) -> Vec<Mount> {
    let hidden = hidden(policy);
    let roots = writable(policy, &[]);
    let inside = |place: &Path| roots.iter().any(|root| place.starts_with(root) && place != root);
    let in_sight = |file: &&PathBuf| file.exists() && !hidden.iter().any(|place| file.starts_with(place));
    let kept = policy.kept.iter().filter(|file| !policy.git_settings && inside(file)).filter(in_sight);
    let kept: Vec<&PathBuf> = kept.collect();
    // The way to such a place must not be moved: a hidden one would come into sight, and another could be put there.
    let way: BTreeSet<&Path> =
        hidden.iter().chain(&kept).flat_map(|place| place.ancestors().skip(1)).filter(|place| inside(place)).collect();
    let way = way.into_iter().filter(|place| place.is_dir()).map(|place| Mount::Pinned { place: bytes(place) });
    let hidden = hidden.iter().filter_map(|place| hide(place));
    let kept = kept.into_iter().map(|place| Mount::Frozen { place: bytes(place) });
    // A repository's own directory must not be moved away and made again without what guards it.
    let pinned = guarded.pinned.iter().map(|place| Mount::Pinned { place: bytes(place) });
    let links = guarded.links.iter().map(|place| Mount::Link { place: bytes(place) });
    let frozen = guarded.frozen.iter().map(|place| Mount::Frozen { place: bytes(place) });
    let terminals = Path::new("/dev/pts").is_dir().then_some(Mount::Terminals);
    way.chain(hidden).chain(pinned).chain(links).chain(frozen).chain(kept).chain(terminals).collect()
}

/// What is to be hidden: not what a writable place lies in, for whoever names that means it; and of two places of which one
/// lies in the other only the outer one, for in it the inner one has no name any more.
fn hidden(policy: &Policy) -> Vec<&PathBuf> {
    let needed = |place: &&PathBuf| !policy.writable.iter().any(|root| root.starts_with(place));
    let all: Vec<&PathBuf> = policy.hidden.iter().filter(needed).collect();
    let covered = |place: &PathBuf| all.iter().any(|other| *other != place && place.starts_with(other));
    all.iter().copied().filter(|place| !covered(place)).collect()
}

/// What is guarded without a search: the repositories that lie directly in writable places.
fn guarded_here(policy: &Policy) -> Guarded {
    if policy.git_settings || policy.level == Level::ReadOnly {
        return Guarded::default();
    }
    let repositories: Vec<PathBuf> = policy.writable.iter().map(|root| root.join(".git")).collect();
    guard::guarded(&repositories, &writable(policy, &[]))
}

fn hide(place: &Path) -> Option<Mount> {
    let found = std::fs::metadata(place).ok()?;
    let place = bytes(place);
    Some(if found.is_dir() { Mount::Empty { place } } else { Mount::Nothing { place } })
}

fn ruleset(
    policy: &Policy,
    extra: &[PathBuf],
    mounts_hide: bool,
    numbers: bool,
) -> Result<RulesetCreated, Box<dyn std::error::Error + Send + Sync>> {
    let ruleset =
        Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(LANDLOCK))?;
    // Other programs' abstract sockets are the network's business, their life is nobody's here.
    let mut scopes = Scope::from_all(LANDLOCK);
    if policy.network {
        scopes.remove(Scope::AbstractUnixSocket);
    }
    // Each start is held by itself: what one started could not be ended by the next.
    if numbers {
        scopes.remove(Scope::Signal);
    }
    let ruleset = if scopes.is_empty() { ruleset } else { ruleset.scope(scopes)? };
    let mut ruleset = ruleset.create()?;
    let all = AccessFs::from_all(LANDLOCK);
    let file = AccessFs::from_file(LANDLOCK);
    let mut allow =
        |place: &Path, rights: BitFlags<AccessFs>| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            // What is not there needs no right; what cannot be opened cannot be given.
            let (Ok(opened), Ok(found)) = (PathFd::new(place), std::fs::metadata(place)) else { return Ok(()) };
            let rights = if found.is_dir() { rights } else { rights & file };
            (&mut ruleset).add_rule(PathBeneath::new(opened, rights))?;
            Ok(())
        };
    let read = AccessFs::from_read(LANDLOCK);
    let hidden: Vec<PathBuf> = policy.hidden.iter().filter(|place| place.exists()).cloned().collect();
    if mounts_hide || hidden.is_empty() {
        allow(Path::new("/"), read)?;
    } else {
        allow(Path::new("/"), AccessFs::Execute | AccessFs::ReadDir)?;
        for place in beside(&hidden) {
            allow(&place, read)?;
        }
    }
    for device in DEVICES {
        allow(Path::new(device), AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev)?;
    }
    for place in extra {
        allow(place, AccessFs::WriteFile | AccessFs::Truncate | AccessFs::ReadFile)?;
    }
    for place in writable(policy, &[]) {
        let opened = way().open_absolute(&place, OFlags::PATH | OFlags::NOFOLLOW)?;
        let is_directory = FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode).is_dir();
        let rights = if is_directory { all } else { all & file };
        (&mut ruleset).add_rule(PathBeneath::new(opened, rights))?;
    }
    Ok(ruleset)
}

/// Everything except what lies in `hidden`, as few places as say it: the neighbours along the way to each.
fn beside(hidden: &[PathBuf]) -> Vec<PathBuf> {
    let mut open = vec![PathBuf::from("/")];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        for child in std::fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if hidden.contains(&child) || child.is_symlink() {
                continue;
            }
            let leads_there = hidden.iter().any(|place| place.starts_with(&child));
            if leads_there { open.push(child) } else { found.push(child) }
        }
    }
    found
}

/// A path as the kernel takes it. One with a NUL cannot exist, and nothing is laid over it.
fn bytes(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}
