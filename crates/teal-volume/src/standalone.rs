//! A volume that has no server: nothing is recorded for one, and everything is here.

use crate::{
    ChangeRecorder, FsError, NearbyContent, ObjectChange, RankedReadGuard, RankedWriteGuard,
    Residency,
};
use teal_log::{Cost, LockedObjects, NewObject, StoreError};
use teal_types::{Attr, ByteRanges, ObjectNo};

/// Stands for the replica of a volume that is none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standalone;

impl ChangeRecorder for Standalone {
    fn with_record(&self, cost: Cost) -> Cost {
        cost
    }

    fn create(
        &self,
        locked: &mut LockedObjects<'_>,
        new: NewObject,
    ) -> Result<ObjectNo, StoreError> {
        Ok(locked.create(new))
    }

    fn record(
        &self,
        _: &mut LockedObjects<'_>,
        _: ObjectNo,
        _: ObjectChange<'_>,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    fn awaits_name(&self, _: &LockedObjects<'_>, _: ObjectNo) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn on_replaced(&self, _: ObjectNo, _: ObjectNo) {}

    fn on_moved(&self, _: ObjectNo) {}

    fn after_rename(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Residency for Standalone {
    fn is_listed(&self, _: ObjectNo) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn make_listed(&self, _: ObjectNo) -> Result<(), FsError> {
        Ok(())
    }

    fn absent_ranges(&self, _: ObjectNo) -> Result<ByteRanges, StoreError> {
        Ok(ByteRanges::default())
    }

    fn make_present(&self, _: ObjectNo, _: u64, _: u64) -> Result<(), FsError> {
        Ok(())
    }

    fn read_nearby(&self, _: &Attr, _: u64, _: u64) -> Result<Option<NearbyContent<'_>>, FsError> {
        Ok(None)
    }

    fn lock_for_reading(&self, _: ObjectNo) -> Option<RankedReadGuard<'_, ()>> {
        None
    }

    fn lock_for_changing(&self, _: ObjectNo) -> Option<RankedWriteGuard<'_, ()>> {
        None
    }

    fn note_read(&self, _: ObjectNo, _: u64) {}

    fn make_space(&self, _: u64) {}

    fn wait_for_queue(&self, _: u64) -> Result<(), FsError> {
        Ok(())
    }
}
