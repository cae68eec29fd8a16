//! Volumes, their replicas, and the tokens with which devices are enrolled.
//!
//! # Guarantees
//! 1. A token is good once, for a while, and cannot be read out of the database: only its hash is
//!    kept.
//! 2. Replica numbers are never given twice, and no two replicas of a volume have the same name.
//! 3. The serving machine's own replica cannot be shut out.

use crate::limits::GUESS_WINDOW;
use crate::names::unique_device;
use crate::peer::Peer;
use crate::refusal::{Outcome, RequestRefusal, bad_request};
use crate::server::Server;
use crate::volume::{chained_digest, volume_of};
use std::time::Duration;
use teal_meta::{
    CommitRow, MetaError, ObjectRow, ReplicaRow, TokenRow, VolumeRow, WriteTransaction,
};
use teal_proto::{DEVICE_NAME_MAX, RefusalReply, is_device_name};
use teal_types::{
    BatchId, BatchNo, CommitSeq, FileType, Incarnation, LeaseNo, ObjectNo, ReplicaNo,
    ReplicatedAttributes, ServerIncarnation, Timestamp, VolumeId,
};

/// A volume, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeNote {
    /// Which.
    pub volume: VolumeId,
    /// Its name.
    pub label: String,
    /// The newest commit.
    pub head: CommitSeq,
    /// When that was.
    pub time: Timestamp,
}

/// A replica, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaNote {
    /// Its number.
    pub replica: ReplicaNo,
    /// Its name.
    pub device: String,
    /// When it said hello last.
    pub seen: Timestamp,
    /// True while the replica is connected, as far as the server can tell.
    pub is_live: bool,
    /// True for the serving machine's own replica.
    pub is_local: bool,
    /// True while the replica is shut out.
    pub is_revoked: bool,
    /// The commit up to which the replica surely has the history.
    pub position: CommitSeq,
}

/// Why a device is not enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The server has not made this token.
    #[error("this is no token of this server; copy it whole, or make a new one there")]
    Wrong,
    /// The token has enrolled a device before.
    #[error("this token has been used; make a new one on the server for each device")]
    Used,
    /// The token's time is over.
    #[error("this token has expired; make a new one on the server")]
    Expired,
    /// Too many wrong ones.
    #[error("too many wrong tokens have come; try again in {} seconds", GUESS_WINDOW.as_secs())]
    TooManyWrong,
    /// No name for a device.
    #[error(
        "{name:?} is no name for a device: 1 to {DEVICE_NAME_MAX} bytes without slashes and \
         control characters"
    )]
    Device {
        /// The name that was given.
        name: String,
    },
    /// The server cannot now.
    #[error(transparent)]
    Refused(#[from] RefusalReply),
}

impl From<RequestRefusal> for EnrolError {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Refused(refusal.0)
    }
}

impl From<MetaError> for EnrolError {
    fn from(error: MetaError) -> Self {
        RequestRefusal::from(error).into()
    }
}

/// Marks a token as used, if it still enrols a device. That is done in the transaction that adds
/// the replica, so that a token enrols one device even if the server crashes.
fn use_token(
    txn: &mut dyn WriteTransaction,
    hash: &[u8; 32],
    now: Timestamp,
) -> Result<(), EnrolError> {
    let row = txn.token(hash)?.ok_or(EnrolError::Wrong)?;
    if row.is_used {
        return Err(EnrolError::Used);
    }
    if now > row.expires {
        return Err(EnrolError::Expired);
    }
    let used = TokenRow {
        is_used: true,
        ..row
    };
    Ok(txn.put_token(hash, &used)?)
}

fn hash_secret(secret: &[u8]) -> [u8; 32] {
    *blake3::hash(secret).as_bytes()
}

/// Returns the volume and the secret of a token, which are eight and 32 hexadecimal digits.
fn parse_token(token: &str) -> Option<(VolumeId, [u8; 16])> {
    let (volume, secret) = token.trim().split_once('-')?;
    let is_hex =
        |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex(volume, 8) || !is_hex(secret, 32) {
        return None;
    }
    let volume = u32::from_str_radix(volume, 16).ok()?;
    Some((
        VolumeId::new(volume),
        u128::from_str_radix(secret, 16).ok()?.to_be_bytes(),
    ))
}

impl Server {
    /// Makes a volume with an empty root.
    ///
    /// # Errors
    /// In words, if the metadata cannot be written.
    pub fn create_volume(&self, label: &str) -> Result<VolumeId, RefusalReply> {
        let now = self.clock().civil_time();
        // Numbers of volumes are drawn at random; the loop ends with the first one that is free.
        loop {
            let mut raw = [0; 4];
            self.entropy().fill(&mut raw);
            let volume = VolumeId::new(u32::from_le_bytes(raw));
            let made = self.write(volume, |txn| {
                // Number 0 is the server's own, and a number in use stays with its volume.
                if volume == crate::domain::SERVER_VOLUME || txn.volume()?.is_some() {
                    return Ok(false);
                }
                begin_volume(txn, label, now)?;
                Ok(true)
            });
            if made? {
                return Ok(volume);
            }
        }
    }

    /// Returns every volume.
    ///
    /// # Errors
    /// In words, if the metadata cannot be read.
    pub fn volumes(&self) -> Result<Vec<VolumeNote>, RefusalReply> {
        let volumes = self.meta().volumes().map_err(RequestRefusal::from)?;
        let mut notes = Vec::new();
        // Each volume is read in a transaction of its own, so the list is of no single moment.
        for volume in volumes {
            let row = self.read(volume, volume_of)?;
            notes.push(VolumeNote {
                volume,
                label: row.label,
                head: row.head,
                time: row.time,
            });
        }
        Ok(notes)
    }

    /// Makes a token that enrols one device within `lifetime`.
    ///
    /// # Errors
    /// In words: no such volume, or the metadata cannot be written.
    pub fn make_token(&self, volume: VolumeId, lifetime: Duration) -> Result<String, RefusalReply> {
        let secret = self.entropy().random_id();
        let now = self.clock().civil_time();
        // A lifetime beyond the calendar ends with it.
        let secs = now
            .secs
            .saturating_add(i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX));
        let row = TokenRow {
            expires: Timestamp::new(secs, now.nanos),
            is_used: false,
        };
        let put = self.write(volume, |txn| {
            volume_of(txn)?;
            Ok(txn.put_token(&hash_secret(&secret), &row)?)
        });
        put?;
        // The token names its volume, so that enrolling needs no search.
        Ok(format!("{volume}-{:032x}", u128::from_be_bytes(secret)))
    }

    /// Enrols a device: it gets the next replica number.
    ///
    /// # Errors
    /// [`EnrolError`].
    pub fn enrol(&self, token: &str, device: &str) -> Result<Peer, EnrolError> {
        if !is_device_name(device) {
            return Err(EnrolError::Device {
                name: device.to_owned(),
            });
        }
        // Checked before the database is read, so that guessing costs the server little.
        if !self.guesses.lock().is_open(self.clock().monotonic_time()) {
            return Err(EnrolError::TooManyWrong);
        }
        let now = self.clock().civil_time();
        let enrolled = match parse_token(token) {
            Some((volume, secret)) => {
                let hash = hash_secret(&secret);
                teal_meta::write(self.meta(), volume, |txn| {
                    use_token(txn, &hash, now)?;
                    let replica = add_replica(txn, device, false, now)?;
                    Ok(Peer { volume, replica })
                })
            }
            None => Err(EnrolError::Wrong),
        };
        // Only unknown tokens are guesses; used and expired ones were real.
        if matches!(enrolled, Err(EnrolError::Wrong)) {
            self.guesses.lock().record_wrong();
        }
        enrolled
    }

    /// Returns the serving machine's own replica, which is enrolled without a token the first time.
    /// This replica owns the object numbers of the first lease, because a volume that lived alone
    /// has used them.
    ///
    /// # Errors
    /// In words.
    pub fn local_replica(&self, volume: VolumeId, device: &str) -> Result<Peer, RefusalReply> {
        let now = self.clock().civil_time();
        let replica = self.write(volume, |txn| {
            volume_of(txn)?;
            if let Some((replica, _)) = txn
                .replicas()?
                .into_iter()
                .find(|(_, row)| row.is_local && !row.is_revoked)
            {
                return Ok(replica);
            }
            if !is_device_name(device) {
                return bad_request(
                    EnrolError::Device {
                        name: device.to_owned(),
                    }
                    .to_string(),
                );
            }
            let replica = add_replica(txn, device, true, now)?;
            // The first lease has the numbers of a volume that lived alone before it was served.
            if txn.lease(LeaseNo::FIRST)?.is_none() {
                txn.put_lease(LeaseNo::FIRST, replica)?;
            }
            Ok(replica)
        });
        Ok(Peer {
            volume,
            replica: replica?,
        })
    }

    /// Shuts a replica out, at once and until it is [let in again](Self::readmit): from the return
    /// on, it gets no answer any more. What it has committed stays.
    ///
    /// # Errors
    /// In words.
    pub fn revoke(&self, volume: VolumeId, replica: ReplicaNo) -> Result<(), RefusalReply> {
        let revoked = self.write(volume, |txn| {
            let Some(mut row) = txn.replica(replica)? else {
                return bad_request(format!(
                    "there is no device number {replica} in this volume"
                ));
            };
            if row.is_local {
                return bad_request(format!(
                    "device {replica} is the serving machine itself: it cannot be shut out"
                ));
            }
            row.is_revoked = true;
            Ok(txn.put_replica(replica, &row)?)
        });
        revoked?;
        // Comes after the durable change: a replica that is shut out now stays so after a restart.
        self.presence.lock().shut_out(Peer { volume, replica });
        Ok(())
    }

    /// Lets a replica in again that was shut out; its certificate is good again.
    ///
    /// # Errors
    /// In words.
    pub fn readmit(&self, volume: VolumeId, replica: ReplicaNo) -> Result<(), RefusalReply> {
        let readmitted = self.write(volume, |txn| {
            let Some(mut row) = txn.replica(replica)? else {
                return bad_request(format!(
                    "there is no device number {replica} in this volume"
                ));
            };
            row.is_revoked = false;
            Ok(txn.put_replica(replica, &row)?)
        });
        readmitted?;
        self.presence.lock().readmit(Peer { volume, replica });
        Ok(())
    }

    /// Returns every replica of a volume.
    ///
    /// # Errors
    /// In words.
    pub fn replicas(&self, volume: VolumeId) -> Result<Vec<ReplicaNote>, RefusalReply> {
        let rows = self.read(volume, |txn| Ok(txn.replicas()?))?;
        // One lock for all replicas, so that the list shows one moment.
        let (presence, now) = (self.presence.lock(), self.clock().monotonic_time());
        let mut notes = Vec::new();
        for (replica, row) in rows {
            let peer = Peer { volume, replica };
            notes.push(ReplicaNote {
                replica,
                is_live: presence.is_live(peer, now),
                device: row.device,
                seen: row.seen,
                is_local: row.is_local,
                is_revoked: row.is_revoked,
                // The running server may know a newer position than its database.
                position: row.position.max(presence.position(peer)),
            });
        }
        Ok(notes)
    }
}

/// Makes the first commit of a volume: its root, which every replica may set the attributes of.
fn begin_volume(txn: &mut dyn WriteTransaction, label: &str, now: Timestamp) -> Outcome<()> {
    let (seq, none) = (CommitSeq::new(1), CommitSeq::new(0));
    let attributes = ReplicatedAttributes {
        perm: 0o755,
        mtime: now,
        ctime: now,
        btime: now,
        ..ReplicatedAttributes::default()
    };
    let root = ObjectRow {
        kind: FileType::Dir,
        attributes,
        attr_seq: none,
        size: 0,
        data_seq: none,
        rewritten_seq: none,
        target: Vec::new(),
        link_seq: none,
        xattr_seq: none,
    };
    txn.put_object(ObjectNo::ROOT, Some(&root))?;
    // The root has a row in history, too, so that its past can be asked for.
    txn.remember_object(ObjectNo::ROOT, seq, Some(&root))?;
    txn.add_change(seq, ObjectNo::ROOT, &Some(Vec::new()))?;
    let digest = chained_digest(
        &[0; 32],
        seq,
        BatchId::default(),
        &hash_secret(label.as_bytes()),
    );
    txn.add_commit(
        seq,
        &CommitRow {
            batch: BatchId::default(),
            time: now,
            digest,
        },
    )?;
    let volume = VolumeRow {
        label: label.to_owned(),
        incarnation: ServerIncarnation::FIRST,
        head: seq,
        digest,
        time: now,
        next_replica: ReplicaNo::FIRST,
        next_conflict: 1,
        own_next: 0,
        own_end: 0,
    };
    Ok(txn.put_volume(&volume)?)
}

fn add_replica(
    txn: &mut dyn WriteTransaction,
    device: &str,
    is_local: bool,
    now: Timestamp,
) -> Outcome<ReplicaNo> {
    let device = unique_device(txn, device, None)?;
    let mut volume = volume_of(txn)?;
    // The next number is stored in the same transaction, so that none is given twice.
    let replica = volume.next_replica;
    volume.next_replica = replica.next();
    txn.put_volume(&volume)?;
    let row = ReplicaRow {
        device,
        incarnation: Incarnation::NONE,
        last_batch: BatchNo::NONE,
        position: CommitSeq::new(0),
        is_revoked: false,
        is_local,
        seen: now,
    };
    txn.put_replica(replica, &row)?;
    debug_assert!(
        replica < volume.next_replica,
        "numbers of replicas are counted up"
    );
    Ok(replica)
}
