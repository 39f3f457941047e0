//! What nobody may do, whatever the rules say: commands that end a machine, a disk or an account, and whatever
//! touches the server's own data. One table, each entry with its reason.
//!
//! A command is looked for where it certainly runs: as a part of the line, behind `sudo` and its kind, in `sh -c`,
//! in `find -exec`. A word that only looks like one (`echo rm -rf /`, `grep reboot log`) is none: what stands here cannot be
//! lifted by anybody, so that a wrong hit would cost more than a question.
//!
//! Invariant: no rule, grant or mode turns a hit into a permission.

mod seen;

use std::path::{Component, Path, PathBuf};

use self::seen::{Here, fed, spread, with_values};
use super::pattern::by_name;
use super::shell::{Line, Part, UNKNOWN};
use super::{PathSubject, Subject};

/// One kind of thing that is never done.
#[derive(Debug)]
pub struct FloorEntry {
    /// Its name, for logs and explanations.
    pub name: &'static str,
    /// Why nobody may.
    pub reason: &'static str,
    found: fn(&Part, &Floor) -> bool,
}

/// The whole floor.
pub const FLOOR: [FloorEntry; 9] = [
    FloorEntry {
        name: "remove-root",
        reason: "it would remove the file system, a home directory or a system directory as a whole",
        found: removes_root,
    },
    FloorEntry { name: "format-disk", reason: "it would make a disk's content unreachable", found: formats_disk },
    FloorEntry {
        name: "write-disk",
        reason: "it would write past the file system, to a disk or to memory",
        found: writes_disk,
    },
    FloorEntry {
        name: "open-root",
        reason: "it would change rights or owners of everything below a root",
        found: opens_root,
    },
    FloorEntry { name: "stop-machine", reason: "it would stop or restart the machine", found: stops_machine },
    FloorEntry { name: "kill-all", reason: "it would end every process", found: kills_all },
    FloorEntry { name: "accounts", reason: "it would change who may log in or be root", found: changes_accounts },
    FloorEntry { name: "fork-bomb", reason: "it would start processes without end", found: |_, _| false },
    FloorEntry {
        name: "own-data",
        reason: "the server's own data (its token, its log) is nobody's",
        found: |_, _| false,
    },
];
const FORK_BOMB: usize = 7;
const OWN_DATA: usize = 8;

/// The floor, and what it protects on this machine.
#[derive(Debug, Clone, Default)]
pub struct Floor {
    protected: Vec<PathBuf>,
    home: Option<PathBuf>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorHit {
    /// Its place in [`FLOOR`].
    pub entry: usize,
    /// The command or path in which it was found.
    pub part: String,
}

/// Directories that are nobody's to remove as a whole.
const SYSTEM: [&str; 23] = [
    "/",
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/boot",
    "/dev",
    "/proc",
    "/sys",
    "/var",
    "/home",
    "/root",
    "/opt",
    "/run",
    "/srv",
    "/usr/bin",
    "/usr/lib",
    "/Users",
    "/System",
    "/Library",
    "/Applications",
];
/// How names of disks and of memory begin, behind `/dev/`.
const DISKS: [&str; 22] = [
    "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "mapper/", "md", "dm-", "loop", "ram", "mem", "kmem",
    "port", "nbd", "zvol/", "sr", "pmem", "block/", "vg",
];
/// Files that say who may log in or be root.
const ACCOUNTS: [&str; 6] =
    ["/etc/passwd", "/etc/shadow", "/etc/gshadow", "/etc/group", "/etc/sudoers", "/etc/sudoers.d"];

impl Floor {
    /// A floor that also protects these directories. `home` is what `~` stands for.
    pub fn new(protected: Vec<PathBuf>, home: Option<PathBuf>) -> Self {
        let home = home.filter(|home| home.is_absolute() && home.as_os_str() != "/");
        Self { protected: protected.into_iter().map(|path| by_name(&path)).collect(), home }
    }

    /// What of a call is never done; None: nothing. A command starts in the working directory, or below it.
    pub fn check(&self, subject: &Subject, working_directory: Option<&Path>) -> Option<FloorHit> {
        match subject {
            Subject::None => None,
            Subject::Command(command) => self.check_line((command, &Line::parse(command)), working_directory, false),
            Subject::Paths(paths) => self.check_paths(paths, working_directory),
        }
    }

    /// The same of a line, taken apart. `sure`: it starts in `directory`, and not in one below.
    pub(super) fn check_line(
        &self,
        (command, line): (&str, &Line),
        directory: Option<&Path>,
        sure: bool,
    ) -> Option<FloorHit> {
        let here = || Here::new(directory, sure);
        let variants = with_values(command, line);
        if variants.is_empty() {
            return self.check_parts(line, here(), directory);
        }
        variants.iter().find_map(|variant| self.check_parts(&Line::parse(variant), here(), directory))
    }

    fn check_parts(&self, line: &Line, mut here: Here, directory: Option<&Path>) -> Option<FloorHit> {
        if line.bomb {
            return Some(FloorHit { entry: FORK_BOMB, part: line.parts.first().map(Part::shown).unwrap_or_default() });
        }
        let mut before = None;
        for part in line.parts.iter().chain(&line.inner) {
            let spread = spread(part);
            let seen = here.see(&spread);
            let fed = fed(before, &spread).filter(|fed| FLOOR.iter().any(|entry| (entry.found)(fed, self)));
            let judged = fed.as_ref().unwrap_or(&seen);
            let found = FLOOR.iter().position(|entry| (entry.found)(judged, self));
            let found = found.or_else(|| self.touches_own(part, here.or(directory)).then_some(OWN_DATA));
            if let Some(entry) = found {
                return Some(FloorHit { entry, part: part.shown() });
            }
            // `cd / && rm -rf *`: where a root was gone to, what is here is the root.
            here.follow(part);
            before = Some(part);
        }
        None
    }

    fn check_paths(&self, paths: &[PathSubject], directory: Option<&Path>) -> Option<FloorHit> {
        let own = |path: &&PathSubject| {
            path.resolved.as_deref().is_some_and(|p| self.is_own(p, directory))
                || directory.is_some_and(|d| self.is_own(&by_name(&d.join(&path.given)), directory))
        };
        let hit = paths.iter().find(own)?;
        Some(FloorHit { entry: OWN_DATA, part: hit.given.clone() })
    }

    /// Whether a path lies in what is protected. A working directory in there is not.
    fn is_own(&self, path: &Path, directory: Option<&Path>) -> bool {
        self.protected
            .iter()
            .any(|own| path.starts_with(own) && !directory.is_some_and(|d| d.starts_with(own) && path.starts_with(d)))
    }

    fn touches_own(&self, part: &Part, directory: Option<&Path>) -> bool {
        if self.protected.is_empty() {
            return false;
        }
        let removes = match part.program() {
            Some("rm" | "mv" | "shred" | "rsync") => true,
            Some("chmod" | "chown") => has_option(part, &['R'], "recursive"),
            Some(_) | None => false,
        };
        // From elsewhere a word leads there only by a path that is absolute, or climbs.
        let apart =
            directory.is_some_and(|d| !self.protected.iter().any(|own| own.starts_with(d) || d.starts_with(own)));
        let climbs = |word: &str| word.starts_with(['/', '~']) || word.contains("..");
        let words = part.words.iter().skip(1).chain(part.redirects.iter().map(|r| &r.target)).chain(&part.reads);
        words.flat_map(|word| std::iter::once(word.as_str()).chain(word.split_once('=').map(|(_, v)| v))).any(|word| {
            if apart && !climbs(word) {
                return false;
            }
            let Some(path) = self.path_of(word, directory) else { return false };
            self.is_own(&path, directory)
                // What goes with all that is above it goes too.
                || (removes && path.as_os_str() != "/" && self.protected.iter().any(|own| own.starts_with(&path)))
        })
    }

    /// Where a word leads, as a path; None: nowhere that is known.
    fn path_of(&self, word: &str, directory: Option<&Path>) -> Option<PathBuf> {
        if word.is_empty() || word.starts_with('-') || !(word.contains(['/', '.', '~']) || directory.is_some()) {
            return None;
        }
        // What follows an unknown part is unknown; the directory before it is not.
        let known = match word.split_once(UNKNOWN) {
            Some((before, _)) => &before[..=before.rfind('/')?],
            None => word,
        };
        let path = match known.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                self.home.as_ref()?.join(rest.trim_start_matches('/'))
            }
            Some(_) => return None,
            None => directory.map_or_else(|| PathBuf::from(known), |d| d.join(known)),
        };
        path.is_absolute().then(|| by_name(&path))
    }

    /// Whether a word names a root: `/`, a home, a system directory, or all that is in one.
    fn is_root(&self, word: &str) -> bool {
        const ALL: &str = "/\u{F8FF}";
        let mut word = word;
        while word != "/" {
            let slash = word.strip_suffix('/');
            let Some(shorter) = slash.or_else(|| word.strip_suffix(ALL)).or_else(|| word.strip_suffix("/.")) else {
                break;
            };
            word = if shorter.is_empty() { "/" } else { shorter };
        }
        if word.contains(UNKNOWN) || word.is_empty() {
            return false;
        }
        if word.starts_with('~') && !word.contains('/') {
            return true;
        }
        let path = match word.strip_prefix("~/").zip(self.home.as_ref()) {
            Some((rest, home)) => by_name(&home.join(rest)),
            None => by_name(Path::new(word)),
        };
        let path = through_process(path);
        path.to_str().is_some_and(|path| SYSTEM.contains(&path) || path == "~") || self.home.as_ref() == Some(&path)
    }
}

/// `/etc` of `/proc/self/root/etc`.
fn through_process(path: PathBuf) -> PathBuf {
    let mut names = path.components().skip(1).map(Component::as_os_str);
    let is_through = names.next().is_some_and(|name| name == "proc")
        && names.next().is_some()
        && names.next().is_some_and(|name| name == "root");
    if is_through { Path::new("/").join(names.collect::<PathBuf>()) } else { path }
}

fn operands(part: &Part) -> impl Iterator<Item = &String> {
    part.words.iter().skip(1).filter(|word| !word.starts_with('-'))
}

fn has_option(part: &Part, letters: &[char], long: &str) -> bool {
    part.words.iter().skip(1).take_while(|word| *word != "--").any(|word| match word.strip_prefix("--") {
        Some(name) => name.len() > 1 && long.starts_with(name),
        None => word.starts_with('-') && word.contains(letters),
    })
}

fn is_disk(word: &str) -> bool {
    let path = by_name(Path::new(word));
    path.to_str()
        .and_then(|p| p.strip_prefix("/dev/"))
        .is_some_and(|name| DISKS.iter().any(|disk| name.starts_with(disk)))
}

fn removes_root(part: &Part, floor: &Floor) -> bool {
    let on_root = || operands(part).any(|word| floor.is_root(word));
    match part.program() {
        Some("rm") => {
            has_option(part, &[], "no-preserve-root") && part.words.iter().any(|w| w.starts_with("--no-p"))
                || (has_option(part, &['r', 'R'], "recursive") && on_root())
        }
        Some("mv") => {
            part.words.len() > 2 && part.words[1..part.words.len() - 1].iter().any(|word| floor.is_root(word))
        }
        Some("rsync") => {
            let deletes = part.words.iter().any(|word| word.starts_with("--del"));
            deletes && operands(part).last().is_some_and(|word| floor.is_root(word))
        }
        Some("find") => {
            // Without a condition on names, what is deleted is everything.
            let narrow = [
                "-name",
                "-iname",
                "-path",
                "-ipath",
                "-regex",
                "-iregex",
                "-wholename",
                "-newer",
                "-mtime",
                "-mmin",
                "-empty",
                "-size",
            ];
            let deletes = part
                .words
                .windows(2)
                .any(|two| two[0].starts_with("-exec") && matches!(two[1].as_str(), "rm" | "/bin/rm"))
                || part.words.iter().any(|word| word == "-delete");
            deletes
                && part.words.iter().skip(1).take_while(|w| !w.starts_with('-')).any(|w| floor.is_root(w))
                && !part.words.iter().any(|word| narrow.contains(&word.as_str()))
        }
        Some(_) | None => false,
    }
}

fn formats_disk(part: &Part, _: &Floor) -> bool {
    let Some(name) = part.program() else { return false };
    let on_disk = || operands(part).any(|word| is_disk(word) || word.starts_with([UNKNOWN, '$', '`']));
    let has = |words: &[&str]| part.words.iter().any(|word| words.contains(&word.as_str()));
    match name {
        "mkfs" | "mke2fs" | "mkswap" | "mkntfs" | "mkdosfs" | "wipefs" | "blkdiscard" | "newfs" => on_disk(),
        _ if name.starts_with("mkfs.") => on_disk(),
        "fdisk" | "sfdisk" | "cfdisk" | "gdisk" | "sgdisk" | "parted" => {
            on_disk() && !has(&["-l", "--list", "-p", "--print", "print", "-d", "--dump"])
        }
        "cryptsetup" => has(&["luksFormat", "erase", "luksErase"]),
        "zpool" | "zfs" => has(&["destroy"]),
        "lvremove" | "vgremove" | "pvremove" => true,
        "hdparm" => part.words.iter().any(|word| word.starts_with("--security-erase")),
        "nvme" => has(&["format", "sanitize"]),
        "diskutil" => part.words.iter().any(|word| word.to_ascii_lowercase().starts_with("erase")),
        _ => false,
    }
}

fn writes_disk(part: &Part, _: &Floor) -> bool {
    let redirected = part
        .redirects
        .iter()
        .any(|r| r.operator.contains('>') && (is_disk(&r.target) || r.target == "/proc/sysrq-trigger"));
    redirected
        || match part.program() {
            Some("dd") => part.words.iter().any(|word| word.strip_prefix("of=").is_some_and(is_disk)),
            Some("tee" | "shred" | "truncate") => {
                operands(part).any(|word| is_disk(word) || word == "/proc/sysrq-trigger")
            }
            Some("cp" | "mv" | "install") => {
                part.words.len() > 2 && part.words.last().is_some_and(|word| is_disk(word))
            }
            Some("badblocks") => has_option(part, &['w'], "write"),
            Some(_) | None => false,
        }
}

fn opens_root(part: &Part, floor: &Floor) -> bool {
    matches!(part.program(), Some("chmod" | "chown" | "chgrp" | "chattr" | "setfacl"))
        && (has_option(part, &['R'], "recursive") || closes(part))
        && operands(part).any(|word| floor.is_root(word))
}

/// `chmod 000`, `chmod a-x` and their kind: what lies below such a directory is out of reach.
fn closes(part: &Part) -> bool {
    let by_number = |mode: &str| {
        (3..=4).contains(&mode.len())
            && mode.bytes().all(|digit| (b'0'..=b'7').contains(&digit))
            && mode[mode.len() - 3..].starts_with(['0', '2', '4', '6'])
    };
    let by_letters = |mode: &str| {
        mode.split_once('-').is_some_and(|(who, rights)| {
            (who.is_empty() || who.contains(['a', 'u'])) && who.chars().all(|c| "augo".contains(c)) && {
                rights.contains('x') && rights.chars().all(|c| "rwxXst".contains(c))
            }
        })
    };
    part.program() == Some("chmod") && part.words.iter().skip(1).any(|word| by_number(word) || by_letters(word))
}

fn stops_machine(part: &Part, _: &Floor) -> bool {
    const VERBS: [&str; 9] =
        ["poweroff", "reboot", "halt", "kexec", "rescue", "emergency", "soft-reboot", "suspend", "hibernate"];
    let has = |words: &[&str]| part.words.iter().skip(1).any(|word| words.contains(&word.as_str()));
    match part.program() {
        Some("shutdown" | "reboot" | "halt" | "poweroff") => !has(&["--help", "--version", "-c"]),
        Some("init" | "telinit") => has(&["0", "1", "6", "s", "S"]) && part.words.len() == 2,
        Some("systemctl" | "loginctl") => has(&VERBS),
        Some("kill") => ends_first(&part.words[1..]),
        Some(_) | None => false,
    }
}

/// Whether the arguments of `kill` end the first process, with which all others go.
fn ends_first(arguments: &[String]) -> bool {
    const HARMLESS: [&str; 9] = ["0", "1", "HUP", "CONT", "WINCH", "CHLD", "l", "L", "l1"];
    let (signal, behind) = match arguments.split_first() {
        Some((option, rest)) if matches!(option.as_str(), "-s" | "-n" | "--signal") => {
            (rest.first().map_or("", String::as_str), rest.get(1..).unwrap_or_default())
        }
        Some((option, rest)) if option.starts_with('-') && option != "--" => (option.trim_start_matches('-'), rest),
        Some(_) | None => ("", arguments),
    };
    let harmless = HARMLESS.contains(&signal.to_ascii_uppercase().trim_start_matches("SIG")) || signal == "l";
    !harmless && behind.iter().any(|word| word == "1")
}

fn kills_all(part: &Part, _: &Floor) -> bool {
    match part.program() {
        // The first `-1` may be a signal; one behind it is everybody.
        Some("kill") => part.words.len() > 2 && part.words[2..].iter().any(|word| word == "-1"),
        Some("killall5") => true,
        Some(_) | None => false,
    }
}

fn changes_accounts(part: &Part, _: &Floor) -> bool {
    let is_account = |word: &str| {
        let path = by_name(Path::new(word));
        ACCOUNTS.iter().any(|file| path == Path::new(file) || (path.starts_with(file) && *file == "/etc/sudoers.d"))
    };
    part.redirects.iter().any(|r| r.operator.contains('>') && is_account(&r.target))
        || match part.program() {
            Some("tee" | "truncate" | "shred" | "rm") => operands(part).any(|word| is_account(word)),
            Some("cp" | "mv" | "install" | "ln") => {
                part.words.len() > 2 && part.words.last().is_some_and(|word| is_account(word))
            }
            Some("sed" | "perl") => {
                part.words.iter().any(|w| w.starts_with("-i") || w == "--in-place")
                    && operands(part).any(|word| is_account(word))
            }
            Some(_) | None => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floor() -> Floor {
        Floor::new(vec![PathBuf::from("/home/u/.local/share/simse")], Some(PathBuf::from("/home/u")))
    }

    fn hit(command: &str, directory: &str) -> Option<&'static str> {
        let subject = Subject::Command(command.to_owned());
        floor().check(&subject, Some(Path::new(directory))).map(|hit| FLOOR[hit.entry].name)
    }

    #[test]
    fn what_is_never_done() {
        #[rustfmt::skip]
        let table = [
            ("remove-root", "rm -rf /"), ("remove-root", "rm -rf /*"), ("remove-root", "rm -rf /*/"), ("remove-root", "rm -rf /{bin,usr}"), ("remove-root", "rm -fr -- /"), ("remove-root", "rm -r --force /"), ("remove-root", "rm --recursive /"),
            ("remove-root", "rm -rf ~"), ("remove-root", "rm -rf ~/"), ("remove-root", "rm -rf ~/*"), ("remove-root", "rm -rf $HOME"), ("remove-root", "rm -rf \"$HOME\"/*"),
            ("remove-root", "rm -rf ${HOME:?}/"), ("remove-root", "rm -rf /home/u"), ("remove-root", "rm -rf /etc /tmp/x"), ("remove-root", "rm -rf /usr/"), ("remove-root", "rm -rf //"),
            ("remove-root", "rm -rf /tmp/../"), ("remove-root", "rm -rf /./"), ("remove-root", "rm -rf --no-preserve-root x"), ("remove-root", "sudo rm -rf /"), ("remove-root", "sudo -u root rm -rf /"),
            ("remove-root", "sh -c 'rm -rf /'"), ("remove-root", "bash -lc \"sudo rm -rf /\""), ("remove-root", "ls; rm -rf /"), ("remove-root", "echo $(rm -rf /)"), ("remove-root", "nohup rm -rf / &"),
            ("remove-root", "timeout 5 rm -rf /"), ("remove-root", "env A=1 rm -rf /"), ("remove-root", "eval 'rm -rf /'"), ("remove-root", "cd / && rm -rf *"), ("remove-root", "cd; rm -rf ./*"),
            ("remove-root", "find / -delete"), ("remove-root", "find ~ -type f -exec rm {} +"), ("remove-root", "find . -exec rm -rf / \\;"), ("remove-root", "xargs rm -rf / < x"), ("remove-root", "r\\m -rf '/'"),
            ("remove-root", "/bin/rm -rf /"), ("remove-root", "sh <<E\nrm -rf /\nE"), ("remove-root", "rm -rf /; echo '"), ("remove-root", "mv ~ /tmp"), ("remove-root", "if true; then rm -rf /; fi"),
            ("remove-root", "busybox rm -rf /"), ("remove-root", "command rm -rf /"), ("remove-root", "trap 'rm -rf /' EXIT"), ("remove-root", "rm -rf ~root"),
            ("format-disk", "mkfs.ext4 /dev/sda1"), ("format-disk", "mkfs -t ext4 /dev/nvme0n1"), ("format-disk", "wipefs -a /dev/sdb"), ("format-disk", "sudo mkfs.xfs $X"), ("format-disk", "zpool destroy tank"),
            ("write-disk", "dd if=/dev/zero of=/dev/sda"), ("write-disk", "cat x > /dev/sda"), ("write-disk", "tee /dev/nvme0n1 < x"), ("write-disk", "cp x /dev/vda"), ("write-disk", "echo b > /proc/sysrq-trigger"),
            ("open-root", "chmod -R 777 /"), ("open-root", "chown -R u: ~"), ("open-root", "sudo chmod --recursive a+w /etc"),
            ("stop-machine", "shutdown -h now"), ("stop-machine", "sudo reboot"), ("stop-machine", "systemctl poweroff"), ("stop-machine", "init 0"), ("stop-machine", "/sbin/halt"),
            ("kill-all", "kill -9 -1"), ("accounts", "echo x >> /etc/passwd"), ("accounts", "sudo tee /etc/sudoers.d/x < y"), ("accounts", "cp x /etc/shadow"),
            ("fork-bomb", ":(){ :|:& };:"), ("fork-bomb", "f() { f | f & }; f"), ("fork-bomb", "bomb() { bomb; bomb; }; bomb"),
            ("own-data", "cat ~/.local/share/simse/token"), ("own-data", "cat $HOME/.local/share/simse/token"), ("own-data", "cat < ~/.local/share/simse/token"), ("own-data", "echo x > /home/u/.local/share/simse/token"),
            ("own-data", "rm -rf ~/.local/share"), ("own-data", "sqlite3 ../.local/share/simse/simse.db"), ("own-data", "cp x --target-directory=/home/u/.local/share/simse"),
            ("own-data", "cat /home/u/.local/share/simse/*"), ("own-data", "mv ~/.local x"), ("own-data", "rm -rf ~/.local/sh*"), ("own-data", "D=~/.local/share/simse; cat $D/token"),
            // Literal quoting, and values for want of others.
            ("remove-root", "rm -rf $'/'"), ("remove-root", "rm -rf $'\\x2f'"), ("remove-root", "rm -rf $'\\57etc'"), ("remove-root", "rm -rf ${X:-/}"), ("remove-root", "rm -rf \"${X:-/}\""), ("remove-root", "rm -rf ${X:=/usr}"), ("remove-root", "$'rm' -rf /"),
            ("remove-root", "rm -rf /proc/self/root"), ("remove-root", "rm -rf /proc/1/root/etc"), ("remove-root", "find / | xargs rm"), ("stop-machine", "echo reboot | sh"), ("remove-root", "echo 'rm -rf /' | sudo bash"),
            // Paths that climb, and what one line does with a directory before.
            ("remove-root", "rm -rf ../../../../../../.."), ("remove-root", "rm -rf ../../../../../../../*"), ("remove-root", "rm -rf ../../../../../../../usr"), ("remove-root", "rm -rf /.."), ("remove-root", "rm -rf /../.."),
            ("remove-root", "rm -rf /tmp/../../etc"), ("remove-root", "rm -rf ~/.."), ("remove-root", "cd /tmp && rm -rf ../etc"), ("remove-root", "cd /; rm -rf etc usr"), ("remove-root", "cd / && cd usr && rm -rf bin"),
            ("remove-root", "cd ../../../../../../../.. && rm -rf *"), ("remove-root", "cd ~ && rm -rf ."), ("open-root", "cd / && chmod -R 777 ."), ("remove-root", "cd -- / && rm -rf ./*"), ("remove-root", "pushd /; rm -rf *"),
            // All there is in a directory.
            ("remove-root", "rm -rf /{bin,usr}/"), ("remove-root", "rm -rf /{x,{y,usr}}"), ("remove-root", "rm -rf /?*"), ("remove-root", "rm -rf /[a-z]*"), ("remove-root", "rm -rf /**"), ("remove-root", "rm -rf ~/{*,x}"), ("remove-root", "rm -rf /*; echo '"),
            ("remove-root", "rsync -a --delete empty/ /"), ("remove-root", "rsync -a --delete-before x/ ~/"), ("remove-root", "rsync --del -r x/ /usr/"),
            // Variables that the line itself sets.
            ("remove-root", "x=/; rm -rf $x"), ("remove-root", "x=/; rm -rf \"$x\""), ("remove-root", "x=/ && rm -rf ${x}"), ("remove-root", "export d=/usr; rm -rf $d/*"), ("remove-root", "x=; rm -rf \"$x\"/*"), ("remove-root", "c=rm; $c -rf /"),
            ("remove-root", "for d in /tmp/x /usr; do rm -rf $d; done"), ("remove-root", "for d in a /; do rm -rf \"$d\"; done"), ("remove-root", "a=/; b=$a; rm -rf $b"), ("remove-root", "x=~; rm -rf $x"), ("remove-root", "c='rm -rf /'; $c"),
            ("remove-root", "x=/; sudo rm -rf ${x:?}"),
            // What a pipeline hands on.
            ("remove-root", "echo / | xargs rm -rf"), ("remove-root", "printf '/\\n' | xargs -0 rm -rf"), ("remove-root", "find / -print0 | xargs -0 rm -rf"), ("remove-root", "echo /usr /etc | sudo xargs rm -rf"), ("remove-root", "echo / | xargs -n1 sudo rm -rf"),
            ("open-root", "chmod 000 /"), ("open-root", "chmod 0600 /usr"), ("open-root", "chmod a-x /"), ("open-root", "chmod -x /"), ("open-root", "chmod u-rwx ~"),
            ("stop-machine", "kill -9 1"), ("stop-machine", "kill 1"), ("stop-machine", "sudo kill -KILL 1"), ("stop-machine", "kill -s TERM 1"), ("stop-machine", "kill 22 1"),
        ];
        for (want, command) in table {
            assert_eq!(hit(command, "/home/u/work"), Some(want), "{command}");
        }
    }

    #[test]
    fn what_only_looks_like_it() {
        #[rustfmt::skip]
        let table = [
            "rm -rf ${X:-/tmp/x}", "rm -rf ${X:-}/usr", "rm -rf $'build'", "echo $'/' '$'", "rm -rf /proc/self/rootless", "echo reboot | sh x.sh", "echo reboot | grep x",
            "rm -rf build", "rm -rf ./", "rm -rf /tmp/x", "rm -rf /home/u/work/x", "rm -rf $X", "rm /", "rm -rf ~/work/target", "echo rm -rf /", "git commit -m 'rm -rf /'", "grep -r reboot /var/log",
            "timeout 5 grep shutdown x", "sudo grep -r shutdown /etc", "cat /etc/passwd", "ls /", "ls -R /", "find / -name x", "find / -name '*.tmp' -delete", "find . -delete", "chmod -R u+w .", "chmod 755 /",
            "chown -R u: build", "dd if=/dev/zero of=x.img", "dd if=/dev/sda of=x.img", "dd if=x of=/dev/null", "cat x > /dev/null", "mkfs.ext4 disk.img", "fdisk -l /dev/sda", "systemctl status x", "kill -1 123",
            "kill -9 123", "shutdown --help", "man reboot", "cd build && rm -rf *", "cd / && ls", "f() { f; }; f", "f() { g; g; }; f", "cat ~/.local/share/other", "ls ~/.local", "rm -rf ~/.cache/x", "echo $HOME",
            "rm -rf ../x", "rm -rf ../../work/x", "cd sub && rm -rf ../out", "cd / && ls && cd /tmp && rm -rf *", "cd ~ && rm -rf bin", "cd /tmp/x && rm -rf ..", "cd $X && rm -rf *", "cd - && rm -rf *", "rm -rf /opt/$APP", "rm -rf /var/{log/x,cache/y}",
            "rm -rf /{tmp/a,tmp/b}", "rm -rf /usr/local/x*", "rm -rf /opt/\"$APP\"", "rm -rf '/*'", "x=/; ls $x", "x=/tmp/a; rm -rf $x", "x=/; x=/tmp/a; rm -rf $x", "x=$1; rm -rf $x", "x='; rm -rf /'; echo $x", "HOME=/tmp/h; rm -rf $HOME",
            "for d in a b; do rm -rf $d; done", "x=/; echo '$x'", "x=/; rm -rf ${x#/}tmp/a", "echo / | xargs ls", "echo a b | xargs rm -rf", "find / -name x | xargs rm -rf", "find build | xargs rm -rf", "echo x; ls / | wc", "rsync -a --delete a/ b/",
            "rsync -a --delete a/ host:/", "rsync -a / backup/", "chmod 700 ~", "chmod 750 /home", "chmod u+x /", "chmod 600 ~/.ssh/id", "chmod o-rwx /home", "kill -0 1", "kill -HUP 1", "kill -l 1", "kill -9 11", "kill %1", "kill -s HUP 1", "kill -1 1",
            "awk '/reboot/' x", "npm run halt", "docker exec c rm -rf /", "cp /etc/passwd x", "rm -rf \"~x/y\"", "git push", "",
        ];
        for command in table {
            assert_eq!(hit(command, "/home/u/work"), None, "{command}");
        }
        // A directory that somebody works in, inside of what is protected.
        assert_eq!(hit("cat x", "/home/u/.local/share/simse/work"), None);
        assert_eq!(hit("cat ../token", "/home/u/.local/share/simse/work"), Some("own-data"));
    }

    #[test]
    fn paths_of_file_tools() {
        let path = |given: &str, resolved: &str| PathSubject {
            below: false,
            given: given.into(),
            resolved: Some(resolved.into()),
        };
        let of = |p: PathSubject| floor().check(&Subject::Paths(vec![p]), Some(Path::new("/home/u"))).is_some();
        assert!(of(path("x/token", "/home/u/.local/share/simse/token")));
        assert!(of(path(".local/share/simse/token", "/elsewhere")));
        assert!(!of(path("a", "/home/u/a")));
    }
}
