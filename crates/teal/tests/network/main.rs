//! Machines that lose the network, that should not be there, or do what the program never does, and
//! servers that cannot go on: each is told in words what is wrong and what to do, nothing is lost,
//! and the other machines do not notice.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "../support/support.rs"]
mod support;

mod apart;
mod hostile;
mod identity;
mod messages;
mod rights;
mod servers;

use std::fs;
use std::time::Duration;
use support::{Mounted, Nas, PATIENCE, converge, end, flush, join, seeded, wait_until};
use teal_env::{Clock as _, SystemClock};

/// A volume that is served here and joined there: the machines that are not to notice.
pub(crate) struct Volume {
    pub(crate) nas: Nas,
    pub(crate) laptop: Mounted,
    pub(crate) told: u64,
}

impl Volume {
    pub(crate) fn new(test: &str) -> Option<Self> {
        let mut nas = Nas::of(test, |root| {
            fs::write(root.join("known"), seeded(1, 200_000)).unwrap()
        })?;
        // At an address that stays.
        let (address, _) = nas.serve();
        let laptop = join(test, &nas.serve_at(&address));
        converge(&nas.0, &laptop);
        Some(Self {
            nas,
            laptop,
            told: 0,
        })
    }

    /// Checks that files of the laptop reach the server and the other mount in time, and the other
    /// way round.
    #[track_caller]
    pub(crate) fn is_undisturbed(&mut self) {
        let before = SystemClock.monotonic_time();
        self.told += 1;
        let name = format!("told {}", self.told);
        for (from, to) in [(&self.laptop, &self.nas.0), (&self.nas.0, &self.laptop)] {
            let name = format!(
                "{name} by {}",
                from.store()
                    .parent()
                    .unwrap()
                    .file_name()
                    .unwrap()
                    .display()
            );
            fs::write(from.path(&name), seeded(self.told, 100_000)).unwrap();
            flush(from);
            let is_there =
                || fs::read(to.path(&name)).is_ok_and(|bytes| bytes == seeded(self.told, 100_000));
            assert!(wait_until(PATIENCE, is_there), "{name}");
        }
        let waited = SystemClock.monotonic_time() - before;
        assert!(
            waited < Duration::from_secs(20),
            "the others notice: it takes them {waited:?}"
        );
    }

    pub(crate) fn end(self) {
        converge(&self.nas.0, &self.laptop);
        end(vec![self.laptop, self.nas.0]);
    }
}

/// Why a machine cannot speak to its server, in words, once it knows.
#[track_caller]
pub(crate) fn trouble(m: &Mounted, words: &[&str]) -> String {
    let why = || {
        m.status()["upstream"]["trouble"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let is_said = || words.iter().all(|word| why().contains(word));
    assert!(
        wait_until(PATIENCE, is_said),
        "{words:?} is not in: {}",
        m.status()["upstream"]
    );
    why()
}

/// `teal flush` fails, in these words.
#[track_caller]
pub(crate) fn flush_fails(m: &Mounted, words: &[&str]) {
    let said = m.world().teal(&["flush", m.point().to_str().unwrap()]);
    assert!(
        said.code == 1 && words.iter().all(|word| said.stderr.contains(word)),
        "{words:?}: {said}"
    );
}
