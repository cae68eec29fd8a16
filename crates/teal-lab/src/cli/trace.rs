//! Defines the command line of `teal lab trace`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use teal_command::size::parse_size;

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Print a trace as text, one line an event
    Show {
        /// The trace
        file: PathBuf,
        /// Say behind each event what its object is called at that time
        #[arg(long)]
        paths: bool,
    },
    /// Read a trace of another format
    Import(ImportArgs),
    /// Make a workload of a trace of file level, as `teal lab record --wml` does; files that were
    /// not touched are not in it
    Characterise {
        /// The trace
        file: PathBuf,
        /// The script, a new file
        #[arg(long, value_name = "FILE")]
        wml: PathBuf,
    },
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
pub(crate) struct ImportArgs {
    /// The format of the input
    #[arg(long)]
    pub(crate) from: ImportFormat,
    /// The input; - is standard input. All processors' files of a run of blktrace together
    #[arg(required = true)]
    pub(crate) input: Vec<PathBuf>,
    /// The trace, a new file
    #[arg(long)]
    pub(crate) out: PathBuf,
    /// Point at which requests of blktrace begin
    #[arg(long, value_enum, default_value_t = RequestBegin::Issue)]
    pub(crate) at: RequestBegin,
    /// Bytes of a place for oracle-general: objects are places on a device, in units of this size
    /// [default: they are files]
    #[arg(long, value_parser = parse_size)]
    pub(crate) unit: Option<u64>,
    /// A word on where it comes from, for the header [default: format and names of the input]
    #[arg(long)]
    pub(crate) source: Option<String>,
}

/// Names the formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// The text that `trace show` prints
    Text,
    /// The kernel's block trace, as blktrace writes it
    Blktrace,
    /// CloudPhysics's traces of virtual disks, version 1 or 2
    Vscsi,
    /// Accesses to objects of a cache, in the binary format that the simulator libCacheSim calls
    /// oracleGeneral; uncompressed
    OracleGeneral,
}

/// Names the point at which a request of a block trace begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RequestBegin {
    /// The driver gets it
    Issue,
    /// The file system asks for it
    Queue,
}
