//! The arguments of `cargo xtask bench andrew`.

use super::peers::PeerKind;
use crate::arguments::{count, positive};
use anyhow::{Result, ensure};
use std::path::PathBuf;

/// Builds OpenSSH on ext4 and on a replica of a server that is near and far (root).
#[derive(Debug, clap::Args)]
pub(crate) struct AndrewArguments {
    /// Rounds through ext4 and all delays; 0: none
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) rounds: usize,
    /// Round trips to the server in milliseconds
    #[arg(
        long,
        value_name = "MS,MS,...",
        value_delimiter = ',',
        default_value = "0,30,60"
    )]
    pub(super) delays: Vec<u64>,
    /// Jobs of make
    #[arg(long, value_name = "N", default_value = "2", value_parser = count(1))]
    pub(super) jobs: usize,
    /// Bandwidth of the line each way, in Mbit/s
    #[arg(long, value_name = "MBIT", default_value = "100", value_parser = positive)]
    pub(super) bandwidth: f64,
    /// Without machines that join when the tree is there
    #[arg(long)]
    pub(super) no_cold: bool,
    /// Also these, at the middle delay: juicefs, sshfs; installs redis-server, openssh-server,
    /// sshfs
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = PeerKind::named)]
    pub(super) peers: Vec<PeerKind>,
    /// Raw samples; the table goes beside them as .md [default: target/bench/andrew.json]
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// The directory of images and mounts, on the disk that is measured [default: target/bench]
    #[arg(long)]
    pub(super) dir: Option<PathBuf>,
}

impl AndrewArguments {
    pub(super) fn is_cold(&self) -> bool {
        !self.no_cold
    }

    /// Refuses arguments that leave nothing to measure.
    pub(super) fn check_arguments(&self) -> Result<()> {
        let is_something = self.rounds > 0 || self.is_cold() || !self.peers.is_empty();
        ensure!(is_something, "nothing would be measured");
        Ok(())
    }
}
