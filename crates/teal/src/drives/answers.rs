//! The daemon's answers about drives and about the places of content.

use super::DriveService;
use crate::control::{ControlAnswer, DeviceLine, SourceLine, WhereLine};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use teal_proto::DeviceNote;
use teal_replica::{DriveStatus, ReadPrice, SourceStatus};
use teal_types::{DriveNo, ObjectNo};

/// Returns the line of a drive that is attached here, without what only its registration tells.
fn attached_line(drive: &DriveStatus) -> DeviceLine {
    let counts = drive.counts.iter();
    DeviceLine {
        device: drive.device,
        name: drive.name.clone(),
        place: Some(drive.place.clone()),
        total_bytes: drive.room.0,
        free_bytes: Some(drive.room.1),
        objects: Some(drive.objects),
        position: Some(drive.seen.get()),
        queued: drive.queued.0,
        queued_bytes: drive.queued.1,
        short: drive.short.0,
        short_bytes: drive.short.1,
        late: drive.is_late,
        counts: counts
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect(),
        ..DeviceLine::default()
    }
}

/// Completes the line of an attached drive by its registration, or adds a line for a drive that is
/// not attached here. `superseded`: what is said of one that another machine has taken over.
fn add_registration(lines: &mut Vec<DeviceLine>, note: DeviceNote, superseded: Option<String>) {
    let known = lines.iter().position(|line| line.device == note.device);
    // A drive that is attached to another machine, or to none, has no line yet.
    let at = known.unwrap_or_else(|| {
        lines.push(DeviceLine {
            device: note.device,
            name: note.name,
            ..DeviceLine::default()
        });
        lines.len() - 1
    });
    let line = &mut lines[at];
    line.portable = note.portable;
    line.profile = note.profile;
    line.bytes = note.bytes;
    line.superseded = superseded;
    line.attached_to = note.attached.map(|(_, machine)| machine);
}

fn source_line(source: SourceStatus) -> SourceLine {
    let SourceStatus {
        name,
        data_seq,
        bytes,
        price,
        why,
    } = source;
    SourceLine {
        name,
        version: data_seq.map(|seq| seq.get()),
        bytes,
        microseconds: price.map(|price: ReadPrice| price.latency.as_micros() as u64),
        is_measured: price.map(|price| price.is_measured),
        microjoules: price.map(|price| price.energy.get()),
        // The engine counts costs in whole units of 1e-11.
        cost: price.map(|price| price.cost as f64 / 1e11),
        why: why.to_owned(),
    }
}

impl DriveService {
    /// Returns all drives of the volume. Without the server these are the ones attached here, with
    /// the reason why the server cannot be asked.
    pub(super) fn list_drives(&self) -> Result<ControlAnswer> {
        self.lose_absent();
        let mut here = self.attached_drives();
        let remembered: BTreeSet<DriveNo> =
            BTreeSet::from_iter(self.lock_state().known.at.values().copied());
        let registered = self
            .replica()
            .and_then(|replica| replica.registered_drives());
        // A drive that another machine has taken over is not shown as attached here.
        let superseded = match self.client.replica() {
            Some(replica) => replica.superseded_drives(),
            None => BTreeMap::new(),
        };
        here.retain(|drive| !superseded.contains_key(&drive.device));
        let mut lines: Vec<DeviceLine> = here.iter().map(attached_line).collect();
        let trouble = match registered {
            // The drives that are attached here are shown even if the server cannot be asked.
            Err(e) if !here.is_empty() => Some(e.to_string()),
            registered => {
                let notes = registered?;
                let mut gone = Vec::from_iter(remembered);
                gone.retain(|device| notes.iter().all(|note| note.device != *device));
                self.forget_devices(&gone)?;
                for note in notes {
                    let why = superseded.get(&note.device).cloned();
                    add_registration(&mut lines, note, why);
                }
                None
            }
        };
        lines.sort_by_key(|line| line.device);
        Ok(ControlAnswer::Devices {
            devices: lines,
            trouble,
        })
    }

    /// Returns the places where the content of an object is, as they would be asked.
    pub(super) fn locate_content(&self, object: ObjectNo) -> Result<ControlAnswer> {
        let found = self.client.locate_content(object)?;
        let whereabouts = WhereLine {
            path: found.path,
            size: found.size,
            pinned: found.pinned,
            sources: found.sources.into_iter().map(source_line).collect(),
        };
        Ok(ControlAnswer::Where { whereabouts })
    }
}
