//! What became of a batch of this replica.
//!
//! # Guarantees
//! 1. A component that was committed as it was sent is the server's from then on; changes since then have it as their base.
//! 2. One that lost a conflict is not taken for the server's: unless it has changed again, the server's state is installed; if it has,
//!    the conflict is met again, with the whole content.
//! 3. What has changed here since meets the conflict with what others have changed behind the batch's back, though the position has passed both.

use super::landed::Landed;
use super::note::{Dirty, Part, Tail};
use super::stuck::StuckWay;
use super::tails::Landing;
use super::{Note, Replica, SyncError, content, unexpected};
use crate::seeded::{Bug, bug};
use std::ops::ControlFlow;
use teal_log::{Cost, note_cost};
use teal_proto::{Reply, Request, WANTS_MAX};
use teal_types::{CommitSeq, ObjectNo, Version};

/// Which components of the server's state may be installed: those that are the server's here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) attributes: bool,
    /// The times among them: not while content is pending, which has a time of its own.
    pub(crate) times: bool,
    /// Times that are older than those here: not while a name or an extended attribute is pending, which moved them on and of which the
    /// server has not heard; and not those of a directory that is listed here, where it is its entries that may be pending.
    pub(crate) older: bool,
    pub(crate) data: bool,
    /// What was sent of it lies elsewhere at the server than here.
    pub(crate) behind: Option<Tail>,
    pub(crate) links: bool,
    /// Extended attributes but those that are pending.
    pub(crate) xattrs: bool,
}

/// Settles what flies of an object whose state after the batch is known, and says what may be installed.
pub(crate) fn settle(
    note: &mut Note,
    version: &Version,
    landed: Landed,
    past: Option<&Version>,
    size: u64,
) -> Free {
    let is_listed = version.kind.is_dir() && !note.unlisted;
    let flying = note
        .flying
        .as_ref()
        .filter(|flying| landed.is_some_and(|(batch, _)| flying.batch == batch));
    let Some((flying, seq)) = flying.zip(landed.map(|(_, seq)| seq)) else {
        let held = |of: &dyn Fn(&Part) -> bool| {
            of(&note.pending) || note.flying.as_ref().is_some_and(|flying| of(&flying.part))
        };
        return Free {
            attributes: !held(&|part| part.created || part.attributes.is_some()),
            times: !held(&|part| part.created || part.data.is_some()),
            older: !is_listed && !held(&|part| !part.is_empty()),
            data: !held(&|part| part.created || part.data.is_some()),
            behind: None,
            links: !held(&|part| part.created || part.gone || part.links.is_some()),
            xattrs: !held(&|part| part.created),
        };
    };
    let part = flying.part.clone();
    let all = part.created;
    // A component is won if the server's state of it is the one of this batch.
    let attributes = (all || part.attributes.is_some(), version.attr_seq == seq);
    let landing = Landing::of(&part, version, past, seq);
    let named = all || part.links.is_some();
    note.flying = None;
    let pending = &mut note.pending;
    // The position may have passed the batch before it is settled: what has changed here since began no later than there.
    pending.attributes = pending.attributes.map(|base| match attributes {
        (true, true) => seq,
        (true, false) => part.attributes.unwrap_or(base).min(seq),
        _ => base,
    });
    if let Some(newer) = &mut pending.data {
        settle_newer(
            newer,
            part.data.as_ref(),
            landing,
            (seq, version.size, size),
        );
    }
    if let Some((base, names)) = &mut pending.links {
        if pending.gone {
            // Removed here without another's change of what flew having been seen: the server must notice.
            *base = unseen(&part, version, seq).map_or(*base, |seen| seen.min(*base));
        } else if named {
            *base = seq;
        }
        if named {
            // Whatever became of the names that were sent: these are the ones it has, and what is pending begins there.
            *names = version.links.clone();
        }
    }
    for (name, base) in &mut pending.xattrs {
        if part.xattrs.iter().any(|(flown, _)| flown == name) || all {
            *base = seq;
        }
    }
    Free {
        // Even of what was committed as it was sent the server may have moved the times.
        attributes: pending.attributes.is_none(),
        times: pending.data.is_none(),
        older: attributes == (true, false) || !is_listed && pending.is_empty(),
        data: (pending.data.is_none() || bug(Bug::NewerOverwritten)) && landing != Landing::AsSent,
        behind: if let Landing::Behind(tail) = landing {
            Some(tail)
        } else {
            None
        },
        // A name that another had is another one at the server.
        links: pending.links.is_none() && !pending.gone,
        xattrs: true,
    }
}

/// Content that has changed here since a batch took some along, once it is known what became of that. `there`, `here`: the sizes.
fn settle_newer(
    newer: &mut Dirty,
    flown: Option<&Dirty>,
    landing: Landing,
    (seq, there, here): (CommitSeq, u64, u64),
) {
    match (landing, flown) {
        (Landing::NotSent, _) => {}
        (Landing::AsSent, _) if bug(Bug::BaseKept) => {}
        (Landing::AsSent, _) => {
            newer.base = seq;
            // What was sent was read after the cut, and may have had some of it already.
            newer.tail = newer
                .tail
                .filter(|_| there <= here)
                .map(|_| Tail::open(there, there));
        }
        (Landing::Behind(tail), Some(flown)) if newer.tail.is_some() => {
            newer.base = flown.base;
            newer.cut = newer.cut.min(flown.cut);
            newer.ranges.join(&flown.ranges);
            newer.tail = Some(Tail::open(tail.start, tail.to));
        }
        (Landing::Behind(_) | Landing::Lost, flown) => {
            // It goes to a file of its own: all of it must be there.
            let base = flown.map_or(newer.base.min(seq), |flown| flown.base);
            *newer = Dirty {
                base,
                ..content::whole(here)
            };
        }
    }
}

/// Up to where the changes of others to what flew have been seen here, if there are later ones: they were not installed, though the position has passed them.
fn unseen(flown: &Part, version: &Version, seq: CommitSeq) -> Option<CommitSeq> {
    let xattrs = flown.xattrs.iter().map(|(_, base)| *base).min();
    let data = flown.data.as_ref().map(|dirty| dirty.base);
    let parts = [
        (version.attr_seq, flown.attributes),
        (version.data_seq, data),
        (version.xattr_seq, xattrs),
    ];
    let seen = parts
        .into_iter()
        .map(|(at, base)| (at, if flown.created { Some(seq) } else { base }));
    seen.filter_map(|(at, seen)| seen.filter(|seen| at > *seen && at != seq))
        .min()
}

impl Replica {
    /// Settles what flew in a batch and did not appear in history behind it: what lost a conflict, or changed nothing. The server says how
    /// these objects are.
    pub(crate) fn settle_rest(&self, batch: u64, seq: CommitSeq) -> Result<(), SyncError> {
        let rest = self.flying()?;
        for objects in rest.chunks(WANTS_MAX) {
            let mut gone = Vec::new();
            for (no, version) in objects.iter().zip(self.look_at(objects)?) {
                match version {
                    Some(version) => self.install_or_hold(&version, None, Some((batch, seq)))?,
                    None => gone.push(*no),
                }
            }
            self.bury_gone(gone, Some((batch, seq)))?;
        }
        Ok(())
    }

    /// What this batch changed and others have removed since, if it has changed here again: the server says how it was when the batch had landed.
    pub(crate) fn settle_gone(&self, gone: &[ObjectNo], landed: Landed) -> Result<(), SyncError> {
        let Some((batch, seq)) = landed else {
            return Ok(());
        };
        for no in gone {
            let note = self.note(*no)?;
            if note.pending.is_empty() || note.flying.is_none_or(|flying| flying.batch != batch) {
                continue;
            }
            let request = Request::ReadPast {
                object: *no,
                at: seq,
                offset: 0,
                len: 0,
            };
            let Reply::Past { version, .. } = self.ask(&request)? else {
                return Err(unexpected("to a read of the past").into());
            };
            let Some(version) = version else { continue };
            let mut cost = Cost::names(1).freeing();
            cost.bytes += note_cost(self.note(*no)?.encode().len() + 4096);
            let op = self.begin(cost)?;
            let locked = op.lock(&[*no]).ok();
            let mut note = self.note(*no)?;
            settle(
                &mut note,
                &version,
                landed,
                None,
                locked.as_ref().map_or(0, |locked| locked.attr(*no).size),
            );
            op.set_note(
                *no,
                Some(&note.encode())
                    .filter(|_| !note.is_empty())
                    .map(|bytes| &bytes[..]),
            )?;
        }
        Ok(())
    }

    /// The server's states of these objects, in their order.
    pub(crate) fn look_at(&self, objects: &[ObjectNo]) -> Result<Vec<Option<Version>>, SyncError> {
        let mut versions = Vec::with_capacity(objects.len());
        while versions.len() < objects.len() {
            let request = Request::Look {
                objects: objects[versions.len()..].to_vec(),
            };
            let Reply::Versions { versions: some, .. } = self.ask(&request)? else {
                return Err(unexpected("to a look").into());
            };
            if some.is_empty() || versions.len() + some.len() > objects.len() {
                return Err(unexpected("another number of objects").into());
            }
            versions.extend(some);
        }
        Ok(versions)
    }

    /// Looks again at what did not fit in here before.
    pub(crate) fn look_again(&self) -> Result<(), SyncError> {
        let now = self.monotonic();
        let is_due = self
            .held
            .lock()
            .due_in(StuckWay::Installing, now)
            .is_some_and(|wait| wait.is_zero());
        if !std::mem::take(&mut self.state.lock().again) && !is_due {
            return Ok(());
        }
        // What an answer that is lost leaves undone is done the next time.
        self.look_at_all_again()
            .inspect_err(|_| self.state.lock().again = true)
    }

    fn look_at_all_again(&self) -> Result<(), SyncError> {
        let _applying = self.apply()?;
        let mut objects = Vec::new();
        self.store().each_note(ObjectNo::ROOT, &mut |no, head| {
            if Note::glance(head).2 {
                objects.push(no);
            }
            ControlFlow::Continue(())
        })?;
        let now = self.monotonic();
        {
            let mut held = self.held.lock();
            held.keep(StuckWay::Installing, |no| objects.contains(&no));
            objects.retain(|no| !held.waits(StuckWay::Installing, *no, now));
        }
        for objects in objects.chunks(WANTS_MAX) {
            let mut gone = Vec::new();
            for (no, version) in objects.iter().zip(self.look_at(objects)?) {
                match version {
                    Some(version) => self.install_or_hold(&version, None, None)?,
                    None => gone.push(*no),
                }
            }
            self.bury_gone(gone, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
