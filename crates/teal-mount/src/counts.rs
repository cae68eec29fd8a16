//! Requests counted by operation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The names of the operation codes that are counted; codes without a name are counted together at
/// 0.
const NAMES: [(u32, &str); 39] = [
    (0, "other"),
    (1, "lookup"),
    (2, "forget"),
    (3, "getattr"),
    (4, "setattr"),
    (5, "readlink"),
    (6, "symlink"),
    (8, "mknod"),
    (9, "mkdir"),
    (10, "unlink"),
    (11, "rmdir"),
    (12, "rename"),
    (13, "link"),
    (14, "open"),
    (15, "read"),
    (16, "write"),
    (17, "statfs"),
    (18, "release"),
    (20, "fsync"),
    (21, "setxattr"),
    (22, "getxattr"),
    (23, "listxattr"),
    (24, "removexattr"),
    (25, "flush"),
    (27, "opendir"),
    (28, "readdir"),
    (30, "fsyncdir"),
    (35, "create"),
    (39, "ioctl"),
    (42, "batch_forget"),
    (43, "fallocate"),
    (44, "readdirplus"),
    (45, "rename2"),
    (46, "lseek"),
    (47, "copy_file_range"),
    (50, "syncfs"),
    (51, "tmpfile"),
    (52, "statx"),
    (53, "copy_file_range_64"),
];

/// The counters; they only grow.
#[derive(Debug)]
pub(crate) struct OpcodeCounters([AtomicU64; 64]);

impl Default for OpcodeCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl OpcodeCounters {
    pub(crate) fn count_request(&self, opcode: u32) {
        // The kernel may send any number: only codes of the table are within the array.
        let slot = if NAMES.iter().any(|(code, _)| *code == opcode) {
            opcode as usize
        } else {
            0
        };
        debug_assert!(slot < self.0.len(), "the table's codes are below 64");
        self.0[slot].fetch_add(1, Relaxed);
    }

    /// Returns the counters that are not zero, with their names.
    pub(crate) fn nonzero_counts(&self) -> Vec<(String, u64)> {
        let mut counts = Vec::new();
        for (code, name) in NAMES {
            let count = self.0[code as usize].load(Relaxed);
            if count > 0 {
                counts.push((name.to_owned(), count));
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_name() {
        let requests = OpcodeCounters::default();
        for code in [1, 1, 16, 4095] {
            requests.count_request(code);
        }
        let want = [("other", 1), ("lookup", 2), ("write", 1)].map(|(n, c)| (n.to_owned(), c));
        assert_eq!(requests.nonzero_counts(), want);
    }
}
