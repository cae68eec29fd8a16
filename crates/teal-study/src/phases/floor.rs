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
use super::plan::{Act, Order, PIECE, Phase};
use teal_energy::Profile;
use teal_energy::mechanics::{Mechanics, Request};
use teal_energy::power::Missing;
use teal_energy::profile::Electronics;
use teal_types::{Energy, SECTOR, Sector, Time};

/// The least a phase costs on a disk.
///
/// # Errors
/// A profile without the figures of a disk.
pub fn floor(profile: &Profile, phase: &Phase) -> Result<Energy, Missing> {
    let bare = Profile {
        electronics: Electronics::default(),
        ..profile.clone()
    };
    let mut disk = Mechanics::new(&bare)?;
    // Not where the arm rests.
    let base = disk.sectors() / 3;
    let mut now = Time::ZERO;
    let mut sum = Energy::ZERO;
    for (at, bytes) in runs(phase) {
        let (at, count) = (Sector::new(base + at / SECTOR), bytes.div_ceil(SECTOR));
        let request = if phase.writes() {
            Request::Write {
                at,
                count,
                fua: true,
            }
        } else {
            Request::Read { at, count }
        };
        let served = disk.serve(now, request);
        now = served.done;
        sum += served.job.energy();
    }
    Ok(sum)
}

/// The runs that must be fetched one after the other: where, and how many bytes.
fn runs(phase: &Phase) -> Vec<(u64, u64)> {
    match phase.act {
        Act::Read {
            set,
            order: Order::Random,
            ..
        } => {
            let sizes = set.sizes();
            let starts = sizes.iter().scan(0, |next, size| {
                *next += size;
                Some(*next - size)
            });
            let starts: Vec<u64> = starts.collect();
            let order = orders::shuffled(set.count, set.count, Order::SEED);
            order
                .iter()
                .map(|at| (starts[*at as usize], sizes[*at as usize]))
                .collect()
        }
        Act::Touch {
            set,
            pieces,
            write: false,
            seed,
        } => orders::shuffled(set.bytes / PIECE, pieces, seed)
            .iter()
            .map(|at| (at * PIECE, PIECE))
            .collect(),
        _ if phase.bytes() == 0 => Vec::new(),
        _ => vec![(0, phase.bytes())],
    }
}
