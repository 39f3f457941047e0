//! Real edits, blurred the way models blur what they quote, and a judge of what became of them.
//!
//! The edits are hunks between two versions of the same crate where the machine has both, and changes made up
//! in real sources otherwise: the crates that this one is built from, and its own files. Which ones is decided by
//! hashes, so that the same sources give the same edits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use similar::{ChangeTag, TextDiff};
use simse::edit::edit;

/// Files longer than this are left out, in bytes.
const FILE_BYTES_MAX: usize = 400_000;
/// Lines of an edit.
const EDIT_LINES_MAX: usize = 40;

/// An edit of a real file.
#[derive(Debug, Clone)]
pub struct Case {
    /// Where it is from.
    pub name: String,
    content: String,
    /// The lines before and after the place.
    before: String,
    after: String,
    old: String,
    new: String,
}

/// A way to quote text badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blur {
    None,
    TrailingBlanks,
    TabsForSpaces,
    SpacesForTabs,
    IndentLost,
    IndentAdded,
    IndentHalved,
    InnerBlanks,
    OtherLineEndings,
    BlankLinesLost,
    TypoInTheMiddle,
    TwoTyposInTheMiddle,
}

/// What became of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Right,
    Refused,
    Wrong,
}

impl Blur {
    pub const ALL: [Self; 12] = [
        Self::None,
        Self::TrailingBlanks,
        Self::TabsForSpaces,
        Self::SpacesForTabs,
        Self::IndentLost,
        Self::IndentAdded,
        Self::IndentHalved,
        Self::InnerBlanks,
        Self::OtherLineEndings,
        Self::BlankLinesLost,
        Self::TypoInTheMiddle,
        Self::TwoTyposInTheMiddle,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none: the text as it is",
            Self::TrailingBlanks => "blanks at the ends of lines",
            Self::TabsForSpaces => "tabs for spaces in front",
            Self::SpacesForTabs => "spaces for tabs in front",
            Self::IndentLost => "the common indentation lost",
            Self::IndentAdded => "four columns more",
            Self::IndentHalved => "two columns a level for four",
            Self::InnerBlanks => "other runs of blanks inside lines",
            Self::OtherLineEndings => "LF quoted from a CRLF file",
            Self::BlankLinesLost => "blank lines lost",
            Self::TypoInTheMiddle => "a typo in the middle",
            Self::TwoTyposInTheMiddle => "two typos in the middle",
        }
    }

    /// The share of right edits that a small sample of any sources has at least, in percent.
    pub fn least_right(self) -> f64 {
        if matches!(self, Self::TypoInTheMiddle | Self::TwoTyposInTheMiddle) { 75.0 } else { 95.0 }
    }

    /// The file, the old and the new text of a case under the blur. None: there is nothing to blur.
    fn apply(self, case: &Case) -> Option<(String, String, String)> {
        let seed = hash(case.old.as_bytes());
        let both = |line: &dyn Fn(usize, &str) -> String| {
            let text = |text: &str| each_line(text, line);
            (case.content.clone(), text(&case.old), text(&case.new))
        };
        let blurred = match self {
            Self::None => return Some((case.content.clone(), case.old.clone(), case.new.clone())),
            Self::TrailingBlanks => both(&|at, line| {
                let blanks = [" ", "  ", "\t", ""][(seed as usize + at) % 4];
                format!("{line}{blanks}")
            }),
            Self::TabsForSpaces => both(&|_, line| reindented(line, "    ", "\t")),
            Self::SpacesForTabs => {
                let file = |text: &str| each_line(text, &|_, line| reindented(line, "    ", "\t"));
                (file(&case.content), case.old.clone(), case.new.clone())
            }
            Self::IndentLost => {
                let common = common_indent(&[&case.old, &case.new]);
                both(&|_, line| line.get(common..).unwrap_or("").to_owned())
            }
            Self::IndentAdded => both(&|_, line| if line.is_empty() { String::new() } else { format!("    {line}") }),
            // A quote that shows one level alone does not tell how wide a level is: deeper lines of the new text are a guess.
            Self::IndentHalved if levels(&case.old) < 2 && levels(&case.new) > 1 => return None,
            Self::IndentHalved => both(&|_, line| reindented(line, "    ", "  ")),
            Self::InnerBlanks => both(&|_, line| {
                let start = line.len() - line.trim_start().len();
                format!("{}{}", &line[..start], line[start..].replacen(' ', "  ", 1))
            }),
            Self::OtherLineEndings => (case.content.replace('\n', "\r\n"), case.old.clone(), case.new.clone()),
            Self::BlankLinesLost => {
                let without = |text: &str| {
                    let lines: Vec<&str> = text.split_inclusive('\n').filter(|line| !line.trim().is_empty()).collect();
                    lines.concat()
                };
                (case.content.clone(), without(&case.old), without(&case.new))
            }
            Self::TypoInTheMiddle => (case.content.clone(), with_typos(&case.old, 1, seed)?, case.new.clone()),
            Self::TwoTyposInTheMiddle => (case.content.clone(), with_typos(&case.old, 2, seed)?, case.new.clone()),
        };
        let (content, old, new) = &blurred;
        let same = *old == case.old && *content == case.content;
        // What stands word for word somewhere else names that place: it is no bad quote of this one.
        let elsewhere = *old != case.old && content.contains(old.as_str());
        (!same && !elsewhere && old != new).then_some(blurred)
    }

    /// What counts as the same text: blanks at the ends of lines do not, blank lines where they were lost, runs of blanks
    /// inside a line where those were blurred. Indentation always counts: it is to be that of the file.
    fn judged(self, text: &str) -> Vec<String> {
        let file = match self {
            Self::SpacesForTabs => each_line(text, &|_, line| reindented(line, "    ", "\t")),
            _ => text.replace("\r\n", "\n"),
        };
        let line = |line: &str| {
            let line = line.trim_end();
            let start = line.len() - line.trim_start().len();
            let inner = if self == Self::InnerBlanks {
                line[start..].split_whitespace().collect::<Vec<_>>().join(" ")
            } else {
                line[start..].to_owned()
            };
            format!("{}{inner}", &line[..start])
        };
        let lines = file.lines().map(line);
        lines.filter(|line| self != Self::BlankLinesLost || !line.is_empty()).collect()
    }
}

/// How many different indentations a text has.
fn levels(text: &str) -> usize {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| line.len() - line.trim_start().len()).collect::<std::collections::BTreeSet<_>>().len()
}

impl Case {
    /// Makes the edit under a blur. None: the blur has nothing to do here.
    pub fn fate(&self, blur: Blur) -> Option<Fate> {
        let (content, old, new) = blur.apply(self)?;
        let Ok(replaced) = edit(&content, &old, &new, false) else { return Some(Fate::Refused) };
        let want = format!("{}{}{}", self.before, self.new, self.after);
        let in_file = |text: &str| match blur {
            Blur::SpacesForTabs => each_line(text, &|_, line| reindented(line, "    ", "\t")),
            Blur::OtherLineEndings => text.replace('\n', "\r\n"),
            _ => text.to_owned(),
        };
        // Around the place not a byte may differ.
        let around =
            replaced.text.starts_with(&in_file(&self.before)) && replaced.text.ends_with(&in_file(&self.after));
        let endings = blur != Blur::OtherLineEndings || !replaced.text.replace("\r\n", "").contains('\n');
        let right = around && endings && blur.judged(&replaced.text) == blur.judged(&want);
        Some(if right { Fate::Right } else { Fate::Wrong })
    }

    fn new(name: String, content: &str, (start, end): (usize, usize), new: String) -> Option<Self> {
        let old = &content[start..end];
        let full = old.lines().filter(|line| line.trim().len() > 2).count();
        let unique = content.matches(old).count() == 1;
        let fits = (2..=EDIT_LINES_MAX).contains(&old.lines().count()) && full >= 2 && new.ends_with('\n');
        (unique && fits && old != new && !old.contains('\r')).then(|| Self {
            name,
            content: content.to_owned(),
            before: content[..start].to_owned(),
            after: content[end..].to_owned(),
            old: old.to_owned(),
            new,
        })
    }
}

/// How often what became of the edits under a blur.
pub type Tally = BTreeMap<Blur, BTreeMap<Fate, usize>>;

/// The share of an outcome in percent.
pub fn percent(fates: &BTreeMap<Fate, usize>, fate: Fate) -> f64 {
    let all: usize = fates.values().sum();
    let of = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    100.0 * of(fates.get(&fate).copied().unwrap_or(0)) / of(all).max(1.0)
}

pub fn tally(cases: &[Case], mut wrong: impl FnMut(&Case, Blur)) -> Tally {
    let mut tally = Tally::new();
    for blur in Blur::ALL {
        for case in cases {
            if let Some(fate) = case.fate(blur) {
                *tally.entry(blur).or_default().entry(fate).or_default() += 1;
                if fate == Fate::Wrong {
                    wrong(case, blur);
                }
            }
        }
    }
    tally
}

/// At most `most` edits: half of them between versions, half made up, as far as there are so many.
pub fn cases(most: usize) -> Vec<Case> {
    let mut between = versions(most / 2);
    let made = made_up(most - between.len());
    between.extend(made);
    between
}

/// The folders of the registry's sources, and our own sources.
fn folders() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registries = home.map(|home| entries(&home.join("registry/src"))).unwrap_or_default();
    let mut folders: Vec<PathBuf> = registries.iter().flat_map(|registry| entries(registry)).collect();
    folders.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    folders
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    paths
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(next) = todo.pop() {
        for path in entries(&next) {
            if path.is_dir() {
                todo.push(path);
            } else if path
                .extension()
                .is_some_and(|kind| ["rs", "c", "h", "md", "py", "toml"].iter().any(|k| kind == *k))
            {
                out.push(path);
            }
        }
    }
    out.sort();
    out
}

fn text_of(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    (text.len() <= FILE_BYTES_MAX && text.ends_with('\n')).then_some(text)
}

/// Texts of real files before and after a change: two versions of one crate's, or one of ours and itself with words
/// replaced, where the machine has no versions. Ones that git can tell apart and that are not long.
#[allow(dead_code, reason = "the example does without")]
pub fn pairs_of_texts(most: usize) -> Vec<(String, String)> {
    let ours =
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).into_iter().filter_map(|path| text_of(&path));
    let changed = ours.map(|text| {
        let new = text.replace("self", "this").replacen("///", "//!", 3);
        (text, new)
    });
    let versions = files_of_versions().into_iter().filter_map(|(old, new)| Some((text_of(&old)?, text_of(&new)?)));
    let short = |text: &str| text.len() < 40_000 && text.len() > 200 && !text.contains(['\r', '\0']);
    let differ = |(old, new): &(String, String)| old != new && short(old) && short(new);
    versions.chain(changed).filter(differ).take(most).collect()
}

/// Files that two versions of one crate have, the older first.
fn files_of_versions() -> Vec<(PathBuf, PathBuf)> {
    let folders = folders();
    let crate_of = |path: &Path| {
        let name = path.file_name()?.to_str()?.to_owned();
        let (stem, version) = name.rsplit_once('-')?;
        version.starts_with(|c: char| c.is_ascii_digit()).then(|| stem.to_owned())
    };
    let pairs = folders.windows(2).filter(|two| crate_of(&two[0]).is_some() && crate_of(&two[0]) == crate_of(&two[1]));
    let mut files: Vec<(u64, PathBuf, PathBuf)> = Vec::new();
    for two in pairs {
        for old in sources(&two[0]) {
            let new = two[1].join(old.strip_prefix(&two[0]).unwrap_or(&old));
            if new.exists() {
                files.push((hash(old.strip_prefix(&two[0]).unwrap_or(&old).as_os_str().as_encoded_bytes()), old, new));
            }
        }
    }
    files.sort();
    files.into_iter().map(|(_, old, new)| (old, new)).collect()
}

/// Hunks between the files of two versions of one crate.
fn versions(most: usize) -> Vec<Case> {
    let mut out = Vec::new();
    for (old, new) in files_of_versions() {
        if let (Some(old_text), Some(new_text)) = (text_of(&old), text_of(&new)) {
            // A few of each file, so that no file counts for all.
            out.extend(hunks(&old.to_string_lossy(), &old_text, &new_text).into_iter().take(6));
        }
        if out.len() >= most {
            break;
        }
    }
    out.truncate(most);
    out
}

/// The changes between two texts, each with a line or two around it, as edits of the first.
fn hunks(name: &str, old: &str, new: &str) -> Vec<Case> {
    let diff = TextDiff::configure().timeout(std::time::Duration::from_secs(2)).diff_lines(old, new);
    let mut out = Vec::new();
    for (index, group) in diff.grouped_ops(1 + out.len() % 2).iter().enumerate() {
        let (mut start, mut end, mut text) = (None, 0, String::new());
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            if let Some(at) = change.old_index() {
                start = start.or(Some(at));
                end = at + 1;
            }
            if change.tag() != ChangeTag::Delete {
                text.push_str(change.value());
            }
        }
        let offset = |line: usize| old.split_inclusive('\n').take(line).map(str::len).sum::<usize>();
        if let Some(start) = start {
            out.extend(Case::new(format!("{name}#{index}"), old, (offset(start), offset(end)), text));
        }
    }
    out
}

/// Changes of a few lines somewhere in a file: a line more, a line less, another word.
fn made_up(most: usize) -> Vec<Case> {
    let mut files: Vec<(u64, PathBuf)> = folders()
        .iter()
        .flat_map(|folder| {
            sources(folder).into_iter().map(move |path| (path.strip_prefix(folder).unwrap_or(&path).to_owned(), path))
        })
        .map(|(relative, path)| (hash(relative.as_os_str().as_encoded_bytes()), path))
        .collect();
    files.sort();
    let mut out = Vec::new();
    for (seed, path) in files {
        if let Some(text) = text_of(&path) {
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            for part in 0..2 {
                out.extend(change(&path.to_string_lossy(), (&text, &lines), seed.rotate_left(part * 17)));
            }
        }
        if out.len() >= most {
            break;
        }
    }
    out.truncate(most);
    out
}

fn change(name: &str, (text, lines): (&str, &[&str]), seed: u64) -> Option<Case> {
    let count = 3 + (seed % 10) as usize;
    let room = lines.len().checked_sub(count + 1)?;
    let first = (seed / 16) as usize % (room + 1);
    let block = &lines[first..first + count];
    if block[0].trim().is_empty() || block[count - 1].trim().is_empty() {
        return None;
    }
    let full: Vec<usize> = (1..count - 1).filter(|at| !block[*at].trim().is_empty()).collect();
    let middle = *full.get((seed / 64) as usize % full.len().max(1))?;
    let line = block[middle];
    let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
    let changed = match seed % 3 {
        0 => String::new(),
        1 => format!("{line}{indent}let added = compute(first, second);\n"),
        _ => format!("{}/* changed */\n", line.trim_end()),
    };
    let new = [&block[..middle].concat(), &changed, &block[middle + 1..].concat()].map(String::as_str).concat();
    let start: usize = lines[..first].iter().map(|line| line.len()).sum();
    let end = start + block.iter().map(|line| line.len()).sum::<usize>();
    Case::new(format!("{name}:{}", first + 1), text, (start, end), new)
}

fn each_line(text: &str, line: &dyn Fn(usize, &str) -> String) -> String {
    let lines = text.split_inclusive('\n').enumerate().map(|(at, full)| match full.strip_suffix('\n') {
        Some(bare) => line(at, bare) + "\n",
        None => line(at, full),
    });
    lines.collect()
}

/// A line whose indentation is written in another unit.
fn reindented(line: &str, from: &str, to: &str) -> String {
    let mut rest = line;
    let mut out = String::new();
    while let Some(next) = rest.strip_prefix(from) {
        out.push_str(to);
        rest = next;
    }
    out + rest
}

fn common_indent(texts: &[&str]) -> usize {
    let lines = texts.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().is_empty());
    lines.map(|line| line.len() - line.trim_start_matches(' ').len()).min().unwrap_or(0)
}

/// The text with letters changed in lines that are neither the first nor the last. None: there is no such line.
fn with_typos(text: &str, count: usize, seed: u64) -> Option<String> {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let inner: Vec<usize> = (1..lines.len().saturating_sub(1)).filter(|at| lines[*at].trim().len() >= 6).collect();
    if inner.is_empty() {
        return None;
    }
    for typo in 0..count {
        let seed = seed.rotate_left(11 * u32::try_from(typo).ok()?);
        let line = &mut lines[inner[seed as usize % inner.len()]];
        let letters: Vec<usize> =
            line.char_indices().filter(|(_, c)| c.is_ascii_alphanumeric()).map(|(at, _)| at).collect();
        let at = *letters.get((seed / 8) as usize % letters.len().max(1))?;
        match seed % 4 {
            0 => line.replace_range(at..=at, ""),
            1 => line.insert(at, 'x'),
            2 => line.replace_range(at..=at, "q"),
            _ => {
                let letter = line[at..=at].to_owned();
                line.insert_str(at, &letter);
            }
        }
    }
    let blurred = lines.concat();
    (blurred != text).then_some(blurred)
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
