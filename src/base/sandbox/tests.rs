//! What the operating system really lets a confined program do. On a kernel that cannot, the tests say so.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

#[cfg(target_os = "linux")]
mod numbers;

use super::*;
use crate::base::process::{Confinement, Finished, Invocation, RunLimits, run};

/// A home with a repository, a place beside it, and a hidden one.
struct Place {
    home: tempfile::TempDir,
    /// Where its programs have rooms. None: each start is prepared by itself.
    rooms: Option<Arc<Loopback>>,
}

impl Place {
    fn new() -> Self {
        let home = beside_temporary().unwrap();
        for directory in ["work/.git/hooks", "work/sub", "beside", "hidden"] {
            std::fs::create_dir_all(home.path().join(directory)).unwrap();
        }
        for file in
            ["work/a", "work/.git/HEAD", "work/.git/config", "work/.git/hooks/pre-commit", "beside/b", "hidden/token"]
        {
            std::fs::write(home.path().join(file), "secret").unwrap();
        }
        Self { home, rooms: None }
    }

    /// The same with rooms.
    fn with_rooms() -> Self {
        Self { rooms: Loopback::make(), ..Self::new() }
    }

    fn policy(&self, level: Level, network: bool) -> Policy {
        Policy {
            level,
            network,
            writable: vec![self.home.path().join("work")],
            hidden: vec![self.home.path().join("hidden")],
            kept: Vec::new(),
            git_settings: false,
        }
    }

    fn invocation(&self, policy: Policy, script: &str, files: Vec<PathBuf>) -> Invocation {
        Invocation {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            directory: self.home.path().join("work"),
            environment: crate::base::process::environment(
                [("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
                &BTreeMap::new(),
            ),
            confinement: Some(Confinement { policy: Arc::new(policy), files, loopback: None }),
        }
    }

    async fn run(&self, policy: Policy, script: &str, files: Vec<PathBuf>) -> Finished {
        let mut invocation = self.invocation(policy, script, files);
        if let Some(rooms) = &self.rooms {
            let confinement = invocation.confinement.as_mut().unwrap();
            rooms.furnish(&confinement.policy).unwrap();
            confinement.loopback = Some(Arc::clone(rooms));
        }
        let limits = RunLimits { timeout: Duration::from_secs(60), output_bytes_max: 50_000 };
        run(&invocation, limits, &CancellationToken::new()).await.unwrap()
    }

    /// Runs a script of which only the success matters.
    async fn works(&self, level: Level, script: &str) -> bool {
        let finished = self.run(self.policy(level, false), script, Vec::new()).await;
        finished.ending.code() == Some(0)
    }

    fn exists(&self, below: &str) -> bool {
        self.home.path().join(below).exists()
    }
}

/// A directory that the sandbox does not hold for temporary; this checkout may lie in one that is.
fn beside_temporary() -> Option<tempfile::TempDir> {
    let temporary = ["/tmp", "/var/tmp", "/dev/shm"];
    // Where cargo builds, wherever that is.
    let built = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
    let places = ["/var/lib", "/opt", "/srv", env!("CARGO_MANIFEST_DIR")].map(std::path::PathBuf::from);
    let outside = built.into_iter().chain(places).filter(|place| !temporary.iter().any(|t| place.starts_with(t)));
    outside.filter_map(|place| tempfile::tempdir_in(place).ok()).next()
}

/// Whether this machine has all that is tested here; says so when not.
fn all_there() -> bool {
    let mut missing = support().missing();
    if beside_temporary().is_none() {
        missing.push("there is no place beside the temporary directories");
    }
    if !missing.is_empty() {
        eprintln!("not tested here, because {}", missing.join("; "));
    }
    missing.is_empty()
}

#[tokio::test]
async fn files_are_held_to_the_level() {
    if !all_there() {
        return;
    }
    for place in [Place::new(), Place::with_rooms()] {
        files_are_held(&place).await;
    }
}

async fn files_are_held(place: &Place) {
    let (no, write) = (Level::ReadOnly, Level::WorkspaceWrite);
    #[rustfmt::skip]
    let table = [
        // (script, may it at read-only, may it with a writable workspace)
        ("cat a ../beside/b /etc/passwd", true, true),
        ("echo x > new", false, true),
        ("echo x >> a", false, true),
        ("rm -f sub/x; mkdir sub/x", false, true),
        ("echo x > ../beside/new", false, false),
        ("echo x >> ../beside/b", false, false),
        ("rm ../beside/b", false, false),
        ("mv a ../beside/a", false, false),
        ("ln -s ../beside out; echo x > out/new", false, false),
        ("cd ../beside && echo x > new", false, false),
        ("echo x > /dev/null", true, true),
        ("echo x > /dev/stderr", true, true),
        ("truncate -s 0 ../beside/b", false, false),
        ("chmod 600 ../beside/b", false, false),
        ("touch -d 2020-01-01 ../beside/b", false, false),
        ("chmod 600 a", false, true),
        ("echo x > /proc/sys/kernel/hostname", false, false),
        ("t=$(mktemp) && echo x > $t && rm $t", false, true),
        ("cat ../hidden/token", false, false),
        ("ls ../hidden/token", false, false),
        ("cat /proc/$PPID/environ", false, false),
        ("echo x > .git/hooks/pre-commit", false, false),
        ("rm .git/hooks/pre-commit", false, false),
        ("echo x > .git/hooks/post-commit", false, false),
        ("cd .git/hooks && echo x > post-commit", false, false),
        ("mv .git .git2 && cp -r .git2 .git", false, false),
        ("echo x > .git/config", false, false),
        ("echo x > .git/index", false, true),
        ("umount .git/hooks", false, false),
        ("mount -t tmpfs none sub", false, false),
        ("unshare -m umount .git/hooks", false, false),
    ];
    for (script, at_read_only, at_write) in table {
        assert_eq!(place.works(no, script).await, at_read_only, "read-only: {script}");
        assert_eq!(place.works(write, script).await, at_write, "workspace-write: {script}");
    }
    assert!(!place.exists("beside/new") && place.exists("beside/b"));
    assert_eq!(std::fs::read_to_string(place.home.path().join("work/.git/hooks/pre-commit")).unwrap(), "secret");
    assert_eq!(std::fs::read_to_string(place.home.path().join("beside/b")).unwrap(), "secret");
}

#[tokio::test]
async fn a_file_may_be_named_besides() {
    if !all_there() {
        return;
    }
    let place = Place::new();
    let file = place.home.path().join("beside/b");
    let script = format!("echo x > {} && ! echo x > ../beside/c", file.display());
    let finished = place.run(place.policy(Level::ReadOnly, false), &script, vec![file.clone()]).await;
    assert_eq!(finished.ending.code(), Some(0), "{}", finished.output.text());
    assert_eq!(std::fs::read_to_string(file).unwrap(), "x\n");
}

/// Says `open` or the name of the error.
const CONNECT: &str = "python3 -c '
import socket, sys
def tried(family, address):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as s:
            s.settimeout(5); s.connect(address)
        return \"open\"
    except OSError as e:
        return type(e).__name__
kind = sys.argv[1]
if kind == \"unix\": print(tried(socket.AF_UNIX, sys.argv[2]))
elif kind == \"tcp\": print(tried(socket.AF_INET, (\"127.0.0.1\", int(sys.argv[2]))))
else:
    with socket.socket() as l:
        l.bind((\"127.0.0.1\", 0)); l.listen()
        print(tried(socket.AF_INET, l.getsockname()))
' ";

#[tokio::test]
async fn the_network_is_off_but_for_an_own_loopback() {
    if !all_there() {
        return;
    }
    let place = Place::new();
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = tcp.local_addr().unwrap().port();
    let socket = place.home.path().join("work/socket");
    let _unix = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let table = [
        (false, format!("tcp {port}"), "ConnectionRefusedError"),
        (false, "own".to_owned(), "open"),
        (false, format!("unix {}", socket.display()), "PermissionError"),
        (true, format!("tcp {port}"), "open"),
        (true, "own".to_owned(), "open"),
        (true, format!("unix {}", socket.display()), "open"),
    ];
    for (network, arguments, want) in table {
        let policy = place.policy(Level::WorkspaceWrite, network);
        let finished = place.run(policy, &format!("{CONNECT}{arguments}"), Vec::new()).await;
        assert_eq!(finished.output.text().trim(), want, "network {network}: {arguments}");
    }
}

#[tokio::test]
async fn nothing_outside_can_be_signalled() {
    if !all_there() {
        return;
    }
    let place = Place::new();
    let script = format!("kill -0 {}", std::process::id());
    assert!(!place.works(Level::WorkspaceWrite, &script).await);
    assert!(place.works(Level::WorkspaceWrite, "sleep 100 & kill $! && ! wait $!").await);
}

/// Makes a call to the kernel, and says the number of the error; 0: none.
const CALL: &str = "python3 -c '
import ctypes, sys
c = ctypes.CDLL(None, use_errno=True)
number, *rest = [ctypes.c_long(int(a)) if a != \"memory\" else ctypes.create_string_buffer(b\"\\xff\" * 7 + b\"\\x7f\" + b\"\\xff\" * 7 + b\"\\x7f\", 64) for a in sys.argv[1:]]
print(ctypes.get_errno() if c.syscall(number, *rest) == -1 else 0)
' ";

/// Calls by which one program reaches another without a signal, a file or a socket that is opened.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn calls_that_reach_other_programs_are_refused() {
    if !all_there() {
        return;
    }
    let us = i64::from(std::process::id());
    let (sti, linux) = (0x5412, 0x541C);
    let get_session_keyring = "0 -3 0";
    #[rustfmt::skip]
    let table = [
        (libc::SYS_prlimit64, format!("{us} 7 memory 0"), libc::EPERM), (libc::SYS_prlimit64, "0 4 0 memory".into(), 0),
        (libc::SYS_sched_setaffinity, format!("{us} 8 memory"), libc::EPERM), (libc::SYS_sched_setaffinity, "0 8 memory".into(), 0),
        (libc::SYS_sched_setscheduler, format!("{us} 0 memory"), libc::EPERM), (libc::SYS_sched_setparam, format!("{us} memory"), libc::EPERM),
        (libc::SYS_sched_setattr, format!("{us} memory 0"), libc::EPERM),
        (libc::SYS_setpriority, format!("0 {us} 5"), libc::EPERM), (libc::SYS_setpriority, "2 0 5".into(), libc::EPERM),
        (libc::SYS_setpriority, "0 0 5".into(), 0),
        (libc::SYS_ioprio_set, format!("1 {us} 16384"), libc::EPERM), (libc::SYS_ioprio_set, "3 0 16384".into(), libc::EPERM),
        (libc::SYS_ioctl, format!("0 {sti} memory"), libc::EPERM), (libc::SYS_ioctl, format!("0 {linux} memory"), libc::EPERM),
        (libc::SYS_keyctl, get_session_keyring.into(), libc::ENOSYS), (libc::SYS_add_key, "memory memory 0 0 -2".into(), libc::ENOSYS),
        (libc::SYS_request_key, "memory memory 0 0".into(), libc::ENOSYS), (libc::SYS_kcmp, format!("{us} {us} 0 0 0"), libc::ENOSYS),
        (libc::SYS_pidfd_getfd, "0 0 0".into(), libc::ENOSYS), (libc::SYS_process_madvise, "0 0 0 0 0".into(), libc::ENOSYS),
        (libc::SYS_process_mrelease, "0 0".into(), libc::ENOSYS),
    ];
    let place = Place::new();
    for network in [false, true] {
        // All in one shell: a start costs more than a call.
        let script: Vec<String> = table.iter().map(|(number, rest, _)| format!("{CALL}{number} {rest}")).collect();
        let finished = place.run(place.policy(Level::ReadOnly, network), &script.join("; "), Vec::new()).await;
        let said: Vec<i32> = finished.output.text().lines().map(|line| line.parse().unwrap_or(-1)).collect();
        let want: Vec<i32> = table.iter().map(|(_, _, want)| *want).collect();
        assert_eq!(said, want, "network {network}: {}", finished.output.text());
    }
}

#[tokio::test]
async fn pairs_of_sockets_reach_no_other() {
    if !all_there() {
        return;
    }
    let place = Place::new();
    let socket = place.home.path().join("work/socket");
    let _outside = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    let script = format!(
        "python3 -c '
import socket
def tried(kind):
    try:
        with socket.socketpair(socket.AF_UNIX, kind)[0] as s:
            s.connect(\"{}\")
        return \"open\"
    except OSError as e:
        return type(e).__name__
print(tried(socket.SOCK_DGRAM), tried(socket.SOCK_RAW))
a, b = socket.socketpair()
a.send(b\"x\")
'",
        socket.display()
    );
    for (network, want) in [(false, "PermissionError PermissionError\n"), (true, "open open\n")] {
        let finished = place.run(place.policy(Level::WorkspaceWrite, network), &script, Vec::new()).await;
        assert_eq!(finished.output.text(), want, "network {network}");
    }
}

/// The server hides its memory, and what it starts begins as a copy of it.
#[cfg(target_os = "linux")]
#[test]
#[allow(unsafe_code, reason = "what happens between fork and exec is what is tested")]
fn a_process_that_hides_its_memory_has_name_spaces() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if !all_there() {
        return;
    }
    use std::os::unix::process::CommandExt;
    let root = rustix::process::geteuid().is_root();
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let (user, group) = if root { (65534, 65534) } else { own };
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", "id -u; test -r /proc/self/environ"]).current_dir("/");
    let become_ordinary = move || {
        let (user, group) = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(group));
        if root {
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_gid(group)?;
            rustix::thread::set_thread_uid(user)?;
        }
        Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
    };
    let line = |id: u32| format!("{id} {id} 1").into_bytes();
    let identity = child::Identity::Mapped { users: line(user), groups: line(group) };
    let spaces = child::Spaces { identity, root: false, ..child::Spaces::new(&[], Vec::new(), Path::new("/")) };
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(become_ordinary);
    }
    child::put_on_plain(&mut command, Some(spaces), child::Gear::default());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{user}\n"));
}

/// A repository with a submodule, a worktree, and another repository below it.
fn real_repositories(place: &Place) {
    let git = |arguments: &[&str]| {
        let run = std::process::Command::new("git").args(arguments).current_dir(place.home.path()).output().unwrap();
        assert!(run.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    };
    std::fs::remove_dir_all(place.home.path().join("work")).unwrap();
    for directory in ["work", "work/nested", "source"] {
        git(&["init", "-q", directory]);
        git(&["-C", directory, "-c", "user.name=T", "-c", "user.email=t@x", "commit", "-qm", "1", "--allow-empty"]);
    }
    let source = place.home.path().join("source");
    let add = ["-C", "work", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add"];
    git(&[&add[..], &[source.to_str().unwrap(), "module"]].concat());
    git(&["-C", "work", "worktree", "add", "-q", "tree"]);
}

#[tokio::test]
async fn what_git_runs_later_cannot_be_changed_in_any_repository() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    real_repositories(&place);
    #[rustfmt::skip]
    let table = [
        ("echo x >> .git/config", false), ("echo x > .git/hooks/pre-commit", false), ("mv .git g", false),
        ("echo x >> .git/modules/module/config", false), ("echo x > .git/modules/module/hooks/pre-commit", false),
        ("mv .git/modules .git/m", false), ("mv .git/modules/module .git/modules/m", false),
        ("echo x > .git/worktrees/tree/commondir", false), ("mv .git/worktrees .git/w", false), ("rm .git/worktrees/tree/gitdir", false),
        ("echo 'gitdir: /tmp/g' > module/.git", false), ("rm module/.git", false), ("echo x > tree/.git", false), ("mv tree/.git t", false),
        ("echo x >> nested/.git/config", false), ("echo x > nested/.git/hooks/pre-commit", false), ("mv nested/.git n", false),
        // What git itself does is done as before.
        ("echo 1 > a && git add a && git -c user.name=T -c user.email=t@x commit -qm 2", true),
        ("cd tree && echo 1 > b && git add b && git -c user.name=T -c user.email=t@x commit -qm 2", true),
        ("cd nested && echo 1 > c && git add c && git -c user.name=T -c user.email=t@x commit -qm 2", true),
        ("cd module && echo 1 > d && git add d && git -c user.name=T -c user.email=t@x commit -qm 2", true),
        ("git stash -u && git stash list && git status && git gc -q", true),
        ("git init -q new && echo x >> new/.git/config && rm -rf new", true),
    ];
    for (script, want) in table {
        let finished = place.run(place.policy(Level::WorkspaceWrite, false), script, Vec::new()).await;
        assert_eq!(finished.ending.code() == Some(0), want, "{script}: {}", finished.output.text());
    }
    // What is not there cannot be laid over: it is gone when the program has ended.
    for git in [".git", ".git/modules/module", "nested/.git"] {
        assert!(place.works(Level::WorkspaceWrite, &format!("mkdir -p /tmp && echo /tmp > {git}/commondir")).await);
        assert!(!place.exists(&format!("work/{git}/commondir")), "{git}");
    }
    // A file that the user has replaced is guarded again.
    std::fs::rename(place.home.path().join("work/.git/config"), place.home.path().join("work/.git/old")).unwrap();
    std::fs::copy(place.home.path().join("work/.git/old"), place.home.path().join("work/.git/config")).unwrap();
    assert!(!place.works(Level::WorkspaceWrite, "echo x >> .git/config").await);
}

/// What the guarded configuration and links lead to is as much git's as what lies in `.git`.
#[tokio::test]
async fn what_links_and_settings_lead_to_cannot_be_changed() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    real_repositories(&place);
    let at = |path: &str| place.home.path().join("work").join(path);
    for directory in [".husky/_", "scripts", "kept"] {
        std::fs::create_dir_all(at(directory)).unwrap();
    }
    for file in ["scripts/pc", "kept/common", ".husky/_/pre-push"] {
        std::fs::write(at(file), "").unwrap();
    }
    std::os::unix::fs::symlink("../../scripts/pc", at(".git/hooks/pre-commit")).unwrap();
    std::fs::rename(at("nested/.git"), at("nested/real")).unwrap();
    std::os::unix::fs::symlink("real", at("nested/.git")).unwrap();
    std::fs::remove_dir_all(at("nested/real/hooks")).unwrap();
    std::fs::create_dir(at("nested/hk")).unwrap();
    std::os::unix::fs::symlink("../hk", at("nested/real/hooks")).unwrap();
    for (key, value) in [("core.hooksPath", ".husky/_"), ("include.path", "../kept/common")] {
        let run = std::process::Command::new("git").args(["config", key, value]).current_dir(at("")).status().unwrap();
        assert!(run.success(), "{key}");
    }
    #[rustfmt::skip]
    let table = [
        ("echo x > .husky/_/pre-commit", false), ("mv .husky h", false), ("rm -r .husky/_", false),
        ("echo x >> kept/common", false), ("rm kept/common", false), ("mv kept k", false),
        ("echo x > scripts/pc", false), ("mv scripts s", false), ("rm -f .git/hooks/pre-commit", false),
        ("echo x >> nested/.git/config", false), ("echo x >> nested/real/config", false), ("rm -f nested/.git", false),
        ("mv nested/.git nested/g", false), ("mv nested/real nested/r", false), ("echo x > nested/hk/pre-commit", false),
        ("rm -f nested/.git/hooks", false), ("rm -rf nested/hk && mkdir nested/hk", false),
        ("echo x > scripts/other && mv scripts/other scripts/another", true), ("echo x > .husky/other", true),
        ("echo 1 > a && git add a && git -c user.name=T -c user.email=t@x commit -qnm 2", true),
        ("cd nested && echo 1 > c && git add c && git -c user.name=T -c user.email=t@x commit -qm 2", true),
    ];
    for (script, want) in table {
        let finished = place.run(place.policy(Level::WorkspaceWrite, false), script, Vec::new()).await;
        assert_eq!(finished.ending.code() == Some(0), want, "{script}: {}", finished.output.text());
    }
}

/// A hidden place stays hidden, and stays where it is.
#[tokio::test]
async fn the_way_to_a_hidden_place_cannot_be_moved() {
    if !all_there() {
        return;
    }
    for place in [Place::new(), Place::with_rooms()] {
        let at = |path: &str| place.home.path().join("work").join(path);
        std::fs::create_dir_all(at("deep/way/data")).unwrap();
        std::fs::write(at("deep/way/data/token"), "secret").unwrap();
        let policy = Policy { hidden: vec![at("deep/way/data")], ..place.policy(Level::WorkspaceWrite, false) };
        for (script, want) in [
            ("mv deep d", false),
            ("mv deep/way deep/w", false),
            ("mv deep/way/data deep/way/d", false),
            ("cat deep/way/data/token", false),
            ("echo x > deep/way/beside && mv deep/way/beside deep/way/b", true),
        ] {
            let finished = place.run(policy.clone(), script, Vec::new()).await;
            assert_eq!(finished.ending.code() == Some(0), want, "{script}: {}", finished.output.text());
        }
    }
}

/// A mount on a file ends when somebody gives the file's name to another one; what is in a hidden directory never had a name.
#[tokio::test]
async fn what_is_saved_anew_in_a_hidden_directory_stays_hidden() {
    if !all_there() {
        return;
    }
    for place in [Place::new(), Place::with_rooms()] {
        let at = |path: &str| place.home.path().join(path);
        // The file is named beside its directory, as settings name it.
        let hidden = vec![at("hidden"), at("hidden/token"), at("hidden/none/there")];
        let policy = Policy { hidden, ..place.policy(Level::WorkspaceWrite, false) };
        let script = "echo begun > begun; until [ -e enough ]; do cat ../hidden/token >> seen 2> /dev/null; echo x >> looks; done";
        let running = place.run(policy, script, Vec::new());
        let watching = async {
            let looks = || std::fs::metadata(at("work/looks")).map_or(0, |found| found.len());
            let more = async |than: u64| {
                while looks() < than {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            more(2).await;
            for round in 0..3 {
                std::fs::write(at("hidden/new"), format!("saved anew {round}")).unwrap();
                std::fs::rename(at("hidden/new"), at("hidden/token")).unwrap();
                more(looks() + 6).await;
            }
            std::fs::write(at("work/enough"), "").unwrap();
        };
        let (finished, ()) = tokio::join!(running, watching);
        assert_eq!(finished.ending.code(), Some(0), "{}", finished.output.text());
        assert_eq!(std::fs::read_to_string(at("work/seen")).unwrap(), "", "it was seen");
    }
}

#[tokio::test]
async fn a_kept_file_is_read_and_not_changed() {
    if !all_there() {
        return;
    }
    for place in [Place::new(), Place::with_rooms()] {
        let at = |path: &str| place.home.path().join("work").join(path);
        std::fs::create_dir_all(at("deep/conf/simse")).unwrap();
        for file in ["deep/conf/s.toml", "deep/conf/simse/config.toml"] {
            std::fs::write(at(file), "secret").unwrap();
        }
        let free = Policy {
            kept: vec![at("deep/conf/s.toml"), at("deep/conf/simse/config.toml"), at("none")],
            hidden: vec![at("deep/conf/simse")],
            ..place.policy(Level::WorkspaceWrite, false)
        };
        for (script, want) in [
            ("grep -q secret deep/conf/s.toml", true),
            ("cat deep/conf/simse/config.toml", false),
            ("echo x >> deep/conf/s.toml", false),
            ("rm deep/conf/s.toml", false),
            ("echo x > y && mv y deep/conf/s.toml", false),
            ("mv deep/conf deep/c", false),
            ("mv deep d", false),
            ("ln -f deep/conf/s.toml y && echo x >> y", false),
            ("chmod 666 deep/conf/s.toml", false),
            ("touch deep/conf/simse/new", false),
            ("echo x > deep/conf/beside", true),
        ] {
            let finished = place.run(free.clone(), script, Vec::new()).await;
            assert_eq!(finished.ending.code() == Some(0), want, "{script}: {}", finished.output.text());
        }
        assert_eq!(std::fs::read_to_string(at("deep/conf/s.toml")).unwrap(), "secret");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
#[allow(unsafe_code, reason = "no safe wrapper makes shared memory that has a number")]
async fn shared_memory_outside_is_not_there() {
    if !all_there() {
        return;
    }
    // SAFETY: it makes a segment, and gives its number.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, 0o600) };
    assert!(id >= 0);
    let script = format!("{CALL}{} {id} 0 0", libc::SYS_shmctl);
    for place in [Place::new(), Place::with_rooms()] {
        let finished = place.run(place.policy(Level::WorkspaceWrite, true), &script, Vec::new()).await;
        assert_eq!(finished.output.text(), format!("{}\n", libc::EINVAL));
    }
    // SAFETY: it removes the segment, which nobody has attached.
    assert_eq!(unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) }, 0, "it was there all the time");
}

/// Terminals of other sessions and of the user are out of reach; own ones can be made.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn terminals_are_a_programs_own() {
    if !all_there() {
        return;
    }
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&outside).unwrap();
    unlockpt(&outside).unwrap();
    let name = ptsname(&outside, Vec::new()).unwrap().into_string().unwrap();
    let own = "import os; m, s = os.openpty(); os.write(s, b\"x\"); print(os.read(m, 1), os.ttyname(s))";
    for place in [Place::new(), Place::with_rooms()] {
        for (script, want) in [
            (format!("stat {name}"), false),
            (format!("echo x > {name}"), false),
            (format!("python3 -c '{own}'"), true),
        ] {
            let finished = place.run(place.policy(Level::ReadOnly, false), &script, Vec::new()).await;
            assert_eq!(finished.ending.code() == Some(0), want, "{script}: {}", finished.output.text());
        }
        // The one that it runs on can be opened again.
        let policy = place.policy(Level::ReadOnly, false);
        let mut invocation = place.invocation(policy, "echo a > /dev/stderr && echo b > /dev/tty", Vec::new());
        invocation.confinement.as_mut().unwrap().loopback.clone_from(&place.rooms);
        let size = crate::base::process::TerminalSize::default();
        let (mut program, mut output, _terminal) = crate::base::process::follow(&invocation, Some(size)).unwrap();
        let mut said = Vec::new();
        let mut chunk = [0; 1024];
        loop {
            match output.read(&mut chunk).await {
                0 => break,
                count => said.extend_from_slice(&chunk[..count]),
            }
        }
        assert_eq!(String::from_utf8_lossy(&said), "a\r\nb\r\n");
        assert_eq!(program.wait().await.unwrap(), crate::base::process::Ending::Exited(0));
    }
}

#[tokio::test]
async fn redirected_repositories_are_restored_through_no_link() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    real_repositories(&place);
    std::fs::create_dir_all(place.home.path().join("beside/.git")).unwrap();
    std::fs::write(place.home.path().join("beside/.git/commondir"), "somebody else's").unwrap();
    assert!(place.works(Level::WorkspaceWrite, "mv nested n && ln -s ../beside nested").await);
    assert!(place.works(Level::WorkspaceWrite, "true").await);
    assert!(place.exists("beside/.git/commondir"), "nothing outside is taken away");
}

#[tokio::test]
async fn where_a_link_lies_now_nothing_may_be_written() {
    let Some(home) = beside_temporary().filter(|_| all_there()) else { return };
    for kernel in [support(), Support { namespaces: false, processes: false, ..support() }] {
        let at = |name: &str| home.path().canonicalize().unwrap().join(name);
        for name in ["work", "beside"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let policy = Policy {
            level: Level::WorkspaceWrite,
            network: true,
            writable: vec![at("work")],
            hidden: Vec::new(),
            kept: Vec::new(),
            git_settings: false,
        };
        let touches = |name: &str| {
            let mut command = tokio::process::Command::new("/bin/sh");
            command.args(["-c", "echo x > \"$0\""]).arg(at(name)).stderr(std::process::Stdio::null());
            let cage = Cage::prepare_with(kernel, &policy, (Path::new("/"), &[]), None);
            let started = cage.and_then(|cage| {
                cage.put_on(&mut command);
                command.spawn()
            });
            async move {
                match started {
                    Ok(mut child) => child.wait().await.unwrap().success(),
                    Err(_) => false,
                }
            }
        };
        assert!(touches("work/a").await);
        assert!(!touches("beside/a").await);
        std::fs::rename(at("work"), at("away")).unwrap();
        std::os::unix::fs::symlink(at("beside"), at("work")).unwrap();
        assert!(!touches("work/a").await);
        assert!(!at("beside/a").exists());
        std::fs::remove_file(at("work")).unwrap();
        for name in ["away", "beside"] {
            std::fs::remove_dir_all(at(name)).unwrap();
        }
    }
}

/// Says what a shell in a room finds itself with: signals held back and ignored, its group and session, its open files.
const FOUND: &str = "grep -E '^Sig(Blk|Ign)' /proc/self/status; \
    read -r own _ _ _ group session terminal _ < /proc/self/stat; \
    test $own = $group && test $own = $session && test $terminal = 0 && echo leads; ls /proc/self/fd | wc -l; ";

#[tokio::test]
async fn a_program_in_a_room_starts_as_any_other_does() {
    if !all_there() {
        return;
    }
    let (alone, rooms) = (Place::new(), Place::with_rooms());
    let script =
        format!("{FOUND} echo $0; pwd | sed 's:.*/::'; cat; env | sed 's/=.*//' | sort | tr '\n' ' '; kill -11 $$");
    let mut said = Vec::new();
    for place in [&alone, &rooms] {
        let finished = place.run(place.policy(Level::WorkspaceWrite, false), &script, Vec::new()).await;
        assert_eq!(finished.ending, crate::base::process::Ending::Signalled(11));
        said.push(finished.output.text());
    }
    assert!(said[0].contains("SigBlk:\t0000000000000000\n") && said[0].contains("\nleads\n"), "{said:?}");
    assert_eq!(said[0], said[1]);
    // Our memory is as readable as before, once the other tests start nothing.
    use rustix::process::{DumpableBehavior, dumpable_behavior};
    while dumpable_behavior().unwrap() != DumpableBehavior::Dumpable {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn what_cannot_be_started_in_a_room_is_said() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    let policy = place.policy(Level::WorkspaceWrite, false);
    place.rooms.as_ref().unwrap().furnish(&policy).unwrap();
    let nothing = place.home.path().join("work/a");
    let table = [
        ("/no/such", None, "cannot start /no/such: No such file or directory (os error 2)"),
        ("no-such", None, "no program no-such in PATH"),
        (nothing.to_str().unwrap(), None, "Permission denied (os error 13)"),
        ("/bin/sh", Some("/no/such"), "cannot start /bin/sh in /no/such: not a directory"),
        ("/bin/sh\0", None, "a text with a NUL in it"),
    ];
    for (program, directory, want) in table {
        let mut invocation = place.invocation(policy.clone(), "true", Vec::new());
        invocation.confinement.as_mut().unwrap().loopback.clone_from(&place.rooms);
        invocation.program = program.into();
        if let Some(directory) = directory {
            invocation.directory = directory.into();
        }
        let limits = RunLimits { timeout: Duration::from_secs(60), output_bytes_max: 50_000 };
        let error = run(&invocation, limits, &CancellationToken::new()).await.unwrap_err().to_string();
        assert!(error.ends_with(want), "{program}: {error}");
    }
}

#[tokio::test]
async fn many_start_at_once_and_each_ends_by_itself_or_with_us() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    let policy = || place.policy(Level::WorkspaceWrite, false);
    let all = (0..20).map(|number| {
        let script = format!("echo {number}; exit {number}");
        let (place, policy) = (&place, policy());
        async move { place.run(policy, &script, Vec::new()).await }
    });
    for (number, finished) in (0..).zip(futures_util::future::join_all(all).await) {
        assert_eq!((finished.ending.code(), finished.output.text()), (Some(number), format!("{number}\n")));
    }
    // One that is dropped is killed, and reaped.
    let mut invocation = place.invocation(policy(), "sleep 6017; echo > id", Vec::new());
    invocation.confinement.as_mut().unwrap().loopback.clone_from(&place.rooms);
    let running = tokio::spawn(async move {
        let limits = RunLimits { timeout: Duration::from_secs(60), output_bytes_max: 50_000 };
        run(&invocation, limits, &CancellationToken::new()).await
    });
    // By its words: its number in there is another one than out here.
    let runs = || {
        let ids = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
        ids.filter_map(|file| std::fs::read(file).ok()).any(|line| line.ends_with(b"sleep\x006017\0"))
    };
    while !runs() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    while runs() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_repository_without_hooks_gets_none() {
    if !all_there() {
        return;
    }
    let place = Place::new();
    std::fs::remove_dir_all(place.home.path().join("work/.git/hooks")).unwrap();
    assert!(!place.works(Level::WorkspaceWrite, "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit").await);
    assert!(!place.exists("work/.git/hooks/pre-commit"));
}

#[tokio::test]
async fn git_settings_may_be_let_free() {
    if !all_there() {
        return;
    }
    let place = Place::new();
    let policy = Policy { git_settings: true, ..place.policy(Level::WorkspaceWrite, false) };
    let finished = place.run(policy, "echo x > .git/config && rm .git/hooks/pre-commit", Vec::new()).await;
    assert_eq!(finished.ending.code(), Some(0), "{}", finished.output.text());
}

#[test]
fn what_is_missing_is_said() {
    let nothing = Support { landlock: 0, namespaces: false, processes: false, seccomp: false };
    assert_eq!(nothing.missing().len(), 3);
    assert_eq!(Support { landlock: 2, namespaces: true, processes: true, seccomp: true }.missing().len(), 1);
    assert_eq!(Support { landlock: 7, namespaces: true, processes: true, seccomp: true }.missing(), Vec::<&str>::new());
    let weaker = Support { landlock: 7, namespaces: true, processes: false, seccomp: true }.missing();
    assert!(weaker[0].starts_with("no name spaces for processes"), "{weaker:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn without_name_spaces_hidden_places_stay_unread() {
    if !all_there() {
        return;
    }
    let place = Place::new();
    let policy = place.policy(Level::WorkspaceWrite, false);
    let weaker = Support { namespaces: false, ..support() };
    for (script, want) in [
        ("cat ../hidden/token", false),
        ("cat a ../beside/b /etc/passwd", true),
        ("echo x > new", true),
        ("echo x > ../beside/new", false),
        ("python3 -c 'import socket; socket.socket()'", false),
    ] {
        let mut command = tokio::process::Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(Path::new(&policy.writable[0]));
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        Cage::prepare_with(weaker, &policy, (&policy.writable[0], &[]), None).unwrap().put_on(&mut command);
        assert_eq!(command.status().await.unwrap().success(), want, "{script}");
    }
}
#[tokio::test]
async fn programs_meet_on_a_loopback_that_is_kept() {
    if !all_there() {
        return;
    }
    let place = Place::new();
    let loopback = Loopback::make();
    let started = |script: String| {
        let policy = place.policy(Level::WorkspaceWrite, false);
        let mut invocation = place.invocation(policy, &script, Vec::new());
        invocation.confinement.as_mut().unwrap().loopback.clone_from(&loopback);
        invocation
    };
    let serve = "python3 -c '
import socket, pathlib
l = socket.socket(); l.bind((\"127.0.0.1\", 0)); l.listen()
pathlib.Path(\"port\").write_text(str(l.getsockname()[1]))
c, _ = l.accept(); c.close()'";
    let limits = RunLimits { timeout: Duration::from_secs(60), output_bytes_max: 50_000 };
    let cancel = CancellationToken::new();
    let server_invocation = started(serve.into());
    let server = run(&server_invocation, limits, &cancel);
    let wait = "until test -s port; do sleep 0.01; done; ";
    let client_invocation = started(format!("{wait}{CONNECT} tcp $(cat port)"));
    let (server, client) = tokio::join!(server, run(&client_invocation, limits, &cancel));
    assert_eq!(client.unwrap().output.text().trim(), "open");
    assert_eq!(server.unwrap().ending.code(), Some(0));
}
