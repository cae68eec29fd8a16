//! The words that people are told: never that something is safe, done or there if it is not, and
//! never a step half done.

mod commands;
mod places;
mod room;
mod safe;
mod served;
mod values;

use super::support::ProgramOutput;
use std::path::Path;

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
