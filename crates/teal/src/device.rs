//! `teal device`, `teal where`: drives and what is on them, for people.

use crate::cli::{AffinityCommand, DeviceCommand};
use crate::control::{
    self, ControlAnswer, ControlRequest, DeviceLine, SourceLine, WhereLine, count_of,
};
use crate::mounts::{no_daemon_error, object_at};
use crate::status::waiting_objects;
use anyhow::{Context, Result, bail};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use teal_command::paths;
use teal_command::profile;
use teal_command::say::{count_noun, escape_control, say, shell_quoted, shown_path};
use teal_command::size::human_size;

/// The time between two reports of progress while a drive is being detached.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn ask_mount(dir: &Path, ask: &ControlRequest) -> Result<ControlAnswer> {
    control::ask(dir, ask)?.ok_or_else(|| no_daemon_error(dir))
}

/// Runs `teal device`.
pub(crate) fn run_device(what: DeviceCommand) -> Result<ExitCode> {
    match what {
        DeviceCommand::Add {
            path,
            size,
            name,
            profile,
            portable,
            force,
            dir,
        } => {
            // The daemon runs in another directory, so paths are made absolute here.
            let path = drive_place(&path)?;
            let dir = paths::mount_point_for(dir)?;
            let request = ControlRequest::DeviceAdd {
                name: drive_name(name, &path)?,
                path,
                size,
                portable,
                profile: profile.unwrap_or_default(),
                force,
            };
            add_drive(&dir, &request)?;
        }
        DeviceCommand::Ls { json, dir } => list_drives(&paths::mount_point_for(dir)?, json)?,
        DeviceCommand::Attach { path, dir } => {
            let path = drive_place(&path)?;
            match ask_mount(
                &paths::mount_point_for(dir)?,
                &ControlRequest::DeviceAttach { path: path.clone() },
            )? {
                ControlAnswer::Already { already } => {
                    say!("{} is attached already", escape_control(&already))
                }
                _ => say!("the drive in {} is attached", shown_path(&path)),
            }
        }
        DeviceCommand::Detach { name, fast, dir } => {
            detach_drive(&paths::mount_point_for(dir)?, &name_or_place(&name)?, fast)?;
            say!("{} is detached; it may be unplugged", escape_control(&name));
        }
        DeviceCommand::Rm { name, dir } => {
            ask_mount(
                &paths::mount_point_for(dir)?,
                &ControlRequest::DeviceRm { name: name.clone() },
            )?;
            say!(
                "{} is no drive of this volume any more; its file is left where it is",
                escape_control(&name)
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the name of a new drive: the one that was given, or that of its file.
fn drive_name(given: Option<String>, path: &Path) -> Result<String> {
    if let Some(name) = given {
        return Ok(name);
    }
    // Only a path such as `/` has no file name.
    let stem = path
        .file_stem()
        .context("a drive needs a name: give one with --name")?;
    Ok(stem.to_string_lossy().into_owned())
}

/// Has the daemon make a drive, and says what to do before it is unplugged.
fn add_drive(dir: &Path, request: &ControlRequest) -> Result<()> {
    let ControlRequest::DeviceAdd {
        path,
        name,
        profile,
        ..
    } = request
    else {
        unreachable!("called with a request for a new drive");
    };
    // A misspelt profile is refused before the daemon is asked to make anything.
    if !profile.is_empty() {
        profile::shipped_profile(profile)?;
    }
    ask_mount(dir, request)?;
    let place = shown_path(path);
    say!("{name} is a drive of this volume now, in {place}; it is attached");
    let quoted = shell_quoted(name);
    say!("before you unplug it, run: teal device detach {quoted}");
    Ok(())
}

/// Lists the drives of the volume on `dir`.
fn list_drives(dir: &Path, json: bool) -> Result<()> {
    let answer = ask_mount(dir, &ControlRequest::DeviceLs)?;
    let ControlAnswer::Devices { devices, trouble } = answer else {
        bail!("the daemon's answer is about something else");
    };
    // The list is printed first: it is of use without the server, too.
    if json {
        say!("{}", serde_json::to_string_pretty(&devices)?);
    } else if devices.is_empty() {
        say!("this volume has no drives; `teal device add PATH --size SIZE` makes one");
    } else {
        devices.iter().for_each(show_drive);
    }
    if let Some(why) = trouble {
        let why = escape_control(&why);
        print_notice(format_args!(
            "only drives attached here are listed: the server cannot be asked for others ({why})"
        ));
    }
    Ok(())
}

/// Returns the absolute path of a drive. Control messages are JSON, so the path must be text.
fn drive_place(path: &Path) -> Result<PathBuf> {
    let path = paths::absolute_path(path)?;
    if path.to_str().is_none() {
        bail!(
            "{} is no text (UTF-8): give it another name",
            path.as_os_str().as_encoded_bytes().escape_ascii()
        );
    }
    Ok(path)
}

/// Prints a notice on standard error, beside the output.
fn print_notice(text: std::fmt::Arguments<'_>) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Detaches a drive; while that takes long, says how far it is.
fn detach_drive(dir: &Path, name: &str, fast: bool) -> Result<()> {
    // The channel has room for the answer, so that the thread never blocks on sending it.
    let (done, ended) = sync_channel(1);
    std::thread::scope(|scope| {
        let ask = ControlRequest::DeviceDetach {
            name: name.to_owned(),
            fast,
        };
        // A thread waits for the answer, so that this one can show progress meanwhile.
        std::thread::Builder::new()
            .spawn_scoped(scope, move || drop(done.send(ask_mount(dir, &ask))))?;
        loop {
            match ended.recv_timeout(LOOK) {
                Ok(answer) => return answer.map(drop),
                Err(RecvTimeoutError::Timeout) => tell_progress(dir, name),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the thread that asked the daemon ended without an answer")
                }
            }
        }
    })
}

/// Says on standard error what still waits to be copied to a drive.
fn tell_progress(dir: &Path, name: &str) {
    // A failure to show progress is not worth an error.
    let Ok(ControlAnswer::Devices { devices, .. }) = ask_mount(dir, &ControlRequest::DeviceLs)
    else {
        return;
    };
    let is_it = |line: &&DeviceLine| line.name == name || line.place.as_deref() == Some(name);
    if let Some(line) = devices.iter().find(is_it) {
        let written = count_of(&line.counts, "written_bytes");
        let (copied, waits) = (human_size(written), waiting_objects(line.queued));
        // Drives hold content as the server has it, so changes that only this machine has go to the
        // server first.
        let first = match ask_mount(dir, &ControlRequest::Status) {
            Ok(ControlAnswer::Status(status)) => {
                status.upstream.map_or(0, |upstream| upstream.only_here)
            }
            _ => 0,
        };
        let first = if first == 0 {
            String::new()
        } else {
            format!("; {first} are to be at the server first")
        };
        print_notice(format_args!(
            "{}: {waits} to be copied, {copied} are{first}",
            escape_control(&line.name)
        ));
    }
}

/// Drives are called by their names or by where they are.
fn name_or_place(name: &str) -> Result<String> {
    // A name has no slash, so a text with one is a path.
    if !name.contains('/') {
        return Ok(name.to_owned());
    }
    Ok(paths::absolute_path(Path::new(name))?
        .to_string_lossy()
        .into_owned())
}

fn show_drive(line: &DeviceLine) {
    let name = escape_control(&line.name);
    let kind = if line.portable {
        "portable"
    } else {
        "stays here"
    };
    match (&line.place, &line.attached_to) {
        (Some(place), _) => {
            let used = line
                .total_bytes
                .saturating_sub(line.free_bytes.unwrap_or(0));
            let late = if line.late {
                "; it does not answer"
            } else {
                ""
            };
            say!("{name}  in {}, {kind}{late}", escape_control(place));
            say!(
                "  {} of {} used by {}; as of commit {}",
                human_size(used),
                human_size(line.total_bytes),
                count_noun(line.objects.unwrap_or(0), "object"),
                line.position.unwrap_or(0)
            );
            say!(
                "  {} read in {}, {} written",
                human_size(count_of(&line.counts, "read_bytes")),
                count_noun(count_of(&line.counts, "reads"), "read"),
                human_size(count_of(&line.counts, "written_bytes"))
            );
            if line.queued > 0 {
                say!("  {} to be copied to it", waiting_objects(line.queued));
            }
            if line.short > 0 {
                let missing = human_size(line.short_bytes);
                say!(
                    "  it is full: {} files with affinity ({missing} of them) are not on it",
                    line.short
                );
            }
        }
        (None, Some(machine)) => say!(
            "{name}  attached to {}, {kind}, {}",
            escape_control(machine),
            human_size(line.bytes)
        ),
        (None, None) => say!("{name}  not attached, {kind}, {}", human_size(line.bytes)),
    }
    if let Some(words) = &line.superseded {
        say!("  {words}");
    }
}

/// Lists what is always kept on a drive, and how much of that has found no room.
fn list_affinities(dir: &Path, drive: &str) -> Result<()> {
    let ask = ControlRequest::AffinityLs {
        drive: drive.to_owned(),
    };
    let ControlAnswer::Affinities { affinities } = ask_mount(dir, &ask)? else {
        return Ok(());
    };
    let (mut short, mut missing) = (0, 0);
    for line in affinities {
        if line.short {
            short += 1;
            // A file that found no room may be there in part.
            missing += line.size.saturating_sub(line.bytes);
        }
        let sticky = match line.sticky {
            true => ", and whatever comes into it",
            false => "",
        };
        // The drive may have only a part of it yet.
        let of = match line.bytes < line.size {
            true => format!(" of {}", human_size(line.size)),
            false => String::new(),
        };
        let bytes = human_size(line.bytes);
        say!("{bytes:>10}{of}  {}{sticky}", escape_control(&line.path));
    }
    if short > 0 {
        let missing = human_size(missing);
        say!("{drive} is full: {short} files with affinity ({missing} of them) are not on it");
    }
    Ok(())
}

/// Runs `teal affinity`.
pub(crate) fn run_affinity(what: AffinityCommand) -> Result<ExitCode> {
    match what {
        AffinityCommand::Add {
            path,
            drive,
            sticky,
        } => {
            let (dir, meta) = object_at(&path)?;
            // Only a directory can pass an affinity on.
            if sticky && !meta.is_dir() {
                bail!(
                    "{} is no directory: nothing comes into it, so leave --sticky out",
                    shown_path(&path)
                );
            }
            let ask = ControlRequest::AffinityAdd {
                object: meta.ino(),
                drive: drive.clone(),
                sticky,
            };
            if let ControlAnswer::Marked { files, bytes } = ask_mount(&dir, &ask)? {
                let (are, they) = if files == 1 {
                    ("is", "it is on its way")
                } else {
                    ("are", "they are on their way")
                };
                say!(
                    "{} ({}) {are} always on {}; {they} to it",
                    count_noun(files, "file"),
                    human_size(bytes),
                    escape_control(&drive)
                );
            }
        }
        AffinityCommand::Ls { drive, dir } => {
            list_affinities(&paths::mount_point_for(dir)?, &drive)?;
        }
        AffinityCommand::Rm { path, drive } => {
            let (dir, meta) = object_at(&path)?;
            ask_mount(
                &dir,
                &ControlRequest::AffinityRm {
                    object: meta.ino(),
                    drive: drive.clone(),
                },
            )?;
            say!(
                "{} makes way on {} when something else is used more",
                shown_path(&path),
                escape_control(&drive)
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `teal where`.
pub(crate) fn show_whereabouts(path: &Path, json: bool) -> Result<ExitCode> {
    let (dir, meta) = object_at(path)?;
    // Links and special files have no content of their own.
    if !meta.is_file() && !meta.is_dir() {
        bail!(
            "{} is neither a file nor a directory: only content has a place",
            shown_path(path)
        );
    }
    let ControlAnswer::Where { whereabouts } =
        ask_mount(&dir, &ControlRequest::Where { object: meta.ino() })?
    else {
        bail!("the daemon's answer is about something else");
    };
    if json {
        say!("{}", serde_json::to_string_pretty(&whereabouts)?);
    } else {
        show_where(&whereabouts);
    }
    Ok(ExitCode::SUCCESS)
}

fn show_where(found: &WhereLine) {
    say!(
        "{} ({})",
        escape_control(&found.path),
        human_size(found.size)
    );
    if let Some(pinned) = &found.pinned {
        say!("  always here: {} is pinned", escape_control(pinned));
    }
    for source in &found.sources {
        let version = source
            .version
            .map_or_else(String::new, |seq| format!(" of commit {seq}"));
        say!(
            "  {:<16} {}{version}{}: {}",
            escape_control(&source.name),
            human_size(source.bytes),
            predicted_cost(source),
            source.why
        );
    }
}

/// Returns what reading a block from there costs, as predicted.
fn predicted_cost(source: &SourceLine) -> String {
    let (Some(micros), Some(joules)) = (source.microseconds, source.microjoules) else {
        // The home log, and places that are only known to exist, have no cost that is weighed.
        let is_weighed = !["home log", "elsewhere"].contains(&source.name.as_str());
        return if is_weighed {
            ", not measured yet".to_owned()
        } else {
            String::new()
        };
    };
    let how = if source.is_measured == Some(true) {
        "measured"
    } else {
        "modelled"
    };
    format!(
        ", {:.1} ms ({how}), {:.1} mJ (modelled)",
        micros as f64 / 1e3,
        joules as f64 / 1e3
    )
}
