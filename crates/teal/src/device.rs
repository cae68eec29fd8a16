//! `teal device`, `teal where`: drives and what is on them, for people.

use crate::cli::{Affinity, Device};
use crate::control::{self, Answer, Ask, DeviceLine, WhereLine};
use crate::say::say;
use crate::status::human;
use crate::{lab, paths};
use anyhow::{Context, Result, bail};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// How often somebody who waits for a drive to be let go hears how far that is.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn asked(dir: &Path, ask: &Ask) -> Result<Answer> {
    control::ask(dir, ask)?.with_context(|| format!("nothing of TealFS is mounted on {}", dir.display()))
}

/// Runs `teal device`.
pub(crate) fn device(what: Device) -> Result<ExitCode> {
    match what {
        Device::Add { path, size, name, profile, portable, dir } => {
            let (path, dir) = (paths::absolute(&path)?, paths::point(dir)?);
            let profile = profile.unwrap_or_default();
            if !profile.is_empty() {
                lab::shipped(&profile)?;
            }
            let stem = || path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let name = name.or_else(stem).context("a drive needs a name: give one with --name")?;
            asked(&dir, &Ask::DeviceAdd { path: path.clone(), size, name: name.clone(), portable, profile })?;
            say!("{name} is a drive of this volume now, in {}; it is attached", path.display());
            say!("before it is unplugged: teal device detach {name}");
        }
        Device::Ls { json, dir } => {
            let Answer::Devices { devices } = asked(&paths::point(dir)?, &Ask::DeviceLs)? else {
                bail!("the daemon's answer is about something else");
            };
            if json {
                say!("{}", serde_json::to_string_pretty(&devices)?);
            } else if devices.is_empty() {
                say!("no drives; `teal device add PATH --size SIZE` makes one");
            } else {
                devices.iter().for_each(show);
            }
        }
        Device::Attach { path, dir } => {
            let path = paths::absolute(&path)?;
            asked(&paths::point(dir)?, &Ask::DeviceAttach { path: path.clone() })?;
            say!("the drive in {} is attached", path.display());
        }
        Device::Detach { name, fast, dir } => {
            detach(&paths::point(dir)?, &name_or_place(&name)?, fast)?;
            say!("{name} is detached; it may be unplugged");
        }
        Device::Rm { name, dir } => {
            asked(&paths::point(dir)?, &Ask::DeviceRm { name: name.clone() })?;
            say!("{name} is no drive of this volume any more; its file is left where it is");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Detaches a drive; while that takes long, says how far it is.
fn detach(dir: &Path, name: &str, fast: bool) -> Result<()> {
    let (done, ended) = sync_channel(1);
    std::thread::scope(|scope| {
        let ask = Ask::DeviceDetach { name: name.to_owned(), fast };
        std::thread::Builder::new().spawn_scoped(scope, move || drop(done.send(asked(dir, &ask))))?;
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
    let Ok(Answer::Devices { devices }) = asked(dir, &Ask::DeviceLs) else { return };
    let is_it = |line: &&DeviceLine| line.name == name || line.place.as_deref() == Some(name);
    if let Some(line) = devices.iter().find(is_it) {
        let written = line.counts.iter().find(|(known, _)| known == "written_bytes").map_or(0, |(_, count)| *count);
        let copied = human(written);
        let first = match asked(dir, &Ask::Status) {
            Ok(Answer::Status(status)) => status.upstream.map_or(0, |upstream| upstream.only_here),
            _ => 0,
        };
        let first = if first == 0 { String::new() } else { format!("; {first} are to be at the server first") };
        drop(writeln!(
            std::io::stderr(),
            "{}: {} objects wait to be copied, {copied} are{first}",
            line.name,
            line.queued
        ));
    }
}

/// Drives are called by their names or by where they are.
fn name_or_place(name: &str) -> Result<String> {
    if !name.contains('/') {
        return Ok(name.to_owned());
    }
    Ok(paths::absolute(Path::new(name))?.to_string_lossy().into_owned())
}

fn show(line: &DeviceLine) {
    let kind = if line.portable { "portable" } else { "stays here" };
    match (&line.place, &line.attached_to) {
        (Some(place), _) => {
            let used = line.total_bytes.saturating_sub(line.free_bytes.unwrap_or(0));
            let late = if line.late { "; it does not answer" } else { "" };
            say!("{}  in {place}, {kind}{late}", line.name);
            say!(
                "  {} of {} used by {} objects; as of commit {}",
                human(used),
                human(line.total_bytes),
                line.objects.unwrap_or(0),
                line.position.unwrap_or(0)
            );
            let count = |name| line.counts.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count);
            say!(
                "  {} read in {} reads, {} written",
                human(count("read_bytes")),
                count("reads"),
                human(count("written_bytes"))
            );
            if line.queued > 0 {
                say!("  {} objects wait to be copied to it", line.queued);
            }
            if line.short > 0 {
                let missing = human(line.short_bytes);
                say!("  it is full: {} files with affinity ({missing} of them) are not on it", line.short);
            }
        }
        (None, Some(machine)) => say!("{}  last attached to {machine}, {kind}, {}", line.name, human(line.bytes)),
        (None, None) => say!("{}  not attached, {kind}, {}", line.name, human(line.bytes)),
    }
    line.superseded.iter().for_each(|words| say!("  {words}"));
}

/// The mount that a path lies on, and the object it leads to.
pub(crate) fn on_mount(path: &Path) -> Result<(PathBuf, std::fs::Metadata)> {
    let path = paths::absolute(path)?;
    let meta = std::fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
    let mounts = control::all()?.into_iter().filter(|status| path.starts_with(&status.mount_point));
    let mount = mounts.max_by_key(|status| status.mount_point.as_os_str().len());
    let mount = mount.with_context(|| format!("{} is not on a mount of TealFS", path.display()))?;
    Ok((mount.mount_point, meta))
}

/// Runs `teal affinity`.
pub(crate) fn affinity(what: Affinity) -> Result<ExitCode> {
    match what {
        Affinity::Add { path, drive, sticky } => {
            let (dir, meta) = on_mount(&path)?;
            if sticky && !meta.is_dir() {
                bail!("{} is no directory: nothing comes into it, so leave --sticky out", path.display());
            }
            let ask = Ask::AffinityAdd { object: meta.ino(), drive: drive.clone(), sticky };
            if let Answer::Marked { files, bytes } = asked(&dir, &ask)? {
                say!("{files} files ({}) are always on {drive}; they are on their way to it", human(bytes));
            }
        }
        Affinity::Ls { drive, dir } => {
            let ask = Ask::AffinityLs { drive: drive.clone() };
            if let Answer::Affinities { affinities } = asked(&paths::point(dir)?, &ask)? {
                let (mut short, mut missing) = (0, 0);
                for line in affinities {
                    short += u64::from(line.short);
                    missing += if line.short { line.size.saturating_sub(line.bytes) } else { 0 };
                    let sticky = if line.sticky { ", and whatever comes into it" } else { "" };
                    let of = if line.bytes < line.size { format!(" of {}", human(line.size)) } else { String::new() };
                    say!("{:>10}{of}  {}{sticky}", human(line.bytes), line.path);
                }
                if short > 0 {
                    say!("{drive} is full: {short} files with affinity ({} of them) are not on it", human(missing));
                }
            }
        }
        Affinity::Rm { path, drive } => {
            let (dir, meta) = on_mount(&path)?;
            asked(&dir, &Ask::AffinityRm { object: meta.ino(), drive: drive.clone() })?;
            say!("{} makes way on {drive} when something else is used more", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `teal where`.
pub(crate) fn whereabouts(path: &Path, json: bool) -> Result<ExitCode> {
    let (dir, meta) = on_mount(path)?;
    if !meta.is_file() && !meta.is_dir() {
        bail!("{} is neither a file nor a directory: only content has a place", path.display());
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
    say!("{} ({})", found.path, human(found.size));
    if let Some(pinned) = &found.pinned {
        say!("  always here: {pinned} is pinned");
    }
    for source in &found.sources {
        let version = source.version.map_or_else(String::new, |seq| format!(" of commit {seq}"));
        let time = source.microseconds.map_or_else(String::new, |micros| format!(", {:.1} ms", micros as f64 / 1e3));
        say!("  {:<16} {}{version}{time}: {}", source.name, human(source.bytes), source.why);
    }
}
