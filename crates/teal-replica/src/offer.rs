//! Offering a restored server the changes that it has lost.
//!
//! # Guarantees
//! 1. An object that is here whole, and is neither at the server nor known from before, becomes
//!    dirty, based on the last commit that both sides surely have. If another client went on from
//!    there, the rules of conflicts hold.
//! 2. For an object that is here only in part, with the rest lost at the server, the server's older
//!    state holds, with a message in the log; changes made here since stay dirty. If the rest is at
//!    the server, the part here becomes dirty.
//! 3. A dirty removal is based on that commit, too: others' changes since then stay.
//! 4. An object that the server never heard of gets a number of the new life: another store with
//!    the same past may have used the old one.
//! 5. Removals are not offered: an object that the server has, and that this replica has seen
//!    removed, is there again.
//! 6. Until all objects have been compared, nothing of the server's is installed and nothing is
//!    sent. A crash loses no progress.

mod comparison;

use self::comparison::{StateComparison, content_mark, content_mark_of, is_same_object};

use super::note::{UnsentComponents, links_of};
use super::{ObjectNote, Replica, SyncError, unexpected};
use std::sync::atomic::Ordering;
use teal_log::{AttributeChanges, Cost, LockedObjects, StoreError};
use teal_proto::{ClientRequest, ServerReply, Welcome};
use teal_types::ranges::{ByteRanges, CONTENT_END};
use teal_types::{CommitSeq, ObjectNo, ObjectVersion};
use teal_volume::Invalidation;

/// Objects compared in one go.
const STEP: usize = 256;

/// The server's knowledge of an object.
enum StateAtServer {
    /// The server never heard of the object.
    Unknown,
    /// The object was removed since the last common commit, when it was in this state. The next
    /// pull says so.
    Removed(Box<ObjectVersion>),
    /// The object was removed before that, and lived on in the lost history.
    LongGone,
    /// The object lives, in the first state; in the second one at the last common commit, if it has
    /// changed since and existed then.
    Lives(Box<ObjectVersion>, Option<Box<ObjectVersion>>),
}

/// The work that is left for an object after the comparison.
enum ComparisonOutcome {
    Done,
    /// The object is here only in part, and not known elsewhere: it goes.
    Stripped,
    /// The server lost a part of its content: the older one it has holds.
    Older,
    /// The server knows another object by this number, or one that is long gone: this one gets a
    /// new number. The flag tells whether a part of it was only at the server, and is zeros now.
    Another(bool),
    /// A directory that may have entries at the server which this replica has seen removed.
    Unlisted,
}

impl Replica {
    /// Goes back to the last common commit, in a new life; from there on all is to be compared.
    pub(crate) fn begin_offer(
        &self,
        welcome: &Welcome,
        common: CommitSeq,
        digest: [u8; 32],
    ) -> Result<(), SyncError> {
        log::warn!(
            "the server was restored from an older copy: it has commits up to {}, this replica has \
             seen {}; what it lost is offered again",
            welcome.head.get(),
            self.position().get()
        );
        // No news may be installed until the positions agree.
        let _applying = self.hold_position();
        // Drives have seen the lost history, too.
        self.drive_set().distrust_all();
        let before = self.start_incarnation(welcome)?;
        // Bases of the lost history move to the last common commit.
        self.settled_content().forget();
        self.rebase_all(common)?;
        self.update_identity(|identity| {
            identity.set_position(common, digest);
            identity.offer = ObjectNo::ROOT.get();
        })?;
        // The server cannot tell any more whether this store is a copy of one that went on.
        self.renumber(before.lease)?;
        // Durable before the first comparison: a crash goes on with it.
        Ok(self.volume().sync()?)
    }

    /// Bases dirty components that are based on lost history on the last common commit instead;
    /// removals, too, although their objects are not here any more.
    fn rebase_all(&self, common: CommitSeq) -> Result<(), SyncError> {
        let dirty = self.noted_objects(|summary| summary.is_dirty)?;
        for no in dirty {
            self.rewrite_note(no, |note, _| rebase_components(&mut note.dirty, common))?;
        }
        Ok(())
    }

    /// Compares what is here with the server, if that is still to be done.
    pub(crate) fn offer_some(&self) -> Result<(), SyncError> {
        if self.identity().offer == 0 {
            return Ok(());
        }
        // The directories are listed without the lock of the comparison.
        let dirs = self.compare_all()?;
        log::info!("all that is here has been compared with the restored server");
        for dir in dirs {
            // A directory that cannot be listed now is listed when it is needed.
            self.fetch_listing(dir)?;
        }
        Ok(())
    }

    /// Compares all objects; the directories that were listed here and are to be listed again.
    fn compare_all(&self) -> Result<Vec<ObjectNo>, SyncError> {
        let _applying = self.hold_position();
        let mut dirs = Vec::new();
        let mut from = self.identity().offer;
        // Step by step; the position is saved after each.
        while from != 0 {
            let objects = self.store().objects_from(ObjectNo::new(from), STEP)?;
            debug_assert!(objects.len() <= STEP);
            let versions = self.versions_at_server(&objects)?;
            let mut stripped = Vec::new();
            for (no, version) in objects.iter().zip(versions) {
                let there = self.state_at_server(*no, version)?;
                let compared = self.compare_object(*no, there)?;
                self.log_losses(*no, &compared);
                match compared {
                    ComparisonOutcome::Done | ComparisonOutcome::Older => {}
                    // The object cannot be offered: parts of it were only at the server.
                    ComparisonOutcome::Stripped => stripped.push(*no),
                    ComparisonOutcome::Another(_) => {
                        self.renumber_one(*no)?;
                        self.counters().offered.fetch_add(1, Ordering::Relaxed);
                    }
                    ComparisonOutcome::Unlisted => dirs.push(*no),
                }
            }
            // Deepest first, after all objects of the step were compared.
            self.remove_gone(stripped, None)?;
            from = objects.last().map_or(0, |last| last.get() + 1);
            // A crash repeats one step.
            self.update_identity(|identity| identity.offer = from)?;
        }
        self.becomes_dirty(self.monotonic());
        Ok(dirs)
    }

    /// Logs what a restored server has lost of an object, and this replica does not have.
    fn log_losses(&self, no: ObjectNo, compared: &ComparisonOutcome) {
        match compared {
            ComparisonOutcome::Stripped => log::warn!(
                "{}: the restored server lost it, and not all of it is here",
                self.store().path_of(no)
            ),
            ComparisonOutcome::Older => log::warn!(
                "{}: the restored server lost a part; older content holds",
                self.store().path_of(no)
            ),
            ComparisonOutcome::Another(true) => log::error!(
                "{}: what was at the server only is lost: it is zeros now",
                self.store().path_of(no)
            ),
            ComparisonOutcome::Done
            | ComparisonOutcome::Another(false)
            | ComparisonOutcome::Unlisted => {}
        }
    }

    /// Returns what the server knows of an object, of which it has this version now.
    fn state_at_server(
        &self,
        no: ObjectNo,
        version: Option<ObjectVersion>,
    ) -> Result<StateAtServer, SyncError> {
        let common = self.position();
        let Some(version) = version else {
            let request = ClientRequest::History {
                object: no,
                after: CommitSeq::default(),
            };
            let is_known = match self.ask_server(&request)? {
                ServerReply::History(notes) => !notes.is_empty(),
                _ => return Err(unexpected("to a question about history").into()),
            };
            // Without any history, the server never had the object, or lost all of it.
            let before = if is_known {
                self.version_at(no, common)?
            } else {
                None
            };
            return Ok(match before {
                Some(before) => StateAtServer::Removed(before),
                None if is_known => StateAtServer::LongGone,
                None => StateAtServer::Unknown,
            });
        };
        // Nothing of it has changed since the common commit: no earlier state is needed.
        let before = if version.last_change() > common {
            self.version_at(no, common)?
        } else {
            None
        };
        Ok(StateAtServer::Lives(Box::new(version), before))
    }

    /// Returns what the server had of an object at a commit.
    fn version_at(
        &self,
        object: ObjectNo,
        at: CommitSeq,
    ) -> Result<Option<Box<ObjectVersion>>, SyncError> {
        match self.ask_server(&ClientRequest::ReadPast {
            object,
            at,
            offset: 0,
            len: 0,
        })? {
            ServerReply::Past { version, .. } => Ok(version.map(Box::new)),
            _ => Err(unexpected("to a read of the past").into()),
        }
    }

    /// Notes what of an object the server has lost.
    fn compare_object(
        &self,
        no: ObjectNo,
        there: StateAtServer,
    ) -> Result<ComparisonOutcome, SyncError> {
        let _content = self.residency_lock(no).write();
        let cost = Cost::install()
            .with_note(8192)
            .with_head(self.store().head_bytes(no).unwrap_or(0))
            .freeing();
        let op = self.begin_operation(cost)?;
        let mut locked = match op.lock(&[no]) {
            // Removed meanwhile.
            Err(StoreError::NotFound(_)) => return Ok(ComparisonOutcome::Done),
            locked => locked?,
        };
        let mut note = self.note_of(no)?;
        let compared = match &there {
            // An object of the same kind and birth is the same one.
            StateAtServer::Lives(now, before) if is_same_object(&locked, no, now) => {
                self.compare_living(&mut locked, &mut note, now, before.as_deref())?
            }
            _ => self.compare_lost(&locked, no, &mut note, &there),
        };
        // The object is going to have another number, and another note.
        if !matches!(compared, ComparisonOutcome::Another(_)) {
            self.set_note(&locked, no, &note)?;
        }
        Ok(compared)
    }

    /// Compares an object that lives at the server, in the state `now`, and at the last common
    /// commit in the state `before`, if it has changed since.
    fn compare_living(
        &self,
        locked: &mut LockedObjects<'_>,
        note: &mut ObjectNote,
        now: &ObjectVersion,
        before: Option<&ObjectVersion>,
    ) -> Result<ComparisonOutcome, SyncError> {
        let no = now.object;
        let common = self.position();
        let mut compared = ComparisonOutcome::Done;
        if note.data_seq > common {
            // The absent part belonged to the lost history.
            take_older(locked, note, now)?;
            compared = ComparisonOutcome::Older;
            let all_content = Invalidation::Data(no, 0, 0);
            self.volume().invalidations().tell(all_content);
        }
        let comparison = StateComparison {
            locked: &*locked,
            no,
            now,
            before,
            common,
        };
        if comparison.offer_lost(note) {
            self.counters().offered.fetch_add(1, Ordering::Relaxed);
        }
        if now.kind.is_dir() && !note.unlisted {
            // Entries that this replica lacks may have come: the directory is listed again.
            note.unlisted = true;
            self.listings().set_again();
            compared = ComparisonOutcome::Unlisted;
        }
        Ok(compared)
    }

    /// Compares an object that does not live at the server, or only another one by its number.
    fn compare_lost(
        &self,
        locked: &LockedObjects<'_>,
        no: ObjectNo,
        note: &mut ObjectNote,
        there: &StateAtServer,
    ) -> ComparisonOutcome {
        let is_named = no == ObjectNo::ROOT || !links_of(locked, no).is_empty();
        let is_whole = note.absent.is_empty();
        match there {
            // An object without a name is not offered.
            _ if !is_named => ComparisonOutcome::Done,
            // The object is to be sent in any case.
            StateAtServer::Unknown if note.dirty.created => ComparisonOutcome::Done,
            // Not changed here since it was removed at the server: the removal stands.
            StateAtServer::Removed(before)
                if content_mark(locked, no) == content_mark_of(before) =>
            {
                ComparisonOutcome::Done
            }
            // Parts of it were only at the server: the removal stands.
            StateAtServer::Removed(_) if !is_whole => ComparisonOutcome::Done,
            // The restored server lost it: it is offered as a new one.
            StateAtServer::Unknown if is_whole => {
                note.dirty = UnsentComponents {
                    created: true,
                    ..UnsentComponents::default()
                };
                note.unlisted = false;
                self.counters().offered.fetch_add(1, Ordering::Relaxed);
                ComparisonOutcome::Done
            }
            // Its number belongs to another object, or its changes need one that was removed.
            _ if is_whole || note.is_ours() => ComparisonOutcome::Another(!is_whole),
            _ => ComparisonOutcome::Stripped,
        }
    }
}

/// Bases nothing on history behind the last common commit.
fn rebase_components(part: &mut UnsentComponents, common: CommitSeq) {
    let clamp = |base: &mut CommitSeq| *base = (*base).min(common);
    part.attributes.iter_mut().for_each(clamp);
    if let Some(dirty) = &mut part.data {
        clamp(&mut dirty.base);
    }
    if let Some((base, _)) = &mut part.links {
        clamp(base);
    }
    for (_, base) in part.xattrs.iter_mut() {
        clamp(base);
    }
}

/// Takes over the server's older version of content that is here only in part, in a version that
/// was lost. Bytes written here since stay.
fn take_older(
    locked: &mut LockedObjects<'_>,
    note: &mut ObjectNote,
    now: &ObjectVersion,
) -> Result<(), StoreError> {
    let no = now.object;
    let size = locked.attr(no).size;
    let ours = note.dirty.data.as_ref().map(|dirty| dirty.ranges.clone());
    let mut absent = ByteRanges::default();
    absent.add(0, now.size);
    // Dirty ranges are this replica's own, and stay.
    note.absent = absent.difference(&ours.clone().unwrap_or_default());
    note.data_seq = now.data_seq;
    for (from, to) in note.absent.iter() {
        locked.punch(no, from, to.min(size.max(from)))?;
    }
    if ours.is_none() {
        if size != now.size {
            locked.truncate(no, now.size)?;
        }
        // The times of content that is not here would tell others that it is there.
        let of = &now.attributes;
        locked.set_attr(
            no,
            AttributeChanges {
                mtime: Some(of.mtime),
                ctime: Some(of.ctime),
                ..AttributeChanges::default()
            },
        );
    }
    // Nothing is absent behind the end.
    note.absent.remove(locked.attr(no).size, CONTENT_END);
    Ok(())
}
