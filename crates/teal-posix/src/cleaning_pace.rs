//! The pace of background cleaning: a pure function of its inputs.
//!
//! # Guarantees
//! 1. *Load*: while the store is written to, cleaning begins when little can be written before an
//!    operation must wait, and gains as much as was written since the last round: the rate follows
//!    the load. Cleaning earlier would move content that is about to die.
//! 2. *Idle*: when nothing has been written for a while, on external power, it goes on until a
//!    comfortable share is free, but moves only what gives much back.
//! 3. *Silent*: idle rounds end: each must set at least one segment free, or there is none until
//!    something else is written.

use std::time::Duration;
use teal_log::{SpaceStatus, StoreCounts};

/// Cleaning starts when less than this part of the segments can be written before an operation must
/// wait.
const LOW_PART: u64 = 100;
/// At least so many segments.
const LOW_SEGMENTS: u64 = 4;
/// A round gains at most this part of the segments.
const ROUND_PART: u64 = 20;
/// Nothing was written for so long: the store is idle.
const QUIET: Duration = Duration::from_secs(10);
/// While idle, segments at most this full are moved.
const CHEAP_PERCENT: u32 = 70;
/// The fullest segments that are cleaned while the store is written to, in percent.
const WORTH_PERCENT: u32 = 90;

/// The inputs of a decision about cleaning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CleaningInputs {
    pub(crate) space: SpaceStatus,
    pub(crate) counts: StoreCounts,
    /// Bytes written by others so far.
    pub(crate) written: u64,
    /// Time since the last of them.
    pub(crate) quiet: Duration,
    /// Comfortable share of free segments.
    pub(crate) percent: u32,
    pub(crate) powered: bool,
}

/// A decision about cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CleaningDecision {
    Rest,
    /// Looks again after this time, if nothing happens before.
    Later(Duration),
    /// A round that is to set so many segments free, of those at most so full.
    Clean {
        segments: u64,
        fullest_percent: u32,
    },
}

/// The state that is kept from round to round.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RoundHistory {
    /// The bytes that had been written when the last round was over.
    written: u64,
    /// The bytes that had been written when a round set no segment free.
    futile_at: Option<u64>,
}

impl RoundHistory {
    /// Returns what to do now.
    pub(crate) fn decide(&self, look: &CleaningInputs) -> CleaningDecision {
        let space = &look.space;
        // Nothing was written since a round without gain: another one would find the same.
        if self.futile_at == Some(look.written) {
            return CleaningDecision::Rest;
        }
        let low = (space.segments / LOW_PART).max(LOW_SEGMENTS);
        let most = (space.segments / ROUND_PART).max(LOW_SEGMENTS);
        debug_assert!(low <= most);
        // Under load, the distance to a waiting writer decides.
        if space.before_waiting < low * space.segment_bytes && look.quiet < QUIET {
            // As many segments as were written since the last round: the rate follows the load.
            let since = look.written.saturating_sub(self.written) / space.segment_bytes;
            return CleaningDecision::Clean {
                segments: (low + since).min(most),
                fullest_percent: WORTH_PERCENT,
            };
        }
        let few =
            (space.free_segments + space.ripening) * 100 < space.segments * u64::from(look.percent);
        match QUIET.checked_sub(look.quiet) {
            // On battery, or with enough free segments, nothing is cleaned ahead.
            _ if !few || !look.powered => CleaningDecision::Rest,
            // Cleaning starts only after a quiet time.
            Some(time) if !time.is_zero() => CleaningDecision::Later(time),
            _ => CleaningDecision::Clean {
                segments: most,
                fullest_percent: CHEAP_PERCENT,
            },
        }
    }

    /// Notes what a round has done, from what was seen before and after it.
    pub(crate) fn after_round(before: &CleaningInputs, after: &CleaningInputs) -> Self {
        // A segment that was emptied counts, too, even if it is not free before two checkpoints.
        let gained = after.space.free_segments > before.space.free_segments
            || after.counts.segments_cleaned > before.counts.segments_cleaned
                && before.quiet < QUIET;
        Self {
            written: after.written,
            futile_at: (!gained).then_some(after.written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn look(before_waiting: u64, free_segments: u64, quiet: u64) -> CleaningInputs {
        let space = SpaceStatus {
            total: 900 * MIB,
            free: 200 * MIB,
            free_of_capacity: 200 * MIB,
            live: 700 * MIB,
            set_aside: 0,
            objects: 10,
            free_segments,
            ripening: 0,
            segments: 1000,
            segment_bytes: MIB,
            before_waiting,
        };
        let (counts, quiet) = (StoreCounts::default(), Duration::from_secs(quiet));
        CleaningInputs {
            space,
            counts,
            written: 500 * MIB,
            quiet,
            percent: 10,
            powered: true,
        }
    }

    #[test]
    fn under_load_it_begins_late_and_gains_what_was_written() {
        let rounds = RoundHistory {
            written: 480 * MIB,
            futile_at: None,
        };
        assert_eq!(
            rounds.decide(&look(11 * MIB, 60, 0)),
            CleaningDecision::Later(QUIET),
            "not before it is idle"
        );
        let clean = |segments| CleaningDecision::Clean {
            segments,
            fullest_percent: WORTH_PERCENT,
        };
        assert_eq!(rounds.decide(&look(9 * MIB, 60, 0)), clean(30));
        assert_eq!(
            RoundHistory::default().decide(&look(9 * MIB, 60, 0)),
            clean(50),
            "a round has its bounds"
        );
    }

    #[test]
    fn idle_it_cleans_ahead_of_what_is_cheap_until_enough_is_free() {
        let cheap = CleaningDecision::Clean {
            segments: 50,
            fullest_percent: CHEAP_PERCENT,
        };
        assert_eq!(
            RoundHistory::default().decide(&look(60 * MIB, 99, 10)),
            cheap
        );
        assert_eq!(
            RoundHistory::default().decide(&look(60 * MIB, 100, 10)),
            CleaningDecision::Rest
        );
        assert_eq!(
            RoundHistory::default().decide(&look(60 * MIB, 99, 9)),
            CleaningDecision::Later(Duration::from_secs(1)),
            "not idle yet"
        );
        assert_eq!(
            RoundHistory::default().decide(&CleaningInputs {
                powered: false,
                ..look(60 * MIB, 99, 10)
            }),
            CleaningDecision::Rest
        );
    }

    #[test]
    fn an_idle_store_becomes_silent() {
        let before = look(60 * MIB, 50, 20);
        let rounds = RoundHistory::after_round(&before, &look(60 * MIB, 50, 21));
        assert_eq!(
            rounds.decide(&look(60 * MIB, 50, 3600)),
            CleaningDecision::Rest,
            "a futile round is not repeated"
        );
        let later = CleaningInputs {
            written: 501 * MIB,
            ..look(60 * MIB, 50, 20)
        };
        assert_ne!(
            rounds.decide(&later),
            CleaningDecision::Rest,
            "until something was written"
        );
        assert_ne!(
            RoundHistory::after_round(&before, &look(60 * MIB, 51, 21)).decide(&look(
                60 * MIB,
                51,
                22
            )),
            CleaningDecision::Rest
        );
    }
}
