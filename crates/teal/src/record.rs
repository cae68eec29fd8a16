//! The hidden command `recording`, the part of `teal lab record` that speaks to a daemon: it asks
//! the daemon of a mount to record, waits, and says what came of it.

use crate::cli::RecordingArgs;
use crate::control::{self, ControlAnswer, ControlRequest, RecordingStatus};
use crate::mounts::no_daemon_error;
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use teal_command::path_context::PathContext as _;
use teal_command::paths;
use teal_command::say::say;
use teal_command::size::human_size;

/// The time between two questions for the progress of a recording, in nanoseconds.
const LOOK_EVERY: i64 = 500_000_000;

/// Runs the command.
pub(crate) fn run_recording(args: &RecordingArgs) -> Result<ExitCode> {
    let dir = paths::absolute_path(&args.dir)?;
    if let Some(text) = &args.mark {
        ask_daemon(&dir, &ControlRequest::RecordMark { text: text.clone() })?;
    } else if args.stop {
        report_outcome(&ask_progress(&dir, &ControlRequest::RecordEnd)?)?;
    } else {
        let out = args
            .out
            .as_ref()
            .context("the trace needs a name: give one with --out")?;
        record_until_end(args, &dir, &paths::absolute_path(out)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Records into a new file until the end.
fn record_until_end(args: &RecordingArgs, dir: &Path, file: &Path) -> Result<()> {
    // A missing daemon is reported before a file is made.
    debug_assert!(
        file.is_absolute(),
        "the daemon has another working directory"
    );
    ask_daemon(dir, &ControlRequest::Status)?;
    not_inside(file, dir)?;
    // Signals are caught before the recording begins, so that none can end this program and leave
    // the daemon recording.
    let mut ending = ending_signals()?;
    ask_daemon(
        dir,
        &ControlRequest::Record {
            file: file.to_owned(),
            anonymous: args.anonymous,
            seconds: args.seconds,
        },
    )?;
    let until = args.seconds.map_or_else(
        || "Ctrl-C ends that".to_owned(),
        |s| format!("that ends after {s} s, or at Ctrl-C"),
    );
    say!(
        "{} is being recorded to {}; {until}",
        dir.display(),
        file.display()
    );
    loop {
        let end = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_EVERY,
        };
        let mut fds = [PollFd::new(&ending, PollFlags::IN)];
        // Waits for a signal, but looks at the recording now and then: it may end by itself.
        match rustix::event::poll(&mut fds, Some(&end)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("the program cannot wait for signals"),
        }
        // Never blocks: a signal that came has written a byte.
        let is_over = matches!(ending.read(&mut [0; 16]), Ok(1..));
        // A signal asks for the end; otherwise this only looks.
        let Some(answer) = control::ask(
            dir,
            if is_over {
                &ControlRequest::RecordEnd
            } else {
                &ControlRequest::RecordProgress
            },
        )?
        else {
            bail!(
                "the daemon of {} is gone; what it wrote to {} can be read",
                dir.display(),
                file.display()
            );
        };
        match answer {
            ControlAnswer::Recording { recording } if recording.file != file => {
                bail!("another command ended the recording to {}", file.display())
            }
            ControlAnswer::Recording { recording } if recording.ended => {
                return report_outcome(&recording);
            }
            _ => {}
        }
    }
}

/// Returns a socket that is readable once a signal asks for the end.
fn ending_signals() -> Result<UnixStream> {
    let (receive, send) = UnixStream::pair().context("signals cannot be caught")?;
    receive
        .set_nonblocking(true)
        .context("signals cannot be caught")?;
    // All three are caught, so that closing the terminal ends the recording, too.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(
            signal,
            send.try_clone().context("signals cannot be caught")?,
        )
        .context("signals cannot be caught")?;
    }
    Ok(receive)
}

/// Refuses a trace on the mount that is recorded: writing it would be recorded, too, without end.
fn not_inside(file: &Path, dir: &Path) -> Result<()> {
    let parent = file.parent().unwrap_or(Path::new("/"));
    // All paths of one file system have the same device number.
    let device = |path: &Path| std::fs::metadata(path).map(|m| m.dev()).with_path(path);
    if device(parent)? == device(dir)? {
        bail!(
            "{} is on the mount that is to be recorded; choose a place elsewhere",
            file.display()
        );
    }
    Ok(())
}

fn ask_daemon(dir: &Path, ask: &ControlRequest) -> Result<ControlAnswer> {
    control::ask(dir, ask)?.ok_or_else(|| no_daemon_error(dir))
}

fn ask_progress(dir: &Path, what: &ControlRequest) -> Result<RecordingStatus> {
    match ask_daemon(dir, what)? {
        ControlAnswer::Recording { recording } => Ok(recording),
        _ => bail!("the daemon's answer cannot be understood"),
    }
}

/// Says what came of it.
fn report_outcome(recording: &RecordingStatus) -> Result<()> {
    let file = recording.file.display();
    if let Some(failure) = &recording.failure {
        bail!(
            "the recording to {file} ended early, after {} events: {failure}",
            recording.events
        );
    }
    say!(
        "{file} has {} events in {}",
        recording.events,
        human_size(recording.bytes)
    );
    // Lost events do not end a recording, but a person has to know of them.
    if recording.dropped > 0 {
        say!(
            "{} more came too fast and are missing; the trace says where",
            recording.dropped
        );
    }
    Ok(())
}
