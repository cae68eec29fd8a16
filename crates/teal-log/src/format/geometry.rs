//! Where things lie on the disk: superblocks, anchors, segments.
//!
//! ```text
//! sector 0         superblock, one slot
//! segment 0        behind it: anchor place 0, two slots; then records
//! segment p*n/P    anchor place p, two slots; then records
//! other segments   records only
//! end              second copy of the superblock, behind the last segment
//! ```

use crate::format::record::SectorRun;
use crate::format::superblock::{self, Superblock};
use teal_types::{SECTOR, Sector};

const SUPERBLOCK_SECTORS: u64 = superblock::BYTES as u64 / SECTOR;

/// The number of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Segment(pub(crate) u32);

/// Pure arithmetic over the superblock's figures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) segments: u32,
    segment_sectors: u64,
    /// Alignment of records, in sectors.
    pub(crate) align: u64,
    places: u32,
    capacity: u64,
}

impl Geometry {
    pub(crate) fn new(sb: &Superblock) -> Self {
        let mut geometry = Self {
            segments: sb.segments,
            segment_sectors: u64::from(sb.segment_sectors),
            align: u64::from(sb.commit_align) / SECTOR,
            places: sb.anchor_places,
            capacity: 0,
        };
        geometry.capacity = (0..sb.segments)
            .map(|s| geometry.usable_bytes(Segment(s)))
            .sum();
        geometry
    }

    /// Sectors set aside for each superblock at the start and for each anchor slot.
    pub(crate) fn slot_sectors(&self) -> u64 {
        SUPERBLOCK_SECTORS.max(self.align)
    }

    fn place_segment(&self, place: u32) -> Segment {
        Segment((u64::from(place) * u64::from(self.segments) / u64::from(self.places)) as u32)
    }

    /// The address of one of the two slots of an anchor place.
    pub(crate) fn anchor_slot(&self, place: u32, slot: u64) -> Sector {
        let segment = self.place_segment(place);
        let skip = if segment.0 == 0 {
            self.slot_sectors()
        } else {
            0
        };
        self.first_sector(segment)
            .plus(skip + (slot & 1) * self.slot_sectors())
    }

    /// Every anchor slot there is.
    pub(crate) fn anchor_slots(&self) -> impl Iterator<Item = Sector> + '_ {
        (0..self.places)
            .flat_map(move |place| (0..2).map(move |slot| self.anchor_slot(place, slot)))
    }

    /// The anchor place nearest to a sector.
    pub(crate) fn place_near(&self, at: Sector) -> u32 {
        (0..self.places)
            .min_by_key(|p| self.anchor_slot(*p, 0).get().abs_diff(at.get()))
            .unwrap_or(0)
    }

    /// The anchor place farthest from another one: what damages both is half as long as the disk.
    /// `None`: there is only one place.
    pub(crate) fn place_opposite(&self, place: u32) -> Option<u32> {
        Some((place + self.places / 2) % self.places).filter(|other| *other != place)
    }

    fn first_sector(&self, segment: Segment) -> Sector {
        Sector::new(u64::from(segment.0) * self.segment_sectors)
    }

    /// The segment a sector belongs to, if it lies in one.
    pub(crate) fn segment_of(&self, at: Sector) -> Option<Segment> {
        let number = at.get() / self.segment_sectors;
        (number < u64::from(self.segments)).then_some(Segment(number as u32))
    }

    /// The sectors of a segment that records may use.
    pub(crate) fn usable_run(&self, segment: Segment) -> SectorRun {
        let mut skip = 0;
        if (0..self.places).any(|p| self.place_segment(p) == segment) {
            skip = 2 * self.slot_sectors();
        }
        if segment.0 == 0 {
            skip += self.slot_sectors();
        }
        SectorRun {
            addr: self.first_sector(segment).plus(skip),
            sectors: (self.segment_sectors - skip) as u32,
        }
    }

    /// The whole segment, anchors included.
    pub(crate) fn whole_run(&self, segment: Segment) -> SectorRun {
        SectorRun {
            addr: self.first_sector(segment),
            sectors: self.segment_sectors as u32,
        }
    }

    /// Returns whether a run lies inside the usable part of one segment.
    pub(crate) fn holds_run(&self, run: SectorRun) -> bool {
        self.segment_of(run.addr).is_some_and(|segment| {
            let usable = self.usable_run(segment);
            run.addr >= usable.addr
                && run.addr.get() + u64::from(run.sectors)
                    <= usable.addr.get() + u64::from(usable.sectors)
        })
    }

    /// Returns whether records may be written to a run: inside the usable part of one segment, and
    /// aligned.
    pub(crate) fn accepts_run(&self, run: SectorRun) -> bool {
        self.holds_run(run)
            && run.addr.get().is_multiple_of(self.align)
            && u64::from(run.sectors) >= self.align
    }

    /// Bytes of a segment that records may use.
    pub(crate) fn usable_bytes(&self, segment: Segment) -> u64 {
        u64::from(self.usable_run(segment).sectors) * SECTOR
    }

    /// Bytes of all usable parts.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of a whole segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_sectors * SECTOR
    }
}
