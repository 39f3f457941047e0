//! Runs the property `glob` on what the fuzzer thinks up; and the globs of the search tools, which are private in the
//! crate, against their meaning one by one.

#![no_main]

use arbitrary::{Result, Unstructured};
use globset::{GlobBuilder, GlobMatcher};
use simse::host::{Choice, names_hidden};

/// What globs and paths are made of.
const PIECES: [&str; 18] =
    ["a", "b", "*", "**", "?", "/", "/", "**/", "/**", "{a,b}", "{a,*.b}", "{", "}", ",", "[ab]", ".", ".rs", "!"];
const NAMES: [&str; 8] = ["a", "b", "ab", "a.rs", ".a", "{a", "a,b", "!a"];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    simse::properties::glob::holds(data);
    let mut u = Unstructured::new(data);
    if let Ok((globs, paths)) = input(&mut u) {
        choice_holds(&globs, &paths);
    }
});

fn input(u: &mut Unstructured<'_>) -> Result<(Vec<String>, Vec<String>)> {
    let mut globs = Vec::new();
    for _ in 0..u.int_in_range(1..=3)? {
        let mut glob = String::new();
        for _ in 0..u.int_in_range(1..=6)? {
            glob.push_str(if u.ratio(1, 30)? { u.arbitrary::<&str>()? } else { *u.choose(&PIECES)? });
        }
        globs.push(glob);
    }
    let mut paths = Vec::new();
    for _ in 0..6 {
        let names: Result<Vec<&str>> = (0..u.int_in_range(1..=3)?).map(|_| u.choose(&NAMES).copied()).collect();
        paths.push(names?.join("/"));
    }
    Ok((globs, paths))
}

/// The last glob that fits decides; without one a file counts when all globs take out.
fn choice_holds(globs: &[String], paths: &[String]) {
    let _whatever: Vec<bool> = globs.iter().map(|glob| names_hidden(glob)).collect();
    let one_by_one: Option<Vec<(bool, GlobMatcher)>> = globs.iter().map(|glob| alone(glob)).collect();
    let Some(mut choice) = Choice::new(globs) else {
        // What names nothing is refused; else what is taken apart is refused only where the whole is.
        // So is what has two slashes beside each other, which alternatives and their ends may bring about.
        let nothing = globs.iter().any(|glob| glob.trim_start_matches(['!', '.', '/']).is_empty());
        let gap = globs.iter().any(|glob| glob.contains("//") || (glob.contains('{') && glob.contains('/')));
        assert!(one_by_one.is_none() || nothing || gap, "{globs:?} is refused");
        return;
    };
    let Some(one_by_one) = one_by_one else { return };
    for path in paths {
        let last = one_by_one.iter().rev().find(|(_, glob)| glob.is_match(path));
        let want = last.map_or(one_by_one.iter().all(|(out, _)| *out), |(out, _)| !out);
        assert_eq!(choice.takes(path), want, "{path:?} with {globs:?}");
        // A directory that is not entered holds nothing that counts, as long as nothing is taken in again behind it.
        let ins_first = globs.iter().skip_while(|glob| !glob.starts_with('!')).all(|glob| glob.starts_with('!'));
        for (at, _) in path.match_indices('/') {
            if ins_first && !choice.enters(&path[..at]) {
                let above = one_by_one.iter().any(|(out, glob)| *out && glob.is_match(&path[..at]));
                assert!(!want || above, "{path:?} counts with {globs:?}, and its directory is not entered");
            }
        }
    }
}

/// One glob as it is documented, not taken apart: whether it takes out, and what it matches.
fn alone(glob: &str) -> Option<(bool, GlobMatcher)> {
    let (out, body) = glob.strip_prefix('!').map_or((false, glob), |rest| (true, rest));
    let body = body.strip_prefix("./").unwrap_or(body);
    let (body, below) = body.strip_suffix('/').map_or((body, ""), |body| (body, "/**"));
    let whole = match body.strip_prefix('/') {
        Some(rooted) => format!("{rooted}{below}"),
        None if body.contains('/') => format!("{body}{below}"),
        None => format!("**/{body}{below}"),
    };
    let mut builder = GlobBuilder::new(&whole);
    let glob = builder.literal_separator(true).backslash_escape(true).empty_alternates(true).build().ok()?;
    Some((out, glob.compile_matcher()))
}
