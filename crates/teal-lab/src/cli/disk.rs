//! Defines the command line of `teal lab disk`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use teal_command::size::parse_size;
use teal_rig::disk::{DiskModel, DiskStart, WriteCache};

#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// Make a modelled disk and print its block device (root)
    Start(DiskStartArgs),
    /// The disks that are there
    Ls,
    /// Requests, seeks and joules, in all and since the last mark
    Stat {
        /// The disk
        name: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Put a label into the log and begin to count anew
    Mark {
        /// The disk
        name: String,
        /// Any text of at most 255 bytes
        label: String,
    },
    /// Let virtual time pass in which nothing is asked of the disk
    Idle {
        /// The disk
        name: String,
        /// Seconds that pass
        seconds: f64,
    },
    /// Send the disk to its lowest state; the next request wakes it
    Sleep {
        /// The disk
        name: String,
    },
    /// Show a log for people and scripts
    Log {
        /// The file given to `start --log`
        file: PathBuf,
    },
    /// Serve a modelled disk over the network block device protocol, in virtual time, until it is
    /// interrupted
    Nbd {
        #[command(flatten)]
        model: DiskModelArgs,
        /// Address and port, such as 127.0.0.1:10809
        #[arg(long)]
        listen: std::net::SocketAddr,
    },
    /// Take the disk away, or what a killed one has left
    Stop {
        /// The disk
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DiskStartArgs {
    #[command(flatten)]
    pub(crate) model: DiskModelArgs,
    /// Answer when the modelled drive would; otherwise at once, and time is virtual
    #[arg(long)]
    pub(crate) real_time: bool,
    /// Name of the disk
    pub(crate) name: String,
    /// Tell the parent on standard output once it is there
    #[arg(long, hide = true)]
    pub(crate) tell: bool,
}

/// Switches something on or off.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

#[derive(Debug, Args)]
pub(crate) struct DiskModelArgs {
    /// Modelled disk: a shipped profile's name, or a file
    #[arg(long)]
    pub(crate) profile: String,
    /// Its size, such as 500M; at most what the profile holds
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: u64,
    /// The drive's write cache: with it, writes are answered before they are on the surface
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) cache: OnOff,
    /// Spin down after so many seconds without work [default: never]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) spin_down: Option<u64>,
    /// Log every request to this file
    #[arg(long)]
    pub(crate) log: Option<PathBuf>,
    /// Keep the bytes in this file; otherwise they go with the disk
    #[arg(long)]
    pub(crate) image: Option<PathBuf>,
}

impl From<DiskModelArgs> for DiskModel {
    fn from(of: DiskModelArgs) -> Self {
        Self {
            profile: of.profile,
            size: of.size,
            cache: match of.cache {
                OnOff::On => WriteCache::On,
                OnOff::Off => WriteCache::Off,
            },
            spin_down: of.spin_down,
            log: of.log,
            image: of.image,
        }
    }
}

impl From<DiskStartArgs> for DiskStart {
    fn from(of: DiskStartArgs) -> Self {
        Self {
            model: of.model.into(),
            real_time: of.real_time,
            name: of.name,
            is_daemon: of.tell,
        }
    }
}
