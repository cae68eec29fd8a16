//! How full a store is, for people and programs.

use crate::store::handle::Store;

/// How full a store is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceStatus {
    /// What files can take together.
    pub total: u64,
    /// What can still be written: of the capacity, and of what the host has room for.
    pub free: u64,
    /// The same if the host had room for the whole store.
    pub free_of_capacity: u64,
    /// What the newest state takes.
    pub live: u64,
    /// Objects there are.
    pub objects: u64,
    /// Segments that hold nothing.
    pub free_segments: u64,
    /// Segments that the next two checkpoints set free, without any cleaning.
    pub ripening: u64,
    /// All segments.
    pub segments: u64,
    /// Bytes of one.
    pub segment_bytes: u64,
    /// What can be written before an operation has to wait for the cleaner.
    pub before_waiting: u64,
}

impl Store {
    /// Pages that only memory holds; the daemon checkpoints when they are many. What waits since
    /// the store was opened is not among them: it is no more than the log.
    pub fn unfolded_bytes(&self) -> u64 {
        self.objects().fold_with(0, 0)
    }

    /// Returns what files can take together, and what of that can still be written, in bytes.
    pub fn total_and_free(&self) -> (u64, u64) {
        let objects = self.objects();
        let total = objects.geometry.capacity() - objects.reserves.of_capacity();
        (total, objects.headroom().to_keep.max(0) as u64)
    }

    /// How full the store is. What can be cleaned counts as free, what the host has no room for
    /// does not.
    pub fn space(&self) -> SpaceStatus {
        let objects = self.objects();
        let headroom = objects.headroom();
        let segments = objects.segments.lock();
        let (unready, all) = (segments.unready_bytes(), objects.geometry.capacity());
        let live = objects.really_live(segments.live_bytes());
        let free_of_capacity = headroom.to_keep.max(0) as u64;
        let space = SpaceStatus {
            total: all - objects.reserves.of_capacity(),
            free: free_of_capacity,
            free_of_capacity,
            live,
            objects: objects.numbers.object_count(),
            free_segments: segments.free_segments() as u64,
            ripening: segments.ripening_segments() as u64,
            segments: u64::from(objects.geometry.segments),
            segment_bytes: objects.geometry.segment_bytes(),
            before_waiting: headroom.to_write.max(0) as u64 + unready,
        };
        drop(segments);
        let lacks = objects
            .host
            .missing_bytes(all.saturating_sub(unready), unready);
        if lacks == 0 {
            return space;
        }
        // What is left of the segments there can be, cleaned, without what is promised already and
        // what the cleaner keeps once they are all in use.
        let within = all - lacks;
        let cleaner = objects.cleaner_bytes_with(within / objects.geometry.segment_bytes());
        let taken = live + cleaner + objects.ledger.promised_bytes();
        let batch = objects.ledger.batch_bytes() as i64 - objects.ledger.relocated_bytes() as i64;
        let waiting = batch + objects.fold_bytes() as i64;
        let within_host = within as i64 - taken as i64 - waiting;
        SpaceStatus {
            free: free_of_capacity.min(within_host.max(0) as u64),
            before_waiting: space.before_waiting.saturating_sub(lacks),
            ..space
        }
    }
}
