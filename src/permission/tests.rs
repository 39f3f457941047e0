//! Command lines and paths, each with the only right answer.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;
use crate::protocol::{
    CategoryFilter, PermissionConfig, PermissionPolicy, PermissionRule, ToolAnnotations, ToolCategory, ToolDefinition,
};

pub(super) const ALLOW: PermissionPolicy = PermissionPolicy::Allow;
pub(super) const ASK: PermissionPolicy = PermissionPolicy::Ask;
pub(super) const DENY: PermissionPolicy = PermissionPolicy::Deny;

pub(super) fn rule(tool: &str, pattern: &str, policy: PermissionPolicy) -> PermissionRule {
    let pattern = (!pattern.is_empty()).then(|| pattern.to_owned());
    PermissionRule { tool: tool.to_owned(), pattern, policy, category: None, annotations: None }
}

fn config(default_policy: PermissionPolicy, rules: &[(&str, &str, PermissionPolicy)]) -> PermissionConfig {
    PermissionConfig { default_policy, rules: rules.iter().map(|&(t, p, policy)| rule(t, p, policy)).collect() }
}

fn facts(tool: &str) -> Facts<'_> {
    Facts::new(tool, None, Some(Path::new("/w")))
}

pub(super) fn bash(config: &PermissionConfig, command: &str) -> PermissionPolicy {
    decide(config, facts("bash"), &Subject::Command(command.to_owned())).policy
}

fn check(config: &PermissionConfig, table: &[(&str, PermissionPolicy)]) {
    let wrong: Vec<String> = table
        .iter()
        .filter_map(|(command, want)| {
            let got = bash(config, command);
            (got != *want).then(|| format!("{command:?}: got {got:?}, want {want:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Asks by default; some commands are allowed by patterns, others denied. The wrappers are allowed in vain.
fn patterns() -> PermissionConfig {
    let allowed = [
        "git *",
        "ls *",
        "echo *",
        "cat *",
        "head *",
        "grep *",
        "npm test",
        "cargo *",
        "python *",
        "cd *",
        "true",
        "test *",
        "git log > out/*",
        "CI=1 make *",
        "RUST_LOG=* cargo *",
        "sudo *",
        "sh *",
        "bash *",
        "xargs *",
        "find *",
        "env *",
        "eval *",
        "time *",
        "nohup *",
        "exec *",
        "command *",
        "timeout *",
        "source *",
        ". *",
        "[[ *",
        "(( *",
        "* --help",
    ];
    let mut rules: Vec<_> = allowed.iter().map(|pattern| rule("bash", pattern, ALLOW)).collect();
    rules.extend(["git push *", "rm *", "cat *.env"].map(|pattern| rule("bash", pattern, DENY)));
    rules.push(rule("bash", "git clean *", ASK));
    PermissionConfig { default_policy: ASK, rules }
}

#[test]
fn plain_commands_under_patterns() {
    #[rustfmt::skip]
    let table = [
        ("git status", ALLOW), ("git", ALLOW), ("  git   status  ", ALLOW), ("git\tstatus", ALLOW), ("git status\n", ALLOW),
        ("gitk", ASK), ("./git status", ASK), ("/usr/bin/git status", ASK), ("GIT status", ASK), ("npm test", ALLOW),
        ("npm test x", ASK), ("npm  'test'", ALLOW), ("npm", ASK), ("make", ASK), ("cargo test -- --nocapture", ALLOW),
        ("git commit -m 'a; rm -rf /'", ALLOW), ("git commit -m \"rm x\"", ALLOW), ("echo rm -rf /", ALLOW),
        ("echo 'git push'", ALLOW), ("git commit -m 'line\nline'", ALLOW), ("", ASK), ("# only words", ASK),
        ("echo a # rm x", ALLOW), ("whatever --help", ALLOW), ("git log --format='%h $(x)'", ALLOW),
        ("git log --grep=\\$x", ALLOW), ("echo \"it's\"", ALLOW), ("echo ~/x", ALLOW), ("git sta\\\ntus", ALLOW),
    ];
    check(&patterns(), &table);
}

#[test]
fn deny_finds_the_command_however_it_is_spelt() {
    #[rustfmt::skip]
    let table = [
        ("git push", DENY), ("git push origin main", DENY), ("git  push", DENY), ("git\t push --force", DENY),
        ("/usr/bin/git push", DENY), ("./git push", DENY), ("FOO=1 git push", DENY), ("A=1 B=2 /usr/bin/git push x", DENY),
        ("\"git\" push", DENY), ("g\\it push", DENY), ("git 'push' x", DENY), ("gi''t pu\"sh\"", DENY), ("r\\m x", DENY),
        ("'rm' -rf /", DENY), ("rm", DENY), ("git -C /x push", DENY), ("git -c a=b --no-pager push", DENY),
        ("/bin/git --git-dir /x push", DENY), ("git pus\\\nh", DENY), ("> x rm y", DENY), ("2>&1 rm y", DENY),
        ("git push > /dev/null 2>&1", DENY), ("cat .env", DENY), ("cat a/b.env", DENY), ("! rm x", DENY),
        ("time rm x", DENY), ("git stash push", ALLOW), ("rmdir x", ASK), ("git clean -fdx", ASK), ("git pushx", ASK),
    ];
    check(&patterns(), &table);
}

#[test]
fn compound_commands_get_the_strictest_answer() {
    #[rustfmt::skip]
    let table = [
        ("git status; git log", ALLOW), ("git status && echo ok || echo no", ALLOW), ("git log | head -3", ALLOW),
        ("git status & git log", ALLOW), ("git status\ngit log", ALLOW), ("git status;", ALLOW), ("git log |\nhead", ALLOW),
        ("(git status; ls)", ALLOW), ("{ git status; ls; }", ALLOW), ("! git status", ALLOW),
        ("if git status; then ls; else echo no; fi", ALLOW), ("for f in a b; do ls $f; done", ALLOW),
        ("while true; do ls; done", ALLOW), ("case x in a) ls;; *) echo;; esac", ALLOW), ("f() { ls; }; git status", ALLOW),
        ("git status; rm -rf /", DENY), ("git status; make", ASK), ("git log | sh", ASK), ("git log | tee x", ASK),
        ("git log & make", ASK), ("git status\nmake", ASK), ("git status\nrm x", DENY), ("(rm x)", DENY), ("{ rm x; }", DENY),
        ("git status && (cd a && rm x)", DENY), ("if git status; then rm x; fi", DENY), ("if make; then ls; fi", ASK),
        ("for f in a; do rm $f; done", DENY), ("for f in $(rm x); do ls; done", DENY), ("while rm x; do ls; done", DENY),
        ("case $(rm x) in a) ls;; esac", DENY), ("case a in $(rm x)) ls;; esac", DENY), ("case a in a) rm x;; esac", DENY),
        ("f() { rm x; }; f", DENY), ("git() { make; }; git status", ASK), ("!(rm x)", DENY), ("ls;rm x", DENY),
        ("ls&&rm x", DENY), ("ls||rm x", DENY), ("ls|rm x", DENY), ("ls&rm x", DENY), ("make; rm x", DENY),
        ("for PATH in /evil; do git status; done", ASK), ("until rm x; do ls; done", DENY), ("ls |& rm x", DENY),
    ];
    check(&patterns(), &table);
}

#[test]
fn what_runs_other_commands_is_never_allowed_by_a_pattern() {
    #[rustfmt::skip]
    let table = [
        ("git $(git rev-parse HEAD)", ASK), ("git `git rev-parse HEAD`", ASK), ("echo \"$(ls)\"", ASK), ("echo \"`ls`\"", ASK),
        ("git $(rm x)", DENY), ("echo \"`rm x`\"", DENY), ("echo \"a $(echo `rm x`) b\"", DENY), ("echo $(\"r\"m x)", DENY),
        ("echo '$(rm x)'", ALLOW), ("echo \\$\\(rm x\\)", ALLOW), ("echo ${x:-$(rm x)}", DENY), ("echo \"${x:-`rm x`}\"", DENY),
        ("cat <(ls)", ASK), ("cat <(rm x)", DENY), ("git log > >(rm x)", DENY), ("eval git status", ASK), ("eval rm x", DENY),
        ("eval \"rm x\"", DENY), ("eval \"$X\"", ASK), ("sh -c 'ls'", ASK), ("sh -c 'rm x'", DENY), ("bash -lc \"ls; rm x\"", DENY),
        ("sh -c \"sh -c 'rm x'\"", DENY), ("sh script.sh", ALLOW), ("sh < script", ASK), ("sh", ASK), ("sh /dev/stdin", ASK),
        ("sh <<E\nrm x\nE", DENY), ("sh <<< 'rm x'", DENY), ("xargs ls", ASK), ("ls | xargs rm", DENY), ("ls | xargs -0 rm -rf", DENY),
        ("env ls", ASK), ("env", ALLOW), ("env A=1 rm x", DENY), ("sudo ls", ASK), ("sudo -u root rm x", DENY),
        ("sudo /bin/rm x", DENY), ("find . -name x", ALLOW), ("find . -exec ls {} ;", ASK), ("find . -exec rm {} \\;", DENY),
        ("find . -delete", ASK), ("find . $X", ASK), ("nohup ls", ASK), ("nohup rm x &", DENY), ("time ls", ASK), ("time -p rm x", DENY),
        ("timeout 5 ls", ASK), ("timeout 5 rm x", DENY), ("command -v git", ALLOW), ("command rm x", DENY), ("exec ls", ASK),
        ("exec rm x", DENY), ("source x", ASK), (". ./x", ASK), ("/usr/bin/sudo ls", ASK), ("busybox rm x", DENY),
        ("trap 'rm x' EXIT; ls", DENY), ("sudo git -C x push", DENY), ("alias ls=make; ls", ASK), ("nice env -i sh -c 'git push'", DENY),
    ];
    check(&patterns(), &table);
}

#[test]
fn what_only_the_shell_knows_or_nobody_can_read() {
    #[rustfmt::skip]
    let table = [
        ("echo $HOME", ALLOW), ("ls *.rs", ALLOW), ("git $X", ASK), ("git log $X", ASK), ("git log -- $X", ALLOW), ("git add ${X}", ALLOW), ("git pu$X", ASK),
        ("git log ${X:---output=x}", ASK), ("git branch ${X%.*}", ALLOW), ("git log v$X", ASK), ("git log \"v$X\"", ALLOW), ("$X status", ASK), ("$X", ASK), ("r$X -rf", ASK), ("gi? status", ASK),
        ("git {log,push}", ASK), ("{git,push}", ASK), ("$'git' status", ASK), ("git $'push'", ASK), ("echo $'a'", ALLOW),
        ("cat $X", ASK), ("cat .e*", ASK), ("cat $X.txt", ALLOW), ("npm $X", ASK), ("npm tes?", ASK), ("echo $((1+2))", ALLOW),
        ("echo $((x))", ASK), ("echo ${a[x]}", ASK), ("echo ${x@P}", ASK), ("echo ${!x}", ASK), ("echo ${x:y}", ASK), ("echo $1 $? $#", ALLOW),
        ("echo \"", ASK), ("echo '", ASK), ("echo $(", ASK), ("git status; rm x; echo '", DENY), ("ls )", ASK), ("rm x )", DENY), ("a;;b", ASK),
        ("[[ -f x ]]", ALLOW), ("[[ a && rm ]]", DENY), ("((x))", ASK), ("coproc ls", ASK), ("coproc rm x", DENY),
        ("for ((i=0;i<1;i++)); do rm x; done", DENY), ("select x in a; do rm x; done", DENY), ("x=(1 2)", ASK), ("a[0]=1 git status", ASK),
        ("cat <<E\n$(rm x)\nE", DENY), ("cat <<'E'\n$(rm x)\nE", ALLOW), ("cat <<E\nrm x\nE", ALLOW), ("cat <<E\n$X\nE", ALLOW),
        ("cat <<E\n`ls`\nE", ASK), ("cat <<E\nno end", ASK), ("ls \0 x", ASK), ("test -f x", ALLOW), ("'git status'", ASK),
    ];
    check(&patterns(), &table);
}

#[test]
fn where_readers_of_shell_text_go_wrong() {
    #[rustfmt::skip]
    let table = [
        ("cat <<\\E\n$(x)\nE\nrm y", DENY), ("cat <<-E\n\tx\n\tE\nrm y", DENY), ("cat <<'E'x\na\nEx\nrm y", DENY),
        ("cat <<E <<F\na\nE\nb\nF\nrm y", DENY), ("cat <<E\nE \nE\nrm y", DENY), ("cat <<E\nfoo\\\nE\nE\nrm y", DENY),
        ("cat <<E\nE\nrm y\nE", DENY), ("cat <<E; rm x\na\nE", DENY), ("cat <<E && rm x\na\nE", DENY), ("cat <<\"\"\n\nrm y", DENY),
        ("cat <<'E'\n'\nE\nrm x", DENY), ("cat <<E\n\"\nE\nrm x", DENY), ("echo $(cat <<E\nx\nE\n); rm y", DENY),
        ("echo a#b; rm x", DENY), ("echo a;#b\nrm x", DENY), ("echo a #b\nrm x", DENY), ("#\nrm x", DENY), ("echo '#'; rm x", DENY),
        ("echo ${#x}; rm x", DENY), ("echo $#; rm x", DENY), ("echo \\# rm x", ALLOW), ("echo a\\\n#b; rm x", DENY),
        ("echo \"a\\\"; rm x; \\\"\"", ALLOW), ("echo 'a\\'; rm x; '", DENY), ("echo \"a\\\\\"; rm x", DENY), ("echo a\\;rm x", ALLOW),
        ("echo a\\\\;rm x", DENY), ("echo \"'\"; rm x; echo \"'\"", DENY), ("echo '\"'; rm x; echo '\"'", DENY),
        ("echo $'\\''; rm x; echo '", DENY), ("echo $'a\\'; rm x", DENY), ("echo `echo \\`rm x\\``", DENY), ("echo \"$(echo \")\"; rm x)\"", DENY),
        ("echo $(echo ')'; rm x)", DENY), ("echo $(case a in a) rm x;; esac)", DENY), ("echo $((1)); rm x", DENY), ("echo $( (rm x) )", DENY),
        ("echo $((rm x))", DENY), ("echo ${x//a/$(rm x)}", DENY), ("echo ${x:$(rm x)}", DENY), ("echo \"${x:=\"$(rm x)\"}\"", DENY),
        ("A=$(rm x)", DENY), ("A=`rm x` git status", DENY), ("export A=$(rm x)", DENY), ("ls > $(rm x)", DENY), ("a[$(rm x)]=1", DENY),
        ("x=($(rm x))", DENY), ("[[ $(rm x) ]]", DENY), ("case a in a|b) ls;; (c) rm x;; esac", DENY), ("if ls; then :; elif rm x; then :; fi", DENY),
        ("ls; function f { rm x; }", DENY), ("f() (rm x)", DENY), ("f() if ls; then rm x; fi", DENY), ("{ ls; } && { rm x; }", DENY),
        ("ls \\\n&& rm x", DENY), ("l\\\ns; r\\\nm x", DENY), ("rm\tx", DENY), ("rm\u{a0}x", ASK), ("ls &>/dev/null rm; rm x", DENY), ("ls;\n\n;rm x", DENY),
        ("\\rm x", DENY), ("\"r\"'m' x", DENY), ("$(echo rm) x", ASK), ("{ rm,x; }", ASK), ("~/bin/rm x", DENY), ("$HOME/bin/rm x", DENY),
        ("git status;rm x;#", DENY), ("git status | tee /dev/null | rm x", DENY), ("ls && ! rm x", DENY), ("ls || (cd x; rm y)", DENY),
        ("exec 3> x; ls", ASK), ("ls 3<>/dev/tcp/a/1", ASK), ("git log 2>&1rm x", ASK), ("sudo -- rm x", DENY), ("doas rm x", DENY),
        ("xargs -I{} sh -c 'rm {}'", DENY), ("find . -ok rm {} +", DENY), ("find . -type f | xargs -n1 git push", DENY), ("ssh host 'rm x'", DENY),
    ];
    check(&patterns(), &table);
}

#[test]
fn assignments_and_redirections_must_be_named() {
    #[rustfmt::skip]
    let table = [
        ("GIT_SSH_COMMAND=evil git fetch", ASK), ("PATH=/evil git status", ASK), ("PATH=/evil; git status", ASK), ("X=1", ASK),
        ("CI=1 make", ALLOW), ("CI=1 make all", ALLOW), ("CI=2 make", ASK), ("CI=1 X=2 make", ASK), ("X=2 CI=1 make", ASK), ("CI=$X make", ASK),
        ("RUST_LOG=debug cargo test", ALLOW), ("RUST_LOG=$(rm x) cargo test", DENY), ("RUST_LOG=`ls` cargo test", ASK), ("RUST_LOG+=x cargo test", ALLOW),
        ("git log > x", ASK), ("git log >> x", ASK), ("git log 2> x", ASK), ("git log &> x", ASK), ("git log >| x", ASK), ("git log <> x", ASK),
        ("git log > out/x", ALLOW), ("git log > out/../../etc/passwd", ASK), ("git log >> out/x", ASK), ("git log -3 > out/x", ASK),
        ("git log > out/x > y", ASK), ("git log > $X", ASK), ("git log > out/$X", ALLOW), ("git log > out/$(rm x)", DENY),
        ("git log > /dev/null", ALLOW), ("git log 2>&1", ALLOW), ("git log 2>/dev/null >&2", ALLOW), ("git log >& x", ASK), ("git log < x", ALLOW),
        ("cat < /dev/tcp/evil/80", ASK), ("cat < $X", ASK), ("> x", ASK), ("(git log) > x", ASK), ("{ ls; } 2>/dev/null", ALLOW),
        ("for f in a; do ls; done > x", ASK), ("f() { ls; } > x; f", ASK), ("git log>x", ASK), ("echo 'a > b'", ALLOW),
    ];
    check(&patterns(), &table);
}

#[test]
fn under_a_default_of_allow_only_the_denied_is_stopped() {
    let config =
        config(ALLOW, &[("bash", "rm *", DENY), ("bash", "GIT_SSH_COMMAND=*", DENY), ("bash", "* > /etc/*", ASK)]);
    #[rustfmt::skip]
    let table = [
        ("make", ALLOW), ("sudo ls", ALLOW), ("ls $(pwd)", ALLOW), ("X=1 make > x", ALLOW), ("rm x", DENY), ("ls; rm x", DENY),
        ("sudo rm x", DENY), ("sh -c 'rm x'", DENY), ("echo $(rm x)", DENY), ("$X y", ASK), ("eval $X", ASK), ("ls $X", ALLOW),
        ("[[ a ]]", ALLOW), ("echo '", ASK), ("GIT_SSH_COMMAND=x git fetch", DENY), ("echo a > /etc/passwd", ASK), ("echo a >> /etc/passwd", ASK),
        ("echo rm x", ALLOW), ("echo \"rm x\"", ALLOW), ("/bin/r? x", ASK), ("/bin/[r]m x", ASK), ("/b$X y", ASK), (".$X y", ASK),
        ("/bin/ls *", ALLOW), ("/$X/ls y", ALLOW),
    ];
    check(&config, &table);
}

#[test]
fn what_is_read_by_a_redirection_is_denied_like_an_argument() {
    let config =
        config(ALLOW, &[("bash", "*.env*", DENY), ("bash", "*/etc/shadow*", DENY), ("bash", "cat < ask/*", ASK)]);
    #[rustfmt::skip]
    let table = [
        ("cat < .env", DENY), ("read a < .env", DENY), ("exec 3<.env; cat <&3", DENY), ("echo \"$(<.env)\"", DENY), ("mapfile a < /etc/shadow", DENY),
        ("cat </etc/sha\"dow\"", DENY), ("while read l; do echo x; done < .env", DENY), ("{ cat; } < .env", DENY), ("(cat) 0< .env", DENY), ("sudo cat < .env", DENY),
        ("cat < a < b < c < d < e < .env", DENY), ("cat < ask/x", ASK), ("cat < x", ALLOW), ("while read l; do echo x; done < x", ALLOW), ("cat < x > out", ALLOW),
    ];
    check(&config, &table);
    check(&patterns(), &[("for f in a; do ls; done < x", ALLOW), ("git log < x", ALLOW), ("{ ls; } < x", ALLOW)]);
}

#[test]
fn the_last_rule_that_matches_wins() {
    let whole = config(ASK, &[("bash", "rm *", DENY), ("bash", "", ALLOW)]);
    check(&whole, &[("rm x", ALLOW), ("eval $X", ALLOW), ("echo '", ALLOW), ("a=1 b > c", ALLOW)]);
    let star = config(DENY, &[("*", "*", ALLOW)]);
    check(&star, &[("rm x", ALLOW), ("sh -c $X", ALLOW)]);
    let narrowed =
        config(ASK, &[("bash", "git *", DENY), ("bash", "git status *", ALLOW), ("bash", "git status -x", ASK)]);
    #[rustfmt::skip]
    check(&narrowed, &[
        ("git status", ALLOW), ("git status -s", ALLOW), ("git status -x", ASK), ("git log", DENY), ("git status $X", ASK),
        ("git status; git log", DENY), ("git status > x", DENY), ("X=1 git status", DENY), ("sudo git status", ASK), ("git $X", DENY),
    ]);
    check(&config(DENY, &[]), &[("ls", DENY)]);
    check(
        &config(ALLOW, &[("ba?h", "ls", DENY), ("*sh", "cat", ASK), ("fish", "pwd", DENY)]),
        &[("ls", DENY), ("cat", ASK), ("pwd", ALLOW)],
    );
}

#[test]
fn the_verdict_says_what_it_rests_on() {
    let config = patterns();
    let basis = |command: &str| decide(&config, facts("bash"), &Subject::Command(command.to_owned())).basis;
    assert_eq!(basis("git status"), Basis::Rule(0));
    assert_eq!(basis("make"), Basis::Default);
    assert_eq!(basis("git status; rm x"), Basis::Rule(config.rules.len() - 3));
    assert_eq!(basis("git $X"), Basis::Uncertain(config.rules.len() - 1));
}

#[test]
fn paths_are_judged_as_they_resolve() {
    let config = config(
        ASK,
        &[
            ("fs_*", "src/*", ALLOW),
            ("fs_*", "./docs/*", ALLOW),
            ("fs_*", "/tmp/x/*", ALLOW),
            ("fs_*", "*.secret", DENY),
            ("fs_write", "src/gen/*", DENY),
        ],
    );
    #[rustfmt::skip]
    let table: [(&str, &[(&str, Option<&str>)], PermissionPolicy); 16] = [
        ("fs_read", &[("src/a.rs", Some("/w/src/a.rs"))], ALLOW),
        ("fs_read", &[("/w/src/a.rs", Some("/w/src/a.rs"))], ALLOW),
        ("fs_read", &[("x/../src/a.rs", Some("/w/src/a.rs"))], ALLOW),
        ("fs_read", &[("docs/a", Some("/w/docs/a"))], ALLOW),
        ("fs_read", &[("src/../etc", Some("/w/etc"))], ASK),
        ("fs_read", &[("src/link", Some("/w/other/file"))], ASK),
        ("fs_read", &[("src/link", Some("/etc/src/a"))], ASK),
        ("fs_read", &[("/tmp/x/y", Some("/tmp/x/y"))], ALLOW),
        ("fs_read", &[("src/a.rs", None)], ASK),
        ("fs_read", &[("src/a.secret", Some("/w/src/a.secret"))], DENY),
        ("fs_read", &[("src/link", Some("/w/b.secret"))], DENY),
        ("fs_read", &[("b.secret", None)], DENY),
        ("fs_write", &[("src/x/../gen/a", None)], DENY),
        ("fs_write", &[("src/link", Some("/w/src/gen/a"))], DENY),
        ("fs_read", &[("src/a", Some("/w/src/a")), ("b", Some("/w/b"))], ASK),
        ("other", &[("src/a", Some("/w/src/a"))], ASK),
    ];
    for (tool, paths, want) in table {
        let subjects = paths.iter().map(|(given, resolved)| PathSubject {
            below: false,
            given: (*given).to_owned(),
            resolved: resolved.map(PathBuf::from),
        });
        let verdict = decide(&config, facts(tool), &Subject::Paths(subjects.collect()));
        assert_eq!(verdict.policy, want, "{tool} {paths:?}");
    }
    let everything = self::config(ASK, &[("fs_*", "*", ALLOW), ("fs_read", "x", DENY)]);
    assert_eq!(decide(&everything, facts("fs_list"), &Subject::None).policy, ALLOW);
    assert_eq!(decide(&everything, facts("fs_read"), &Subject::Paths(vec![])).policy, ALLOW);
}

#[test]
fn a_patch_typed_into_a_shell_is_a_patch_too() {
    let path = PathSubject { below: false, given: "a".into(), resolved: Some("/w/a".into()) };
    let patch = Subject::Paths(vec![path]);
    let by_category = serde_json::from_value(serde_json::json!({"tool": "*", "category": "edit", "policy": "deny"}));
    let edits = PermissionConfig { default_policy: ALLOW, rules: vec![by_category.unwrap()] };
    let table = [
        (config(ALLOW, &[("*", "*", ALLOW), ("apply_patch", "*", DENY)]), DENY),
        (config(ALLOW, &[("apply_patch", "*", ASK)]), ASK),
        (config(ALLOW, &[("apply_patch", "b", DENY)]), ALLOW),
        (config(ASK, &[("bash", "*", ALLOW), ("exec_command", "*", ALLOW)]), ASK),
        (config(ASK, &[("apply_patch", "*", ALLOW)]), ASK),
        (config(ALLOW, &[("bash", "*", DENY), ("apply_patch", "*", ALLOW)]), DENY),
        (config(ALLOW, &[("fs_edit", "*", DENY)]), ALLOW),
        (edits, DENY),
    ];
    for (config, want) in table {
        for tool in ["bash", "exec_command"] {
            let rules = Rules::new(&config);
            let explained = rules.explain(facts(tool), &patch);
            assert_eq!(rules.decide(facts(tool), &patch).policy, want, "{tool} {config:?}");
            assert_eq!(explained.verdict.policy, want, "{tool} {config:?}");
        }
        // A command is none.
        let command = Subject::Command("ls".into());
        let by_patch = config.rules.iter().all(|rule| rule.tool != "bash") && config.default_policy == ALLOW;
        assert!(!by_patch || decide(&config, facts("bash"), &command).policy == ALLOW, "{config:?}");
    }
}

#[test]
fn categories_and_annotations_narrow_a_rule() {
    let annotations = |destructive| ToolAnnotations { destructive, ..ToolAnnotations::default() };
    let definition = |category, destructive| ToolDefinition {
        name: "t".into(),
        description: String::new(),
        parameters: serde_json::Map::new(),
        category,
        annotations: Some(annotations(destructive)),
        timeout_ms: None,
        max_output_chars: None,
    };
    let mut config = config(ASK, &[("*", "", ALLOW), ("*", "", DENY), ("*", "", DENY)]);
    config.rules[0].category = Some(CategoryFilter::Any(vec![ToolCategory::Read, ToolCategory::Other]));
    config.rules[1].category = Some(CategoryFilter::One(ToolCategory::Execute));
    config.rules[2].annotations = Some(annotations(Some(true)));
    let table = [
        (Some(definition(Some(ToolCategory::Read), None)), ALLOW),
        (Some(definition(Some(ToolCategory::Read), Some(false))), ALLOW),
        (Some(definition(Some(ToolCategory::Read), Some(true))), DENY),
        (Some(definition(Some(ToolCategory::Execute), None)), DENY),
        (Some(definition(Some(ToolCategory::Edit), None)), ASK),
        (Some(definition(None, None)), ALLOW),
        (None, ASK),
    ];
    for (definition, want) in table {
        let facts = Facts::new("t", definition.as_ref(), None);
        assert_eq!(decide(&config, facts, &Subject::None).policy, want, "{definition:?}");
    }
}

#[test]
fn a_pattern_that_says_a_text_covers_that_text() {
    // With this pattern alone allowed: what it covers, and what it does not.
    #[rustfmt::skip]
    let table: [(&str, &[&str], &[&str]); 24] = [
        ("ls a?.txt", &["ls a?.txt", "ls ab.txt", "ls 'a?.txt'", "ls  a?.txt"], &["ls a*.txt", "ls a?.txt b", "ls a??.txt", "ls a$X.txt", "ls a[b].txt"]),
        ("ls ?", &["ls ?", "ls x"], &["ls *", "ls $X", "ls [ab]", "ls {a,b}"]),
        ("echo [a]", &["echo [a]", "echo '[a]'"], &["echo [b]", "echo a"]),
        ("echo $HOME", &["echo $HOME", "echo \"$HOME\"", "echo '$HOME'"], &["echo $PATH", "echo ${HOME}", "echo x", "echo $HOME x", "echo $\"HOME\""]),
        ("cat ${X:-a}/b", &["cat ${X:-a}/b"], &["cat ${X:-b}/b", "cat $X/b"]),
        ("echo {a,b}", &["echo {a,b}"], &["echo {a,c}", "echo a b"]),
        ("ls *.[ch]", &["ls *.[ch]"], &["ls *.*", "ls $X"]),
        ("ls $DIR *", &["ls $DIR x", "ls $DIR", "ls $DIR *"], &["ls x", "ls $X y"]),
        ("$EDITOR *", &["$EDITOR x", "$EDITOR"], &["$PAGER x", "\"$EDITOR x\"", "vi x"]),
        ("$X", &["$X"], &["$Y", "$X y"]),
        ("* x", &["a x"], &["$X x"]),
        ("make > $OUT", &["make > $OUT", "make > \"$OUT\""], &["make > $X", "make > x", "make >> $OUT"]),
        ("X=$Y make", &["X=$Y make"], &["X=$Z make", "X=1 make", "X+=$Y make"]),
        ("echo $((1+2))", &["echo $((1+2))"], &["echo $((1+3))"]),
        ("echo $(ls)", &[], &["echo $(ls)", "echo `ls`"]),
        ("python -c *", &["python -c \"print(1)\"", "python -c 'import os'", "python -c \"$X\""], &["python -Bc x", "python x.py", "python -cx", "python", "python -c \"$(cat x)\"", "python -c x > y", "python3 -c x"]),
        ("python *", &["python x.py"], &["python -c \"print(1)\"", "python"]),
        ("python -c print(1)", &["python -c \"print(1)\""], &["python -c \"print(2)\"", "python -c \"print(1)\" x"]),
        ("node -e *", &["node -e 'x' y"], &["node -p x", "node --eval x"]),
        ("sudo ls", &["sudo ls", "sudo  'ls'"], &["sudo ls x", "sudo"]),
        ("sudo ls *", &["sudo ls \\*"], &["sudo ls x", "sudo ls"]),
        ("find . -name *.o -delete", &[], &["find . -name '*.o' -delete; x", "find . -name x -delete"]),
        ("sh", &[], &["sh", "echo x | sh", "sh < x"]),
        ("parallel *", &[], &["parallel", "ls | parallel"]),
    ];
    for (pattern, covered, not) in table {
        let config = config(ASK, &[("bash", pattern, ALLOW)]);
        for line in covered {
            assert_eq!(bash(&config, line), ALLOW, "{pattern:?} says {line:?}");
        }
        for line in not {
            assert_eq!(bash(&config, line), ASK, "{pattern:?} does not say {line:?}");
        }
    }
}

#[test]
fn a_pattern_that_spells_what_runs_speaks_for_it() {
    let before = config(ALLOW, &[("bash", "python -c *", ALLOW), ("bash", "sudo rm x", ALLOW), ("bash", "rm *", DENY)]);
    check(&before, &[("python -c 'rm(1)'", DENY), ("python -c 'print(1)'", ASK), ("sudo rm x", DENY), ("rm x", DENY)]);
    let behind = config(ALLOW, &[("bash", "rm *", DENY), ("bash", "python -c *", ALLOW), ("bash", "sudo rm x", ALLOW)]);
    #[rustfmt::skip]
    let table = [
        ("python -c 'rm(1)'", ALLOW), ("sudo rm x", ALLOW), ("sudo rm y", DENY), ("rm x", DENY), ("python -c 'x'; rm x", DENY), ("sh -c \"python -c 'rm x'\"", DENY),
        ("python -c 'x' $(rm x)", DENY), ("sudo python -c 'rm x'", DENY),
    ];
    check(&behind, &table);
    let denied = config(ALLOW, &[("bash", "cat $HOME/.ssh/*", DENY), ("bash", "ls ?", DENY)]);
    check(
        &denied,
        &[("cat $HOME/.ssh/id", DENY), ("cat \"$HOME\"/.ssh/id", DENY), ("ls a", DENY), ("ls *", ASK), ("ls ?", DENY)],
    );
}

#[test]
fn parts_are_shown_to_people() {
    let parts = command_parts("A=1 git  'log' > x && rm $X; sh -c 'ls'");
    assert_eq!(parts, ["A=1 git log > x", "rm $X", "sh -c ls"]);
    let typed = command_parts(
        "X=$Y ls a?.txt \"b $Z c\" {d,e} [f] ~/g > $OUT; echo $(pwd) `id` $'h' ${i:-j} \"${k}l\" $((1+1)); ls <(x)",
    );
    #[rustfmt::skip]
    let want = ["X=$Y ls a?.txt b $Z c {d,e} [f] ~/g > $OUT", "pwd", "id", "echo $(pwd) `id` $'h' ${i:-j} ${k}l $((1+1))", "x", "ls …"];
    assert_eq!(typed, want);
}

#[test]
fn hostile_lines_end_soon_and_are_never_allowed() {
    let config = patterns();
    let deep = |open: &str, close: &str| open.repeat(50_000) + "ls" + &close.repeat(50_000);
    let lines = [
        deep("(", ")"),
        deep("$(", ")"),
        deep("{ ", "; }"),
        deep("if ", "; then ls; fi"),
        deep("\"$(", ")\""),
        deep("${x:-", "}"),
        deep("! ", ""),
        deep("`", "`"),
        "sudo ".repeat(20_000),
        "make ".repeat(20_000),
        "ls; ".repeat(20_000) + "make",
        "sh -c ".repeat(500) + "'sudo rm x'",
        format!("sudo {}", "'a b c d' ".repeat(10_000)),
        "[[ a ]]; ".repeat(10_000),
    ];
    for line in lines {
        let begin = Instant::now();
        assert_ne!(bash(&config, &line), ALLOW, "{}", &line[..40]);
        assert!(begin.elapsed() < Duration::from_secs(15), "{} took {:?}", &line[..40], begin.elapsed());
    }
    // As deep as is followed at all, on a thread's usual stack.
    for (open, close) in
        [("(", ")"), ("$(", ")"), ("{ ", "; }"), ("if ls; then ", "; fi"), ("\"$(", ")\""), ("f() { ", "; }")]
    {
        bash(&config, &(open.repeat(29) + "ls" + &close.repeat(29)));
    }
}

proptest::proptest! {
    #[test]
    fn no_text_panics_and_no_tail_is_lost(text in "[ -~\n]{0,40}") {
        let config = patterns();
        bash(&config, &text);
        // Behind an allowed command, on a line of its own, nothing may hide.
        proptest::prop_assert_ne!(bash(&config, &format!("git status\nmake\n{text}")), ALLOW);
        proptest::prop_assert_ne!(bash(&config, &format!("{text}\nmake")), ALLOW);
    }

    #[test]
    fn any_bytes_end_and_nothing_unreadable_is_allowed(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let config = patterns();
        let rules = Rules::new(&config).over(std::sync::Arc::new(Floor::default()));
        let subject = Subject::Command(text.clone());
        let verdict = rules.decide(facts("bash"), &subject);
        proptest::prop_assert_eq!(rules.explain(facts("bash"), &subject).verdict, verdict);
        let line = super::shell::Line::parse(&text);
        if line.parts.iter().any(super::shell::Part::is_unreadable) {
            proptest::prop_assert_ne!(verdict.policy, ALLOW);
        }
    }

    #[test]
    fn shell_signs_in_any_order_end(pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..24)) {
        let text = pieces.concat();
        let config = patterns();
        let told = bash(&config, &text);
        // Whatever stands before and behind it, a command on its own line is found.
        proptest::prop_assert_ne!(bash(&config, &format!("{text}\nmake")), ALLOW);
        let line = super::shell::Line::parse(&text);
        proptest::prop_assert!(told != ALLOW || !line.parts.iter().any(super::shell::Part::is_unreadable));
    }
}

/// What shell lines are made of.
const PIECES: &[&str] = &[
    " ",
    "\n",
    ";",
    "&",
    "&&",
    "|",
    "||",
    "|&",
    "(",
    ")",
    "{ ",
    "; }",
    "$(",
    "`",
    "${",
    "}",
    "$((",
    "))",
    "<<E\n",
    "\nE\n",
    "<<<",
    "<(",
    ">(",
    "> ",
    "2>&1",
    "'",
    "\"",
    "\\",
    "#",
    "$X",
    "*",
    "?",
    "[",
    "]",
    "~",
    "=",
    "A=1 ",
    "git ",
    "ls",
    "rm x",
    "sudo ",
    "sh -c ",
    "eval ",
    "find . -exec ",
    " \\;",
    "xargs ",
    "if ",
    "then ",
    "fi",
    "for i in ",
    "do ",
    "done",
    "case ",
    " in ",
    "esac",
    "f() ",
    "function ",
    "[[ ",
    " ]]",
    "$'",
    "\0",
    "\r\n",
    "é",
    "\u{202e}",
];

#[test]
fn what_lies_below_a_directory_is_asked_for() {
    let config = config(ALLOW, &[("fs_*", "sec/*", DENY), ("fs_*", "*.env", DENY), ("fs_*", "docs/x/y", ASK)]);
    let judge = |config: &PermissionConfig, given: &str, below| {
        let resolved = Some(Path::new("/w").join(given));
        let path = PathSubject { given: given.to_owned(), resolved, below };
        decide(config, facts("fs_move"), &Subject::Paths(vec![path])).policy
    };
    #[rustfmt::skip]
    let table = [
        ("sec", true, ASK), ("sec", false, ALLOW), ("sec/k", false, DENY), ("other", true, ASK), ("other", false, ALLOW), ("", true, ASK),
    ];
    for (given, below, want) in table {
        assert_eq!(judge(&config, given, below), want, "{given:?} below: {below}");
    }
    let exact = self::config(ALLOW, &[("fs_*", "docs/x/y", DENY)]);
    for (given, want) in
        [("docs", ASK), ("docs/x", ASK), ("docs/x/y", DENY), ("doc", ALLOW), ("docs/x/yz", ALLOW), ("src", ALLOW)]
    {
        assert_eq!(judge(&exact, given, true), want, "{given}");
    }
}

#[test]
fn no_pattern_allows_what_nobody_can_read() {
    for pattern in ["*", "**"] {
        let config = config(DENY, &[("bash", pattern, ALLOW)]);
        #[rustfmt::skip]
        let table = [
            ("git \"unclosed; rm -rf x", DENY), ("ls $(", DENY), ("ls", ALLOW), ("sudo ls", ALLOW), ("ls $(pwd)", ALLOW), ("", ALLOW),
        ];
        check(&config, &table);
    }
    check(&config(DENY, &[("bash", "", ALLOW)]), &[("git \"unclosed; rm -rf x", ALLOW)]);
    check(&config(ASK, &[("bash", "", DENY), ("bash", "*", ALLOW)]), &[("ls $(", DENY)]);
}

#[test]
fn a_search_passes_over_what_the_rules_name() {
    let rules = |list: &[(&str, &str, PermissionPolicy)]| Rules::new(&config(ASK, list));
    let named =
        rules(&[("*", "", ALLOW), ("fs_*", "sec/*", DENY), ("fs_*", "*.env", ASK), ("fs_*", "sec/open/*", ALLOW)]);
    #[rustfmt::skip]
    let table = [
        ("/w/sec/k", true, true), ("/w/a.env", true, false), ("/w/x/.env", true, false), ("/w/sec", false, false), ("/w/sec/open/k", false, false), ("/w/src/a", false, false),
    ];
    let (asks, denies) =
        (named.hidden(facts("fs_grep"), true).unwrap(), named.hidden(facts("fs_grep"), false).unwrap());
    for (path, with_asks, without) in table {
        assert_eq!((asks.names(Path::new(path)), denies.names(Path::new(path))), (with_asks, without), "{path}");
    }
    assert!(named.hidden(facts("bash"), true).is_none());
    let open = rules(&[("fs_*", "sec/*", DENY), ("*", "", ALLOW)]);
    assert!(open.hidden(facts("fs_grep"), true).is_none(), "the last rule allows the whole tool");
    assert!(rules(&[("fs_*", "", DENY)]).hidden(facts("fs_grep"), true).is_none(), "that is about the tool");
}
