//! Filters: the changes of a volume that a client is told of, and those that notify its waiting
//! pulls.
//!
//! All clients have the one ordered stream; a filter only leaves out of it what a client cannot
//! have. It is a set of directories and objects.
//!
//! # The invariant
//! A client *knows* an object that is in its store, and of a directory that it has listed every
//! name, also that it is not there. As history was at the client's position, whatever it knows
//! *lies in the filter*: an object is in it itself, or a directory in which it has a name; a listed
//! directory is in it itself.
//!
//! A change *concerns* a client if the object, or a directory in which it had a name before or has
//! one now, is in the filter. So what does not concern a client is about nothing that it knows, and
//! its position may pass over it. The invariant holds, because
//! 1. a client that wants a filter says what it keeps (`Keep`): it begins the filter, brings its
//!    position up to the newest commit, adds everything, and uses the filter then. Meanwhile it
//!    installs nothing else;
//! 2. with whatever is told, all directories in which it lies come in: of a pull, before the answer
//!    is given; of listings and objects that were asked for, which a pull may overtake, before they
//!    are read ([`Server::read_for_client`](crate::Server) reads again until that is so);
//! 3. a directory comes in before it is listed, and before the batch is committed in which the
//!    client makes it;
//! 4. nothing leaves a filter. One that would become too large tells everything from then on;
//! 5. a filter belongs to a program that runs, not to a device: the copy of a store has another
//!    one. A server that has begun anew knows none, says so, and tells everything.
//!
//! *Quiet* is what changes of a directory when something comes or goes in it, its times: a client
//! that has listed the directory hears of the thing itself. The times notify no pull; they are told
//! with the next answer, when a pull's time is over at the latest.

use crate::limits::{FILTER_MAX, FILTERS_TOTAL, PAGE};
use crate::recent::CommitConcern;
use crate::refusal::Outcome;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use teal_meta::ReadTransaction;
use teal_types::{CommitSeq, HardLink, ObjectNo};

/// A filter of one client; see the module. Its lock guards the set, and nothing but lookups is done
/// under it.
#[derive(Debug)]
pub(crate) struct Filter {
    kept: Mutex<KeptObjects>,
    /// The number of objects in all filters of the server.
    total: Arc<AtomicUsize>,
}

/// The set of objects that a client keeps.
#[derive(Debug, Default)]
struct KeptObjects {
    objects: HashSet<ObjectNo>,
    /// Becomes true when the set would be too large: the client is told everything then.
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
        filter.add_objects([ObjectNo::ROOT]);
        filter
    }

    /// Adds `objects`, and returns whether one of them is new.
    pub(crate) fn add_objects(&self, objects: impl IntoIterator<Item = ObjectNo>) -> bool {
        let mut kept = self.kept.lock();
        let before = kept.objects.len();
        for object in objects {
            if kept.is_all || !kept.objects.insert(object) {
                continue;
            }
            let of_all = self.total.fetch_add(1, Relaxed);
            // A filter that grows too large gives up, and its client is told everything.
            if kept.objects.len() > FILTER_MAX || of_all >= FILTERS_TOTAL {
                self.total.fetch_sub(kept.objects.len(), Relaxed);
                *kept = KeptObjects {
                    objects: HashSet::new(),
                    is_all: true,
                };
                return false;
            }
        }
        debug_assert!(
            kept.objects.len() <= FILTER_MAX,
            "a larger filter has given up"
        );
        kept.objects.len() > before
    }

    fn contains(&self, object: ObjectNo) -> bool {
        self.kept.lock().objects.contains(&object)
    }

    fn is_all(&self) -> bool {
        self.kept.lock().is_all
    }

    fn all_objects(&self) -> Vec<ObjectNo> {
        self.kept.lock().objects.iter().copied().collect()
    }

    /// Returns whether a commit notifies a waiting pull of the client.
    pub(crate) fn is_woken_by(&self, commit: &CommitConcern) -> bool {
        let kept = self.kept.lock();
        kept.is_all || !commit.notable.is_disjoint(&kept.objects)
    }

    /// Returns those of the objects changed by `commits` that concern the client.
    fn concerned_objects(&self, commits: &[Arc<CommitConcern>]) -> BTreeSet<ObjectNo> {
        let kept = self.kept.lock();
        let rows = commits.iter().flat_map(|commit| &commit.rows);
        rows.filter(|row| kept.objects.contains(&row.object) || kept.objects.contains(&row.dir))
            .map(|row| row.object)
            .collect()
    }
}

/// The part of a stretch of history that concerns a client.
pub(crate) enum HistoryNews {
    All,
    Objects {
        objects: BTreeSet<ObjectNo>,
        /// Says whether a waiting pull is notified for one of the objects.
        is_notable: bool,
    },
}

impl HistoryNews {
    pub(crate) fn contains(&self, object: ObjectNo) -> bool {
        match self {
            Self::All => true,
            Self::Objects { objects, .. } => objects.contains(&object),
        }
    }
}

/// Returns what of the commits in `(since, to]` concerns a client. Reads history for it unless
/// `recent` has the commits.
pub(crate) fn news_for(
    txn: &dyn ReadTransaction,
    filter: Option<&Filter>,
    (since, to): (CommitSeq, CommitSeq),
    recent: Option<Vec<Arc<CommitConcern>>>,
) -> Outcome<HistoryNews> {
    debug_assert!(since <= to, "a pull goes forwards");
    let Some(filter) = filter.filter(|filter| !filter.is_all()) else {
        return Ok(HistoryNews::All);
    };
    // The client has nothing yet, so it needs the objects themselves and not their changes.
    if since == CommitSeq::new(0) {
        return Ok(HistoryNews::Objects {
            objects: live_objects(txn, filter)?,
            is_notable: to > since,
        });
    }
    // The remembered commits spare a scan of history.
    if let Some(commits) = recent {
        debug_assert!(
            commits
                .iter()
                .all(|commit| commit.seq > since && commit.seq <= to),
            "only these"
        );
        let is_notable = commits.iter().any(|commit| filter.is_woken_by(commit));
        return Ok(HistoryNews::Objects {
            objects: filter.concerned_objects(&commits),
            is_notable,
        });
    }
    // History knows every name an object has ever had.
    let mut changed = BTreeSet::new();
    txn.visit_changes(since, to, &mut |_, object, _| {
        changed.insert(object);
    })?;
    let mut objects = BTreeSet::new();
    // Every name counts that the object has had, because a client may know it from there.
    for object in changed {
        let lies_in_filter = |name: &HardLink| filter.contains(name.dir);
        if filter.contains(object) || txn.names_ever(object, to)?.iter().any(lies_in_filter) {
            objects.insert(object);
        }
    }
    // Without the remembered commits it isn't known which changes were quiet: all count as notable.
    let is_notable = !objects.is_empty();
    Ok(HistoryNews::Objects {
        objects,
        is_notable,
    })
}

/// Returns the live objects in the filter and in its directories, for a client that has nothing
/// yet.
fn live_objects(txn: &dyn ReadTransaction, filter: &Filter) -> Outcome<BTreeSet<ObjectNo>> {
    let mut objects = BTreeSet::new();
    for object in filter.all_objects() {
        if txn.object(object)?.is_none() {
            continue;
        }
        objects.insert(object);
        // A directory may be large, so its entries are read page by page.
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
