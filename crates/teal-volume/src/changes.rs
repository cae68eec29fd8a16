//! How operations tell the replica what they change, in the batch of the change.

use teal_log::{Cost, LockedObjects, NewObject, StoreError};
use teal_types::{CommitSeq, ObjectNo};

/// The state of a file that a change of its content was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeBase {
    /// The state at the position of this replica.
    Position,
    /// The state of this commit at the latest: no program here was given a later one.
    Given(CommitSeq),
    /// The state of this commit, which is installed though the position may not have come to it
    /// yet. It counts only for the first change since the object was last in agreement with the
    /// server.
    Installed(CommitSeq),
}

/// What of an object changes.
#[derive(Debug, Clone, Copy)]
pub enum ObjectChange<'a> {
    /// Its attributes.
    Attributes,
    /// Its content from an offset to another.
    Data {
        /// The first byte.
        from: u64,
        /// Behind the last byte.
        to: u64,
        /// The state it was changed in.
        base: ChangeBase,
    },
    /// Its content behind its end, from there to another offset.
    Append {
        /// The former end.
        from: u64,
        /// The new end.
        to: u64,
        /// The state it was changed in.
        base: ChangeBase,
    },
    /// Its size was less meanwhile, or is now.
    Truncate {
        /// The least size.
        size: u64,
        /// The state it was changed in.
        base: ChangeBase,
    },
    /// An extended attribute.
    Xattr(&'a [u8]),
    /// Its names. This is to be recorded before they change.
    Names,
    /// The object itself is gone.
    Gone,
}

/// Is told of every change, inside the operation that makes it.
///
/// A record is written into the operation's batch under the object's lock, so it is durable exactly
/// when the change is, and it cannot fail later than the change.
pub trait ChangeRecorder: Send + Sync {
    /// Returns the cost of an operation with what recording its changes takes.
    fn with_record(&self, cost: Cost) -> Cost;

    /// Makes a new object, with a number that no other replica gives, and records that it is new.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when there are no more numbers; what the store met.
    fn create(
        &self,
        locked: &mut LockedObjects<'_>,
        new: NewObject,
    ) -> Result<ObjectNo, StoreError>;

    /// Records that something of a locked object changes.
    ///
    /// # Errors
    /// What the store met.
    fn record(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        change: ObjectChange<'_>,
    ) -> Result<(), StoreError>;

    /// Gives a locked object without a name back, and its space, and records that it is gone.
    ///
    /// # Errors
    /// What the store met.
    fn give_back(&self, locked: &mut LockedObjects<'_>, no: ObjectNo) -> Result<(), StoreError> {
        locked.free_object(no)?;
        self.record(locked, no, ObjectChange::Gone)
    }

    /// Checks whether a locked object without a name waits for the one it has at the server, and
    /// so is not to be given back.
    ///
    /// # Errors
    /// What the store met.
    fn awaits_name(&self, locked: &LockedObjects<'_>, no: ObjectNo) -> Result<bool, StoreError>;

    /// Hears that `new` has taken the name of `old`, under their locks.
    fn on_replaced(&self, old: ObjectNo, new: ObjectNo);

    /// Hears that an object has another place, under its lock.
    fn on_moved(&self, no: ObjectNo);

    /// Does what a rename leaves to be done, without locks.
    ///
    /// # Errors
    /// What the store met.
    fn after_rename(&self) -> Result<(), StoreError>;
}
