//! Implements `teal lab disk`: modelled disks, started, looked at and stopped by name.

use crate::cli::DiskCommand;
use anyhow::{Context, Result, bail};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use teal_command::paths;
use teal_command::say::say;
use teal_emulator::log::{DiskLogRecord, LogError, LogReader};
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
    // Each disk is a directory with its files.
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

/// Returns a record of the log in the columns of the head.
fn record_line(record: &DiskLogRecord) -> String {
    let numbers = [
        record.at.get(),
        record.count,
        record.asked.get(),
        record.start.get(),
        record.done.get(),
        record.energy.get(),
        record.total.get(),
    ];
    let numbers = numbers.map(|n| n.to_string()).join(" ");
    format!("{} {numbers} {}", record.kind.name(), record.label)
}

/// Prints the log of a disk, one record a line.
fn show_log(file: &Path) -> Result<()> {
    let input = std::fs::OpenOptions::new()
        .read(true)
        .open(file)
        .with_context(|| file.display().to_string())?;
    // A header that cannot be read means that this is no log.
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
    // A log may have millions of records, so the output is buffered, and a closed pipe ends it.
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for record in reader {
        let record = match record {
            Ok(record) => record,
            Err(LogError::CutOff { at }) => {
                log::warn!("{} ends at byte {at}: its disk was killed", file.display());
                break;
            }
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        };
        match writeln!(out, "{}", record_line(&record)) {
            // The reader of the pipe has seen enough.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            done => done.context("standard output")?,
        }
    }
    Ok(())
}
