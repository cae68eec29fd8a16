//! Drives that are not there any more, and what people choose about sources.

use super::super::Replica;
use super::attached::AttachedDrive;
use super::attached_drives::LossListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use teal_log::StoreError;

impl Replica {
    /// Sets how much speed counts against joules when a source is chosen, in percent. Values beyond
    /// 100 count as 100.
    pub fn set_priority(&self, percent: u32) {
        let priority = percent.min(100);
        self.drive_set().priority.store(priority, Ordering::Relaxed);
    }

    /// Returns what [`set_priority`](Self::set_priority) has set.
    pub fn priority(&self) -> u32 {
        self.drive_set().priority.load(Ordering::Relaxed)
    }

    /// Registers a function that is called whenever a drive is lost, on the thread that has found
    /// out. The caller then looks for a drive to attach. Only the first registration counts.
    pub fn when_a_drive_is_lost(&self, told: impl Fn() + Send + Sync + 'static) {
        let _ = self.drive_set().lost.set(LossListener(Box::new(told)));
    }

    /// Stops using drives that have no file any more, or a shorter one, as if they had been pulled
    /// out. Returns their names, their places, and the reason for each.
    pub fn lose_absent_drives(&self) -> Vec<(String, String, String)> {
        // A drive is asked whether it is there; a read would wake it.
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

    /// Stops using a drive that is gone.
    pub(super) fn drop_lost_drive(&self, attached: &Arc<AttachedDrive>, why: &str) {
        // Only the first thread that notices says so.
        if !attached.is_gone.swap(true, Ordering::AcqRel) {
            log::warn!(
                "the drive {} is gone ({why}); nothing is lost with it",
                attached.name
            );
        }
        self.drive_set()
            .attached
            .write()
            .retain(|other| !Arc::ptr_eq(other, attached));
        // Threads that wait for this drive wake up and end.
        attached.changed.notify_all();
        if let Some(told) = self.drive_set().lost.get() {
            (told.0)();
        }
    }

    /// Stops using a drive that can neither be read nor written any more.
    pub(super) fn drop_if_failed(&self, attached: &Arc<AttachedDrive>, why: &StoreError) {
        match why {
            // These errors are of the whole disk. Others concern one place.
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
