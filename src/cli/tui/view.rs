//! Which part of the timeline is on the screen. Entries are drawn when they are looked at and not before, so that ten thousand of
//! them cost no more than a screenful.

use std::collections::HashSet;
use std::rc::Rc;

use ratatui::text::Line;

use super::entry;
use super::timeline::Timeline;

/// Entries whose lines are kept.
const KEPT: usize = 400;

/// A line of the timeline: an entry, and a line of it. The parts of the model's words that have not ended
/// are entries behind the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) entry: usize,
    pub(super) line: usize,
}

/// What is looked at.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The first line on the screen. None: the newest lines are followed.
    top: Option<Place>,
    /// The entry that is chosen.
    pub(super) chosen: Option<usize>,
    /// Entries that are unfolded, by their events.
    unfolded: HashSet<u64>,
    /// Whether all are.
    pub(super) all_unfolded: bool,
    drawn: Vec<Option<Drawn>>,
    columns: usize,
    rows: usize,
    /// Which entry each row of the screen shows.
    pub(super) shown: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Drawn {
    edition: u32,
    unfolded: bool,
    lines: Rc<[Line<'static>]>,
}

impl View {
    /// Another session is looked at.
    pub(super) fn begin(&mut self) {
        *self = Self { all_unfolded: self.all_unfolded, columns: self.columns, rows: self.rows, ..Self::default() };
    }

    /// Whether the newest lines are followed.
    pub(super) fn follows(&self) -> bool {
        self.top.is_none()
    }

    /// So many entries came in front.
    pub(super) fn moved(&mut self, more: usize) {
        self.drawn.clear();
        if let Some(top) = &mut self.top {
            top.entry += more;
        }
        if let Some(chosen) = &mut self.chosen {
            *chosen += more;
        }
    }

    /// How far into what the model says now the first line on the screen is. None: it is not there.
    pub(super) fn within_live(&mut self, timeline: &mut Timeline) -> Option<usize> {
        let top = self.top.filter(|top| top.entry >= timeline.entries.len())?;
        let before: usize = (timeline.entries.len()..top.entry).map(|at| self.lines(timeline, at).len()).sum();
        Some(before + top.line)
    }

    /// Stays where it was in what the model said, which are entries from `first` on now.
    pub(super) fn stay_at(&mut self, timeline: &mut Timeline, (first, rows): (usize, usize)) {
        self.top = Some(self.down(timeline, Place { entry: first, line: 0 }, rows));
    }

    /// Folds an entry, or unfolds it.
    pub(super) fn toggle(&mut self, seq: u64) {
        if !self.unfolded.remove(&seq) {
            self.unfolded.insert(seq);
        }
    }

    fn lines(&mut self, timeline: &mut Timeline, at: usize) -> Rc<[Line<'static>]> {
        let Some(entry) = timeline.entries.get(at) else {
            let part = at - timeline.entries.len();
            let live = timeline.live.as_mut();
            return live.map_or_else(|| Rc::from([]), |live| live.lines(part, self.columns, self.all_unfolded));
        };
        let unfolded = self.all_unfolded != self.unfolded.contains(&entry.seq);
        if self.drawn.len() < timeline.entries.len() {
            self.drawn.resize(timeline.entries.len(), None);
        }
        let known = self.drawn.get(at).and_then(Option::as_ref);
        if let Some(drawn) = known.filter(|drawn| drawn.edition == entry.edition && drawn.unfolded == unfolded) {
            return Rc::clone(&drawn.lines);
        }
        let lines: Rc<[Line<'static>]> = entry::lines(entry, self.columns, unfolded).into();
        if let Some(slot) = self.drawn.get_mut(at) {
            *slot = Some(Drawn { edition: entry.edition, unfolded, lines: Rc::clone(&lines) });
        }
        lines
    }

    /// Forgets the lines of what is far away.
    fn forget(&mut self, near: usize) {
        if self.drawn.iter().filter(|slot| slot.is_some()).count() <= KEPT {
            return;
        }
        for (at, slot) in self.drawn.iter_mut().enumerate() {
            if at.abs_diff(near) > KEPT / 2 {
                *slot = None;
            }
        }
    }

    /// The first line of a screen that ends with the last line.
    fn bottom(&mut self, timeline: &mut Timeline) -> Place {
        let end = Place { entry: timeline.parts(), line: 0 };
        self.up(timeline, end, self.rows).0
    }

    /// So many lines above a place, and how many there are not.
    fn up(&mut self, timeline: &mut Timeline, from: Place, mut rows: usize) -> (Place, usize) {
        let mut at = from;
        loop {
            if at.line >= rows {
                return (Place { line: at.line - rows, ..at }, 0);
            }
            rows -= at.line;
            if at.entry == 0 {
                return (Place { entry: 0, line: 0 }, rows);
            }
            let entry = at.entry - 1;
            at = Place { entry, line: self.lines(timeline, entry).len() };
        }
    }

    fn down(&mut self, timeline: &mut Timeline, from: Place, mut rows: usize) -> Place {
        let mut at = from;
        while at.entry < timeline.parts() {
            let left = self.lines(timeline, at.entry).len().saturating_sub(at.line);
            if rows < left {
                return Place { line: at.line + rows, ..at };
            }
            rows -= left;
            at = Place { entry: at.entry + 1, line: 0 };
        }
        at
    }

    /// Goes up (less than 0) or down. Whether the beginning is on the screen.
    pub(super) fn scroll(&mut self, timeline: &mut Timeline, rows: isize) -> bool {
        let bottom = self.bottom(timeline);
        let from = self.top.unwrap_or(bottom);
        let (to, missing) = match rows {
            ..0 => self.up(timeline, from, rows.unsigned_abs()),
            _ => (self.down(timeline, from, rows.unsigned_abs()), 0),
        };
        self.top = (to < bottom).then_some(to);
        missing > 0 || (to.entry == 0 && to.line == 0)
    }

    /// To the first line that there is.
    pub(super) fn go_to_start(&mut self, timeline: &mut Timeline) {
        let start = Place { entry: 0, line: 0 };
        self.top = (start < self.bottom(timeline)).then_some(start);
    }

    /// To the newest lines.
    pub(super) fn follow(&mut self) {
        self.top = None;
    }

    /// Chooses the entry above (less than 0) or below, and brings it onto the screen.
    pub(super) fn choose(&mut self, timeline: &mut Timeline, step: isize) {
        let last = timeline.entries.len().checked_sub(1);
        let Some(last) = last else { return };
        let next = match (self.chosen, step < 0) {
            (None, true) => Some(last),
            (None, false) => None,
            (Some(at), true) => Some(at.saturating_sub(1)),
            (Some(at), false) if at >= last => None,
            (Some(at), false) => Some(at + 1),
        };
        match next {
            Some(at) => self.go_to(timeline, at),
            None => {
                self.chosen = None;
                self.follow();
            }
        }
    }

    /// Chooses an entry, and brings it onto the screen.
    pub(super) fn go_to(&mut self, timeline: &mut Timeline, at: usize) {
        self.chosen = Some(at);
        if self.shown.first().is_none_or(|first| at <= *first) || self.shown.last().is_none_or(|shown| at > *shown) {
            let place = Place { entry: at, line: 0 };
            let bottom = self.bottom(timeline);
            self.top = (place < bottom).then_some(place);
        }
    }

    /// The lines of the screen, from the top.
    pub(super) fn screen(&mut self, timeline: &mut Timeline, (columns, rows): (usize, usize)) -> Vec<Line<'static>> {
        if self.columns != columns {
            self.columns = columns;
            self.drawn.clear();
        }
        self.rows = rows;
        self.drawn.truncate(timeline.entries.len());
        let bottom = self.bottom(timeline);
        if self.top.is_some_and(|top| top >= bottom) {
            self.top = None;
        }
        let top = self.top.unwrap_or(bottom);
        let mut lines = Vec::with_capacity(rows);
        self.shown.clear();
        let (mut at, mut from) = (top.entry, top.line);
        while lines.len() < rows && at < timeline.parts() {
            let entry = self.lines(timeline, at);
            for line in entry.iter().skip(from).take(rows - lines.len()) {
                lines.push(line.clone());
                self.shown.push(at);
            }
            (at, from) = (at + 1, 0);
        }
        self.forget(top.entry);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tui::timeline::{Entry, Shown};
    use crate::protocol::NoticeLevel;

    fn timeline(entries: u64) -> Timeline {
        let entry = |seq| Entry {
            seq,
            turn: None,
            shown: Shown::Note { level: NoticeLevel::Info, text: format!("entry {seq}") },
            edition: 0,
        };
        let mut timeline = Timeline::default();
        timeline.entries = (1..=entries).map(entry).collect();
        timeline
    }

    fn texts(view: &mut View, timeline: &mut Timeline) -> Vec<String> {
        let lines = view.screen(timeline, (40, 6));
        lines.iter().map(|line| line.to_string().trim().to_owned()).collect()
    }

    #[test]
    fn the_newest_lines_are_followed_until_somebody_looks_back() {
        let (mut view, mut timeline) = (View::default(), timeline(10_000));
        // Each entry is a line and an empty one.
        assert_eq!(texts(&mut view, &mut timeline), ["entry 9998", "", "entry 9999", "", "entry 10000", ""]);
        assert!(!view.scroll(&mut timeline, -3));
        assert_eq!(texts(&mut view, &mut timeline)[1], "entry 9997");
        assert!(!view.follows());
        view.scroll(&mut timeline, 2);
        assert_eq!(texts(&mut view, &mut timeline)[1], "entry 9998");
        view.scroll(&mut timeline, 100);
        assert!(view.follows());
        view.go_to_start(&mut timeline);
        assert_eq!(texts(&mut view, &mut timeline)[0], "entry 1");
        assert!(view.scroll(&mut timeline, -1), "the beginning is told");
        assert!(view.drawn.iter().filter(|slot| slot.is_some()).count() < 30, "what is not looked at is not drawn");
    }

    #[test]
    fn entries_that_come_in_front_move_nothing() {
        let (mut view, mut timeline) = (View::default(), timeline(20));
        texts(&mut view, &mut timeline);
        view.go_to_start(&mut timeline);
        let entry = timeline.entries[0].clone();
        timeline.entries.insert(0, Entry { seq: 0, ..entry });
        view.moved(1);
        assert_eq!(texts(&mut view, &mut timeline)[0], "entry 1");
    }

    #[test]
    fn who_reads_what_is_being_said_stays_there_when_it_ends() {
        let (mut view, mut timeline) = (View::default(), timeline(3));
        let text: String = (1..=40).map(|n| format!("said {n}\n\n")).collect();
        timeline.live = Some(crate::cli::tui::live::Live::begun(&text, ""));
        texts(&mut view, &mut timeline);
        view.scroll(&mut timeline, -40);
        let before = texts(&mut view, &mut timeline);
        let first = timeline.entries.len();
        let rows = view.within_live(&mut timeline).expect("it is looked at");
        timeline.live = None;
        let shown = Shown::Assistant { text, reasoning: String::new() };
        timeline.entries.push(Entry { seq: 9, turn: None, shown, edition: 0 });
        view.stay_at(&mut timeline, (first, rows));
        assert_eq!(texts(&mut view, &mut timeline), before);
    }

    #[test]
    fn few_entries_stand_at_the_top() {
        let (mut view, mut timeline) = (View::default(), timeline(1));
        assert_eq!(texts(&mut view, &mut timeline), ["entry 1", ""]);
        assert!(view.scroll(&mut timeline, -5) && view.follows());
        view.choose(&mut timeline, -1);
        assert_eq!(view.chosen, Some(0));
        view.choose(&mut timeline, 1);
        assert_eq!(view.chosen, None);
        assert!(texts(&mut View::default(), &mut Timeline::default()).is_empty());
    }
}
