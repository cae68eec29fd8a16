//! What the daemon answers about drives, and about where content is.

use super::DriveService;
use crate::control::{ControlAnswer, DeviceLine, SourceLine, WhereLine};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use teal_replica::{Price, SourceShown};
use teal_types::ObjectNo;

impl DriveService {
    /// All drives of the volume; without the server those that are attached here, and why it cannot
    /// be asked.
    pub(super) fn list_drives(&self) -> Result<ControlAnswer> {
        self.lose_absent();
        let mut here = self.attached_drives();
        let placed: BTreeSet<u32> = self.lock_state().known.at.values().copied().collect();
        let registered = self
            .replica()
            .and_then(|replica| replica.registered_drives());
        let superseded = self
            .client
            .replica()
            .map_or_else(BTreeMap::new, |replica| replica.superseded_drives());
        here.retain(|drive| !superseded.contains_key(&drive.device));
        let mut lines = Vec::new();
        for drive in &here {
            lines.push(DeviceLine {
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
                counts: drive
                    .counts
                    .iter()
                    .map(|(name, count)| ((*name).to_owned(), *count))
                    .collect(),
                ..DeviceLine::default()
            });
        }
        let trouble = match registered {
            // What is here is shown without the server, too.
            Err(e) if !here.is_empty() => Some(e.to_string()),
            registered => {
                let notes = registered?;
                let gone = placed
                    .into_iter()
                    .filter(|device| !notes.iter().any(|note| note.device == *device));
                self.forget_devices(&gone.collect::<Vec<_>>())?;
                for note in notes {
                    let known = lines.iter_mut().find(|line| line.device == note.device);
                    let line = match known {
                        Some(line) => line,
                        None => {
                            lines.push(DeviceLine {
                                device: note.device,
                                name: note.name,
                                ..DeviceLine::default()
                            });
                            lines.last_mut().context("a line")?
                        }
                    };
                    (line.portable, line.profile) = (note.portable, note.profile);
                    line.bytes = note.bytes;
                    line.superseded = superseded.get(&note.device).cloned();
                    line.attached_to = note.attached.map(|(_, machine)| machine);
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

    pub(super) fn locate_content(&self, object: ObjectNo) -> Result<ControlAnswer> {
        let found = self.client.whereabouts(object)?;
        let line = |SourceShown {
                        name,
                        data_seq,
                        bytes,
                        price,
                        why,
                    }| SourceLine {
            name,
            version: data_seq.map(|seq| seq.get()),
            bytes,
            microseconds: price.map(|price: Price| price.latency.as_micros() as u64),
            is_measured: price.map(|price| price.is_measured),
            microjoules: price.map(|price| price.energy.get()),
            cost: price.map(|price| price.cost as f64 / 1e11),
            why: why.to_owned(),
        };
        let sources = found.sources.into_iter().map(line).collect();
        let (path, size, pinned) = (found.path, found.size, found.pinned);
        Ok(ControlAnswer::Where {
            whereabouts: WhereLine {
                path,
                size,
                pinned,
                sources,
            },
        })
    }
}
