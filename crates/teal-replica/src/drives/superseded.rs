//! A drive that has been attached to another machine since: what is here is a copy of it, or it was
//! pulled out.
//!
//! # Guarantees
//! 1. A replica that has attached a drive finds out that another one has attached it since: before
//!    a burst, when a user asks for the volume's drives, and with the news, every
//!    [`UpstreamOptions::keep_alive`](crate::UpstreamOptions::keep_alive). Then nothing is read
//!    from it or written to it any more, and that is said.
//! 2. Nothing is lost by that: what is on a drive the server has.

use super::super::{Replica, SyncError, unexpected};
use super::attached::AttachedDrive;
use super::attached_drives::AttachedDrives;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use teal_device::UpstreamError;
use teal_proto::{ClientRequest, DeviceNote, DeviceRequest, ServerReply};
use teal_types::{DriveNo, ReplicaNo};

/// Drives that others have attached since.
#[derive(Debug, Default)]
pub(super) struct SupersededDrives {
    /// By their numbers, until they are attached here again: their names, and what is said of them.
    known: BTreeMap<DriveNo, (String, String)>,
    /// The places they were attached at, until a user asks for them.
    places: Vec<PathBuf>,
    /// When the server was asked last.
    asked: Option<Duration>,
}

impl SupersededDrives {
    /// Notes that a drive is attached here again.
    pub(super) fn forget_superseded(&mut self, device: DriveNo) {
        self.known.remove(&device);
    }
}

impl AttachedDrives {
    /// Stops using a drive, if by these notes of the server it is another machine's now: what is
    /// said then. Nothing is being written to it.
    fn leave_if_superseded(
        &self,
        ours: ReplicaNo,
        attached: &Arc<AttachedDrive>,
        notes: &[DeviceNote],
    ) -> Option<String> {
        let note = notes.iter().find(|note| note.device == attached.device)?;
        let (_, machine) = note
            .attached
            .as_ref()
            .filter(|(replica, _)| *replica != ours)?;
        if attached.is_untold() {
            // The server has not heard of what is here.
            return None;
        }
        let AttachedDrive {
            name,
            place,
            device,
            ..
        } = &**attached;
        let words = format!(
            "{name} has been attached to {machine} since: what is in {place} is a copy, or was pulled out"
        );
        if self.let_go(attached) {
            log::warn!("{words}; it is not used any more");
            let mut superseded = self.superseded();
            superseded
                .known
                .insert(*device, (name.clone(), words.clone()));
            superseded.places.push(place.into());
        }
        self.tell_lost();
        Some(words)
    }

    /// Compares the attached drives with the server's notes, and detaches those that it knows
    /// elsewhere.
    pub(super) fn compare_with_server(&self, ours: ReplicaNo, notes: &[DeviceNote]) {
        for attached in self.attached_drives() {
            // A burst under way has looked itself.
            if let Some(_flushing) = attached.try_hold_burst() {
                self.leave_if_superseded(ours, &attached, notes);
            }
        }
    }

    /// Returns what is said of a drive of this name that others have attached since.
    pub(super) fn superseded_reason(&self, name: &str) -> Option<String> {
        let superseded = self.superseded();
        superseded
            .known
            .values()
            .find(|(known, _)| known == name)
            .map(|(_, words)| words.clone())
    }
}

impl Replica {
    /// Asks the server whether a drive is still this machine's; under its `flushing`.
    pub(super) fn check_still_attached(
        &self,
        attached: &Arc<AttachedDrive>,
    ) -> Result<(), SyncError> {
        let ServerReply::Devices(notes) =
            self.ask_server(&ClientRequest::Devices(DeviceRequest::List))?
        else {
            return Err(unexpected("to a question about drives").into());
        };
        let ours = self.identity().replica;
        match self.drive_set().leave_if_superseded(ours, attached, &notes) {
            Some(words) => Err(UpstreamError::Denied(words).into()),
            None => Ok(()),
        }
    }

    /// With the news, and not much more often than those are renewed: whether the drives are still
    /// this machine's.
    pub(in super::super) fn check_drives_with_news(&self) {
        if self.drive_set().is_empty() {
            return;
        }
        let now = self.monotonic();
        {
            let asked = &mut self.drive_set().superseded().asked;
            if asked.is_some_and(|asked| now < asked + self.options().keep_alive / 2) {
                return;
            }
            *asked = Some(now);
        }
        if let Err(e) = self.registered_drives() {
            log::debug!("the server does not list the drives: {e}");
        }
    }

    /// Returns what is to be said of drives that were attached here and are another machine's
    /// since, by their numbers.
    pub fn superseded_drives(&self) -> BTreeMap<DriveNo, String> {
        let superseded = self.drive_set().superseded();
        superseded
            .known
            .iter()
            .map(|(device, (_, words))| (*device, words.clone()))
            .collect()
    }

    /// Returns where those were that have been found out since this was asked last: what is there
    /// is not to be attached by itself.
    pub fn superseded_places(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.drive_set().superseded().places)
    }
}
