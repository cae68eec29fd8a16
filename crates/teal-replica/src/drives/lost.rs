//! Drives that are not there any more, and what people choose about sources.

use super::super::Replica;
use super::attached::AttachedDrive;
use std::sync::Arc;
use teal_log::StoreError;

impl Replica {
    /// Sets how much speed counts against joules when a source is chosen, in percent; beyond 100 is
    /// 100.
    pub fn set_priority(&self, percent: u32) {
        self.drive_set().set_priority(percent);
    }

    /// Returns what [`set_priority`](Self::set_priority) has set.
    pub fn priority(&self) -> u32 {
        self.drive_set().priority()
    }

    /// Registers a function that is called whenever a drive is lost, on the thread that has found
    /// out, so that the daemon looks for drives to attach again. Only the first one is kept.
    pub fn when_a_drive_is_lost(&self, told: impl Fn() + Send + Sync + 'static) {
        self.drive_set().when_lost(told);
    }

    /// Drives whose file was deleted, or cut short, are not used any more, as if they had been
    /// pulled out: their names, where they were, and what has become of them.
    pub fn lose_absent_drives(&self) -> Vec<(String, String, String)> {
        let absent = |attached: Arc<AttachedDrive>| {
            let why = attached.drive.check_present().err()?.to_string();
            self.drop_lost_drive(&attached, &why);
            Some((attached.name.clone(), attached.place.clone(), why))
        };
        self.drive_set()
            .attached_drives()
            .into_iter()
            .filter_map(absent)
            .collect()
    }

    /// A drive is not used any more.
    pub(super) fn drop_lost_drive(&self, attached: &Arc<AttachedDrive>, why: &str) {
        if self.drive_set().let_go(attached) {
            log::warn!(
                "the drive {} is gone ({why}); nothing is lost with it",
                attached.name
            );
        }
        self.drive_set().tell_lost();
    }

    /// A drive that cannot be read or written any more is not used any more.
    pub(super) fn drop_if_failed(&self, attached: &Arc<AttachedDrive>, why: &StoreError) {
        match why {
            StoreError::Io { .. } | StoreError::Poisoned => {
                let source = std::error::Error::source(why)
                    .map(|e| format!(": {e}"))
                    .unwrap_or_default();
                self.drop_lost_drive(attached, &format!("{why}{source}"));
            }
            why => log::warn!("{}: {why}", attached.name),
        }
    }
}
