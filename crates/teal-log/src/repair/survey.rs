//! Finding out what can be read of a damaged store, and where it goes.

use crate::commit::log::CommitLog;
use crate::object::state::ObjectState;
use crate::recovery::refusal::StoreOpenError;
use crate::repair::facts::SurveyedObjects;
use crate::repair::findings::{RepairFindings, RepairProgress};
use crate::repair::placement::place_objects;
use crate::repair::plan::RepairPlan;
use crate::store::handle::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use teal_env::{Clock, Disk};
use teal_types::ObjectNo;

/// All that is known of a damaged store, and where it goes in the new one.
pub struct RepairSurvey {
    /// Opened for salvage.
    pub(super) store: Arc<Store>,
    /// Objects as records say that the inode map does not lead to.
    pub(super) from_records: BTreeMap<ObjectNo, ObjectState>,
    pub(super) plan: RepairPlan,
    pub(super) findings: RepairFindings,
}

impl std::fmt::Debug for RepairSurvey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RepairSurvey")
            .field("findings", &self.findings)
            .finish_non_exhaustive()
    }
}

impl RepairSurvey {
    /// Finds out what can be read of the store on `disk`. Writes nothing.
    ///
    /// # Errors
    /// [`StoreOpenError`]; [`StoreOpenError::Unsalvageable`] if nothing leads to a map of inodes.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        progress: &mut dyn FnMut(RepairProgress),
    ) -> Result<Self, StoreOpenError> {
        let (log, recovery) = CommitLog::open_for_repair(&disk, &clock)?;
        assert!(
            log.durability.is_read_only(),
            "a damaged store is not written"
        );
        let store = Arc::new(Store { log });
        let objects = SurveyedObjects::read(&store, recovery.losses, progress);
        let (plan, mut findings) = place_objects(&store, &objects, progress);
        findings.log_losses = u64::from(recovery.losses);
        Ok(Self {
            store,
            from_records: objects.from_records,
            plan,
            findings,
        })
    }

    /// Returns what is lost, and what there is.
    pub fn findings(&self) -> &RepairFindings {
        &self.findings
    }

    /// Returns the damaged store, opened for reading.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
