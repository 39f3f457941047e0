//! Small scripts inside arguments: whether `sed` and `awk` only do what they are there for.
//!
//! Invariant: no for whatever is not understood.

/// Whether a `sed` script neither runs commands nor writes or reads files by itself.
///
/// Understood: addresses (numbers, `$`, `/…/`), `!`, blocks, and the commands `s y p d q Q n N g G h H x P D l = b t T : #`
/// and `a i c` with text.
pub(super) fn sed_only_edits(script: &str) -> bool {
    let mut scan = Scan { rest: script };
    loop {
        scan.skip(|c| c.is_whitespace() || c == ';' || c == '{' || c == '}');
        if scan.rest.is_empty() {
            return true;
        }
        if !scan.address() {
            return false;
        }
        scan.skip(|c| c == ' ' || c == '!');
        let Some(command) = scan.next() else { return false };
        match command {
            's' | 'y' if !scan.substitution() => return false,
            's' | 'y' | 'p' | 'd' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | 'P' | 'D' | '=' | '{' | 'z' => {}
            'q' | 'Q' | 'l' => scan.skip(|c| c.is_ascii_digit() || c == ' '),
            // A label or a comment ends with its line; text may go on behind a backslash, and is only text.
            'b' | 't' | 'T' | ':' => scan.skip(|c| !matches!(c, ';' | '\n' | '}')),
            'a' | 'i' | 'c' | '#' if !scan.rest.contains('\n') => return true,
            '#' => scan.skip(|c| c != '\n'),
            _ => return false,
        }
        scan.skip(|c| c == ' ');
        if !scan.rest.is_empty() && !scan.rest.starts_with([';', '\n', '}', '{', '#']) && command != '{' {
            return false;
        }
    }
}

struct Scan<'a> {
    rest: &'a str,
}

impl Scan<'_> {
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let first = chars.next()?;
        self.rest = chars.as_str();
        Some(first)
    }

    fn skip(&mut self, what: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(what);
    }

    /// Up to the next `delimiter` that stands alone. False: there is none.
    fn past(&mut self, delimiter: char) -> bool {
        let mut class = false;
        while let Some(c) = self.next() {
            match c {
                '\\' => drop(self.next()),
                '\n' => return false,
                '[' => class = true,
                ']' => class = false,
                _ if c == delimiter => return !class,
                _ => {}
            }
        }
        false
    }

    fn address(&mut self) -> bool {
        loop {
            if self.rest.starts_with('/') {
                self.next();
                if !self.past('/') {
                    return false;
                }
                self.skip(|c| matches!(c, 'I' | 'M'));
            } else if self.rest.starts_with('\\') {
                return false;
            } else {
                self.skip(|c| c.is_ascii_digit() || matches!(c, '$' | '~' | '+'));
            }
            if !self.rest.starts_with(',') {
                self.skip(|c| c == ' ');
                return true;
            }
            self.next();
        }
    }

    /// `/old/new/flags` of `s` and `y`; of the flags, those that neither run nor write.
    fn substitution(&mut self) -> bool {
        let delimiter = self.next().unwrap_or('\n');
        if delimiter.is_alphanumeric()
            || matches!(delimiter, '\\' | '\n' | '[' | ']' | crate::permission::shell::UNKNOWN)
        {
            return false;
        }
        if !self.past(delimiter) || !self.past(delimiter) {
            return false;
        }
        self.skip(|c| c.is_ascii_digit() || matches!(c, 'g' | 'p' | 'i' | 'I' | 'M' | 'm'));
        true
    }
}

/// Whether an `awk` program neither runs commands nor reads or writes files by itself.
pub(super) fn awk_only_prints(program: &str) -> bool {
    if ["system", "getline", "@", "ENVIRON", "close("].iter().any(|word| program.contains(word)) {
        return false;
    }
    // Behind `print` a `>` is a redirection, and a `|` that is not half of an "or" is a pipe.
    let pipes = program.replace("||", "");
    !pipes.contains('|')
        && program.split("print").skip(1).all(|statement| {
            let end = statement.find([';', '}', '\n']).unwrap_or(statement.len());
            !statement[..end].contains('>')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sed_scripts() {
        #[rustfmt::skip]
        let table = [
            ("s/a/b/", true), ("s/a/b/g", true), ("1,5p", true), ("/x/d", true), ("$!N;s/\\n/ /;p", true), ("s|a|b|gI; s#c#d#2", true),
            ("/a/,/b/{s/x/y/;p}", true), ("3q", true), ("y/ab/cd/", true), ("1i hello", true), ("# only words", true), ("", true), ("5,$d", true),
            ("s/a/b/e", false), ("s/a/b/ge", false), ("s/a/b/w out", false), ("1e ls", false), ("e", false), ("w /etc/x", false), ("1,3w out", false),
            ("r /etc/passwd", false), ("W x", false), ("p;w x", false), ("s/a/b/\ne", false), ("s/a", false), ("1i\\\nx\ne ls", false),
            ("/x/e", false), ("{e}", false), ("s/[/]/e/e", false), ("b x;e", false),
        ];
        for (script, want) in table {
            assert_eq!(sed_only_edits(script), want, "{script:?}");
        }
    }

    #[test]
    fn awk_programs() {
        #[rustfmt::skip]
        let table = [
            ("{print $1}", true), ("$3 > 5 {print $1}", true), ("/a/ || /b/", true), ("-F:", true), ("{s += $1} END {print s}", true),
            ("{system(\"ls\")}", false), ("{print | \"sh\"}", false), ("{print > \"x\"}", false), ("{printf \"a\" >> f}", false),
            ("{\"ls\" | getline}", false), ("@load \"x\"", false), ("BEGIN{f=\"sys\"; @f(\"x\")}", false),
        ];
        for (program, want) in table {
            assert_eq!(awk_only_prints(program), want, "{program:?}");
        }
    }
}
