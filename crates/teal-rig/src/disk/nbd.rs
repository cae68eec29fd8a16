//! Serves a disk over the network block device protocol, for guests such as user-mode Linux: the
//! virtual disks of these lose flushes.

use super::model::DiskModel;
use super::report::RequestSums;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use teal_command::say::say;
use teal_emulator::{DriveAccount, EmulationPace, VirtualClock, nbd};

/// Serves clients one after the other; prints the account when each has gone.
pub fn serve_nbd(model: &DiskModel, listen: SocketAddr) -> Result<()> {
    let setup = model.build_setup()?;
    let pace = EmulationPace::Virtual(VirtualClock::default());
    let disk = Arc::new(model.emulate(&setup, "nbd", pace)?);
    let socket = TcpListener::bind(listen).with_context(|| listen.to_string())?;
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let for_signals = Arc::clone(&disk);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if signals.forever().next().is_some() {
                // The log is the only thing that must survive the signal.
                for_signals.flush_log();
                std::process::exit(0);
            }
        })?;
    say!("serving on {}", socket.local_addr()?);
    for client in socket.incoming() {
        let mut client = client.context("a client")?;
        // Answers are small, and the client waits for them.
        client.set_nodelay(true).context("a client")?;
        if let Err(error) = nbd::serve_client(&disk, &mut client) {
            log::warn!("the client is gone: {error}");
        }
        disk.flush_log();
        let account = disk.snapshot().account;
        RequestSums::between_accounts(&DriveAccount::default(), &account, disk.model())
            .print_sums(&setup.profile().name);
    }
    Ok(())
}
