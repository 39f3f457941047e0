//! README.md names every setting and every exit code. Its examples run in `__test__/readme.test.mjs`.

use simse::config::Options;

const README: &str = include_str!("../../README.md");

#[test]
fn every_setting_has_a_row() {
    for name in Options::NAMES {
        let flag = format!("`--{}`", name.replace('_', "-"));
        let in_file = format!("`{name}` (file)");
        let row =
            README.lines().any(|line| line.starts_with("| ") && (line.contains(&flag) || line.contains(&in_file)));
        assert!(row, "README.md, Configuration: no row for {flag}");
    }
}

#[test]
fn every_row_is_a_setting() {
    let table = README.split("## Configuration").nth(1).expect("there is a section Configuration");
    let flags = table.lines().filter_map(|line| line.strip_prefix("| `--")?.split('`').next());
    let unknown: Vec<&str> = flags.filter(|flag| !Options::NAMES.contains(&flag.replace('-', "_").as_str())).collect();
    assert!(unknown.is_empty(), "README.md has rows for {unknown:?}, which are no settings");
}
