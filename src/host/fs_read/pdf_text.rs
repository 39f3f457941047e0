//! The text of one page of a PDF: where it stands on the page tells lines and words apart.
//!
//! A page says "move there, show these glyphs". Lines are told by height, words by gaps; columns come in the order in
//! which the page draws them. Text inside drawn forms and annotations is left out.

use std::collections::BTreeMap;

use lopdf::content::{Content, Operation};
use lopdf::{Document, Encoding, Error, Object, ObjectId};

use crate::base::limit;

/// A gap between two pieces of a `TJ`, in thousandths of the font's size, from which it parts words.
const WORD_GAP: f32 = 180.0;
/// Usual width of a character, in parts of the font's size.
const CHARACTER_WIDTH: f32 = 0.5;

/// The text of a page, each line ended.
///
/// # Errors
/// The page cannot be decoded, or is larger than `PDF_PAGE_BYTES_MAX`.
pub(super) fn page_text(document: &Document, page: ObjectId) -> Result<String, Error> {
    let most = limit::PDF_PAGE_BYTES_MAX;
    let fonts = document.get_page_fonts(page)?;
    let encodings = fonts.into_iter().filter_map(|(name, font)| {
        let encoding = font.get_font_encoding_with_limit(document, most).ok()?;
        Some((name, encoding))
    });
    let mut pen = Pen::new(encodings.collect());
    let content = Content::decode(&document.get_page_content_with_limit(page, most)?)?;
    content.operations.iter().for_each(|operation| pen.take(operation));
    Ok(pen.finish())
}

/// Where the page writes, and what it wrote.
struct Pen<'d> {
    encodings: BTreeMap<Vec<u8>, Encoding<'d>>,
    font: Option<Vec<u8>>,
    size: f32,
    leading: f32,
    /// The matrix of the line: `a b c d e f`.
    line: [f32; 6],
    /// Where the last text began, and how many characters it had. None: nothing yet, or a new text object.
    last: Option<(f32, f32, usize)>,
    out: String,
}

impl<'d> Pen<'d> {
    fn new(encodings: BTreeMap<Vec<u8>, Encoding<'d>>) -> Self {
        Self {
            encodings,
            font: None,
            size: 1.0,
            leading: 0.0,
            line: [1.0, 0.0, 0.0, 1.0, 0.0, 0.0],
            last: None,
            out: String::new(),
        }
    }

    fn take(&mut self, operation: &Operation) {
        let operands = operation.operands.as_slice();
        let number = |at: usize| operands.get(at).and_then(|operand| operand.as_float().ok()).unwrap_or(0.0);
        match operation.operator.as_str() {
            "BT" => self.line = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0],
            "Tf" => {
                self.font = operands.first().and_then(|name| name.as_name().ok()).map(<[u8]>::to_vec);
                self.size = number(1);
            }
            "TL" => self.leading = number(0),
            "Td" => self.step(number(0), number(1)),
            "TD" => {
                self.leading = -number(1);
                self.step(number(0), number(1));
            }
            "Tm" => self.line = std::array::from_fn(number),
            "T*" => self.step(0.0, -self.leading),
            "Tj" | "TJ" => self.show(operands),
            "'" => {
                self.step(0.0, -self.leading);
                self.show(operands);
            }
            "\"" => {
                self.step(0.0, -self.leading);
                self.show(operands.get(2..).unwrap_or_default());
            }
            _ => {}
        }
    }

    fn step(&mut self, x: f32, y: f32) {
        let [a, b, c, d, e, f] = self.line;
        self.line = [a, b, c, d, x.mul_add(a, y.mul_add(c, e)), x.mul_add(b, y.mul_add(d, f))];
    }

    fn show(&mut self, operands: &[Object]) {
        let mut shown = String::new();
        self.collect(operands, &mut shown);
        if shown.is_empty() {
            return;
        }
        self.part(&shown);
        let [.., x, y] = self.line;
        self.last = Some((x, y, shown.chars().count()));
        self.out.push_str(&shown);
    }

    /// Puts the end of a line or a blank before what comes next, as its place asks for.
    fn part(&mut self, next: &str) {
        let Some((x, y, characters)) = self.last else { return };
        let [a, _, _, d, now_x, now_y] = self.line;
        let height = (self.size * d).abs().max(1.0);
        let width = (self.size * a).abs().max(1.0);
        if (now_y - y).abs() > 0.4 * height {
            let blank_line = (now_y - y).abs() > 1.9 * height;
            self.out.push_str(if blank_line { "\n\n" } else { "\n" });
            return;
        }
        #[allow(clippy::cast_precision_loss, reason = "a line has few characters")]
        let end = x + characters as f32 * CHARACTER_WIDTH * width;
        let parted = self.out.ends_with(char::is_whitespace) || next.starts_with(char::is_whitespace);
        // Text that goes on where it was, or behind where it ended.
        let moved = (now_x - x).abs() > f32::EPSILON;
        if !parted && moved && (now_x > end + 0.15 * width || now_x < x) {
            self.out.push(' ');
        }
    }

    fn collect(&self, operands: &[Object], out: &mut String) {
        let encoding = self.font.as_ref().and_then(|font| self.encodings.get(font));
        for operand in operands {
            match operand {
                Object::String(bytes, _) => match encoding {
                    // What cannot be decoded is left out: the rest of the page is worth more.
                    Some(encoding) => out.push_str(&encoding.bytes_to_string(bytes).unwrap_or_default()),
                    None => out.push_str(&String::from_utf8_lossy(bytes)),
                },
                Object::Array(pieces) => self.collect(pieces, out),
                gap @ (Object::Integer(_) | Object::Real(_)) => {
                    let wide = gap.as_float().is_ok_and(|gap| gap < -WORD_GAP);
                    if wide && !out.ends_with(' ') && !out.is_empty() {
                        out.push(' ');
                    }
                }
                _ => {}
            }
        }
    }

    fn finish(self) -> String {
        let mut text = String::with_capacity(self.out.len() + 1);
        for line in self.out.lines() {
            let clean = line.chars().filter(|c| !c.is_control() || *c == '\t').collect::<String>();
            text.push_str(clean.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::pdf::tests::document;
    use super::*;

    fn text(operations: Vec<Operation>) -> String {
        let bytes = document(vec![operations]);
        let document = Document::load_mem(&bytes).unwrap();
        let page = document.page_iter().next().unwrap();
        page_text(&document, page).unwrap()
    }

    fn op(name: &str, operands: &[Object]) -> Operation {
        Operation::new(name, operands.to_vec())
    }

    #[test]
    fn places_tell_lines_and_words_apart() {
        let said = |text: &str| Object::string_literal(text);
        let begin = || vec![op("BT", &[]), op("Tf", &["F1".into(), 10.into()]), op("Td", &[50.into(), 700.into()])];
        #[rustfmt::skip]
        let table: Vec<(Vec<Operation>, &str)> = vec![
            (vec![op("Tj", &[said("one")]), op("Td", &[0.into(), (-12).into()]), op("Tj", &[said("two")])], "one\ntwo\n"),
            (vec![op("Tj", &[said("one")]), op("Td", &[0.into(), (-30).into()]), op("Tj", &[said("two")])], "one\n\ntwo\n"),
            (vec![op("Tj", &[said("one")]), op("Td", &[30.into(), 0.into()]), op("Tj", &[said("two")])], "one two\n"),
            (vec![op("Tj", &[said("one")]), op("Td", &[15.into(), 0.into()]), op("Tj", &[said("two")])], "onetwo\n"),
            (vec![op("Tj", &[said("one")]), op("Tj", &[said("two")])], "onetwo\n"),
            (vec![op("TJ", &[Object::Array(vec![said("one"), (-250).into(), said("tw"), 20.into(), said("o")])])], "one two\n"),
            (vec![op("TL", &[12.into()]), op("Tj", &[said("one")]), op("T*", &[]), op("Tj", &[said("two")]), op("'", &[said("three")])], "one\ntwo\nthree\n"),
            (vec![op("TL", &[12.into()]), op("Tj", &[said("one")]), op("\"", &[0.into(), 0.into(), said("two")])], "one\ntwo\n"),
            (vec![op("Tj", &[said("one")]), op("Tm", &[1.into(), 0.into(), 0.into(), 1.into(), 50.into(), 600.into()]), op("Tj", &[said("two")])], "one\n\ntwo\n"),
            (vec![op("Tj", &[said("a\u{1}b  ")])], "ab\n"),
        ];
        for (operations, want) in table {
            let all = begin().into_iter().chain(operations).chain([op("ET", &[])]).collect();
            assert_eq!(text(all), want);
        }
    }
}
