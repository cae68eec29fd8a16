//! The layout of the surface: the places of sectors, and the times at which they pass under the
//! head.
//!
//! # Guarantees
//! 1. Every sector has one place; sectors that follow each other lie one after the other on a
//!    track, or at the end of one and the beginning of the next.
//! 2. A head that has read to the end of a track and moved to the next finds its first sector
//!    without a wait.

use crate::profile::DiskSurface;
use teal_types::{SECTOR, Time, TimeSpan};

/// The number of zones on a surface with a lower rate inside than outside.
const ZONES: u64 = 16;

#[derive(Debug, Clone)]
struct TrackZone {
    first_sector: u64,
    first_track: u64,
    per_track: u64,
}

/// A sector's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SectorPlace {
    pub(super) track: u64,
    pub(super) sector: u64,
    per_track: u64,
}

impl SectorPlace {
    /// Returns the number of sectors from here to the end of the track.
    pub(super) fn left_on_track(&self) -> u64 {
        self.per_track - self.sector
    }
}

#[derive(Debug, Clone)]
pub(super) struct SurfaceLayout {
    zones: Vec<TrackZone>,
    sectors: u64,
    tracks: u64,
    turn: TimeSpan,
    skew: TimeSpan,
}

impl SurfaceLayout {
    pub(super) fn new(media: DiskSurface, turn: TimeSpan, switch: TimeSpan) -> Self {
        let per_track = |rate: u64| {
            (u128::from(rate) * u128::from(turn.get()) / 1_000_000_000 / u128::from(SECTOR)).max(1)
        };
        let (outer, inner) = (per_track(media.outer.get()), per_track(media.inner.get()));
        // One zone is enough where the rate is the same everywhere.
        let count = if outer == inner { 1 } else { ZONES };
        let width = |zone: u64| {
            let sectors = outer - (outer - inner) * u128::from(zone) / u128::from(count.max(2) - 1);
            u64::try_from(sectors).unwrap_or(u64::MAX)
        };
        let sectors = media.capacity.get() / SECTOR;
        // Zones have the same number of tracks, so that inner zones hold fewer sectors.
        let tracks_per_zone = sectors.div_ceil((0..count).map(width).sum()).max(1);
        let mut zones = Vec::new();
        let mut first_sector = 0;
        for zone in 0..count {
            zones.push(TrackZone {
                first_sector,
                first_track: zone * tracks_per_zone,
                per_track: width(zone),
            });
            first_sector += tracks_per_zone * width(zone);
        }
        Self {
            zones,
            sectors,
            tracks: count * tracks_per_zone,
            turn,
            skew: switch,
        }
    }

    pub(super) fn sector_count(&self) -> u64 {
        self.sectors
    }

    pub(super) fn track_count(&self) -> u64 {
        self.tracks
    }

    pub(super) fn place_of(&self, sector: u64) -> SectorPlace {
        // The last zone that begins at or before the sector.
        let zone = &self.zones[self
            .zones
            .partition_point(|zone| zone.first_sector <= sector)
            .saturating_sub(1)];
        debug_assert!(sector >= zone.first_sector, "zones begin at sector 0");
        let within = sector - zone.first_sector;
        SectorPlace {
            track: zone.first_track + within / zone.per_track,
            sector: within % zone.per_track,
            per_track: zone.per_track,
        }
    }

    /// Returns the first sector of a track.
    pub(super) fn first_sector_of(&self, track: u64) -> u64 {
        let zone = &self.zones[self
            .zones
            .partition_point(|zone| zone.first_track <= track)
            .saturating_sub(1)];
        zone.first_sector + (track - zone.first_track) * zone.per_track
    }

    /// Returns the nanoseconds from the beginning of the track to the beginning of the sector.
    fn offset_on_track(&self, place: SectorPlace, sector: u64) -> u64 {
        let nanos = u128::from(sector) * u128::from(self.turn.get()) / u128::from(place.per_track);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Returns the time until the sector comes under a head that is on its track at `now`.
    pub(super) fn rotation_wait(&self, now: Time, place: SectorPlace) -> TimeSpan {
        let turn = u128::from(self.turn.get());
        // Each track begins later by the skew than the one before.
        let begins = u128::from(place.track) * u128::from(self.skew.get())
            + u128::from(self.offset_on_track(place, place.sector));
        let wait = (begins % turn + turn - u128::from(now.get()) % turn) % turn;
        TimeSpan::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// Returns the time that `count` sectors from this place on take to pass; they are on one
    /// track.
    pub(super) fn transfer_time(&self, place: SectorPlace, count: u64) -> TimeSpan {
        debug_assert!(
            count <= place.left_on_track(),
            "the sectors are on one track"
        );
        TimeSpan::from_nanos(
            self.offset_on_track(place, place.sector + count)
                - self.offset_on_track(place, place.sector),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Rate;
    use proptest::prelude::*;
    use teal_types::Bytes;

    fn layout(outer: u64, inner: u64) -> SurfaceLayout {
        let rate = |megabytes| Rate::per_second(megabytes * 1_000_000).unwrap();
        let media = DiskSurface {
            capacity: Bytes::new(1_000_000_000),
            outer: rate(outer),
            inner: rate(inner),
        };
        SurfaceLayout::new(
            media,
            TimeSpan::from_nanos(11_111_111),
            TimeSpan::from_millis(1),
        )
    }

    proptest! {
        #[test]
        fn sectors_lie_one_after_the_other(sector in 0_u64..1_953_124, zoned in any::<bool>()) {
            let layout = layout(50, if zoned { 25 } else { 50 });
            let (here, next) = (layout.place_of(sector), layout.place_of(sector + 1));
            if here.left_on_track() > 1 {
                prop_assert_eq!((next.track, next.sector), (here.track, here.sector + 1));
            } else {
                prop_assert_eq!((next.track, next.sector), (here.track + 1, 0));
            }
            prop_assert!(here.track < layout.track_count());
            prop_assert_eq!(layout.first_sector_of(here.track) + here.sector, sector);
        }

        #[test]
        fn the_next_track_is_met_without_a_wait(track in 0_u64..500, turns in 0_u64..1000) {
            let layout = layout(50, 25);
            let last = layout.place_of(layout.first_sector_of(track + 1) - 1);
            let somewhen = Time::after_start(layout.turn * turns);
            let end = somewhen + layout.rotation_wait(somewhen, last) + layout.transfer_time(last, 1) + TimeSpan::from_millis(1);
            prop_assert_eq!(layout.rotation_wait(end, layout.place_of(layout.first_sector_of(track + 1))), TimeSpan::ZERO);
        }
    }
}
