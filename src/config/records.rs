//! Where notes lie about changes of several files that are being made, so that a crash leaves none of them half made.

use std::ffi::OsString;
use std::path::PathBuf;

/// The directory of such notes: `<state home>/simse/changes`; below the directory for temporary files when neither
/// `XDG_STATE_HOME` nor `HOME` is set.
///
/// Never inside a working directory: what lies there may come from anywhere, and a note is acted upon.
pub fn change_records_directory() -> PathBuf {
    directory(&|name| std::env::var_os(name)).unwrap_or_else(|| {
        let user = rustix::process::getuid().as_raw();
        std::env::temp_dir().join(format!("simse-{user}")).join("changes")
    })
}

fn directory(lookup: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let variable = |name: &str| lookup(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(home.join("simse").join("changes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_home_or_the_usual_place() {
        #[rustfmt::skip]
        let table: &[(&[(&str, &str)], Option<&str>)] = &[
            (&[("HOME", "/h")], Some("/h/.local/state/simse/changes")), (&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")], Some("/s/simse/changes")),
            (&[("HOME", "/h"), ("XDG_STATE_HOME", "relative")], Some("/h/.local/state/simse/changes")), (&[], None),
        ];
        for (variables, want) in table {
            let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            assert_eq!(directory(&lookup), want.map(PathBuf::from), "{variables:?}");
        }
        assert!(change_records_directory().ends_with("changes"));
    }
}
