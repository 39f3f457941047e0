//! `fs_read`: lines of a text file with their numbers; other files are described.
//!
//! The file streams through, and no further than it has to: lines 5 to 10 of a huge file cost what they are. `window`
//! keeps the lines. PDFs and notebooks become text first (`converted`).

mod converted;
mod exact;
mod notebook;
mod pdf;
mod pdf_text;
mod window;

use std::fs::{File, Metadata};
use std::hash::Hasher;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use encoding_rs::{Decoder, UTF_16BE, UTF_16LE};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fs_common::{
    PATH_ALIASES, blocking, definition, flag, io_failed, not_found, optional_text, paths, refused, text_argument, whole,
};
use super::fs_guard::Guard;
use super::view_image::hindrance;
use crate::base::ear::Ear;
use crate::base::image::{Image, image};
use crate::base::text::{self, ByteOrder, Content};
use crate::base::workspace::{PathError, Workspace};
use crate::base::{BoxFuture, limit};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Share, Subject, Tool, ToolContext, ToolError, ToolOutput};

use window::Window;

/// Bytes that are read at once. A JPEG's size stands within its first ones.
const CHUNK_BYTES: usize = 64 * 1024;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The file, relative to the working directory or absolute", "required": true},
        "offset": {"type": "number", "description": "First line to show, from 1. Default: 1"},
        "pages": {"type": "string", "description": "Of a PDF: the pages to show, such as 3 or 2-5. Default: all"},
        "raw": {"type": "boolean", "description": "Show a notebook as the JSON that fs_edit works on. Default: false"},
        "limit": {"type": "number", "description": format!("Lines to show. Default: {}", limit::READ_LINES)},
    });
    let description = "Shows a text file, each line after its number and a tab (neither is part of the file). Says how \
                       many lines are left out and how to read on. PDFs and notebooks are shown as text, other \
                       encodings are decoded; images (see view_image) and other binary files are described.";
    definition("fs_read", ToolCategory::Read, description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct FsRead {
    workspace: Arc<Workspace>,
}

impl FsRead {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl Tool for FsRead {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        PATH_ALIASES
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        paths(&self.workspace, arguments, &["path"])
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let first = whole(&arguments, "offset", 1)?.unwrap_or(1);
            let count = whole(&arguments, "limit", 1)?.unwrap_or(limit::READ_LINES);
            let guard = Guard::new(&self.workspace, context);
            let reading = Reading {
                workspace: guard.workspace(),
                guard,
                path: text_argument(&arguments, "path")?,
                share: context.scope.share().clone(),
                first,
                count,
                pages: optional_text(&arguments, "pages")?,
                raw: flag(&arguments, "raw")?,
                ear: context.events.ear().cloned(),
                cancel: context.cancel.clone(),
            };
            blocking(move || reading.run().map(ToolOutput::from)).await
        })
    }
}

/// One call.
struct Reading {
    workspace: Arc<Workspace>,
    guard: Guard,
    path: String,
    share: Share,
    first: usize,
    count: usize,
    pages: Option<String>,
    raw: bool,
    /// Who wants the bytes themselves, beside what is shown.
    ear: Option<Arc<dyn Ear>>,
    cancel: CancellationToken,
}

impl Reading {
    fn run(&self) -> Result<String, ToolError> {
        let wanted = self.ear.as_ref().and_then(|ear| Some((ear, ear.wants()?)));
        if let Some((ear, lines)) = wanted {
            ear.read(exact::text(self.open()?, &self.path, lines)?);
        }
        let file = self.open()?;
        let found = file.metadata().map_err(|e| self.failed(&e))?;
        let mut reader = BufReader::with_capacity(CHUNK_BYTES, file);
        let start = reader.fill_buf().map_err(|e| self.failed(&e))?;
        if let Some(form) = self.form(start) {
            let (text, hash) = self.converted(form, &mut reader, &found)?;
            self.remember(&found, hash);
            return Ok(text);
        }
        if self.pages.is_some() {
            return Err(ToolError::BadArguments(format!("`pages`: \"{}\" is no PDF, and has none", self.path)));
        }
        let (text, hash) = match text::sniff(&start[..start.len().min(text::SNIFF_BYTES)]) {
            Content::Text | Content::OtherText => self.lines(&mut reader, None, &found)?,
            Content::Utf16(order) => self.lines(&mut reader, Some(order), &found)?,
            Content::Image(image) => (self.described_image(image, &mut reader, found.len())?, None),
            Content::Binary => (described(start, &self.path, found.len()), None),
        };
        self.remember(&found, hash);
        Ok(text)
    }

    /// Opens the file: of the workspace, or a whole output that a command of this session left.
    fn open(&self) -> Result<File, ToolError> {
        let path = Path::new(&self.path);
        let kept = path.is_absolute().then(|| self.share.open_output(path)).flatten();
        if let Some(kept) = kept {
            return kept.map_err(|e| self.failed(&e));
        }
        open(&self.workspace, &self.path)
    }

    fn remember(&self, found: &Metadata, hash: Option<u64>) {
        if let Ok(real) = self.workspace.resolve(&self.path) {
            self.guard.saw(&real, found, hash);
        }
    }

    fn failed(&self, error: &std::io::Error) -> ToolError {
        io_failed("read", &self.path, error)
    }

    /// What kind of image it is, and whether it can be seen.
    fn described_image(&self, begun: Image, file: &mut impl Read, size: u64) -> Result<String, ToolError> {
        let mut bytes = Vec::new();
        file.take(limit::IMAGE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| self.failed(&e))?;
        let image = image(&bytes).unwrap_or(begun);
        let (path, media_type, pixels) = (&self.path, image.media_type, image.pixels());
        let shown = match hindrance(image, &bytes) {
            None => "It is not shown here: view_image shows it.".to_owned(),
            Some(why) => format!("It is not shown, and view_image cannot show it: {why}."),
        };
        Ok(format!("Image file \"{path}\": {media_type}, {pixels}, {size} bytes. {shown}"))
    }

    /// The lines that were asked for, and the hash of the whole file when all of it was gone through.
    fn lines<R: Read>(
        &self,
        reader: &mut BufReader<R>,
        utf16: Option<ByteOrder>,
        found: &Metadata,
    ) -> Result<(String, Option<u64>), ToolError> {
        let mut window = Window::new(self.first, self.count);
        let mut decoder = utf16.map(Utf16::new);
        let mut hasher = self.guard.hasher();
        let (mut seen_bytes, mut ahead_bytes) = (0, 0);
        let whole = loop {
            if self.cancel.is_cancelled() {
                return Err(ToolError::Aborted);
            }
            let chunk = reader.fill_buf().map_err(|e| self.failed(&e))?;
            if chunk.is_empty() {
                break true;
            }
            if window.is_full() {
                let left = found.len().saturating_sub(seen_bytes);
                if left.max(ahead_bytes) > limit::READ_AHEAD_BYTES_MAX {
                    window.stop_counting();
                    break false;
                }
                ahead_bytes += chunk.len() as u64;
            }
            hasher.write(chunk);
            match &mut decoder {
                Some(decoder) => window.feed(decoder.feed(chunk)),
                None => window.feed(chunk),
            }
            let taken = chunk.len();
            seen_bytes += taken as u64;
            reader.consume(taken);
        };
        if let Some(decoder) = decoder.as_mut().filter(|_| whole) {
            window.feed(decoder.end());
        }
        let mut text = window.finish(&self.path, found.len())?;
        if let Some(decoder) = decoder {
            text += &decoder.note();
        }
        Ok((text, whole.then(|| hasher.finish())))
    }
}

/// UTF-16 as UTF-8, piece by piece.
struct Utf16 {
    decoder: Decoder,
    out: String,
    name: &'static str,
    faulty: bool,
}

impl Utf16 {
    fn new(order: ByteOrder) -> Self {
        let encoding = match order {
            ByteOrder::Little => UTF_16LE,
            ByteOrder::Big => UTF_16BE,
        };
        Self {
            decoder: encoding.new_decoder_with_bom_removal(),
            out: String::new(),
            name: encoding.name(),
            faulty: false,
        }
    }

    fn feed(&mut self, chunk: &[u8]) -> &[u8] {
        self.decode(chunk, false)
    }

    fn end(&mut self) -> &[u8] {
        self.decode(&[], true)
    }

    fn decode(&mut self, chunk: &[u8], last: bool) -> &[u8] {
        self.out.clear();
        self.out.reserve(self.decoder.max_utf8_buffer_length(chunk.len()).unwrap_or(4 * chunk.len() + 16));
        let (_, _, faulty) = self.decoder.decode_to_string(chunk, &mut self.out, last);
        self.faulty |= faulty;
        self.out.as_bytes()
    }

    fn note(&self) -> String {
        let faulty = if self.faulty { ", with faults that are shown as \u{fffd}" } else { "" };
        format!("\n\n({}{faulty}; fs_edit will not touch the file, and fs_write makes it UTF-8)", self.name)
    }
}

/// Opens the file. What cannot be opened is told with what may have been meant.
fn open(workspace: &Workspace, input: &str) -> Result<File, ToolError> {
    workspace.open(input).map_err(|error| match &error {
        PathError::NotAFile { kind: "a directory", .. } => {
            ToolError::failed(format!("{error}. fs_list shows what is in it"))
        }
        error if error.is_not_found() => not_found(workspace, input),
        error => refused(error),
    })
}

fn described(start: &[u8], path: &str, bytes: u64) -> String {
    format!("Binary file \"{path}\": {}, {bytes} bytes. It is not shown.", kind(start))
}

/// A binary file's type, where its first bytes tell.
fn kind(start: &[u8]) -> &'static str {
    const KINDS: [(usize, &[u8], &str); 20] = [
        (0, b"\x7fELF", "ELF program or library"),
        (0, b"%PDF-", "PDF document"),
        (0, b"PK\x03\x04", "ZIP archive"),
        (0, b"\x1f\x8b", "gzip data"),
        (0, b"\x28\xb5\x2f\xfd", "zstd data"),
        (0, b"\xfd7zXZ\0", "xz data"),
        (0, b"BZh", "bzip2 data"),
        (0, b"SQLite format 3\0", "SQLite database"),
        (0, b"\0asm", "WebAssembly module"),
        (0, b"\xff\xfe\0\0", "UTF-32 text"),
        (0, b"\0\0\xfe\xff", "UTF-32 text"),
        (0, b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
        (0, b"II*\0", "TIFF image"),
        (0, b"MM\0*", "TIFF image"),
        (0, b"\0\0\x01\0", "icon"),
        (4, b"ftypavif", "AVIF image"),
        (4, b"ftyphei", "HEIC image"),
        (4, b"ftyp", "MP4 video or audio"),
        (0, b"OggS", "Ogg audio or video"),
        (0, b"ID3", "MP3 audio"),
    ];
    let found = KINDS.iter().find(|(at, magic, _)| start.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    found.map_or("unknown type", |(_, _, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::super::fs_common::testing::{aborted, call, context, workspace};
    use super::*;

    fn read_file(content: &str, arguments: serde_json::Value) -> Result<String, String> {
        let (_home, workspace) = workspace(&[("f", content)]);
        let mut arguments = arguments;
        arguments["path"] = "f".into();
        call(&FsRead::new(workspace), arguments)
    }

    #[test]
    fn lines_have_numbers() {
        let hundred: String = (1..=100).map(|n| format!("l{n}\n")).collect();
        #[rustfmt::skip]
        let table = [
            ("a\nb\n", json!({}), "     1\ta\n     2\tb"),
            ("a\nb", json!({}), "     1\ta\n     2\tb"),
            ("a\r\nb\r\n", json!({}), "     1\ta\n     2\tb"),
            ("\u{feff}a\n\nb", json!({}), "     1\ta\n     2\t\n     3\tb\n\n(UTF-8 with a byte order mark, which is not shown; fs_edit keeps it)"),
            ("\n", json!({}), "     1\t"),
            ("", json!({}), "(\"f\" is empty)"),
            ("\u{feff}", json!({}), "(\"f\" is empty)\n\n(UTF-8 with a byte order mark, which is not shown; fs_edit keeps it)"),
            ("\u{feff}\n", json!({}), "     1\t\n\n(UTF-8 with a byte order mark, which is not shown; fs_edit keeps it)"),
            ("a\nb\nc\n", json!({"offset": 2}), "     2\tb\n     3\tc\n\n(Showing lines 2-3 of 3.)"),
            ("a\nb\nc", json!({"limit": 1}), "     1\ta\n\n(Showing lines 1-1 of 3. Read on with offset: 2)"),
            (&hundred, json!({"offset": 100.0, "limit": 5}), "   100\tl100\n\n(Showing lines 100-100 of 100.)"),
        ];
        for (content, arguments, want) in table {
            assert_eq!(read_file(content, arguments.clone()).as_deref(), Ok(want), "{content:?} {arguments}");
        }
    }

    #[test]
    fn bad_windows_are_refused() {
        let said = |arguments| read_file("a\nb\n", arguments).unwrap_err();
        assert_eq!(said(json!({"offset": 3})), "`offset`: 3 is beyond the end of \"f\", which has 2 lines");
        assert_eq!(said(json!({"offset": 0})), "`offset`: expected a whole number from 1, got 0");
        assert_eq!(said(json!({"limit": 1.5})), "`limit`: expected a whole number from 1, got 1.5");
        assert_eq!(said(json!({"limit": "x"})), "`limit`: expected a whole number from 1, got \"x\"");
    }

    #[test]
    fn long_files_and_lines_are_cut_and_said() {
        let long: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
        let text = read_file(&long, json!({})).unwrap();
        assert!(
            text.ends_with("(Showing lines 1-2000 of 100000. Read on with offset: 2001)"),
            "{}",
            text::tail(&text, 200)
        );
        let text = read_file(&long, json!({"limit": 100_000})).unwrap();
        assert!(text.encode_utf16().count() < limit::OUTPUT_CHARS_MAX);
        let next: usize = text.rsplit(' ').next().unwrap().trim_end_matches(')').parse().unwrap();
        let rest = read_file(&long, json!({"offset": next, "limit": 1})).unwrap();
        assert!(rest.contains(&format!("\tline {}\n", next - 1)) && text.contains(&format!("\tline {}\n", next - 2)));
        let text = read_file(&"ä".repeat(20_000), json!({})).unwrap();
        assert!(text.ends_with("ää [line cut: 40000 bytes in all]"), "{}", text::tail(&text, 60));
        assert!(!text.contains("UTF-8"));
    }

    #[test]
    fn other_files_are_described() {
        let (home, workspace) = workspace(&[]);
        let tool = FsRead::new(workspace);
        let put = |name: &str, bytes: &[u8]| std::fs::write(home.path().join(name), bytes).unwrap();
        let gif = |width: u8| {
            let frame = b"\x2c\0\0\0\0\x01\0\x01\0\0\x02\x01\x44\0\x3b";
            [&b"GIF89a\x02"[..], &[width], b"\x03\0\0\0\0", frame].concat()
        };
        put("p.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0");
        put("p.gif", &gif(0));
        put("wide.gif", &gif(32));
        put("p.bmp", b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x03\0\0\0\x01\0\x18\0");
        let mut large = gif(0);
        large.resize(usize::try_from(limit::IMAGE_BYTES_MAX).unwrap() + 1, 0);
        put("large.gif", &large);
        put("b", b"\x7fELF\0\0\0");
        let said = |name: &str| call(&tool, json!({"path": name})).unwrap();
        let no = "It is not shown, and view_image cannot show it:";
        #[rustfmt::skip]
        let table = [
            ("p.gif", "image/gif, 2x3 pixels, 28 bytes. It is not shown here: view_image shows it.".to_owned()), ("p.png", format!("image/png, 2x3 pixels, 29 bytes. {no} it is broken: it ends at byte 29")),
            ("wide.gif", format!("image/gif, 8194x3 pixels, 28 bytes. {no} it has more than 8000 pixels at a side")),
            ("large.gif", format!("image/gif, 2x3 pixels, 1500001 bytes. {no} it has more than 1500000 bytes")), ("p.bmp", format!("image/bmp, 2x3 pixels, 30 bytes. {no} models take PNG, JPEG, GIF and WebP: convert it first.")),
        ];
        for (name, want) in table {
            let text = said(name);
            assert!(text.starts_with(&format!("Image file \"{name}\": {want}")), "{text}");
        }
        assert_eq!(said("b"), "Binary file \"b\": ELF program or library, 7 bytes. It is not shown.");
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let (home, workspace) = workspace(&[("main.rs", "x"), ("dir/", "")]);
        let tool = FsRead::new(workspace);
        let said = |path: &str| call(&tool, json!({"path": path})).unwrap_err();
        assert_eq!(said("mian.rs"), "No such file or directory: \"mian.rs\". Did you mean \"main.rs\"?");
        assert_eq!(said("nothing"), "No such file or directory: \"nothing\"");
        assert_eq!(said("dir"), "Path \"dir\" is a directory, not a regular file. fs_list shows what is in it");
        let wd = home.path().display();
        assert_eq!(said("../x"), format!("Path \"../x\" escapes the working directory \"{wd}\""));
        assert_eq!(call(&tool, json!({})).unwrap_err(), "`path`: expected a string, got nothing");
        aborted(&tool, json!({"path": "main.rs"}));
    }

    #[test]
    fn the_subject_is_the_resolved_path() {
        let (home, workspace) = workspace(&[("a", "x")]);
        let Ok(serde_json::Value::Object(arguments)) = serde_json::to_value(json!({"path": "b/../a"})) else {
            panic!()
        };
        let Subject::Paths(paths) = FsRead::new(workspace).subject(&arguments) else { panic!("paths") };
        assert_eq!(paths[0].given, "b/../a");
        assert_eq!(paths[0].resolved, Some(home.path().canonicalize().unwrap().join("a")));
    }

    #[test]
    fn older_encodings_are_decoded_and_told() {
        let (home, workspace) = workspace(&[]);
        let tool = FsRead::new(workspace);
        let utf16 = |text: &str, bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        let little = utf16("größe\r\n😀\n", u16::to_le_bytes);
        let marked = [&b"\xfe\xff"[..], &utf16("größe\r\n😀\n", u16::to_be_bytes)].concat();
        let told = |name: &str| {
            format!(
                "     1\tgröße\n     2\t😀\n\n({name}; fs_edit will not touch the file, and fs_write makes it UTF-8)"
            )
        };
        let latin =
            "     1\tcafé\n\n(Not UTF-8: read as Windows-1252, that is Latin-1; fs_edit will not touch the file)";
        let late = format!("{}\ncaf\u{e9}", "plain\n".repeat(5_000)).chars().map(|c| c as u8).collect::<Vec<_>>();
        let broken = "     1\té \u{fffd}\n\n(Not valid UTF-8: bytes that are no text are shown as \u{fffd}, and fs_edit will not touch the file)";
        #[rustfmt::skip]
        let table: [(&[u8], usize, String); 5] = [
            (&little, 1, told("UTF-16LE")), (&marked, 1, told("UTF-16BE")), (b"caf\xe9\n", 1, latin.to_owned()),
            (&late, 5_002, latin.replace("     1", "  5002").replace("\n\n(", "\n\n(Showing lines 5002-5002 of 5002.)\n\n(")),
            ("é \u{fffd}".as_bytes().split_last().unwrap().1, 1, broken.to_owned()),
        ];
        for (bytes, offset, want) in table {
            std::fs::write(home.path().join("f"), bytes).unwrap();
            assert_eq!(call(&tool, json!({"path": "f", "offset": offset})).as_deref(), Ok(want.as_str()));
        }
    }

    /// Counts what is read through it.
    struct Counting<'c, R>(R, &'c std::cell::Cell<u64>);

    impl<R: Read> Read for Counting<'_, R> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let got = self.0.read(into)?;
            self.1.set(self.1.get() + got as u64);
            Ok(got)
        }
    }

    #[test]
    fn lines_of_a_huge_file_cost_what_they_are() {
        let (home, workspace) = workspace(&[("huge", &"line\n".repeat(100_000))]);
        let huge = std::fs::OpenOptions::new().write(true).open(home.path().join("huge")).unwrap();
        huge.set_len(2 << 30).unwrap();
        let read = |first, count| {
            let bytes = std::cell::Cell::new(0);
            let file = std::fs::File::open(home.path().join("huge")).unwrap();
            let found = file.metadata().unwrap();
            let mut reader = BufReader::with_capacity(CHUNK_BYTES, Counting(file, &bytes));
            let guard = Guard::new(&workspace, &context());
            let cancel = CancellationToken::new();
            let workspace = Arc::clone(&workspace);
            let reading = Reading {
                workspace,
                guard,
                path: "huge".into(),
                share: Share::default(),
                first,
                count,
                pages: None,
                raw: false,
                ear: None,
                cancel,
            };
            let (text, hash) = reading.lines(&mut reader, None, &found).unwrap();
            assert_eq!(hash, None, "not all of it was seen");
            (text, bytes.get())
        };
        let (text, bytes) = read(5, 6);
        assert!(text.starts_with("     5\tline\n"), "{text}");
        let end = "\n    10\tline\n\n(Showing lines 5-10; the file goes on, 2147483648 bytes in all. Read on with offset: 11)";
        assert!(text.ends_with(end), "{text}");
        assert!(bytes <= 2 * CHUNK_BYTES as u64, "{bytes}");
        let (text, bytes) = read(90_000, 1);
        assert!(text.starts_with(" 90000\tline\n") && bytes <= 500_000 + CHUNK_BYTES as u64, "{bytes} {text}");
    }
}
