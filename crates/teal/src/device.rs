//! `teal device`, `teal where`: drives and what is on them, for people.

use crate::cli::{AffinityCommand, DeviceCommand};
use crate::control::{self, ControlAnswer, ControlRequest, DeviceLine, SourceLine, WhereLine};
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

/// How often somebody who waits for a drive to be let go hears how far that is.
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
            let (path, dir) = (drive_place(&path)?, paths::mount_point_for(dir)?);
            let profile = profile.unwrap_or_default();
            if !profile.is_empty() {
                profile::shipped_profile(&profile)?;
            }
            let stem = || {
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned())
            };
            let name = name
                .or_else(stem)
                .context("a drive needs a name: give one with --name")?;
            ask_mount(
                &dir,
                &ControlRequest::DeviceAdd {
                    path: path.clone(),
                    size,
                    name: name.clone(),
                    portable,
                    profile,
                    force,
                },
            )?;
            say!(
                "{name} is a drive of this volume now, in {}; it is attached",
                shown_path(&path)
            );
            say!(
                "before it is unplugged: teal device detach {}",
                shell_quoted(&name)
            );
        }
        DeviceCommand::Ls { json, dir } => {
            let ControlAnswer::Devices { devices, trouble } =
                ask_mount(&paths::mount_point_for(dir)?, &ControlRequest::DeviceLs)?
            else {
                bail!("the daemon's answer is about something else");
            };
            if json {
                say!("{}", serde_json::to_string_pretty(&devices)?);
            } else if devices.is_empty() {
                say!("no drives; `teal device add PATH --size SIZE` makes one");
            } else {
                devices.iter().for_each(show_drive);
            }
            if let Some(why) = trouble {
                print_notice(format_args!(
                    "only drives attached here are listed: the server cannot be asked for others ({})",
                    escape_control(&why)
                ));
            }
        }
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

/// Returns where a drive is, or is to be. Who is asked is told in JSON, which is text.
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

/// Something to say beside the output.
fn print_notice(text: std::fmt::Arguments<'_>) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Detaches a drive; while that takes long, says how far it is.
fn detach_drive(dir: &Path, name: &str, fast: bool) -> Result<()> {
    let (done, ended) = sync_channel(1);
    std::thread::scope(|scope| {
        let ask = ControlRequest::DeviceDetach {
            name: name.to_owned(),
            fast,
        };
        std::thread::Builder::new()
            .spawn_scoped(scope, move || drop(done.send(ask_mount(dir, &ask))))?;
        loop {
            match ended.recv_timeout(LOOK) {
                Ok(answer) => return answer.map(drop),
                Err(RecvTimeoutError::Timeout) => tell_progress(dir, name),
                Err(RecvTimeoutError::Disconnected) => bail!("nothing came of it"),
            }
        }
    })
}

/// Says on standard error what still waits to be copied to a drive.
fn tell_progress(dir: &Path, name: &str) {
    let Ok(ControlAnswer::Devices { devices, .. }) = ask_mount(dir, &ControlRequest::DeviceLs)
    else {
        return;
    };
    let is_it = |line: &&DeviceLine| line.name == name || line.place.as_deref() == Some(name);
    if let Some(line) = devices.iter().find(is_it) {
        let written = line
            .counts
            .iter()
            .find(|(known, _)| known == "written_bytes")
            .map_or(0, |(_, count)| *count);
        let (copied, waits) = (human_size(written), waiting_objects(line.queued));
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
            let so_far = |name| {
                line.counts
                    .iter()
                    .find(|(known, _)| known == name)
                    .map_or(0, |(_, count)| *count)
            };
            say!(
                "  {} read in {}, {} written",
                human_size(so_far("read_bytes")),
                count_noun(so_far("reads"), "read"),
                human_size(so_far("written_bytes"))
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
    line.superseded.iter().for_each(|words| say!("  {words}"));
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
            let ask = ControlRequest::AffinityLs {
                drive: drive.clone(),
            };
            if let ControlAnswer::Affinities { affinities } =
                ask_mount(&paths::mount_point_for(dir)?, &ask)?
            {
                let (mut short, mut missing) = (0, 0);
                for line in affinities {
                    short += u64::from(line.short);
                    missing += if line.short {
                        line.size.saturating_sub(line.bytes)
                    } else {
                        0
                    };
                    let sticky = if line.sticky {
                        ", and whatever comes into it"
                    } else {
                        ""
                    };
                    let of = if line.bytes < line.size {
                        format!(" of {}", human_size(line.size))
                    } else {
                        String::new()
                    };
                    say!(
                        "{:>10}{of}  {}{sticky}",
                        human_size(line.bytes),
                        escape_control(&line.path)
                    );
                }
                if short > 0 {
                    say!(
                        "{drive} is full: {short} files with affinity ({} of them) are not on it",
                        human_size(missing)
                    );
                }
            }
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
        // What is here, and what is only known to be elsewhere, is not weighed against anything.
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
