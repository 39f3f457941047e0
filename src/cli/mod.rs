//! The command line: the outermost face of the program, and the only place that prints.

pub mod example_repository;
mod program;
