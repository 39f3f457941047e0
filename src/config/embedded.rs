//! Where a server that a program embeds keeps its sessions when nobody says where.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::base::text::fnv1a;

/// The place for servers of a working directory: `<data home>/simse/embedded/<name>-<hash of the path>`.
///
/// Each server takes a numbered directory of its own in it. None when neither `XDG_DATA_HOME` nor `HOME` is set.
pub fn embedded_data_directory(working_directory: &Path) -> Option<PathBuf> {
    embedded(working_directory, &|name| std::env::var_os(name))
}

fn embedded(working_directory: &Path, lookup: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // As the XDG rules have it: a relative path does not count.
    let variable = |name: &str| lookup(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")))?;
    let name = working_directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let shown: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(40).collect();
    let hash = fnv1a(working_directory.as_os_str().as_encoded_bytes());
    Some(home.join("simse").join("embedded").join(format!("{shown}-{hash:016x}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(directory: &str, variables: &[(&str, &str)]) -> Option<String> {
        let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        embedded(Path::new(directory), &lookup).map(|path| path.to_string_lossy().into_owned())
    }

    #[test]
    fn each_working_directory_has_its_own_place() {
        let home = [("HOME", "/home/x")];
        let one = place("/work/app", &home).unwrap();
        assert!(one.starts_with("/home/x/.local/share/simse/embedded/app-"), "{one}");
        assert_eq!(place("/work/app", &home).as_ref(), Some(&one));
        assert_ne!(place("/other/app", &home), Some(one));
        let both = [("HOME", "/home/x"), ("XDG_DATA_HOME", "/data")];
        assert!(place("/work/app", &both).unwrap().starts_with("/data/simse/embedded/"));
        assert_eq!(place("/work/app", &[("XDG_DATA_HOME", "relative")]), None);
    }
}
