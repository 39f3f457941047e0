//! Gives replacement lines the indentation of the place they go to.
//!
//! What is known are pairs: a line of the old string, and the line of the file it was found at. A new
//! line that is indented like one of the old ones gets what the file has there; a deeper or
//! shallower one is counted from the nearest such pair, in the file's own unit (tabs stay tabs).

use super::lines::pair;

/// Columns of one level, where nothing tells.
const UNIT_COLUMNS: usize = 4;

/// A line of the old string and its line in the file.
#[derive(Debug, Clone, Copy)]
struct Known<'t> {
    /// Index in the old string.
    at: usize,
    old: &'t str,
    file: &'t str,
}

/// The blanks a line starts with.
pub(super) fn indent_of(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// `new` (lines without endings), re-indented. `found` gives for each old line its line in the file, where known.
pub(super) fn reindent(old: &[&str], found: &[Option<&str>], new: &[&str]) -> Vec<String> {
    let known: Vec<Known<'_>> = old
        .iter()
        .zip(found)
        .enumerate()
        .filter_map(|(at, (old, file))| {
            let file = file.filter(|file| !file.trim().is_empty() && !old.trim().is_empty())?;
            Some(Known { at, old: indent_of(old), file: indent_of(file) })
        })
        .collect();
    if known.iter().all(|known| known.old == known.file) {
        return new.iter().map(|line| (*line).to_owned()).collect();
    }
    let units = Units::of(&known);
    let trimmed = |lines: &[&str]| lines.iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let (old, bare) = (trimmed(old), trimmed(new));
    let old: Vec<&str> = old.iter().map(String::as_str).collect();
    let bare: Vec<&str> = bare.iter().map(String::as_str).collect();
    let stands_for = pair(&old, &bare);
    let line = |(line, at): (&&str, usize)| {
        if line.trim().is_empty() {
            return String::new();
        }
        let given = indent_of(line);
        format!("{}{}", indent_for(given, at, &known, &units), &line[given.len()..])
    };
    new.iter().zip(stands_for).map(line).collect()
}

fn indent_for(given: &str, at: usize, known: &[Known<'_>], units: &Units) -> String {
    let distance = |known: &&Known<'_>| known.at.abs_diff(at);
    if let Some(same) = known.iter().filter(|known| known.old == given).min_by_key(distance) {
        return same.file.to_owned();
    }
    let shallower = known.iter().filter(|known| given.starts_with(known.old));
    if let Some(base) = shallower.min_by_key(|known| (usize::MAX - known.old.len(), known.at.abs_diff(at))) {
        return format!("{}{}", base.file, units.in_file(&given[base.old.len()..]));
    }
    let deeper = known.iter().filter(|known| known.old.starts_with(given));
    if let Some(base) = deeper.min_by_key(|known| (known.old.len(), known.at.abs_diff(at))) {
        let less = units.in_file(&base.old[given.len()..]);
        return match base.file.strip_suffix(less.as_str()) {
            Some(rest) => rest.to_owned(),
            None => base.file.chars().take(base.file.chars().count().saturating_sub(less.len())).collect(),
        };
    }
    given.to_owned()
}

/// One level of indentation, in the old string and in the file.
#[derive(Debug)]
struct Units {
    old_columns: Option<usize>,
    file_columns: Option<usize>,
    file_tabs: bool,
}

impl Units {
    fn of(known: &[Known<'_>]) -> Self {
        Self {
            old_columns: step(known.iter().map(|known| known.old)),
            file_columns: step(known.iter().map(|known| known.file)),
            file_tabs: known.iter().any(|known| known.file.contains('\t')),
        }
    }

    /// Further indentation of the old string's kind, in the file's kind.
    fn in_file(&self, extra: &str) -> String {
        let old = self.old_columns.unwrap_or(UNIT_COLUMNS);
        let tabs = extra.matches('\t').count();
        let columns = extra.len() - tabs;
        if self.file_tabs {
            return "\t".repeat(tabs + columns / old) + &" ".repeat(columns % old);
        }
        let file = self.file_columns.unwrap_or(if tabs > 0 { UNIT_COLUMNS } else { old });
        if self.old_columns.is_some() && self.file_columns.is_some() {
            return " ".repeat(tabs * file + columns / old * file + columns % old);
        }
        " ".repeat(tabs * file + columns)
    }
}

/// The smallest difference between indentations made of spaces.
fn step<'t>(indents: impl Iterator<Item = &'t str>) -> Option<usize> {
    let mut widths: Vec<usize> = indents.filter(|indent| !indent.contains('\t')).map(str::len).collect();
    widths.sort_unstable();
    widths.dedup();
    widths.windows(2).map(|two| two[1] - two[0]).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(old: &str, file: &str, new: &str, want: &str) {
        let lines = |text: &'static str| text.split('\n').collect::<Vec<_>>();
        let leak = |text: &str| lines(Box::leak(text.to_owned().into_boxed_str()));
        let found: Vec<Option<&str>> = leak(file).into_iter().map(Some).collect();
        assert_eq!(reindent(&leak(old), &found, &leak(new)).join("\n"), want, "{old:?} in {file:?}");
    }

    #[test]
    fn new_lines_go_where_the_old_ones_were() {
        #[rustfmt::skip]
        let table = [
            // moved to the right, with a new deeper line
            ("f:\n  a", "    f:\n      a", "f:\n  a\n    b\nc", "    f:\n      a\n        b\n    c"),
            // moved to the left
            ("    f:\n        a", "f:\n    a", "    f:\n        a\n            b", "f:\n    a\n        b"),
            // spaces asked, tabs found, one level deeper and one less
            ("    f:\n        a", "\tf:\n\t\ta", "    f:\n        a:\n            b\nz", "\tf:\n\t\ta:\n\t\t\tb\nz"),
            // tabs asked, spaces found
            ("f:\n\ta", "  f:\n    a", "f:\n\ta\n\t\tb", "  f:\n    a\n      b"),
            // two columns asked, four found
            ("f:\n  a", "f:\n    a", "f:\n  a\n    b", "f:\n    a\n        b"),
            // all indentation forgotten: each line goes where its like was
            ("f:\na\nb", "f:\n    a\n        b", "f:\nA\nb", "f:\n    A\n        b"),
            // blank lines stay blank
            ("f:\n  a", "  f:\n    a", "f:\n\n  a\n   \n", "  f:\n\n    a\n\n"),
            // nothing differs: nothing is touched
            ("  a", "  a", "\t b", "\t b"),
        ];
        for (old, file, new, want) in table {
            check(old, file, new, want);
        }
    }
}
