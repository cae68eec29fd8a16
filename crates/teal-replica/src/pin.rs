//! Files on demand: what is always to be here, and what is given back.
//!
//! # Guarantees
//! 1. What is pinned, and all below a directory that is, is fetched as it comes and changes, and never makes way; until it is given back.
//! 2. A pin follows renames, since objects keep their numbers, and atomic saves made here. It is kept with who this replica is, so it outlives the mount.
//! 3. What does not fit is said before anything is pinned.
//! 4. Only content that the server has is given back; what stays is counted.
//! 5. At most [`PINS_MAX`] objects are pinned. A directory takes the place of what is pinned below it.
//! 6. No pin, no work: nothing is looked at, and nothing is asked.

use super::evict::is_servers;
use super::{Replica, SyncError};
use crate::FsError;
use crate::seeded::{Bug, bug};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;
use teal_log::StoreError;
use teal_proto::WANTS_MAX;
use teal_types::{FileType, ObjectNo};

/// So many objects can be pinned, which a byte counts; a directory with all below it is one.
pub(crate) const PINS_MAX: usize = 255;
/// Of the store, what is pinned takes so much at most, in percent: the rest is for what is used.
const SHARE: u64 = 85;
/// Content is fetched in such pieces.
const STEP: u64 = 4 << 20;
/// So many objects wait at most; for more, all that is pinned is looked at.
const QUEUE_MAX: usize = 4096;

/// The objects that are pinned, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pins {
    numbers: [ObjectNo; PINS_MAX],
    len: usize,
}

impl Default for Pins {
    fn default() -> Self {
        Self {
            numbers: [ObjectNo::new(0); PINS_MAX],
            len: 0,
        }
    }
}

impl Pins {
    /// Those of a list; `None`: they are too many, or not ascending.
    pub(crate) fn of(numbers: impl Iterator<Item = u64>) -> Option<Self> {
        let mut pins = Self::default();
        for no in numbers.map(ObjectNo::new) {
            if pins.list().last().is_some_and(|last| *last >= no) || !pins.insert(no) {
                return None;
            }
        }
        Some(pins)
    }

    pub(crate) fn list(&self) -> &[ObjectNo] {
        &self.numbers[..self.len]
    }

    fn has(&self, no: ObjectNo) -> bool {
        self.list().binary_search(&no).is_ok()
    }

    /// `false`: there are too many.
    fn insert(&mut self, no: ObjectNo) -> bool {
        let Err(at) = self.list().binary_search(&no) else {
            return true;
        };
        if self.len == PINS_MAX {
            return false;
        }
        self.numbers.copy_within(at..self.len, at + 1);
        self.numbers[at] = no;
        self.len += 1;
        true
    }

    fn retain(&mut self, keep: impl Fn(ObjectNo) -> bool) {
        let mut kept = Self::default();
        for no in self.list().iter().filter(|no| keep(**no)) {
            kept.insert(*no);
        }
        *self = kept;
    }
}

/// What is to be looked at because something is pinned.
#[derive(Debug, Default)]
struct Queue {
    /// All of it.
    all: bool,
    /// Some of it is being fetched.
    is_busy: bool,
    objects: BTreeSet<ObjectNo>,
    /// Who takes over whose pin.
    successors: Vec<(ObjectNo, ObjectNo)>,
    /// Why not all is here.
    trouble: Option<String>,
    stop: bool,
}

/// See the module. `queue` guards itself.
#[derive(Debug)]
pub(crate) struct Pinning {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// What a pin covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pinned {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them that are still to come.
    pub missing: u64,
}

/// What was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Freed {
    /// Files of which something was given back.
    pub files: u64,
    /// Bytes of the store.
    pub bytes: u64,
    /// Files that stay, because the server does not have them as they are here.
    pub only_here: u64,
    /// Their bytes.
    pub only_here_bytes: u64,
}

/// How what is pinned stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PinsShown {
    /// Where it is.
    pub paths: Vec<String>,
    /// Not all of it has been looked at.
    pub is_coming: bool,
    /// Why not all of it is here.
    pub trouble: Option<String>,
}

/// Why something is not pinned, or given back.
#[derive(Debug, thiserror::Error)]
pub enum PinRefused {
    /// There is nothing to fetch from.
    #[error("this volume has no server: all of it is only here, and stays")]
    Alone,
    /// It does not fit.
    #[error(
        "{bytes} bytes do not fit: {others} are kept here already, and {room} can be; give something back with `teal free`"
    )]
    TooLarge {
        /// What is to be pinned.
        bytes: u64,
        /// What is.
        others: u64,
        /// What can be, together.
        room: u64,
    },
    /// There are too many.
    #[error(
        "{PINS_MAX} paths are pinned; pin a directory above some of them, which counts as one, or free some"
    )]
    TooMany,
    /// It is kept because of a directory above it.
    #[error("it is kept here because {0} is pinned: free that")]
    Below(String),
    /// Nothing can be given back without the server.
    #[error("it is not pinned any more, but nothing was given back: {0}")]
    Unreachable(String),
    /// What else was met.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl From<StoreError> for PinRefused {
    fn from(e: StoreError) -> Self {
        Self::Fs(e.into())
    }
}

impl From<SyncError> for PinRefused {
    fn from(e: SyncError) -> Self {
        match e {
            SyncError::Fs(e) => Self::Fs(e),
            e => Self::Unreachable(e.to_string()),
        }
    }
}

impl Pinning {
    /// At the beginning nobody knows what has come while this was away.
    pub(super) fn of(pins: &Pins) -> Self {
        let queue = Queue {
            all: !pins.list().is_empty(),
            ..Queue::default()
        };
        Self {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
        }
    }
}

impl Replica {
    /// An object has come, or changed, or has another place.
    pub(crate) fn pins_look(&self, no: ObjectNo) {
        if self.identity.lock().pins.list().is_empty() || bug(Bug::PinNotFollowed) {
            return;
        }
        let mut queue = self.pinning.queue.lock();
        if queue.objects.len() < QUEUE_MAX {
            queue.objects.insert(no);
        } else {
            queue.all = true;
        }
        drop(queue);
        self.pinning.changed.notify_all();
    }

    /// An object has taken the name of another, which is no more, or another number: it takes over its pin.
    pub(crate) fn pin_succeeds(&self, old: ObjectNo, new: ObjectNo) {
        if self.identity.lock().pins.has(old) {
            self.pinning.queue.lock().successors.push((old, new));
        }
        self.pins_look(new);
    }

    pub(super) fn stop_pinning(&self) {
        self.pinning.queue.lock().stop = true;
        self.pinning.changed.notify_all();
    }
}

impl Replica {
    /// Pins are given on to those who took over names; holds no lock.
    pub(crate) fn settle_pins(&self) -> Result<(), StoreError> {
        let successors = std::mem::take(&mut self.pinning.queue.lock().successors);
        for (old, new) in successors {
            if self.store().names(old).is_ok_and(|names| !names.is_empty()) {
                // It has other names, and is pinned still.
                continue;
            }
            self.identify(|identity| {
                identity.pins.retain(|no| no != old);
                identity.pins.insert(new);
            })?;
        }
        Ok(())
    }

    /// What an object is pinned by: itself, or a directory above it.
    pub(super) fn pinned_by(&self, no: ObjectNo) -> Result<Option<ObjectNo>, StoreError> {
        let is_pinned = self.identity.lock().pins.has(no);
        if is_pinned {
            Ok(Some(no))
        } else {
            self.pinned_above(no)
        }
    }

    /// The highest directory above an object that is pinned.
    fn pinned_above(&self, no: ObjectNo) -> Result<Option<ObjectNo>, StoreError> {
        let pins = self.identity.lock().pins;
        if pins.list().is_empty() {
            return Ok(None);
        }
        let (mut above, mut known, mut found) = (vec![no], HashSet::new(), None);
        while let Some(at) = above.pop() {
            if at != no && pins.has(at) {
                found = Some(at);
            }
            if known.insert(at) && at != ObjectNo::ROOT {
                match self.store().names(at) {
                    Err(StoreError::NotFound(_)) => {}
                    names => above.extend(names?.into_iter().map(|(dir, _)| dir)),
                }
            }
        }
        Ok(found)
    }

    /// Has an object, and all that is or comes below it, always here. What is missing is fetched behind this.
    ///
    /// # Errors
    /// [`PinRefused`]; then nothing is pinned.
    pub fn pin(&self, no: ObjectNo) -> Result<Pinned, PinRefused> {
        self.store().attr(no)?;
        let (mut done, mut new) = (Pinned::default(), HashSet::new());
        let mut below = HashSet::new();
        for (no, kind, size) in self.subtree(no, true)? {
            below.insert(no);
            if kind == FileType::File && new.insert(no) {
                done.files += 1;
                done.bytes += size;
                done.missing += self.note(no)?.absent.len();
            }
        }
        let (pins, mut others) = (self.identity.lock().pins, 0);
        let mut gone = HashSet::new();
        for pin in pins.list() {
            match self.subtree(*pin, false) {
                Err(FsError::Stale) => drop(gone.insert(*pin)),
                found => {
                    let files = found?
                        .into_iter()
                        .filter(|(_, kind, _)| *kind == FileType::File);
                    others += files
                        .filter(|(no, ..)| new.insert(*no))
                        .map(|(.., size)| size)
                        .sum::<u64>();
                }
            }
        }
        let (bytes, room) = (done.bytes, self.store().space().total / 100 * SHARE);
        if bytes.saturating_add(others) > room {
            return Err(PinRefused::TooLarge {
                bytes,
                others,
                room,
            });
        }
        let mut is_in = false;
        self.identify(|identity| {
            identity
                .pins
                .retain(|pin| !gone.contains(&pin) && !below.contains(&pin));
            is_in = identity.pins.insert(no);
        })?;
        if !is_in {
            return Err(PinRefused::TooMany);
        }
        self.pins_look(no);
        Ok(done)
    }

    /// Gives the content of an object, and of all below it, back as far as the server has it: it comes again when it is needed. It is not pinned any more.
    ///
    /// # Errors
    /// [`PinRefused`].
    pub fn free(&self, no: ObjectNo) -> Result<Freed, PinRefused> {
        self.store().attr(no)?;
        if let Some(above) = self.pinned_above(no)? {
            return Err(PinRefused::Below(self.store().path_of(above)));
        }
        let all = self.subtree(no, false)?;
        let below: HashSet<ObjectNo> = all.iter().map(|(no, ..)| *no).collect();
        self.identify(|identity| identity.pins.retain(|pin| !below.contains(&pin)))?;
        self.connect()?;
        let files: BTreeSet<ObjectNo> = all
            .into_iter()
            .filter(|(_, kind, _)| *kind == FileType::File)
            .map(|(no, ..)| no)
            .collect();
        let (files, mut freed) = (Vec::from_iter(files), Freed::default());
        for files in files.chunks(WANTS_MAX) {
            self.free_some(files, &mut freed)?;
        }
        Ok(freed)
    }

    fn free_some(&self, files: &[ObjectNo], freed: &mut Freed) -> Result<(), SyncError> {
        let mut here = Vec::new();
        for no in files {
            match self.store().attr(*no) {
                Err(StoreError::NotFound(_)) => {}
                // All of a file may be in its inode.
                attr => here.extend((self.note(*no)?.absent.len() < attr?.size).then_some(*no)),
            }
        }
        let (mut asked, mut stay) = (Vec::new(), Vec::new());
        for no in here {
            if is_servers(&self.note(no)?) {
                asked.push(no)
            } else {
                stay.push(no)
            }
        }
        let applying = self.apply()?;
        if self.identity.lock().announce != 0 {
            stay.extend(&asked);
        } else if !asked.is_empty() {
            for (no, version) in asked.iter().zip(self.look_at(&asked)?) {
                let bytes =
                    version.map_or(Ok(None), |version| self.evict_one(*no, &version, true))?;
                match bytes {
                    Some(bytes) => {
                        (freed.files, freed.bytes) = (freed.files + 1, freed.bytes + bytes)
                    }
                    None => stay.push(*no),
                }
            }
        }
        drop(applying);
        freed.only_here += stay.len() as u64;
        freed.only_here_bytes += stay
            .iter()
            .map(|no| self.store().attr(*no).map_or(0, |attr| attr.size))
            .sum::<u64>();
        Ok(())
    }

    /// How what is pinned stands.
    pub(super) fn pins_shown(&self) -> PinsShown {
        let pins = self.identity.lock().pins;
        let queue = self.pinning.queue.lock();
        let is_coming = queue.all || queue.is_busy || !queue.objects.is_empty();
        let trouble = queue.trouble.clone();
        drop(queue);
        PinsShown {
            paths: pins
                .list()
                .iter()
                .map(|no| self.store().path_of(*no))
                .collect(),
            is_coming,
            trouble,
        }
    }

    /// Fetches what is pinned and not here.
    pub(super) fn fetch_pinned(&self) -> Result<(), FsError> {
        let (all, objects) = {
            let mut queue = self.pinning.queue.lock();
            queue.is_busy = queue.all || !queue.objects.is_empty();
            (
                std::mem::take(&mut queue.all),
                std::mem::take(&mut queue.objects),
            )
        };
        if !all && objects.is_empty() {
            return Ok(());
        }
        let tops = if all {
            self.identity.lock().pins.list().to_vec()
        } else {
            Vec::from_iter(objects)
        };
        let fetched = tops.into_iter().try_for_each(|no| self.fetch_below(no));
        let mut queue = self.pinning.queue.lock();
        queue.is_busy = false;
        match &fetched {
            Ok(()) => queue.trouble = None,
            Err(e) => {
                let words = match e {
                    FsError::NoSpace => "it does not fit".to_owned(),
                    e => e.to_string(),
                };
                if queue.trouble.as_ref() != Some(&words) {
                    log::warn!("not all that is pinned is here: {words}");
                }
                (queue.all, queue.trouble) = (true, Some(words));
            }
        }
        fetched
    }

    fn fetch_below(&self, no: ObjectNo) -> Result<(), FsError> {
        if self.pinned_by(no)?.is_none() {
            return Ok(());
        }
        let found = match self.subtree(no, true) {
            Err(FsError::Stale) => return Ok(()),
            found => found?,
        };
        for (no, kind, size) in found {
            let mut at = 0;
            while kind == FileType::File && at < size {
                let Some((first, _)) = self.note(no)?.absent.within(at, size).iter().next() else {
                    break;
                };
                at = size.min(first + STEP);
                match self.present(no, first, at) {
                    Err(FsError::Stale | FsError::NotFound) => break,
                    done => done?,
                }
            }
        }
        Ok(())
    }
}

/// Fetches what is pinned whenever something has come or changed.
pub(super) fn run(replica: &Replica) {
    let mut backoff = super::run::Backoff::default();
    let mut wait: Option<Duration> = None;
    loop {
        {
            let mut queue = replica.pinning.queue.lock();
            match wait {
                Some(time) => {
                    replica
                        .pinning
                        .changed
                        .wait_while_for(&mut queue, |queue| !queue.stop, time);
                }
                None => {
                    let is_idle =
                        |queue: &mut Queue| !queue.stop && !queue.all && queue.objects.is_empty();
                    replica.pinning.changed.wait_while(&mut queue, is_idle);
                }
            }
            if queue.stop {
                return;
            }
        }
        wait = match replica.fetch_pinned() {
            Ok(()) => {
                backoff = super::run::Backoff::default();
                None
            }
            Err(_) => Some(backoff.next()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_few_and_in_order() {
        let list = |pins: &Pins| pins.list().iter().map(|no| no.get()).collect::<Vec<_>>();
        let mut pins = Pins::default();
        assert!(
            [7, 3, 7, 5]
                .into_iter()
                .all(|no| pins.insert(ObjectNo::new(no)))
        );
        assert_eq!(list(&pins), [3, 5, 7]);
        pins.retain(|no| no.get() != 5);
        assert_eq!(
            (
                list(&pins),
                pins.has(ObjectNo::new(5)),
                pins.has(ObjectNo::new(7))
            ),
            (vec![3, 7], false, true)
        );
        assert_eq!(Pins::of([3, 7].into_iter()), Some(pins));
        assert_eq!(Pins::of([7, 3].into_iter()), None);
        assert_eq!(Pins::of(1..=PINS_MAX as u64 + 1), None);
        let mut full = Pins::of(1..=PINS_MAX as u64).unwrap();
        assert!(!full.insert(ObjectNo::new(1000)) && full.insert(ObjectNo::new(1)));
    }
}
