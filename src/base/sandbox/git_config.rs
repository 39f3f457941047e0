//! Reads a configuration of git's, as far as is needed to see what else it leads to. Runs no git.

/// One setting: its section and its name in small letters, and its value. None: a name alone, which means yes.
pub(super) type Setting = (String, String, Option<String>);

/// All settings of a text, in their order. Of a section's second part nothing is said. What is malformed is passed over:
/// git itself then refuses the whole file.
pub(super) fn settings(text: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    let mut section = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut rest = line.trim_start();
        if let Some(header) = rest.strip_prefix('[') {
            let Some((name, after)) = header_of(header) else { continue };
            section = name;
            rest = after.trim_start();
        }
        let name_ends = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        let (name, after) = rest.split_at(name_ends);
        if name.is_empty() {
            continue;
        }
        let value = after.trim_start().strip_prefix('=').map(|first| value(first, &mut lines));
        found.push((section.clone(), name.to_ascii_lowercase(), value));
    }
    found
}

/// The section that a header names, and what follows the header.
fn header_of(header: &str) -> Option<(String, &str)> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, c) in header.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => {
                let name = header[..at].split([' ', '\t', '"', '.']).next().unwrap_or_default();
                return Some((name.to_ascii_lowercase(), &header[at + 1..]));
            }
            _ => {}
        }
    }
    None
}

/// A value, which may go on in the lines that follow.
fn value<'a>(first: &'a str, lines: &mut impl Iterator<Item = &'a str>) -> String {
    let mut value = String::new();
    // As far as something that counts goes; spaces at the end do not, unless quoted.
    let mut counts = 0;
    let mut quoted = false;
    let mut line = first.trim_start();
    'lines: loop {
        let mut characters = line.chars();
        while let Some(c) = characters.next() {
            match c {
                '\\' => match characters.next() {
                    None => {
                        let Some(next) = lines.next() else { break 'lines };
                        line = next;
                        continue 'lines;
                    }
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    Some('b') => drop(value.pop()),
                    Some(other) => value.push(other),
                },
                '"' => quoted = !quoted,
                '#' | ';' if !quoted => break 'lines,
                ' ' | '\t' | '\r' if !quoted => {
                    value.push(c);
                    continue;
                }
                _ => value.push(c),
            }
            counts = value.len();
        }
        break;
    }
    value.truncate(counts);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_git_reads_them() {
        let table = [
            ("[core]\n\thooksPath = .githooks\n", vec![("core", "hookspath", Some(".githooks"))]),
            (
                "[core] hooksPath=a # b\n[CORE]\nHooksPath = \"c # d\" ; e",
                vec![("core", "hookspath", Some("a")), ("core", "hookspath", Some("c # d"))],
            ),
            ("[includeIf \"gitdir:[x]/\"]\npath = \"a \\\"b\\\\c\"  \n", vec![("includeif", "path", Some("a \"b\\c"))]),
            (
                "[include]path = a\\\nb\\\n c\nbare\n",
                vec![("include", "path", Some("ab c")), ("include", "bare", None)],
            ),
            ("[core.sub]\nhooksPath =\n# x = y\n; [z]\n", vec![("core", "hookspath", Some(""))]),
            ("x = 1\n[broken\ny = 2\n", vec![("", "x", Some("1")), ("", "y", Some("2"))]),
            ("[a]\r\nb = c\r\n", vec![("a", "b", Some("c"))]),
        ];
        for (text, want) in table {
            let want: Vec<Setting> =
                want.into_iter().map(|(s, n, v)| (s.into(), n.into(), v.map(String::from))).collect();
            assert_eq!(settings(text), want, "{text:?}");
        }
    }
}
