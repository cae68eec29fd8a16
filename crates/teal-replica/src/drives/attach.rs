//! Drives come: they are registered, and attached.
//!
//! # Guarantees
//! 1. A drive is attached only if it belongs to this volume, a client of the volume wrote its
//!    label, and the server knows the history it has seen; a copy of a drive that is attached is
//!    refused.
//! 2. What is said of an attachment is durable on the drive before the server hears of it, and one
//!    that may have been heard of is settled before the next is begun, so that an answer that is
//!    lost makes no copy of it.
//! 3. While the server is away a drive is attached only if its label proves that a machine of the
//!    volume wrote it, it is of the same life of the server, and no other one has attached it since
//!    it was attached here, or the history it has seen is on this replica's own way: then all that
//!    is on it is of the history that the notes here mean. The server hears of it when it is there
//!    again.

use super::super::{Replica, ReplicaIdentity, SyncError, unexpected};
use super::attached::{AttachedDrive, DriveFacts};
use super::cursor;
use super::label::sign_label;
use super::refused::DriveRefused;
use crate::seeded::{Bug, bug};
use std::collections::BTreeMap;
use std::sync::Arc;
use teal_device::{Drive, DriveLabel, UpstreamError};
use teal_energy::Profile;
use teal_env::{Disk, Entropy};
use teal_proto::{ClientRequest, DeviceNote, DeviceRequest, RefusalCode, ServerReply};
use teal_types::DriveNo;
use teal_volume::FsError;

/// The description of a new drive, as its owner gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDrive {
    /// Its name; no other drive of the volume has it.
    pub name: String,
    /// Is true if the drive is meant to be carried around.
    pub portable: bool,
    /// The name of its energy profile; empty: none.
    pub profile: String,
}

/// The facts that a client remembers of a drive that was attached to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDrive {
    /// The nonce of its last attachment here.
    pub nonce: u64,
    /// The name of its energy profile.
    pub profile: String,
}

/// The drives that a client has had, by their numbers.
pub type KnownDrives = BTreeMap<DriveNo, KnownDrive>;

fn random_nonce(entropy: &dyn Entropy) -> u64 {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Tells the server of the attachment that is begun on the drive, and writes down that it knows.
fn announce_attachment(
    replica: &Replica,
    drive: &Drive,
    nonces: [u64; 2],
) -> Result<DeviceNote, DriveRefused> {
    let DriveLabel {
        device,
        begun_nonce: next,
        ..
    } = drive.label();
    let ask = DeviceRequest::Attach {
        device,
        nonces,
        next,
    };
    let note = replica
        .ask_devices(ask)?
        .pop()
        .ok_or_else(|| DriveRefused::Unknown(drive.name().into()))?;
    if note.is_copy {
        log::warn!(
            "the drive {} is a copy of one that was attached since; what it holds is checked like any other",
            note.name
        );
    }
    sign_label(replica, drive, |label| label.nonce = next)?;
    Ok(note)
}

/// Returns what is known of a drive while the server, which has its note, is away.
fn note_from_label(drive: &Drive, known: Option<&KnownDrive>) -> DeviceNote {
    DeviceNote {
        device: drive.label().device,
        name: drive.name().to_owned(),
        profile: known.map(|known| known.profile.clone()).unwrap_or_default(),
        bytes: 0,
        portable: true,
        attached: None,
        is_copy: false,
    }
}

impl Replica {
    pub(super) fn ask_devices(&self, ask: DeviceRequest) -> Result<Vec<DeviceNote>, DriveRefused> {
        self.connect()?;
        match self
            .ask_server(&ClientRequest::Devices(ask))
            .map_err(SyncError::from)?
        {
            ServerReply::Devices(notes) => Ok(notes),
            _ => Err(SyncError::from(unexpected("to a question about drives")).into()),
        }
    }

    /// The drives of the volume, attached or not.
    ///
    /// # Errors
    /// [`DriveRefused::Unreachable`], [`DriveRefused::Alone`].
    pub fn registered_drives(&self) -> Result<Vec<DeviceNote>, DriveRefused> {
        let notes = self.ask_devices(DeviceRequest::List)?;
        let ours = self.identity().replica;
        self.drive_set().compare_with_server(ours, &notes);
        Ok(notes)
    }

    /// Registers a drive, makes it on the disk, and attaches it. Whatever was on the disk is gone.
    /// `place`: where it is, for people.
    ///
    /// # Errors
    /// [`DriveRefused`]; then nothing is registered.
    pub fn add_drive(
        self: &Arc<Self>,
        disk: Arc<dyn Disk>,
        place: &str,
        new: &NewDrive,
        entropy: &dyn Entropy,
    ) -> Result<(), DriveRefused> {
        let (bytes, nonce) = (
            disk.shape().sectors * teal_types::SECTOR,
            random_nonce(entropy),
        );
        let NewDrive {
            name,
            portable,
            profile,
        } = new.clone();
        let add = DeviceRequest::Add {
            name,
            bytes,
            portable,
            profile,
            nonce,
        };
        let note = self
            .ask_devices(add)?
            .pop()
            .ok_or_else(|| DriveRefused::Unknown(new.name.clone()))?;
        let made = self.make_drive(disk, &note, nonce, entropy);
        let attached = made.and_then(|drive| self.use_drive(drive, place, &note, false));
        if attached.is_err() {
            let _ = self.ask_devices(DeviceRequest::Remove {
                device: note.device,
            });
        }
        attached
    }

    fn make_drive(
        &self,
        disk: Arc<dyn Disk>,
        note: &DeviceNote,
        nonce: u64,
        entropy: &dyn Entropy,
    ) -> Result<Drive, DriveRefused> {
        let ReplicaIdentity {
            volume,
            server,
            seen,
            digest,
            ..
        } = self.identity();
        let mut label = DriveLabel {
            volume,
            device: note.device,
            server_incarnation: server,
            position: seen,
            digest,
            nonce,
            begun_nonce: nonce,
            ..DriveLabel::default()
        };
        label.proof = self
            .label_proof(&label.signed_bytes())
            .map_err(SyncError::from)?;
        Ok(Drive::create(
            disk,
            Arc::clone(self.clock()),
            entropy,
            &note.name,
            label,
        )?)
    }

    /// Checks whether a disk, which is only read, holds a drive of this volume, as far as it says
    /// itself.
    ///
    /// # Errors
    /// [`DriveRefused`] if it holds something else, or cannot be read.
    pub fn look_at_drive(&self, disk: Arc<dyn Disk>) -> Result<(), DriveRefused> {
        let theirs = Drive::read_label(disk, Arc::clone(self.clock()))?.volume;
        let ours = self.identity().volume;
        if theirs == ours {
            Ok(())
        } else {
            Err(DriveRefused::OtherVolume { theirs, ours })
        }
    }

    /// Attaches a drive. `place`: where it is, for people; `known`: those that were here, which are
    /// attached while the server is away, too.
    ///
    /// # Errors
    /// [`DriveRefused`].
    pub fn attach_drive(
        self: &Arc<Self>,
        disk: Arc<dyn Disk>,
        place: &str,
        known: &KnownDrives,
        entropy: &dyn Entropy,
    ) -> Result<(), DriveRefused> {
        let drive = Drive::open(disk, Arc::clone(self.clock()))?;
        let away = self.why_server_is_away()?;
        let label = drive.label();
        self.check_drive_label(&label)?;
        let known = known.get(&label.device);
        match &away {
            Some(why) => self.check_history_alone(&drive, known, why)?,
            None if label.nonce != label.begun_nonce => {
                // The server may not have heard of the last attachment. It must know of that one
                // before another begins.
                sign_label(self, &drive, |label| label.is_clean = false)?;
                drive.sync()?;
                announce_attachment(self, &drive, [label.nonce, label.begun_nonce])?;
            }
            None => {}
        }
        let label = drive.label();
        let is_gone_on_with =
            away.is_some() && known.is_some_and(|known| known.nonce == label.begun_nonce);
        let next = if is_gone_on_with {
            label.begun_nonce
        } else {
            random_nonce(entropy)
        };
        if bug(Bug::DriveToldTooEarly) && away.is_none() {
            announce_attachment(self, &drive, [label.nonce, label.begun_nonce])?;
        }
        sign_label(self, &drive, |label| {
            (label.begun_nonce, label.is_clean) = (next, false)
        })?;
        drive.sync()?;
        let note = match away {
            None => announce_attachment(self, &drive, [label.nonce, label.begun_nonce])?,
            Some(_) => note_from_label(&drive, known),
        };
        self.use_drive(drive, place, &note, away.is_some())
    }

    /// Returns why the server cannot be asked about a drive, or `None` if it can.
    fn why_server_is_away(&self) -> Result<Option<String>, DriveRefused> {
        let reached = self
            .try_reach()
            .map_err(SyncError::from)
            .and_then(|()| self.connect());
        match reached {
            Ok(()) => Ok(None),
            Err(
                SyncError::Upstream(UpstreamError::Unreachable(why))
                | SyncError::Fs(FsError::Unreachable(why) | FsError::Denied(why)),
            ) => Ok(Some(why)),
            Err(e) => Err(e.into()),
        }
    }

    /// Refuses the drive of another volume, a label that no machine of the volume wrote, and a copy
    /// of a drive that is attached.
    fn check_drive_label(&self, label: &DriveLabel) -> Result<(), DriveRefused> {
        let ours = self.identity().volume;
        if label.volume != ours {
            return Err(DriveRefused::OtherVolume {
                theirs: label.volume,
                ours,
            });
        }
        let proof = self
            .label_proof(&label.signed_bytes())
            .map_err(SyncError::from)?;
        if proof != label.proof {
            return Err(DriveRefused::Forged);
        }
        let attached = self.drive_set().attached_drives();
        match attached.iter().find(|other| other.device == label.device) {
            Some(other) => Err(DriveRefused::Twice {
                name: other.name.clone(),
                place: other.place.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Refuses a drive whose history cannot be proved without the server, which is away.
    fn check_history_alone(
        &self,
        drive: &Drive,
        known: Option<&KnownDrive>,
        why: &str,
    ) -> Result<(), DriveRefused> {
        let label = drive.label();
        if label.server_incarnation == self.identity().server && self.has_own_history(&label, known)
        {
            return Ok(());
        }
        Err(DriveRefused::Elsewhere {
            name: drive.name().to_owned(),
            why: why.to_owned(),
        })
    }

    /// Returns whether the history that a drive has seen is this replica's own.
    fn has_own_history(&self, label: &DriveLabel, known: Option<&KnownDrive>) -> bool {
        let identity = self.identity();
        let is_ours =
            known.is_some_and(|known| [label.nonce, label.begun_nonce].contains(&known.nonce));
        is_ours
            || identity
                .trail
                .steps()
                .contains(&(label.position, label.digest))
    }

    /// The server hears of an attachment that was made while it was away.
    pub(super) fn announce_late(&self, attached: &AttachedDrive) -> Result<(), SyncError> {
        if !attached.is_untold() {
            return Ok(());
        }
        let label = attached.drive.label();
        match announce_attachment(self, &attached.drive, [label.nonce, label.begun_nonce]) {
            Ok(_) => {
                attached.set_told();
                Ok(())
            }
            Err(DriveRefused::NotNow(words) | DriveRefused::Refused(words)) => {
                log::warn!("{} is not read any more: {words}", attached.name);
                attached.set_checked(false);
                Err(UpstreamError::Denied(words).into())
            }
            Err(DriveRefused::Denied(words)) => Err(UpstreamError::Denied(words).into()),
            Err(DriveRefused::Fs(e)) => Err(e.into()),
            Err(e) => Err(UpstreamError::Unreachable(e.to_string()).into()),
        }
    }

    /// Begins to read from a drive, after the server has recognised the history it has seen.
    fn use_drive(
        self: &Arc<Self>,
        drive: Drive,
        place: &str,
        note: &DeviceNote,
        is_untold: bool,
    ) -> Result<(), DriveRefused> {
        let profile = Profile::find_shipped(&note.profile);
        let facts = DriveFacts {
            device: note.device,
            name: note.name.clone(),
            place: place.to_owned(),
            profile: note.profile.clone(),
            is_untold,
        };
        let now = self.monotonic();
        let attached = Arc::new(AttachedDrive::new(facts, drive, profile.as_ref(), now)?);
        self.drive_set().attach(Arc::clone(&attached))?;
        let begun = self.begin_cursor(&attached);
        if begun.is_err() {
            self.drive_set().let_go(&attached);
        }
        begun
    }

    fn begin_cursor(self: &Arc<Self>, attached: &Arc<AttachedDrive>) -> Result<(), DriveRefused> {
        let advanced = {
            let _flushing = attached.hold_burst();
            attached.load_known_objects()?;
            if attached.is_untold() {
                Ok(Vec::new())
            } else {
                self.apply_history(attached)
                    .and_then(|wanted| Ok(attached.drive.sync().map(|()| wanted)?))
            }
        };
        let wanted = match advanced {
            Err(SyncError::Upstream(UpstreamError::Refused(refused)))
                if refused.code == RefusalCode::BadRequest =>
            {
                return Err(DriveRefused::History);
            }
            advanced => advanced?,
        };
        let now = self.monotonic();
        wanted
            .into_iter()
            .for_each(|no| attached.queue.add(no, 0, now));
        if !self.has_threads() {
            self.want_incomplete(attached)?;
        } else {
            let (replica, attached) = (Arc::downgrade(self), Arc::clone(attached));
            let cursor = std::thread::Builder::new().name("teal-cursor".into());
            cursor.spawn(move || cursor::run(&replica, &attached))?;
        }
        Ok(())
    }
}
