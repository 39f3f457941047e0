//! The commands and their arguments; the settings among them stand in `config`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::reach::{Reach, There};
use crate::config::{Options, StoreAddress};
use crate::protocol::{ClientId, SessionId, TokenName, TokenRole};

const EXIT_CODES: &str = "Exit codes:
  0  it went well
  1  the job failed, a check found something wrong, or a stop could not save everything
  2  the arguments, the environment or the configuration file are wrong
  3  the server cannot start or be reached: the port, the data directory, the address
  4  the turn was stopped before it was done: by somebody, a limit or a budget
  128 and the signal's number: ended at once by a second signal

Every setting has one name in three spellings, such as --max-iterations, the variable
SIMSE_MAX_ITERATIONS, and max_iterations in the configuration file (TOML). Flags win over variables,
variables over the file.";

/// A headless coding-agent server: sessions, tools and permissions over HTTP, with a live stream of events.
#[derive(Debug, Parser)]
#[command(name = "simse", version, after_help = EXIT_CODES, max_term_width = 110, args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    /// Without one: work with an agent in this terminal
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Work in this terminal; what is meant where no command is named.
    #[command(skip)]
    Here(Box<Reach>),
    /// Work in this terminal with an agent of the server at an address: http(s)://HOST:PORT or unix:SOCKET
    ///
    /// The token is that of SIMSE_TOKEN or --token-file, else the data directory's, which only its own server is shown.
    #[command(after_help = EXIT_CODES)]
    Attach(Attach),
    /// Run one prompt to its end, for scripts: the result on stdout, all about it on stderr
    ///
    /// What is piped to it stands behind the prompt, or is the prompt where none is named. Calls that would be asked about are refused
    /// where nobody is at the terminal; --yes or --permission-mode allow them.
    #[command(after_help = EXIT_CODES)]
    Run(Box<Run>),
    /// Talk line by line, without an interface
    #[command(after_help = EXIT_CODES)]
    Chat(Box<Chat>),
    /// List the sessions of a data directory, the newest first, also while a server runs
    #[command(after_help = EXIT_CODES)]
    Sessions(Sessions),
    /// Say whether all is here that simse needs: settings, data directory, programs, sandbox, models, agents
    #[command(after_help = EXIT_CODES)]
    Doctor(Place),
    /// Print what makes a shell complete this program's commands and flags
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Serve until stopped
    ///
    /// Listens on 127.0.0.1:4100 and answers programs that bring the token (see the file `token` in the data
    /// directory). Ctrl-C or SIGTERM stops it: running turns get some seconds to finish, everything is stored.
    #[command(after_help = EXIT_CODES)]
    Serve(Serve),
    /// Be the agent of an editor, over stdin and stdout (Agent Client Protocol)
    ///
    /// For Zed and other editors that start agents. The sessions are those of the data directory.
    /// Where no --root is named, the editor may open sessions in any directory.
    #[command(after_help = EXIT_CODES)]
    Acp(Acp),
    /// Serve the program that started it as an MCP server, over stdin and stdout; no port is opened
    ///
    /// Its tools are those of a session in the current directory (or --cwd), under the permission rules; what is to be asked is put
    /// to the MCP client as a form (elicitation). Without --data-dir it takes the first free data directory of its own for that
    /// directory, so that several can run at once. It ends in order with the end of its input.
    /// With --attach it is no server: what the client does lands in the sessions of one that runs.
    #[command(after_help = EXIT_CODES)]
    Mcp(Mcp),
    /// Show a whole job: a session on a small repository with a failing test, or on a directory of yours
    ///
    /// Without --prompt it makes a small git repository with a failing test in a temporary directory, and an
    /// agent finds the fault, corrects it, runs the tests and commits, before your eyes. Then the server stays
    /// up until Ctrl-C. Without a model (OPENAI_API_KEY, OPENAI_BASE_URL, --model) a built-in script drives it.
    #[command(after_help = EXIT_CODES)]
    Start(Start),
    /// Make, list and revoke the named tokens of a data directory
    ///
    /// Beside the owner's token (the file `token` in the data directory) clients can have tokens of their own: each
    /// has its own sessions, sees nobody else's, and may do what its role allows. A server that runs needs no restart.
    Token(Token),
    /// Look at the configuration: its schema, what is wrong with it, what is in force
    #[command(after_help = EXIT_CODES)]
    Config(Config),
    /// Check a data directory: the database, the events and their chain, and all that is made of them
    ///
    /// Only reads, also while a server runs. Says a line for each thing that is wrong and one with the sum.
    /// Exit code 0: nothing is wrong; 1: something is; 3: the directory could not be looked at.
    #[command(after_help = EXIT_CODES)]
    Check(Check),
    /// Write a session to a file (JSONL), also while a server runs
    #[command(after_help = EXIT_CODES)]
    Export(Export),
    /// Put a session from a file into a data directory that no server has, and print its id
    ///
    /// The file is believed in nothing: lines, numbers, the events' chain and the views are checked, and what does not
    /// hold is refused with its line and field.
    #[command(after_help = EXIT_CODES)]
    Import(Import),
    /// Move all sessions between SQLite and PostgreSQL, and sum up what one of them has
    #[command(after_help = EXIT_CODES)]
    Store(Store),
    /// List the servers that share a database, the newest first, and how much each has to do
    #[command(after_help = EXIT_CODES)]
    Nodes(Nodes),
    /// Hand the sessions of the running server over to the other servers of its database
    ///
    /// From then on it takes none. What runs goes on to the end of its turn, and is waited for.
    /// Exit code 0: nothing is left, or it is not waited for; 1: something is left at the end of --wait.
    #[command(after_help = EXIT_CODES)]
    Drain(Drain),
    /// Log in at an MCP server of the configuration that wants it (OAuth), with a browser on this machine
    ///
    /// Prints the address to open and waits until the browser comes back. What comes of it is kept in the data directory,
    /// for its owner alone, and renewed from there. A server that runs needs no restart.
    #[command(after_help = EXIT_CODES)]
    McpLogin(McpLogin),
    /// Say yes to the `.mcp.json` of a project, so that sessions that work there may start its servers
    ///
    /// The yes is to the content as it is now: a file that changes is asked about again.
    #[command(after_help = EXIT_CODES)]
    Trust(Trust),
    /// Join an agent's tool client to the server that runs the agent; agents start it themselves
    #[command(hide = true)]
    Bridge,
    /// Print the OpenAPI document of the server's routes, events and commands
    ///
    /// The same as a server's GET /openapi.json; it takes none to print it.
    #[command(after_help = EXIT_CODES)]
    Openapi,
}

/// Which data directory is meant.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Place {
    /// Configuration file [default: ~/.config/simse/config.toml, when it is there]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The data directory [default: ~/.local/share/simse]
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
}

/// `simse store`.
#[derive(Debug, clap::Args)]
pub(super) struct Store {
    #[command(subcommand)]
    pub(super) verb: StoreVerb,
}

/// What to do with stores.
#[derive(Debug, Subcommand)]
pub(super) enum StoreVerb {
    /// Copy everything into an empty store, while no server has either of them
    ///
    /// Each log is followed by its hash chain on the way; what is damaged is named and nothing is copied. Before the copy can be seen it is
    /// read back and held against what was read. Prints how much it was, and the hash of all of it.
    Copy(StoreCopy),
    /// Print how much a store has, and the hash of all of it, while no server has it
    Sum(StoreSum),
}

/// `simse store copy`.
#[derive(Debug, clap::Args)]
pub(super) struct StoreCopy {
    /// Where it comes from: sqlite (in the data directory) or postgres://…
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    pub(super) from: StoreAddress,
    /// Where it goes to
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    pub(super) to: StoreAddress,
    #[command(flatten)]
    pub(super) place: Place,
}

/// `simse store sum`.
#[derive(Debug, clap::Args)]
pub(super) struct StoreSum {
    /// The store: sqlite (in the data directory) or postgres://…
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    pub(super) of: StoreAddress,
    #[command(flatten)]
    pub(super) place: Place,
}

/// `simse attach`.
#[derive(Debug, clap::Args)]
pub(super) struct Attach {
    /// The server's address
    pub(super) url: String,
    /// A file that has the token, for its owner alone
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Go on with the newest session of the working directory [default: a new one]
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    pub(super) go_on: bool,
    /// Go on with this session
    #[arg(short, long, value_name = "ID")]
    pub(super) session: Option<SessionId>,
}

impl Attach {
    /// The same as the flags of a command that reaches a server say it.
    pub(super) fn reach(self) -> Reach {
        let (token_file, go_on, session) = (self.token_file, self.go_on, self.session);
        Reach { attach: Some(self.url), token_file, go_on, session, ..Reach::default() }
    }
}

/// `simse run`.
#[derive(Debug, clap::Args)]
pub(super) struct Run {
    /// The prompt; `-`: standard input
    pub(super) prompt: Vec<String>,
    /// Print the events, one JSON object a line, as the server sends them, instead of the result
    #[arg(long)]
    pub(super) json: bool,
    /// Allow every tool call that would be asked about
    #[arg(short, long)]
    pub(super) yes: bool,
    /// Have the answer be data that fits the JSON Schema in this file
    #[arg(long, value_name = "FILE")]
    pub(super) schema: Option<PathBuf>,
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// `simse chat`.
#[derive(Debug, clap::Args)]
pub(super) struct Chat {
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// `simse sessions`.
#[derive(Debug, clap::Args)]
pub(super) struct Sessions {
    /// So many at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(super) limit: usize,
    /// Print each as the server tells of it, one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) place: Place,
}

/// `simse nodes`.
#[derive(Debug, clap::Args)]
pub(super) struct Nodes {
    /// Print each as the server tells of it, one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) there: There,
}

/// `simse drain`.
#[derive(Debug, clap::Args)]
pub(super) struct Drain {
    /// Wait so many seconds for what runs; 0: not at all
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(super) wait: u32,
    #[command(flatten)]
    pub(super) there: There,
}

/// `simse mcp-login`.
#[derive(Debug, clap::Args)]
pub(super) struct McpLogin {
    /// The server's name in the configuration
    pub(super) name: String,
    #[command(flatten)]
    pub(super) place: Place,
}

/// `simse trust`.
#[derive(Debug, clap::Args)]
pub(super) struct Trust {
    /// A directory of the project [default: the working directory]
    pub(super) project: Option<PathBuf>,
    /// Take the yes back
    #[arg(long)]
    pub(super) revoke: bool,
    /// Show what is trusted: file and hash of its content
    #[arg(long, conflicts_with_all = ["project", "revoke"])]
    pub(super) list: bool,
    #[command(flatten)]
    pub(super) place: Place,
}

/// `simse check`.
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// Print each session with the number of its last event and the head of its chain, to be kept elsewhere
    #[arg(long)]
    pub(super) heads: bool,
    #[command(flatten)]
    pub(super) place: Place,
}

/// `simse export`.
#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// The session
    pub(super) session: SessionId,
    /// Where to write it [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) place: Place,
}

/// `simse import`.
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// A file that `simse export` has written
    pub(super) file: PathBuf,
    /// Give it a new id
    #[arg(long)]
    pub(super) new_id: bool,
    /// Give it to this client [default: to whom it belonged]
    #[arg(long, value_name = "ID")]
    pub(super) client: Option<ClientId>,
    /// Give it to everyone without a client id
    #[arg(long, conflicts_with = "client")]
    pub(super) no_client: bool,
    #[command(flatten)]
    pub(super) place: Place,
}

/// `simse token`.
#[derive(Debug, clap::Args)]
pub(super) struct Token {
    #[command(subcommand)]
    pub(super) command: TokenCommand,
    /// Configuration file [default: ~/.config/simse/config.toml, when it is there]
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) config: Option<PathBuf>,
    /// The data directory [default: ~/.local/share/simse]
    #[arg(long, value_name = "DIR", global = true)]
    pub(super) data_dir: Option<PathBuf>,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token and print it: the only time that it is shown
    Create {
        /// Its name, by which it is listed and revoked
        name: TokenName,
        /// read-only (looks), operator (works with sessions) or owner (whatever the server can be asked)
        #[arg(long)]
        role: TokenRole,
        /// See the sessions of this token instead of own ones; `owner` is that of the file `token`
        #[arg(long, value_name = "NAME")]
        sessions_of: Option<String>,
    },
    /// List the tokens: name, role, whose sessions they see, when they were made
    List,
    /// Take a token away: what it has opened ends within a second
    Revoke {
        /// Its name
        name: String,
    },
}

/// `simse config`.
#[derive(Debug, clap::Args)]
pub(super) struct Config {
    #[command(subcommand)]
    pub(super) command: ConfigCommand,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Say all that is wrong with the configuration file and the variables, one line each
    ///
    /// Nothing is started. Exit code 0: nothing is wrong; 2: something is.
    Check {
        /// The file [default: as `simse serve` finds it]
        file: Option<PathBuf>,
    },
    /// Print every setting that is in force, and where it comes from; secrets are hidden
    Show {
        /// Configuration file [default: ~/.config/simse/config.toml, when it is there]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// `simse serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Serve {
    /// Serve the program that started it, over stdin and stdout, one JSON object a line; no port is opened
    #[arg(long, conflicts_with_all = ["port", "host", "allow_public", "no_auth", "port_file"])]
    pub(super) stdio: bool,
    /// Show what the conformance suite of MCP looks for
    #[arg(long, hide = true)]
    pub(super) mcp_fixtures: bool,
    /// Configuration file [default: ~/.config/simse/config.toml, when it is there]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: Options,
}

/// `simse mcp`.
#[derive(Debug, clap::Args)]
pub(super) struct Mcp {
    /// Lead the client on to a server that runs, at http(s)://HOST:PORT or unix:SOCKET, instead of being one
    ///
    /// Without an address: the server of the data directory. The token is that of SIMSE_MCP_TOKEN or --token-file, else the data
    /// directory's, which only its own server is shown. Sessions, tools and settings are the server's.
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "")]
    pub(super) attach: Option<String>,
    /// With --attach: the session that the client's calls run in [default: one of its own]
    #[arg(long, value_name = "ID", requires = "attach")]
    pub(super) session: Option<SessionId>,
    /// With --attach: a file that has the token, for its owner alone
    #[arg(long, value_name = "FILE", requires = "attach")]
    pub(super) token_file: Option<PathBuf>,
    /// Show what the conformance suite of MCP looks for
    #[arg(long, hide = true)]
    pub(super) mcp_fixtures: bool,
    /// Configuration file [default: ~/.config/simse/config.toml, when it is there]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: Options,
}

/// `simse acp`.
#[derive(Debug, clap::Args)]
pub(super) struct Acp {
    /// Configuration file [default: ~/.config/simse/config.toml, when it is there]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: Options,
}

/// `simse start`.
#[derive(Debug, clap::Args)]
pub(super) struct Start {
    /// Run this prompt in --cwd (default: the current directory) instead of the example
    #[arg(long, value_name = "TEXT")]
    pub(super) prompt: Option<String>,
    /// End after the job; the exit code tells how it went
    #[arg(long)]
    pub(super) once: bool,
    /// Allow every tool call that would be asked about
    #[arg(long)]
    pub(super) yes: bool,
    /// Shell command that decides, after the prompt, whether the job succeeded
    #[arg(long, value_name = "COMMAND", requires = "prompt")]
    pub(super) check: Option<String>,
    /// Configuration file [default: ~/.config/simse/config.toml, when it is there]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: Options,
}
