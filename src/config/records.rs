//! Where this program keeps what is its own and not data: notes about changes of several files that are being made, so that
//! a crash leaves none of them half made, and whole outputs of commands.

use std::ffi::OsString;
use std::path::PathBuf;

/// `<state home>/simse`; None when neither `XDG_STATE_HOME` nor `HOME` is set.
///
/// Never inside a working directory: what lies there may come from anywhere, and a note is acted upon.
pub fn state_directory() -> Option<PathBuf> {
    directory(&|name| std::env::var_os(name))
}

/// The same below the directory for temporary files: where there is no other place.
pub fn temporary_state_directory() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("simse-{user}"))
}

/// The directory of the notes about changes.
pub fn change_records_directory() -> PathBuf {
    state_directory().unwrap_or_else(temporary_state_directory).join("changes")
}

fn directory(lookup: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let variable = |name: &str| lookup(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(home.join("simse"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_home_or_the_usual_place() {
        #[rustfmt::skip]
        let table: &[(&[(&str, &str)], Option<&str>)] = &[
            (&[("HOME", "/h")], Some("/h/.local/state/simse")), (&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")], Some("/s/simse")),
            (&[("HOME", "/h"), ("XDG_STATE_HOME", "relative")], Some("/h/.local/state/simse")), (&[], None),
        ];
        for (variables, want) in table {
            let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            assert_eq!(directory(&lookup), want.map(PathBuf::from), "{variables:?}");
        }
        assert!(change_records_directory().ends_with("changes"));
    }
}
