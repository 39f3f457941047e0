//! The `simse` program.

use std::process::ExitCode;

// Many sessions at once are many small pieces of memory made by one thread and given back by another. The addon keeps to
// the allocator of the Node process that it lives in.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    simse::cli::main()
}
