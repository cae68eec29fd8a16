//! The process that serves one mount: store, client, kernel, control socket, signals.
//!
//! # How it ends
//! 1. `umount`, `teal down` or a signal takes the mount away; the workers return; everything is
//!    committed, checkpointed and closed.
//! 2. `teal down` is answered only after that. When files are open, it is refused; a signal
//!    detaches the mount and does not wait for them.
//!
//! # Rooms, each of which uses those before it
//! 1. `volume`: what the process holds while the mount lives, and the ways in which it ends.
//! 2. `report`: what `teal status` is told.
//! 3. `requests`: the requests of the control socket.
//! 4. `start`: from options to an open store and a mount.

mod report;
mod requests;
mod start;
mod volume;

use crate::cli::MountArgs as Args;
use crate::control::ControlSocket;
use crate::options::MountConfig;
use crate::rollback::Rollback;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use teal_command::READY;
use teal_command::say::{say, with_causes};
use volume::ServedVolume;

/// Opens the store, mounts it and serves until the mount is gone. What was made for the mount is
/// kept as soon as it is there.
pub(crate) fn serve_mount(args: &Args, options: MountConfig, made: Rollback) -> Result<ExitCode> {
    match start::open_and_mount(args, options) {
        Ok((volume, listener)) => {
            // From here on the daemon serves, so what was made for it must not be taken back any
            // more.
            made.keep_changes();
            if args.tell {
                let mut out = std::io::stdout();
                writeln!(out, "{READY}")
                    .and_then(|()| out.flush())
                    .context("the parent process does not listen any more")?;
                // A session of its own keeps the signals of the parent's terminal away from the
                // daemon.
                let _ = rustix::process::setsid();
            } else {
                log::info!(
                    "serving {} on {}; end with Ctrl-C or `teal down`",
                    args.path.display(),
                    args.dir.display()
                );
            }
            run(&Arc::new(volume), listener)
        }
        Err(error) if args.tell => {
            // The parent reads one line and shows it as its own error.
            say!("{}", with_causes(&error).replace('\n', " "));
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error),
    }
}

/// Serves the kernel, the control socket and signals until the mount is gone, then closes the
/// store.
fn run(volume: &Arc<ServedVolume>, listener: ControlSocket) -> Result<ExitCode> {
    // Commits and drives have their threads before a request can need them.
    let committing = volume.client.start();
    committing.context("the background thread cannot be started")?;
    let watching = volume.drives.start();
    watching.context("the thread for drives cannot be started")?;
    let ended = Arc::downgrade(volume);
    volume.mount.on_destroy(move || {
        if let Some(volume) = ended.upgrade() {
            volume.close_before_unmounted();
        }
    });
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .context("signals cannot be caught")?;
    let for_signals = Arc::clone(volume);
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    named("teal-signals").spawn(move || {
        for _ in signals.forever() {
            for_signals.end_for_signal();
        }
    })?;
    let for_control = Arc::clone(volume);
    let socket = listener
        .listener
        .try_clone()
        .context("the control socket cannot be shared with its thread")?;
    // One request at a time; those that may take long get threads of their own.
    named("teal-control").spawn(move || {
        for stream in socket.incoming().flatten() {
            requests::answer_connection(&for_control, stream);
        }
    })?;
    // Blocks until the kernel has ended the mount.
    let served = volume.mount.run();
    volume.mount_has_ended();
    // The store is closed before a failure of the mount is returned: whatever ended the mount,
    // everything written must become durable.
    let closed = volume.close();
    // Another daemon may take the socket only now, when the store is closed.
    drop(listener);
    served?;
    closed.context("the store could not be closed")?;
    Ok(ExitCode::SUCCESS)
}
