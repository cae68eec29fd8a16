//! Finds out how many descriptors the threads of a run may hold, and makes room for them.
//!
//! In the language each process has a table of descriptors of its own, and each thread 128 slots.
//! Here all threads are in one process, which has one limit. Where it is too low, threads that
//! only ever transfer at random offsets share the descriptors of a file: nothing that they do
//! depends on the thread that opened the descriptor.
//!
//! # Guarantees
//! 1. A run is refused, before anything is written, if its threads may hold more descriptors than
//!    this process may have.
//! 2. A shared descriptor is one of the same file, opened with the same flags. Each opening is a
//!    system call all the same, and counts as one.

use super::error::RunError;
use super::plan::{FlowopFlags, PlannedThread, SLOTS, WorkloadPlan};
use crate::wml::FlowopKind;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Descriptors of the program itself: its output, the roots of filesets, its log.
const OWN: u64 = 256;

/// Says which descriptors threads use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DescriptorUse {
    /// Each slot has a descriptor of its own.
    Own,
    /// Threads that transfer at random offsets only share the descriptors of a file.
    Shared,
}

/// Returns the number of slots that a thread can have open at once.
fn slots_in_use(thread: &PlannedThread) -> u64 {
    // `opennext` goes round all slots, those that are named included.
    if thread
        .ops
        .iter()
        .any(|op| op.uses_slot() && op.has(FlowopFlags::OPENNEXT))
    {
        return SLOTS as u64;
    }
    let mut slots: Vec<usize> = Vec::new();
    // Flowops of the same slot hold one descriptor between them.
    for op in thread.ops.iter().filter(|op| op.uses_slot()) {
        if !slots.contains(&op.fd) {
            slots.push(op.fd);
        }
    }
    slots.len() as u64
}

/// Returns whether a thread can use another thread's descriptors: the offset of a descriptor
/// matters to none of its flowops, and none closes or deletes what is open.
pub(super) fn can_share(thread: &PlannedThread) -> bool {
    // Every other flowop on a slot reads on, appends, syncs, closes or deletes: such a thread needs
    // descriptors of its own.
    use FlowopKind::{AioWrite, Read, Write};
    thread
        .ops
        .iter()
        .filter(|op| op.uses_slot())
        .all(|op| matches!(op.kind, Read | Write | AioWrite) && op.has(FlowopFlags::RANDOM))
}

/// Returns the descriptors that all threads may hold together.
fn wanted_descriptors(plan: &WorkloadPlan, with: DescriptorUse) -> u64 {
    let mut wanted = OWN;
    let mut is_shared = false;
    for process in &plan.processes {
        for thread in &process.threads {
            let many = process.instances.saturating_mul(thread.instances);
            let each = if with == DescriptorUse::Shared && can_share(thread) {
                is_shared = true;
                // The one that was just opened, until the shared one is found.
                1
            } else {
                slots_in_use(thread)
            };
            wanted = wanted.saturating_add(many.saturating_mul(each));
        }
    }
    if is_shared {
        // A file is open once for each way in which it can be opened.
        let ways = 1 << OPENED_WITH.bits().count_ones();
        for set in &plan.filesets {
            wanted = wanted.saturating_add(set.entries.saturating_mul(ways));
        }
    }
    wanted
}

/// Returns the kind of thread that holds most descriptors.
fn greediest_thread(plan: &WorkloadPlan) -> String {
    // The first of equals is named: it stands first in the script.
    let mut most = (0, String::new());
    for process in &plan.processes {
        for thread in &process.threads {
            let many = process.instances.saturating_mul(thread.instances);
            let held = many.saturating_mul(slots_in_use(thread));
            if held > most.0 {
                most = (held, thread.name.clone());
            }
        }
    }
    most.1
}

/// Raises the limit of descriptors to what is wanted, as far as that is allowed; returns the limit
/// as it is then.
fn raise_limit(wanted: u64) -> u64 {
    // No limit counts as a very high one.
    let now = getrlimit(Resource::Nofile);
    let current = now.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    // Only a privileged process may raise the hard limit; any may reach it.
    let hard = now.maximum.unwrap_or(u64::MAX);
    for maximum in [hard.max(wanted), hard] {
        let raised = Rlimit {
            current: Some(maximum.min(wanted)),
            maximum: Some(maximum).filter(|most| *most < u64::MAX),
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return maximum.min(wanted);
        }
    }
    current
}

/// Makes room for the descriptors of a run, and returns whether they must be shared.
///
/// # Errors
/// [`RunError::Descriptors`] if there are too few even then.
pub(super) fn provide_descriptors(plan: &WorkloadPlan) -> Result<DescriptorUse, RunError> {
    let wanted = wanted_descriptors(plan, DescriptorUse::Own);
    let has = raise_limit(wanted);
    if wanted <= has {
        return Ok(DescriptorUse::Own);
    }
    // Sharing changes what is measured as little as possible, but it closes more often: it comes
    // second.
    let need = wanted_descriptors(plan, DescriptorUse::Shared);
    if need <= has {
        return Ok(DescriptorUse::Shared);
    }
    Err(RunError::Descriptors {
        need,
        has,
        thread: greediest_thread(plan),
    })
}

/// Attributes of a flowop that its descriptors have, too.
const OPENED_WITH: FlowopFlags = FlowopFlags::DSYNC
    .union(FlowopFlags::DIRECTIO)
    .union(FlowopFlags::NOREADAHEAD);

/// Names a descriptor that can be shared: fileset, file, and how it was opened.
type SharedKey = (usize, usize, FlowopFlags);

/// Holds the descriptors that threads share.
#[derive(Debug, Default)]
pub(super) struct SharedDescriptors {
    /// Guards the table, and is held for a few instructions only.
    open: Mutex<BTreeMap<SharedKey, Weak<OwnedFd>>>,
}

impl SharedDescriptors {
    /// Returns the descriptor of this file that another thread has open, or else the given one,
    /// which others may use from now on. The other one of the two is closed.
    pub(super) fn share(
        &self,
        set: usize,
        index: usize,
        flags: FlowopFlags,
        opened: OwnedFd,
    ) -> Arc<OwnedFd> {
        let mut open = self.open.lock();
        let entry = open
            .entry((set, index, flags.intersection(OPENED_WITH)))
            .or_default();
        if let Some(shared) = entry.upgrade() {
            // Closed without the lock: closing can take as long as the file system likes.
            drop(open);
            drop(opened);
            return shared;
        }
        let opened = Arc::new(opened);
        *entry = Arc::downgrade(&opened);
        opened
    }
}

#[cfg(test)]
mod tests;
