//! Directories that are for their owner alone: made so, made so again, or refused. Whoever may write into one could put other
//! tokens there.
//!
//! Invariant: what [`prepare`] gives back as sound belongs to this user, and nobody else may write into it.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// What stands in a data directory, beside what these begin with and numbered directories. `lost+found` is a file system's own.
const OWN_NAMES: [&str; 9] =
    ["token", "tokens.json", "tokens.lock", "server.json", "lock", "programs", "embedded", "outputs", "lost+found"];
/// Databases with what lies beside them, and files that were being written when a process ended.
const OWN_BEGINNINGS: [&str; 4] = ["simse.db", "snapshots.db", "memory.db", ".tmp"];

/// Makes the directory and those above it, for this user alone, where they are not there. One that is there, and open to
/// others, is closed to them when it is empty or holds nothing but what is ours.
///
/// # Errors
/// The system's words; `PermissionDenied` when it belongs to somebody else, or others may write into it and it holds other
/// things, too.
pub fn prepare(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mode = check(directory)?;
    if mode & 0o077 != 0 && holds_only_ours(directory)? {
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// What [`prepare`] would refuse of a directory that is there. Its mode. Changes nothing.
///
/// # Errors
/// As [`prepare`].
pub fn check(directory: &Path) -> io::Result<u32> {
    let denied = |problem: String| io::Error::new(ErrorKind::PermissionDenied, problem);
    let found = fs::metadata(directory)?;
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != own {
        let owner = found.uid();
        return Err(denied(format!(
            "it belongs to the user {owner}, and this is the user {own}: run as that user, or `chown {own}` it"
        )));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o022 != 0 && !holds_only_ours(directory)? {
        let shown = directory.display();
        return Err(denied(format!(
            "other users may write into it (mode {mode:04o}), and it holds other things than ours: `chmod 700 {shown}`, or name a \
             directory that is for simse alone"
        )));
    }
    Ok(mode)
}

fn holds_only_ours(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        if !entry?.file_name().to_str().is_some_and(is_ours) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_ours(name: &str) -> bool {
    let numbered = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    numbered || OWN_NAMES.contains(&name) || OWN_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn what_is_ours_is_closed_and_what_others_may_write_is_refused() {
        #[rustfmt::skip]
        let table: &[(u32, &[&str], Result<u32, &str>)] = &[
            (0o700, &[], Ok(0o700)), (0o755, &[], Ok(0o700)), (0o777, &[], Ok(0o700)), (0o1777, &[], Ok(0o700)),
            (0o750, &["simse.db", "simse.db-wal", "simse.db.v7.bak", "token", "tokens.json", "lock", "0", ".tmpA1b2"], Ok(0o700)),
            (0o777, &["server.json", "memory.db", "snapshots.db-shm", "outputs", "lost+found"], Ok(0o700)),
            (0o755, &["notes.txt"], Ok(0o755)), (0o500, &["notes.txt"], Ok(0o500)),
            (0o777, &["notes.txt"], Err("mode 0777")), (0o775, &["token", "notes.txt"], Err("chmod 700")), (0o702, &["tokens"], Err("mode 0702")),
            (0o1777, &["x"], Err("mode 1777")),
        ];
        for (mode, names, want) in table {
            let home = tempfile::tempdir().unwrap();
            for name in *names {
                fs::write(home.path().join(name), "").unwrap();
            }
            fs::set_permissions(home.path(), Permissions::from_mode(*mode)).unwrap();
            let prepared = prepare(home.path()).map_err(|refused| refused.to_string());
            let left = fs::metadata(home.path()).unwrap().mode() & 0o7777;
            match want {
                Ok(want) => assert_eq!((prepared, left), (Ok(()), *want), "{mode:o} {names:?}"),
                Err(says) => {
                    let said = prepared.unwrap_err();
                    assert!(said.contains(says) && said.contains(&home.path().display().to_string()), "{said}");
                    assert_eq!(left, *mode, "what is refused is left alone");
                }
            }
        }
    }

    #[test]
    fn one_that_is_not_there_is_made_for_its_owner() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join("a/b");
        prepare(&deep).unwrap();
        assert_eq!(fs::metadata(home.path().join("a")).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&deep).unwrap().mode() & 0o777, 0o700);
        fs::write(home.path().join("file"), "").unwrap();
        assert!(prepare(&home.path().join("file")).is_err());
    }

    /// Only root can give something away; who is not root sees what is root's.
    #[test]
    fn one_of_another_user_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let theirs = home.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        let given = chown(&theirs, Some(12_345), None).is_ok();
        let (theirs, owner) = if given { (theirs.as_path(), 12_345) } else { (Path::new("/usr"), 0) };
        let said = prepare(theirs).unwrap_err().to_string();
        assert!(said.contains(&format!("belongs to the user {owner}")) && said.contains("chown"), "{said}");
    }
}
