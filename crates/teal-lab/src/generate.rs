//! Implements `teal lab generate`: traces with the totals that papers published.

use crate::cli::GenerateArgs;
use anyhow::{Context, Result, bail};
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use teal_command::profile::nearest_name;
use teal_command::say::say;
use teal_study::stream::{GapModel, PUBLISHED, PublishedTotals};

/// Runs the command.
pub(crate) fn run_generate(args: &GenerateArgs) -> Result<ExitCode> {
    let names = PUBLISHED.iter().map(|known| known.name);
    let Some(published) = PublishedTotals::by_name(&args.name) else {
        match nearest_name(&args.name, names.clone()) {
            Some(known) => bail!("there is no stream {}; did you mean {known}?", args.name),
            None => bail!(
                "there is no stream {}; there are {}",
                args.name,
                names.collect::<Vec<_>>().join(", ")
            ),
        }
    };
    // The model of pauses is not published, so it is named.
    let gaps: GapModel = args.gaps.parse()?;
    // An existing file is not overwritten.
    let out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&args.out);
    let out = BufWriter::new(out.with_context(|| args.out.display().to_string())?);
    let written = published
        .write_trace(gaps, args.seed, out)
        .map_err(anyhow::Error::new);
    let flushed = written.and_then(|mut out| Ok(out.flush()?));
    // A part of a trace would look like a whole one.
    if flushed.is_err() {
        let _ = std::fs::remove_file(&args.out);
    }
    flushed.with_context(|| args.out.display().to_string())?;
    say!(
        "{}: {} events over {}, {}",
        args.out.display(),
        published.operations,
        published.length,
        published.source
    );
    Ok(ExitCode::SUCCESS)
}
