//! The space of a store, for people and programs.

use crate::store::handle::Store;

/// The space of a store, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceStatus {
    /// The bytes that files can take together.
    pub total: u64,
    /// The bytes that can still be written: of the capacity, and of the room on the host.
    pub free: u64,
    /// The bytes that could be written if the host had room for the whole store.
    pub free_of_capacity: u64,
    /// The bytes that the newest state takes.
    pub live: u64,
    /// The bytes that are set aside for content of files that is not written yet.
    pub set_aside: u64,
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
    /// The bytes that can be written before an operation has to wait for the cleaner.
    pub before_waiting: u64,
}

impl Store {
    /// Returns the bytes of pages that only memory holds; the daemon checkpoints when they are
    /// many. Changes that wait since the store was opened are not among them: they take no more
    /// than the log.
    pub fn unfolded_bytes(&self) -> u64 {
        self.objects().fold_with(0, 0)
    }

    /// Returns what files can take together, and what of that can still be written, in bytes.
    pub fn total_and_free(&self) -> (u64, u64) {
        let objects = self.objects();
        // Reserves are not for files.
        let total = objects.geometry.capacity() - objects.reserves.of_capacity();
        (total, objects.headroom().to_keep.max(0) as u64)
    }

    /// Returns the space of the store. Space that can be cleaned counts as free; space that the
    /// host has no room for does not.
    pub fn space(&self) -> SpaceStatus {
        let objects = self.objects();
        let headroom = objects.headroom();
        let segments = objects.segments.lock();
        let unready = segments.unready_bytes();
        let all = objects.geometry.capacity();
        let live = objects.really_live(segments.live_bytes());
        // The headroom may be negative: then nothing is free.
        let free_of_capacity = headroom.to_keep.max(0) as u64;
        let space = SpaceStatus {
            total: all - objects.reserves.of_capacity(),
            free: free_of_capacity,
            free_of_capacity,
            live,
            set_aside: objects.ledger.set_aside_bytes(),
            objects: objects.numbers.object_count(),
            free_segments: segments.free_segments() as u64,
            ripening: segments.ripening_segments() as u64,
            segments: u64::from(objects.geometry.segments),
            segment_bytes: objects.geometry.segment_bytes(),
            before_waiting: headroom.to_write.max(0) as u64 + unready,
        };
        // Asking the host takes its own lock.
        drop(segments);
        let lacks = objects
            .host
            .missing_bytes(all.saturating_sub(unready), unready);
        if lacks == 0 {
            return space;
        }
        let within_host = self.writable_within(all - lacks, live + space.set_aside);
        SpaceStatus {
            free: free_of_capacity.min(within_host),
            before_waiting: space.before_waiting.saturating_sub(lacks),
            ..space
        }
    }

    /// Returns the bytes that can be written within so many bytes of segments, all of them cleaned,
    /// without the space that is promised already and the cleaner's reserve once they are all in
    /// use.
    fn writable_within(&self, bytes: u64, live: u64) -> u64 {
        let objects = self.objects();
        let cleaner = objects.cleaner_bytes_with(bytes / objects.geometry.segment_bytes());
        let taken = live + cleaner + objects.ledger.promised_bytes();
        let batch = objects.ledger.batch_bytes() as i64 - objects.ledger.relocated_bytes() as i64;
        let waiting = batch + objects.fold_bytes() as i64;
        let writable = bytes as i64 - taken as i64 - waiting;
        writable.max(0) as u64
    }
}
