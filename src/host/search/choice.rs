//! Which files of a walk count: globs of their paths, and file types.

use std::path::Path;

use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::types::{Types, TypesBuilder};

use super::entries::as_path;
use crate::base::{limit, text};
use crate::tool::ToolError;

/// Globs in the order of their mention: the last that fits decides; `!` in front takes files out.
///
/// A glob without a slash is held against the name, any other against the path below the base. A file that none
/// fits counts when all globs take out.
#[derive(Debug)]
pub(in crate::host) struct FileChoice {
    globs: GlobSet,
    /// By the number of the glob: whether it takes out.
    outs: Vec<bool>,
    /// Directories below which everything is taken out.
    closed: GlobSet,
    /// All of them take out.
    open: bool,
    /// Holds the numbers of the globs that fit; one allocation for all files.
    fitting: Vec<usize>,
}

impl FileChoice {
    /// The choice of `globs`; `name` is the argument that they came in.
    ///
    /// # Errors
    /// [`ToolError::BadArguments`] for a glob that is none.
    pub(in crate::host) fn new(name: &str, globs: &[String]) -> Result<Self, ToolError> {
        let bad = |e: globset::Error| ToolError::BadArguments(format!("`{name}`: {e}"));
        let (mut set, mut closed) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        let mut outs = Vec::new();
        for glob in globs {
            if glob.is_empty() || glob.len() > limit::GLOB_BYTES_MAX {
                let expected = format!("expected a glob of 1 to {} bytes", limit::GLOB_BYTES_MAX);
                return Err(ToolError::BadArguments(format!("`{name}`: {expected}, got {}", glob.len())));
            }
            let (out, body) = glob.strip_prefix('!').map_or((false, glob.as_str()), |rest| (true, rest));
            if body.strip_prefix("./").unwrap_or(body).trim_matches('/').is_empty() {
                return Err(ToolError::BadArguments(format!(
                    "`{name}`: expected a glob that names something, got `{glob}`"
                )));
            }
            for plain in alternatives(&anchored(body)) {
                // No path has one, and beside `**` two slashes would close every directory.
                if plain.contains("//") {
                    return Err(ToolError::BadArguments(format!(
                        "`{name}`: expected a name between any two slashes, got `{glob}`"
                    )));
                }
                set.add(parse(&plain).map_err(bad)?);
                outs.push(out);
                if let Some(directory) = plain.strip_suffix("/**").filter(|_| out) {
                    closed.add(parse(directory).map_err(bad)?);
                } else if out {
                    closed.add(parse(&plain).map_err(bad)?);
                }
            }
        }
        Ok(Self {
            globs: set.build().map_err(bad)?,
            open: outs.iter().all(|out| *out),
            closed: closed.build().map_err(bad)?,
            outs,
            fitting: Vec::new(),
        })
    }

    /// Whether the file at `path` counts.
    pub(in crate::host) fn takes(&mut self, path: &[u8]) -> bool {
        if self.outs.is_empty() {
            return true;
        }
        self.globs.matches_candidate_into(&Candidate::new(as_path(path)), &mut self.fitting);
        match self.fitting.last() {
            Some(last) => !self.outs[*last],
            None => self.open,
        }
    }

    /// Whether anything below the directory at `path` can count.
    pub(in crate::host) fn enters(&self, path: &[u8]) -> bool {
        self.closed.is_empty() || !self.closed.is_match(as_path(path))
    }

    /// A copy for another worker.
    pub(in crate::host) fn share(&self) -> Self {
        Self {
            globs: self.globs.clone(),
            outs: self.outs.clone(),
            closed: self.closed.clone(),
            open: self.open,
            fitting: Vec::new(),
        }
    }
}

/// A glob as it is held against whole paths.
fn anchored(glob: &str) -> String {
    let glob = glob.strip_prefix("./").unwrap_or(glob);
    let (body, below) = glob.strip_suffix('/').map_or((glob, ""), |body| (body, "/**"));
    match body.strip_prefix('/') {
        Some(rooted) => format!("{rooted}{below}"),
        None if body.contains('/') => format!("{body}{below}"),
        None => format!("**/{body}{below}"),
    }
}

fn parse(glob: &str) -> Result<Glob, globset::Error> {
    // As in a shell, `{,x}` may stand for nothing.
    GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).empty_alternates(true).build()
}

/// The globs that `{a,b}` at its outermost level stands for: one each is found faster than all in one expression.
///
/// A glob with anything unusual, or with too many alternatives, is left as it is.
pub(in crate::host) fn alternatives(glob: &str) -> Vec<String> {
    let whole = || vec![glob.to_owned()];
    let (Some(from), Some(to)) = (glob.find('{'), glob.rfind('}')) else { return whole() };
    if from > to || glob.contains(['\\', '[']) {
        return whole();
    }
    let (before, inside, after) = (&glob[..from], &glob[from + 1..to], &glob[to + 1..]);
    if inside.contains(['{', '}']) || inside.split(',').count() > limit::GLOB_ALTERNATIVES_MAX {
        return whole();
    }
    // `**` means directories by what stands beside it: where a border would come to stand there, it would mean another thing.
    let doubles = |text: &str| text.as_bytes().windows(2).filter(|pair| pair == b"**").count();
    let plain: Vec<String> = inside.split(',').map(|part| format!("{before}{part}{after}")).collect();
    let joined = plain.iter().any(|plain| doubles(plain) > doubles(before) + doubles(after) || plain.ends_with('/'));
    if joined || before.ends_with("**") || after.starts_with("**") { whole() } else { plain }
}

/// Whether a glob names something hidden: a name in it begins with a dot.
pub(in crate::host) fn names_hidden(glob: &str) -> bool {
    glob.split(['/', '{', ',']).any(|name| name.starts_with('.') && name != "." && name != "..")
}

/// File types by name, as ripgrep knows them.
#[derive(Debug, Clone)]
pub(in crate::host) struct TypeChoice(Types);

impl TypeChoice {
    /// The choice of `names`; `!` in front takes a type out.
    ///
    /// # Errors
    /// [`ToolError::BadArguments`] for a name that is no type, with those that it may have meant.
    pub(in crate::host) fn new(names: &[String]) -> Result<Self, ToolError> {
        let mut builder = TypesBuilder::new();
        builder.add_defaults();
        for name in names {
            match name.strip_prefix('!') {
                Some(name) => builder.negate(name),
                None => builder.select(name),
            };
        }
        builder.build().map(Self).map_err(|e| match e {
            ignore::Error::UnrecognizedFileType(name) => Self::unknown(&builder, &name),
            other => ToolError::BadArguments(format!("`type`: {other}")),
        })
    }

    fn unknown(builder: &TypesBuilder, name: &str) -> ToolError {
        let known = builder.definitions();
        let extension = format!("*.{name}");
        let meant: Vec<&str> = match known.iter().find(|known| known.globs().contains(&extension)) {
            Some(known) => vec![known.name()],
            None => text::near_misses(name, known.iter().map(|known| known.name())),
        };
        let meant = match meant.as_slice() {
            [] => "such as `rust`, `ts`, `py`".to_owned(),
            _ => format!("perhaps `{}`", meant.join("` or `")),
        };
        ToolError::BadArguments(format!("`type`: expected a known file type, {meant}, got \"{name}\""))
    }

    /// Whether the file at `path` is of one of the types.
    pub(in crate::host) fn takes(&self, path: &[u8]) -> bool {
        !self.0.matched(Path::new(as_path(path)), false).is_ignore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn the_last_glob_that_fits_decides() {
        #[rustfmt::skip]
        let table: &[(&[&str], &[&str], &[&str])] = &[
            (&[], &["a", "b/c.rs"], &[]),
            (&["*.rs"], &["a.rs", "b/c.rs"], &["a.ts", "a.rs/x"]),
            (&["*.{rs,ts}"], &["a.rs", "b/c.ts"], &["a.js"]),
            (&["{,x}?", "{,a}{,b}c"], &["a", "xa", "b/c", "abc", "bc"], &["ab", "xc1"]),
            (&["src/**"], &["src/a", "src/b/c"], &["a", "x/src/a"]),
            (&["src/"], &["src/a", "x/src/b/c"], &["a", "src"]),
            (&["/a.rs"], &["a.rs"], &["b/a.rs"]),
            (&["./b/*.rs"], &["b/a.rs"], &["a.rs", "b/c/a.rs"]),
            (&["!*.rs"], &["a.ts"], &["a.rs", "b/c.rs"]),
            (&["*.rs", "!*_test.rs"], &["a.rs"], &["a_test.rs", "a.ts"]),
            (&["!*.rs", "main.rs"], &["main.rs", "b/main.rs"], &["a.rs", "a.ts"]),
            (&["!out/"], &["a", "outer/a"], &["out/a", "b/out/c/d"]),
            (&["*.{r[sx],ts}"], &["a.rs", "a.rx", "a.ts"], &["a.ra"]),
            (&["a\\{b"], &["a{b"], &["a\\{b"]),
        ];
        for (globs, ins, outs) in table {
            let mut choice = FileChoice::new("glob", &strings(globs)).unwrap();
            for path in *ins {
                assert!(choice.takes(path.as_bytes()), "{globs:?} {path}");
            }
            for path in *outs {
                assert!(!choice.takes(path.as_bytes()), "{globs:?} {path}");
            }
        }
    }

    #[test]
    fn directories_that_are_taken_out_are_not_entered() {
        let choice = FileChoice::new("glob", &strings(&["*.rs", "!out/", "!gen/**", "!cache"])).unwrap();
        for (path, enters) in
            [("out", false), ("a/out", false), ("gen", false), ("a/gen", true), ("cache", false), ("src", true)]
        {
            assert_eq!(choice.enters(path.as_bytes()), enters, "{path}");
        }
    }

    #[test]
    fn alternatives_are_taken_apart_where_that_is_safe() {
        let table: &[(&str, &[&str])] = &[
            ("a", &["a"]),
            ("*.{a,b}", &["*.a", "*.b"]),
            ("{a,}x", &["ax", "x"]),
            ("{a,{b,c}}", &["{a,{b,c}}"]),
            ("{a,b}{c,d}", &["{a,b}{c,d}"]),
            ("[{]a}", &["[{]a}"]),
            ("**/*{.a,.b}", &["**/*.a", "**/*.b"]),
            ("{a,b}/**", &["a/**", "b/**"]),
            ("{**/}", &["{**/}"]),
            ("**/{}", &["**/{}"]),
            ("x/{a/,b}", &["x/{a/,b}"]),
            ("*{*,a}", &["*{*,a}"]),
            ("{a/,}**", &["{a/,}**"]),
            ("**{/a,b}", &["**{/a,b}"]),
        ];
        for (glob, want) in table {
            assert_eq!(alternatives(glob), *want, "{glob}");
        }
    }

    #[test]
    fn types_are_known_by_name() {
        let choice = |names: &[&str]| TypeChoice::new(&strings(names));
        let rust = choice(&["rust"]).unwrap();
        assert!(rust.takes(b"src/a.rs") && !rust.takes(b"a.ts"));
        let not_rust = choice(&["!rust"]).unwrap();
        assert!(!not_rust.takes(b"src/a.rs") && not_rust.takes(b"a.ts"));
        let said = |name: &str| choice(&[name]).unwrap_err().to_string();
        assert_eq!(said("pyhton"), "`type`: expected a known file type, perhaps `python` or `cython`, got \"pyhton\"");
        assert_eq!(said("rs"), "`type`: expected a known file type, perhaps `rust`, got \"rs\"");
        assert!(said("zzzzzz").contains("such as `rust`"));
    }

    #[test]
    fn bad_globs_name_their_argument() {
        let said = |glob: &str| FileChoice::new("glob", &strings(&[glob])).unwrap_err().to_string();
        assert!(said("[").starts_with("`glob`: error parsing glob '**/['"), "{}", said("["));
        assert!(said("").contains("1 to 4096"));
        for nothing in ["/", "!/", "!", "./", "!.//"] {
            let want = format!("`glob`: expected a glob that names something, got `{nothing}`");
            assert_eq!(said(nothing), want);
        }
        for gap in ["!**//", "a//b", "{a/,b}/c//"] {
            assert_eq!(said(gap), format!("`glob`: expected a name between any two slashes, got `{gap}`"));
        }
    }
}
