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

    /// Up to the next `delimiter` that stands alone. False: there is none, or it stands inside `[…]` of an
    /// expression, where one `sed` goes on and another ends.
    fn past(&mut self, delimiter: char, expression: bool) -> bool {
        while let Some(c) = self.next() {
            match c {
                '\\' => drop(self.next()),
                '\n' => return false,
                '[' if expression && !self.past_class(delimiter) => return false,
                _ if c == delimiter => return true,
                _ => {}
            }
        }
        false
    }

    /// Behind the `]` of a class. False: its end is not where everybody sees it.
    fn past_class(&mut self, delimiter: char) -> bool {
        self.rest = self.rest.strip_prefix('^').unwrap_or(self.rest);
        let mut first = true;
        while let Some(c) = self.next() {
            match c {
                ']' if first => return false,
                ']' => return true,
                '\n' => return false,
                '[' if self.rest.starts_with([':', '.', '=']) => {
                    let Some(sign) = self.next() else { return false };
                    let end = format!("{sign}]");
                    let Some((name, after)) = self.rest.split_once(&end) else { return false };
                    if name.contains([delimiter, '[', ']']) {
                        return false;
                    }
                    self.rest = after;
                }
                '\\' if self.rest.starts_with([']', '\\']) => return false,
                _ if c == delimiter => return false,
                _ => {}
            }
            first = false;
        }
        false
    }

    fn address(&mut self) -> bool {
        loop {
            if self.rest.starts_with('/') {
                self.next();
                if !self.past('/', true) {
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
        if !self.past(delimiter, true) || !self.past(delimiter, false) {
            return false;
        }
        self.skip(|c| c.is_ascii_digit() || matches!(c, 'g' | 'p' | 'i' | 'I' | 'M' | 'm'));
        true
    }
}

/// Whether an `awk` program neither runs commands nor reads or writes files by itself.
///
/// Behind `print`, up to the end of the statement, a `>` writes a file; a `|` that is not half of an "or" is a pipe
/// anywhere. Strings, expressions between slashes and comments are text.
pub(super) fn awk_only_prints(program: &str) -> bool {
    let mut scan = Scan { rest: program };
    let (mut printing, mut value) = (false, false);
    while let Some(c) = scan.next() {
        // After a value a slash divides; elsewhere it begins an expression.
        let after_value = std::mem::take(&mut value);
        match c {
            '"' => {
                if !scan.past('"', false) {
                    return false;
                }
                value = true;
            }
            '/' if !after_value => {
                if !scan.past('/', true) {
                    return false;
                }
                value = true;
            }
            '#' => scan.skip(|c| c != '\n'),
            '\\' if scan.rest.starts_with('\n') => value = after_value,
            '\\' | '@' | '`' | '\'' | crate::permission::shell::UNKNOWN => return false,
            '|' if scan.rest.starts_with('|') => drop(scan.next()),
            '|' => return false,
            '>' if printing => return false,
            ';' | '}' => printing = false,
            // `if (x) /a/` or `(x) / a / b`: only the grammar knows.
            ')' if divides_or_matches(scan.rest) => return false,
            ')' | ']' => value = true,
            ' ' | '\t' => value = after_value,
            '+' | '-' if scan.rest.starts_with(c) => {
                scan.next();
                value = after_value;
            }
            _ if c.is_alphanumeric() || c == '_' => {
                let rest = scan.rest;
                scan.skip(|c| c.is_alphanumeric() || c == '_');
                let length = c.len_utf8() + rest.len() - scan.rest.len();
                let start = program.len() - rest.len() - c.len_utf8();
                match &program[start..start + length] {
                    "system" | "getline" | "close" | "ENVIRON" => return false,
                    "print" | "printf" => printing = true,
                    "in" | "return" | "else" | "do" | "case" => {}
                    _ => value = true,
                }
            }
            _ => {}
        }
    }
    true
}

/// Whether a slash comes next, and another one in the same line.
fn divides_or_matches(rest: &str) -> bool {
    let next = rest.trim_start_matches([' ', '\t']);
    next.strip_prefix('/').and_then(|rest| rest.split('\n').next()).is_some_and(|line| line.contains('/'))
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
            ("s/[]/]/;b/e", false), ("s/[^]/]/;b/e", false), ("s/[[:space:]]*$//", true), ("s/[a-z]/[/", true), ("s/a/[/;e/x", false), ("s/[[:alpha:]/]/x/e", false),
            ("s/[\\]/]/e", false), ("/[0-9]/d", true),
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
            ("BEGIN{print \"a;\" > \"out\"}", false), ("BEGIN{print \"}\" > \"out\"}", false), ("BEGIN{print \"x\" \\\n> \"out\"}", false), ("{print $1,\n$2 > \"out\"}", false),
            ("/\"/ {print > \"x\"}", false), ("{print 1/2; print \"/\" > \"x\"}", false), ("{print $1 /2/ 3 > \"x\"}", false), ("{print a[1]/2 > \"x\" # /\n}", false), ("{if(x) /\"/; print y > z; /\"/}", false), ("END{print (s)/NR}", true),
            ("/a|b/", true), ("{print $1 \"|\" $2}", true), ("{print \"->\" $1}", true), ("{gsub(/a|b/,\"x\"); print}", true), ("{if ($3 > 5) print $1}", true), ("# it's\n{print}", true),
            ("{print $1; if (n > 3) n++}", true), ("{a++ / 2; print | \"sh\"}", false), ("{print \"a\\\"\" > \"x\"}", false), ("/a", false), ("\"a", false),
        ];
        for (program, want) in table {
            assert_eq!(awk_only_prints(program), want, "{program:?}");
        }
    }
}
