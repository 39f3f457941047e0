//! `simse token`: the named tokens of a data directory. stdout carries the token, or the list, and nothing else.

use std::path::Path;

use secrecy::ExposeSecret as _;

use super::arguments::{Token, TokenCommand};
use super::{Exit, screen};
use crate::base::clock;
use crate::config::data_directory;
use crate::config::tokens::{self, NewToken, SessionsOf, Tokens, TokensError};
use crate::config::{Launch, Options};
use crate::protocol::TokenName;

/// Does it.
pub(super) fn run(arguments: Token) -> Exit {
    let options = Options { data_dir: arguments.data_dir, ..Options::default() };
    let launch = match Launch::resolve(options, arguments.config, Options::default()) {
        Ok(launch) => launch,
        Err(error) => {
            screen::problem(error);
            return Exit::Usage;
        }
    };
    match done(&launch.data_directory, arguments.command) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            screen::problem(&error);
            match error {
                TokensError::Data(_) => Exit::CannotStart,
                TokensError::SeesNothing => Exit::Usage,
                TokensError::Taken(_) | TokensError::Used(_) | TokensError::Missing(_) => Exit::Failed,
                TokensError::Full | TokensError::NamesUsedUp | TokensError::Unseen { .. } => Exit::Failed,
            }
        }
    }
}

fn done(directory: &Path, command: TokenCommand) -> Result<(), TokensError> {
    match command {
        TokenCommand::Create { name, role, sessions_of } => {
            data_directory::prepare(directory)?;
            let new = NewToken { name: name.clone(), role, sessions_of: sessions_of.map(SessionsOf::from) };
            let token = tokens::create(directory, new)?;
            // One that nobody has seen is none.
            if let Err(cause) = screen::print(&format!("{}\n", token.expose_secret())) {
                tokens::take_back(directory, &name)?;
                return Err(TokensError::Unseen { name, cause });
            }
            screen::note(&format!("token {name}, {role}: it is shown this once, and only its hash is kept"));
            Ok(())
        }
        TokenCommand::List => {
            list(directory, &Tokens::read(&tokens::tokens_file(directory))?);
            Ok(())
        }
        TokenCommand::Revoke { name } => {
            if name == TokenName::owner() {
                let file = data_directory::token_file(directory);
                screen::note(&format!("the owner's token is the file {}: delete it, then start anew", file.display()));
            }
            tokens::revoke(directory, &name)?;
            screen::note(&format!("token {name} is revoked"));
            Ok(())
        }
    }
}

/// One line each, the owner's first; then those whose names were used.
fn list(directory: &Path, tokens: &Tokens) {
    let owner = data_directory::token_file(directory);
    if owner.exists() {
        screen::line(&format!("{}\towner\t-\t{}", TokenName::owner(), owner.display()));
    }
    for entry in tokens.entries() {
        let sees = entry.sessions_of.clone().map_or_else(|| "-".to_owned(), String::from);
        let made = clock::text_of_ms(entry.created_at);
        screen::line(&format!("{}\t{}\t{sees}\t{made}", entry.name, entry.role));
    }
    for gone in tokens.revoked() {
        screen::line(&format!("{}\trevoked\t-\t{}", gone.name, clock::text_of_ms(gone.revoked_at)));
    }
}
