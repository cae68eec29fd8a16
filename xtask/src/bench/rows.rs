//! The rows of the table, their goals, and the groups that are measured together.
//!
//! Rows of a group share their files: one row makes them, and the next renames them.

mod bulk;
mod cached;
mod durable;
mod files;
mod names;
mod random_bytes;

use super::stage::RowStage;
use anyhow::Result;

/// The goal of a row, as a ratio to ext4; `None` where there is no goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RowGoal {
    pub(super) time: Option<f64>,
    /// Processor time of client and server.
    pub(super) cpu: Option<f64>,
    /// Barriers per operation, not a ratio.
    pub(super) barriers: Option<f64>,
}

impl RowGoal {
    const NONE: Self = Self {
        time: None,
        cpu: None,
        barriers: None,
    };

    const fn time_ratio(ratio: f64) -> Self {
        Self {
            time: Some(ratio),
            ..Self::NONE
        }
    }
}

pub(super) struct BenchRow {
    pub(super) name: &'static str,
    pub(super) goal: RowGoal,
}

pub(super) struct RowGroup {
    pub(super) rows: &'static [BenchRow],
    pub(super) run: fn(&mut RowStage<'_>) -> Result<()>,
}

const fn timed_row(name: &'static str, time: f64) -> BenchRow {
    BenchRow {
        name,
        goal: RowGoal::time_ratio(time),
    }
}

/// Every row, in the order of the table.
pub(super) const GROUPS: &[RowGroup] = &[
    RowGroup {
        rows: &[
            timed_row(cached::STAT, 1.1),
            timed_row(cached::NEGATIVE, 1.1),
            timed_row(cached::OPEN, 1.5),
        ],
        run: cached::small_files,
    },
    RowGroup {
        rows: &[
            timed_row(cached::READ, 1.4),
            timed_row(cached::SEQUENTIAL, 1.4),
        ],
        run: cached::one_file,
    },
    RowGroup {
        rows: &[timed_row(names::READDIR, 1.5), timed_row(names::LS, 1.5)],
        run: names::time_listings,
    },
    RowGroup {
        rows: &[timed_row(names::GIT, 1.2)],
        run: names::git_status,
    },
    RowGroup {
        rows: &[timed_row(files::TRAVERSE, 5.0)],
        run: files::traverse_cold,
    },
    RowGroup {
        rows: &[
            timed_row(names::CREATE, 3.0),
            timed_row(names::RENAME, 3.0),
            timed_row(names::UNLINK, 3.0),
        ],
        run: names::create_rename_unlink,
    },
    RowGroup {
        rows: &[timed_row(files::SYNCED, 2.5), timed_row(files::REMOVE, 3.0)],
        run: files::make_and_remove,
    },
    RowGroup {
        rows: &[timed_row(bulk::TAR, 2.0)],
        run: bulk::unpack_tar,
    },
    RowGroup {
        rows: &[timed_row(bulk::XZ, 1.2)],
        run: bulk::unpack_xz,
    },
    RowGroup {
        rows: &[BenchRow {
            name: durable::THREADS,
            goal: RowGoal {
                time: Some(1.0),
                cpu: None,
                barriers: Some(0.25),
            },
        }],
        run: durable::create_in_threads,
    },
    RowGroup {
        rows: &[
            BenchRow {
                name: durable::OVERWRITE,
                goal: RowGoal {
                    time: Some(1.5),
                    cpu: None,
                    barriers: Some(1.0),
                },
            },
            BenchRow {
                name: durable::APPEND,
                goal: RowGoal::NONE,
            },
        ],
        run: durable::small_writes,
    },
    RowGroup {
        rows: &[
            BenchRow {
                name: bulk::WRITE,
                goal: RowGoal {
                    time: Some(1.4),
                    cpu: Some(4.0),
                    barriers: None,
                },
            },
            BenchRow {
                name: bulk::READ_COLD,
                goal: RowGoal {
                    time: Some(1.4),
                    cpu: Some(4.0),
                    barriers: None,
                },
            },
        ],
        run: bulk::stream_file,
    },
];
