//! Every order in which some prompts, any controls and the doings of the loop can come, over the very functions that the
//! actor asks. The loop decides at its boundaries by what is wanted there, and the actor hears of it later: whatever can come
//! between the two does. At any moment the process can end: the next one goes on from what is durable then.

use std::collections::{BTreeSet, HashSet, VecDeque};

use super::*;

/// Prompts that are sent at most. With them the states have an end, and all are looked at.
const PROMPTS: u8 = 5;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Turn {
    id: u8,
    phase: Phase,
    /// Messages that wait for its next boundary.
    steers: Vec<u8>,
    /// Messages that it has heard since something was last written down for certain, oldest first.
    fresh: Vec<u8>,
    /// What the loop has said that the actor has not heard yet. None: it works, or the turn is paused.
    said: Option<Input>,
    /// An interrupt was accepted.
    interrupted: bool,
    /// An abort was accepted.
    aborted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Session {
    sent: u8,
    turn: Option<Turn>,
    queue: VecDeque<u8>,
    /// Messages that a turn has heard.
    heard: BTreeSet<u8>,
    /// Turns that had their terminal event.
    ended: BTreeSet<u8>,
    refused: BTreeSet<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Prompt(PromptMode),
    Control(Input),
    /// The loop comes to a boundary.
    Boundary,
    /// The loop has an answer without calls.
    Answer,
    /// The loop fails.
    Break,
    /// The loop notices that it was cut off: by an abort, or after the grace of an interrupt.
    Notice,
    /// The actor hears what the loop said.
    Hear,
    /// The process ends, and that so many of the newest messages were heard is not in the log.
    Crash(usize),
}

const STEPS: [Step; 15] = [
    Step::Prompt(PromptMode::Queue),
    Step::Prompt(PromptMode::Steer),
    Step::Prompt(PromptMode::Reject),
    Step::Control(Input::Pause),
    Step::Control(Input::Resume),
    Step::Control(Input::Interrupt),
    Step::Control(Input::Abort),
    Step::Boundary,
    Step::Answer,
    Step::Break,
    Step::Notice,
    Step::Hear,
    Step::Crash(0),
    Step::Crash(1),
    Step::Crash(2),
];

impl Session {
    fn begin(&mut self, id: u8) {
        assert!(self.turn.is_none(), "one turn at a time");
        let phase = Phase::Queued.after(Input::Start).expect("a queued turn begins");
        let (steers, fresh) = (Vec::new(), Vec::new());
        self.turn = Some(Turn { id, phase, steers, fresh, said: None, interrupted: false, aborted: false });
    }

    /// The state after a step. None: it cannot come now.
    fn after(mut self, step: Step) -> Option<Self> {
        match step {
            Step::Prompt(mode) => self.prompt(mode)?,
            Step::Control(input) => self.control(input)?,
            Step::Boundary | Step::Answer | Step::Break | Step::Notice => self.works(step)?,
            Step::Hear => self.hear()?,
            Step::Crash(lost) => self.crash(lost)?,
        }
        Some(self)
    }

    /// Something is durable before it is answered, and with it all that came before.
    fn written(&mut self) {
        self.turn.iter_mut().for_each(|turn| turn.fresh.clear());
    }

    fn prompt(&mut self, mode: PromptMode) -> Option<()> {
        let id = self.sent;
        self.sent = (id < PROMPTS).then_some(id + 1)?;
        match place(self.turn.as_ref().map(|turn| turn.phase), self.queue.len(), mode) {
            Place::Begin => self.begin(id),
            Place::Queue => self.queue.push_back(id),
            Place::Steer => self.turn.as_mut().expect("a turn runs").steers.push(id),
            Place::Busy | Place::Paused => {
                self.refused.insert(id);
                return Some(());
            }
        }
        self.written();
        Some(())
    }

    fn control(&mut self, input: Input) -> Option<()> {
        let turn = self.turn.as_mut()?;
        let before = turn.phase;
        turn.phase = before.after(input).ok()?;
        turn.interrupted |= input == Input::Interrupt;
        turn.aborted |= input == Input::Abort;
        turn.fresh.clear();
        if before == Phase::Paused && turn.phase.status(false).is_terminal() {
            self.end();
        }
        Some(())
    }

    fn works(&mut self, step: Step) -> Option<()> {
        let turn = self.turn.as_mut().filter(|turn| turn.said.is_none() && turn.phase != Phase::Paused)?;
        let at_boundary = |turn: &mut Turn, heard: &mut BTreeSet<u8>| match turn.phase.wish() {
            Wish::GoOn => {
                heard.extend(&turn.steers);
                turn.fresh.append(&mut turn.steers);
            }
            Wish::Pause => turn.said = Some(Input::Hold),
            Wish::Interrupt => turn.said = Some(Input::Halt),
        };
        match step {
            Step::Boundary => at_boundary(turn, &mut self.heard),
            // A message that waits makes the turn go on, and then a boundary comes first.
            Step::Answer if !turn.steers.is_empty() => at_boundary(turn, &mut self.heard),
            Step::Answer => turn.said = Some(Input::Complete),
            Step::Break => turn.said = Some(Input::Fail),
            Step::Notice if matches!(turn.phase, Phase::Stopping | Phase::Interrupting) => {
                turn.said = Some(Input::Stop);
            }
            Step::Notice | Step::Prompt(_) | Step::Control(_) | Step::Hear | Step::Crash(_) => return None,
        }
        Some(())
    }

    fn hear(&mut self) -> Option<()> {
        let turn = self.turn.as_mut()?;
        let said = turn.said.take()?;
        turn.phase = turn.phase.after(said).unwrap_or_else(|refused| panic!("the actor has no answer: {refused:?}"));
        let over = turn.phase.status(false).is_terminal();
        if over || turn.phase == Phase::Paused {
            self.written();
        }
        if over {
            self.end();
        }
        Some(())
    }

    /// What the next process makes of what is durable: no more of the turn than that it ran or was paused, that it was
    /// aborted, and its messages as far as it has not heard them.
    fn crash(&mut self, lost: usize) -> Option<()> {
        let Some(turn) = &mut self.turn else { return (lost == 0).then_some(()) };
        let kept = turn.fresh.len().checked_sub(lost)?;
        let again = turn.fresh.split_off(kept);
        self.heard.retain(|id| !again.contains(id));
        turn.steers.splice(..0, again);
        turn.fresh.clear();
        (turn.said, turn.interrupted) = (None, false);
        turn.phase = found(turn.phase.status(false), turn.aborted);
        if turn.phase.status(false).is_terminal() {
            self.end();
        }
        Some(())
    }

    /// What must hold of a session behind a crash, beside what always does.
    fn check_crash(&self, before: &Self) {
        let Some(ran) = &before.turn else { return assert_eq!(self, before) };
        if ran.phase == Phase::Paused {
            return assert_eq!(self, before, "a paused turn is paused still");
        }
        assert!(self.ended.contains(&ran.id), "no turn is left running: {before:?}");
        assert!(self.turn.as_ref().is_none_or(|turn| turn.phase == Phase::Running), "{self:?}");
        let line: Vec<u8> = self.turn.iter().map(|turn| turn.id).chain(self.queue.iter().copied()).collect();
        let waited: Vec<u8> = before.queue.iter().copied().collect();
        assert!(line.ends_with(&waited), "what waited runs, in its order: {before:?} {self:?}");
        let for_it = &line[..line.len() - waited.len()];
        assert!(for_it.ends_with(&ran.steers), "what was meant for it comes before that: {before:?} {self:?}");
    }

    /// The turn's terminal event, and what runs next.
    fn end(&mut self) {
        let turn = self.turn.take().expect("a turn ends");
        assert!(self.ended.insert(turn.id), "a turn has one end");
        assert!(!turn.aborted || turn.phase == Phase::Aborted, "who aborts was told so: {turn:?}");
        for id in turn.steers.into_iter().rev() {
            self.queue.push_front(id);
        }
        if let Some(next) = self.queue.pop_front() {
            self.begin(next);
        }
    }

    fn check(&self) {
        let mut places: Vec<u8> = self.queue.iter().copied().collect();
        places.extend(self.turn.iter().flat_map(|turn| turn.steers.iter().copied().chain([turn.id])));
        places.extend(self.heard.iter().chain(&self.ended).chain(&self.refused));
        places.sort_unstable();
        assert_eq!(places, (0..self.sent).collect::<Vec<_>>(), "each prompt is in one place: {self:?}");
        let Some(turn) = &self.turn else {
            return assert!(self.queue.is_empty(), "something waits and nothing runs: {self:?}");
        };
        assert!(!turn.phase.status(false).is_terminal(), "a turn that is over has gone: {self:?}");
        assert!(!turn.interrupted || turn.phase != Phase::Paused, "interrupt goes before pause: {self:?}");
        assert!(turn.phase != Phase::Paused || turn.said.is_none(), "a paused turn does nothing: {self:?}");
    }

    /// Whether it comes to rest when the loop does its work and nobody says anything more.
    fn settles(&self) -> bool {
        let mut session = self.clone();
        for _ in 0..64 {
            let stuck = session.turn.as_ref().is_none_or(|turn| turn.phase == Phase::Paused);
            if stuck {
                return true;
            }
            let next =
                [Step::Hear, Step::Notice, Step::Answer].into_iter().find_map(|step| session.clone().after(step));
            session = next.expect("a turn that runs goes on");
        }
        false
    }
}

#[test]
fn no_order_of_things_breaks_a_promise() {
    let mut seen: HashSet<Session> = HashSet::new();
    let mut front = vec![Session::default()];
    while !front.is_empty() {
        let mut next = Vec::new();
        for session in front {
            for (step, after) in STEPS.iter().filter_map(|step| Some((step, session.clone().after(*step)?))) {
                if let Step::Crash(_) = step {
                    after.check_crash(&session);
                }
                if seen.insert(after.clone()) {
                    after.check();
                    assert!(after.settles(), "nobody waits for ever: {after:?}");
                    next.push(after);
                }
            }
        }
        front = next;
    }
    assert!(seen.len() > 5_000, "so many states were looked at: {}", seen.len());
    let any = |phase: Phase| seen.iter().any(|session| session.turn.as_ref().is_some_and(|turn| turn.phase == phase));
    for phase in [Phase::Running, Phase::Pausing, Phase::Paused, Phase::Interrupting, Phase::Stopping] {
        assert!(any(phase), "{phase:?} was reached");
    }
}
