//! Plans the phases: sets of files, and their uses. Pure.
//!
//! # Sizes
//! Sizes are those of the thesis, in MiB where it says MB: 50 MB of files of one size, in
//! directories of at most 200; 24 MB of accesses of 8 KB in a file of 100 MB; 156 photos of 145.8
//! MB; 35 pieces of music of 138.4 MB. A scale multiplies the number of files and accesses; of the
//! one large file, its size.

use super::orders;
use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4 * KIB;
/// Bytes of an access to the large file, and of a file that fills a file system in the thesis.
pub(super) const PIECE: u64 = 8 * KIB;
/// Limits the files of a directory.
const PER_DIRECTORY: u64 = 200;
/// Percentages to which a file system with fragmented free space is filled; it is thinned out from
/// the fullest down.
const LEVELS: [u64; 4] = [80, 60, 40, 20];

/// Says when written data has to be on the disk, and what stays cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncMode {
    /// As in the thesis: all of the file system synced after each write call, the page cache
    /// dropped after each operation.
    T,
    /// Each write call followed by an fsync of its file.
    F,
    /// Cached; synced at the end.
    C,
}

/// Orders the visits to files, or to places in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitOrder {
    /// In the order in which they were made.
    Made,
    /// In a random order, each once.
    Random,
}

/// Describes a set of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseFiles {
    /// Name of their directories, before a number.
    pub name: &'static str,
    /// Number of files.
    pub count: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Is true when they differ in size.
    pub is_mixed: bool,
}

impl PhaseFiles {
    fn with_equal_sizes(size: u64, count: u64) -> Self {
        Self {
            name: "d",
            count,
            bytes: size * count,
            is_mixed: false,
        }
    }

    fn with_mixed_sizes(name: &'static str, bytes: f64, count: u64, scale: f64) -> Self {
        let scaled = scale_count(count, scale);
        Self {
            name,
            count: scaled,
            bytes: (bytes * MIB as f64 * scaled as f64 / count as f64) as u64,
            is_mixed: true,
        }
    }

    /// Returns the sizes of the files in the order in which they are made. They sum up to `bytes`.
    pub fn file_sizes(&self) -> Vec<u64> {
        if !self.is_mixed {
            return vec![self.bytes / self.count.max(1); self.count as usize];
        }
        // Sizes spread by a fifth about their mean, as photos and pieces of music do.
        let weights: Vec<u64> = (0..self.count)
            .map(|at| 80 + orders::draw_number(at) % 41)
            .collect();
        let all: u64 = weights.iter().sum();
        let mut sizes: Vec<u64> = weights
            .iter()
            .map(|weight| self.bytes * weight / all.max(1))
            .collect();
        // Rounding loses some bytes: the last file gets them.
        if let Some(last) = sizes.last_mut() {
            *last += self.bytes
                - weights
                    .iter()
                    .map(|weight| self.bytes * weight / all.max(1))
                    .sum::<u64>();
        }
        debug_assert_eq!(
            sizes.iter().sum::<u64>(),
            self.bytes,
            "the sizes sum up to the bytes of the set"
        );
        sizes
    }

    /// Returns the directory and the file, below the mount.
    pub fn path_parts(&self, at: u64) -> (String, String) {
        (
            format!("{}{:03}", self.name, at / PER_DIRECTORY),
            format!("f{:03}", at % PER_DIRECTORY),
        )
    }
}

/// Describes files that fill a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillFiles {
    /// Bytes of the smallest file.
    least: u64,
    /// Bytes of the largest file; sizes between are drawn, whole blocks apart.
    most: u64,
    /// Seed of the sizes.
    seed: u64,
}

impl FillFiles {
    /// The files of the thesis.
    const PIECES: Self = Self {
        least: PIECE,
        most: PIECE,
        seed: 0,
    };

    /// Returns the bytes of a file.
    pub fn file_size(&self, at: u64) -> u64 {
        debug_assert!(
            self.least <= self.most,
            "the smallest file is larger than the largest"
        );
        let sizes = (self.most - self.least) / BLOCK + 1;
        self.least + orders::draw_number(orders::draw_number(self.seed) ^ at) % sizes * BLOCK
    }
}

/// Returns phases that age a fresh file system: they write files of 4 to 60 KiB, 32 in the mean,
/// until there is no room, and then leave this percentage of them, drawn by the seed. (With smaller
/// files an ext file system would run out of inodes before it is full.)
pub fn ageing_phases(percent: u64, seed: u64) -> Vec<WorkloadPhase> {
    let filling = FillFiles {
        least: BLOCK,
        most: 15 * BLOCK,
        seed,
    };
    vec![
        WorkloadPhase::new_preparing("fill", PhaseAct::Fill(filling)),
        WorkloadPhase::new_preparing("thin", PhaseAct::Thin { percent, seed }),
    ]
}

/// Describes the work of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseAct {
    /// Makes files, or truncates and writes them again, in write calls of a given size.
    Write {
        /// Files that are written.
        set: PhaseFiles,
        /// Bytes of a call; `None` means a file in one.
        call: Option<u64>,
        /// Is true when the files exist already.
        again: bool,
    },
    /// Reads files, in calls of a given size.
    Read {
        /// Files that are read.
        set: PhaseFiles,
        /// Bytes of a call; `None` means a file in one.
        call: Option<u64>,
        /// Order of the files.
        order: VisitOrder,
    },
    /// Accesses pieces of 8 KB of the first file of a set.
    Touch {
        /// Set of the file.
        set: PhaseFiles,
        /// Number of pieces, each accessed once.
        pieces: u64,
        /// Is true when they are written, not read.
        write: bool,
        /// Seed of the order.
        seed: u64,
    },
    /// Writes files until there is no room.
    Fill(FillFiles),
    /// Removes files that filled the file system; this percentage stays, drawn by the seed.
    Thin {
        /// Percentage that stays.
        percent: u64,
        /// Seed of the choice.
        seed: u64,
    },
    /// Removes the files of a set.
    Remove(PhaseFiles),
}

/// Describes one phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadPhase {
    /// Name of the phase.
    pub name: String,
    /// Work of the phase.
    pub act: PhaseAct,
    /// Is true when it is measured. Otherwise it prepares the next phases, without syncs.
    pub counts: bool,
}

impl WorkloadPhase {
    fn new_counted(name: impl Into<String>, act: PhaseAct) -> Self {
        Self {
            name: name.into(),
            act,
            counts: true,
        }
    }
    fn new_preparing(name: impl Into<String>, act: PhaseAct) -> Self {
        Self {
            name: name.into(),
            act,
            counts: false,
        }
    }

    /// Returns the bytes that the user reads or writes.
    pub fn user_bytes(&self) -> u64 {
        match self.act {
            PhaseAct::Write { set, .. } | PhaseAct::Read { set, .. } => set.bytes,
            PhaseAct::Touch { pieces, .. } => pieces * PIECE,
            PhaseAct::Fill(_) | PhaseAct::Thin { .. } | PhaseAct::Remove(_) => 0,
        }
    }

    /// Returns whether it writes.
    pub fn is_write(&self) -> bool {
        !matches!(
            self.act,
            PhaseAct::Read { .. } | PhaseAct::Touch { write: false, .. }
        )
    }
}

/// Names phases that follow each other on one file system, which is fresh at their beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PhaseGroup {
    /// 50 MB of files of this many KB.
    Files(u64),
    /// 8 KB at a time in a file of 100 MB.
    Update,
    /// Photos, each in one write call.
    Camera,
    /// Photos, in write calls of 64 KB.
    Camera64,
    /// Music.
    Mp3,
    /// Photos and music where free space is in pieces.
    Fragmented,
}

impl PhaseGroup {
    /// All groups, in the order of the tables.
    pub const ALL: [Self; 8] = [
        Self::Files(4),
        Self::Files(32),
        Self::Files(1024),
        Self::Update,
        Self::Camera,
        Self::Camera64,
        Self::Mp3,
        Self::Fragmented,
    ];

    /// Returns its name.
    pub fn name(self) -> String {
        match self {
            Self::Files(kib) => format!("{kib}k"),
            Self::Update => "update".into(),
            Self::Camera => "camera".into(),
            Self::Camera64 => "camera-64k".into(),
            Self::Mp3 => "mp3".into(),
            Self::Fragmented => "fragmented".into(),
        }
    }

    /// Returns the group of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }

    /// Returns its phases at a scale.
    pub fn phases_at_scale(self, scale: f64) -> Vec<WorkloadPhase> {
        let photos = PhaseFiles::with_mixed_sizes("photos", 145.8, 156, scale);
        // The fragmented group writes the same files as camera and mp3.
        match self {
            Self::Files(kib) => file_phases(PhaseFiles::with_equal_sizes(
                kib * KIB,
                scale_count(50 * KIB / kib, scale),
            )),
            Self::Update => update_phases(scale),
            Self::Camera => vec![WorkloadPhase::new_counted(
                "camera",
                write_act(photos, None),
            )],
            Self::Camera64 => vec![WorkloadPhase::new_counted(
                "camera 64 KB",
                write_act(photos, Some(64 * KIB)),
            )],
            Self::Mp3 => {
                let set = PhaseFiles::with_mixed_sizes("music", 138.4, 35, scale);
                vec![
                    WorkloadPhase::new_counted("mp3 write", write_act(set, None)),
                    WorkloadPhase::new_counted("mp3 read", play_act(set)),
                ]
            }
            Self::Fragmented => fragment_phases(
                photos,
                PhaseFiles::with_mixed_sizes("music", 138.4, 35, scale),
            ),
        }
    }
}

fn write_act(set: PhaseFiles, call: Option<u64>) -> PhaseAct {
    PhaseAct::Write {
        set,
        call,
        again: false,
    }
}

fn play_act(set: PhaseFiles) -> PhaseAct {
    PhaseAct::Read {
        set,
        call: Some(64 * KIB),
        order: VisitOrder::Made,
    }
}

fn file_phases(set: PhaseFiles) -> Vec<WorkloadPhase> {
    // The six phases of the thesis, on one set of files.
    let read = |order| PhaseAct::Read {
        set,
        call: None,
        order,
    };
    vec![
        WorkloadPhase::new_counted("create", write_act(set, None)),
        WorkloadPhase::new_counted("read", read(VisitOrder::Made)),
        WorkloadPhase::new_counted("rand_read", read(VisitOrder::Random)),
        WorkloadPhase::new_counted(
            "rewrite",
            PhaseAct::Write {
                set,
                call: None,
                again: true,
            },
        ),
        WorkloadPhase::new_counted("reread", read(VisitOrder::Made)),
        WorkloadPhase::new_counted("rand_reread", read(VisitOrder::Random)),
    ]
}

fn update_phases(scale: f64) -> Vec<WorkloadPhase> {
    // The file is made once and then updated in place, so its size is a multiple of the piece.
    let pieces = scale_count(100 * MIB / PIECE, scale);
    let set = PhaseFiles::with_equal_sizes(pieces * PIECE, 1);
    // Only a quarter of the file is accessed, in random order.
    let some = scale_count(24 * MIB / PIECE, scale);
    let read = PhaseAct::Read {
        set,
        call: Some(PIECE),
        order: VisitOrder::Made,
    };
    let touch = |write, seed| PhaseAct::Touch {
        set,
        pieces: some,
        write,
        seed,
    };
    vec![
        WorkloadPhase::new_preparing("file", write_act(set, Some(MIB))),
        WorkloadPhase::new_counted("read", read),
        WorkloadPhase::new_counted("rand_read", touch(false, 1)),
        WorkloadPhase::new_counted("write", touch(true, 2)),
        WorkloadPhase::new_counted("reread", read),
        WorkloadPhase::new_counted("rand_reread", touch(false, 1)),
    ]
}

fn fragment_phases(photos: PhaseFiles, music: PhaseFiles) -> Vec<WorkloadPhase> {
    // The file system is filled first, and thinned out step by step.
    let mut phases = vec![WorkloadPhase::new_preparing(
        "fill",
        PhaseAct::Fill(FillFiles::PIECES),
    )];
    // At each level the same files are written and read, and removed again.
    for level in LEVELS {
        phases.extend([
            WorkloadPhase::new_preparing(
                format!("thin to {level} %"),
                PhaseAct::Thin {
                    percent: level,
                    seed: VisitOrder::SEED,
                },
            ),
            WorkloadPhase::new_counted(format!("camera at {level} %"), write_act(photos, None)),
            WorkloadPhase::new_preparing(
                format!("no photos at {level} %"),
                PhaseAct::Remove(photos),
            ),
            WorkloadPhase::new_counted(format!("mp3 write at {level} %"), write_act(music, None)),
            WorkloadPhase::new_counted(format!("mp3 read at {level} %"), play_act(music)),
            WorkloadPhase::new_preparing(format!("no music at {level} %"), PhaseAct::Remove(music)),
        ]);
    }
    phases
}

/// Scales a number; the result is at least one.
fn scale_count(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale).round() as u64).max(1)
}
