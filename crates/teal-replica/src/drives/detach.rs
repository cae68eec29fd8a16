//! Detaching drives: when a person asks for it, when the volume forgets them, and at the end of a
//! mount.
//!
//! # Guarantees
//! 1. A drive that does not answer is waited for no longer than `GOODBYE`; a burst under way ends
//!    with the object it is at.
//! 2. One that got everything, and one that did not, is closed alike: its content is whole, and its
//!    label says that it is clean.
//! 3. Changes made here are sent to the server first, and copied to the drive then: drives get what
//!    the server has.
//! 4. The answer names the content that is left behind, with the reason. The drive is let go all
//!    the same.

use super::super::{Replica, SyncError};
use super::attached::AttachedDrive;
use super::refused::DriveRefused;
use std::sync::Arc;
use std::time::Duration;
use teal_device::DriveWorker;
use teal_proto::{ClientRequest, DeviceRequest};
use teal_types::DriveNo;
use teal_volume::FsError;

/// Unmounting waits no longer for a drive.
const GOODBYE: Duration = Duration::from_secs(10);
/// Content that comes meanwhile is copied in at most this many bursts before a drive is let go.
const BURSTS: u32 = 4;
/// Nor for a server that is told of it: the drive itself knows.
const TELLING: Duration = Duration::from_secs(2);

impl Replica {
    /// Detaches a drive, after the server got all that is only here, and the drive all that waits
    /// for it; unless it is to go at once.
    ///
    /// # Errors
    /// [`DriveRefused::NotAttached`]; or why it did not get everything: detached it is all the
    /// same.
    pub fn detach_drive(self: &Arc<Self>, name: &str, fast: bool) -> Result<(), DriveRefused> {
        let found = self
            .drive_set()
            .attached_drives()
            .into_iter()
            .find(|drive| drive.name == name || drive.place == name);
        let refused = || match self.drive_set().superseded_reason(name) {
            Some(words) => DriveRefused::Superseded(words),
            None => DriveRefused::NotAttached(name.to_owned()),
        };
        let attached = found.ok_or_else(refused)?;
        // A slow drive is left as it is; a fast detachment leaves news behind.
        let brought = if fast {
            Ok(())
        } else {
            self.bring_up_to_date(&attached)
        };
        // The drive is detached in any case: the owner may have pulled it out already.
        let ended = self.end_soon(&attached);
        brought
            .map_err(|why| DriveRefused::Behind {
                name: attached.name.clone(),
                why,
            })
            .and(ended)
    }

    /// Sends what is only here to the server, as [`flush_upstream`](Self::flush_upstream) does, and
    /// copies all that waits to the drive.
    ///
    /// # Errors
    /// Why something is left behind, for people.
    fn bring_up_to_date(&self, attached: &Arc<AttachedDrive>) -> Result<(), String> {
        // Changes of this machine go to the server first: only committed content may be on a drive.
        let sent = self.flush_upstream();
        let left = |e: FsError| {
            let why = e.into_words_of_server().unwrap_or_else(|e| e.to_string());
            match self.only_here() {
                Ok((0, _)) => why,
                Ok((1, _)) => {
                    format!("one object is neither at the server nor on the drive ({why})")
                }
                Ok((objects, _)) => {
                    format!("{objects} objects are neither at the server nor on the drive ({why})")
                }
                Err(e) => format!("{why}; {e}"),
            }
        };
        if sent.is_err() && !self.state().is_up() {
            // Nothing is copied while it is unknown what the server has.
            return sent.map_err(left);
        }
        self.want_incomplete(attached).map_err(|e| e.to_string())?;
        // A burst may bring further news, but the end must come.
        for _ in 0..BURSTS {
            self.run_burst(attached).map_err(|e| e.to_string())?;
            if attached.queue.is_empty() {
                break;
            }
        }
        sent.map_err(left)?;
        match attached.count_unplaced() {
            (0, _) => Ok(()),
            (1, bytes) => Err(format!(
                "it is full, and one file with affinity ({bytes} bytes of it) is not on it"
            )),
            (files, bytes) => Err(format!(
                "it is full, and {files} files with affinity ({bytes} bytes of them) are not on it"
            )),
        }
    }

    /// Ends a drive; one that does not answer is waited for no longer than [`GOODBYE`].
    fn end_soon(self: &Arc<Self>, attached: &Arc<AttachedDrive>) -> Result<(), DriveRefused> {
        let replica = Arc::clone(self);
        let drive = Arc::clone(attached);
        let end = move || replica.end_drive(&drive);
        // The drive may hang: the owner waits for a bounded time.
        let ended = DriveWorker::new("teal-detach")?.run_with_deadline(GOODBYE, end);
        let why = match ended {
            Some(Ok(())) => return Ok(()),
            Some(Err(e)) => e.to_string(),
            None => "it does not answer, and is left as it is".to_owned(),
        };
        Err(DriveRefused::Behind {
            name: attached.name.clone(),
            why,
        })
    }

    /// Ends reading from a drive, marks it as clean, and closes it.
    fn end_drive(&self, attached: &Arc<AttachedDrive>) -> Result<(), SyncError> {
        // First out of sight, so that no reader asks the drive any more.
        self.drive_set().let_go(attached);
        // A burst under way ends by itself, because the drive is gone from the list.
        let _flushing = attached.hold_burst();
        // A clean end on the label: the next attachment need not check the content.
        self.relabel(attached, |label| label.is_clean = true)?;
        attached.drive.close()?;
        let detach = ClientRequest::Devices(DeviceRequest::Detach {
            device: attached.device,
        });
        if self.state().is_there()
            // The server finds out by itself if it cannot be told: the registration expires.
            && let Err(e) = self.call_server(&detach, TELLING)
        {
            log::debug!(
                "the server does not hear that {} is detached: {e}",
                attached.name
            );
        }
        Ok(())
    }

    /// Detaches all drives, as fast as they can; for the end of a mount.
    pub fn end_drives(self: &Arc<Self>) {
        for attached in self.drive_set().attached_drives() {
            if let Err(e) = self.end_soon(&attached) {
                log::warn!("{e}");
            }
        }
    }

    /// Has the volume forget a drive, after detaching it if it is attached here. Returns its
    /// number.
    ///
    /// # Errors
    /// [`DriveRefused::Unknown`], [`DriveRefused::Unreachable`].
    pub fn remove_drive(self: &Arc<Self>, name: &str) -> Result<DriveNo, DriveRefused> {
        let note = self
            .ask_devices(DeviceRequest::List)?
            .into_iter()
            .find(|note| note.name == name);
        let note = note.ok_or_else(|| DriveRefused::Unknown(name.to_owned()))?;
        // A drive that is removed for good need not be brought up to date.
        match self.detach_drive(name, true) {
            Err(DriveRefused::NotAttached(_) | DriveRefused::Superseded(_)) | Ok(()) => {}
            Err(e) => log::warn!("{name}: {e}"),
        }
        self.ask_devices(DeviceRequest::Remove {
            device: note.device,
        })
        .map(|_| note.device)
    }
}
