//! Lists the totals that papers published of their traces.

use teal_types::TimeSpan;

/// Describes requests to the server, counted in windows of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSpikes {
    /// Length of a window.
    pub window: TimeSpan,
    /// Number of all requests.
    pub requests: u64,
    /// Number of windows with requests in a range, at least and less than. All other windows have
    /// fewer than the least.
    pub classes: &'static [(u64, u64, u64)],
}

/// Holds the totals that a paper published of a trace, and our additions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedTotals {
    /// Name of the trace.
    pub name: &'static str,
    /// Source of the totals.
    pub source: &'static str,
    /// Number of operations.
    pub operations: u64,
    /// Time from the first operation to the last.
    pub length: TimeSpan,
    /// Operations that modify data: the published percentage, rounded to a whole operation.
    pub changes: u64,
    /// Bytes of all files that are accessed.
    pub bytes: u64,
    /// Number of files: not published; see the source below.
    pub files: u64,
    /// Number of first operations that take a published time, and that time.
    pub head: Option<(u64, TimeSpan)>,
    /// Requests to the server.
    pub spikes: Option<RequestSpikes>,
    /// Most bytes of a change; `None` means the whole file.
    pub change: Option<u64>,
}

/// Bytes of a file: BlueFS kept several hundred files and ten thousand attributes in 16 MB (5.6).
const BLUEFS_FILE: u64 = 40_000;

const fn bluefs_totals(
    name: &'static str,
    operations: u64,
    length: u64,
    changes: u64,
    megabytes: u64,
) -> PublishedTotals {
    PublishedTotals {
        name,
        source: "BlueFS (2004) figure 5; files of 40 KB after 5.6",
        operations,
        length: TimeSpan::from_secs(length),
        changes,
        bytes: megabytes * 1_000_000,
        files: megabytes * 1_000_000 / BLUEFS_FILE,
        head: None,
        spikes: None,
        change: None,
    }
}

/// All streams that can be made up.
///
/// JEFF's files are what its server saw: 1.3 requests a second over 26.48 hours are 123,926; less
/// the 111,327 changes, 12,599 first reads.
pub const PUBLISHED: &[PublishedTotals] = &[
    PublishedTotals {
        name: "jeff",
        source: "GreenFS (2008) table 3 and 4.2; files after the requests to the server",
        operations: 1_987_982,
        length: TimeSpan::from_secs(95_328),
        changes: 111_327,
        bytes: 649_000_000,
        files: 12_599,
        head: None,
        spikes: Some(RequestSpikes {
            window: TimeSpan::from_secs(30),
            requests: 123_926,
            classes: &[(3, 10_000, 15_000), (17, 1_000, 10_000), (505, 100, 1_000)],
        }),
        change: Some(4096),
    },
    PublishedTotals {
        head: Some((10_000, TimeSpan::from_secs(42 * 60 + 36))),
        ..bluefs_totals("purcell", 87_739, 99_576, 5_264, 252)
    },
    bluefs_totals("messiaen", 44_027, 76_572, 881, 227),
    bluefs_totals("robin", 37_504, 55_656, 2_625, 85),
    bluefs_totals("berlioz", 17_917, 28_260, 1_433, 57),
];

impl PublishedTotals {
    /// Returns the trace of that name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        PUBLISHED.iter().find(|known| known.name == name)
    }
}
