//! Questions: a tool server that asks, what the clients answer, and what the log and the tool must then say of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::ledger::TurnLog;

/// A tool server whose one tool asks for a yes, and writes down what it was told. In the shell, so that it is there at once.
const SERVER: &str = r#"
declare -A calls tokens
asked=0
while IFS= read -r line; do
  id=
  [[ $line =~ \"id\":([0-9]+|\"[^\"]*\") ]] && id=${BASH_REMATCH[1]}
  result=
  case $line in
    *'"method":"initialize"'*)
      [[ $line =~ \"protocolVersion\":\"([^\"]*)\" ]]
      result='{"protocolVersion":"'${BASH_REMATCH[1]}'","capabilities":{"tools":{}},"serverInfo":{"name":"asks","version":"1"}}' ;;
    *'"method":"tools/list"'*)
      result='{"tools":[{"name":"sure","description":"Asks.","inputSchema":{"type":"object","properties":{"token":{"type":"string"}},"required":["token"]}}]}' ;;
    *'"method":"tools/call"'*)
      [[ $line =~ \"token\":\"([^\"]*)\" ]]
      asked=$((asked + 1))
      calls[ask-$asked]=$id
      tokens[ask-$asked]=${BASH_REMATCH[1]}
      printf '{"jsonrpc":"2.0","id":"ask-%s","method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{"sure":{"type":"boolean"}},"required":["sure"]}}}\n' "$asked"
      continue ;;
    *'"method":"ping"'*) result='{}' ;;
    # Of an older version: it does not know what it is asked, and says so.
    *'"method":"server/discover"'*)
      printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n' "$id"
      continue ;;
    *'"method"'*) continue ;;
    *)
      ask=${id//\"/}
      said=none
      [[ $line == *'"sure":true'* ]] && said=yes
      [[ $line == *'"sure":false'* ]] && said=no
      [[ -n ${tokens[$ask]} ]] || continue
      printf '%s\n' "$said" >> "$1/told-${tokens[$ask]}"
      id=${calls[$ask]}
      result='{"content":[{"type":"text","text":"'$said'"}]}' ;;
  esac
  [[ -n $id && -n $result ]] && printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// Writes the server, and a configuration that names it.
pub fn configured(home: &Path, work: &Path) -> PathBuf {
    let (script, config) = (home.join("asks.sh"), home.join("asks.toml"));
    std::fs::write(&script, SERVER).expect("written");
    let text = format!("[[mcp_servers]]\nname = 'asks'\ncommand = 'bash'\nargs = [{script:?}, {work:?}]\n");
    std::fs::write(&config, text).expect("written");
    config
}

/// A question that somebody is to answer.
#[derive(Debug, Clone)]
pub struct Question {
    pub request: String,
    of_a_tool: bool,
}

impl Question {
    /// None: the event is none.
    pub fn of(data: &str) -> Option<Self> {
        let kinds = ["permission.request", "client.request"];
        kinds.iter().find(|kind| data.contains(&format!("\"type\":\"{kind}\"")))?;
        let event: Value = serde_json::from_str(data).expect("JSON");
        let kind = event["type"].as_str().filter(|kind| kinds.contains(kind))?;
        let request = event["payload"]["requestId"].as_str().expect("an id").to_owned();
        Some(Self { request, of_a_tool: kind == "client.request" })
    }

    pub fn answer(&self, yes: bool) -> Value {
        match self.of_a_tool {
            true => json!({ "requestId": self.request, "value": yes }),
            false => json!({ "requestId": self.request, "allowed": yes }),
        }
    }
}

/// What an answer said.
pub fn said_yes(answer: &Value) -> bool {
    answer["allowed"] == true || answer["value"] == true
}

/// What the log says of a session's questions.
#[derive(Debug, Default)]
pub struct Questions {
    /// Those without an end, and their turns.
    open: BTreeMap<String, String>,
    /// How the others ended. None: without an answer.
    ended: BTreeMap<String, Option<bool>>,
    /// The same of tools' questions, by the tokens of their calls.
    told: BTreeMap<String, Option<bool>>,
}

impl Questions {
    /// Takes in the next event: each question is put once, and ends once, within its turn.
    pub fn judge(&mut self, event: &Value) {
        let (payload, turn) = (&event["payload"], event["turnId"].as_str().unwrap_or_default());
        let request = || payload["requestId"].as_str().expect("an id").to_owned();
        let kind = event["type"].as_str().expect("a type");
        match kind {
            "permission.request" | "client.request" => {
                assert!(!self.ended.contains_key(&request()), "{event}: asked after its end");
                assert_eq!(self.open.insert(request(), turn.to_owned()), None, "{event}: asked twice");
            }
            "permission.response" | "client.response" => {
                let asked = self.open.remove(&request());
                assert_eq!(asked.as_deref(), Some(turn), "{event}: answered twice, or nobody asked");
                let of_a_tool = kind == "client.response";
                let end = payload[if of_a_tool { "value" } else { "allowed" }].as_bool();
                assert!(!of_a_tool || (payload["cancelled"] == true) == end.is_none(), "{event}: either of both");
                if payload["reason"] == "interrupted by restart" {
                    assert!(payload["by"] == "abort" && end != Some(true), "{event}: nobody said so");
                }
                // A fork in the middle of a turn ends the question in its own log: its parent's tool may have been told.
                let cut = payload["reason"].as_str().is_some_and(|why| why.starts_with("the session was forked at"));
                let token = payload["callId"].as_str().and_then(|call| call.strip_prefix("call_"));
                if let (true, false, Some(token)) = (of_a_tool, cut, token) {
                    assert_eq!(self.told.insert(token.to_owned(), end), None, "{event}: its tool asked twice");
                }
                self.ended.insert(request(), end);
            }
            "session.completed" | "session.error" | "abort" => {
                let left = self.open.iter().find(|(_, of)| *of == turn);
                assert_eq!(left, None, "{event}: it is still asked and its turn is over");
            }
            _ => {}
        }
    }

    /// What was acknowledged holds, and nothing is asked that was asked before a restart that began at `begun`.
    pub fn hold(&self, id: &str, answers: &BTreeMap<String, bool>, turns: &BTreeMap<String, TurnLog>, begun: u64) {
        for (request, yes) in answers {
            assert_eq!(self.ended.get(request), Some(&Some(*yes)), "{id}: the answer to {request}");
        }
        for (request, turn) in &self.open {
            let began_at = turns.get(turn).map_or(0, |turn| turn.began_at);
            assert!(began_at >= begun, "{id}: {request} is open since before the restart");
        }
    }

    /// What a tool was told is what the log says, and it was told once.
    pub fn hold_told(&self, work: &Path) {
        for (token, end) in &self.told {
            let Ok(said) = std::fs::read_to_string(work.join(format!("told-{token}"))) else { continue };
            let want = match end {
                Some(true) => "yes\n",
                Some(false) => "no\n",
                None => "none\n",
            };
            assert!(said.is_empty() || said == want, "{token}: {said:?} was told, and the log says {want:?}");
        }
    }
}
