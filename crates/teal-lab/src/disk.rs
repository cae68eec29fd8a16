//! `teal lab disk`: modelled disks, started, looked at and stopped by name.

use crate::cli::DiskCommand;
use anyhow::{Context, Result, bail};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use teal_command::paths;
use teal_command::say::say;
use teal_emulator::log::{LogError, LogReader};
use teal_rig::disk::{self, DiskReport};

/// Runs the command.
pub(crate) fn run_disk(what: DiskCommand) -> Result<ExitCode> {
    match what {
        DiskCommand::Start(start) => return disk::start_disk(start.into()),
        DiskCommand::Nbd { model, listen } => disk::serve_nbd(&model.into(), listen)?,
        DiskCommand::Ls => list_disks()?,
        DiskCommand::Stat { name, json } => {
            let report = DiskReport::read(&disk::mount_point(&name)?)
                .with_context(|| disk::no_such_disk(&name))?;
            if json {
                say!("{}", serde_json::to_string_pretty(&report)?)
            } else {
                report.print_report()
            }
        }
        DiskCommand::Mark { name, label } => send_command(&name, &format!("mark {label}"))?,
        DiskCommand::Idle { name, seconds } => {
            if !(0.0..1e9).contains(&seconds) {
                bail!("{seconds} seconds cannot pass");
            }
            send_command(&name, &format!("idle {:.0}", seconds * 1e9))?;
        }
        DiskCommand::Sleep { name } => send_command(&name, "sleep")?,
        DiskCommand::Log { file } => show_log(&file)?,
        DiskCommand::Stop { name } => disk::stop_disk(&name)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn send_command(name: &str, what: &str) -> Result<()> {
    disk::send_command(name, what)?.with_context(|| format!("disk {name}: {what}"))
}

fn list_disks() -> Result<()> {
    let dir = paths::disks_dir()?;
    let mut names: Vec<_> = std::fs::read_dir(&dir)
        .with_context(|| dir.display().to_string())?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    for name in names {
        match DiskReport::read(&dir.join(&name)) {
            Ok(report) => say!("{}", report.summary_line()),
            Err(_) => say!(
                "{name}: its process is gone; `teal lab disk stop {name}` takes away what it left"
            ),
        }
    }
    Ok(())
}

fn show_log(file: &Path) -> Result<()> {
    let input = std::fs::OpenOptions::new()
        .read(true)
        .open(file)
        .with_context(|| file.display().to_string())?;
    let reader = LogReader::new(std::io::BufReader::new(input))
        .with_context(|| file.display().to_string())?;
    let header = reader.header();
    let time = if header.real_time { "real" } else { "virtual" };
    say!(
        "# {} of {} sectors, write cache {} B, {time} time; joules modelled by the profile",
        header.profile,
        header.sectors,
        header.write_cache
    );
    say!("# kind sector sectors asked_ns start_ns done_ns uJ total_uJ label");
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for record in reader {
        let r = match record {
            Ok(record) => record,
            Err(LogError::CutOff { at }) => {
                log::warn!("{} ends at byte {at}: its disk was killed", file.display());
                break;
            }
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        };
        let numbers = [
            r.at.get(),
            r.count,
            r.asked.get(),
            r.start.get(),
            r.done.get(),
            r.energy.get(),
            r.total.get(),
        ];
        let numbers = numbers.map(|n| n.to_string()).join(" ");
        match writeln!(out, "{} {numbers} {}", r.kind.name(), r.label) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            done => done.context("standard output")?,
        }
    }
    Ok(())
}
