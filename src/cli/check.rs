//! `simse check`: holds a data directory against itself. Reads only, also while a server runs.
//!
//! stdout gets a line for each fault and one with the sum; the exit code says whether there was one.

use std::path::Path;

use super::arguments::Check;
use super::transfer::directory_of;
use super::{Exit, screen};
use crate::config::data_directory;
use crate::config::tokens::{Tokens, tokens_file};
use crate::protocol::Event;
use crate::session::{Misplaced, Views};
use crate::store::inspect::{Fault, Inspected};
use crate::store::{Inspection, StoreError};

/// Faults of one session that are printed; a log that is wrong early is often wrong in many places.
const FAULTS_MAX: usize = 20;
/// The databases beside the sessions' own.
const BESIDE: [&str; 2] = ["snapshots.db", "memory.db"];

/// What was seen.
#[derive(Debug, Default)]
struct Sum {
    sessions: u64,
    turns: u64,
    events: u64,
    faults: u64,
}

/// Looks, and says what is wrong.
pub(super) fn run(arguments: Check) -> Exit {
    let directory = match directory_of(arguments.place) {
        Ok(directory) => directory,
        Err(exit) => return exit,
    };
    match look(&directory, arguments.heads) {
        Ok(sum) if sum.faults == 0 => Exit::Ok,
        Ok(_) => Exit::Failed,
        Err(error) => {
            screen::problem(error);
            Exit::CannotStart
        }
    }
}

fn look(directory: &Path, heads: bool) -> Result<Sum, StoreError> {
    let mut sum = Sum::default();
    // What cannot be read because it is damaged is what is looked for.
    match look_into(directory, heads, &mut sum) {
        Err(damage @ StoreError::Broken { .. }) => sum.fault(&damage.to_string()),
        looked => looked?,
    }
    let Sum { sessions, turns, events, faults } = sum;
    let verdict = if faults == 0 { "nothing is wrong".to_owned() } else { format!("{faults} faults") };
    screen::line(&format!("{}: {sessions} sessions, {turns} turns, {events} events: {verdict}", directory.display()));
    Ok(sum)
}

fn look_into(directory: &Path, heads: bool, sum: &mut Sum) -> Result<(), StoreError> {
    let inspection = Inspection::open(directory).inspect_err(|error| {
        if let StoreError::Broken { .. } = error {
            files(directory, sum);
        }
    })?;
    if inspection.is_served() {
        screen::note("a server has the data directory: each session is looked at as it is at that moment");
    }
    files(directory, sum);
    let damaged = inspection.database()?;
    let sound = damaged.is_empty();
    sum.tell(damaged);
    let (version, newest) = inspection.versions();
    if version < newest {
        let note = "the next start of a server keeps a copy and brings it there; only the database itself was checked";
        screen::note(&format!("schema version {version}, the newest is {newest}: {note}"));
    } else if sound {
        sessions(&inspection, heads, sum)?;
    } else {
        screen::note("the database itself is damaged, so its sessions were not looked at");
    }
    Ok(())
}

/// What lies beside the database: who may touch the directory, the tokens, what turns did to files, and the memory.
fn files(directory: &Path, sum: &mut Sum) {
    if data_directory::is_open_to_others(directory) {
        // Of a copy that lies elsewhere this is no fault.
        screen::note("other users can look into the directory; `chmod 700` closes it");
    }
    if let Err(error) = Tokens::read(&tokens_file(directory)) {
        sum.fault(&error.to_string());
    }
    if let Some(error) = data_directory::token_fault(directory) {
        sum.fault(&error.to_string());
    }
    for said in BESIDE.iter().flat_map(|name| Inspection::beside(directory, name)) {
        sum.fault(&said);
    }
}

fn sessions(inspection: &Inspection, heads: bool, sum: &mut Sum) -> Result<(), StoreError> {
    let mut number = 0;
    while let Some(next) = inspection.next_session(number)? {
        number = next;
        let (mut views, mut misplaced) = (Views::default(), None);
        let mut events = 0;
        let (inspected, mut faults) = inspection.session(number, &mut |event| {
            events += 1;
            // Behind the first one that is out of place nothing is to be known.
            if misplaced.is_none() {
                misplaced = views.push(event).err().map(|found| of_event(event, found));
            }
        })?;
        sum.events += events;
        if let Some(Inspected { row, turns, chain }) = inspected {
            sum.sessions += 1;
            sum.turns += turns.len() as u64;
            // Of a log that is not whole, views say nothing new.
            if faults.is_empty() {
                faults = misplaced.map_or_else(|| views.compare(&row, &turns), |fault| vec![fault]);
            }
            if heads {
                screen::line(&format!("{}\t{}\t{}", row.id, chain.seq(), chain.head()));
            }
        }
        sum.tell(faults);
    }
    Ok(())
}

fn of_event(event: &Event, Misplaced { field, expected }: Misplaced) -> Fault {
    Fault::Misplaced { session: event.session_id.clone(), seq: event.seq, field, expected }
}

impl Sum {
    fn fault(&mut self, said: &str) {
        self.faults += 1;
        screen::line(&screen::clean(said));
    }

    fn tell(&mut self, faults: Vec<Fault>) {
        self.faults += faults.len() as u64;
        for fault in faults.iter().take(FAULTS_MAX) {
            screen::line(&screen::clean(&fault.to_string()));
        }
        if let Some(more) = faults.len().checked_sub(FAULTS_MAX).filter(|more| *more > 0) {
            screen::line(&format!("… and {more} more like the last"));
        }
    }
}
