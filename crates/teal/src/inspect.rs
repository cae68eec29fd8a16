//! `teal check` and `teal dump`: looking at a store that is not mounted.

use crate::opening;
use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use teal_command::say::{say, shown_path};
use teal_device::Drive;
use teal_env::{FileDisk, OpenMode, SystemClock};
use teal_log::{
    CheckOptions, CheckPhase, CheckProgress, DumpWhat, OpenOptions, RawWhat, Severity, Store,
    dump_raw,
};
use teal_types::ObjectNo;

const DUMPS: &str =
    "superblock, anchors, log, segment:N, usage, imap, orphans, places, shared, object:N, dir:N";

fn open_disk(path: &Path) -> Result<FileDisk> {
    opening::open_disk(path, OpenMode::Read)
}

fn open_store(path: &Path) -> Result<Arc<Store>> {
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let opened = Store::open(Arc::new(open_disk(path)?), Arc::new(SystemClock), options);
    Ok(opened
        .with_context(|| format!("cannot open {}", path.display()))?
        .0)
}

/// Returns a bar for a command of several phases.
pub(crate) fn progress_bar() -> Result<ProgressBar> {
    let bar = ProgressBar::new(0);
    bar.set_style(
        ProgressStyle::with_template("{msg:9} [{bar:40}] {percent:>3}% {eta}")
            .context("the progress bar has no style")?,
    );
    Ok(bar)
}

/// Shows how far a command is. `phase`: the name of the phase, where it begins.
pub(crate) fn show_phase(
    bar: &ProgressBar,
    phase: Option<&'static str>,
    (done, total): (u64, u64),
) {
    if let Some(name) = phase {
        bar.set_message(name);
    }
    bar.set_length(total);
    bar.set_position(done);
}

/// Verifies a store. The exit status is 0 when it is clean, 1 otherwise.
pub(crate) fn check(path: &Path, quick: bool) -> Result<ExitCode> {
    // Opens read-only, because a check must not change what it judges.
    let store = open_store(path)?;
    let bar = progress_bar()?;
    let mut phase = None;
    let mut show_progress = |progress: CheckProgress| {
        let is_new = phase.replace(progress.phase) != Some(progress.phase);
        let name = is_new.then(|| phase_name(progress.phase));
        show_phase(&bar, name, (progress.done, progress.total));
    };
    let options = CheckOptions {
        verify_data: !quick,
    };
    let report = store.check(options, &mut show_progress);
    bar.finish_and_clear();
    for problem in &report.problems {
        say!("{problem}");
    }
    // The report keeps the first problems only, and counts the rest.
    let others = report.total.saturating_sub(report.problems.len() as u64);
    if others > 0 {
        say!("... and {others} more");
    }
    say!(
        "{}: {} objects, {} entries, {} extents, {} pages; {} in use, {} of content verified",
        path.display(),
        report.objects,
        report.entries,
        report.extents,
        report.pages,
        teal_command::size::human_size(report.live),
        teal_command::size::human_size(report.verified),
    );
    if report.is_clean() {
        match quick {
            true => say!("the structures of the store are clean; no content was read (--quick)"),
            false => say!("the store is clean"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut problems = report.problems.iter();
    // Only problems of this severity mean that content is lost.
    let is_damaged = problems.any(|problem| problem.severity == Severity::Damage);
    let consequence = match (is_damaged, Drive::is_drive(&store)) {
        (true, true) => {
            "; this is a drive: nothing is lost, what is damaged is read elsewhere and copied to \
             it again"
        }
        (true, false) => {
            "; the files named above have lost data: restore them. `teal repair` makes a clean \
             store of everything else"
        }
        (false, _) => "; `teal repair` makes a clean store of what is there",
    };
    let count = teal_command::say::count_noun(report.total, "problem");
    say!("{count}{consequence}");
    Ok(ExitCode::FAILURE)
}

fn phase_name(phase: CheckPhase) -> &'static str {
    match phase {
        CheckPhase::Fixed => "anchors",
        CheckPhase::Objects => "objects",
        CheckPhase::Names => "names",
        CheckPhase::Space => "space",
    }
}

fn parse_number(text: &str, what: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        anyhow!(
            "'{what}' names nothing: a whole number follows the colon, \
            such as segment:0 or object:1"
        )
    })
}

/// Shows the inside of a store.
pub(crate) fn dump(path: &Path, what: &str) -> Result<ExitCode> {
    // The word before the colon names a structure, the number behind it says which one.
    let (name, argument) = what.split_once(':').unwrap_or((what, ""));
    let what = match name {
        "superblock" => DumpWhat::Raw(RawWhat::Superblock),
        "anchors" => DumpWhat::Raw(RawWhat::Anchors),
        "log" => DumpWhat::Raw(RawWhat::Chain),
        "segment" => {
            let segment = u32::try_from(parse_number(argument, what)?)
                .context("a segment's number has 32 bits")?;
            DumpWhat::Raw(RawWhat::Segment(segment))
        }
        "usage" => DumpWhat::Usage,
        "imap" => DumpWhat::InodeMap,
        "orphans" => DumpWhat::Orphans,
        "notes" => DumpWhat::Notes,
        "places" => DumpWhat::Places,
        "shared" => DumpWhat::Shared,
        "object" => DumpWhat::Inode(ObjectNo::new(parse_number(argument, what)?)),
        "dir" => DumpWhat::Directory(ObjectNo::new(parse_number(argument, what)?)),
        _ => bail!("there is no '{what}' to dump; choose one of {DUMPS}"),
    };
    // A dump writes many short lines, so they are buffered.
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let done = match what {
        // A raw dump reads the disk itself, so that it works on a store that cannot be opened.
        DumpWhat::Raw(raw) => dump_raw(&open_disk(path)?, raw, &mut out),
        what => open_store(path)?.dump(what, &mut out),
    };
    match done.and_then(|()| out.flush()) {
        // The reader of a pipe has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
        done => done.with_context(|| format!("cannot show this of {}", shown_path(path)))?,
    }
    Ok(ExitCode::SUCCESS)
}
