//! Filters: which changes of a volume a client is told of, and for which of them it is woken.
//!
//! Everybody has the one ordered stream; a filter only leaves out of it what a client cannot have. It is a set of directories and objects.
//!
//! # The invariant
//! A client *knows* an object that is in its store, and of a directory that it has listed every name, also that it is not there. As history
//! was at the client's position, whatever it knows *lies in the filter*: an object is in it itself, or a directory in which it has a name; a
//! listed directory is in it itself.
//!
//! A change *concerns* a client if the object, or a directory in which it had a name before or has one now, is in the filter. So what does not
//! concern a client is about nothing that it knows, and its position may pass over it. The invariant holds, because
//! 1. a client that wants a filter says what it keeps (`Keep`): it begins the filter, brings its position up to the newest commit, adds
//!    everything, and uses the filter then. Meanwhile it installs nothing else;
//! 2. with whatever is told, all directories in which it lies come in: of a pull, before the answer is given; of listings and objects that
//!    were asked for, which a pull may overtake, before they are read ([`Server::telling`] reads again until that is so);
//! 3. a directory comes in before it is listed, and before the batch is committed in which the client makes it;
//! 4. nothing leaves a filter. One that would become too large tells everything from then on;
//! 5. a filter belongs to a program that runs, not to a device: the copy of a store has another one. A server that has begun anew knows none,
//!    says so, and tells everything.
//!
//! *Quiet* is what changes of a directory when something comes or goes in it, its times: whoever has listed it hears of that something.
//! Nobody is woken for its sake; it is told with the next answer, and that is when a pull has waited for as long as it may.

use crate::commit::volume_of;
use crate::limits::{FILTER_MAX, FILTERS_TOTAL, PAGE};
use crate::recent::Concern;
use crate::refusal::{Outcome, bad};
use crate::seeded::{Bug, bug};
use crate::server::{Peer, Server};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use teal_meta::Read;
use teal_proto::{KEPT_MAX, Reply};
use teal_types::{CommitSeq, ObjectNo};

/// See the module. Its lock guards the set; nothing is done under it but looking.
#[derive(Debug)]
pub(crate) struct Filter {
    kept: Mutex<Kept>,
    /// Objects in all filters of the server.
    total: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Kept {
    objects: HashSet<ObjectNo>,
    is_all: bool,
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.total
            .fetch_sub(self.kept.lock().objects.len(), Relaxed);
    }
}

impl Filter {
    pub(crate) fn new(total: &Arc<AtomicUsize>) -> Self {
        let filter = Self {
            kept: Mutex::default(),
            total: Arc::clone(total),
        };
        filter.add([ObjectNo::ROOT]);
        filter
    }

    /// Takes these in; whether one of them is new.
    pub(crate) fn add(&self, objects: impl IntoIterator<Item = ObjectNo>) -> bool {
        let mut kept = self.kept.lock();
        let before = kept.objects.len();
        for object in objects {
            if kept.is_all || !kept.objects.insert(object) {
                continue;
            }
            let of_all = self.total.fetch_add(1, Relaxed);
            if kept.objects.len() > FILTER_MAX || of_all >= FILTERS_TOTAL {
                self.total.fetch_sub(kept.objects.len(), Relaxed);
                *kept = Kept {
                    objects: HashSet::new(),
                    is_all: true,
                };
                return false;
            }
        }
        kept.objects.len() > before
    }

    fn has(&self, object: ObjectNo) -> bool {
        self.kept.lock().objects.contains(&object)
    }

    fn is_all(&self) -> bool {
        self.kept.lock().is_all
    }

    fn all(&self) -> Vec<ObjectNo> {
        self.kept.lock().objects.iter().copied().collect()
    }

    /// Whether a client that waits is woken by a commit.
    pub(crate) fn wakes(&self, commit: &Concern) -> bool {
        let kept = self.kept.lock();
        kept.is_all || !commit.loud.is_disjoint(&kept.objects)
    }

    /// The objects that concern the client among what these commits changed.
    fn concerned(&self, commits: &[Arc<Concern>]) -> BTreeSet<ObjectNo> {
        let kept = self.kept.lock();
        let rows = commits.iter().flat_map(|commit| &commit.rows);
        rows.filter(|row| kept.objects.contains(&row.object) || kept.objects.contains(&row.dir))
            .map(|row| row.object)
            .collect()
    }
}

/// What of a stretch of history concerns a client.
pub(crate) enum News {
    /// All of it.
    All,
    /// These objects. Whether whoever waits is woken for one of them.
    Of(BTreeSet<ObjectNo>, bool),
}

impl News {
    pub(crate) fn has(&self, object: ObjectNo) -> bool {
        match self {
            Self::All => true,
            Self::Of(objects, _) => objects.contains(&object),
        }
    }
}

/// What of the commits in `(since, to]` concerns a client, so far as they are remembered: `recent`.
pub(crate) fn news(
    txn: &dyn Read,
    filter: Option<&Filter>,
    (since, to): (CommitSeq, CommitSeq),
    recent: Option<Vec<Arc<Concern>>>,
) -> Outcome<News> {
    let Some(filter) = filter.filter(|filter| !filter.is_all()) else {
        return Ok(News::All);
    };
    if since == CommitSeq::new(0) {
        return Ok(News::Of(kept_now(txn, filter)?, to > since));
    }
    if let Some(commits) = recent {
        let is_loud = commits.iter().any(|commit| filter.wakes(commit));
        return Ok(News::Of(filter.concerned(&commits), is_loud));
    }
    // History knows every name an object has ever had.
    let mut changed = BTreeSet::new();
    txn.changes(since, to, &mut |_, object, _| {
        changed.insert(object);
    })?;
    let mut objects = BTreeSet::new();
    for object in changed {
        if filter.has(object)
            || txn
                .names_ever(object, to)?
                .iter()
                .any(|link| filter.has(link.dir))
        {
            objects.insert(object);
        }
    }
    let is_any = !objects.is_empty();
    Ok(News::Of(objects, is_any))
}

/// For whoever has nothing yet: what lives in the filter.
fn kept_now(txn: &dyn Read, filter: &Filter) -> Outcome<BTreeSet<ObjectNo>> {
    let mut objects = BTreeSet::new();
    for object in filter.all() {
        if txn.object(object)?.is_none() {
            continue;
        }
        objects.insert(object);
        let mut after = None;
        loop {
            let page = txn.entries_after(object, after.as_ref(), PAGE)?;
            let is_last = page.len() < PAGE;
            objects.extend(page.iter().map(|(_, entry)| entry.object));
            after = page.into_iter().last().map(|(name, _)| name);
            if is_last {
                break;
            }
        }
    }
    Ok(objects)
}

impl Server {
    /// A part of what a client keeps.
    pub(crate) fn keep(
        &self,
        peer: Peer,
        filter: u64,
        objects: Vec<ObjectNo>,
        is_last: bool,
    ) -> Outcome<Reply> {
        if objects.len() > KEPT_MAX {
            return bad(format!(
                "{} objects are kept; at most {KEPT_MAX} are allowed in one message",
                objects.len()
            ));
        }
        let now = self.clock().monotonic();
        let filter = if filter == 0 {
            let head = self.read(peer.volume, |txn| Ok(volume_of(txn)?.head))?;
            let id = u64::from(self.draw()) << 32 | u64::from(self.draw().max(1));
            self.room.lock().begin_filter(peer, id, head, now);
            id
        } else {
            filter
        };
        let Some(found) = self.room.lock().filter_to_fill(peer, filter, is_last) else {
            return Ok(Reply::Kept { filter: 0 });
        };
        found.add(objects);
        Ok(Reply::Kept { filter })
    }

    /// Reads something to tell a client, with the directories in which it lies, which are in the client's filters before it is read; `first` at
    /// least.
    pub(crate) fn telling<T>(
        &self,
        peer: Peer,
        first: impl IntoIterator<Item = ObjectNo>,
        read: impl Fn(&dyn Read) -> Outcome<(T, Vec<ObjectNo>)>,
    ) -> Outcome<T> {
        let filters = self.room.lock().filters(peer);
        let add = |objects: Vec<ObjectNo>| {
            let new = filters
                .iter()
                .filter(|filter| filter.add(objects.iter().copied()));
            new.count() > 0
        };
        if !bug(Bug::FilterForgetsListed) {
            add(first.into_iter().collect());
        }
        loop {
            let (told, dirs) = self.read(peer.volume, &read)?;
            if bug(Bug::FilterForgetsListed) || !add(dirs) {
                return Ok(told);
            }
        }
    }
}
