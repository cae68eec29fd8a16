//! `teal device`, `teal where`: drives and what is on them, for people.

use crate::cli::{Affinity, Device};
use crate::control::{self, Answer, Ask, DeviceLine, SourceLine, WhereLine};
use crate::mounts::{nothing_on, object_at};
use crate::status::waiting;
use anyhow::{Context, Result, bail};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use teal_command::paths;
use teal_command::profile;
use teal_command::say::{count, plain, quoted, say, shown};
use teal_command::size::human;

/// How often somebody who waits for a drive to be let go hears how far that is.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn asked(dir: &Path, ask: &Ask) -> Result<Answer> {
    control::ask(dir, ask)?.ok_or_else(|| nothing_on(dir))
}

/// Runs `teal device`.
pub(crate) fn device(what: Device) -> Result<ExitCode> {
    match what {
        Device::Add {
            path,
            size,
            name,
            profile,
            portable,
            force,
            dir,
        } => {
            let (path, dir) = (place(&path)?, paths::point(dir)?);
            let profile = profile.unwrap_or_default();
            if !profile.is_empty() {
                profile::shipped(&profile)?;
            }
            let stem = || {
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned())
            };
            let name = name
                .or_else(stem)
                .context("a drive needs a name: give one with --name")?;
            asked(
                &dir,
                &Ask::DeviceAdd {
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
                shown(&path)
            );
            say!(
                "before it is unplugged: teal device detach {}",
                quoted(&name)
            );
        }
        Device::Ls { json, dir } => {
            let Answer::Devices { devices, trouble } = asked(&paths::point(dir)?, &Ask::DeviceLs)?
            else {
                bail!("the daemon's answer is about something else");
            };
            if json {
                say!("{}", serde_json::to_string_pretty(&devices)?);
            } else if devices.is_empty() {
                say!("no drives; `teal device add PATH --size SIZE` makes one");
            } else {
                devices.iter().for_each(show);
            }
            if let Some(why) = trouble {
                complain(format_args!(
                    "only drives attached here are listed: the server cannot be asked for others ({})",
                    plain(&why)
                ));
            }
        }
        Device::Attach { path, dir } => {
            let path = place(&path)?;
            match asked(
                &paths::point(dir)?,
                &Ask::DeviceAttach { path: path.clone() },
            )? {
                Answer::Already { already } => say!("{} is attached already", plain(&already)),
                _ => say!("the drive in {} is attached", shown(&path)),
            }
        }
        Device::Detach { name, fast, dir } => {
            detach(&paths::point(dir)?, &name_or_place(&name)?, fast)?;
            say!("{} is detached; it may be unplugged", plain(&name));
        }
        Device::Rm { name, dir } => {
            asked(&paths::point(dir)?, &Ask::DeviceRm { name: name.clone() })?;
            say!(
                "{} is no drive of this volume any more; its file is left where it is",
                plain(&name)
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns where a drive is, or is to be. Who is asked is told in JSON, which is text.
fn place(path: &Path) -> Result<PathBuf> {
    let path = paths::absolute(path)?;
    if path.to_str().is_none() {
        bail!(
            "{} is no text (UTF-8): give it another name",
            path.as_os_str().as_encoded_bytes().escape_ascii()
        );
    }
    Ok(path)
}

/// Something to say beside the output.
fn complain(text: std::fmt::Arguments<'_>) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Detaches a drive; while that takes long, says how far it is.
fn detach(dir: &Path, name: &str, fast: bool) -> Result<()> {
    let (done, ended) = sync_channel(1);
    std::thread::scope(|scope| {
        let ask = Ask::DeviceDetach {
            name: name.to_owned(),
            fast,
        };
        std::thread::Builder::new()
            .spawn_scoped(scope, move || drop(done.send(asked(dir, &ask))))?;
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
    let Ok(Answer::Devices { devices, .. }) = asked(dir, &Ask::DeviceLs) else {
        return;
    };
    let is_it = |line: &&DeviceLine| line.name == name || line.place.as_deref() == Some(name);
    if let Some(line) = devices.iter().find(is_it) {
        let written = line
            .counts
            .iter()
            .find(|(known, _)| known == "written_bytes")
            .map_or(0, |(_, count)| *count);
        let (copied, waits) = (human(written), waiting(line.queued));
        let first = match asked(dir, &Ask::Status) {
            Ok(Answer::Status(status)) => status.upstream.map_or(0, |upstream| upstream.only_here),
            _ => 0,
        };
        let first = if first == 0 {
            String::new()
        } else {
            format!("; {first} are to be at the server first")
        };
        complain(format_args!(
            "{}: {waits} to be copied, {copied} are{first}",
            plain(&line.name)
        ));
    }
}

/// Drives are called by their names or by where they are.
fn name_or_place(name: &str) -> Result<String> {
    if !name.contains('/') {
        return Ok(name.to_owned());
    }
    Ok(paths::absolute(Path::new(name))?
        .to_string_lossy()
        .into_owned())
}

fn show(line: &DeviceLine) {
    let name = plain(&line.name);
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
            say!("{name}  in {}, {kind}{late}", plain(place));
            say!(
                "  {} of {} used by {}; as of commit {}",
                human(used),
                human(line.total_bytes),
                count(line.objects.unwrap_or(0), "object"),
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
                human(so_far("read_bytes")),
                count(so_far("reads"), "read"),
                human(so_far("written_bytes"))
            );
            if line.queued > 0 {
                say!("  {} to be copied to it", waiting(line.queued));
            }
            if line.short > 0 {
                let missing = human(line.short_bytes);
                say!(
                    "  it is full: {} files with affinity ({missing} of them) are not on it",
                    line.short
                );
            }
        }
        (None, Some(machine)) => say!(
            "{name}  attached to {}, {kind}, {}",
            plain(machine),
            human(line.bytes)
        ),
        (None, None) => say!("{name}  not attached, {kind}, {}", human(line.bytes)),
    }
    line.superseded.iter().for_each(|words| say!("  {words}"));
}

/// Runs `teal affinity`.
pub(crate) fn affinity(what: Affinity) -> Result<ExitCode> {
    match what {
        Affinity::Add {
            path,
            drive,
            sticky,
        } => {
            let (dir, meta) = object_at(&path)?;
            if sticky && !meta.is_dir() {
                bail!(
                    "{} is no directory: nothing comes into it, so leave --sticky out",
                    shown(&path)
                );
            }
            let ask = Ask::AffinityAdd {
                object: meta.ino(),
                drive: drive.clone(),
                sticky,
            };
            if let Answer::Marked { files, bytes } = asked(&dir, &ask)? {
                let (are, they) = if files == 1 {
                    ("is", "it is on its way")
                } else {
                    ("are", "they are on their way")
                };
                say!(
                    "{} ({}) {are} always on {}; {they} to it",
                    count(files, "file"),
                    human(bytes),
                    plain(&drive)
                );
            }
        }
        Affinity::Ls { drive, dir } => {
            let ask = Ask::AffinityLs {
                drive: drive.clone(),
            };
            if let Answer::Affinities { affinities } = asked(&paths::point(dir)?, &ask)? {
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
                        format!(" of {}", human(line.size))
                    } else {
                        String::new()
                    };
                    say!(
                        "{:>10}{of}  {}{sticky}",
                        human(line.bytes),
                        plain(&line.path)
                    );
                }
                if short > 0 {
                    say!(
                        "{drive} is full: {short} files with affinity ({} of them) are not on it",
                        human(missing)
                    );
                }
            }
        }
        Affinity::Rm { path, drive } => {
            let (dir, meta) = object_at(&path)?;
            asked(
                &dir,
                &Ask::AffinityRm {
                    object: meta.ino(),
                    drive: drive.clone(),
                },
            )?;
            say!(
                "{} makes way on {} when something else is used more",
                shown(&path),
                plain(&drive)
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `teal where`.
pub(crate) fn whereabouts(path: &Path, json: bool) -> Result<ExitCode> {
    let (dir, meta) = object_at(path)?;
    if !meta.is_file() && !meta.is_dir() {
        bail!(
            "{} is neither a file nor a directory: only content has a place",
            shown(path)
        );
    }
    let Answer::Where { whereabouts } = asked(&dir, &Ask::Where { object: meta.ino() })? else {
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
    say!("{} ({})", plain(&found.path), human(found.size));
    if let Some(pinned) = &found.pinned {
        say!("  always here: {} is pinned", plain(pinned));
    }
    for source in &found.sources {
        let version = source
            .version
            .map_or_else(String::new, |seq| format!(" of commit {seq}"));
        say!(
            "  {:<16} {}{version}{}: {}",
            plain(&source.name),
            human(source.bytes),
            price(source),
            source.why
        );
    }
}

/// Returns what reading a block from there costs, as predicted.
fn price(source: &SourceLine) -> String {
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
