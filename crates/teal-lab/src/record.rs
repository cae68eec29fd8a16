//! Implements `teal lab record`: has the program teal record a mount, and makes a workload of the
//! trace if that is wanted.

use crate::characterise;
use crate::cli::RecordArgs;
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use teal_command::{paths, program};
use teal_study::characterise::TreeSurvey;

/// Runs the command.
pub(crate) fn run_record(args: &RecordArgs) -> Result<ExitCode> {
    let Some(wml) = &args.wml else {
        // The program takes the place of this one: signals and status are its own.
        let failed = recording_command(args, args.out.as_deref())?.exec();
        return Err(failed).context("the program teal");
    };
    if args.anonymous {
        bail!(
            "a workload tells names of directories; record with --anonymous --out TRACE, then: \
             teal lab trace characterise TRACE --wml FILE"
        );
    }
    characterise::check_new_file(wml)?;
    let dir = paths::absolute_path(&args.dir)?;
    // This refuses a directory without a mount before anything in it is looked at.
    let asked = Command::new(program::teal_program()?)
        .arg("status")
        .arg(&dir)
        .stdout(Stdio::null())
        .status();
    if !asked.context("the program teal")?.success() {
        return Ok(ExitCode::FAILURE);
    }
    // The present state of the directory is where the workload begins.
    let survey = TreeSurvey::scan_tree(&dir).with_context(|| dir.display().to_string())?;
    let file = args
        .out
        .clone()
        .unwrap_or_else(|| wml.with_extension("trace"));
    let file = paths::absolute_path(&file)?;
    let status = wait_and_pass_signals(recording_command(args, Some(&file))?)?;
    if !status.success() {
        // The program has said why.
        return Ok(ExitCode::FAILURE);
    }
    let written = characterise::write_workload(&file, &survey, wml, &dir.display().to_string());
    // Without --out the trace was only a means, whatever its result.
    if args.out.is_none() {
        std::fs::remove_file(&file).with_context(|| file.display().to_string())?;
    }
    written?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command that records, with the given options.
fn recording_command(args: &RecordArgs, out: Option<&Path>) -> Result<Command> {
    // Options come first; a directory that begins with a dash must not look like one.
    let mut command = Command::new(program::teal_program()?);
    command.arg("recording");
    if let Some(out) = out {
        command.arg("--out").arg(out);
    }
    if let Some(limit) = args.limit {
        command.args(["--seconds", &limit.as_secs().to_string()]);
    }
    if args.anonymous {
        command.arg("--anonymous");
    }
    if args.stop {
        command.arg("--stop");
    }
    if let Some(text) = &args.mark {
        command.arg(format!("--mark={text}"));
    }
    command.arg("--").arg(&args.dir);
    Ok(command)
}

/// Waits for the recording's end, and passes on every signal that asks for an end.
fn wait_and_pass_signals(mut command: Command) -> Result<ExitStatus> {
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")?;
    let mut child = command.spawn().context("the program teal")?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // The descriptor is taken before the process can be waited for, so that it means this process
    // for ever.
    let process = pidfd_open(pid.context("no process is 0")?, PidfdFlags::empty())
        .context("watching the recording")?;
    let asks_for_end = signals.handle();
    let status = std::thread::scope(|scope| {
        let passing = std::thread::Builder::new().name("signals".to_owned());
        passing.spawn_scoped(scope, || {
            for _ in signals.forever() {
                // The process may have ended meanwhile; then there is nothing left to end.
                let _ = pidfd_send_signal(&process, Signal::TERM);
            }
        })?;
        let status = child.wait();
        // Closing the handle ends the thread, which the scope waits for.
        asks_for_end.close();
        status
    });
    status.context("waiting for the recording")
}
