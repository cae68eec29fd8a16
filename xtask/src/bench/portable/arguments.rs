//! The arguments of `cargo xtask bench portable`.

use crate::arguments::{count, positive};
use std::path::PathBuf;

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum PortablePart {
    Lines,
    First,
    Jump,
}

/// Replays recorded activity with and without a drive, over slow lines (root).
#[derive(Debug, clap::Args)]
pub(crate) struct PortableArguments {
    /// Only this part
    #[arg(long, value_name = "PART")]
    pub(super) only: Option<PortablePart>,
    /// Rounds through all lines
    #[arg(long, value_name = "N", default_value = "1", value_parser = count(1))]
    pub(super) rounds: usize,
    /// Round trips to the server in milliseconds
    #[arg(
        long,
        value_name = "MS,MS,...",
        value_delimiter = ',',
        default_value = "0,30,60"
    )]
    pub(super) delays: Vec<u64>,
    /// Bandwidths of the line each way, in Mbit/s
    #[arg(
        long,
        value_name = "MBIT,MBIT,...",
        value_delimiter = ',',
        default_value = "2,11",
        value_parser = positive
    )]
    pub(super) rates: Vec<f64>,
    /// Raw samples; the table goes beside them as .md [default: target/bench/portable.json]
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// The directory of stores, drives and mounts [default: target/bench]
    #[arg(long)]
    pub(super) dir: Option<PathBuf>,
}
