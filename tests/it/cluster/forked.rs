//! The beginning of a fork's log, held against the log of its parent.

use serde_json::Value;

/// What a fork was asked to be.
#[derive(Debug, Clone, Default)]
pub struct Fork {
    pub parent: String,
    /// The last event that was to be shared. None: the newest.
    pub at: Option<u64>,
    /// An event of the parent that had been seen before.
    pub newest: u64,
    /// The log of the parent, once it is checked.
    pub log: Vec<Value>,
}

/// The number of an event, as a place behind those before it.
fn count(number: &Value) -> usize {
    number.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// What is wrong with the beginning of a log. The answer: the number of the event that says that it is a fork, and 0 where it is none.
/// Before it stands what it shares, and the ends of turns that were not over.
pub fn beginning(fork: Option<&Fork>, id: &str, events: &[Value], faults: &mut Vec<String>) -> usize {
    let is_it = |event: &&Value| event["type"] == "session.forked" && event["payload"]["sessionId"] == id;
    let told: Vec<&Value> = events.iter().filter(is_it).collect();
    let (fork, told) = match (fork, &told[..]) {
        (None, []) => return 0,
        (Some(fork), [told]) => (fork, *told),
        _ => {
            faults.push(format!("it is to be {fork:?}, and says {told:?}"));
            return 0;
        }
    };
    let (at, forked) = (count(&told["payload"]["at"]), count(&told["seq"]));
    let wanted = fork.at.map_or(at as u64 >= fork.newest, |wanted| at as u64 == wanted);
    if !wanted || at == 0 || at >= forked || told["payload"]["parentSessionId"] != fork.parent.as_str() {
        faults.push(format!("it is to be {} at {:?} or behind {}: {told}", fork.parent, fork.at, fork.newest));
    }
    for seq in 0..at {
        let mut shared = fork.log.get(seq).cloned().unwrap_or_default();
        shared["sessionId"] = id.into();
        if events.get(seq) != Some(&shared) {
            faults.push(format!("it does not begin with the log of its parent: {:?}, and {shared}", events.get(seq)));
        }
    }
    forked
}

/// The check, held against made-up faults.
mod self_test {
    use serde_json::json;

    use super::*;

    fn event(session: &str, seq: u64, kind: &str, payload: Value) -> Value {
        json!({ "seq": seq, "sessionId": session, "type": kind, "payload": payload })
    }

    fn sound() -> (Fork, Vec<Value>) {
        let log = |id: &str| vec![event(id, 1, "session.created", json!({})), event(id, 2, "turn.queued", json!({}))];
        let told = json!({ "sessionId": "s", "parentSessionId": "p", "at": 2 });
        let rest = [event("s", 3, "abort", json!({})), event("s", 4, "session.forked", told)];
        let fork = Fork { parent: "p".to_owned(), at: Some(2), newest: 2, log: log("p") };
        (fork, log("s").into_iter().chain(rest).collect())
    }

    /// Something that is done to what is sound.
    type Harm = fn(&mut Fork, &mut Vec<Value>);

    #[test]
    fn each_fault_is_seen() {
        #[rustfmt::skip]
        let table: &[(&str, Harm)] = &[
            ("does not begin with the log", |_, events| events[1]["payload"] = "other".into()),
            ("does not begin with the log", |fork, _| fork.log.truncate(1)),
            ("it is to be p at Some(1)",    |fork, _| fork.at = Some(1)),
            ("it is to be p at None",       |fork, _| (fork.at, fork.newest) = (None, 3)),
            ("it is to be q at",            |fork, _| fork.parent = "q".to_owned()),
            ("and says []",                 |_, events| drop(events.pop())),
            ("and says [Object",            |_, events| events.push(events[3].clone())),
        ];
        let (fork, events) = sound();
        let mut faults = Vec::new();
        let forked = beginning(Some(&fork), "s", &events, &mut faults);
        assert_eq!((forked, faults), (4, Vec::new()));
        for (want, harm) in table {
            let ((mut fork, mut events), mut faults) = (sound(), Vec::new());
            harm(&mut fork, &mut events);
            beginning(Some(&fork), "s", &events, &mut faults);
            assert!(faults.iter().any(|fault| fault.contains(want)), "{want}: {faults:?}");
        }
    }
}
