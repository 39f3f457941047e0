//! Files that are shown as the text in them: PDFs and notebooks.

use std::fs::Metadata;
use std::hash::Hasher;
use std::io::{BufReader, Read};

use super::Reading;
use super::notebook;
use super::pdf::{Pdf, PdfError, page_range};
use super::window::Window;
use crate::base::limit;
use crate::tool::ToolError;

/// What such a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Pdf,
    Notebook,
}

/// The text that is shown, and the hash of the whole file.
type Shown = (String, Option<u64>);

impl Reading {
    /// What the file is, by its first bytes and its name. None: it is shown as it is.
    pub(super) fn form(&self, start: &[u8]) -> Option<Form> {
        let named = self.path.to_ascii_lowercase().ends_with(".ipynb");
        match start.trim_ascii_start() {
            start if start.starts_with(b"%PDF-") => Some(Form::Pdf),
            start if start.starts_with(b"{") && named && !self.raw => Some(Form::Notebook),
            _ => None,
        }
    }

    /// The file as text.
    pub(super) fn converted<R: Read>(
        &self,
        form: Form,
        reader: &mut BufReader<R>,
        found: &Metadata,
    ) -> Result<Shown, ToolError> {
        let most = limit::CONVERTED_FILE_BYTES_MAX;
        let mut bytes = Vec::new();
        reader.take(most + 1).read_to_end(&mut bytes).map_err(|e| self.failed(&e))?;
        if bytes.len() as u64 > most {
            let kind = if form == Form::Pdf { "PDF" } else { "notebook" };
            return Err(ToolError::failed(format!(
                "\"{}\" is a {kind} of {} bytes, more than the {most} of which text is made",
                self.path,
                found.len()
            )));
        }
        if self.cancel.is_cancelled() {
            return Err(ToolError::Aborted);
        }
        let mut hasher = self.guard.hasher();
        hasher.write(&bytes);
        let text = match form {
            Form::Pdf => self.pdf(&bytes)?,
            Form::Notebook => self.notebook(&bytes)?,
        };
        Ok((text, Some(hasher.finish())))
    }

    fn pdf(&self, bytes: &[u8]) -> Result<String, ToolError> {
        let failed = |error| match error {
            PdfError::Unreadable(why) => ToolError::failed(format!("Cannot read the PDF \"{}\": {why}", self.path)),
            PdfError::Stopped => ToolError::Aborted,
        };
        let pdf = Pdf::open(bytes).map_err(failed)?;
        let count = pdf.page_count();
        let expected = |given: &str| {
            let range = format!("expected a page or a range such as 2-5, of 1 to {count}, got {given:?}");
            ToolError::BadArguments(format!("`pages`: {range}"))
        };
        let pages = match &self.pages {
            Some(given) => page_range(given).filter(|pages| *pages.start() <= count).ok_or_else(|| expected(given))?,
            None => 1..=count,
        };
        let mut window = Window::new(self.first, self.count);
        let note = pdf.read(*pages.start()..=count.min(*pages.end()), |page| {
            if self.cancel.is_cancelled() {
                return Err(PdfError::Stopped);
            }
            if window.is_full() {
                window.stop_counting();
                return Ok(false);
            }
            window.feed(page.as_bytes());
            Ok(true)
        });
        let note = note.map_err(failed)?.map(|note| format!("; {note}")).unwrap_or_default();
        let text = window.finish(&self.path, bytes.len() as u64)?;
        Ok(format!("{text}\n\n(Text of a PDF of {count} pages; `pages` picks some{note})"))
    }

    fn notebook(&self, bytes: &[u8]) -> Result<String, ToolError> {
        let mut window = Window::new(self.first, self.count);
        let (text, note) = match notebook::render(bytes) {
            Ok((text, cells)) => {
                (text, format!("Notebook of {cells} cells as text; fs_edit works on its JSON: raw shows that"))
            }
            Err(why) => (String::from_utf8_lossy(bytes).into_owned(), format!("Not a notebook of version 4: {why}")),
        };
        window.feed(text.as_bytes());
        let text = window.finish(&self.path, bytes.len() as u64)?;
        Ok(format!("{text}\n\n({note})"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::super::FsRead;
    use super::super::pdf::tests::{document, line};
    use crate::host::fs_common::testing::{aborted, call, workspace};

    #[test]
    fn pdfs_are_shown_by_pages_and_lines() {
        let (home, workspace) = workspace(&[("bad.pdf", "%PDF-1.7\nno document"), ("a.txt", "x")]);
        fs::write(home.path().join("a.pdf"), document(vec![line("one"), line("two"), line("three")])).unwrap();
        let tool = FsRead::new(workspace);
        let note = "\n\n(Text of a PDF of 3 pages; `pages` picks some)";
        let all = "     1\t--- page 1 ---\n     2\tone\n     3\t--- page 2 ---\n     4\ttwo\n     5\t--- page 3 ---\n     6\tthree";
        assert_eq!(call(&tool, json!({"path": "a.pdf"})).unwrap(), format!("{all}{note}"));
        let two = call(&tool, json!({"path": "a.pdf", "pages": "2"})).unwrap();
        assert_eq!(two, format!("     1\t--- page 2 ---\n     2\ttwo{note}"));
        let last = call(&tool, json!({"path": "a.pdf", "pages": "3-9", "offset": 2})).unwrap();
        assert_eq!(last, format!("     2\tthree\n\n(Showing lines 2-2 of 2.){note}"));
        let first = call(&tool, json!({"path": "a.pdf", "limit": 2})).unwrap();
        assert!(first.contains("(Showing lines 1-2; the file goes on") && first.contains("offset: 3)"), "{first}");
        let said = |arguments| call(&tool, arguments).unwrap_err();
        assert!(said(json!({"path": "bad.pdf"})).starts_with("Cannot read the PDF \"bad.pdf\": "));
        let range = "`pages`: expected a page or a range such as 2-5, of 1 to 3, got \"4\"";
        assert_eq!(said(json!({"path": "a.pdf", "pages": "4"})), range);
        assert_eq!(said(json!({"path": "a.txt", "pages": "1"})), "`pages`: \"a.txt\" is no PDF, and has none");
        aborted(&tool, json!({"path": "a.pdf"}));
    }

    #[test]
    fn notebooks_are_shown_as_cells_or_raw() {
        let notebook = json!({"cells": [{"cell_type": "code", "source": ["a\n", "b"]}]}).to_string();
        let (_home, workspace) = workspace(&[("n.ipynb", &notebook), ("odd.ipynb", "{\"x\": 1}"), ("t.ipynb", "text")]);
        let tool = FsRead::new(workspace);
        let said = |arguments| call(&tool, arguments).unwrap();
        let cells = "     1\t--- cell 1: code ---\n     2\ta\n     3\tb\n\n(Notebook of 1 cells as text; fs_edit works on its JSON: raw shows that)";
        assert_eq!(said(json!({"path": "n.ipynb"})), cells);
        assert_eq!(said(json!({"path": "n.ipynb", "raw": true})), format!("     1\t{notebook}"));
        assert!(
            said(json!({"path": "odd.ipynb"}))
                .starts_with("     1\t{\"x\": 1}\n\n(Not a notebook of version 4: missing")
        );
        assert_eq!(said(json!({"path": "t.ipynb"})), "     1\ttext");
    }
}
