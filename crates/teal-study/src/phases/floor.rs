//! What a phase would cost if nothing but its user bytes moved.
//!
//! # Definition
//! 1. What is written, and what is read in order: one seek, half a turn at most, and the bytes in
//!    one run.
//! 2. What is read in random order: the files, or pieces, lie in one run in the order in which they
//!    were made; each is fetched where it lies, in the order that is asked for. A better layout
//!    would know that order.
//!
//! The drive takes no time to take in a command and reads nothing ahead.

use super::orders;
use super::plan::{PIECE, PhaseAct, VisitOrder, WorkloadPhase};
use teal_energy::Profile;
use teal_energy::mechanics::{Mechanics, SectorRequest};
use teal_energy::power::MissingFigure;
use teal_energy::profile::DriveElectronics;
use teal_types::{Energy, SECTOR, Sector, Time};

/// The least a phase costs on a disk.
///
/// # Errors
/// A profile without the figures of a disk.
pub fn phase_floor(profile: &Profile, phase: &WorkloadPhase) -> Result<Energy, MissingFigure> {
    let bare = Profile {
        electronics: DriveElectronics::default(),
        ..profile.clone()
    };
    let mut disk = Mechanics::new(&bare)?;
    // Not where the arm rests.
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

/// The runs that must be fetched one after the other: where, and how many bytes.
fn required_runs(phase: &WorkloadPhase) -> Vec<(u64, u64)> {
    match phase.act {
        PhaseAct::Read {
            set,
            order: VisitOrder::Random,
            ..
        } => {
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
        _ => vec![(0, phase.user_bytes())],
    }
}
