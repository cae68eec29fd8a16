//! The rows of the table: their goals, and which are measured together.
//!
//! Rows of a group share what they need: what one makes the next renames.

mod bulk;
mod cached;
mod durable;
mod files;
mod names;

use super::stage::Stage;
use anyhow::Result;

/// What a row must reach, as a ratio to ext4; `None` where nothing is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Goal {
    pub(super) time: Option<f64>,
    /// Processor time of client and server.
    pub(super) cpu: Option<f64>,
    /// Barriers per operation, not a ratio.
    pub(super) barriers: Option<f64>,
}

impl Goal {
    const NONE: Self = Self {
        time: None,
        cpu: None,
        barriers: None,
    };

    const fn time(ratio: f64) -> Self {
        Self {
            time: Some(ratio),
            ..Self::NONE
        }
    }
}

pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) goal: Goal,
}

pub(super) struct Group {
    pub(super) rows: &'static [Row],
    pub(super) run: fn(&mut Stage<'_>) -> Result<()>,
}

const fn row(name: &'static str, time: f64) -> Row {
    Row {
        name,
        goal: Goal::time(time),
    }
}

/// Every row, in the order of the table.
pub(super) const GROUPS: &[Group] = &[
    Group {
        rows: &[
            row(cached::STAT, 1.1),
            row(cached::NEGATIVE, 1.1),
            row(cached::OPEN, 1.5),
        ],
        run: cached::small_files,
    },
    Group {
        rows: &[row(cached::READ, 1.4), row(cached::SEQUENTIAL, 1.4)],
        run: cached::one_file,
    },
    Group {
        rows: &[row(names::READDIR, 1.5), row(names::LS, 1.5)],
        run: names::listings,
    },
    Group {
        rows: &[row(names::GIT, 1.2)],
        run: names::git_status,
    },
    Group {
        rows: &[row(files::TRAVERSE, 5.0)],
        run: files::traverse,
    },
    Group {
        rows: &[
            row(names::CREATE, 3.0),
            row(names::RENAME, 3.0),
            row(names::UNLINK, 3.0),
        ],
        run: names::life,
    },
    Group {
        rows: &[row(files::SYNCED, 2.5), row(files::REMOVE, 3.0)],
        run: files::tree,
    },
    Group {
        rows: &[row(bulk::TAR, 2.0)],
        run: bulk::tar,
    },
    Group {
        rows: &[row(bulk::XZ, 1.2)],
        run: bulk::xz,
    },
    Group {
        rows: &[Row {
            name: durable::THREADS,
            goal: Goal {
                time: Some(1.0),
                cpu: None,
                barriers: Some(0.25),
            },
        }],
        run: durable::threads,
    },
    Group {
        rows: &[
            Row {
                name: durable::OVERWRITE,
                goal: Goal {
                    time: Some(1.5),
                    cpu: None,
                    barriers: Some(1.0),
                },
            },
            Row {
                name: durable::APPEND,
                goal: Goal::NONE,
            },
        ],
        run: durable::small_writes,
    },
    Group {
        rows: &[
            Row {
                name: bulk::WRITE,
                goal: Goal {
                    time: Some(1.4),
                    cpu: Some(4.0),
                    barriers: None,
                },
            },
            Row {
                name: bulk::READ_COLD,
                goal: Goal {
                    time: Some(1.4),
                    cpu: Some(4.0),
                    barriers: None,
                },
            },
        ],
        run: bulk::stream,
    },
];

/// Bytes that no file system can save itself from writing.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.flat_map(u64::to_le_bytes).take(bytes).collect()
}
