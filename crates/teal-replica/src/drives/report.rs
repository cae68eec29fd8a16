//! Drives for people: how each stands, and where an object's content is and would be read from.

use super::super::Replica;
use super::KnownDrive;
use super::affinity::tree_below;
use super::attached::AttachedDrive;
use super::attached_drives::ContentSource;
use super::choice::LatencyModel;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use teal_energy::policy::choice::CostWeights;
use teal_types::{BLOCK, CommitSeq, Energy, FileType, ObjectNo};
use teal_volume::FsError;
use teal_volume::Volume;

/// How a drive that is attached stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveStatus {
    /// Its number in the volume.
    pub device: u32,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub place: String,
    /// What is to be remembered of it, to attach it again while the server is away.
    pub known: KnownDrive,
    /// Bytes that content can take on it, and that are free.
    pub room: (u64, u64),
    /// Objects on it.
    pub objects: u64,
    /// Nothing on it is older.
    pub seen: CommitSeq,
    /// Objects that wait to be copied to it, also those of the burst under way; bytes of the
    /// others, as far as known.
    pub queued: (u64, u64),
    /// Files with affinity that found no room on it, and how many bytes of them.
    pub short: (u64, u64),
    /// It has not come back from what it was asked.
    pub is_late: bool,
    /// The server has heard of its attachment here.
    pub is_told: bool,
    /// What has passed between it and this client, by name.
    pub counts: Vec<(&'static str, u64)>,
}

/// What reading a block costs, as predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPrice {
    /// How long it takes.
    pub latency: Duration,
    /// Whether that was measured; otherwise it is of the drive's profile.
    pub is_measured: bool,
    /// What the machine and the source draw meanwhile, modelled.
    pub energy: Energy,
    /// Both, by the priority: billionths of weighted seconds and joules.
    pub cost: u128,
}

impl ReadPrice {
    fn predict(meter: &LatencyModel, weights: CostWeights) -> Option<Self> {
        let predicted = meter.predict_read(BLOCK)?;
        Some(Self {
            latency: Duration::from_nanos(predicted.latency.get()),
            is_measured: meter.is_measured(),
            energy: predicted.energy,
            cost: weights.weighted_cost(predicted).0,
        })
    }
}

/// What a source has of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// The commit whose content it has, if it has any.
    pub data_seq: Option<CommitSeq>,
    /// How many bytes of it.
    pub bytes: u64,
    /// What reading its first block would cost, as far as known.
    pub price: Option<ReadPrice>,
    /// Why it is not, or is, read now.
    pub why: &'static str,
}

/// Where an object's content is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentLocations {
    /// Its path.
    pub path: String,
    /// Bytes; of a directory those of all files below it that are known here.
    pub size: u64,
    /// It is always here, because this is pinned.
    pub pinned: Option<String>,
    /// Sources, in the order in which they would be asked.
    pub sources: Vec<SourceStatus>,
}

impl AttachedDrive {
    fn status(&self) -> DriveStatus {
        let (room, label) = (self.drive.capacity(), self.drive.label());
        let (objects, bytes) = {
            let queue = self.queue.lock();
            (
                queue.objects.len() as u64 + self.burst_left.load(Relaxed),
                queue.bytes,
            )
        };
        let counters = &self.counters;
        let counts = [
            ("reads", &counters.reads),
            ("read_bytes", &counters.read_bytes),
            ("late", &counters.late),
            ("avoided", &counters.avoided),
            ("asleep", &counters.asleep),
            ("woken", &counters.woken),
            ("skipped", &counters.skipped),
            ("written_bytes", &counters.written_bytes),
            ("bursts", &counters.bursts),
            ("spoiled", &counters.spoiled),
            ("full", &counters.full),
        ];
        DriveStatus {
            device: self.device,
            name: self.name.clone(),
            place: self.place.clone(),
            known: KnownDrive {
                nonce: label.begun_nonce,
                profile: self.profile.clone(),
            },
            room: (room.total, room.free),
            objects: room.objects,
            seen: label.position,
            queued: (objects, bytes),
            short: self.count_unplaced(),
            is_late: self.reader.is_late(),
            is_told: !self.is_unannounced.load(Relaxed),
            counts: counts
                .into_iter()
                .map(|(name, count)| (name, count.load(Relaxed)))
                .collect(),
        }
    }
}

impl ContentLocations {
    /// Returns where the content of an object is whose volume has no server: here.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::Invalid`].
    pub fn without_server(volume: &Volume, no: ObjectNo) -> Result<Self, FsError> {
        let store = volume.store();
        let attr = store.attr(no)?;
        let (size, why) = match attr.kind {
            FileType::File => (attr.size, "read: all of it is here"),
            FileType::Dir => {
                let below = tree_below(store, no, |_| Ok(()))?.into_iter();
                let files = below.filter(|(_, kind, _)| *kind == FileType::File);
                let size = files.map(|(_, _, size)| size).sum();
                (size, "all that is known here of it")
            }
            _ => return Err(FsError::Invalid),
        };
        let here = SourceStatus {
            name: "home log".to_owned(),
            data_seq: None,
            bytes: size,
            price: None,
            why,
        };
        Ok(Self {
            path: store.path_of(no),
            size,
            pinned: None,
            sources: vec![here],
        })
    }
}

impl Replica {
    /// The names of the drives that are attached here, where they are, and how many objects wait to
    /// be copied to each; asks none of them.
    pub fn attached_drive_names(&self) -> Vec<(String, String, u64)> {
        let waits = |drive: &AttachedDrive| {
            drive.queue.lock().objects.len() as u64 + drive.burst_left.load(Relaxed)
        };
        let line = |drive: std::sync::Arc<AttachedDrive>| {
            (drive.name.clone(), drive.place.clone(), waits(&drive))
        };
        self.drive_set()
            .attached_drives()
            .into_iter()
            .map(line)
            .collect()
    }

    /// The drives that are attached here.
    pub fn drive_statuses(&self) -> Vec<DriveStatus> {
        let all = self.drive_set().attached_drives();
        all.iter().map(|attached| attached.status()).collect()
    }

    /// Returns where the content of an object is, and where it would be read from; of a directory,
    /// how much of what is known below it is here.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::Invalid`].
    pub fn locate_content(&self, no: ObjectNo) -> Result<ContentLocations, FsError> {
        let attr = self.store().attr(no)?;
        match attr.kind {
            FileType::File => {}
            FileType::Dir => return self.locate_tree(no),
            _ => return Err(FsError::Invalid),
        }
        let (note, mut sources) = (self.note_of(no)?, Vec::new());
        let absent: u64 = note
            .absent
            .clipped_to(0, attr.size)
            .iter()
            .map(|(from, to)| to - from)
            .sum();
        let here = attr.size - absent;
        let mut shown = |name: &str, data_seq, bytes, price, why| {
            sources.push(SourceStatus {
                name: name.to_owned(),
                data_seq,
                bytes,
                price,
                why,
            });
        };
        let why = match (absent, here) {
            (0, _) => "read: all of it is here",
            (_, 0) => "not here",
            _ => "read where it is here",
        };
        shown("home log", None, here, None, why);
        let pinned = self.pinned_by(no)?.map(|above| self.store().path_of(above));
        let weights = self.drive_set().weights();
        let is_up = self.state().is_up();
        let mut is_first = absent > 0;
        let mut ordered = self.drive_set().ordered_sources(
            (no, note.data_seq),
            BLOCK,
            is_up,
            (self.clock(), false),
        );
        if !ordered
            .iter()
            .any(|source| matches!(source, ContentSource::Server))
        {
            ordered.push(ContentSource::Server);
        }
        for source in ordered {
            match source {
                ContentSource::Server => {
                    let meter = self.drive_set().server_latency();
                    let why = match (is_up, is_first) {
                        (false, _) => "out of reach",
                        (_, true) => "read next: it costs least",
                        _ => "asked if those before fail",
                    };
                    is_first &= !is_up;
                    let known = (!note.absent.is_empty()).then_some(note.data_seq);
                    shown(
                        "server",
                        known,
                        attr.size,
                        ReadPrice::predict(&meter, weights),
                        why,
                    );
                }
                ContentSource::Drive(drive) => {
                    let meter = drive.current_latency();
                    let asked = std::sync::Arc::clone(&drive.drive);
                    let held = drive
                        .reader
                        .run_with_deadline(super::read::PATIENCE_MAX, move || {
                            asked.held_object(no).ok()
                        })
                        .flatten();
                    let content = held.and_then(|held| held.content);
                    let bytes = content
                        .iter()
                        .flat_map(|content| content.present.iter())
                        .map(|(from, to)| to - from)
                        .sum();
                    let has_it = absent > 0
                        && content
                            .as_ref()
                            .is_some_and(|content| content.data_seq == note.data_seq);
                    let why = match (&content, has_it && is_first) {
                        (None, _) => "does not have it",
                        (_, true) => "read next: it costs least",
                        (Some(_), _) if absent > 0 && !has_it => "has another version",
                        _ => "has a copy",
                    };
                    is_first &= !has_it;
                    let seq = content.map(|content| content.data_seq);
                    shown(
                        &drive.name,
                        seq,
                        bytes,
                        ReadPrice::predict(&meter, weights),
                        why,
                    );
                }
            }
        }
        Ok(ContentLocations {
            path: self.store().path_of(no),
            size: attr.size,
            pinned,
            sources,
        })
    }

    fn locate_tree(&self, no: ObjectNo) -> Result<ContentLocations, FsError> {
        let (mut size, mut absent) = (0, 0);
        for (file, kind, bytes) in self.subtree(no, false)? {
            if kind == FileType::File {
                size += bytes;
                absent += self.note_of(file)?.absent.clipped_to(0, bytes).byte_count();
            }
        }
        let shown = |name: &str, bytes, why| {
            let name = name.to_owned();
            SourceStatus {
                name,
                data_seq: None,
                bytes,
                price: None,
                why,
            }
        };
        let why = if absent == 0 {
            "all that is known here of it"
        } else {
            "the rest comes when it is read"
        };
        let mut sources = vec![shown("home log", size - absent, why)];
        let pinned = self.pinned_by(no)?;
        if absent > 0 {
            sources.push(shown("elsewhere", absent, "not here"));
        }
        let pinned = pinned.map(|above| self.store().path_of(above));
        Ok(ContentLocations {
            path: self.store().path_of(no),
            size,
            pinned,
            sources,
        })
    }
}
