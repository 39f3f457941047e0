//! Reads one word: its text with quoting removed, and the commands that run while it is expanded.

use brush_parser::ast::UnexpandedArithmeticExpr;
use brush_parser::word::{self, Parameter, ParameterExpr, WordPiece, WordPieceWithSource};

use super::walk::{OPTIONS, guarded};
use super::{DEPTH_MAX, Line, Part, UNKNOWN, wrap};

/// A word, read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Quoting removed, [`UNKNOWN`] for what only the shell will know.
    pub(super) text: String,
    /// The same with what is unknown as it stands in the line. None: nothing is.
    pub(super) typed: Option<String>,
    /// Whether it runs commands, or cannot be read.
    pub(super) opaque: bool,
    /// Behind its known front the shell may make further words of it.
    pub(super) apart: bool,
    /// What it runs.
    pub(super) inner: Line,
    quoted: bool,
}

/// Reads a word as it stands in the command line.
pub(super) fn read(raw: &str, depth: usize) -> Reading {
    let mut reading = Reading::default();
    // The program `[`, which is `test`: alone it is no glob.
    if raw == "[" {
        reading.text.push('[');
        return reading;
    }
    match guarded(|| word::parse(raw, &OPTIONS).ok()) {
        Some(pieces) => {
            for piece in &pieces {
                reading.take(piece, raw, depth);
            }
            if expands_braces(&pieces) {
                // Each of them begins alike.
                let front = match pieces.first().map(|piece| &piece.piece) {
                    Some(WordPiece::Text(text)) => text.split('{').next().unwrap_or(""),
                    Some(_) | None => "",
                };
                let front = front.chars().take_while(|c| !matches!(c, '*' | '?' | '[')).chain([UNKNOWN]).collect();
                let text = std::mem::replace(&mut reading.text, front);
                // As a word of its own it may be evaluated by who takes it.
                if text.contains("$(") || text.contains('`') {
                    reading.opaque = true;
                    reading.inner.take(Line::unreadable(&text));
                }
                reading.typed.get_or_insert(text);
            }
        }
        None => reading.give_up(raw),
    }
    reading
}

/// Reads a here-document whose delimiter is not quoted.
pub(super) fn read_document(raw: &str, depth: usize) -> Reading {
    let mut reading = Reading::default();
    match guarded(|| word::parse_heredoc(raw, &OPTIONS).ok()) {
        Some(pieces) => pieces.iter().for_each(|piece| reading.take_quoted(piece, raw, depth)),
        None => reading.give_up(raw),
    }
    reading
}

impl Reading {
    fn take(&mut self, piece: &WordPieceWithSource, raw: &str, depth: usize) {
        let source = raw.get(piece.start_index..piece.end_index).unwrap_or(raw);
        match &piece.piece {
            WordPiece::Text(text) if text.contains(['(', ')', '<', '>']) => self.give_up(source),
            WordPiece::Text(text) => {
                for piece in text.split_inclusive(['*', '?', '[']) {
                    let known = piece.trim_end_matches(['*', '?', '[']);
                    self.known(known);
                    if known.len() < piece.len() {
                        self.unknown(&piece[known.len()..]);
                    }
                }
            }
            WordPiece::SingleQuotedText(text) => self.known(text),
            WordPiece::EscapeSequence(text) => self.known(text[1..].trim_start_matches('\n')),
            WordPiece::TildeExpansion(_) => self.known(source),
            WordPiece::DoubleQuotedSequence(pieces) => {
                let outside = std::mem::replace(&mut self.quoted, true);
                pieces.iter().for_each(|inner| self.take_quoted(inner, raw, depth));
                self.quoted = outside;
            }
            // Shells disagree about these: some take the dollar sign for itself.
            WordPiece::AnsiCQuotedText(_) => self.unknown(source),
            WordPiece::GettextDoubleQuotedSequence(pieces) => {
                self.unknown("$\"");
                let outside = std::mem::replace(&mut self.quoted, true);
                pieces.iter().for_each(|inner| self.take_quoted(inner, raw, depth));
                self.quoted = outside;
            }
            WordPiece::ParameterExpansion(expression) => {
                self.may_come_apart(source);
                self.parameter(expression, source);
            }
            WordPiece::CommandSubstitution(command) => {
                self.may_come_apart(source);
                self.run(command, source, depth);
            }
            WordPiece::BackquotedCommandSubstitution(command) => {
                self.may_come_apart(source);
                self.run(command, source, depth);
                if command.contains('\\') {
                    self.inner.take(Line::unreadable(command));
                }
            }
            WordPiece::ArithmeticExpression(expression) => self.arithmetic(expression, source),
        }
    }

    /// A piece between double quotes: a backslash is itself there, but for a few, and nothing is a glob.
    fn take_quoted(&mut self, piece: &WordPieceWithSource, raw: &str, depth: usize) {
        match &piece.piece {
            WordPiece::Text(text) => self.known(&text.replace("\\\n", "")),
            WordPiece::EscapeSequence(_)
            | WordPiece::SingleQuotedText(_)
            | WordPiece::TildeExpansion(_)
            | WordPiece::DoubleQuotedSequence(_)
            | WordPiece::AnsiCQuotedText(_)
            | WordPiece::GettextDoubleQuotedSequence(_)
            | WordPiece::ParameterExpansion(_)
            | WordPiece::CommandSubstitution(_)
            | WordPiece::BackquotedCommandSubstitution(_)
            | WordPiece::ArithmeticExpression(_) => self.take(piece, raw, depth),
        }
    }

    fn parameter(&mut self, expression: &ParameterExpr, source: &str) {
        let plain = match expression {
            ParameterExpr::Parameter { parameter, indirect: false } => match parameter {
                Parameter::Positional(_) | Parameter::Special(_) | Parameter::Named(_) => true,
                // An index is an arithmetic expression, and those can run commands.
                Parameter::NamedWithIndex { .. } | Parameter::NamedWithAllIndices { .. } => false,
            },
            // `${x:-word}` and its kind: as long as the word is nothing but text.
            _ => source.strip_prefix("${").is_some_and(|inner| {
                let operand =
                    inner.trim_start_matches('#').trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
                let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit() || matches!(c, ':' | '}'));
                inner.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '#')
                    && !operand.contains(['$', '`', '\\', '[', '(', '@', '!', '<', '>'])
                    && operand.strip_prefix(':').is_none_or(|o| o.starts_with(['-', '=', '?', '+']) || digits(o))
            }),
        };
        if plain { self.unknown(source) } else { self.give_up(source) }
    }

    fn arithmetic(&mut self, expression: &UnexpandedArithmeticExpr, source: &str) {
        let harmless = |c: char| c.is_ascii_digit() || matches!(c, ' ' | '+' | '-' | '*' | '/' | '%' | '(' | ')');
        if expression.value.chars().all(harmless) { self.unknown(source) } else { self.give_up(source) }
    }

    /// What is not quoted is taken apart where blanks come of it, and `$@` always; numbers never.
    fn may_come_apart(&mut self, source: &str) {
        if matches!(source, "$#" | "$?" | "$$" | "$!") {
            return;
        }
        self.apart |= !self.quoted || source.starts_with("$@") || source.starts_with("${@");
    }

    fn known(&mut self, text: &str) {
        self.text.push_str(text);
        if let Some(typed) = &mut self.typed {
            typed.push_str(text);
        }
    }

    /// What only the shell will know, and how it stands in the line.
    fn unknown(&mut self, source: &str) {
        self.typed.get_or_insert_with(|| self.text.clone()).push_str(source);
        self.text.push(UNKNOWN);
    }

    fn run(&mut self, command: &str, source: &str, depth: usize) {
        self.opaque = true;
        self.unknown(source);
        if depth >= DEPTH_MAX {
            self.inner.shadows.extend(wrap::fragments(command));
            self.inner.parts.push(Part::unreadable());
            return;
        }
        let inner = Line::parse_at(command, depth + 1);
        self.inner.take(inner);
    }

    /// Not understood: anything may come of it.
    fn give_up(&mut self, source: &str) {
        self.opaque = true;
        self.unknown(source);
        self.inner.take(Line::unreadable(source));
    }
}

/// `{a,b}` and `{1..9}` become several words in some shells.
fn expands_braces(pieces: &[WordPieceWithSource]) -> bool {
    let unquoted = |wanted: &str| {
        pieces.iter().any(|p| match &p.piece {
            WordPiece::Text(text) => text.contains(wanted),
            _ => false,
        })
    };
    unquoted("{") && unquoted("}") && (unquoted(",") || unquoted(".."))
}
