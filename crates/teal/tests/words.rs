//! The words that people are told: never that something is safe, done or there if it is not, and
//! never a step half done.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

#[path = "words/commands.rs"]
mod commands;
#[path = "words/places.rs"]
mod places;
#[path = "words/room.rs"]
mod room;
#[path = "words/safe.rs"]
mod safe;
#[path = "words/served.rs"]
mod served;
#[path = "words/values.rs"]
mod values;

use std::path::Path;
use support::ProgramOutput;

/// The refusal names what it is about and the reason or the way out; what it says.
#[track_caller]
fn says(said: ProgramOutput, words: &[&str]) -> String {
    let line = said.expect_refusal();
    assert!(line.starts_with("teal: "), "{line}");
    for word in words {
        assert!(line.contains(word), "{word:?} is not in: {line}");
    }
    line
}

fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}
