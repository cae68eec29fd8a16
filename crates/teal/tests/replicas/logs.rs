//! Programs that append to logs through descriptors they hold, and act on the size they saw.
//!
//! # The kernel
//! A kernel adds what it appends to the size it was last given, and is given another with an answer. The mount relocates a write if its descriptor appends and its
//! offset is that size; any other write goes where it says. Modelled is just that: one size for each object, which is refreshed now and then.

use crate::steps::Steps;
use crate::tags::{NOBODY, TAG};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use teal_posix::{FsError, SetAttrRequest, WriteFlags};
use teal_testkit::Rng;
use teal_types::ObjectNo;

/// What names of logs begin with.
pub(crate) const LOG: &[u8] = b"log";
const LOGS: [&str; 2] = ["log", "log.2"];

/// The files that programs of a machine hold, and the size that its kernel was last given of each. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Kernel(Arc<Mutex<BTreeMap<ObjectNo, u64>>>);

impl Kernel {
    fn give(&self, no: ObjectNo, size: u64) {
        self.0.lock().insert(no, size);
    }

    fn size(&self, no: ObjectNo) -> u64 {
        self.0.lock().get(&no).copied().unwrap_or_default()
    }

    fn closes(&self, no: ObjectNo) {
        self.0.lock().remove(&no);
    }

    fn held(&self, rng: &mut Rng) -> Option<ObjectNo> {
        let held: Vec<ObjectNo> = self.0.lock().keys().copied().collect();
        (!held.is_empty()).then(|| *rng.pick(&held))
    }

    /// The machine starts anew.
    pub(crate) fn forgets(&self) {
        self.0.lock().clear();
    }
}

impl Steps<'_> {
    /// One operation on a log.
    pub(crate) fn log(&mut self) -> Result<(), FsError> {
        let held = self
            .hand
            .kernel
            .held(self.rng)
            .filter(|_| self.rng.chance(0.75));
        let no = match held {
            Some(no) if self.client.getattr(no).is_ok_and(|attr| attr.nlink > 0) => no,
            Some(no) => {
                self.hand.kernel.closes(no);
                return Ok(());
            }
            None => self.open()?,
        };
        match self.rng.below(20) {
            0 => self.empty(no),
            1 => self.put_at_the_size_seen(no),
            _ => self.append(no),
        }
    }

    fn open(&mut self) -> Result<ObjectNo, FsError> {
        let (dir, name) = (self.dir()?, self.rng.pick(&LOGS).as_bytes());
        let attr = match self.client.lookup(dir, name) {
            Err(FsError::NotFound) => {
                self.client
                    .create(&crate::world::CALLER, dir, name, 0o644, true)?
            }
            there => there?,
        };
        self.client.release(attr.object, 1);
        if attr.kind.is_dir() {
            return Err(FsError::IsDir);
        }
        let size = self.client.getattr(attr.object)?.size;
        self.hand.kernel.give(attr.object, size);
        Ok(attr.object)
    }

    /// Opened with `O_TRUNC`.
    fn empty(&mut self, no: ObjectNo) -> Result<(), FsError> {
        self.say(format_args!("truncate the log {no}"));
        self.changes(no, 0, u64::MAX);
        let done = self.client.setattr(
            no,
            &SetAttrRequest {
                size: Some(0),
                ..SetAttrRequest::default()
            },
        );
        self.hand
            .tags
            .change(NOBODY, crate::hand::seen(&self.client), no, 0, u64::MAX);
        self.hand.kernel.give(no, 0);
        done.map(drop)
    }

    /// Without `O_APPEND`, where the program saw the end.
    fn put_at_the_size_seen(&mut self, no: ObjectNo) -> Result<(), FsError> {
        let at = self.hand.kernel.size(no);
        let len = self.len();
        let done = self.put(no, at, len);
        self.refresh(no, at + len as u64)?;
        done
    }

    fn append(&mut self, no: ObjectNo) -> Result<(), FsError> {
        let (at, count) = (self.hand.kernel.size(no), 1 + self.rng.below(4) as usize);
        let is_line = self.rng.chance(0.85);
        let (id, content) = self.hand.tags.append(self.hand.who, no, count, is_line);
        self.say(format_args!(
            "append to {no} at {at} as seen: {}",
            String::from_utf8_lossy(&content)
        ));
        let done = self.client.write(
            no,
            at,
            &content,
            WriteFlags {
                append: true,
                ..WriteFlags::default()
            },
        );
        if done.is_err() {
            self.hand.tags.was_not_written(id);
        }
        assert_eq!(done?, content.len());
        if self.rng.chance(0.06) {
            // As programs do that keep a mark at the beginning.
            self.put(no, 0, TAG)?;
        }
        self.refresh(no, at + content.len() as u64)
    }

    /// The kernel asks for the size, or goes on with what it thinks.
    fn refresh(&mut self, no: ObjectNo, thought: u64) -> Result<(), FsError> {
        let size = if self.rng.chance(0.5) {
            self.client.getattr(no)?.size
        } else {
            thought
        };
        self.hand.kernel.give(no, size);
        Ok(())
    }
}
