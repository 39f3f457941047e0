//! `simse` in a terminal: an interface over a session of any server.
//!
//! It is a client like any other: a snapshot, then the events, over broken lines and restarts. One task holds all that is shown; what
//! it waits for runs beside it and comes back as messages. Invariants: keys come before everything else; a picture is drawn at most
//! sixty times a second, however fast events come; the terminal is given back as it was.

mod app;
mod commands;
mod dialog;
mod draw;
mod editor;
mod entry;
mod keys;
mod live;
mod markdown;
mod offers;
mod question;
mod terminal;
mod text;
mod timeline;
mod view;
mod work;

use std::io::IsTerminal;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::app::App;
use self::terminal::Screen;
use self::work::Message;
use super::log::Log;
use super::reach::{Reach, Reached, Refusal};
use super::{Exit, screen, signal};

/// Time between two pictures, at least.
const FRAME: Duration = Duration::from_millis(16);
/// How often what counts seconds is drawn.
const TICK: Duration = Duration::from_millis(250);
/// Messages that may wait.
const MESSAGES_MAX: usize = 1_024;
/// Messages that are taken between two looks at the keys.
const AT_ONCE: usize = 256;

/// Works with a session until the user leaves.
pub(super) async fn run(reach: Reach) -> Exit {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        screen::problem(
            "this is no terminal: `simse run PROMPT` is for scripts, `simse chat` for pipes, `simse serve` for servers",
        );
        return Exit::Usage;
    }
    match worked(&reach).await {
        Ok(session) => {
            screen::note(&format!("simse: session {session}; `simse --session {session}` goes on with it"));
            Exit::Ok
        }
        Err((exit, words)) => {
            screen::last(words);
            exit
        }
    }
}

async fn worked(reach: &Reach) -> Result<String, Refusal> {
    let launch = reach.launch()?;
    let directory = launch.data_directory.clone();
    let log = Log::to_file(&launch, &directory.join("terminal.log"));
    let signals = signal::each().map_err(|cause| (Exit::CannotStart, format!("no signals: {cause}")))?;
    let reached = reach.server(launch).await?;
    let shown = async {
        let session = reach.session(&reached).await?;
        let (tell, messages) = mpsc::channel(MESSAGES_MAX);
        let history = directory.is_dir().then(|| directory.join("terminal-history"));
        let app = App::new(&reached, tell, history, session);
        show(app, messages, signals).await.map_err(|cause| (Exit::CannotStart, format!("the terminal: {cause}")))
    };
    let shown = shown.await;
    let ended = Reached::end(reached).await;
    log.flush();
    let session = shown?;
    ended?;
    Ok(session)
}

/// Shows the interface until the user leaves; which session it was.
async fn show(
    mut app: App,
    mut messages: mpsc::Receiver<Message>,
    mut signals: mpsc::Receiver<i32>,
) -> std::io::Result<String> {
    let (mut screen, mut keys) = Screen::open()?;
    let mut drawn = Instant::now();
    let mut dirty = true;
    let mut tick = tokio::time::interval(TICK);
    while !app.left {
        if dirty && drawn.elapsed() >= FRAME {
            screen.terminal.draw(|frame| draw::draw(&mut app, frame))?;
            (drawn, dirty) = (Instant::now(), false);
        }
        tokio::select! {
            biased;
            key = keys.recv() => {
                let Some(key) = key else { break };
                app.key(key);
                // What was pasted without a bracket comes as many keys.
                for key in std::iter::from_fn(|| keys.try_recv().ok()).take(AT_ONCE) {
                    app.key(key);
                }
                outside(&mut app, &mut screen)?;
                screen.terminal.draw(|frame| draw::draw(&mut app, frame))?;
                (drawn, dirty) = (Instant::now(), false);
            }
            _ = signals.recv() => break,
            () = sleep_until(drawn + FRAME), if dirty => {}
            message = messages.recv() => {
                let Some(message) = message else { break };
                app.hear(message);
                for message in std::iter::from_fn(|| messages.try_recv().ok()).take(AT_ONCE) {
                    app.hear(message);
                }
                dirty = true;
            }
            _ = tick.tick() => dirty |= app.counts(),
        }
    }
    Ok(app.session_id())
}

/// What the terminal itself is to do.
fn outside(app: &mut App, screen: &mut Screen) -> std::io::Result<()> {
    if let Some(text) = app.copied.take() {
        screen.copy(&text)?;
    }
    if std::mem::take(&mut app.suspends) {
        screen.suspend()?;
    }
    if std::mem::take(&mut app.redraws) {
        screen.terminal.clear()?;
    }
    Ok(())
}
