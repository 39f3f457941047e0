//! A notebook (`.ipynb`) as text: its cells in their order, and what they printed. Pure.

use serde::Deserialize;
use serde_json::{Map, Value};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::base::{image, limit, text};

/// Base64 that is looked at to tell an image's size; a multiple of four.
const IMAGE_START_BYTES: usize = 64 * 1024;

#[derive(Debug, Deserialize)]
struct Notebook {
    cells: Vec<Cell>,
}

#[derive(Debug, Deserialize)]
struct Cell {
    cell_type: String,
    #[serde(default)]
    source: Text,
    #[serde(default)]
    execution_count: Option<i64>,
    #[serde(default)]
    outputs: Vec<Output>,
}

/// A text, or its lines, each with its end.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Text {
    Whole(String),
    Lines(Vec<String>),
}

impl Default for Text {
    fn default() -> Self {
        Self::Whole(String::new())
    }
}

impl Text {
    fn joined(&self) -> String {
        match self {
            Self::Whole(text) => text.clone(),
            Self::Lines(lines) => lines.concat(),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Output {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    text: Option<Text>,
    #[serde(default)]
    data: Map<String, Value>,
    #[serde(default)]
    ename: Option<String>,
    #[serde(default)]
    evalue: Option<String>,
    #[serde(default)]
    traceback: Vec<String>,
}

/// The cells of a notebook as text, and how many there are.
///
/// # Errors
/// Why it is no notebook of the present format (version 4).
pub(super) fn render(json: &[u8]) -> Result<(String, usize), String> {
    let notebook: Notebook = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    let mut out = String::new();
    for (at, cell) in notebook.cells.iter().enumerate() {
        let count = cell.execution_count.map(|count| format!(" [{count}]")).unwrap_or_default();
        push(&mut out, &format!("--- cell {}: {}{count} ---", at + 1, cell.cell_type), &cell.source.joined());
        cell.outputs.iter().for_each(|output| push_output(&mut out, output));
    }
    Ok((out, notebook.cells.len()))
}

fn push_output(out: &mut String, output: &Output) {
    if let Some(text) = &output.text {
        let name = output.name.as_deref().unwrap_or("output");
        push(out, &format!("--- {name} ---"), &cut(&text.joined()));
    }
    if let Some(name) = &output.ename {
        let said = format!("{name}: {}", output.evalue.as_deref().unwrap_or_default());
        let traceback = if output.traceback.is_empty() { said } else { output.traceback.join("\n") };
        push(out, "--- error ---", &cut(&without_colours(&traceback)));
    }
    if !output.data.is_empty() {
        push(out, "--- output ---", &shown_data(&output.data));
    }
}

/// One form of an output: the plainest text that there is; images are described.
fn shown_data(data: &Map<String, Value>) -> String {
    let is_image = |kind: &str| kind.starts_with("image/");
    let mut shown: Vec<String> = data.iter().filter(|(kind, _)| is_image(kind)).map(|(k, v)| described(k, v)).collect();
    let plain = ["text/plain", "text/markdown", "text/latex", "text/html"].iter().find_map(|kind| data.get(*kind));
    let other = || data.iter().find(|(kind, _)| !is_image(kind)).map(|(_, value)| value);
    if let Some(text) = plain.or_else(other) {
        shown.push(cut(&text_of(text)));
    }
    shown.join("\n")
}

fn described(kind: &str, value: &Value) -> String {
    let data: String = text_of(value).split_whitespace().collect();
    let start = data.get(..data.len().min(IMAGE_START_BYTES) / 4 * 4).unwrap_or_default();
    let size = STANDARD.decode(start).ok().and_then(|start| image::image(&start)?.size);
    let size = size.map(|(width, height)| format!(", {width}x{height} pixels")).unwrap_or_default();
    format!("[{kind}{size}, about {} bytes: not shown]", data.len() / 4 * 3)
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) if lines.iter().all(Value::is_string) => {
            lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().concat()
        }
        other => other.to_string(),
    }
}

fn push(out: &mut String, head: &str, body: &str) {
    out.push_str(head);
    out.push('\n');
    out.push_str(body);
    if !body.is_empty() && !body.ends_with('\n') {
        out.push('\n');
    }
}

fn cut(output: &str) -> String {
    let most = limit::NOTEBOOK_OUTPUT_BYTES_MAX;
    if output.len() <= most {
        return output.to_owned();
    }
    format!("{}\n[output cut: {} bytes in all]", text::head(output, most), output.len())
}

/// Without the escape sequences that colour a terminal.
fn without_colours(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(after.len());
        rest = after[end..].strip_prefix(|c: char| c.is_ascii_alphabetic()).unwrap_or(&after[end..]);
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_and_outputs_come_in_their_order() {
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0");
        let notebook = json!({"nbformat": 4, "metadata": {}, "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "words"]},
            {"cell_type": "code", "execution_count": 3, "metadata": {}, "source": "print(1)\n", "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1\n", "2"]},
                {"output_type": "execute_result", "data": {"text/html": "<b>x</b>", "text/plain": ["x"]}, "execution_count": 3},
                {"output_type": "display_data", "data": {"image/png": png, "text/plain": "<Figure>"}},
                {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\u{1b}[0;31mE\u{1b}[0m: v"]},
                {"output_type": "display_data", "data": {"application/json": {"a": 1}}},
            ]},
            {"cell_type": "code", "source": [], "execution_count": null, "outputs": []},
        ]});
        let want = "--- cell 1: markdown ---\n# Title\nwords\n--- cell 2: code [3] ---\nprint(1)\n--- stdout ---\n1\n2\n\
                    --- output ---\nx\n--- output ---\n[image/png, 2x3 pixels, about 30 bytes: not shown]\n<Figure>\n\
                    --- error ---\nE: v\n--- output ---\n{\"a\":1}\n--- cell 3: code ---\n";
        assert_eq!(render(notebook.to_string().as_bytes()), Ok((want.to_owned(), 3)));
    }

    #[test]
    fn long_outputs_are_cut_and_other_json_is_no_notebook() {
        let long = "x".repeat(limit::NOTEBOOK_OUTPUT_BYTES_MAX + 1);
        let notebook = json!({"cells": [{"cell_type": "code", "outputs": [{"name": "stdout", "text": long}]}]});
        let (text, _) = render(notebook.to_string().as_bytes()).unwrap();
        assert!(text.ends_with(&format!("x\n[output cut: {} bytes in all]\n", long.len())), "{}", text.len());
        for other in ["{}", "[]", "{\"cells\": 1}", "{", "{\"cells\": [{}]}"] {
            assert!(render(other.as_bytes()).is_err(), "{other}");
        }
    }
}
