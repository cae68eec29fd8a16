//! Defines the command line.

mod disk;
mod trace;

pub(crate) use disk::DiskCommand;
pub(crate) use trace::{ImportArgs, ImportFormat, RequestBegin, TraceCommand};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use teal_command::size::parse_size;

/// Record and study workloads, model disks.
#[derive(Debug, Parser)]
#[command(
    name = "teal-lab",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct LabCommandLine {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Record what programs ask of a mount, until the time is over or Ctrl-C
    Record(RecordArgs),
    /// Look at traces, read those of others
    Trace {
        #[command(subcommand)]
        what: TraceCommand,
    },
    /// Run a trace in virtual time on a machine made of profiles: joules, delays and wake-ups under
    /// each policy
    Replay(ReplayArgs),
    /// Make up a trace with the totals that a paper published of one: jeff, purcell, messiaen,
    /// robin, berlioz
    Generate(GenerateArgs),
    /// Re-enact a figure of a paper on the models, theirs beside ours: bluefs-4, 7, 8, 9,
    /// greenfs-3, 4, 5, greenfs-jeff, or all
    Reenact {
        /// Which
        name: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Run a workload: a script in Filebench's language, or one of `teal lab workloads`, on
    /// whatever file system DIR is on
    Run(RunArgs),
    /// Run a matrix: workloads on file systems with their options under schedulers; what to take,
    /// in operations a second and for each joule
    Matrix(MatrixArgs),
    /// Measure the phases of scherlfs on file systems: joules by phase on a modelled disk, beside
    /// the physical floor
    Phases(PhasesArgs),
    /// The host's side of a guest, in namespaces of its own
    #[command(hide = true)]
    GuestHost,
    /// The first program of a guest
    #[command(hide = true)]
    Guest,
    /// Search for the file system, options and scheduler that are best for a workload on a device,
    /// and print the commands
    Tune(TuneArgs),
    /// Compare two results of a matrix, or two outputs of `teal lab run --json`; status 3 if a
    /// workload is worse, with 95 %
    Compare(CompareArgs),
    /// List the workloads that come with the program
    Workloads {
        /// Print the script of this one
        name: Option<String>,
    },
    /// Disks that are modelled: block devices on which every file system runs, with a log and
    /// joules
    Disk {
        #[command(subcommand)]
        what: DiskCommand,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A script, or a workload's name
    pub(crate) workload: String,
    /// Directory in which its files are made; those of an earlier run are made anew
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// End after so many seconds, whatever the script says
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) seconds: Option<u64>,
    /// End after so many operations, whatever the script says; or after its seconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,
    /// Factor on the number of files, such as 0.02; where there are few, on their sizes
    #[arg(long, default_value = "1", value_parser = parse_scale)]
    pub(crate) scale: f64,
    /// Seed of all random numbers; the same seed gives the same ones
    #[arg(long, default_value = "1")]
    pub(crate) seed: u64,
    /// A variable of the script, whatever it sets it to
    #[arg(long, value_name = "VARIABLE=VALUE", value_parser = parse_setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Write all figures into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the figures of each second into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Filebench's known bugs and its form of figures, where results must be compared with its own
    #[arg(long)]
    pub(crate) strict_filebench: bool,
    /// Say what would be done, and whether there is room
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Names the results of measurements, which go on after an interruption.
#[derive(Debug, Args)]
pub(crate) struct ResultsArgs {
    /// A directory for what is measured and the report; what is there already is not measured again
    #[arg(long, value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Say what would be measured: how much, how long, at what risk
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Measure nothing, make the report anew
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) only_report: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MatrixArgs {
    /// The matrix, a TOML file
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) kept: ResultsArgs,
    /// The matrix's real device, again: everything on it will be lost
    #[arg(long, value_name = "DEVICE")]
    pub(crate) erase: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PhasesArgs {
    /// The modelled disk: a shipped profile's name, or a file
    #[arg(long)]
    pub(crate) profile: String,
    /// File systems: ext2, ext3, ext4, xfs, btrfs, reiserfs, jfs, nilfs2, f2fs, vfat, teal;
    /// ext4@guest runs it in a guest, ext4@host here
    #[arg(long, value_delimiter = ',', required = true)]
    pub(crate) systems: Vec<String>,
    /// Groups of phases: 4k, 32k, 1024k, update, camera, camera-64k, mp3, fragmented [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(crate) groups: Vec<String>,
    /// T: synced after each write call, page cache dropped after each operation; F: fsync of each
    /// file; C: cached, synced at the end
    #[arg(long, value_enum, default_value = "t", ignore_case = true)]
    pub(crate) mode: PhasesMode,
    /// Factor on the number of files and accesses
    #[arg(long, default_value = "1", value_parser = parse_scale)]
    pub(crate) scale: f64,
    /// The disk's size [default: what the profile holds]
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    #[command(flatten)]
    pub(crate) kept: ResultsArgs,
}

/// Says when written data has to be on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PhasesMode {
    /// As in the thesis
    T,
    /// fsync
    F,
    /// Cached
    C,
}

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// A script, or a workload's name
    #[arg(long, required_unless_present = "replay", requires = "results")]
    pub(crate) workload: Option<String>,
    /// A block device, or a modelled disk as PROFILE:SIZE, such as desktop-7200rpm-composed:4G
    #[arg(long, required_unless_present = "replay")]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) kept: Option<ResultsArgs>,
    /// Begin no run that would end after this time, if it takes as long as the longest so far; such
    /// as 30m or 2h
    #[arg(long, value_parser = parse_duration, default_value = "1h")]
    pub(crate) budget: Duration,
    /// Goal of the search
    #[arg(long, value_enum, default_value_t = AimArg::Both)]
    pub(crate) aim: AimArg,
    /// A matrix: its file systems and schedulers are those to choose from, the first ones the
    /// reference [default: what is installed]
    #[arg(long, value_name = "FILE")]
    pub(crate) space: Option<PathBuf>,
    /// Try options that cost safety, too; what they cost is said
    #[arg(long)]
    pub(crate) risky: bool,
    /// Run all of them in guests, those that this machine's kernel lacks among them: one kernel for
    /// all. For modelled disks
    #[arg(long, conflicts_with_all = ["space", "replay"])]
    pub(crate) guests: bool,
    /// A variable of the script
    #[arg(long, value_name = "VARIABLE=VALUE", value_parser = parse_setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Factor on the workload's file sets
    #[arg(long, default_value = "1", value_parser = parse_scale)]
    pub(crate) scale: f64,
    /// A run's length
    #[arg(long, default_value = "30", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// A run ends after so many operations, or after its seconds: what runs on modelled disks need
    /// to be alike
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,
    /// Memory for the kernel's caches, beside what the workload's threads hold [default: all there
    /// is]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<u64>,
    /// Fill each file system first, and leave so many percent of those files: 1 to 80 [default: it
    /// is fresh]
    #[arg(long, value_name = "PERCENT")]
    pub(crate) aged: Option<u64>,
    /// Seed of the order and of the workloads
    #[arg(long, default_value = "1")]
    pub(crate) seed: u64,
    /// Blocks at most
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) blocks: u32,
    /// The device, again: everything on it will be lost
    #[arg(long, value_name = "DEVICE")]
    pub(crate) erase: Option<PathBuf>,
    /// Run nothing: replay the runs of a matrix with their noise, and say how often the best is
    /// found
    #[arg(long, value_name = "DIR", conflicts_with_all = ["workload", "device", "results"])]
    pub(crate) replay: Option<PathBuf>,
    /// Number of searches of a replay
    #[arg(long, default_value = "100", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) seeds: u64,
    /// Part of the runs that a search of a replay may take
    #[arg(long, default_value = "0.45", value_parser = parse_scale)]
    pub(crate) part: f64,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Results: a directory, or a file of `teal lab run --json`
    pub(crate) before: PathBuf,
    /// Other results of the same kind
    #[arg(required_unless_present_any = ["system", "scheduler"])]
    pub(crate) after: Option<PathBuf>,
    /// Compare what did other work, too: another script, scale, number of operations, or an
    /// interrupted run
    #[arg(long)]
    pub(crate) anyway: bool,
    /// Within one directory: every other file system by this one, over all schedulers
    #[arg(long, value_name = "NAME", conflicts_with_all = ["after", "scheduler"])]
    pub(crate) system: Option<String>,
    /// Within one directory: every other scheduler by this one, over all file systems
    #[arg(long, value_name = "NAME", conflicts_with = "after")]
    pub(crate) scheduler: Option<String>,
    /// For programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Names the goal of a search.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum AimArg {
    /// Operations a second
    Rate,
    /// Operations for each joule
    Joule,
    /// Both: the geometric mean of the two
    Both,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The mount point
    pub(crate) dir: PathBuf,
    /// The trace, a new file anywhere but on the mount itself
    #[arg(long, required_unless_present_any = ["stop", "mark", "wml"])]
    pub(crate) out: Option<PathBuf>,
    /// Write what was done as a workload that `teal lab run`, `matrix` and `tune` take, into this
    /// new file; mounted with -o observed it is all that was asked
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stop", "mark"])]
    pub(crate) wml: Option<PathBuf>,
    /// End after this time, such as 90s, 10m, 8h [default: at Ctrl-C]
    #[arg(long = "for", value_parser = parse_duration)]
    pub(crate) limit: Option<Duration>,
    /// Write hashes instead of names; extensions stay
    #[arg(long)]
    pub(crate) anonymous: bool,
    /// End the recording that is on its way
    #[arg(long, conflicts_with_all = ["out", "limit", "anonymous", "mark"])]
    pub(crate) stop: bool,
    /// Set a mark in the recording that is on its way, such as the name of a phase
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["out", "limit", "anonymous"])]
    pub(crate) mark: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// The paper's name for it: jeff (GreenFS), purcell, messiaen, robin or berlioz (BlueFS)
    pub(crate) name: String,
    /// The pauses, which no totals fix: even, random (Poisson) or sessions (few long ones)
    #[arg(long)]
    pub(crate) gaps: String,
    /// Seed of all random numbers; the same seed gives the same trace
    #[arg(long, default_value = "1")]
    pub(crate) seed: u64,
    /// The trace, a new file
    #[arg(long, short)]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The trace, of file level
    pub(crate) trace: PathBuf,
    /// A machine (handheld, laptop, desktop, home-server), or profiles with commas between: shipped
    /// ones or files
    #[arg(long, value_delimiter = ',', required = true)]
    pub(crate) profiles: Vec<String>,
    /// Policies: always-on, time-out[=30s], coda[=2s], bluefs, greenfs, teal; a time-out without a
    /// time is the best of ten
    #[arg(long, value_delimiter = ',', default_value = "all")]
    pub(crate) policy: Vec<String>,
    #[command(flatten)]
    pub(crate) conditions: ReplayConditions,
    /// The clairvoyant bound for traces of at most so many events at the devices: it may take
    /// minutes [default: 200 shared by the devices]
    #[arg(long, value_name = "EVENTS")]
    pub(crate) bound: Option<usize>,
    /// For programs; microjoules and nanoseconds
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw energy, delays and wake-ups into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Tell about one decision of one policy: its number, or the first from a time on, such as 90s
    /// or 0:01:30.5
    #[arg(long, value_name = "NUMBER|TIME")]
    pub(crate) explain: Option<String>,
}

// Holds what a trace does not tell: the machine and its content.
#[derive(Debug, Args)]
pub(crate) struct ReplayConditions {
    /// Each file is on one of the disks, not on all
    #[arg(long)]
    pub(crate) spread: bool,
    /// Keep the pauses of the trace: what takes longer moves everything after it
    #[arg(long)]
    pub(crate) closed: bool,
    /// Powered, not on battery
    #[arg(long)]
    pub(crate) powered: bool,
    /// Page cache in front of the devices [default: none, as recordings are made below one]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    pub(crate) memory: u64,
    /// Room on devices that keep what is read elsewhere [default: enough]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) cache: Option<u64>,
    /// Part of the files that disks hold at the beginning; a link has all
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "100",
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    pub(crate) warm: u8,
}

/// Parses a time: a number with an optional s, m, h or d.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(digits) => (digits, text.as_bytes()[digits.len()]),
        None => (text, b's'),
    };
    let seconds: u64 = match unit {
        b'm' => 60,
        b'h' => 3600,
        b'd' => 86_400,
        _ => 1,
    };
    let number: u64 = digits.parse().map_err(|_| no_time(text))?;
    match number.checked_mul(seconds) {
        None => Err(format!(
            "{text} is too long a time: at most 18446744073709551615 seconds, such as 2d"
        )),
        Some(0) => Err(format!(
            "{text} is no time at all: give 1 second or more, such as 90s, 10m, 8h or 2d"
        )),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
    }
}

fn no_time(text: &str) -> String {
    format!(
        "'{text}' is no time: give a whole number of seconds, or one with s, m, h or d, such as \
         90s, 10m, 8h or 2d"
    )
}

/// Parses a factor above 0.
fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 1000.0 => Ok(scale),
        _ => Err(format!(
            "'{text}' is no scale: give a factor above 0 and at most 1000, such as 0.02"
        )),
    }
}

/// Parses `variable=value`, with or without `$`.
fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.trim_start_matches('$').split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!(
            "'{text}' sets nothing: give the name of a variable and its value, such as files=1000"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <LabCommandLine as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn durations() {
        for (text, seconds) in [
            ("90", 90),
            ("90s", 90),
            ("10m", 600),
            ("8h", 28_800),
            ("2d", 172_800),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        for bad in [
            "",
            "s",
            "0",
            "-1",
            "1.5h",
            "10w",
            "99999999999999999999",
            "9999999999999999999d",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
