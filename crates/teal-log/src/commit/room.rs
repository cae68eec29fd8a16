//! Before a batch is sealed: its room must be there, with some to spare.

use crate::commit::committer::BatchKind;
use crate::commit::log::CommitLog;
use crate::error::StoreError;
use crate::space::reserves::SPARE_MAX;

impl CommitLog {
    /// Before a batch is sealed: its room must be there.
    pub(crate) fn prepare_room(&self, kind: BatchKind) -> Result<(), StoreError> {
        self.objects
            .host
            .allocate_doubtful(&self.objects.segments)?;
        let takes = || {
            if kind == BatchKind::Checkpoint {
                self.objects.batch_takes().min(self.objects.warm_takes())
            } else {
                self.objects.batch_takes()
            }
        };
        let mut need = takes();
        let spare = (2 * self.objects.geometry.segment_bytes())
            .min(SPARE_MAX)
            .max(self.objects.geometry.segment_bytes());
        let mut ready = self.objects.segments.lock().ready_bytes();
        if ready < need + spare {
            self.objects.redo_all_deferred();
            need = takes();
            self.objects
                .host
                .allocate_until_ready(&self.objects.segments, need + spare);
            ready = self.objects.segments.lock().ready_bytes();
        }
        // Two segments to spare would be good; without them the batch itself and its last record's
        // successor must fit.
        if ready < need {
            let operations = self.objects.ledger.operation_kinds();
            log::error!(
                "no room for a batch of {operations:?}: {ready} bytes are ready, {need} needed"
            );
            return Err(StoreError::NoSpace);
        }
        Ok(())
    }
}
