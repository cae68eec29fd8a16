//! Programs that append to logs through descriptors they hold, and act on the size they saw.
//!
//! # The kernel
//! A kernel holds one size for each file that is open. It adds what it appends to that size, raises
//! it to the end of what it wrote, and replaces it by what an answer says. It asks for it only now
//! and then, and it may hear late that a file has changed elsewhere. A file stays known to it for
//! as long as a program holds it. The client must tell from the offset alone what appends: nothing
//! here says it in another way than a mount does.

use crate::operator::seen;
use crate::steps::Steps;
use crate::tags::{NOBODY, TAG};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use teal_posix::{
    FileSystem, FsError, Invalidation, InvalidationSink, Moment, SetAttrRequest, WriteFlags,
};
use teal_testkit::Rng;
use teal_types::ObjectNo;

/// The beginning of the names of logs.
pub(crate) const LOG: &[u8] = b"log";
const LOGS: [&str; 2] = ["log", "log.2"];
/// Words of files that have grown that may wait to be heard. A kernel hears within moments.
const LATE_MAX: usize = 3;

/// The files that programs of a machine hold, and the size that its kernel holds of each. Clones
/// are the same.
#[derive(Clone)]
pub(crate) struct Kernel(Arc<Mutex<Held>>);

struct Held {
    sizes: BTreeMap<ObjectNo, u64>,
    /// Files that have grown elsewhere, which the kernel has not heard of yet.
    words: VecDeque<(ObjectNo, u64)>,
    client: Weak<FileSystem>,
    rng: Rng,
    /// Hears everything at once, and programs look before they write.
    is_prompt: bool,
    /// The number of times that programs have changed the length of a file.
    changes: u64,
}

impl InvalidationSink for Kernel {
    fn tell(&self, what: Invalidation) {
        if let Invalidation::Grown(no, size) = what {
            self.0.lock().words.push_back((no, size));
        }
    }

    fn wait_until_heard(&self, _limit: Duration) {
        let is_late = {
            let held = &mut *self.0.lock();
            !held.is_prompt && held.words.len() <= LATE_MAX && held.rng.chance(0.3)
        };
        if !is_late {
            self.hear();
        }
    }
}

impl Kernel {
    pub(crate) fn new(rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(Held {
            sizes: BTreeMap::new(),
            words: VecDeque::new(),
            client: Weak::new(),
            rng,
            is_prompt: false,
            changes: 0,
        })))
    }

    /// The machine starts, or starts anew: nothing is held.
    pub(crate) fn boot(&self, client: &Arc<FileSystem>) {
        {
            let held = &mut *self.0.lock();
            held.sizes.clear();
            held.words.clear();
            held.client = Arc::downgrade(client);
        }
        client.on_invalidation(Arc::new(self.clone()));
    }

    pub(crate) fn be_prompt(&self) {
        self.0.lock().is_prompt = true;
    }

    fn is_prompt(&self) -> bool {
        self.0.lock().is_prompt
    }

    /// Hears all that it was told. Nothing is locked here while the client is asked, which may tell
    /// more.
    fn hear(&self) {
        loop {
            let (client, word) = {
                let held = &mut *self.0.lock();
                (held.client.upgrade(), held.words.pop_front())
            };
            let (Some(client), Some((no, size))) = (client, word) else {
                return;
            };
            let is_cut = client.getattr(no).is_ok_and(|attr| attr.size < size);
            if !is_cut && self.extended(no, size) {
                client.note_kernel_size(no, size);
            }
        }
    }

    /// The kernel was given a size.
    pub(crate) fn give(&self, no: ObjectNo, size: u64) {
        if let Some(held) = self.0.lock().sizes.get_mut(&no) {
            *held = size;
        }
    }

    /// A program has made a file shorter or longer, and the answer said so.
    pub(crate) fn was_cut(&self, no: ObjectNo, size: u64) {
        self.give(no, size);
        self.0.lock().changes += 1;
    }

    /// A program has written up to there, and the answer said so.
    pub(crate) fn wrote(&self, no: ObjectNo, end: u64) {
        self.extended(no, end);
        self.0.lock().changes += 1;
    }

    /// The file is at least as long as that; says whether the kernel knows it.
    fn extended(&self, no: ObjectNo, end: u64) -> bool {
        let held = &mut *self.0.lock();
        let known = held.sizes.get_mut(&no).map(|size| *size = end.max(*size));
        known.is_some()
    }

    fn holds(&self, no: ObjectNo) -> bool {
        self.0.lock().sizes.contains_key(&no)
    }

    fn opens(&self, no: ObjectNo, size: u64) {
        self.0.lock().sizes.insert(no, size);
    }

    fn size(&self, no: ObjectNo) -> u64 {
        self.0.lock().sizes.get(&no).copied().unwrap_or_default()
    }

    fn changes(&self) -> u64 {
        self.0.lock().changes
    }

    pub(crate) fn closes(&self, client: &FileSystem, no: ObjectNo) {
        if self.0.lock().sizes.remove(&no).is_some() {
            client.release(no, 1);
        }
    }

    /// All programs end.
    pub(crate) fn close_all(&self, client: &FileSystem) {
        let all: Vec<ObjectNo> = self.0.lock().sizes.keys().copied().collect();
        all.into_iter().for_each(|no| self.closes(client, no));
    }

    fn held(&self, rng: &mut Rng) -> Option<ObjectNo> {
        let held: Vec<ObjectNo> = self.0.lock().sizes.keys().copied().collect();
        (!held.is_empty()).then(|| *rng.pick(&held))
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
                self.hand.kernel.closes(&self.client, no);
                return Ok(());
            }
            None => self.open()?,
        };
        if self.rng.chance(0.5) {
            self.hand.kernel.hear();
        }
        match self.rng.below(20) {
            0 => self.empty(no),
            1 => self.put_at_the_size_seen(no),
            2 => {
                self.hand.kernel.closes(&self.client, no);
                Ok(())
            }
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
        let no = attr.object;
        if attr.kind.is_dir() || self.hand.kernel.holds(no) {
            self.client.release(no, 1);
        } else {
            self.hand.kernel.opens(no, attr.size);
        }
        if attr.kind.is_dir() {
            return Err(FsError::IsDir);
        }
        self.stat(no)?;
        Ok(no)
    }

    /// The size of a file, which a program has asked for: from here on it has seen what is there.
    pub(crate) fn stat(&mut self, no: ObjectNo) -> Result<u64, FsError> {
        let since = self.client.current_moment();
        let size = self.client.getattr(no)?.size;
        self.client.note_given(&[no], since);
        self.hand.kernel.give(no, size);
        self.client.recall_outdated(&[no], since);
        Ok(size)
    }

    /// Checks where programs look before they write, the one that is about to looks.
    pub(crate) fn look_if_prompt(&mut self, no: ObjectNo) -> Result<(), FsError> {
        if self.hand.kernel.is_prompt() {
            self.stat(no)?;
        }
        Ok(())
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
            .change(NOBODY, seen(&self.client), no, 0, u64::MAX);
        self.hand.kernel.was_cut(no, 0);
        done.map(drop)
    }

    /// Without `O_APPEND`, where the program saw the end.
    fn put_at_the_size_seen(&mut self, no: ObjectNo) -> Result<(), FsError> {
        self.look_if_prompt(no)?;
        let at = self.hand.kernel.size(no);
        let len = self.len();
        self.put(no, at, len)?;
        self.refresh(no)
    }

    fn append(&mut self, no: ObjectNo) -> Result<(), FsError> {
        let (at, count) = (self.hand.kernel.size(no), 1 + self.rng.below(4) as usize);
        let is_line = self.rng.chance(0.85);
        let (id, content) = self.hand.tags.append(self.hand.who, no, count, is_line);
        self.say(format_args!(
            "append to {no} at {at} as seen: {}",
            String::from_utf8_lossy(&content)
        ));
        let before = (self.client.getattr(no)?.size, self.moment());
        let flags = WriteFlags {
            asks_for_end: true,
            ..WriteFlags::default()
        };
        let done = self.client.write(no, at, &content, flags);
        if done.is_err() {
            self.hand.tags.was_not_written(id);
        }
        assert_eq!(done?, content.len());
        let after = (self.client.getattr(no)?.size, self.moment());
        self.hand.kernel.wrote(no, at + content.len() as u64);
        if after.1 == before.1 {
            assert!(
                after.0 == before.0 + content.len() as u64,
                "{}: appended {} bytes at {at}, as seen, to {no} of {} bytes, which has {} now",
                self.hand.name,
                content.len(),
                before.0,
                after.0
            );
        }
        if self.rng.chance(0.06) {
            // As programs do that keep a mark at the beginning.
            self.put(no, 0, TAG)?;
        }
        self.refresh(no)
    }

    /// Differs if another has changed a file in between: here, while this one waited, or elsewhere.
    fn moment(&self) -> (u64, Moment) {
        (self.hand.kernel.changes(), self.client.current_moment())
    }

    /// The kernel asks for the size now and then.
    fn refresh(&mut self, no: ObjectNo) -> Result<(), FsError> {
        if self.rng.chance(0.5) {
            self.stat(no)?;
        }
        Ok(())
    }
}
