//! All that the interface shows, and how what comes from the server changes it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::super::client::Client;
use super::super::reach::Reached;
use super::commands::own_commands;
use super::dialog::{Choice, Dialog, Pick};
use super::editor::Editor;
use super::find::Search;
use super::offers::{Offer, Offers};
use super::question::Question;
use super::text;
use super::timeline::Timeline;
use super::view::View;
use super::work::{Message, Work, words};
use crate::protocol::{AgentPlan, Event, EventBody, Page, Part, RequestId, SessionView, TaskView, TurnRecord, Usage};

/// How long a word from us stands.
const TOLD: Duration = Duration::from_secs(6);
/// How long a server may be away before it is looked for anew.
const LOST: Duration = Duration::from_secs(2);
/// Entries from which on the oldest are left to the history again, while the newest are looked at.
const ENTRIES_MAX: usize = 5_000;

/// The interface.
pub(super) struct App {
    pub(super) work: Work,
    /// The terminal is too small for anything to be seen.
    pub(super) is_hidden: bool,
    /// What looks like a command and is none: sent when it is entered once more.
    pub(super) doubted: String,
    /// What a new session begins with.
    pub(super) wanted: Value,
    pub(super) session: SessionView,
    /// Which look at a session this is.
    pub(super) look: u64,
    follow: Option<AbortOnDropHandle<()>>,
    pub(super) timeline: Timeline,
    pub(super) view: View,
    pub(super) editor: Editor,
    pub(super) offers: Offers,
    /// Pictures that go with the next prompt.
    pub(super) pictures: Vec<Part>,
    pub(super) questions: VecDeque<Question>,
    /// What words for a question are written with.
    pub(super) answer: Editor,
    /// Whether keys go to the editor although a question waits.
    pub(super) aside: bool,
    pub(super) queue: Vec<TurnRecord>,
    pub(super) tasks: Vec<TaskView>,
    pub(super) plan: Option<AgentPlan>,
    /// Tokens of the last request.
    pub(super) usage: Option<Usage>,
    /// Tokens that the model can be shown.
    pub(super) window: Option<u64>,
    /// Why the line to the server is broken. None: it is open.
    pub(super) broken: Option<String>,
    /// Since when.
    lost: Option<Instant>,
    told: Option<(Instant, bool, String)>,
    pub(super) dialog: Option<Dialog>,
    /// When a key was pressed that has to be pressed twice, and which.
    pub(super) once: Option<(Instant, char)>,
    loads_older: bool,
    files_asked: Option<String>,
    /// A text for the clipboard.
    pub(super) copied: Option<String>,
    pub(super) suspends: bool,
    /// What is written is to be written in a program of the user's.
    pub(super) writes: bool,
    /// What is looked for in the timeline.
    pub(super) search: Search,
    pub(super) redraws: bool,
    pub(super) left: bool,
}

impl App {
    /// The interface of a session.
    pub(super) fn new(
        reached: &Reached,
        tell: mpsc::Sender<Message>,
        history: Option<PathBuf>,
        session: SessionView,
    ) -> Self {
        let client: Client = reached.client.clone();
        let mut app = Self {
            work: Work { client, tell },
            wanted: Value::Object(reached.wanted()),
            session: session.clone(),
            look: 0,
            follow: None,
            timeline: Timeline::default(),
            view: View::default(),
            editor: history.map(Editor::remembering).unwrap_or_default(),
            offers: Offers::of(own_commands()),
            pictures: Vec::new(),
            questions: VecDeque::new(),
            answer: Editor::default(),
            aside: false,
            queue: Vec::new(),
            tasks: Vec::new(),
            plan: None,
            usage: None,
            window: None,
            broken: Some("opening".to_owned()),
            lost: None,
            told: None,
            dialog: None,
            once: None,
            loads_older: false,
            files_asked: None,
            copied: None,
            suspends: false,
            writes: false,
            search: Search::default(),
            redraws: false,
            is_hidden: false,
            doubted: String::new(),
            left: false,
        };
        app.go_to(session);
        app
    }

    /// The session's id.
    pub(super) fn session_id(&self) -> String {
        self.session.session_id.to_string()
    }

    /// The path of something of the session.
    pub(super) fn path(&self, what: &str) -> String {
        format!("/sessions/{}{what}", self.session.session_id)
    }

    /// Looks at a session.
    pub(super) fn go_to(&mut self, session: SessionView) {
        self.look += 1;
        self.session = session;
        self.search_no_more();
        self.view.begin();
        self.timeline = Timeline::default();
        self.questions.clear();
        (self.queue, self.tasks, self.plan, self.usage) = (Vec::new(), Vec::new(), None, None);
        (self.offers.files, self.files_asked, self.loads_older) = (Vec::new(), None, false);
        (self.broken, self.lost) = (Some("opening".to_owned()), None);
        self.follow = Some(self.work.follow(&self.session.session_id, self.look));
        self.work.tasks(&self.session.session_id, self.look);
        self.ask_commands();
        self.ask_agents();
        self.ask_window();
    }

    fn ask_commands(&self) {
        let path = format!("/commands?sessionId={}", self.session.session_id);
        self.work.call(("GET", path), None, |answer| {
            let answer = answer.ok()?;
            let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
            let offer = |one: &Value| {
                let hint = format!("{} {}", text(one, "argumentHint"), text(one, "description"));
                Offer { word: text(one, "name"), hint: hint.trim().to_owned() }
            };
            Some(Message::Commands(answer["commands"].as_array()?.iter().map(offer).collect()))
        });
    }

    /// What was written elsewhere.
    pub(super) fn written(&mut self, text: &str) {
        self.editor.set(text);
        self.offers.look(&self.editor);
    }

    /// How much the session's model can be shown.
    fn ask_window(&self) {
        let model = self.session.model.clone();
        self.work.call(("GET", "/models".to_owned()), None, move |answer| {
            let models = answer.ok()?;
            let own = models["models"].as_array()?.iter().find(|one| one["id"] == model.as_str())?.clone();
            let tokens = own["contextTokens"].as_u64()?;
            Some(Message::Window(tokens))
        });
    }

    /// Whether the server has been away for so long that another one may have taken its place.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some_and(|since| since.elapsed() >= LOST)
    }

    /// Goes on at another server that has the same sessions. What is written stays.
    pub(super) fn move_to(&mut self, reached: &Reached) {
        self.work.client = reached.client.clone();
        self.go_to(self.session.clone());
    }

    /// Stays with the one that is away, for a while.
    pub(super) fn wait_on(&mut self, why: String) {
        self.tell(false, why);
        self.lost = Some(Instant::now());
    }

    /// Whether a turn runs.
    pub(super) fn runs(&self) -> bool {
        self.session.turn.is_some()
    }

    /// Says something for a while.
    pub(super) fn tell(&mut self, good: bool, words: impl Into<String>) {
        self.told = Some((Instant::now(), good, words.into()));
    }

    /// What is said now.
    pub(super) fn told(&self) -> Option<(bool, &str)> {
        let (since, good, words) = self.told.as_ref()?;
        (since.elapsed() < TOLD).then_some((*good, words))
    }

    /// Whether something on the screen counts seconds.
    pub(super) fn counts(&mut self) -> bool {
        self.runs() || !self.questions.is_empty() || self.told.is_some() || self.broken.is_some()
    }

    /// The question that keys answer.
    pub(super) fn question(&mut self) -> Option<&mut Question> {
        if self.aside { None } else { self.questions.front_mut() }
    }

    fn ask(&mut self, question: Question) {
        if self.questions.iter().any(|waiting| waiting.request == question.request) {
            return;
        }
        self.questions.push_back(question);
        if self.questions.len() == 1 {
            self.put();
        }
    }

    /// Puts the first question that waits.
    fn put(&mut self) {
        self.answer = Editor::default();
        // Who is writing goes on writing.
        self.aside = !self.editor.is_empty();
        if let Some(question) = self.questions.front_mut() {
            question.put();
            if let EventBody::ClientRequest { question: crate::protocol::ClientQuestion::Editor { text, .. }, .. } =
                &question.body
            {
                let text = text.clone();
                self.answer.set(&text);
            }
        }
    }

    fn answered(&mut self, request: &RequestId) {
        let first = self.questions.front().map(|question| question.request.clone());
        self.questions.retain(|question| question.request != *request);
        if first.as_ref() == Some(request) {
            self.put();
        }
    }

    /// Gives the answer to the first question.
    pub(super) fn give(&mut self, mut answer: Value) {
        let Some(question) = self.questions.front() else { return };
        let request = question.request.clone();
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("requestId".to_owned(), serde_json::json!(request));
        }
        let path = format!("/sessions/{}/feedback", question.session);
        self.work.order("POST", path, Some(answer), "");
        self.answered(&request);
    }

    /// Asks which of the project's files are meant by what stands behind `@`.
    pub(super) fn want_files(&mut self) {
        let Some(word) = self.editor.word_with('@') else { return };
        if self.files_asked.as_deref() != Some(word) {
            self.work.files(&self.session.session_id, word);
            self.files_asked = Some(word.to_owned());
        }
    }

    /// Asks for what lies further back, where there is something.
    pub(super) fn want_older(&mut self) {
        if self.loads_older {
            return;
        }
        if let Some(before) = &self.timeline.before {
            self.loads_older = true;
            self.work.older(&self.session.session_id, self.look, before);
        }
    }

    /// Takes a message.
    pub(super) fn hear(&mut self, message: Message) {
        match message {
            Message::Event(look, event) if look == self.look => self.take(&event),
            Message::Opened(look, view) if look == self.look => self.open(*view),
            Message::Facts(look, view) if look == self.look => self.know(*view),
            Message::Line(look, broken) if look == self.look => {
                self.lost = broken.as_ref().map(|_| self.lost.unwrap_or_else(Instant::now));
                self.broken = broken;
            }
            Message::Older(look, page) if look == self.look => self.older(page),
            Message::Tasks(look, tasks) if look == self.look => self.tasks = tasks,
            Message::Event(..)
            | Message::Opened(..)
            | Message::Facts(..)
            | Message::Line(..)
            | Message::Older(..)
            | Message::Tasks(..) => {}
            Message::GoTo(view) => self.go_to(*view),
            Message::Listed(pick, choices) => self.listed(pick, choices),
            Message::Read(title, text) => {
                let lines = text::difference(&text, 4_096, "");
                self.dialog = Some(Dialog::Text { title, lines, from: 0 });
            }
            Message::Commands(found) => {
                let own = own_commands();
                let theirs = found.into_iter().filter(|one| own.iter().all(|ours| ours.word != one.word));
                self.offers.commands = own.iter().cloned().chain(theirs).collect();
            }
            Message::Agents(names) => self.offers.agents = names,
            Message::Window(tokens) => self.window = Some(tokens),
            // An answer to other letters comes too late.
            Message::Files(word, files) if self.files_asked.as_deref() == Some(&*word) => {
                self.offers.files = files;
                self.offers.look(&self.editor);
            }
            Message::Files(..) => {}
            Message::Told(good, words) => self.tell(good, words),
            Message::NotSent(prompt, why) => {
                if self.editor.is_empty() {
                    self.editor.set(&prompt);
                }
                self.tell(false, why);
            }
        }
    }

    fn listed(&mut self, pick: Pick, choices: Vec<Choice>) {
        if let Some(Dialog::List(list)) = &mut self.dialog
            && list.pick == pick
        {
            list.fill(choices);
        }
    }

    fn older(&mut self, page: Result<Page<crate::protocol::Item>, String>) {
        self.loads_older = false;
        match page {
            Ok(page) => {
                let more = self.timeline.prepend(page.items, page.next_cursor);
                self.view.moved(more);
                self.search_on();
            }
            Err(why) => {
                self.search_no_more();
                self.tell(false, why);
            }
        }
    }

    /// The session as a snapshot has it.
    fn open(&mut self, view: SessionView) {
        if let Some(snapshot) = &view.snapshot {
            self.timeline = Timeline::of(snapshot);
            self.queue.clone_from(&snapshot.queue);
        }
        self.view.begin();
        self.questions.clear();
        for request in &view.requests {
            let asked = match request {
                EventBody::SubagentRequest(asked) => Question::of(&asked.session_id, &asked.request),
                request => Question::of(&view.session_id, request),
            };
            if let Some(question) = asked {
                self.ask(question);
            }
        }
        self.session = SessionView { snapshot: None, ..view };
        (self.broken, self.lost) = (None, None);
    }

    fn know(&mut self, view: SessionView) {
        if let Some(snapshot) = &view.snapshot {
            self.queue.clone_from(&snapshot.queue);
        }
        if view.model != self.session.model {
            self.window = None;
            self.session.model.clone_from(&view.model);
            self.ask_window();
        }
        self.session = SessionView { snapshot: None, ..view };
    }

    fn take(&mut self, event: &Event) {
        (self.broken, self.lost) = (None, None);
        if self.timeline.take_piece(event) {
            return;
        }
        let Some(body) = event.body() else { return };
        let first = self.timeline.entries.len();
        let within = self.view.within_live(&mut self.timeline);
        self.timeline.take(event, &body);
        if let (Some(rows), EventBody::StreamComplete { .. }) = (within, &body) {
            self.view.stay_at(&mut self.timeline, (first, rows));
        }
        let own = self.session.session_id.clone();
        match &body {
            EventBody::PermissionRequest { .. } | EventBody::ClientRequest { .. } => {
                if let Some(question) = Question::of(&own, &body) {
                    self.ask(question);
                }
            }
            EventBody::SubagentRequest(asked) => {
                if let Some(question) = Question::of(&asked.session_id, &asked.request) {
                    self.ask(question);
                }
            }
            EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. } => {
                self.answered(request_id);
            }
            EventBody::SubagentResponse(answered) => {
                if let EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. } =
                    answered.response.as_ref()
                {
                    self.answered(request_id);
                }
            }
            EventBody::AgentPlan(plan) => self.plan = Some(plan.clone()),
            EventBody::TurnComplete { usage: Some(usage), .. } => self.usage = Some(*usage),
            EventBody::TaskCreate(_) | EventBody::TaskUpdate(_) | EventBody::TaskDelete(_) => {
                self.work.tasks(&own, self.look);
            }
            _ => {}
        }
        if settles(&body) {
            self.work.facts(&own, self.look);
        }
        if body.is_terminal() {
            self.questions.retain(|question| question.session != own);
            self.shorten();
        }
    }

    /// Leaves the oldest entries to the history again.
    fn shorten(&mut self) {
        if self.timeline.entries.len() > ENTRIES_MAX && self.view.follows() && self.questions.is_empty() {
            self.look += 1;
            self.follow = Some(self.work.follow(&self.session.session_id, self.look));
        }
    }

    /// Where the session works, for people.
    pub(super) fn directory(&self) -> &Path {
        &self.session.working_directory
    }

    /// Sends what is written.
    pub(super) fn send(&mut self, mode: &'static str) {
        let text = self.editor.take();
        self.offers.look(&self.editor);
        if text.is_empty() && self.pictures.is_empty() {
            return;
        }
        let pictures = std::mem::take(&mut self.pictures);
        let prompt = if pictures.is_empty() {
            serde_json::json!(text)
        } else {
            let words = (!text.is_empty()).then(|| Part::Text { text: text.clone() });
            serde_json::json!(words.into_iter().chain(pictures).collect::<Vec<_>>())
        };
        self.view.follow();
        self.view.chosen = None;
        let body = serde_json::json!({ "prompt": prompt, "mode": mode });
        self.work.call(("POST", self.path("/prompt")), Some(body), move |answer| {
            answer.err().map(|error| Message::NotSent(text, words(&error)))
        });
    }
}

/// Whether a session's own facts are others behind an event.
fn settles(body: &EventBody) -> bool {
    body.is_terminal()
        || matches!(
            body,
            EventBody::SessionPrompt { .. }
                | EventBody::SessionConfigured(_)
                | EventBody::TurnQueued { .. }
                | EventBody::TurnPaused { .. }
                | EventBody::TurnResumed { .. }
                | EventBody::TurnControl { .. }
        )
}
