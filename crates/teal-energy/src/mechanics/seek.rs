//! The time of a seek by its distance.
//!
//! # Guarantees
//! 1. No distance takes no time; times grow with the distance.
//! 2. Over pairs of places chosen at random, the mean is the given average; the shortest and
//!    longest seek are the given ones.
//!
//! With `x` the distance as a part of the whole surface, `t(x) = track + c1 sqrt(x) + c2 x`. Two
//! random places are `x` apart with density `2 (1 - x)`, so that the means of `sqrt(x)` and `x` are
//! 8/15 and 1/3, which gives both constants. Where only the average is known, every seek takes
//! that.

use crate::profile::SeekTimes;
use teal_types::TimeSpan;

/// One, in fixed point.
const ONE: u128 = 1 << 32;

#[derive(Debug, Clone, Copy)]
pub(super) struct SeekCurve {
    track: i128,
    root: i128,
    linear: i128,
    switch: TimeSpan,
}

impl SeekCurve {
    /// `None` if no growing curve has these three times.
    pub(super) fn new(seek: SeekTimes) -> Option<Self> {
        let nanos = |span: TimeSpan| i128::from(span.get());
        let Some((track, full)) = seek.extremes else {
            return Some(Self {
                track: nanos(seek.average),
                root: 0,
                linear: 0,
                switch: TimeSpan::ZERO,
            });
        };
        let (average, whole) = (
            nanos(seek.average) - nanos(track),
            nanos(full) - nanos(track),
        );
        // Both constants follow from the means of `sqrt(x)` and `x` over random pairs (see above).
        let root = (15 * average - 5 * whole) / 3;
        let linear = whole - root;
        // The derivative is smallest at the longest distance; it must not be negative there.
        let grows = root >= 0 && root / 2 + linear >= 0;
        grows.then_some(Self {
            track: nanos(track),
            root,
            linear,
            switch: track,
        })
    }

    /// Returns the time to the next track in a stream. It is zero where it is not known: streams
    /// are then as fast as the surface.
    pub(super) fn track_switch(&self) -> TimeSpan {
        self.switch
    }

    pub(super) fn seek_time(&self, distance: u64, tracks: u64) -> TimeSpan {
        match distance {
            0 => TimeSpan::ZERO,
            1 => self.switch,
            _ => {
                // The distance as a part of the surface, in fixed point.
                let x = u128::from(distance) * ONE / u128::from(tracks.max(1));
                let root = (x * ONE).isqrt();
                let part = |factor: i128, of: u128| {
                    factor * i128::try_from(of).unwrap_or(i128::MAX) / (1 << 32)
                };
                let nanos = self.track + part(self.root, root) + part(self.linear, x);
                TimeSpan::from_nanos(u64::try_from(nanos).unwrap_or(0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(average: u64, track: u64, full: u64) -> Option<SeekCurve> {
        let extremes = Some((TimeSpan::from_micros(track), TimeSpan::from_micros(full)));
        SeekCurve::new(SeekTimes {
            average: TimeSpan::from_micros(average),
            extremes,
        })
    }

    #[test]
    fn the_mean_over_random_pairs_is_the_given_average() {
        for (average, track, full) in [
            (12_000, 1_000, 20_000),
            (8_500, 800, 18_000),
            (9_000, 500, 16_000),
        ] {
            let curve = curve(average, track, full).unwrap();
            let tracks = 400_u64;
            let total: u64 = (0..tracks)
                .flat_map(|a| (0..tracks).map(move |b| a.abs_diff(b)))
                .map(|d| curve.seek_time(d, tracks).get())
                .sum();
            let mean = total / (tracks * tracks);
            assert!(
                mean.abs_diff(average * 1000) < average * 10,
                "{average} us given, {mean} ns on average"
            );
            assert_eq!(curve.seek_time(0, tracks), TimeSpan::ZERO);
            assert_eq!(curve.seek_time(1, tracks), TimeSpan::from_micros(track));
            assert!(curve.seek_time(tracks, tracks).get().abs_diff(full * 1000) < 10);
            assert!(
                (1..tracks).all(|d| curve.seek_time(d, tracks) <= curve.seek_time(d + 1, tracks))
            );
        }
    }

    #[test]
    fn impossible_times_are_refused() {
        assert!(curve(1_100, 1_000, 20_000).is_none());
        assert!(curve(19_900, 1_000, 20_000).is_none());
    }

    #[test]
    fn where_only_the_average_is_known_every_seek_takes_it() {
        let curve = SeekCurve::new(SeekTimes {
            average: TimeSpan::from_millis(12),
            extremes: None,
        })
        .unwrap();
        assert_eq!(
            [2, 50, 100].map(|d| curve.seek_time(d, 100)),
            [TimeSpan::from_millis(12); 3]
        );
    }
}
