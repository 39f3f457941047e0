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
mod find;
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

use crossterm::event::Event;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::app::App;
use self::terminal::Screen;
use self::work::Message;
use super::log::Log;
use super::reach::{Reach, Reached, Refusal};
use super::{Exit, screen, signal};
use crate::config::data_directory;

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
    if reach.attach.is_none() {
        // What is wrong with it the server says.
        drop(data_directory::prepare(&directory));
    }
    let log = Log::to_file(&launch, &directory.join("terminal.log"));
    let mut signals = signal::each().map_err(|cause| (Exit::CannotStart, format!("no signals: {cause}")))?;
    let mut reached = reach.server(launch.clone()).await?;
    let shown = async {
        let session = reach.session(&reached).await?;
        let (tell, mut messages) = mpsc::channel(MESSAGES_MAX);
        let history = directory.is_dir().then(|| directory.join("terminal-history"));
        let mut app = App::new(&reached, tell, history, session);
        let failed = |cause: std::io::Error| (Exit::CannotStart, format!("the terminal: {cause}"));
        let (mut screen, mut keys) = Screen::open().map_err(failed)?;
        loop {
            // Another server is looked for where none was named, and the one that is away is not this process.
            let seeks = reach.attach.is_none() && !reached.is_own();
            let end = show(&mut app, (&mut screen, &mut keys), (&mut messages, &mut signals), seeks).await;
            match end.map_err(failed)? {
                End::Left => return Ok(app.session_id()),
                End::Lost => match reach.server(launch.clone()).await {
                    Ok(next) => {
                        reached = next;
                        app.move_to(&reached);
                    }
                    Err((_, why)) => app.wait_on(why),
                },
            }
        }
    };
    let shown = shown.await;
    let ended = Reached::end(reached).await;
    log.flush();
    let session = shown?;
    ended?;
    Ok(session)
}

/// Why the interface is shown no longer.
enum End {
    /// The user left.
    Left,
    /// The server has been away for a while.
    Lost,
}

/// Shows the interface until the user leaves, or the server has been away for a while, where `seeks` says that this matters.
async fn show(
    app: &mut App,
    (screen, keys): (&mut Screen, &mut mpsc::Receiver<Event>),
    (messages, signals): (&mut mpsc::Receiver<Message>, &mut mpsc::Receiver<i32>),
    seeks: bool,
) -> std::io::Result<End> {
    let mut drawn = Instant::now();
    let mut dirty = true;
    let mut tick = tokio::time::interval(TICK);
    while !app.left {
        if dirty && drawn.elapsed() >= FRAME {
            screen.terminal.draw(|frame| draw::draw(app, frame))?;
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
                outside(app, (screen, signals))?;
                screen.terminal.draw(|frame| draw::draw(app, frame))?;
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
            _ = tick.tick() => {
                if seeks && app.is_lost() {
                    return Ok(End::Lost);
                }
                dirty |= app.counts();
            }
        }
    }
    Ok(End::Left)
}

/// What the terminal itself is to do.
fn outside(app: &mut App, (screen, signals): (&mut Screen, &mut mpsc::Receiver<i32>)) -> std::io::Result<()> {
    if let Some(text) = app.copied.take() {
        screen.copy(&text)?;
    }
    if std::mem::take(&mut app.suspends) {
        screen.suspend()?;
    }
    if std::mem::take(&mut app.writes) {
        match screen.write_elsewhere(&app.editor.whole())? {
            Ok(text) => app.written(&text),
            Err(why) => app.tell(false, why),
        }
        // Ctrl-C there was for the program that was there.
        while let Ok(signal) = signals.try_recv() {
            app.left |= signal != rustix::process::Signal::INT.as_raw();
        }
    }
    if std::mem::take(&mut app.redraws) {
        screen.terminal.clear()?;
    }
    Ok(())
}
