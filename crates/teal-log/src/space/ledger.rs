//! The ledger of space: what is promised to operations, what the open batch takes, and what may
//! still be promised.
//!
//! # Invariants
//! 1. Every byte that an operation may take is promised before it begins, and each promise is given
//!    back exactly once.
//! 2. What the open batch takes only an operation under way, a note, or the cleaner adds; sealing
//!    the batch sets it to nothing.
//! 3. What an operation has taken is compared with its [`Cost`] when it ends. If a cost is too
//!    small, the log says so where it was made, in every build, and a debug build panics: the
//!    promise that a commit has room would be worth nothing.
//! 4. The *budget* is what may be promised without a closer look. It is set from the real room at
//!    each closer look, and only shrinks by what is promised and taken since, so it never says more
//!    than there is.
//! 5. Room that is set aside for unwritten blocks of files is promised to nobody else. An operation
//!    whose promise such room covers takes it from there, and what it has not used returns.
//!
//! # Locks
//! None: each figure is an atomic of its own. A sum of several is exact while no operation is under
//! way, and else off by at most what operations are adding at that moment, which is a part of what
//! was promised to them.

use crate::space::cost::{BLOCK_TAKES, Cost, OperationKind};
use crate::tree::page_bounds::PAGE;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Changed pages that memory may hold before a checkpoint must fold them: 8 MiB on the disk, about
/// twice that in memory.
pub(crate) const MEM_PAGES: u64 = 2048;

/// The space that an operation has taken so far, or the sum of the space it has given back.
#[derive(Debug, Default)]
pub(crate) struct SpaceCharge(AtomicI64);

impl SpaceCharge {
    /// Counts bytes that sealing will take more, or less, because of the operation.
    pub(crate) fn add(&self, bytes: i64) {
        self.0.fetch_add(bytes, Relaxed);
    }

    /// Counts pages that only memory holds, after a change of how many there are.
    pub(crate) fn add_pages(&self, from: usize, to: usize) {
        self.add((to as i64 - from as i64) * PAGE as i64);
    }

    /// Returns the bytes taken, below nothing if more was given back.
    pub(crate) fn taken(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SpaceLedger {
    /// Bytes promised to operations that are not done yet.
    promised: AtomicI64,
    /// Bytes the open batch takes at most, pages of trees not counted.
    batch_bytes: AtomicI64,
    /// The part of these bytes in blocks that the cleaner relocates.
    relocated_bytes: AtomicI64,
    /// Pages of objects' trees that only memory holds.
    memory_pages: AtomicI64,
    /// Live bytes of the victims of a running round of cleaning: the round gives them back.
    lent_to_cleaner: AtomicI64,
    /// Blocks of files for which room is set aside.
    unwritten_blocks: AtomicU64,
    /// The part of what is promised that such room covers.
    covered: AtomicI64,
    /// Bytes that may still be promised before the real room must be looked at.
    budget: AtomicI64,
    /// The kinds of operations in the open batch, a bit each: for messages.
    operations: AtomicU64,
}

impl SpaceLedger {
    /// Promises what an operation may take. Returns whether the budget had it; the caller takes the
    /// promise back if nothing else has.
    pub(crate) fn promise(&self, cost: &Cost) -> bool {
        self.covered.fetch_add(cost.covered_bytes() as i64, Relaxed);
        self.promised.fetch_add(cost.bytes() as i64, Relaxed);
        let bytes = cost.uncovered_bytes() as i64;
        // The budget may be negative for a moment, while others do the same.
        self.budget.fetch_sub(bytes, Relaxed) >= bytes
    }

    /// Ends a promise: the operation is done, or did not begin.
    pub(crate) fn end_promise(&self, cost: &Cost) {
        let bytes = cost.bytes() as i64;
        let before = self.promised.fetch_sub(bytes, Relaxed);
        assert!(before >= bytes, "each promise ends once");
        self.covered.fetch_sub(cost.covered_bytes() as i64, Relaxed);
        self.budget
            .fetch_add(cost.uncovered_bytes() as i64, Relaxed);
    }

    /// Sets room aside for so many blocks; it is out of the budget at once.
    pub(crate) fn set_blocks_aside(&self, blocks: u64) {
        self.unwritten_blocks.fetch_add(blocks, Relaxed);
        self.budget
            .fetch_sub((blocks * BLOCK_TAKES) as i64, Relaxed);
    }

    /// Notes that room for so many blocks is set aside no more: it is used, or given back.
    pub(crate) fn release_blocks(&self, blocks: u64) {
        if blocks == 0 {
            return;
        }
        // A damaged store may have more unwritten blocks than its log says.
        let less = |known: u64| Some(known.saturating_sub(blocks));
        let known = self
            .unwritten_blocks
            .fetch_update(Relaxed, Relaxed, less)
            .unwrap_or_else(|known| known);
        // Room that was never counted is not given back.
        let released = known.min(blocks);
        self.budget
            .fetch_add((released * BLOCK_TAKES) as i64, Relaxed);
    }

    /// Takes over for how many blocks room was set aside when the store was opened.
    pub(crate) fn restore_unwritten(&self, blocks: u64) {
        self.unwritten_blocks.store(blocks, Relaxed);
    }

    /// Returns the number of blocks of files for which room is set aside.
    pub(crate) fn unwritten_blocks(&self) -> u64 {
        self.unwritten_blocks.load(Relaxed)
    }

    /// Returns the bytes that are set aside for unwritten blocks, without those that promises of
    /// operations under way cover.
    pub(crate) fn set_aside_bytes(&self) -> u64 {
        let covered = self.covered.load(Relaxed).max(0) as u64;
        (self.unwritten_blocks() * BLOCK_TAKES).saturating_sub(covered)
    }

    /// Ends the promise of an operation that is done, and compares what it has taken with its cost.
    /// If it has taken more, the log names it: the cost must be mended where it is made.
    ///
    /// # Panics
    /// In debug builds, if it has taken more: a test that meets such an operation fails there.
    pub(crate) fn end_operation(&self, cost: &Cost, charge: &SpaceCharge) {
        // The promise ends first: what the operation took is counted already.
        self.end_promise(cost);
        self.operations
            .fetch_or(cost.operation_kind().bit_in_set(), Relaxed);
        // Operations that took no more than promised are the rule.
        let taken = charge.taken();
        if taken <= cost.bytes() as i64 {
            return;
        }
        let operation = cost.operation_kind();
        let bytes = cost.bytes();
        let found =
            format!("the cost of {operation:?} is too small: {bytes} bytes, and it took {taken}");
        log::error!("{found}");
        // Fuzzed images make operations take what no store does, and a panic while another one
        // unwinds would abort.
        let is_checked = cfg!(debug_assertions) && !cfg!(feature = "fuzzing");
        assert!(!is_checked || std::thread::panicking(), "{found}");
    }

    /// Returns the kinds of operations that the open batch holds.
    pub(crate) fn operation_kinds(&self) -> Vec<OperationKind> {
        OperationKind::of_bits(self.operations.load(Relaxed))
    }

    /// Returns the bytes that are promised to operations under way.
    pub(crate) fn promised_bytes(&self) -> u64 {
        self.promised.load(Relaxed).max(0) as u64
    }

    /// Counts what the open batch takes more, or less.
    pub(crate) fn add_to_batch(&self, bytes: i64) {
        self.batch_bytes.fetch_add(bytes, Relaxed);
        self.budget.fetch_sub(bytes, Relaxed);
    }

    /// Returns the bytes that the open batch takes at most, pages of trees not counted.
    pub(crate) fn batch_bytes(&self) -> u64 {
        self.batch_bytes.load(Relaxed).max(0) as u64
    }

    /// Counts content that the cleaner has entered into the open batch, where it is counted
    /// already.
    pub(crate) fn add_relocated(&self, bytes: u64) {
        self.relocated_bytes.fetch_add(bytes as i64, Relaxed);
    }

    /// Returns the bytes of the open batch that the cleaner relocates: they do not add to what
    /// lives.
    pub(crate) fn relocated_bytes(&self) -> u64 {
        self.relocated_bytes.load(Relaxed).max(0) as u64
    }

    /// Notes that the open batch was sealed: the next one is empty.
    pub(crate) fn batch_sealed(&self) {
        // The open batch is empty.
        self.batch_bytes.store(0, Relaxed);
        self.relocated_bytes.store(0, Relaxed);
        self.operations.store(0, Relaxed);
    }

    /// Counts pages of an object's trees that only memory holds, after a change of how many there
    /// are.
    pub(crate) fn pages_changed(&self, from: usize, to: usize) {
        self.memory_pages
            .fetch_add(to as i64 - from as i64, Relaxed);
    }

    /// Notes a change of the page count by an operation. The pages' bytes are out of the budget at
    /// once.
    pub(crate) fn pages_changed_by_operation(&self, from: usize, to: usize) {
        self.pages_changed(from, to);
        // Pages count against the budget as soon as they exist.
        let more = to as i64 - from as i64;
        self.budget.fetch_sub(more * PAGE as i64, Relaxed);
    }

    /// Returns how many pages of objects' trees only memory holds.
    pub(crate) fn memory_pages(&self) -> u64 {
        self.memory_pages.load(Relaxed).max(0) as u64
    }

    /// Counts the live bytes of a victim that is about to be relocated.
    pub(crate) fn lend_to_cleaner(&self, bytes: u64) {
        self.lent_to_cleaner.fetch_add(bytes as i64, Relaxed);
    }

    /// Notes that a round of cleaning has begun or ended.
    pub(crate) fn cleaner_owes_nothing(&self) {
        self.lent_to_cleaner.store(0, Relaxed);
    }

    /// Returns the live bytes of the victims of the running round.
    pub(crate) fn lent_to_cleaner(&self) -> u64 {
        self.lent_to_cleaner.load(Relaxed).max(0) as u64
    }

    /// Sets the budget after a look at the real room.
    pub(crate) fn set_budget(&self, bytes: i64) {
        self.budget.store(bytes, Relaxed);
    }

    /// Reduces the budget by bytes that are used otherwise than by operations.
    pub(crate) fn shrink_budget(&self, bytes: i64) {
        self.budget.fetch_sub(bytes, Relaxed);
    }

    /// Checks that nothing was given back that had not been taken. The gate of the open batch is
    /// held exclusively.
    ///
    /// # Panics
    /// If more was given back than taken: a change was undone twice.
    pub(crate) fn check_invariants(&self) {
        let batch = self.batch_bytes.load(Relaxed);
        assert!(batch >= 0, "a batch takes {batch} bytes");
        let relocated = self.relocated_bytes.load(Relaxed);
        assert!(relocated >= 0, "the cleaner relocates {relocated} bytes");
        let pages = self.memory_pages.load(Relaxed);
        assert!(pages >= 0, "memory holds {pages} pages");
        let promised = self.promised.load(Relaxed);
        assert!(promised >= 0, "{promised} bytes are promised");
        // Compared with nothing: other operations promise and end meanwhile.
        let covered = self.covered.load(Relaxed);
        assert!(covered >= 0, "room covers {covered} bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::BLOCK;

    #[test]
    fn a_promise_leaves_the_budget_and_comes_back() {
        let ledger = SpaceLedger::default();
        let cost = Cost::note();
        let bytes = cost.bytes();
        ledger.set_budget(bytes as i64 * 3 / 2);
        assert!(ledger.promise(&cost));
        assert!(
            !ledger.promise(&cost),
            "the budget has only half of it left"
        );
        ledger.end_promise(&cost);
        ledger.add_to_batch(bytes as i64 * 3 / 4);
        assert_eq!(ledger.promised_bytes(), bytes);
        assert_eq!(ledger.batch_bytes(), bytes * 3 / 4);
        ledger.end_promise(&cost);
        ledger.batch_sealed();
        ledger.check_invariants();
        assert!(
            !ledger.promise(&cost),
            "the batch's bytes are taken until the room is looked at again"
        );
    }

    #[test]
    fn room_that_is_set_aside_covers_the_write_that_uses_it() {
        let ledger = SpaceLedger::default();
        ledger.set_blocks_aside(10);
        let room = 10 * BLOCK_TAKES;
        assert_eq!(ledger.set_aside_bytes(), room);
        let cost = Cost::write(2 * BLOCK).covered_by_room(2);
        assert_eq!(cost.covered_bytes(), 2 * BLOCK_TAKES);
        ledger.promise(&cost);
        // Under way, the same bytes are promised and not set aside.
        let taken = ledger.promised_bytes() + ledger.set_aside_bytes();
        assert_eq!(taken, room + cost.uncovered_bytes());
        ledger.release_blocks(2);
        ledger.end_promise(&cost);
        assert_eq!(ledger.set_aside_bytes(), room - 2 * BLOCK_TAKES);
        ledger.check_invariants();
    }

    #[test]
    fn an_operation_may_take_all_that_its_cost_says() {
        let (ledger, charge) = (SpaceLedger::default(), SpaceCharge::default());
        let cost = Cost::note();
        ledger.promise(&cost);
        charge.add(cost.bytes() as i64);
        ledger.end_operation(&cost, &charge);
        assert_eq!(ledger.promised_bytes(), 0);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the cost of Note is too small")]
    fn a_cost_that_was_too_small_is_found_where_it_was_made() {
        let (ledger, charge) = (SpaceLedger::default(), SpaceCharge::default());
        let cost = Cost::note();
        ledger.promise(&cost);
        charge.add(cost.bytes() as i64 + 1);
        ledger.end_operation(&cost, &charge);
    }

    #[test]
    #[should_panic(expected = "each promise ends once")]
    fn a_promise_that_ends_twice_is_found() {
        let ledger = SpaceLedger::default();
        let cost = Cost::note();
        ledger.promise(&cost);
        ledger.end_promise(&cost);
        ledger.end_promise(&cost);
    }
}
