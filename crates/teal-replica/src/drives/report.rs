//! Drives for people: how each stands, and where an object's content is and would be read from.

use super::super::Replica;
use super::KnownDrive;
use super::affinity::tree_below;
use super::attached::AttachedDrive;
use super::attached_drives::ContentSource;
use super::choice::LatencyModel;
use super::read::PATIENCE_MAX;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use teal_energy::policy::choice::CostWeights;
use teal_types::{BLOCK, CommitSeq, DriveNo, Energy, FileType, ObjectNo};
use teal_volume::FsError;
use teal_volume::Volume;

/// The state of an attached drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveStatus {
    /// Its number in the volume.
    pub device: DriveNo,
    /// Its name.
    pub name: String,
    /// The place of the drive.
    pub place: String,
    /// The facts to remember, so that it can be attached again while the server is away.
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
    /// Is true while the drive has not answered a request in time.
    pub is_late: bool,
    /// The server has heard of its attachment here.
    pub is_told: bool,
    /// Counters of the traffic between the drive and this client, by name.
    pub counts: Vec<(&'static str, u64)>,
}

/// The predicted cost of reading a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPrice {
    /// The time it takes.
    pub latency: Duration,
    /// Is true if the time was measured; otherwise it comes from the drive's profile.
    pub is_measured: bool,
    /// The energy that machine and source draw meanwhile, modelled.
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

/// The content that a source has of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// The commit whose content it has, if it has any.
    pub data_seq: Option<CommitSeq>,
    /// The bytes that it has.
    pub bytes: u64,
    /// The predicted cost of reading its first block, as far as known.
    pub price: Option<ReadPrice>,
    /// The reason for which it is, or is not, read now.
    pub why: &'static str,
}

/// The places of an object's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentLocations {
    /// Its path.
    pub path: String,
    /// Bytes; of a directory those of all files below it that are known here.
    pub size: u64,
    /// The pinned path that keeps it here, if there is one.
    pub pinned: Option<String>,
    /// Sources, in the order in which they would be asked.
    pub sources: Vec<SourceStatus>,
}

impl AttachedDrive {
    fn status(&self) -> DriveStatus {
        let (room, label) = (self.drive.capacity(), self.drive.label());
        let (objects, bytes) = self.queue.len();
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
            is_told: !self.is_untold(),
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

/// Describes the sources of a file's content, in the order in which they would be asked.
struct SourceSurvey {
    no: ObjectNo,
    size: u64,
    /// Bytes that are not here.
    absent: u64,
    /// The commit whose content is missing here, if some is.
    data_seq: Option<CommitSeq>,
    weights: CostWeights,
    /// Is true until a source that has the content was found: that one is read next.
    is_next: bool,
}

impl SourceSurvey {
    fn home_log(&self) -> SourceStatus {
        let here = self.size - self.absent;
        let why = match (self.absent, here) {
            (0, _) => "read: all of it is here",
            (_, 0) => "not here",
            _ => "read where it is here",
        };
        SourceStatus {
            name: "home log".to_owned(),
            data_seq: None,
            bytes: here,
            price: None,
            why,
        }
    }

    fn server(&mut self, is_up: bool, meter: &LatencyModel) -> SourceStatus {
        let why = match (is_up, self.is_next) {
            (false, _) => "out of reach",
            (_, true) => "read next: it costs least",
            _ => "asked if those before fail",
        };
        self.is_next &= !is_up;
        SourceStatus {
            name: "server".to_owned(),
            data_seq: self.data_seq,
            bytes: self.size,
            price: ReadPrice::predict(meter, self.weights),
            why,
        }
    }

    fn drive(&mut self, drive: &AttachedDrive) -> SourceStatus {
        let (no, asked) = (self.no, Arc::clone(&drive.drive));
        let held = drive
            .reader
            .run_with_deadline(PATIENCE_MAX, move || asked.held_object(no).ok())
            .flatten();
        let content = held.and_then(|held| held.content);
        let present = content.as_ref().map(|content| content.present.byte_count());
        let data_seq = content.map(|content| content.data_seq);
        // Only the very version that is missing here can be read from the drive.
        let has_it = self.absent > 0 && data_seq.is_some() && data_seq == self.data_seq;
        let why = match data_seq {
            None => "does not have it",
            Some(_) if has_it && self.is_next => "read next: it costs least",
            Some(_) if self.absent > 0 && !has_it => "has another version",
            Some(_) => "has a copy",
        };
        self.is_next &= !has_it;
        SourceStatus {
            name: drive.name.clone(),
            data_seq,
            bytes: present.unwrap_or(0),
            price: ReadPrice::predict(&drive.current_latency(), self.weights),
            why,
        }
    }
}

impl Replica {
    /// The names of the drives that are attached here, where they are, and how many objects wait to
    /// be copied to each; asks none of them.
    pub fn attached_drive_names(&self) -> Vec<(String, String, u64)> {
        let waits = |drive: &AttachedDrive| drive.queue.len().0;
        let line =
            |drive: Arc<AttachedDrive>| (drive.name.clone(), drive.place.clone(), waits(&drive));
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
        let note = self.note_of(no)?;
        let absent = note.absent.clipped_to(0, attr.size).byte_count();
        let pinned = self.pinned_by(no)?.map(|above| self.store().path_of(above));
        let is_up = self.state().is_up();
        let mut ordered = self.drive_set().ordered_sources(
            (no, note.data_seq),
            BLOCK,
            is_up,
            (self.clock(), false),
        );
        let has_server = ordered
            .iter()
            .any(|source| matches!(source, ContentSource::Server));
        if !has_server {
            ordered.push(ContentSource::Server);
        }
        let mut survey = SourceSurvey {
            no,
            size: attr.size,
            absent,
            data_seq: (!note.absent.is_empty()).then_some(note.data_seq),
            weights: self.drive_set().weights(),
            is_next: absent > 0,
        };
        let mut sources = vec![survey.home_log()];
        for source in ordered {
            sources.push(match source {
                ContentSource::Server => survey.server(is_up, &self.drive_set().server_latency()),
                ContentSource::Drive(drive) => survey.drive(&drive),
            });
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
