//! The command line.

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use teal_command::size::parse_size;

/// One directory tree over flash, sleeping disks, portable drives and a server.
#[derive(Debug, Parser)]
#[command(
    name = "teal",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct TealCommandLine {
    #[command(subcommand)]
    pub(crate) command: TealCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TealCommand {
    /// Make a store if there is none yet, and mount it: begin here
    Up(UpArgs),
    /// Unmount, after everything is on the disk
    Down {
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
    /// Make an empty store on a block device or in a file
    Mkfs(MkfsArgs),
    /// Mount a store
    Mount(MountArgs),
    /// Verify every structure and every block of a store that is not mounted, or with --server the
    /// data of the server of a mounted volume
    Check {
        /// The store: a file or block device; with --server the mount point
        path: PathBuf,
        /// Verify the data of the server while it serves: its database, every chunk of content, and
        /// that everything history names is there. What is damaged is stored again if this
        /// machine's own store has it
        #[arg(long, conflicts_with = "quick")]
        server: bool,
        /// Verify the structures only, without reading the content of files
        #[arg(long)]
        quick: bool,
    },
    /// Make a whole store of what can be read of a damaged one, after showing what is lost
    Repair(RepairArgs),
    /// Print a structure of a store, for people
    Dump {
        /// The store: a file or block device
        path: PathBuf,
        /// The structure: superblock, anchors, log, usage, imap, orphans, shared, notes, segment:N,
        /// object:N, dir:N
        what: String,
    },
    /// Show what is mounted, how full it is, and whether everything is safe
    Status {
        /// The mount point [default: all]
        dir: Option<PathBuf>,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Look for troubles of this machine's mounts, and name the way out of each
    Doctor,
    /// Give a volume a server that other machines can join
    Serve(ServeArgs),
    /// Take part in a volume that is served on another machine
    Join(JoinArgs),
    /// Send everything that is only on this machine to the server, now
    Flush {
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
    /// List, show and resolve conflicts: changes of the same thing on two machines
    Conflicts {
        #[command(subcommand)]
        what: ConflictsCommand,
    },
    /// Make, list, attach and detach drives, which hold content of the volume and can be carried
    /// from one machine to another
    Device {
        #[command(subcommand)]
        what: DeviceCommand,
    },
    /// Choose what is always kept on a drive
    Affinity {
        #[command(subcommand)]
        what: AffinityCommand,
    },
    /// Keep a file, or a directory with all that is and comes below it, on this machine
    Pin {
        /// A file or directory on a mount
        path: PathBuf,
    },
    /// Give back the space that a file, or all below a directory, takes on this machine; the
    /// content comes again when it is needed
    Free {
        /// A file or directory on a mount
        path: PathBuf,
    },
    /// Show where the content of a file is and where it would be read from now, or how much of a
    /// directory is on this machine
    Where {
        /// A file or directory on a mount
        path: PathBuf,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Run the program teal-lab, which records and studies workloads and models disks
    #[command(disable_help_flag = true)]
    Lab {
        /// A command of teal-lab with its arguments
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "COMMAND"
        )]
        args: Vec<OsString>,
    },
    /// The daemon's side of `teal lab record`
    #[command(hide = true)]
    Recording(RecordingArgs),
    /// Show or change the settings of a mount
    Config {
        #[command(subcommand)]
        what: ConfigCommand,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RecordingArgs {
    /// The mount point
    pub(crate) dir: PathBuf,
    /// The trace, a new file anywhere but on the mount itself
    #[arg(long, required_unless_present_any = ["stop", "mark"])]
    pub(crate) out: Option<PathBuf>,
    /// End the recording after this time [default: at Ctrl-C]
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// Write hashes instead of names; extensions stay
    #[arg(long)]
    pub(crate) anonymous: bool,
    /// End the present recording
    #[arg(long, conflicts_with_all = ["out", "seconds", "anonymous", "mark"])]
    pub(crate) stop: bool,
    /// Set a mark in the present recording
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["out", "seconds", "anonymous"])]
    pub(crate) mark: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// The mount point [default: ~/Teal]
    pub(crate) dir: Option<PathBuf>,
    /// The store [default: in the XDG data directory, one for each mount point]
    #[arg(long)]
    pub(crate) store: Option<PathBuf>,
    /// The size of a new store, such as 20G [default: four fifths of the free space, at most 1T; it
    /// is taken only as it is used]
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Stay in the foreground and log to the terminal
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Mount the store even if another machine has it open or did not close it; do this only if
    /// that machine surely does not write to it any more
    #[arg(long)]
    pub(crate) take_over: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MkfsArgs {
    /// A block device, or a file that is made
    pub(crate) path: PathBuf,
    /// The size of a new file, such as 500M or 20G
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// A name for people, at most 64 bytes
    #[arg(long, default_value = "")]
    pub(crate) label: String,
    /// Overwrite the file or device
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// The damaged store: a file or block device, which is not written
    pub(crate) path: PathBuf,
    /// The place of the repaired store: a new file, or a block device [default: that of the damaged
    /// one, which stays beside it as PATH.damaged]; what a volume with a server keeps in STORE.d is
    /// not copied there
    #[arg(long, value_name = "DEST")]
    pub(crate) to: Option<PathBuf>,
    /// The size of the repaired store, such as 20G [default: that of the damaged one]
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Write without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Begin anew: overwrite the block device that --to names, or the file PATH.repairing or
    /// DEST.repairing
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The store: a file or block device
    pub(crate) path: PathBuf,
    /// The mount point, an empty directory
    pub(crate) dir: PathBuf,
    /// Mount options; the last of those that contradict each other holds: ro, salvage, noatime,
    /// strictatime, observed (every access of a program becomes a request, for `teal lab record`),
    /// commit=SECONDS, checkpoint=SECONDS, checkpoint_bytes=SIZE, threads=N, uring=auto|on|off,
    /// flush=SECONDS, queue=SIZE, sync=local|remote
    #[arg(short, long, value_delimiter = ',')]
    pub(crate) options: Vec<String>,
    /// Stay in the foreground and log to the terminal
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Tell the parent on standard output once mounted
    #[arg(long, hide = true)]
    pub(crate) tell: bool,
    /// Mount the store even if another machine has it open or did not close it; do this only if
    /// that machine surely does not write to it any more
    #[arg(long)]
    pub(crate) take_over: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The place where the volume is mounted, or is to be mounted [default: ~/Teal]
    pub(crate) dir: Option<PathBuf>,
    /// The address to listen on [default: 0.0.0.0:4717]
    #[arg(long)]
    pub(crate) listen: Option<String>,
    /// The directory in which the server keeps metadata and chunks [default: beside the store]
    #[arg(long)]
    pub(crate) data: Option<PathBuf>,
    /// The store [default: that of `teal up`]
    #[arg(long)]
    pub(crate) store: Option<PathBuf>,
    /// The size of a new store, such as 20G
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// The name of this machine in conflicts and lists [default: its host name]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Shut a machine out, by its number in `teal status`
    #[arg(long, value_name = "REPLICA", conflicts_with = "readmit")]
    pub(crate) revoke: Option<u32>,
    /// Let a machine in again that was shut out, by its number in `teal status`
    #[arg(long, value_name = "REPLICA")]
    pub(crate) readmit: Option<u32>,
    /// Shut the machine out without asking
    #[arg(long, requires = "revoke")]
    pub(crate) yes: bool,
    /// Stay in the foreground and log to the terminal
    #[arg(long)]
    pub(crate) foreground: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The serving machine, with :PORT if it is not 4717
    pub(crate) host: String,
    /// The mount point [default: ~/Teal]
    pub(crate) dir: Option<PathBuf>,
    /// The token that `teal serve` printed
    #[arg(long)]
    pub(crate) token: String,
    /// The store [default: that of `teal up`]
    #[arg(long)]
    pub(crate) store: Option<PathBuf>,
    /// The size of the store, such as 20G
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// The name of this machine in conflicts and lists [default: its host name]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Stay in the foreground and log to the terminal
    #[arg(long)]
    pub(crate) foreground: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConflictsCommand {
    /// List the conflicts that are not resolved yet
    Ls {
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
    /// Show a conflict
    Show {
        /// The number of the conflict
        id: u64,
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
    /// Mark a conflict as resolved, and choose what stays
    Resolve {
        /// The number of the conflict
        id: u64,
        /// The state that stays
        #[arg(long, value_enum, default_value_t = ConflictKeep::Both)]
        keep: ConflictKeep,
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
}

/// The states of a conflict that stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ConflictKeep {
    /// Both, as they are
    Both,
    /// The state that came first; the conflict copy goes
    First,
    /// The conflict copy, in the place of the first
    Later,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// Make a drive on a block device, or in a file on any file system, and attach it
    Add {
        /// A block device, or a file that is made
        path: PathBuf,
        /// The size of a new file, such as 500M or 20G
        #[arg(long, value_parser = parse_size)]
        size: Option<u64>,
        /// The name of the drive [default: that of the file]
        #[arg(long)]
        name: Option<String>,
        /// The name of a device profile, such as samsung-850-pro or seagate-barracuda-es, for the
        /// drive's joules and times
        #[arg(long)]
        profile: Option<String>,
        /// Say that the drive is meant to be carried around
        #[arg(long)]
        portable: bool,
        /// Overwrite the file or device; its content is lost
        #[arg(long)]
        force: bool,
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
    /// List the drives of the volume
    Ls {
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
    /// Attach a drive, now and whenever it is there again
    Attach {
        /// The place of the drive: its file or block device
        path: PathBuf,
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
    /// Bring a drive up to date and let go of it, so that it may be unplugged
    Detach {
        /// The name or the place of the drive
        name: String,
        /// Let go of the drive at once, without the changes that wait to be copied
        #[arg(long)]
        fast: bool,
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
    /// Remove a drive from the volume; its file stays, but is of no use any more
    Rm {
        /// The name of the drive
        name: String,
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AffinityCommand {
    /// Keep a file, or a directory with all in it, on a drive
    Add {
        /// A file or directory on a mount
        path: PathBuf,
        /// The drive's name
        drive: String,
        /// Also keep whatever comes into the directory
        #[arg(long)]
        sticky: bool,
    },
    /// List what is kept on a drive
    Ls {
        /// The drive's name
        drive: String,
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
    /// Let a file or directory make way again for files that are used more
    Rm {
        /// A file or directory on a mount
        path: PathBuf,
        /// The drive's name
        drive: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the settings
    Ls {
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
    /// Change a setting until the next unmount
    Set {
        /// The setting: commit-seconds, checkpoint-seconds, checkpoint-bytes, batch-bytes,
        /// clean-below-percent, priority
        key: String,
        /// The value, a number; sizes may end in K, M or G; the priority goes from 0 (joules) to 1
        /// (speed)
        value: String,
        /// The mount point [default: ~/Teal]
        dir: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        TealCommandLine::command().debug_assert();
    }
}
