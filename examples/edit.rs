//! Edits and patches as pure functions: text in, text out, and never a wrong place.
//!
//! `cargo run --example edit`

#![allow(clippy::print_stdout, reason = "an example says what it does")]

use std::error::Error;

use simse::edit::patch::{apply, parse};
use simse::edit::{edit, unified_diff};

const CODE: &str = "fn main() {\n    let total = add(1, 2);\n    println!(\"{total}\");\n}\n";

fn main() -> Result<(), Box<dyn Error>> {
    // Quoted without its indentation, the line is found all the same, and what replaces it is indented as it was.
    let edited = edit(CODE, "let total = add(1,  2);", "let total = add(1, 2)\n    .max(10);", false)?;
    println!("found by {}, in line {}", edited.strategy.name(), edited.changes[0].line);
    print!("{}", unified_diff("src/main.rs", Some(CODE), &edited.text, 10_000).text);

    // What is not there, or there twice, is refused with what helps to say it better.
    let refused = edit("a = 1\nb = 1\n", "= 1", "= 2", false).map_err(|error| error.to_string());
    println!("{}", refused.expect_err("it stands there twice"));

    let patch = parse(
        "*** Begin Patch\n*** Update File: src/main.rs\n@@ fn main() {\n-    println!(\"{total}\");\n+    print(total);\n*** End Patch",
    )?;
    for file in &patch.files {
        let patched = apply(&edited.text, &file.chunks, patch.form)?;
        println!("{}: {}", file.path, patched.text.lines().nth(3).unwrap_or_default().trim());
    }
    Ok(())
}

// Prints:
// found by whitespace-normalized, in line 2
// --- a/src/main.rs
// +++ b/src/main.rs
// @@ -1,4 +1,5 @@
//  fn main() {
// -    let total = add(1, 2);
// +    let total = add(1, 2)
// +        .max(10);
//      println!("{total}");
//  }
// old_string is ambiguous: it matches 2 places in the file, at lines 1, 2. Add surrounding lines until it matches one, or set replace_all to change them all
// src/main.rs: print(total);
