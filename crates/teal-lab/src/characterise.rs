//! Writes a trace as a script, in a new file.

use crate::trace::{open_trace, say_ending};
use anyhow::{Context, Result, bail};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use teal_command::say::say;
use teal_study::characterise::{TreeSurvey, characterise_trace};
use teal_trace::{Level, TraceItem};

/// Refuses to overwrite an existing file, before anything is recorded.
pub(crate) fn check_new_file(wml: &Path) -> Result<()> {
    if wml.exists() {
        bail!(
            "{} exists; a workload is written into a new file",
            wml.display()
        );
    }
    Ok(())
}

/// Writes the workload of a trace.
pub(crate) fn write_workload(
    trace: &Path,
    survey: &TreeSurvey,
    wml: &Path,
    about: &str,
) -> Result<()> {
    check_new_file(wml)?;
    let mut reader = open_trace(trace)?;
    if reader.header().level != Level::File {
        bail!(
            "{} is a trace of a device; a workload is made of what programs asked of files",
            trace.display()
        );
    }
    // The iterator cannot return an error, so the first one is kept and told after it.
    let mut failed = None;
    let items = std::iter::from_fn(|| match reader.next()? {
        Ok(item) => Some::<TraceItem>(item),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let found = characterise_trace(items, survey, about);
    if let Some(error) = failed {
        return Err(error).with_context(|| trace.display().to_string());
    }
    say_ending(trace, reader.ending());
    let found = found.with_context(|| trace.display().to_string())?;
    let file = OpenOptions::new().write(true).create_new(true).open(wml);
    file.and_then(|mut file| file.write_all(found.script.as_bytes()))
        .with_context(|| wml.display().to_string())?;
    let [kept, all] = found.visits;
    say!(
        "{}: {kept} of {all} visits to files, by {} threads at a time",
        wml.display(),
        found.threads
    );
    if !found.is_whole {
        say!(
            "no file was opened or closed that was seen: but for a mount with -o observed, what \
             the page cache answered is not in it"
        );
    }
    // The language of workloads has no word for some actions.
    if !found.lost.is_empty() {
        let lost: Vec<_> = found
            .lost
            .iter()
            .map(|(word, count)| format!("{word} {count}"))
            .collect();
        say!("not in it, for want of words: {}", lost.join(", "));
    }
    Ok(())
}
