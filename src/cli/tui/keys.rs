//! What keys and the mouse do.

use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind};

use super::app::App;
use super::dialog::Dialog;
use super::editor::Editor;
use crate::protocol::EventBody;

/// How soon a key has to be pressed again that is pressed twice.
const TWICE: Duration = Duration::from_secs(2);
/// Lines that the wheel moves.
const WHEEL: isize = 3;

impl App {
    /// Takes what the terminal says.
    pub(super) fn key(&mut self, event: Event) {
        // Nobody knows what a key would do that nothing is seen of; Ctrl-C stops and leaves as ever.
        let leaves = |key: &KeyEvent| key.modifiers == KeyModifiers::CONTROL && key.code == KeyCode::Char('c');
        if self.is_hidden && !matches!(&event, Event::Key(key) if leaves(key)) {
            return;
        }
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.press(key),
            Event::Paste(text) => self.pasted(&text),
            Event::Mouse(mouse) => match mouse.kind {
                MouseEventKind::ScrollUp => self.scroll(-WHEEL),
                MouseEventKind::ScrollDown => self.scroll(WHEEL),
                MouseEventKind::Down(MouseButton::Left) => self.click(mouse.row),
                _ => {}
            },
            Event::Key(_) | Event::Resize(..) | Event::FocusGained | Event::FocusLost => {}
        }
        self.want_files();
    }

    fn pasted(&mut self, text: &str) {
        if self.dialog.is_some() {
            return;
        }
        match self.question().is_some_and(|question| question.words) {
            true => self.answer.paste(text),
            false => {
                self.editor.paste(text);
                self.offers.look(&self.editor);
            }
        }
    }

    fn scroll(&mut self, rows: isize) {
        if let Some(Dialog::Text { lines, from, .. }) = &mut self.dialog {
            *from = from.saturating_add_signed(rows).min(lines.len().saturating_sub(1));
            return;
        }
        if self.view.scroll(&mut self.timeline, rows) && rows < 0 {
            self.want_older();
        }
    }

    /// The header is the first row; behind it the timeline begins.
    fn click(&mut self, row: u16) {
        let at = usize::from(row).checked_sub(1).and_then(|row| self.view.shown.get(row)).copied();
        if let Some(entry) = at.and_then(|at| self.timeline.entries.get(at)).filter(|_| self.dialog.is_none()) {
            self.view.toggle(entry.seq);
        }
    }

    fn press(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return self.interrupt(),
            KeyCode::Char('z') if control => return self.suspends = true,
            KeyCode::Char('l') if control => return self.redraws = true,
            _ => {}
        }
        if self.dialog.is_some() {
            return self.press_in_dialog(key);
        }
        match key.code {
            KeyCode::PageUp => return self.scroll(-10),
            KeyCode::PageDown => return self.scroll(10),
            KeyCode::Home if control => {
                self.view.go_to_start(&mut self.timeline);
                return self.want_older();
            }
            KeyCode::End if control => return self.view.follow(),
            KeyCode::Char('o') if control => return self.view.all_unfolded = !self.view.all_unfolded,
            KeyCode::Char('p') if control => return self.list_sessions(),
            KeyCode::Char('f') if control && self.editor.is_empty() => return self.editor.set("/find "),
            KeyCode::Char('g') if control && self.question().is_none() => return self.writes = true,
            KeyCode::Up if control => return self.view.choose(&mut self.timeline, -1),
            KeyCode::Down if control => return self.view.choose(&mut self.timeline, 1),
            KeyCode::BackTab => return self.next_mode(),
            KeyCode::Tab if !self.questions.is_empty() && self.offers.shown().is_empty() => {
                return self.aside = !self.aside;
            }
            _ => {}
        }
        if self.question().is_some() {
            self.press_for_question(key);
        } else if self.view.chosen.is_some() && self.press_on_entry(key) {
            // It was about the entry.
        } else {
            self.press_in_editor(key);
        }
    }

    /// Ctrl-C: clears what is written; twice in nothing leaves.
    fn interrupt(&mut self) {
        if self.dialog.take().is_some() {
            return;
        }
        if !self.editor.is_empty() {
            self.editor.set("");
            return self.offers.look(&self.editor);
        }
        if self.again('c') {
            self.left = true;
        } else {
            self.tell(true, "Ctrl-C once more leaves; the session stays");
        }
    }

    /// Whether a key was pressed just before.
    fn again(&mut self, key: char) -> bool {
        let again = self.once.is_some_and(|(at, before)| before == key && at.elapsed() < TWICE);
        self.once = (!again).then(|| (Instant::now(), key));
        again
    }

    fn press_in_dialog(&mut self, key: KeyEvent) {
        let Some(dialog) = &mut self.dialog else { return };
        let by = match key.code {
            KeyCode::Up => -1,
            KeyCode::Down => 1,
            KeyCode::PageUp => -10,
            KeyCode::PageDown => 10,
            _ => 0,
        };
        match (dialog, key.code) {
            (_, KeyCode::Esc) | (Dialog::Text { .. }, KeyCode::Char('q') | KeyCode::Enter) => self.dialog = None,
            (Dialog::Text { .. }, _) if by != 0 => self.scroll(by),
            (Dialog::Text { .. }, _) => {}
            (Dialog::List(list), KeyCode::Enter) => {
                let chosen = list.current().map(|choice| (choice.usable, choice.id.clone(), choice.hint.clone()));
                let pick = list.pick;
                match chosen {
                    Some((true, id, _)) => {
                        self.dialog = None;
                        self.chosen(pick, &id);
                    }
                    Some((false, id, why)) => self.tell(false, format!("{id} cannot be used: {why}")),
                    None => {}
                }
            }
            (Dialog::List(list), KeyCode::Backspace) => list.type_letter(None),
            (Dialog::List(list), KeyCode::Char(letter)) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
                list.type_letter(Some(letter));
            }
            (Dialog::List(list), _) => list.step(by),
        }
    }

    fn press_for_question(&mut self, key: KeyEvent) {
        let Some(question) = self.question() else { return };
        if question.words {
            return self.press_for_words(key);
        }
        if !question.is_seen() {
            return;
        }
        let answer = match key.code {
            KeyCode::Esc => Some(question.refusal()),
            KeyCode::Enter => question.enter(),
            KeyCode::Up => {
                question.at = question.at.saturating_sub(1);
                None
            }
            KeyCode::Down => {
                question.at = (question.at + 1).min(question.chosen.len().saturating_sub(1));
                None
            }
            KeyCode::Char(' ') => {
                let at = question.at;
                if let Some(chosen) = question.chosen.get_mut(at) {
                    *chosen = !*chosen;
                }
                None
            }
            KeyCode::Char('w') if matches!(question.body, EventBody::PermissionRequest { .. }) => {
                question.words = true;
                None
            }
            KeyCode::Char(letter) => question.letter(letter),
            _ => None,
        };
        if let Some(answer) = answer {
            self.give(answer);
        }
    }

    fn press_for_words(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Esc => {
                let Some(question) = self.question() else { return };
                if matches!(question.body, EventBody::PermissionRequest { .. }) {
                    question.words = false;
                } else {
                    let refusal = question.refusal();
                    self.give(refusal);
                }
            }
            KeyCode::Enter if !key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT) => {
                let words = self.answer.take();
                if let Some(answer) = self.question().map(|question| question.worded(&words)) {
                    self.give(answer);
                }
            }
            _ => drop(edit(&mut self.answer, key)),
        }
    }

    /// A key for the entry that is chosen. Whether it was one.
    fn press_on_entry(&mut self, key: KeyEvent) -> bool {
        let Some(entry) = self.view.chosen.and_then(|at| self.timeline.entries.get(at)) else { return false };
        let (seq, turn) = (entry.seq, entry.turn.clone());
        match key.code {
            KeyCode::Esc => {
                self.search_no_more();
                self.view.chosen = None;
            }
            KeyCode::Enter => self.view.toggle(seq),
            KeyCode::Char('y') => {
                self.copied = self.view.chosen.map(|at| self.timeline.text(at));
                self.tell(true, "copied");
            }
            KeyCode::Char('f') => self.fork(Some(seq)),
            KeyCode::Char('n') => self.find_next(true),
            KeyCode::Char('N') => self.find_next(false),
            KeyCode::Char('u') => match turn {
                Some(turn) => self.undo_turn(turn.as_str()),
                None => self.tell(false, "this belongs to no turn"),
            },
            _ => {
                self.view.chosen = None;
                return false;
            }
        }
        true
    }

    fn press_in_editor(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let offered = !self.offers.shown().is_empty();
        match key.code {
            KeyCode::Tab if offered => {
                self.offers.take(&mut self.editor);
            }
            KeyCode::Up if offered => return self.offers.step(-1),
            KeyCode::Down if offered => return self.offers.step(1),
            KeyCode::Esc if offered => return self.offers.close(&self.editor),
            KeyCode::Esc if self.runs() => {
                if self.again('e') {
                    self.stop();
                } else {
                    self.tell(true, "Esc once more stops the turn");
                }
                return;
            }
            KeyCode::Esc => {
                self.search_no_more();
                return self.view.follow();
            }
            KeyCode::Enter if key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT) => {
                self.editor.insert("\n");
            }
            KeyCode::Enter if offered && !self.is_whole() => {
                self.offers.take(&mut self.editor);
            }
            KeyCode::Enter => return self.enter(),
            KeyCode::Char('s') if control && self.runs() => return self.send("steer"),
            KeyCode::Char('d') if control && self.editor.is_empty() => return self.left = true,
            KeyCode::End if self.editor.is_empty() => return self.view.follow(),
            _ => drop(edit(&mut self.editor, key)),
        }
        self.offers.look(&self.editor);
    }

    /// Whether what is written is what the offers would make of it.
    fn is_whole(&self) -> bool {
        let written = self.editor.text().trim_start_matches('/');
        self.offers.shown().get(self.offers.at).is_some_and(|offer| offer.word == written)
    }

    fn enter(&mut self) {
        if self.command() {
            return;
        }
        let text = self.editor.text().trim().to_owned();
        match self.no_command(&text) {
            Some(name) if self.doubted != text => {
                self.tell(false, format!("there is no command /{name}; Enter once more sends it as a prompt"));
                self.doubted = text;
            }
            _ => self.send("queue"),
        }
    }

    /// The name of a command that is meant, and that there is not.
    fn no_command<'a>(&self, text: &'a str) -> Option<&'a str> {
        let name = text.strip_prefix('/')?.split_whitespace().next()?;
        let is_name = name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ':' | '.'));
        (is_name && !self.offers.commands.iter().any(|offer| offer.word == name)).then_some(name)
    }
}

/// What a key does to a text. Whether it did something.
fn edit(editor: &mut Editor, key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    match key.code {
        KeyCode::Char('j') if control => editor.insert("\n"),
        KeyCode::Char('a') if control => editor.home(),
        KeyCode::Char('e') if control => editor.end(),
        KeyCode::Char('w') if control => editor.delete_word(),
        KeyCode::Char('u') if control => editor.delete_to_start(),
        KeyCode::Char('k') if control => editor.delete_to_end(),
        KeyCode::Char('b') if alt => editor.word_left(),
        KeyCode::Char('f') if alt => editor.word_right(),
        KeyCode::Left if control || alt => editor.word_left(),
        KeyCode::Right if control || alt => editor.word_right(),
        KeyCode::Backspace if control || alt => editor.delete_word(),
        KeyCode::Char(letter) if !control && !alt => editor.insert(letter.encode_utf8(&mut [0; 4])),
        KeyCode::Enter => editor.insert("\n"),
        KeyCode::Left => editor.left(),
        KeyCode::Right => editor.right(),
        KeyCode::Up => editor.up(),
        KeyCode::Down => editor.down(),
        KeyCode::Home => editor.home(),
        KeyCode::End => editor.end(),
        KeyCode::Backspace => editor.backspace(),
        KeyCode::Delete => editor.delete(),
        _ => return false,
    }
    true
}
