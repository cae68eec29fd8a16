//! What operations ask of the replica: what is here, and that more of it come.

use super::Replica;
use teal_log::StoreError;
use teal_types::{Attr, ObjectNo, Ranges};
use teal_volume::{FsError, NearbyContent, RankedReadGuard, RankedWriteGuard, Residency};

impl Residency for Replica {
    fn is_listed(&self, dir: ObjectNo) -> Result<bool, StoreError> {
        Self::is_listed(self, dir)
    }

    fn list(&self, dir: ObjectNo) -> Result<(), FsError> {
        self.listed(dir)
    }

    fn absent(&self, no: ObjectNo) -> Result<Ranges, StoreError> {
        Ok(self.note(no)?.absent)
    }

    fn make_present(&self, no: ObjectNo, from: u64, to: u64) -> Result<(), FsError> {
        self.present(no, from, to)
    }

    fn read_nearby(
        &self,
        attr: &Attr,
        from: u64,
        to: u64,
    ) -> Result<Option<NearbyContent<'_>>, FsError> {
        let Some((parts, fresh)) = self.read_fresh(attr, (from, to))? else {
            return Ok(None);
        };
        let no = attr.object;
        let keep = Box::new(move || {
            if let Err(e) = self.enter(fresh) {
                log::debug!("what was read of {no} is not kept: {e}");
            }
        });
        Ok(Some(NearbyContent { parts, keep }))
    }

    fn lock_for_reading(&self, no: ObjectNo) -> Option<RankedReadGuard<'_, ()>> {
        Some(self.content_lock(no).read())
    }

    fn lock_for_changing(&self, no: ObjectNo) -> Option<RankedWriteGuard<'_, ()>> {
        Some(self.content_lock(no).write())
    }

    fn used(&self, no: ObjectNo, end: u64) {
        self.uses(no, end);
    }

    fn make_space(&self, bytes: u64) {
        self.room_for(bytes);
    }

    fn wait_for_queue(&self, bytes: u64) -> Result<(), FsError> {
        self.wait_until_queue_has_room(bytes)
    }
}
