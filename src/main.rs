//! The `simse` program.

use std::process::ExitCode;

// Many sessions at once are many small pieces of memory made by one thread and given back by another. With the feature `node` the
// library has an allocator already, which does the same where it is not in a Node process.
#[cfg(not(feature = "node"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    simse::cli::main()
}
