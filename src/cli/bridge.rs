//! `simse bridge`: joins an agent's tool client, over its standard streams, to the server that runs the agent (docs/adr/0100).
//!
//! It understands nothing of what passes. Invariant: it ends with either side, so that none is left over when the agent or the server
//! is gone, however they went.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::{Exit, screen};
use crate::config::{TOOL_DOOR, TOOL_KEY, tool_door};

/// Carries bytes both ways until one side ends.
pub(super) fn run() -> Exit {
    let Some((door, key)) = tool_door() else {
        screen::problem(format_args!("it is started by an agent, which gives it {TOOL_DOOR} and {TOOL_KEY}"));
        return Exit::Usage;
    };
    match join(&door, &key) {
        Ok(()) => Exit::Ok,
        Err(cause) => {
            screen::problem(format_args!("no server at {door}: {cause}"));
            Exit::Failed
        }
    }
}

fn join(door: &str, key: &str) -> io::Result<()> {
    let mut server = TcpStream::connect(door)?;
    server.set_nodelay(true)?;
    server.write_all(format!("{key}\n").as_bytes())?;
    let asking = server.try_clone()?;
    // It waits for input that may never come, and ends with the program.
    std::thread::spawn(move || {
        let _ = carry(io::stdin().lock(), &asking);
        let _ = asking.shutdown(Shutdown::Both);
    });
    carry(&server, io::stdout().lock())
}

/// Carries everything at once that has come: `io::copy` would gather it.
fn carry(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(bytes) => {
                to.write_all(&piece[..bytes])?;
                to.flush()?;
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
}
