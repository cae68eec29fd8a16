//! The command line of `teal lab`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Record what programs ask of a mount, until the time is over or Ctrl-C
    Record(Record),
    /// Look at traces, read those of others
    Trace {
        #[command(subcommand)]
        what: Trace,
    },
    /// Disks that are modelled: block devices on which every file system runs, with a log and joules
    Disk {
        #[command(subcommand)]
        what: crate::lab::Disk,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Record {
    /// The mount point
    pub(crate) dir: PathBuf,
    /// The trace, a new file anywhere but on the mount itself
    #[arg(long, required_unless_present_any = ["stop", "mark"])]
    pub(crate) out: Option<PathBuf>,
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

#[derive(Debug, Subcommand)]
pub(crate) enum Trace {
    /// Print a trace as text, one line an event
    Show {
        /// The trace
        file: PathBuf,
        /// Say behind each event what its object is called at that time
        #[arg(long)]
        paths: bool,
    },
    /// Read a trace of another format
    Import(Import),
    /// Counts, bytes, idle gaps, sequentiality
    Stat {
        /// The trace
        file: PathBuf,
        /// For programs
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The format of the input
    #[arg(long)]
    pub(crate) from: Format,
    /// The input; - is standard input. All processors' files of a run of blktrace together
    #[arg(required = true)]
    pub(crate) input: Vec<PathBuf>,
    /// The trace, a new file
    #[arg(long)]
    pub(crate) out: PathBuf,
    /// Of blktrace: where requests begin
    #[arg(long, value_enum, default_value_t = At::Issue)]
    pub(crate) at: At,
    /// Of oracle-general: objects are places on a device, in units of so many bytes [default: they are files]
    #[arg(long, value_parser = super::parse_size)]
    pub(crate) unit: Option<u64>,
    /// A word on where it comes from, for the header [default: format and names of the input]
    #[arg(long)]
    pub(crate) source: Option<String>,
}

/// Formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// What `trace show` prints
    Text,
    /// The kernel's block trace, as blktrace writes it
    Blktrace,
    /// CloudPhysics's traces of virtual disks, version 1 or 2
    Vscsi,
    /// libCacheSim's oracleGeneral, uncompressed
    OracleGeneral,
}

/// Where a request of a block trace begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum At {
    /// Where the driver gets it
    Issue,
    /// Where the file system asks for it
    Queue,
}

/// Reads a time: a number with an optional s, m, h or d.
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
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is no time; say 90s, 10m, 8h or 2d"))?;
    match number.checked_mul(seconds) {
        None => Err("too long".into()),
        Some(0) => Err("nothing can be recorded in no time".into()),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("8h", 28_800), ("2d", 172_800)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "s", "0", "-1", "1.5h", "10w", "99999999999999999999", "9999999999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
