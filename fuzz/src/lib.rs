//! The sources of simse that the fuzz targets look at, under the names that they have in the crate.
//!
//! Not a copy: each module is the file that ships. The rest of the crate (servers, stores, providers) is left out, so
//! that a build with coverage takes a minute, and so that what is private can be looked at without being made public.

// The properties name the crate as everybody does.
extern crate self as simse;

#[path = "../../src/base"]
pub mod base {
    //! The outside world, as far as the targets need it.
    pub mod beneath;
    pub mod ear;
    pub mod file;
    pub mod glob;
    pub mod image;
    pub mod limit;
    pub mod own_directory;
    pub mod place;
    pub mod proof;
    pub mod secrets;
    pub mod show;
    pub mod sse;
    pub mod text;
    pub mod workspace;

    /// A future, as traits give it out.
    pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

    pub mod clock {
        //! What time it is counts nowhere here.

        /// Milliseconds since 1970.
        pub fn now_ms() -> u64 {
            0
        }

        /// The same by the clock of this machine.
        pub fn machine_ms() -> u64 {
            0
        }
    }

    pub mod trace {
        //! Of traces only where in one a request stands.

        mod context;

        pub use context::{BadContext, TraceContext};

        /// Where spans go.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs, reason = "filled and never read here")]
        pub struct Collector {
            pub endpoint: String,
            pub headers: Vec<(String, secret::Text)>,
            pub resource: Vec<(String, String)>,
        }

        pub mod secret {
            //! What is not shown.

            /// A text.
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct Text(pub String);
        }
    }

    pub mod sandbox {
        //! Of the sandbox only what a setting says.

        /// How far programs may go.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[allow(missing_docs, reason = "they say what they are")]
        pub enum Mode {
            ReadOnly,
            WorkspaceWrite,
            #[default]
            Off,
        }

        impl std::fmt::Display for Mode {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    Self::ReadOnly => "read-only",
                    Self::WorkspaceWrite => "workspace-write",
                    Self::Off => "off",
                })
            }
        }
    }

    pub mod process {
        //! Of programs only what their variables are called.

        /// Whether a name is a credential's is not asked here.
        pub fn is_secret_name(_: &str) -> bool {
            false
        }

        /// Nor whether a value is.
        pub fn is_secret_value(_: &str) -> bool {
            false
        }
    }

    pub mod http {
        //! Of the way to other servers only how it fails.

        /// Why a request failed.
        #[derive(Debug, thiserror::Error)]
        #[error("{self:?}")]
        #[allow(missing_docs, reason = "named by whoever reads them, and made by nobody here")]
        pub enum HttpError {
            BadUrl(String),
            BadHeader(String),
            Setup(String),
            Connect { host: String },
            Cut { host: String },
            Silent { host: String },
        }

        /// Whether an address is one is not asked here.
        pub fn check_url(_: &str) -> Result<(), HttpError> {
            Ok(())
        }

        /// Nor what of it may be shown.
        pub fn shown_address(_: &str) -> String {
            String::new()
        }

        /// Nor what of it is secret.
        pub fn secrets_of_address(_: &str) -> Vec<String> {
            Vec::new()
        }

        /// Nor what looks like a key.
        pub fn is_key(_: &str) -> bool {
            false
        }

        /// Nor whether headers are.
        pub fn header_pairs(_: &std::collections::BTreeMap<String, String>) -> Result<(), HttpError> {
            Ok(())
        }
    }
}

#[path = "../../src/app"]
pub mod app {
    //! From texts to what they ask for.

    mod bounds;
    mod parse;

    pub use bounds::{any_setting, narrow};
    pub use command::*;
    pub use parse::parse_json;

    /// Where a reader of all sessions begins.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Begin {
        /// Behind this place.
        Behind(u64),
        /// With what comes next.
        Newest,
    }

    macro_rules! answers {
        ($($name:ident),*) => { $(
            /// An answer, whose form does not count here.
            #[derive(schemars::JsonSchema)]
            pub struct $name;
        )* };
    }
    answers!(Accepted, Aborted, Interrupted, Paused, Resolved, Resumed);

    pub mod command {
        //! Commands, before anybody runs them.

        mod fields;
        mod fingerprint;
        mod kinds;
        mod parse;
        mod sharing;

        #[path = "../../../fuzz/src/inside/commands.rs"]
        pub mod inside;

        pub use kinds::{KINDS, Kind, Names};
        pub use parse::{ANONYMOUS, Command, Message, Operation, Request, Subscribe, Unread};
    }
}

#[path = "../../src/store"]
pub mod store {
    //! What commands are remembered by, and what sessions are.

    pub mod chain;
    pub mod inspect;
    mod outcome;
    mod rows;
    mod said;

    pub use outcome::{Fingerprint, OutcomeRow};
    pub use rows::{Came, Grant, GrantRow, GrantSubject, SessionRow, SessionSettings, SharedPlaces, Steers, TurnRow};
    pub use said::{Apart, Said, Waiting, settings_bytes, shown};
}

#[path = "../../src/config/mod.rs"]
pub mod config;
#[path = "inside/settings.rs"]
pub mod settings;

#[path = "../../src/session"]
pub mod session {
    //! Sessions, as files have them.

    mod grammar;
    mod granted;
    mod places;
    mod settings;
    mod tally;
    mod views;

    mod manager {
        //! How an event is made.

        use crate::protocol::{Event, EventBody, SessionId, TurnId};

        /// An event, whose time does not count here.
        pub(super) fn event_of(session: &SessionId, seq: u64, turn: Option<&TurnId>, body: &EventBody) -> Event {
            let (kind, payload) = body.encode();
            Event { seq, kind: kind.into(), payload, session_id: session.clone(), turn_id: turn.cloned(), at: 0 }
        }
    }

    pub mod transfer {
        //! A file of a session, before any store sees it.

        mod line;
        mod reading;

        #[path = "../../../fuzz/src/inside/transfer.rs"]
        pub mod inside;
    }
}

#[path = "../../src/server"]
pub mod server {
    //! Requests, before anybody knows what they ask for.

    mod framing;
    mod headers;
    mod lines;
    mod query;

    #[path = "../../fuzz/src/inside/wire.rs"]
    pub mod inside;
}

#[path = "../../src/provider"]
pub mod provider {
    //! What models answer.

    pub mod acp {
        //! What the programs of agents say.

        mod wire;

        #[path = "../../../fuzz/src/inside/agents.rs"]
        pub mod inside;
    }

    mod wire {
        //! What all wires have in common, as far as answers are read.

        mod alike;
        mod assemble;
        mod calls;
        mod failure;
        mod figures;
        mod overflow;
        mod words;

        pub(super) use alike::Alike;
        pub(super) use assemble::{Assemble, Length, State, size};
        pub(super) use calls::{arguments_or_none, call_of};
        pub(super) use failure::{Redactor, cut_short, from_object, from_status};
        pub(super) use figures::{amount, count, lenient};
        pub(super) use words::{Shared, Text, Words};
    }

    mod responses {
        //! What an endpoint streams that speaks Responses.

        mod assemble;

        pub(super) use assemble::Assembler;

        /// The wire's name.
        const NAME: &str = "openai-responses";
    }

    mod anthropic {
        //! What an endpoint streams that speaks Messages.

        mod assemble;

        pub(super) use assemble::Assembler;

        /// The wire's name.
        const NAME: &str = "anthropic-messages";
    }

    mod gemini {
        //! What an endpoint streams that speaks generateContent.

        mod assemble;

        pub(super) use assemble::Assembler;

        /// The wire's name.
        const NAME: &str = "gemini";
    }

    pub mod openai {
        //! What an OpenAI-compatible endpoint streams.

        mod assemble;
        mod own;

        /// The wire's name.
        const NAME: &str = "openai-chat";

        #[path = "../../../fuzz/src/inside/answers.rs"]
        pub mod inside;
    }
}

#[path = "../../src/mcp"]
pub mod mcp {
    //! What comes out of the programs of tool servers.

    mod pipe;

    #[path = "../../fuzz/src/inside/servers.rs"]
    pub mod inside;
}

#[path = "../../src/context/mod.rs"]
pub mod context;
#[path = "../../src/model/mod.rs"]
pub mod model;

#[path = "../../src/edit/mod.rs"]
pub mod edit;
#[path = "../../src/permission/mod.rs"]
pub mod permission;
#[path = "../../src/protocol/mod.rs"]
pub mod protocol;

pub mod tool {
    //! What the search's globs name of the tools.

    /// Why a tool failed.
    #[derive(Debug)]
    pub enum ToolError {
        /// Its arguments are not what its definition asks for.
        BadArguments(String),
    }
}

#[path = "../../src/host"]
pub mod host {
    //! The globs of the search tools, which are private in the crate.

    mod search {
        pub(super) mod choice;

        mod entries {
            //! Of the walk's own entries only this.
            use std::ffi::OsStr;
            use std::os::unix::ffi::OsStrExt;
            use std::path::Path;

            /// Bytes as a path.
            pub(in crate::host) fn as_path(bytes: &[u8]) -> &Path {
                Path::new(OsStr::from_bytes(bytes))
            }
        }
    }

    /// The choice of some globs. None: one of them is no glob.
    pub struct Choice(search::choice::FileChoice);

    impl Choice {
        /// Prepares it.
        pub fn new(globs: &[String]) -> Option<Self> {
            search::choice::FileChoice::new("glob", globs).ok().map(Self)
        }

        /// Whether the file at `path` counts.
        pub fn takes(&mut self, path: &str) -> bool {
            self.0.takes(path.as_bytes())
        }

        /// Whether anything below the directory at `path` can count.
        pub fn enters(&self, path: &str) -> bool {
            self.0.enters(path.as_bytes())
        }
    }

    /// See `names_hidden` in the search.
    pub fn names_hidden(glob: &str) -> bool {
        search::choice::names_hidden(glob)
    }
}

pub mod properties;
