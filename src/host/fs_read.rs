//! `fs_read`: lines of a text file with their numbers; other files are described.
//!
//! The file streams through; what is held is one line and the output.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, LazyLock};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fs_common::{blocking, definition, io_failed, open, paths, refused, text_argument, whole};
use super::fs_guard::Guard;
use crate::base::text::{self, Content};
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

/// Bytes that are read at once. A JPEG's size stands within its first ones.
const CHUNK_BYTES: usize = 64 * 1024;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The file, relative to the working directory or absolute", "required": true},
        "offset": {"type": "number", "description": "First line to show, from 1. Default: 1"},
        "limit": {"type": "number", "description": format!("Lines to show. Default: {}", limit::READ_LINES)},
    });
    let description = "Shows a text file, each line after its number and a tab (neither is part of the file). Says how \
                       many lines are left out and how to read on. Images and other binary files are described.";
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

    fn subject(&self, arguments: &Arguments) -> Subject {
        paths(&self.workspace, arguments, &["path"])
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let path = text_argument(&arguments, "path")?;
            let first = whole(&arguments, "offset", 1)?.unwrap_or(1);
            let count = whole(&arguments, "limit", 1)?.unwrap_or(limit::READ_LINES);
            let (workspace, cancel) = (Arc::clone(&self.workspace), context.cancel.clone());
            let guard = Guard::new(&workspace, context);
            blocking(move || {
                let real = workspace.resolve(&path).map_err(|e| refused(&e))?;
                let text = read(&workspace, &path, Window::new(first, count), &cancel)?;
                if let Ok(found) = std::fs::metadata(&real) {
                    guard.saw(&real, &found, None);
                }
                Ok(text.into())
            })
            .await
        })
    }
}

fn read(workspace: &Workspace, path: &str, window: Window, cancel: &CancellationToken) -> Result<String, ToolError> {
    let file = open(workspace, path)?;
    let bytes = file.metadata().map(|m| m.len()).unwrap_or_default();
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, file);
    let start = reader.fill_buf().map_err(|e| io_failed("read", path, &e))?;
    match text::sniff(&start[..start.len().min(text::SNIFF_BYTES)]) {
        Content::Text | Content::OtherText => lines(&mut reader, path, window, cancel),
        Content::Image(_) => Ok(described_image(start, path, bytes)),
        Content::Binary => Ok(format!("Binary file \"{path}\": {}, {bytes} bytes. It is not shown.", kind(start))),
    }
}

fn described_image(start: &[u8], path: &str, bytes: u64) -> String {
    let image = text::image(start);
    let media_type = image.map_or("unknown type", |image| image.media_type);
    let size = image.and_then(|image| image.size);
    let size = size.map_or_else(|| "size unknown".to_owned(), |(w, h)| format!("{w}x{h} pixels"));
    format!("Image file \"{path}\": {media_type}, {size}, {bytes} bytes. It is not shown.")
}

/// A binary file's type, where its first bytes tell.
fn kind(start: &[u8]) -> &'static str {
    const KINDS: [(&[u8], &str); 12] = [
        (b"\x7fELF", "ELF program or library"),
        (b"%PDF-", "PDF document"),
        (b"PK\x03\x04", "ZIP archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"\x28\xb5\x2f\xfd", "zstd data"),
        (b"\xfd7zXZ\0", "xz data"),
        (b"BZh", "bzip2 data"),
        (b"SQLite format 3\0", "SQLite database"),
        (b"\0asm", "WebAssembly module"),
        (b"\xff\xfe", "UTF-16 text"),
        (b"\xfe\xff", "UTF-16 text"),
        (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    ];
    KINDS.iter().find(|(magic, _)| start.starts_with(magic)).map_or("unknown type", |(_, kind)| kind)
}

fn lines<R: Read>(
    reader: &mut BufReader<R>,
    path: &str,
    mut window: Window,
    cancel: &CancellationToken,
) -> Result<String, ToolError> {
    loop {
        if cancel.is_cancelled() {
            return Err(ToolError::Aborted);
        }
        let chunk = reader.fill_buf().map_err(|e| io_failed("read", path, &e))?;
        if chunk.is_empty() {
            break;
        }
        let taken = chunk.len();
        if !window.feed(chunk) {
            break;
        }
        reader.consume(taken);
    }
    window.finish(path)
}

/// The lines that are shown, and what is known of the others.
#[derive(Debug)]
struct Window {
    first: usize,
    count: usize,
    out: String,
    out_units: usize,
    shown: usize,
    /// Ended lines so far.
    ended: usize,
    /// The start of the line that is being read; kept only while it will be shown.
    line: Vec<u8>,
    line_bytes: usize,
    /// The output is full: nothing more is shown.
    full: bool,
    /// Bytes seen since nothing more is shown.
    ahead_bytes: u64,
    /// The counting was given up.
    uncounted: bool,
    lossy: bool,
}

impl Window {
    fn new(first: usize, count: usize) -> Self {
        Self {
            first,
            count,
            out: String::new(),
            out_units: 0,
            shown: 0,
            ended: 0,
            line: Vec::new(),
            line_bytes: 0,
            full: false,
            ahead_bytes: 0,
            uncounted: false,
            lossy: false,
        }
    }

    /// Takes the next bytes. False when no more are wanted.
    fn feed(&mut self, mut chunk: &[u8]) -> bool {
        while !chunk.is_empty() {
            if self.full || self.shown == self.count {
                self.ahead_bytes += chunk.len() as u64;
                self.uncounted = self.ahead_bytes > limit::READ_AHEAD_BYTES_MAX;
                self.skip(chunk);
                return !self.uncounted;
            }
            let at = memchr::memchr(b'\n', chunk);
            let piece = &chunk[..at.unwrap_or(chunk.len())];
            if self.ended + 1 >= self.first {
                let room = (limit::READ_LINE_BYTES_MAX + 4).saturating_sub(self.line.len());
                self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            self.line_bytes += piece.len();
            if at.is_some() {
                self.end_line();
            }
            chunk = &chunk[(piece.len() + usize::from(at.is_some()))..];
        }
        true
    }

    fn skip(&mut self, chunk: &[u8]) {
        self.ended += memchr::memchr_iter(b'\n', chunk).count();
        match memchr::memrchr(b'\n', chunk) {
            Some(at) => self.line_bytes = chunk.len() - at - 1,
            None => self.line_bytes += chunk.len(),
        }
    }

    fn end_line(&mut self) {
        self.ended += 1;
        if self.ended >= self.first && !self.full && self.shown < self.count {
            self.show();
        }
        self.line.clear();
        self.line_bytes = 0;
    }

    fn show(&mut self) {
        let mut bytes = self.line.as_slice();
        if self.ended == 1 {
            bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        }
        let cut = self.line_bytes > limit::READ_LINE_BYTES_MAX;
        if cut {
            bytes = &bytes[..bytes.len().min(limit::READ_LINE_BYTES_MAX)];
            // A character that the cut split is no fault of the file.
            if let Err(e) = std::str::from_utf8(bytes)
                && e.error_len().is_none()
            {
                bytes = &bytes[..e.valid_up_to()];
            }
        }
        let line = String::from_utf8_lossy(bytes);
        self.lossy |= matches!(line, std::borrow::Cow::Owned(_));
        let mut shown = format!("{:>6}\t{}", self.ended, line.strip_suffix('\r').unwrap_or(&line));
        if cut {
            shown += &format!(" [line cut: {} bytes in all]", self.line_bytes);
        }
        let units = shown.encode_utf16().count() + 1;
        if self.shown > 0 && self.out_units + units > limit::FILE_OUTPUT_CHARS_MAX {
            self.full = true;
            return;
        }
        if self.shown > 0 {
            self.out.push('\n');
        }
        self.out.push_str(&shown);
        self.out_units += units;
        self.shown += 1;
    }

    fn finish(mut self, path: &str) -> Result<String, ToolError> {
        if self.line_bytes > 0 {
            self.end_line();
        }
        if self.ended == 0 {
            return Ok(format!("(\"{path}\" is empty)"));
        }
        if self.shown == 0 {
            let lines = text::counted(self.ended, "line");
            return Err(ToolError::failed(format!(
                "`offset`: {} is beyond the end of \"{path}\", which has {lines}",
                self.first
            )));
        }
        let last = self.first + self.shown - 1;
        if self.first > 1 || last < self.ended || self.uncounted {
            let more = if self.uncounted { "more than " } else { "" };
            self.out += &format!("\n\n(Showing lines {}-{last} of {more}{}.", self.first, self.ended);
            if last < self.ended || self.uncounted {
                self.out += &format!(" Read on with offset: {}", last + 1);
            }
            self.out.push(')');
        }
        if self.lossy {
            self.out += "\n\n(Not valid UTF-8: bytes that are no text are shown as \u{fffd}, and fs_edit will not touch the file)";
        }
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fs_common::testing::{aborted, call, workspace};
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
            ("\u{feff}a\n\nb", json!({}), "     1\ta\n     2\t\n     3\tb"),
            ("\n", json!({}), "     1\t"),
            ("", json!({}), "(\"f\" is empty)"),
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
        put("p.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0");
        put("b", b"\x7fELF\0\0\0");
        put("latin", b"caf\xe9\n");
        let said = |name: &str| call(&tool, json!({"path": name})).unwrap();
        assert_eq!(said("p.png"), "Image file \"p.png\": image/png, 2x3 pixels, 29 bytes. It is not shown.");
        assert_eq!(said("b"), "Binary file \"b\": ELF program or library, 7 bytes. It is not shown.");
        assert!(said("latin").starts_with("     1\tcaf\u{fffd}\n\n(Not valid UTF-8"), "{}", said("latin"));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let (home, workspace) = workspace(&[("main.rs", "x"), ("dir/", "")]);
        let tool = FsRead::new(workspace);
        let said = |path: &str| call(&tool, json!({"path": path})).unwrap_err();
        assert_eq!(said("mian.rs"), "No such file or directory: \"mian.rs\". Did you mean \"main.rs\"?");
        assert_eq!(said("nothing"), "No such file or directory: \"nothing\"");
        assert_eq!(said("dir"), "Path \"dir\" is a directory, not a regular file");
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
}
