//! Computes the cost of a phase if only its user bytes moved.
//!
//! # Definition
//! 1. Written data, and data that is read in order: one seek, half a turn at most, and the bytes in
//!    one run.
//! 2. Data that is read in random order: the files, or pieces, lie in one run in the order in which
//!    they were made. Each is fetched from its place, in the order that is asked for. A better
//!    layout would have to know that order.
//!
//! The drive takes no time to take in a command and reads nothing ahead.

use super::orders;
use super::plan::{PIECE, PhaseAct, VisitOrder, WorkloadPhase};
use teal_energy::Profile;
use teal_energy::mechanics::{Mechanics, SectorRequest};
use teal_energy::power::MissingFigure;
use teal_energy::profile::DriveElectronics;
use teal_types::{Energy, SECTOR, Sector, Time};

/// Returns the least energy of a phase on a disk.
///
/// # Errors
/// Returns the figure of a disk that the profile lacks.
pub fn phase_floor(profile: &Profile, phase: &WorkloadPhase) -> Result<Energy, MissingFigure> {
    // The bare mechanics: no time for commands, no cache.
    let bare = Profile {
        electronics: DriveElectronics::default(),
        ..profile.clone()
    };
    let mut disk = Mechanics::new(&bare)?;
    // The run lies away from the rest position of the arm.
    let base = disk.sector_count() / 3;
    let mut now = Time::ZERO;
    let mut sum = Energy::ZERO;
    for (at, bytes) in required_runs(phase) {
        let (at, count) = (Sector::new(base + at / SECTOR), bytes.div_ceil(SECTOR));
        let request = if phase.is_write() {
            SectorRequest::Write {
                at,
                count,
                fua: true,
            }
        } else {
            SectorRequest::Read { at, count }
        };
        let served = disk.serve_request(now, request);
        now = served.done;
        sum += served.job.total_energy();
    }
    Ok(sum)
}

/// Returns the runs that must be fetched one after the other: offset, and number of bytes.
fn required_runs(phase: &WorkloadPhase) -> Vec<(u64, u64)> {
    match phase.act {
        PhaseAct::Read {
            set,
            order: VisitOrder::Random,
            ..
        } => {
            // The files lie one behind the other, in the order in which they were made.
            let sizes = set.file_sizes();
            let starts = sizes.iter().scan(0, |next, size| {
                *next += size;
                Some(*next - size)
            });
            let starts: Vec<u64> = starts.collect();
            let order = orders::shuffle_places(set.count, set.count, VisitOrder::SEED);
            order
                .iter()
                .map(|at| (starts[*at as usize], sizes[*at as usize]))
                .collect()
        }
        PhaseAct::Touch {
            set,
            pieces,
            write: false,
            seed,
        } => orders::shuffle_places(set.bytes / PIECE, pieces, seed)
            .iter()
            .map(|at| (at * PIECE, PIECE))
            .collect(),
        _ if phase.user_bytes() == 0 => Vec::new(),
        // Everything in order is one run.
        _ => vec![(0, phase.user_bytes())],
    }
}
