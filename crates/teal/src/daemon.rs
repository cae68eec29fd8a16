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
            made.keep_changes();
            if args.tell {
                let mut out = std::io::stdout();
                writeln!(out, "{READY}")
                    .and_then(|()| out.flush())
                    .context("the parent does not listen")?;
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
            say!("{}", with_causes(&error).replace('\n', " "));
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error),
    }
}

/// Serves the kernel, the control socket and signals until the mount is gone, then closes the
/// store.
fn run(volume: &Arc<ServedVolume>, listener: ControlSocket) -> Result<ExitCode> {
    volume.client.start().context("the background thread")?;
    volume.drives.start().context("a thread for drives")?;
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let for_signals = Arc::clone(volume);
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    named("teal-signals")
        .spawn(move || signals.forever().for_each(|_| for_signals.end_for_signal()))?;
    let for_control = Arc::clone(volume);
    let socket = listener.listener.try_clone().context("control socket")?;
    named("teal-control").spawn(move || {
        for stream in socket.incoming().flatten() {
            requests::answer_connection(&for_control, stream);
        }
    })?;
    let served = volume.mount.run();
    volume.mount_has_ended();
    let closed = volume.close();
    drop(listener);
    served?;
    closed.context("closing the store")?;
    Ok(ExitCode::SUCCESS)
}
