//! Files on demand in a life: files are pinned and given back.
//!
//! # Guarantees
//! 1. In the end what is pinned is here, whatever came from elsewhere.
//! 2. Nothing is lost by being given back: [`crate::judge`] looks at that.

use crate::run::{ROUNDS, Run};
use crate::tree::entries;
use crate::world::ROOT;
use teal_posix::{FileSystem, FsError};
use teal_replica::PinRefused;
use teal_types::{FileType, ObjectNo};

impl Run {
    /// Something in the root is pinned, or given back.
    pub(crate) fn pin_or_free(&mut self, who: usize) {
        let client = self.client(who);
        let Ok(found) = entries(&client, ROOT) else {
            return;
        };
        if found.is_empty() {
            return;
        }
        let (name, no, _) = self.rng.pick(&found).clone();
        let is_pin = self.rng.chance(0.5);
        let done = if is_pin {
            client.replica().unwrap().pin(no).map(drop)
        } else {
            client.replica().unwrap().free(no).map(drop)
        };
        let name = String::from_utf8_lossy(&name).into_owned();
        self.say(format_args!(
            "  {who} {} {name}: {done:?}",
            if is_pin { "pins" } else { "frees" }
        ));
        match done {
            Ok(()) => self.counts.pins += 1,
            Err(PinRefused::Below(_) | PinRefused::Server(_)) => {}
            Err(PinRefused::Fs(
                FsError::NotFound | FsError::Stale | FsError::Unreachable(_) | FsError::NotNow(_),
            )) => {}
            Err(_) if self.world.machines[who].power.is_off() => {}
            Err(e) => panic!("{name} is not pinned or freed: {e}"),
        }
    }

    /// Checks that pinned files are here.
    pub(crate) fn judge_pins(&self) {
        for machine in &self.world.machines {
            let (name, client) = (&machine.name, &machine.client);
            // All names are known then: what comes with them may be pinned by another.
            files(client, ROOT);
            let is_coming = || {
                client
                    .replica()
                    .unwrap()
                    .upstream_status()
                    .unwrap()
                    .pins
                    .is_coming
            };
            for round in 0.. {
                client.replica().unwrap().upstream_step().unwrap();
                assert!(round < ROUNDS, "{name}: what is pinned comes and comes");
                if !is_coming() {
                    break;
                }
            }
            for no in files(client, ROOT) {
                let found = client.locate_content(no).unwrap();
                let is_whole = found.sources[0].bytes == found.size;
                assert!(
                    is_whole || found.pinned.is_none(),
                    "not on {name}: {found:?}"
                );
            }
        }
    }
}

/// All files below a directory.
fn files(client: &FileSystem, dir: ObjectNo) -> Vec<ObjectNo> {
    let mut found = Vec::new();
    for (_, no, kind) in entries(client, dir).unwrap() {
        match kind {
            FileType::Dir => found.extend(files(client, no)),
            FileType::File => found.push(no),
            _ => {}
        }
    }
    found
}
