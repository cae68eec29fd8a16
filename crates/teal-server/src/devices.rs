//! The drives of a volume: which there are, and to whom each is attached.
//!
//! # Guarantees
//! 1. A drive that is attached twice at once, because it was copied, is noticed. A drive that tells
//!    of another attachment than the last one is refused while the other is attached, and known for
//!    a copy otherwise.
//! 2. Numbers of drives are never given twice.
//!
//! # Bytes of the setting `devices` of a volume, little-endian
//! | bytes | field |
//! |---:|---|
//! | 1 | version, 1 |
//! | 4 | the highest number given |
//! | | for each drive, in the order of their numbers: |
//! | 4 | its number |
//! | 8 | bytes of its store |
//! | 8 | nonce of its last attachment |
//! | 1 | flags: 1 portable, 2 attached |
//! | 4 | the replica it is, or was last, attached to |
//! | 1, n | length of its name, its name |
//! | 1, n | length of its profile's name, that name |

use crate::hello::replica_of;
use crate::peer::Peer;
use crate::refusal::{Outcome, bad_request, refuse};
use crate::seeded::{Bug, bug};
use crate::server::Server;
use teal_meta::{ReadTransaction, WriteTransaction};
use teal_proto::{
    DEVICE_NAME_MAX, DEVICES_MAX, DeviceNote, DeviceRequest, RefusalCode, ServerReply,
    is_device_name,
};
use teal_types::{DriveNo, ReplicaNo};

const KEY: &str = "devices";
const VERSION: u8 = 1;
const PORTABLE: u8 = 1;
const ATTACHED: u8 = 2;

/// One drive.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DriveRow {
    device: DriveNo,
    bytes: u64,
    nonce: u64,
    portable: bool,
    is_attached: bool,
    replica: ReplicaNo,
    name: String,
    profile: String,
}

/// All drives, and the highest number given.
#[derive(Debug, Default, PartialEq, Eq)]
struct DriveTable {
    highest_number: DriveNo,
    rows: Vec<DriveRow>,
}

/// Reads the bytes of a table from their beginning.
struct TableReader<'a>(&'a [u8]);

impl<'a> TableReader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, len: usize) -> Option<u64> {
        debug_assert!(len <= 8, "a number has at most 64 bits");
        // Numbers are little-endian: the last byte is the highest.
        let bytes = self.take(len)?.iter().rev();
        Some(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn text(&mut self) -> Option<String> {
        let len = self.number(1)? as usize;
        String::from_utf8(self.take(len)?.to_vec()).ok()
    }

    fn row(&mut self) -> Option<DriveRow> {
        let device = DriveNo::new(self.number(4)? as u32);
        let bytes = self.number(8)?;
        let nonce = self.number(8)?;
        // Flags that this version does not know are dropped.
        let flags = self.number(1)? as u8;
        let replica = ReplicaNo::new(self.number(4)? as u32);
        let name = self.text()?;
        let profile = self.text()?;
        Some(DriveRow {
            device,
            bytes,
            nonce,
            portable: flags & PORTABLE != 0,
            is_attached: flags & ATTACHED != 0,
            replica,
            name,
            profile,
        })
    }
}

impl DriveTable {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.highest_number.get().to_le_bytes());
        for row in &self.rows {
            out.extend(row.device.get().to_le_bytes());
            out.extend(row.bytes.to_le_bytes());
            out.extend(row.nonce.to_le_bytes());
            out.push(
                if row.portable { PORTABLE } else { 0 }
                    | if row.is_attached { ATTACHED } else { 0 },
            );
            out.extend(row.replica.get().to_le_bytes());
            for text in [&row.name, &row.profile] {
                debug_assert!(
                    text.len() <= usize::from(u8::MAX),
                    "names of drives are short"
                );
                out.push(text.len() as u8);
                out.extend(text.as_bytes());
            }
        }
        out
    }

    /// Returns the table that has these bytes; `None` if they are no table of this version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = TableReader(bytes);
        if reader.take(1)? != [VERSION] {
            return None;
        }
        let highest_number = DriveNo::new(reader.number(4)? as u32);
        let mut rows = Vec::new();
        // The rows have no count: they go on to the end of the bytes.
        while !reader.0.is_empty() {
            rows.push(reader.row()?);
        }
        Some(Self {
            highest_number,
            rows,
        })
    }

    fn load(txn: &dyn ReadTransaction) -> Outcome<Self> {
        let Some(bytes) = txn.setting(KEY)? else {
            return Ok(Self::default());
        };
        match Self::decode(&bytes) {
            Some(table) => Ok(table),
            None => refuse(
                RefusalCode::Damaged,
                "the volume's list of drives is damaged",
            ),
        }
    }

    fn save(&self, txn: &mut dyn WriteTransaction) -> Outcome<()> {
        Ok(txn.put_setting(KEY, &self.encode())?)
    }

    fn find_drive(&mut self, device: DriveNo) -> Outcome<&mut DriveRow> {
        let found = self.rows.iter_mut().find(|row| row.device == device);
        let Some(row) = found else {
            return bad_request(format!(
                "this volume knows no drive of the number {device}: it was removed"
            ));
        };
        Ok(row)
    }
}

fn list_devices(txn: &dyn ReadTransaction) -> Outcome<Vec<DeviceNote>> {
    let mut notes = Vec::new();
    for row in &DriveTable::load(txn)?.rows {
        notes.push(device_note(txn, row, false)?);
    }
    Ok(notes)
}

fn device_note(txn: &dyn ReadTransaction, row: &DriveRow, is_copy: bool) -> Outcome<DeviceNote> {
    let machine = txn
        .replica(row.replica)?
        .map(|replica| replica.device)
        .unwrap_or_default();
    Ok(DeviceNote {
        device: row.device,
        name: row.name.clone(),
        bytes: row.bytes,
        portable: row.portable,
        profile: row.profile.clone(),
        attached: row.is_attached.then_some((row.replica, machine)),
        is_copy,
    })
}

impl Server {
    pub(crate) fn answer_devices(&self, peer: Peer, ask: DeviceRequest) -> Outcome<ServerReply> {
        // A list needs no transaction that writes.
        if ask == DeviceRequest::List {
            let notes = self.read(peer.volume, list_devices)?;
            return Ok(ServerReply::Devices(notes));
        }
        let changed = self.write(peer.volume, |txn| self.change_devices(txn, peer, ask))?;
        Ok(ServerReply::Devices(changed.into_iter().collect()))
    }

    /// Changes the list of drives. Returns the drive that was changed, if it is still one.
    fn change_devices(
        &self,
        txn: &mut dyn WriteTransaction,
        peer: Peer,
        ask: DeviceRequest,
    ) -> Outcome<Option<DeviceNote>> {
        // Refuses a peer that was shut out since the request was admitted.
        replica_of(txn, peer)?;
        let mut rows = DriveTable::load(txn)?;
        let (row, is_copy) = match ask {
            DeviceRequest::List => return Ok(None),
            DeviceRequest::Add {
                name,
                bytes,
                portable,
                profile,
                nonce,
            } => {
                let row = rows.add_drive(peer, (name, profile), bytes, portable, nonce)?;
                (row, false)
            }
            DeviceRequest::Attach {
                device,
                nonces,
                next,
            } => self.attach_drive(peer, &mut rows, device, nonces, next)?,
            DeviceRequest::Detach { device } => {
                let row = rows.find_drive(device)?;
                // Only the machine that has the drive can end its attachment.
                row.is_attached &= row.replica != peer.replica;
                (row.clone(), false)
            }
            DeviceRequest::Remove { device } => {
                rows.find_drive(device)?;
                // The number stays used, because the highest number given is kept.
                rows.rows.retain(|row| row.device != device);
                rows.save(txn)?;
                return Ok(None);
            }
        };
        rows.save(txn)?;
        device_note(txn, &row, is_copy).map(Some)
    }

    fn attach_drive(
        &self,
        peer: Peer,
        rows: &mut DriveTable,
        device: DriveNo,
        nonces: [u64; 2],
        next: u64,
    ) -> Outcome<(DriveRow, bool)> {
        let row = rows.find_drive(device)?;
        let is_copy = !nonces.contains(&row.nonce) && !bug(Bug::DriveCopyTaken);
        let other = Peer {
            replica: row.replica,
            ..peer
        };
        let now = self.clock().monotonic_time();
        let is_elsewhere = row.is_attached && other != peer;
        if is_copy && is_elsewhere && self.presence.lock().is_live(other, now) {
            return refuse(
                RefusalCode::Busy,
                format!(
                    "the drive {} is attached to another machine: this is a copy of it",
                    row.name
                ),
            );
        }
        // Each attachment has its own nonce, so that a copy made before tells of an older one.
        (row.nonce, row.is_attached, row.replica) = (next, true, peer.replica);
        Ok((row.clone(), is_copy))
    }
}

impl DriveTable {
    fn add_drive(
        &mut self,
        peer: Peer,
        (name, profile): (String, String),
        bytes: u64,
        portable: bool,
        nonce: u64,
    ) -> Outcome<DriveRow> {
        if !is_device_name(&name) || profile.len() > DEVICE_NAME_MAX {
            return bad_request(format!(
                "'{name}' is no name for a drive: at most {DEVICE_NAME_MAX} bytes without slashes"
            ));
        }
        if self.rows.iter().any(|row| row.name == name) {
            return bad_request(format!(
                "this volume has a drive called {name} already; choose another name with --name"
            ));
        }
        if self.rows.len() >= DEVICES_MAX {
            return bad_request(format!(
                "this volume has {DEVICES_MAX} drives; remove one that is not used any more"
            ));
        }
        // Numbers are never given twice, even after a drive was removed.
        self.highest_number = DriveNo::new(self.highest_number.get() + 1);
        let (device, replica) = (self.highest_number, peer.replica);
        let row = DriveRow {
            device,
            bytes,
            nonce,
            portable,
            is_attached: true,
            replica,
            name,
            profile,
        };
        self.rows.push(row.clone());
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_version_1_are_pinned() {
        let row = DriveRow {
            device: DriveNo::new(2),
            bytes: 3,
            nonce: 4,
            portable: true,
            is_attached: false,
            replica: ReplicaNo::new(5),
            name: "usb".into(),
            profile: String::new(),
        };
        let rows = DriveTable {
            highest_number: DriveNo::new(7),
            rows: vec![
                row.clone(),
                DriveRow {
                    device: DriveNo::new(6),
                    is_attached: true,
                    ..row
                },
            ],
        };
        let one = |device: u8, flags: u8| {
            let numbers = [vec![device, 0, 0, 0, 3], vec![0; 7], vec![4], vec![0; 7]].concat();
            [numbers, vec![flags, 5, 0, 0, 0, 3], b"usb\0".to_vec()].concat()
        };
        let bytes = [vec![1, 7, 0, 0, 0], one(2, 1), one(6, 3)].concat();
        assert_eq!(rows.encode(), bytes);
        assert_eq!(DriveTable::decode(&bytes), Some(rows));
        assert_eq!(
            DriveTable::decode(&DriveTable::default().encode()),
            Some(DriveTable::default())
        );
        for len in 6..one(2, 1).len() + 5 {
            assert_eq!(DriveTable::decode(&bytes[..len]), None, "{len} bytes");
        }
    }
}
