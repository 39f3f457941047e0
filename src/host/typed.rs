//! What typed text means to rules. Pure.
//!
//! Nobody knows what reads a terminal: a shell, or a program that a shell started. So all text is judged as the command
//! line that it would be to a shell, together with what stands on the line already, and text whose effect only the
//! terminal knows (a completion, the history, a correction) is judged as a command that cannot be known. Keys that
//! only end or stop something are no text.
//!
//! Invariant: a command typed in pieces is judged as a whole before the piece that sends it off.

/// Ctrl-C, Ctrl-D, Ctrl-Z, Ctrl-\: they end input, or stop a program.
const KEYS: [char; 4] = ['\u{3}', '\u{4}', '\u{1a}', '\u{1c}'];
/// Of an unfinished line so much is remembered; a longer one is not judged as text any more.
const LINE_BYTES_MAX: usize = 16 << 10;

/// What a call types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    /// Nothing, or keys that only end or stop something.
    Nothing,
    /// A command line.
    Command(String),
}

/// What typing `chars` behind `begun`, which stands on the line already, is to rules.
pub(super) fn typed(begun: &str, chars: &str) -> Typed {
    let (begun, rest) = without_keys(begun, chars);
    if rest.is_empty() {
        return Typed::Nothing;
    }
    let line = format!("{begun}{rest}").replace('\r', "\n");
    if line.chars().any(|c| (c.is_control() && c != '\n') || c == '!') {
        // No pattern covers it, and whatever a rule denies it may be.
        let shown: String = line.escape_debug().collect();
        return Typed::Command(format!("eval \"$typed\" '{}'", shown.replace('\'', r"'\''")));
    }
    Typed::Command(line.trim_end_matches('\n').to_owned())
}

/// What stands on the line once `chars` are typed behind `begun`.
pub(super) fn begun_after(begun: &str, chars: &str) -> String {
    let (begun, rest) = without_keys(begun, chars);
    let line = format!("{begun}{rest}").replace('\r', "\n");
    let ends = line.match_indices('\n').map(|(at, _)| at);
    // Behind a backslash the line goes on.
    let mut sent = ends.filter(|&at| line[..at].bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 0);
    let left = sent.next_back().map_or(line.as_str(), |at| &line[at + 1..]);
    if left.len() <= LINE_BYTES_MAX { left.to_owned() } else { "\0".to_owned() }
}

/// Without the keys that `chars` begin with: Ctrl-C and Ctrl-\ take the line away.
fn without_keys<'t>(begun: &'t str, chars: &'t str) -> (&'t str, &'t str) {
    let rest = chars.trim_start_matches(KEYS);
    let cleared = chars[..chars.len() - rest.len()].contains(['\u{3}', '\u{1c}']);
    (if cleared { "" } else { begun }, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::{Facts, Rules, Subject};
    use crate::protocol::{PermissionConfig, PermissionPolicy, PermissionRule};

    use PermissionPolicy::{Allow, Ask, Deny};

    #[test]
    fn text_is_a_command_line_and_keys_are_none() {
        #[rustfmt::skip]
        let table = [
            ("", "", None), ("", "\u{3}", None), ("rm x", "\u{3}", None), ("", "\u{4}\u{1a}", None),
            ("", "ls\n", Some("ls")), ("", "ls\r", Some("ls")), ("r", "m x\n", Some("rm x")), ("r\\\n", "m x\n", Some("r\\\nm x")),
            ("rm ", "\u{3}ls\n", Some("ls")), ("", "\n", Some("")), ("", "a\nb\n", Some("a\nb")),
            ("", "l\t\n", Some("eval \"$typed\" 'l\\t\\n'")), ("", "\u{1b}[A\n", Some("eval \"$typed\" '\\u{1b}[A\\n'")),
            ("", "!r\n", Some("eval \"$typed\" '!r\\n'")), ("\u{7f}", "x", Some("eval \"$typed\" '\\u{7f}x'")),
        ];
        for (begun, chars, want) in table {
            let want = want.map_or(Typed::Nothing, |line| Typed::Command(line.to_owned()));
            assert_eq!(typed(begun, chars), want, "{begun:?} {chars:?}");
        }
    }

    #[test]
    fn what_is_left_on_the_line() {
        #[rustfmt::skip]
        let table = [
            ("", "ls\n", ""), ("", "ls", "ls"), ("r", "m", "rm"), ("r", "m x\nl", "l"), ("r", "\\\n", "r\\\n"), ("r", "\\\\\n", ""),
            ("r\\\n", "m x\n", ""), ("rm", "\u{3}", ""), ("rm", "\u{4}", "rm"), ("a", "\r", ""), ("", "\u{1b}[A", "\u{1b}[A"),
        ];
        for (begun, chars, want) in table {
            assert_eq!(begun_after(begun, chars), want, "{begun:?} {chars:?}");
        }
        assert_eq!(begun_after("", &"x".repeat(LINE_BYTES_MAX + 1)), "\0", "no longer judged as text");
    }

    #[test]
    fn no_way_of_typing_gets_past_a_rule() {
        let rule = |pattern: &str, policy| PermissionRule {
            tool: "bash".into(),
            pattern: Some(pattern.into()),
            policy,
            category: None,
            annotations: None,
        };
        let decide = |default_policy, line: &str| {
            let rules = vec![rule("ls *", Allow), rule("rm *", Deny)];
            let rules = Rules::new(&PermissionConfig { default_policy, rules });
            let verdict = rules.decide(Facts::new("write_stdin", None, None), &Subject::Command(line.to_owned()));
            (verdict.policy, verdict.may_be_denied)
        };
        // What is typed piece by piece, and what the strictest answer on the way is when everything else is allowed.
        #[rustfmt::skip]
        let table: [(&[&str], PermissionPolicy); 12] = [
            (&["ls\n"], Allow), (&["make\n"], Allow), (&["rm x\n"], Deny), (&["r", "m x\n"], Deny), (&["r\\\n", "m x\n"], Deny),
            (&["ls; rm", " x\r"], Deny), (&["xrm x\u{1b}OH\u{7f}\n"], Ask), (&["\u{1b}[A\n"], Ask), (&["r\t x\n"], Ask),
            (&["!r\n"], Ask), (&["echo 'a\n", "'; rm x\n"], Deny), (&["alias l=rm\n"], Deny),
        ];
        for (pieces, want) in table {
            let (mut begun, mut strictest) = (String::new(), Allow);
            for piece in pieces {
                if let Typed::Command(line) = typed(&begun, piece) {
                    let (policy, unsure) = decide(Allow, &line);
                    assert!(policy != Ask || unsure, "a mode that allows must not lift it: {pieces:?}");
                    strictest = match (strictest, policy) {
                        (Deny, _) | (_, Deny) => Deny,
                        (Ask, _) | (_, Ask) => Ask,
                        (Allow, Allow) => Allow,
                    };
                }
                begun = begun_after(&begun, piece);
            }
            assert_eq!(strictest, want, "{pieces:?}");
        }
        assert_eq!(decide(Ask, "ls -l"), (Allow, false), "a rule about bash is about what is typed as well");
    }
}
