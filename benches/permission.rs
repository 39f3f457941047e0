//! How long a permission decision takes: 200 rules on a command line of five parts.
//!
//! `cargo bench --bench permission` prints the median of a decision in microseconds, each row over 60 batches of 2,000.

#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use simse::permission::{Facts, Floor, Rules, Subject};
use simse::protocol::{PermissionConfig, PermissionPolicy, PermissionRule};

const BATCHES: usize = 60;
const BATCH: u32 = 2_000;

fn main() {
    let rules = Rules::new(&config())
        .over(Arc::new(Floor::new(vec!["/home/u/.local/share/simse".into()], Some("/home/u".into()))));
    let lines = [
        (
            "five plain commands, all allowed",
            "git status && cargo test --all 2>&1 | head -50; ls -la src && grep -rn todo src",
        ),
        (
            "five plain commands without redirections",
            "git status && cargo test --all | head -50; ls -la src && grep -rn todo src",
        ),
        ("one command", "git status"),
        (
            "a substitution and a here-document",
            "cat <<E > out; git log $(git rev-parse HEAD) | head; ls; wc -l out\na $X\nE",
        ),
        ("wrappers", "sudo -u bob env A=1 timeout 5 sh -c 'git log | head -3; ls'; ls; pwd; git status; true"),
    ];
    let facts = Facts::new("bash", None, Some(Path::new("/w")));
    for (name, line) in lines {
        let subject = Subject::Command(line.to_owned());
        let verdict = rules.decide(facts, &subject);
        let mut batches: Vec<f64> = (0..BATCHES)
            .map(|_| {
                let begin = Instant::now();
                for _ in 0..BATCH {
                    black_box(rules.decide(black_box(facts), black_box(&subject)));
                }
                begin.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH)
            })
            .collect();
        batches.sort_by(f64::total_cmp);
        println!(
            "{name:<45} {:>8.2} µs  (best {:.2}, worst {:.2})  {:?}",
            batches[BATCHES / 2],
            batches[0],
            batches[BATCHES - 1],
            verdict.policy
        );
    }
}

/// 200 rules of the kinds that people write: names with arguments, paths, denials, a few for other tools.
fn config() -> PermissionConfig {
    let rule = |tool: &str, pattern: String, policy| PermissionRule {
        tool: tool.to_owned(),
        pattern: Some(pattern),
        policy,
        category: None,
        annotations: None,
    };
    let mut rules = Vec::new();
    for name in ["git", "cargo", "head", "ls", "grep", "npm test", "make", "cat", "wc", "true"] {
        rules.push(rule("bash", format!("{name} *"), PermissionPolicy::Allow));
    }
    for n in 0..110 {
        rules.push(rule("bash", format!("tool{n} --flag *"), PermissionPolicy::Allow));
    }
    for n in 0..60 {
        rules.push(rule("bash", format!("danger{n} *"), PermissionPolicy::Deny));
    }
    for n in 0..20 {
        rules.push(rule("fs_*", format!("src/{n}/*"), PermissionPolicy::Allow));
    }
    PermissionConfig { default_policy: PermissionPolicy::Ask, rules }
}
