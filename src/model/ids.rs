//! The ids of calls in a request. Providers refuse a conversation in which an id is there twice, and many servers give the same
//! ids in each reply (`call`, `functions.bash:0`) or none. Pure.
//!
//! Invariant: what an id is called depends on the calls before it alone, so that what was sent before is sent again as it was.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::marker::PhantomData;

use crate::protocol::{Message, ToolCallRequest};

/// What a call without an id is called.
const NAMELESS: &str = "call";

/// Other names of ids that were there before in the same conversation. Mostly there are none.
#[derive(Debug, Default)]
pub struct CallIds<'m> {
    calls: HashMap<(Place, usize), String>,
    results: HashMap<Place, String>,
    of: PhantomData<&'m [Message]>,
}

/// Where a message stands: it stays there while the conversation is borrowed.
type Place = usize;

fn place(message: &Message) -> Place {
    std::ptr::from_ref(message).addr()
}

impl<'m> CallIds<'m> {
    /// Of a conversation. `sent`: what the ids of a reply's calls are on the wire, in the order of the calls; none where one is not
    /// sent. A name has at most `bytes_max`.
    pub fn of(
        messages: &'m [Message],
        bytes_max: usize,
        sent: impl Fn(&'m Message, &'m [ToolCallRequest]) -> Vec<Option<Cow<'m, str>>>,
    ) -> Self {
        let mut names = Names { taken: HashSet::new(), numbers: HashMap::new(), bytes_max };
        let mut calls = HashMap::new();
        for message in messages {
            let Message::Assistant { calls: made, .. } = message else { continue };
            if made.is_empty() {
                continue;
            }
            for (number, id) in sent(message, made).into_iter().enumerate() {
                let other = id.and_then(|id| names.other(id));
                calls.extend(other.map(|name| ((place(message), number), name)));
            }
        }
        let results = if calls.is_empty() { HashMap::new() } else { results(messages, &calls) };
        Self { calls, results, of: PhantomData }
    }

    /// The other name of a call's id. None: it has its own.
    pub fn call(&self, message: &Message, number: usize) -> Option<&str> {
        self.calls.get(&(place(message), number)).map(String::as_str)
    }

    /// The other name of the id in a result.
    pub fn result(&self, message: &Message) -> Option<&str> {
        self.results.get(&place(message)).map(String::as_str)
    }
}

/// Whether a call whose model called it `given` may be called `ours`: the loop makes ids of one turn unique.
pub fn is_named(given: &str, ours: &str) -> bool {
    let given = if given.is_empty() { NAMELESS } else { given };
    ours.strip_prefix(given).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

struct Names<'m> {
    taken: HashSet<Cow<'m, str>>,
    /// How often each was there.
    numbers: HashMap<String, u64>,
    bytes_max: usize,
}

impl<'m> Names<'m> {
    /// Another name for it, where it cannot have its own.
    fn other(&mut self, id: Cow<'m, str>) -> Option<String> {
        if !id.is_empty() && self.taken.insert(id.clone()) {
            return None;
        }
        let id = if id.is_empty() { NAMELESS } else { &*id };
        let number = self.numbers.entry(id.to_owned()).or_insert(u64::from(self.taken.contains(id)));
        loop {
            *number += 1;
            let name = if *number == 1 { id.to_owned() } else { numbered(id, *number, self.bytes_max) };
            if self.taken.insert(Cow::Owned(name.clone())) {
                return Some(name);
            }
        }
    }
}

fn numbered(id: &str, number: u64, bytes_max: usize) -> String {
    let mark = format!("_{number}");
    let end = id.floor_char_boundary(bytes_max.saturating_sub(mark.len()));
    format!("{}{mark}", &id[..end])
}

/// Results have the names of their calls: those of the last reply that has such a call, in its order.
fn results(messages: &[Message], calls: &HashMap<(Place, usize), String>) -> HashMap<Place, String> {
    let mut open: HashMap<&str, VecDeque<(Place, usize)>> = HashMap::new();
    let mut named = HashMap::new();
    for message in messages {
        let at = place(message);
        match message {
            Message::Assistant { calls: made, .. } => {
                for (number, call) in made.iter().enumerate() {
                    let waiting = open.entry(&call.id).or_default();
                    waiting.retain(|(reply, _)| *reply == at);
                    waiting.push_back((at, number));
                }
            }
            Message::ToolResult { call_id, .. } => {
                let call = open.get_mut(call_id.as_str()).and_then(VecDeque::pop_front);
                named.extend(call.and_then(|call| Some((at, calls.get(&call)?.clone()))));
            }
            Message::User(_) => {}
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(ids: &[&str]) -> Message {
        let call =
            |id: &&str| ToolCallRequest { id: (*id).into(), name: "t".into(), arguments: serde_json::Map::new() };
        Message::assistant("", ids.iter().map(call).collect())
    }

    fn result(id: &str) -> Message {
        let (call_id, name) = (id.into(), "t".into());
        Message::ToolResult { call_id, name, output: String::new(), is_error: false, parts: Vec::new() }
    }

    /// The ids as they are sent, message by message.
    fn sent(messages: &[Message]) -> Vec<String> {
        let ids =
            CallIds::of(messages, 12, |_, calls| calls.iter().map(|call| Some(call.id.as_str().into())).collect());
        let mut all = Vec::new();
        for message in messages {
            match message {
                Message::Assistant { calls, .. } => {
                    let name = |(number, call): (usize, &ToolCallRequest)| {
                        ids.call(message, number).unwrap_or(&call.id).to_owned()
                    };
                    all.extend(calls.iter().enumerate().map(name));
                }
                Message::ToolResult { call_id, .. } => all.push(format!("={}", ids.result(message).unwrap_or(call_id))),
                Message::User(_) => {}
            }
        }
        all
    }

    #[test]
    fn each_id_is_there_once_and_results_follow_their_calls() {
        #[rustfmt::skip]
        let table = [
            (vec![reply(&["a"]), result("a"), reply(&["b"]), result("b")], vec!["a", "=a", "b", "=b"]),
            (vec![reply(&["a"]), result("a"), reply(&["a"]), result("a"), reply(&["a"]), result("a")], vec!["a", "=a", "a_2", "=a_2", "a_3", "=a_3"]),
            // Within one reply, in the order of the calls; and one that is called so by itself.
            (vec![reply(&["a", "a", "a_2"]), result("a"), result("a_2"), result("a")], vec!["a", "a_2", "a_2_2", "=a", "=a_2_2", "=a_2"]),
            (vec![reply(&["a_2"]), result("a_2"), reply(&["a", "a"]), result("a"), result("a")], vec!["a_2", "=a_2", "a", "a_3", "=a", "=a_3"]),
            // Without an id.
            (vec![reply(&["", ""]), result(""), result(""), reply(&["call"]), result("call")], vec!["call", "call_2", "=call", "=call_2", "call_3", "=call_3"]),
            (vec![reply(&["call"]), result("call"), reply(&[""]), result("")], vec!["call", "=call", "call_2", "=call_2"]),
            // A call that was never answered leaves its results to nobody.
            (vec![reply(&["a"]), reply(&["a"]), result("a"), result("a")], vec!["a", "a_2", "=a_2", "=a"]),
            // As long as the wire takes.
            (vec![reply(&["123456789012"]), reply(&["123456789012"])], vec!["123456789012", "1234567890_2"]),
        ];
        for (messages, want) in table {
            assert_eq!(sent(&messages), want);
            // What was sent before is sent again.
            for upto in 0..messages.len() {
                let before = sent(&messages[..upto]);
                assert_eq!(before[..], sent(&messages)[..before.len()]);
            }
        }
    }

    #[test]
    fn what_the_loop_calls_a_call() {
        let table = [
            ("a", "a", true),
            ("a", "a_2", true),
            ("", "call", true),
            ("", "call_7", true),
            ("a", "ab", false),
            ("a", "b", false),
        ];
        for (given, ours, want) in table {
            assert_eq!(is_named(given, ours), want, "{given} {ours}");
        }
    }

    #[test]
    fn many_of_one_name_are_named_soon() {
        let many: Vec<Message> = std::iter::repeat_with(|| reply(&["call"])).take(20_000).collect();
        let ids = CallIds::of(&many, 64, |_, calls| calls.iter().map(|call| Some(call.id.as_str().into())).collect());
        assert_eq!((ids.call(&many[0], 0), ids.call(&many[19_999], 0)), (None, Some("call_20000")));
    }
}
