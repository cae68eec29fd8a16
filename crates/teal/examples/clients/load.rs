//! When a client of GreenFS asks its server for something (Joukov and Sipek 2008, 4.2).
//!
//! # Guarantees
//! 1. *The paper's day*: of the 2,880 half minutes of a day 3 have 10,000 to 15,000 requests, 17
//!    have 1,000 to 10,000, 505 have 100 to 1,000, and all together make [`MEAN`] requests a
//!    second.
//! 2. *Repeatable*: the same seed makes the same requests.
//!
//! The paper gives ranges, not sizes; the sizes here are the ones in the ranges that lead to its
//! mean with next to nothing in between.

use std::time::Duration;
use teal_testkit::Rng;

/// Requests of one client per second.
pub(crate) const MEAN: f64 = 1.3;
/// The length of the paper's spikes.
pub(crate) const WINDOW: Duration = Duration::from_secs(30);
/// Half minutes of a day.
const WINDOWS: u64 = 2880;
/// Spikes of a day, and their requests.
const SPIKES: [(u64, u64); 3] = [(3, 11_000), (17, 1_400), (505, 100)];
/// Operations that change something, of a hundred thousand: 5.6 % in the paper's table 3.
const UPDATES: u64 = 5_600;

/// The kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Read,
    /// A new file; it goes with the next flush.
    Update,
}

/// Returns how many requests the next half minute has.
pub(crate) fn window(rng: &mut Rng) -> u64 {
    let mut drawn = rng.below(WINDOWS);
    for (count, requests) in SPIKES {
        match drawn.checked_sub(count) {
            None => return requests,
            Some(rest) => drawn = rest,
        }
    }
    // The mean that the spikes leave for all other half minutes.
    let spikes: u64 = SPIKES
        .iter()
        .map(|(count, requests)| count * requests)
        .sum();
    let rest = (MEAN * WINDOW.as_secs_f64()).mul_add(WINDOWS as f64, -(spikes as f64));
    let quiet = WINDOWS - SPIKES.iter().map(|(count, _)| count).sum::<u64>();
    let least = (rest / quiet as f64).floor();
    least as u64 + u64::from(rng.chance(rest / quiet as f64 - least))
}

/// Returns what the next request is.
pub(crate) fn ask(rng: &mut Rng) -> Ask {
    if rng.below(100_000) < UPDATES {
        Ask::Update
    } else {
        Ask::Read
    }
}

/// Returns what so many thousandths of some times do not exceed.
pub(crate) fn percentile(times: &mut [Duration], thousandths: usize) -> Duration {
    times.sort_unstable();
    let at = (times.len() * thousandths / 1000).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_asks_as_often_as_in_the_paper_and_in_its_bursts() {
        let mut rng = Rng::new(1);
        let days = 200;
        let windows: Vec<u64> = (0..days * WINDOWS).map(|_| window(&mut rng)).collect();
        let mean = windows.iter().sum::<u64>() as f64 / windows.len() as f64 / WINDOW.as_secs_f64();
        assert!((mean - MEAN).abs() < 0.1, "{mean}");
        let a_day = |range: std::ops::Range<u64>| {
            windows.iter().filter(|n| range.contains(n)).count() as f64 / days as f64
        };
        for (count, range) in [
            (3.0, 10_000..15_001),
            (17.0, 1_000..10_000),
            (505.0, 100..1_000),
        ] {
            let found = a_day(range);
            assert!((found / count - 1.0).abs() < 0.2, "{found} {count}");
        }
        let updates = (0..10_000).filter(|_| ask(&mut rng) == Ask::Update).count();
        assert!((400..700).contains(&updates), "{updates}");
    }

    #[test]
    fn percentiles_are_of_sorted_times() {
        let mut times: Vec<Duration> = (1..=1000).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&mut times, 500), Duration::from_millis(501));
        assert_eq!(percentile(&mut times, 990), Duration::from_millis(991));
        assert_eq!(percentile(&mut [], 990), Duration::ZERO);
    }
}
