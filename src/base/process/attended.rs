//! A program that a person works with: on the terminal of this process, until it ends.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Runs the words of a setting such as `code --wait` with a file behind them, as git runs an editor: a shell reads the words, the
/// file stays one word. Blocks until it has ended, and answers with how the program itself has: Ctrl-C there reaches the shell as
/// well, which waits on.
///
/// # Errors
/// When there is no shell.
pub fn attended(words: &str, file: &Path) -> io::Result<ExitStatus> {
    Command::new("/bin/sh").arg("-c").arg(format!("trap : INT QUIT; {words} \"$@\"")).arg(words).arg(file).status()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_the_shells_and_the_file_is_one_word() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("a file");
        std::fs::write(&file, "one two").unwrap();
        assert!(attended("sed -i -e 's/one two/three/'", &file).unwrap().success());
        assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), "three");
        assert_eq!(attended("exit 3; true", &file).unwrap().code(), Some(3));
        // Somebody presses Ctrl-C, and the program lives on.
        let survives = "sh -c 'trap \"echo kept > \\\"$0\\\"\" INT; kill -INT $PPID; kill -INT $$; exit 0'";
        assert_eq!(attended(survives, &file).unwrap().code(), Some(0));
        assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), "kept");
        assert!(!attended("/nowhere/editor 2>/dev/null", &file).unwrap().success());
    }
}
