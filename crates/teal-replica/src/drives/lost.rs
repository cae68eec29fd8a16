//! Drives that are not there any more, and what people choose about sources.

use super::super::Replica;
use super::attached::AttachedDrive;
use super::attached_drives::LossListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use teal_log::StoreError;

impl Replica {
    /// How much speed counts against joules when a source is chosen, in percent; beyond 100 is 100.
    pub fn set_priority(&self, percent: u32) {
        let priority = percent.min(100);
        self.drive_set().priority.store(priority, Ordering::Relaxed);
    }

    /// Returns what [`set_priority`](Self::set_priority) has set.
    pub fn priority(&self) -> u32 {
        self.drive_set().priority.load(Ordering::Relaxed)
    }

    /// Has this called whenever a drive is lost, from the thread that has found out: who attaches
    /// what comes looks again. The first caller is kept.
    pub fn when_a_drive_is_lost(&self, told: impl Fn() + Send + Sync + 'static) {
        let _ = self.drive_set().lost.set(LossListener(Box::new(told)));
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
        attached.changed.notify_all();
        self.drive_set()
            .lost
            .get()
            .iter()
            .for_each(|told| (told.0)());
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
