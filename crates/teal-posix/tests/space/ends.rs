//! A store filled to the end, emptied, and left alone.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use crate::load::Run;
use std::time::Duration;
use teal_log::Counts;
use teal_types::ObjectNo;

impl Run {
    /// Files of one write each until there is no room; bytes written.
    pub(crate) fn fill_to_the_end(&mut self) -> u64 {
        let before = self.written;
        loop {
            let made = self.create(ObjectNo::ROOT, &format!("file-{}", self.made));
            let Ok(no) = made else { break };
            self.small.push((ObjectNo::ROOT, self.made, 0));
            self.made += 1;
            if self.write(no, 0, self.load.io).is_err() {
                break;
            }
        }
        self.written - before
    }

    /// Deletes them all.
    pub(crate) fn empty(&mut self) {
        for (dir, name, _) in std::mem::take(&mut self.small) {
            self.client
                .unlink(dir, format!("file-{name}").as_bytes())
                .unwrap();
        }
        self.client.sync().unwrap();
    }

    /// Leaves the store alone for an hour.
    pub(crate) fn rest(&mut self) -> Counts {
        for _ in 0..3600 {
            self.clock.advance(Duration::from_secs(1));
            self.client.step();
        }
        self.client.store().counter_values()
    }
}
