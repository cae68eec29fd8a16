//! What operations ask of the replica: what is here, and that more of it come.

use super::Replica;
use teal_log::StoreError;
use teal_types::{Attr, ByteRanges, ObjectNo};
use teal_volume::{FsError, NearbyContent, RankedReadGuard, RankedWriteGuard, Residency};

impl Residency for Replica {
    fn is_listed(&self, dir: ObjectNo) -> Result<bool, StoreError> {
        Self::is_listed(self, dir)
    }

    fn make_listed(&self, dir: ObjectNo) -> Result<(), FsError> {
        self.ensure_listed(dir)
    }

    fn absent_ranges(&self, no: ObjectNo) -> Result<ByteRanges, StoreError> {
        Ok(self.note_of(no)?.absent)
    }

    fn make_present(&self, no: ObjectNo, from: u64, to: u64) -> Result<(), FsError> {
        self.ensure_present(no, from, to)
    }

    fn read_nearby(
        &self,
        attr: &Attr,
        from: u64,
        to: u64,
    ) -> Result<Option<NearbyContent<'_>>, FsError> {
        let Some((parts, fresh)) = self.read_from_drive(attr, (from, to))? else {
            return Ok(None);
        };
        let no = attr.object;
        let keep = Box::new(move || {
            if let Err(e) = self.store_content(fresh) {
                log::debug!("what was read of {no} is not kept: {e}");
            }
        });
        Ok(Some(NearbyContent { parts, keep }))
    }

    fn lock_for_reading(&self, no: ObjectNo) -> Option<RankedReadGuard<'_, ()>> {
        Some(self.residency_lock(no).read())
    }

    fn lock_for_changing(&self, no: ObjectNo) -> Option<RankedWriteGuard<'_, ()>> {
        Some(self.residency_lock(no).write())
    }

    fn note_read(&self, no: ObjectNo, end: u64) {
        self.note_read(no, end);
    }

    fn make_space(&self, bytes: u64) {
        self.room_for(bytes);
    }

    fn wait_for_queue(&self, bytes: u64) -> Result<(), FsError> {
        self.wait_until_queue_has_room(bytes)
    }
}
