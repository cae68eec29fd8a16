//! What the phases are: sets of files, and what is done with them. Pure.
//!
//! # Sizes
//! As the thesis has them, in MiB where it says MB: 50 MB of files of one size, in directories of
//! at most 200; 24 MB of accesses of 8 KB in a file of 100 MB; 156 photos of 145.8 MB; 35 pieces of
//! music of 138.4 MB. A scale takes that part of the number of files and accesses; of the one large
//! file, of its size.

use super::orders;
use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4 * KIB;
/// Accesses to the large file, files that fill a file system in the thesis.
pub(super) const PIECE: u64 = 8 * KIB;
/// Files of a directory at most.
const PER_DIRECTORY: u64 = 200;
/// How full a file system is with free space in pieces, in percent; thinned out from the fullest
/// down.
const LEVELS: [u64; 4] = [80, 60, 40, 20];

/// When what was written has to be on the disk, and what is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// As in the thesis: all of the file system synced after each write call, the page cache
    /// dropped after each operation.
    T,
    /// Each write call followed by an fsync of its file.
    F,
    /// Cached; synced at the end.
    C,
}

/// In which order files, or places in a file, are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they were made.
    Made,
    /// Drawn, each once.
    Random,
}

/// Files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Set {
    /// What their directories are called, before a number.
    pub name: &'static str,
    /// How many.
    pub count: u64,
    /// Bytes of all together.
    pub bytes: u64,
    /// Whether they differ in size.
    pub is_mixed: bool,
}

impl Set {
    fn alike(size: u64, count: u64) -> Self {
        Self {
            name: "d",
            count,
            bytes: size * count,
            is_mixed: false,
        }
    }

    fn mixed(name: &'static str, bytes: f64, count: u64, scale: f64) -> Self {
        let scaled = scaled(count, scale);
        Self {
            name,
            count: scaled,
            bytes: (bytes * MIB as f64 * scaled as f64 / count as f64) as u64,
            is_mixed: true,
        }
    }

    /// The sizes of the files, in the order in which they are made. They sum up to `bytes`.
    pub fn sizes(&self) -> Vec<u64> {
        if !self.is_mixed {
            return vec![self.bytes / self.count.max(1); self.count as usize];
        }
        let weights: Vec<u64> = (0..self.count)
            .map(|at| 80 + orders::drawn(at) % 41)
            .collect();
        let all: u64 = weights.iter().sum();
        let mut sizes: Vec<u64> = weights
            .iter()
            .map(|weight| self.bytes * weight / all.max(1))
            .collect();
        if let Some(last) = sizes.last_mut() {
            *last += self.bytes
                - weights
                    .iter()
                    .map(|weight| self.bytes * weight / all.max(1))
                    .sum::<u64>();
        }
        sizes
    }

    /// Directory and file, below the mount.
    pub fn path(&self, at: u64) -> (String, String) {
        (
            format!("{}{:03}", self.name, at / PER_DIRECTORY),
            format!("f{:03}", at % PER_DIRECTORY),
        )
    }
}

/// Files that fill a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling {
    /// Bytes of the smallest.
    least: u64,
    /// Bytes of the largest; sizes between are drawn, whole blocks apart.
    most: u64,
    /// What is drawn.
    seed: u64,
}

impl Filling {
    /// Those of the thesis.
    const PIECES: Self = Self {
        least: PIECE,
        most: PIECE,
        seed: 0,
    };

    /// The bytes of a file.
    pub fn size(&self, at: u64) -> u64 {
        let sizes = (self.most - self.least) / BLOCK + 1;
        self.least + orders::drawn(orders::drawn(self.seed) ^ at) % sizes * BLOCK
    }
}

/// Phases that make a fresh file system one that has been lived on: files of 4 to 60 KiB, 32 in the
/// mean, until there is no room; then so many percent of them stay, whichever this seed draws. (Of
/// smaller ones an ext file system would run out of inodes before it is full.)
pub fn ageing(percent: u64, seed: u64) -> Vec<Phase> {
    let filling = Filling {
        least: BLOCK,
        most: 15 * BLOCK,
        seed,
    };
    vec![
        Phase::prepares("fill", Act::Fill(filling)),
        Phase::prepares("thin", Act::Thin { percent, seed }),
    ]
}

/// What is done in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Files are made, or truncated and written again, in write calls of so many bytes.
    Write {
        /// Which.
        set: Set,
        /// Bytes of a call; `None`: a file in one.
        call: Option<u64>,
        /// They are there.
        again: bool,
    },
    /// Files are read, each in calls of so many bytes.
    Read {
        /// Which.
        set: Set,
        /// Bytes of a call; `None`: a file in one.
        call: Option<u64>,
        /// In which order.
        order: Order,
    },
    /// Pieces of 8 KB of the first file of a set.
    Touch {
        /// Which.
        set: Set,
        /// How many pieces, each once.
        pieces: u64,
        /// Written, not read.
        write: bool,
        /// What is drawn.
        seed: u64,
    },
    /// Files until there is no room.
    Fill(Filling),
    /// Of those that filled it, this many percent stay, whichever are drawn.
    Thin {
        /// Percent.
        percent: u64,
        /// What is drawn.
        seed: u64,
    },
    /// The files of a set go.
    Remove(Set),
}

/// One phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// How it is called.
    pub name: String,
    /// What it does.
    pub act: Act,
    /// Whether it is what is measured; if not, it makes what the next need, without syncs.
    pub counts: bool,
}

impl Phase {
    fn counted(name: impl Into<String>, act: Act) -> Self {
        Self {
            name: name.into(),
            act,
            counts: true,
        }
    }
    fn prepares(name: impl Into<String>, act: Act) -> Self {
        Self {
            name: name.into(),
            act,
            counts: false,
        }
    }

    /// Bytes that the user reads or writes.
    pub fn bytes(&self) -> u64 {
        match self.act {
            Act::Write { set, .. } | Act::Read { set, .. } => set.bytes,
            Act::Touch { pieces, .. } => pieces * PIECE,
            Act::Fill(_) | Act::Thin { .. } | Act::Remove(_) => 0,
        }
    }

    /// Returns whether it writes.
    pub fn writes(&self) -> bool {
        !matches!(self.act, Act::Read { .. } | Act::Touch { write: false, .. })
    }
}

/// Phases that follow each other on one file system, which is fresh at their beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
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

impl Group {
    /// All, in the order of the tables.
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

    /// Its name.
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

    /// The group of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }

    /// Its phases at a scale.
    pub fn phases(self, scale: f64) -> Vec<Phase> {
        let photos = Set::mixed("photos", 145.8, 156, scale);
        match self {
            Self::Files(kib) => of_files(Set::alike(kib * KIB, scaled(50 * KIB / kib, scale))),
            Self::Update => of_updates(scale),
            Self::Camera => vec![Phase::counted("camera", write(photos, None))],
            Self::Camera64 => vec![Phase::counted(
                "camera 64 KB",
                write(photos, Some(64 * KIB)),
            )],
            Self::Mp3 => {
                let set = Set::mixed("music", 138.4, 35, scale);
                vec![
                    Phase::counted("mp3 write", write(set, None)),
                    Phase::counted("mp3 read", play(set)),
                ]
            }
            Self::Fragmented => of_fragments(photos, Set::mixed("music", 138.4, 35, scale)),
        }
    }
}

fn write(set: Set, call: Option<u64>) -> Act {
    Act::Write {
        set,
        call,
        again: false,
    }
}

fn play(set: Set) -> Act {
    Act::Read {
        set,
        call: Some(64 * KIB),
        order: Order::Made,
    }
}

fn of_files(set: Set) -> Vec<Phase> {
    let read = |order| Act::Read {
        set,
        call: None,
        order,
    };
    vec![
        Phase::counted("create", write(set, None)),
        Phase::counted("read", read(Order::Made)),
        Phase::counted("rand_read", read(Order::Random)),
        Phase::counted(
            "rewrite",
            Act::Write {
                set,
                call: None,
                again: true,
            },
        ),
        Phase::counted("reread", read(Order::Made)),
        Phase::counted("rand_reread", read(Order::Random)),
    ]
}

fn of_updates(scale: f64) -> Vec<Phase> {
    let pieces = scaled(100 * MIB / PIECE, scale);
    let set = Set::alike(pieces * PIECE, 1);
    let some = scaled(24 * MIB / PIECE, scale);
    let read = Act::Read {
        set,
        call: Some(PIECE),
        order: Order::Made,
    };
    let touch = |write, seed| Act::Touch {
        set,
        pieces: some,
        write,
        seed,
    };
    vec![
        Phase::prepares("file", write(set, Some(MIB))),
        Phase::counted("read", read),
        Phase::counted("rand_read", touch(false, 1)),
        Phase::counted("write", touch(true, 2)),
        Phase::counted("reread", read),
        Phase::counted("rand_reread", touch(false, 1)),
    ]
}

fn of_fragments(photos: Set, music: Set) -> Vec<Phase> {
    let mut phases = vec![Phase::prepares("fill", Act::Fill(Filling::PIECES))];
    for level in LEVELS {
        phases.extend([
            Phase::prepares(
                format!("thin to {level} %"),
                Act::Thin {
                    percent: level,
                    seed: Order::SEED,
                },
            ),
            Phase::counted(format!("camera at {level} %"), write(photos, None)),
            Phase::prepares(format!("no photos at {level} %"), Act::Remove(photos)),
            Phase::counted(format!("mp3 write at {level} %"), write(music, None)),
            Phase::counted(format!("mp3 read at {level} %"), play(music)),
            Phase::prepares(format!("no music at {level} %"), Act::Remove(music)),
        ]);
    }
    phases
}

/// That part of a number, at least one.
fn scaled(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale).round() as u64).max(1)
}
