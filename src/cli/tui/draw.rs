//! The picture: header, timeline, what stands beside it, what is asked, what is written, and a line of hints.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph};
use serde_json::Value;

use super::app::App;
use super::commands::nothing;
use super::dialog::{Dialog, List};
use super::editor::Editor;
use super::entry::{faint, subject};
use super::question::Question;
use super::text::{cut, difference, plain, width};
use crate::protocol::{ClientQuestion, EventBody, TaskStatus};

/// Rows of the text that is written, at most.
const EDITOR_ROWS: usize = 8;
/// Tasks and prompts that wait, of each so many rows.
const SIDE_ROWS: usize = 4;

/// Draws everything.
pub(super) fn draw(app: &mut App, frame: &mut Frame<'_>) {
    let area = frame.area();
    app.is_hidden = area.height < 6 || area.width < 20;
    if app.is_hidden {
        return frame.render_widget(Paragraph::new("too small"), area);
    }
    let columns = usize::from(area.width);
    let side = side(app, columns);
    let asked = app
        .questions
        .front()
        .map(|question| asked(question, columns, usize::from(area.height) / 2))
        .unwrap_or_default();
    let answers = app.question().is_some_and(|question| question.words);
    let (written, cursor) = written(if answers { &app.answer } else { &app.editor }, columns.saturating_sub(2));
    let rows = |count: usize| Constraint::Length(u16::try_from(count).unwrap_or(u16::MAX));
    let constraints =
        [rows(1), Constraint::Min(1), rows(side.len()), rows(asked.len()), rows(written.len() + 1), rows(1)];
    let [top, middle, beside, questions, bottom, last] = Layout::vertical(constraints).areas(area);
    frame.render_widget(header(app, columns), top);
    timeline(app, frame, middle);
    frame.render_widget(Paragraph::new(side), beside);
    frame.render_widget(Paragraph::new(asked), questions);
    editor(app, frame, bottom, (written, cursor));
    frame.render_widget(hints(app, columns), last);
    offers(app, frame, bottom);
    match &app.dialog {
        Some(Dialog::List(list)) => draw_list(list, frame, area),
        Some(Dialog::Text { title, lines, from }) => draw_text(frame, area, (title, lines, *from)),
        None => {}
    }
}

fn header(app: &App, columns: usize) -> Line<'static> {
    let view = &app.session;
    let title = view.title.clone().unwrap_or_else(|| view.session_id.to_string());
    let left = format!(" {title} · {}", view.working_directory.display());
    let context = match (app.usage, app.window) {
        (Some(usage), Some(window)) if window > 0 => {
            format!("{}% of {} k", usage.input_tokens * 100 / window, window / 1_000)
        }
        (Some(usage), _) => format!("{} tokens", usage.input_tokens),
        (None, _) => String::new(),
    };
    let cost = if view.usage.cost.is_zero() { String::new() } else { format!(" · ${:.2}", view.usage.cost.usd()) };
    let agent = if view.agent.is_empty() { String::new() } else { format!("{} · ", view.agent) };
    let right = format!("{agent}{} · {}  {context}{cost} ", view.model, app.mode_name());
    let right = cut(&right, columns / 2 + 4);
    let left = cut(&left, columns.saturating_sub(width(&right) + 1));
    let gap = columns.saturating_sub(width(&left) + width(&right));
    Line::from(format!("{left}{}{right}", " ".repeat(gap))).style(Style::new().add_modifier(Modifier::REVERSED))
}

fn timeline(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    let size = (usize::from(area.width), usize::from(area.height));
    let mut lines = app.view.screen(&mut app.timeline, size);
    for (line, shown) in lines.iter_mut().zip(&app.view.shown) {
        if app.view.chosen == Some(*shown) {
            *line = std::mem::take(line).style(Style::new().bg(Color::DarkGray));
        }
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// The plan, the tasks, and the prompts that wait.
fn side(app: &App, columns: usize) -> Vec<Line<'static>> {
    let mut rows = Vec::new();
    let row = |sign: &str, text: &str, colour| {
        Line::from(Span::styled(cut(&format!(" {sign} {text}"), columns), Style::new().fg(colour)))
    };
    for step in app.plan.iter().flat_map(|plan| &plan.entries) {
        rows.push(match step.status.as_str() {
            "completed" => row("✓", &step.content, Color::DarkGray),
            "in_progress" => row("▸", &step.content, Color::Yellow),
            _ => row("·", &step.content, Color::Reset),
        });
    }
    for task in &app.tasks {
        rows.push(match task.task.status {
            TaskStatus::Completed => row("✓", &task.task.subject, Color::DarkGray),
            TaskStatus::InProgress => row("▸", &task.task.subject, Color::Yellow),
            TaskStatus::Pending => row("·", &task.task.subject, Color::Reset),
        });
    }
    let done = |line: &Line<'_>| line.to_string().starts_with(" ✓");
    if rows.len() > SIDE_ROWS && rows.iter().all(done) {
        rows.clear();
    }
    while rows.len() > SIDE_ROWS && rows.first().is_some_and(done) {
        rows.remove(0);
    }
    shorten(&mut rows);
    let mut waiting: Vec<Line<'static>> = app.queue.iter().map(|turn| row("⋯", &turn.prompt, Color::Blue)).collect();
    shorten(&mut waiting);
    rows.extend(waiting);
    if !app.pictures.is_empty() {
        rows.push(faint(&format!(
            " {} with the next prompt",
            crate::base::text::counted(app.pictures.len(), "picture")
        )));
    }
    rows
}

fn shorten(rows: &mut Vec<Line<'static>>) {
    if rows.len() > SIDE_ROWS + 1 {
        let more = rows.len() - SIDE_ROWS;
        rows.truncate(SIDE_ROWS);
        rows.push(faint(&format!("   … {more} more")));
    }
}

/// A question, with what would happen and how it is answered.
fn asked(question: &Question, columns: usize, rows_max: usize) -> Vec<Line<'static>> {
    let strong = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
    let (head, mut body, keys) = match &question.body {
        EventBody::PermissionRequest { tool_name, args, preview, options, .. } => {
            let head = format!("May {tool_name} run?  {}", subject(args));
            let always = if options.len() > 2 { "a always   " } else { "" };
            let keys = if question.words {
                "Enter denies with these words   Esc back".to_owned()
            } else {
                format!("y allow   {always}n deny   w deny with words   Tab to the prompt")
            };
            (head, preview_of(args, preview.as_ref(), columns), keys)
        }
        EventBody::ClientRequest { question: put, .. } => {
            let keys = match put {
                ClientQuestion::Select { several: true, .. } => "Space chooses   Enter answers   Esc no answer",
                ClientQuestion::Select { .. } => "Enter answers   Esc no answer",
                ClientQuestion::Confirm { .. } => "y yes   n no   Esc no answer",
                ClientQuestion::Input { .. } | ClientQuestion::Editor { .. } => "Enter answers   Esc no answer",
            };
            (put.title().to_owned(), choices(question, put, columns), keys.to_owned())
        }
        _ => return Vec::new(),
    };
    let room = rows_max.saturating_sub(3).max(3);
    if body.len() > room {
        let more = body.len() - room;
        body.truncate(room);
        body.push(faint(&format!("   … {more} more lines")));
    }
    let mut lines = vec![Line::from(Span::styled("─".repeat(columns), Style::new().fg(Color::Yellow)))];
    lines.push(Line::from(Span::styled(cut(&format!(" {head}"), columns), strong)));
    lines.append(&mut body);
    lines.push(faint(&cut(&format!(" {keys}   {} s", question.seconds_left()), columns)));
    lines
}

fn preview_of(args: &serde_json::Map<String, Value>, preview: Option<&Value>, columns: usize) -> Vec<Line<'static>> {
    let diff = preview.and_then(|preview| preview.as_str().or_else(|| preview.get("diff")?.as_str()));
    if let Some(diff) = diff {
        return difference(diff, columns, "   ");
    }
    let mut lines = Vec::new();
    for (name, value) in args {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        lines.extend(plain(&format!("{name}: {text}"), Style::new(), columns, "   "));
    }
    lines
}

fn choices(question: &Question, put: &ClientQuestion, columns: usize) -> Vec<Line<'static>> {
    match put {
        ClientQuestion::Select { options, several, .. } => {
            let option = |(at, option): (usize, &String)| {
                let chosen = question.chosen.get(at).copied().unwrap_or_default();
                let sign = match (several, chosen) {
                    (true, true) => "[x] ",
                    (true, false) => "[ ] ",
                    (false, _) => "",
                };
                let style =
                    if at == question.at { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
                Line::from(Span::styled(cut(&format!("   {sign}{option}"), columns), style))
            };
            // The cursor stays on the screen.
            options.iter().enumerate().skip(question.at.saturating_sub(3)).map(option).collect()
        }
        ClientQuestion::Confirm { message: Some(message), .. } => plain(message, Style::new(), columns, "   "),
        ClientQuestion::Input { placeholder: Some(words), .. } => vec![faint(&format!("   {words}"))],
        ClientQuestion::Confirm { .. } | ClientQuestion::Input { .. } | ClientQuestion::Editor { .. } => Vec::new(),
    }
}

/// The rows of a text that is written, and where the cursor is.
fn written(editor: &Editor, columns: usize) -> (Vec<String>, (usize, usize)) {
    let mut rows = vec![String::new()];
    let mut cursor = (0, 0);
    let mut used = 0;
    for (at, c) in editor.text().char_indices() {
        if at == editor.at() {
            cursor = (rows.len() - 1, used);
        }
        let shown = if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
        let wide = width(shown.encode_utf8(&mut [0; 4]));
        if c == '\n' || used + wide > columns {
            rows.push(String::new());
            used = 0;
        }
        if c != '\n' {
            if let Some(row) = rows.last_mut() {
                row.push(shown);
            }
            used += wide;
        }
    }
    if editor.at() == editor.text().len() {
        cursor = (rows.len() - 1, used);
    }
    let from = (cursor.0 + 1).saturating_sub(EDITOR_ROWS);
    let rows = rows.into_iter().skip(from).take(EDITOR_ROWS).collect();
    (rows, (cursor.0 - from, cursor.1))
}

fn editor(app: &mut App, frame: &mut Frame<'_>, area: Rect, (rows, cursor): (Vec<String>, (usize, usize))) {
    let waits = app.question().is_some_and(|question| !question.words);
    let colour = if waits { Color::DarkGray } else { Color::Blue };
    let block = Block::new().borders(Borders::TOP).border_style(Style::new().fg(colour));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let empty = rows.iter().all(String::is_empty);
    let lines: Vec<Line<'_>> = rows
        .into_iter()
        .enumerate()
        .map(|(at, row)| {
            let sign = if at == 0 { "> " } else { "  " };
            let shown = if empty && at == 0 {
                Span::styled(placeholder(app), Style::new().fg(Color::DarkGray))
            } else {
                Span::raw(row)
            };
            Line::from(vec![Span::styled(sign, Style::new().fg(colour)), shown])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
    if app.dialog.is_none() && !waits {
        let (row, column) = (u16::try_from(cursor.0).unwrap_or(0), u16::try_from(cursor.1).unwrap_or(0));
        frame.set_cursor_position(Position::new(inner.x + 2 + column, inner.y + row));
    }
}

fn placeholder(app: &App) -> &'static str {
    match (app.questions.is_empty(), app.runs()) {
        (false, _) => "",
        (true, true) => "a prompt that waits; Ctrl-S says it into the turn",
        (true, false) => "what is to be done? /help",
    }
}

/// The last line: what happens, or what was told, and what keys do.
fn hints(app: &App, columns: usize) -> Line<'static> {
    if let Some((good, words)) = app.told() {
        let colour = if good { Color::Green } else { Color::Red };
        return Line::from(Span::styled(cut(&format!(" {words}"), columns), Style::new().fg(colour)));
    }
    if let Some(why) = &app.broken {
        let words = format!(" no line to the server ({why}); trying again");
        return Line::from(Span::styled(cut(&words, columns), Style::new().fg(Color::Yellow)));
    }
    let mut words = String::from(" ");
    if let Some(turn) = &app.session.turn {
        let began = turn.started_at.unwrap_or(turn.created_at);
        let seconds = crate::base::clock::now_ms().saturating_sub(began) / 1_000;
        words.push_str(&format!("working {seconds} s · Esc Esc stops · "));
    }
    if app.view.chosen.is_some() {
        words.push_str("Enter unfolds · y copies · f forks · u undoes · Esc back");
    } else if !app.view.follows() {
        words.push_str("End goes to the newest");
    } else {
        words.push_str("Shift-Tab mode · Ctrl-P sessions · Ctrl-O unfold · /help");
    }
    faint(&cut(&words, columns))
}

/// What can be completed, above the text.
fn offers(app: &App, frame: &mut Frame<'_>, editor: Rect) {
    let shown = app.offers.shown();
    if shown.is_empty() || app.dialog.is_some() {
        return;
    }
    let rows = u16::try_from(shown.len()).unwrap_or(u16::MAX).min(editor.y.saturating_sub(1));
    let area = Rect { x: editor.x, y: editor.y - rows, width: editor.width, height: rows };
    let columns = usize::from(area.width);
    let line = |(at, offer): (usize, &super::offers::Offer)| {
        let text = cut(&format!("  {:<24} {}", offer.word, offer.hint), columns);
        let style = if at == app.offers.at {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new().fg(Color::Cyan)
        };
        Line::from(Span::styled(text, style))
    };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(shown.iter().enumerate().map(line).collect::<Vec<_>>()), area);
}

/// A place in the middle.
fn middle(area: Rect) -> Rect {
    let (width, height) =
        (area.width.saturating_sub(8).clamp(20, 120).min(area.width), area.height.saturating_sub(4).max(5));
    Rect {
        x: (area.width - width) / 2,
        y: area.height.saturating_sub(height) / 2,
        width,
        height: height.min(area.height),
    }
}

fn draw_list(list: &List, frame: &mut Frame<'_>, area: Rect) {
    let area = middle(area);
    let block = Block::bordered().title(format!(" {}: {}▏", list.title, list.typed));
    let inner = block.inner(area);
    let columns = usize::from(inner.width);
    let rows = usize::from(inner.height);
    let fitting = list.fitting();
    let from = (list.at + 1).saturating_sub(rows);
    let line = |(at, choice): (usize, &&super::dialog::Choice)| {
        let style = match (at == list.at, choice.usable) {
            (true, _) => Style::new().add_modifier(Modifier::REVERSED),
            (false, true) => Style::new(),
            (false, false) => Style::new().fg(Color::DarkGray),
        };
        Line::from(Span::styled(cut(&format!(" {}  {}", choice.label, choice.hint), columns), style))
    };
    let mut lines: Vec<Line<'_>> = fitting.iter().enumerate().skip(from).take(rows).map(line).collect();
    if lines.is_empty() {
        lines.push(if list.waits { faint(" …") } else { nothing() });
    }
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(lines), inner);
}

fn draw_text(frame: &mut Frame<'_>, area: Rect, (title, lines, from): (&str, &[Line<'static>], usize)) {
    let area = middle(area);
    let block = Block::bordered().title(format!(" {title} ")).title_bottom(" Esc closes ");
    let inner = block.inner(area);
    let shown: Vec<Line<'static>> = lines.iter().skip(from).take(usize::from(inner.height)).cloned().collect();
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(shown), inner);
}
