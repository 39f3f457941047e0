//! The `simse` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    simse::cli::main()
}
