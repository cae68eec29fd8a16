//! A workload from a trace: what programs did becomes a script in Filebench's language that does
//! the like.
//!
//! # How
//! 1. Events become *visits* (`visits`): what one thread does with one file, from its opening to
//!    its closing; where a file stays open for long, or nothing tells of openings, from when the
//!    thread turns to it until it turns to another, or for 16 calls at random places.
//! 2. Files become *sets* (`sets`): those below one directory at the top of what was recorded.
//!    Files that are read and written at random places, and single files that are visited much more
//!    often than their neighbours, have sets apart from them.
//! 3. Threads that last and do alike are a *role* (`roles`): those that read, say, and those that
//!    write. Where threads come and go, all have one.
//! 4. Visits that do the same kinds of things to files of the same set, in the same order, are one
//!    *shape* (`shapes`). The threads of a role do its shapes in turn: the commonest once in a
//!    round, the others with the probability that makes them as frequent as they were met.
//! 5. Roles become threads. After each round of the first it lets the others go on by as much as
//!    they did meanwhile, and waits when it is too far ahead: roles keep their parts of the work,
//!    however fast each could be. The shapes become composite flowops (`script`), distributions
//!    random variables (`table`).
//!
//! # What is preserved
//! The share of each kind of operation, sizes of calls and how many a visit has, bytes read and
//! written; number, sizes and directories of the files at the beginning, how many come and go; how
//! visits are spread over the files, if some are visited again and again; how many threads there
//! are at a time, and which of up to four roles they have; visits a second.
//!
//! # What is lost
//! The differences between threads of a role and the order of their files are lost. So are the
//! dependence of sizes of calls on each other, bursts and pauses. Renames, links, attributes and
//! truncation are lost, because the language has no words for them: the script counts them in its
//! first lines. Shapes with less than a thousandth of visits and of calls are left out.

mod roles;
mod script;
mod sets;
mod shapes;
mod survey;
mod table;
mod visits;

use std::collections::BTreeMap;
use teal_trace::TraceItem;

pub use survey::TreeSurvey;

/// Names a thing that a program does with a file, in the words of the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum VisitStep {
    Create,
    ReadWhole,
    Read,
    ReadRandom,
    Append,
    Write,
    WriteRandom,
    Fsync,
    Stat,
    Delete,
    List,
    MakeDir,
    RemoveDir,
}

/// A workload, characterised.
#[derive(Debug)]
pub struct CharacterisedWorkload {
    /// The script.
    pub script: String,
    /// Counts the visits that the script's shapes stand for, and all.
    pub visits: [u64; 2],
    /// Threads at a time.
    pub threads: u64,
    /// Counts the operations that the language has no words for, by the word of the trace.
    pub lost: BTreeMap<&'static str, u64>,
    /// Is true when the trace tells of openings, and so of all that programs asked. Otherwise it
    /// tells only what the page cache did not answer.
    pub is_whole: bool,
}

/// Says why a trace gives no workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CharacteriseError {
    /// No file was used in the recording.
    #[error("nothing was done in the time of the recording that a workload could be made of")]
    Idle,
}

/// Characterises the file operations that the items of a trace tell. `survey` holds the files that
/// were there before, if they are known.
///
/// # Errors
/// See [`CharacteriseError`].
pub fn characterise_trace(
    items: impl IntoIterator<Item = TraceItem>,
    survey: &TreeSurvey,
    about: &str,
) -> Result<CharacterisedWorkload, CharacteriseError> {
    let mut watched = visits::VisitTracker::new(survey);
    // The trace is read once; everything after works on what was found.
    items
        .into_iter()
        .for_each(|item| watched.follow_item(&item));
    let seen = watched.finish();
    if seen.visits.is_empty() {
        return Err(CharacteriseError::Idle);
    }
    let sets = sets::group_files(&seen, survey);
    // Roles without threads or without shapes that are frequent enough say nothing about the
    // workload.
    let doing = |role: roles::ThreadRole| {
        (
            role.threads,
            shapes::find_shapes(&seen, &sets, &role.visits),
        )
    };
    let mut roles: Vec<_> = roles::assign_roles(&seen, &sets)
        .into_iter()
        .map(doing)
        .collect();
    roles.retain(|(threads, shapes)| *threads > 0 && !shapes.is_empty());
    // The caller compares the kept visits with all: the difference is what the script leaves out.
    let kept = roles
        .iter()
        .flat_map(|(_, shapes)| shapes)
        .map(|shape| shape.count)
        .sum();
    let script = script::write_script(&seen, &sets, &roles, about);
    Ok(CharacterisedWorkload {
        script,
        visits: [kept, seen.visits.len() as u64],
        threads: seen.threads,
        lost: seen.lost,
        is_whole: seen.tells_openings,
    })
}

#[cfg(test)]
mod tests;
