//! `teal repair`: a whole store from a damaged one.
//!
//! # Guarantees
//! 1. The damaged store is not written. In place means: a whole one, made beside it, takes its name
//!    by one rename, and the damaged one stays as `PATH.damaged`.
//! 2. Nothing is written before all that is lost was shown, and a person has agreed or `--yes` was
//!    given.
//! 3. A file that is being made is called `PATH.repairing`. It gets its name when it is finished
//!    and `check` has found it clean. A repair that was cut short goes on where it was.

use crate::cli::RepairArgs;
use crate::inspect::{progress_bar, show_phase};
use crate::{mkfs, opening};
use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags};
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use teal_command::paths;
use teal_command::say::{count_noun, say, shown_path};
use teal_command::size::human_size;
use teal_device::Drive;
use teal_env::{Disk, FileDisk, OpenMode, SystemClock, SystemEntropy};
use teal_log::{
    CheckOptions, MkfsOptions, OpenOptions, RepairError, RepairFindings, RepairPhase,
    RepairProgress, RepairSurvey, Store, UNFINISHED,
};
use teal_types::{Name, ObjectNo, SECTOR};

/// Losses that are shown; all of them are in the report in `lost+found`.
const SHOWN_MAX: usize = 100;

/// The place of the repaired store.
#[derive(Debug)]
enum RepairTarget {
    /// The file of the damaged store.
    InPlace,
    /// A new file.
    File(PathBuf),
    /// A block device.
    Device(PathBuf),
}

/// Runs the command.
pub(crate) fn repair_store(args: &RepairArgs) -> Result<ExitCode> {
    let path = paths::absolute_path(&args.path)?;
    let target = RepairTarget::choose(&path, args)?;
    // In place, no other program may have the store, not even for reading.
    let mode = match target {
        RepairTarget::InPlace => OpenMode::Write,
        RepairTarget::File(_) | RepairTarget::Device(_) => OpenMode::Read,
    };
    let disk: Arc<FileDisk> = Arc::new(opening::open_disk(&path, mode)?);
    if is_clean(&disk) {
        say!("{} is clean: there is nothing to repair", shown_path(&path));
        return Ok(ExitCode::SUCCESS);
    }
    if matches!(target, RepairTarget::InPlace) {
        check_second_name(&path)?;
    }
    // Everything is read once now, and once more when it is copied.
    let survey = survey_disk(&disk).with_context(|| format!("cannot repair {}", path.display()))?;
    if Drive::is_drive(survey.store()) {
        bail!(
            "{} is a drive: nothing is lost. Attach it, and what is damaged is read elsewhere and \
             copied to it again",
            path.display()
        );
    }
    show_findings(&path, survey.findings());
    if survey.findings().has_server && !survey.findings().is_whole() {
        return Err(RepairError::HasServer.into());
    }
    if !args.yes && !is_confirmed(&path, args)? {
        bail!("nothing was written");
    }
    let size = args.size.unwrap_or(disk.shape().sectors * SECTOR);
    write_repaired(&path, &target, (size, args.force), &survey)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the repaired store, and gives it its name. `file_size`: the size of a new file.
fn write_repaired(
    path: &Path,
    target: &RepairTarget,
    (file_size, force): (u64, bool),
    survey: &RepairSurvey,
) -> Result<()> {
    let (place, size) = match target {
        RepairTarget::InPlace => (with_suffix(path, ".repairing"), Some(file_size)),
        RepairTarget::File(dest) => (with_suffix(dest, ".repairing"), Some(file_size)),
        RepairTarget::Device(dest) => (dest.clone(), None),
    };
    // A file gets its name only when it is finished.
    let new = open_new(&place, size, force, survey)?;
    copy_all(survey, &new, &place)?;
    match target {
        RepairTarget::InPlace => put_in_place(path, &place)?,
        RepairTarget::File(dest) => {
            name_repaired(&place, dest)?;
            say!("the repaired store is in {}; it is clean", dest.display());
        }
        RepairTarget::Device(dest) => {
            say!("the repaired store is on {}; it is clean", dest.display());
        }
    }
    if survey.findings().has_server && !matches!(target, RepairTarget::InPlace) {
        let beside = with_suffix(path, ".d");
        say!(
            "{} belongs to the store and stays where it is: put it beside the repaired store, with \
             its name and `.d`, before that is mounted",
            shown_path(&beside)
        );
    }
    Ok(())
}

/// Gives the finished store at `place` the name `dest`, which nothing may have got meanwhile.
fn name_repaired(place: &Path, dest: &Path) -> Result<()> {
    rustix::fs::renameat_with(CWD, place, CWD, dest, RenameFlags::NOREPLACE)
        .map_err(std::io::Error::from)
        .and_then(|()| sync_directory_of(dest))
        .with_context(|| {
            format!(
                "the repaired store is finished and clean, but cannot get the name {}: rename {} \
                 yourself",
                dest.display(),
                place.display()
            )
        })
}

impl RepairTarget {
    fn choose(path: &Path, args: &RepairArgs) -> Result<Self> {
        let is_device = |path: &Path| {
            std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
        };
        match &args.to {
            None if is_device(path) => bail!(
                "{} is a device, and the repaired store is a new one: say where it goes with \
                 --to, another device or a file, which can be copied over this one afterwards",
                path.display()
            ),
            None => Ok(Self::InPlace),
            Some(dest) => {
                let dest = paths::absolute_path(dest)?;
                if dest == path {
                    bail!("--to names the damaged store itself; leave it away to repair in place");
                }
                if is_device(&dest) {
                    return Ok(Self::Device(dest));
                }
                if std::fs::symlink_metadata(&dest).is_ok() {
                    bail!("{} exists already; choose another name", dest.display());
                }
                Ok(Self::File(dest))
            }
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn check_everything(store: &Store) -> bool {
    let options = CheckOptions { verify_data: true };
    store.check(options, &mut |_| {}).is_clean()
}

/// Returns whether the store opens and `check` finds nothing.
fn is_clean(disk: &Arc<FileDisk>) -> bool {
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    Store::open(disk.clone(), Arc::new(SystemClock), options)
        .is_ok_and(|(store, _)| check_everything(&store))
}

fn survey_disk(disk: &Arc<FileDisk>) -> Result<RepairSurvey> {
    let bar = progress_bar()?;
    let mut phase = None;
    let survey = RepairSurvey::open(disk.clone(), Arc::new(SystemClock), &mut |progress| {
        show_progress(&bar, &mut phase, progress);
    });
    bar.finish_and_clear();
    Ok(survey?)
}

fn show_progress(
    bar: &indicatif::ProgressBar,
    phase: &mut Option<RepairPhase>,
    progress: RepairProgress,
) {
    let name = match progress.phase {
        RepairPhase::Objects => "objects",
        RepairPhase::Records => "records",
        RepairPhase::Content => "content",
        RepairPhase::Copy => "copying",
    };
    let is_new = phase.replace(progress.phase) != Some(progress.phase);
    show_phase(bar, is_new.then_some(name), (progress.done, progress.total));
}

fn show_findings(path: &Path, findings: &RepairFindings) {
    // The worst come first; names may hold anything.
    for loss in findings.losses.iter().take(SHOWN_MAX) {
        say!("{}", teal_command::say::escape_control(&loss.to_string()));
    }
    let others = findings.total.saturating_sub(SHOWN_MAX as u64);
    if others > 0 {
        say!("... and {others} more, which the report in lost+found will name");
    }
    if findings.unknown > 0 {
        let objects = count_noun(findings.unknown, "object");
        say!("of {objects} nothing was found, not even a name");
    }
    if findings.log_losses > 0 {
        let places = count_noun(findings.log_losses, "place");
        say!(
            "records of the log are lost at {places}: what they changed is as it was before, and \
             what only they deleted or renamed may be there under its old name"
        );
    }
    say!(
        "{}: {} and {} can be put back whole, {} of content",
        shown_path(path),
        count_noun(findings.files, "file"),
        match findings.directories {
            1 => "1 directory".to_owned(),
            many => format!("{many} directories"),
        },
        human_size(findings.bytes),
    );
    if findings.total > 0 {
        let things = count_noun(findings.total, "thing");
        say!("{things} cannot be put back whole in their places; nothing was written so far");
    }
}

/// Asks the person at the terminal.
fn is_confirmed(path: &Path, args: &RepairArgs) -> Result<bool> {
    let stdin = std::io::stdin();
    // A script has to say that it means it.
    if !stdin.is_terminal() {
        bail!("nothing was written, and there is no terminal to ask: say it again with --yes");
    }
    match &args.to {
        Some(dest) => say!("write the repaired store to {}? [y/N]", shown_path(dest)),
        None => say!(
            "put the repaired store in the place of {}? The damaged one stays beside it [y/N]",
            shown_path(path)
        ),
    }
    let mut line = String::new();
    stdin
        .read_line(&mut line)
        .context("your answer cannot be read")?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Returns the store to write to: an unfinished one, or a new one. `file_size`: the size of a new
/// file; a device has its own.
fn open_new(
    place: &Path,
    file_size: Option<u64>,
    force: bool,
    survey: &RepairSurvey,
) -> Result<Arc<Store>> {
    let found = found_at(place)?;
    let is_file = found.as_ref().is_some_and(std::fs::Metadata::is_file);
    // A link would take the name of the store in place of what it leads to.
    if found.is_some() && !force && (is_file || file_size.is_none()) && is_unfinished(place)? {
        say!("going on with {}", shown_path(place));
        let disk = Arc::new(opening::open_disk(place, OpenMode::Write)?);
        return Ok(Store::open(disk, Arc::new(SystemClock), OpenOptions::default())?.0);
    }
    let disk = match file_size {
        Some(size) => {
            if found.is_some() {
                // It may be anything, a finished repair too.
                if !force {
                    bail!(
                        "{} exists already, and is no unfinished repair: move it away, or let it \
                         be overwritten with --force",
                        place.display()
                    );
                }
                std::fs::remove_file(place).with_context(|| place.display().to_string())?;
            }
            FileDisk::open(place, OpenMode::Create(size))?
        }
        None => mkfs::open_target_disk(place, None, force)?.0,
    };
    let disk = Arc::new(disk);
    let options = MkfsOptions {
        label: survey.store().superblock().label.clone(),
        ..MkfsOptions::default()
    };
    Store::mkfs(
        disk.clone(),
        Arc::new(SystemClock),
        &SystemEntropy,
        &options,
    )
    .with_context(|| format!("cannot make a store in {}", place.display()))?;
    Ok(Store::open(disk, Arc::new(SystemClock), OpenOptions::default())?.0)
}

/// Returns what has this name, a link included.
fn found_at(path: &Path) -> Result<Option<std::fs::Metadata>> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Returns whether a repair was begun at `place`. Writes nothing.
fn is_unfinished(place: &Path) -> Result<bool> {
    let disk = Arc::new(opening::open_disk(place, OpenMode::Read)?);
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let Ok((store, _)) = Store::open(disk, Arc::new(SystemClock), options) else {
        return Ok(false);
    };
    let name = Name::new(UNFINISHED.as_bytes())?;
    if store
        .lookup(ObjectNo::ROOT, &name)
        .is_ok_and(|mark| mark.is_some())
    {
        return Ok(true);
    }
    // One that was killed at once has made the store and nothing in it yet.
    let mut is_empty = true;
    let seen = store.each_entry(ObjectNo::ROOT, 0, &mut |_, _, _, _| {
        is_empty = false;
        ControlFlow::Break(())
    });
    Ok(is_empty && seen.is_ok() && place.is_file())
}

fn copy_all(survey: &RepairSurvey, new: &Store, place: &Path) -> Result<()> {
    let bar = progress_bar()?;
    let mut phase = None;
    let done = survey.copy_to(new, &mut |progress| {
        show_progress(&bar, &mut phase, progress);
    });
    bar.finish_and_clear();
    done.and_then(|()| Ok(new.close()?)).with_context(|| {
        format!(
            "{} is not finished; when the cause is gone, the same command goes on with it",
            place.display()
        )
    })?;
    // The proof that nothing was copied wrongly.
    if !check_everything(new) {
        bail!(
            "the copy in {} is not clean: see `teal check`. The damaged store is as it was",
            place.display()
        );
    }
    Ok(())
}

/// Says whether the damaged store has its second name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecondName {
    Missing,
    Given,
}

fn damaged_name(path: &Path) -> PathBuf {
    with_suffix(path, ".damaged")
}

/// Checks that no other file has the name that the damaged store gets.
fn check_second_name(path: &Path) -> Result<SecondName> {
    let damaged = damaged_name(path);
    // A link to the damaged store is no second name: the rename would take its only one.
    let Some(found) = found_at(&damaged)? else {
        return Ok(SecondName::Missing);
    };
    let identity = |meta: &std::fs::Metadata| (meta.dev(), meta.ino());
    // An attempt that was cut short has made it.
    if found_at(path)?.is_some_and(|own| identity(&own) == identity(&found)) {
        return Ok(SecondName::Given);
    }
    bail!(
        "{} exists already: move it away first, since the damaged store gets this name",
        damaged.display()
    )
}

/// Lets the repaired store take the name of the damaged one.
fn put_in_place(path: &Path, repaired: &Path) -> Result<()> {
    let of_path = std::fs::metadata(path)?;
    // The same users may open it.
    std::fs::set_permissions(repaired, of_path.permissions())?;
    std::os::unix::fs::chown(repaired, Some(of_path.uid()), Some(of_path.gid()))?;
    let damaged = damaged_name(path);
    if check_second_name(path)? == SecondName::Missing {
        std::fs::hard_link(path, &damaged).with_context(|| {
            format!(
                "{} cannot get the second name {}; repair it with --to",
                path.display(),
                damaged.display()
            )
        })?;
    }
    std::fs::rename(repaired, path)
        .and_then(|()| sync_directory_of(path))
        .with_context(|| format!("cannot put {} in its place", repaired.display()))?;
    say!(
        "the repaired store is in {}; it is clean. The damaged one is {}: remove it when nothing \
         is missing",
        shown_path(path),
        shown_path(&damaged)
    );
    Ok(())
}

fn sync_directory_of(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    std::fs::OpenOptions::new()
        .read(true)
        .open(parent)?
        .sync_all()
}
