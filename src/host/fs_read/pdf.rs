//! A PDF as text, page by page.
//!
//! What reads the file meets hostile bytes: its size, every stream in it and the time are bounded, and a panic in it is
//! a failure of this call. Pages are read one after the other, until the caller has enough.

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use lopdf::{Document, LoadOptions, ObjectId};

use super::pdf_text::page_text;
use crate::base::limit;

/// Why there is no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PdfError {
    /// It cannot be read; the reason in words.
    Unreadable(String),
    /// The caller does not want to go on.
    Stopped,
}

/// An open document.
pub(super) struct Pdf {
    document: Document,
    pages: Vec<ObjectId>,
}

impl Pdf {
    /// Opens a document that is in memory.
    pub(super) fn open(bytes: &[u8]) -> Result<Self, PdfError> {
        let options = LoadOptions::with_max_decompressed_size(limit::PDF_STREAM_BYTES_MAX);
        guarded(|| {
            let document = Document::load_mem_with_options(bytes, options).map_err(|e| unreadable(&e))?;
            if document.is_encrypted() {
                return Err(PdfError::Unreadable("it is encrypted, and its password is not known".into()));
            }
            let pages: Vec<ObjectId> = document.page_iter().take(limit::PDF_PAGES_MAX).collect();
            Ok(Self { document, pages })
        })
    }

    /// How many pages it has.
    pub(super) fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Hands the text of each page to `take`, under a line with its number, until that says false. Returns a note for
    /// the reader when not all of them could be read.
    pub(super) fn read(
        &self,
        pages: RangeInclusive<usize>,
        mut take: impl FnMut(&str) -> Result<bool, PdfError>,
    ) -> Result<Option<String>, PdfError> {
        let until = Instant::now() + Duration::from_millis(limit::PDF_READ_MS_MAX);
        let mut blank = 0;
        for number in pages.clone() {
            if Instant::now() > until {
                let seconds = limit::PDF_READ_MS_MAX / 1000;
                return Ok(Some(format!("stopped after {seconds} seconds before page {number}: name fewer pages")));
            }
            let Some(&page) = self.pages.get(number.saturating_sub(1)) else { break };
            let text = match guarded(|| page_text(&self.document, page).map_err(|e| unreadable(&e))) {
                Ok(text) => text,
                Err(PdfError::Unreadable(why)) => format!("[this page cannot be read: {why}]\n"),
                Err(PdfError::Stopped) => return Err(PdfError::Stopped),
            };
            blank += usize::from(text.trim().is_empty());
            if !take(&format!("--- page {number} ---\n{text}"))? {
                return Ok(None);
            }
        }
        let all_blank = blank > 0 && blank == pages.count();
        Ok(all_blank.then(|| "no text in these pages: they may be pictures of text".to_owned()))
    }
}

fn unreadable(error: &lopdf::Error) -> PdfError {
    PdfError::Unreadable(error.to_string())
}

/// Runs code that reads hostile bytes; a panic in it is an error.
fn guarded<T>(work: impl FnOnce() -> Result<T, PdfError>) -> Result<T, PdfError> {
    let result = catch_unwind(AssertUnwindSafe(work));
    result.unwrap_or_else(|_| Err(PdfError::Unreadable("it is damaged in a way that its reader cannot handle".into())))
}

/// The pages that a text such as `3` or `2-5` names. None when it names none.
pub(super) fn page_range(text: &str) -> Option<RangeInclusive<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (1 <= first && first <= last).then_some(first..=last)
}

#[cfg(test)]
pub(super) mod tests {
    use lopdf::content::{Content, Operation};
    use lopdf::{Object, Stream, dictionary};

    use super::*;

    /// A document whose pages hold these operations, in Helvetica under the name F1.
    pub(in super::super) fn document(pages: Vec<Vec<Operation>>) -> Vec<u8> {
        let mut document = Document::with_version("1.5");
        let root = document.new_object_id();
        let font = dictionary! { "Type" => "Font", "Subtype" => "Type1", "BaseFont" => "Helvetica", "Encoding" => "WinAnsiEncoding" };
        let font = document.add_object(font);
        let resources = document.add_object(dictionary! { "Font" => dictionary! { "F1" => font } });
        let kids: Vec<Object> = pages
            .into_iter()
            .map(|operations| {
                let content = Content { operations }.encode().unwrap();
                let content = document.add_object(Stream::new(dictionary! {}, content));
                document.add_object(dictionary! { "Type" => "Page", "Parent" => root, "Contents" => content }).into()
            })
            .collect();
        let count = i64::try_from(kids.len()).unwrap();
        let tree = dictionary! {
            "Type" => "Pages", "Kids" => kids, "Count" => count, "Resources" => resources,
            "MediaBox" => vec![0.into(), 0.into(), 595.into(), 842.into()],
        };
        document.objects.insert(root, tree.into());
        let catalog = document.add_object(dictionary! { "Type" => "Catalog", "Pages" => root });
        document.trailer.set("Root", catalog);
        document.compress();
        let mut bytes = Vec::new();
        document.save_to(&mut bytes).unwrap();
        bytes
    }

    /// One page with this text on one line.
    pub(in super::super) fn line(text: &str) -> Vec<Operation> {
        let text = text.chars().map(|c| u8::try_from(c as u32).unwrap()).collect::<Vec<u8>>();
        vec![
            Operation::new("BT", vec![]),
            Operation::new("Tf", vec!["F1".into(), 12.into()]),
            Operation::new("Td", vec![50.into(), 700.into()]),
            Operation::new("Tj", vec![Object::string_literal(text)]),
            Operation::new("ET", vec![]),
        ]
    }

    fn text(bytes: &[u8], pages: RangeInclusive<usize>) -> Result<(String, Option<String>), PdfError> {
        let mut out = String::new();
        let note = Pdf::open(bytes)?.read(pages, |page| {
            out += page;
            Ok(true)
        })?;
        Ok((out, note))
    }

    #[test]
    fn pages_come_as_text() {
        let bytes = document(vec![line("Hello world"), line("caf\u{e9}"), vec![]]);
        assert_eq!(Pdf::open(&bytes).unwrap().page_count(), 3);
        assert_eq!(text(&bytes, 1..=2).unwrap(), ("--- page 1 ---\nHello world\n--- page 2 ---\ncafé\n".into(), None));
        let (blank, note) = text(&bytes, 3..=3).unwrap();
        assert_eq!(blank, "--- page 3 ---\n");
        assert!(note.unwrap().contains("pictures of text"));
        let mut pages = 0;
        let enough = Pdf::open(&bytes).unwrap().read(1..=3, |_| {
            pages += 1;
            Ok(pages < 2)
        });
        assert_eq!((enough, pages), (Ok(None), 2));
    }

    #[test]
    fn damaged_documents_are_errors() {
        let whole = document(vec![line("Hello world")]);
        for end in (0..whole.len()).step_by(7) {
            // Whatever comes out: no panic, no endless loop.
            let _ = text(&whole[..end], 1..=1);
        }
        assert!(matches!(Pdf::open(b"%PDF-1.5\nnothing"), Err(PdfError::Unreadable(_))));
        let panics: Result<(), PdfError> = guarded(|| panic!("made up"));
        assert!(matches!(panics, Err(PdfError::Unreadable(why)) if why.contains("damaged")));
    }

    #[test]
    fn a_page_that_inflates_without_end_is_not_read() {
        let mut bomb = line("x");
        let zeros = "0 ".repeat(1 << 20);
        bomb.extend((0..10).map(|_| Operation::new("Tj", vec![Object::string_literal(zeros.as_str())])));
        let bytes = document(vec![bomb, line("after")]);
        assert!(bytes.len() < 1 << 20, "{}", bytes.len());
        let (text, _) = text(&bytes, 1..=2).unwrap();
        assert!(text.starts_with("--- page 1 ---\n[this page cannot be read: "), "{text}");
        assert!(text.ends_with("--- page 2 ---\nafter\n"), "{text}");
    }

    #[test]
    fn ranges_of_pages() {
        #[rustfmt::skip]
        let table = [
            ("3", Some(3..=3)), ("2-5", Some(2..=5)), (" 2 - 5 ", Some(2..=5)), ("0", None), ("5-2", None), ("x", None),
            ("", None), ("1-", None), ("-1", None),
        ];
        for (text, want) in table {
            assert_eq!(page_range(text), want, "{text}");
        }
    }
}
