//! A drive: a log store on a disk of its own that holds content of one volume, as the server has
//! it, and can be carried from one client to another.
//!
//! # Guarantees
//! 1. *Acknowledged only*: an installation of content names the commit that it is of. Nothing is
//!    lost with a drive, and nothing on it is a secret.
//! 2. *Exact*: content is read at the commit it was installed at, or not at all; the record of an
//!    object's content on the drive changes in the batch of the content.
//! 3. *At its position*: everything on it is the newest as of the position it tells. That moves
//!    after the changes up to it were taken in, and before anything newer is installed. After a
//!    crash, or when it was pulled out, the drive is as after some of the changes in their order,
//!    so that an unclean end needs no other care than a clean one. A reader of history up to the
//!    position knows every object with content on it.
//! 4. *Room*: content that was not read lately makes way (second chance); content with affinity
//!    does not.
//! 5. *No surprise*: while the disk is written to, also by cleaning of the log,
//!    [`Drive::is_written`] says so.
//!
//! # How
//! An object of the volume is a file of the same number in the store, without a name, in the set of
//! orphans; its note is [`HeldObject`]. The note of object 0 is the [`DriveLabel`], which a client
//! of the volume takes for nothing of its own. All calls may wait for the disk: a caller that must
//! not wait uses a [`DriveWorker`](crate::DriveWorker).
//!
//! | lock | guards | under it |
//! |---|---|---|
//! | `shards`, by object | content and note together: shared by readers | I/O of that object |
//! | `label` | the label | its note |
//! | `used` | the objects used lately | nothing |
//! | `clock_hand` | the place of the next search for objects that may go | that search |

mod content;
mod evict;
mod found_content;
mod label;
mod note_reader;
mod object_note;

pub use found_content::{DataPiece, FoundContent};
pub use label::DriveLabel;
pub use object_note::{HeldContent, HeldObject};

use label::LabelError;
use parking_lot::{Mutex, RwLock};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use teal_env::{Clock, Disk, Entropy};
use teal_log::{Cost, MkfsError, MkfsOptions, OpenOptions, Store, StoreError, StoreOpenError};
use teal_types::{ObjectNo, Sector};

/// The number of the object with the label as its note.
const LABEL_OBJECT: ObjectNo = ObjectNo::new(0);
const SHARDS: u64 = 64;

/// The reason for which a disk is no drive.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The disk holds no store at all, or a damaged one.
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    /// The disk holds a store that is no drive's.
    #[error("this is a store, but not a drive; make a drive with `teal device add`")]
    NotADrive,
    /// A newer program made it.
    #[error(
        "this drive has a label of version {0}, newer than this program knows; use a newer teal"
    )]
    Newer(u16),
    /// Its store cannot be made.
    #[error(transparent)]
    Make(#[from] MkfsError),
    /// Its store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The capacity of a drive, in bytes and objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriveCapacity {
    /// The bytes that content can take together.
    pub total: u64,
    /// The bytes that it can still take.
    pub free: u64,
    /// The number of objects on it.
    pub objects: u64,
}

/// A drive that is open. See the module.
pub struct Drive {
    disk: Arc<dyn Disk>,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    label: Mutex<DriveLabel>,
    shards: Vec<RwLock<()>>,
    used: Mutex<HashSet<ObjectNo>>,
    clock_hand: Mutex<u64>,
    /// The number of calls under way that may write.
    writing: AtomicU32,
}

/// Counts as a call that may write until it is dropped; see [`Drive::is_written`].
struct WriteInProgress<'a>(&'a AtomicU32);

impl Drop for WriteInProgress<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Drive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drive")
            .field("label", &*self.label.lock())
            .finish_non_exhaustive()
    }
}

impl Drive {
    /// Makes an empty drive on a disk. All former content of the disk is gone.
    ///
    /// # Errors
    /// [`DriveError::Make`], [`DriveError::Store`].
    pub fn create(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
        name: &str,
        label: DriveLabel,
    ) -> Result<Self, DriveError> {
        let options = MkfsOptions {
            label: name.to_owned(),
            ..MkfsOptions::default()
        };
        // The name of a drive is the label of its store, which other programs show, too.
        Store::mkfs(Arc::clone(&disk), Arc::clone(&clock), entropy, &options)?;
        let (store, _) = Store::open(
            Arc::clone(&disk),
            Arc::clone(&clock),
            OpenOptions::default(),
        )?;
        let this = Self::from_store(disk, store, clock, label);
        // The label is what makes the store a drive: it is durable before the drive is used.
        this.update_label(|_| {})?;
        this.sync()?;
        Ok(this)
    }

    /// Opens a drive, as it was left.
    ///
    /// # Errors
    /// [`DriveError`]; nothing has been written.
    pub fn open(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Result<Self, DriveError> {
        let (store, _) = Store::open(
            Arc::clone(&disk),
            Arc::clone(&clock),
            OpenOptions::default(),
        )?;
        let label = Self::decode_label(&store)?;
        Ok(Self::from_store(disk, store, clock, label))
    }

    /// Returns the label of the drive on a disk. Reads only; another process may be using the disk
    /// meanwhile, so that an error need not last.
    ///
    /// # Errors
    /// [`DriveError`].
    pub fn read_label(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Result<DriveLabel, DriveError> {
        let (store, _) = Store::open(
            disk,
            clock,
            OpenOptions {
                // Takes no part in the store's life: nothing is repaired or written.
                read_only: true,
                ..OpenOptions::default()
            },
        )?;
        Self::decode_label(&store)
    }

    fn decode_label(store: &Store) -> Result<DriveLabel, DriveError> {
        match DriveLabel::decode(&store.note(LABEL_OBJECT)?.unwrap_or_default()) {
            Ok(label) => Ok(label),
            Err(LabelError::NotALabel) => Err(DriveError::NotADrive),
            Err(LabelError::Version(version)) => Err(DriveError::Newer(version)),
        }
    }

    fn from_store(
        disk: Arc<dyn Disk>,
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        label: DriveLabel,
    ) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(())).collect();
        Self {
            disk,
            store,
            clock,
            label: Mutex::new(label),
            shards,
            used: Mutex::default(),
            clock_hand: Mutex::default(),
            writing: AtomicU32::new(0),
        }
    }

    /// Returns whether an open store is a drive's, which is not to be mounted.
    pub fn is_drive(store: &Store) -> bool {
        let Ok(Some(note)) = store.note(LABEL_OBJECT) else {
            return false;
        };
        // A label of a newer version is a drive's, too.
        !matches!(DriveLabel::decode(&note), Err(LabelError::NotALabel))
    }

    /// Returns the name for people.
    pub fn name(&self) -> &str {
        &self.store.superblock().label
    }

    /// Returns the label.
    pub fn label(&self) -> DriveLabel {
        *self.label.lock()
    }

    /// Changes the label; durable with the next [`sync`](Self::sync), together with all before.
    ///
    /// # Errors
    /// Returns the error of changing the note.
    pub fn update_label(
        &self,
        change: impl FnOnce(&mut DriveLabel),
    ) -> Result<DriveLabel, StoreError> {
        let _writing = self.begin_write();
        let cost = Cost::note().with_note(label::LABEL_BYTES).freeing();
        let op = self.store.begin(cost)?;
        let mut label = self.label.lock();
        // An old label is written in the newest form: its proof is no longer about its bytes, and
        // `change` sets a new one.
        let mut changed = label.at_newest_version();
        change(&mut changed);
        op.set_note(LABEL_OBJECT, Some(&changed.encode()))?;
        // Only after the store has taken it: on an error both are as before.
        *label = changed;
        Ok(changed)
    }

    /// Makes everything that was put on the drive durable.
    ///
    /// # Errors
    /// Returns the disk's error; the drive takes nothing any more then, until it is opened again.
    pub fn sync(&self) -> Result<(), StoreError> {
        let _writing = self.begin_write();
        self.store.commit()?;
        // Checkpoints that are due.
        self.store.tick().map(|_| ())
    }

    /// Ends the use of the drive.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn close(&self) -> Result<(), StoreError> {
        let _writing = self.begin_write();
        self.store.close()
    }

    /// Returns whether something is being written to the drive: on request, or as a consequence, as
    /// when its log is cleaned.
    pub fn is_written(&self) -> bool {
        self.writing.load(Ordering::Acquire) > 0
    }

    fn begin_write(&self) -> WriteInProgress<'_> {
        let before = self.writing.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before < u32::MAX, "calls are counted once each");
        WriteInProgress(&self.writing)
    }

    /// Returns whether the drive has failed to write, and takes nothing any more.
    pub fn is_failed(&self) -> bool {
        self.store.is_poisoned()
    }

    /// Reads from the disk itself, past all caches of the store: the disk is awake then.
    ///
    /// # Errors
    /// Returns the disk's error.
    pub fn read_uncached(&self) -> std::io::Result<()> {
        self.disk.read_at(Sector::new(0), &mut [0; 4096])
    }

    /// Checks that content put on the drive can be found again: that the disk's file was not
    /// deleted meanwhile, or cut short.
    ///
    /// # Errors
    /// Says what has become of the file.
    pub fn check_present(&self) -> std::io::Result<()> {
        self.disk.check_present()
    }

    /// Returns the total and the free capacity.
    pub fn capacity(&self) -> DriveCapacity {
        let space = self.store.space();
        // Its root is no object of the volume.
        DriveCapacity {
            total: space.total,
            free: space.free,
            objects: space.objects.saturating_sub(1),
        }
    }

    /// Visits the numbers of all objects of which it has a note, ascending, until `visit` breaks
    /// off.
    ///
    /// # Errors
    /// Returns the error of reading the notes.
    pub fn visit_objects(
        &self,
        visit: &mut dyn FnMut(ObjectNo) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.store.each_note(ObjectNo::ROOT, &mut |no, _| visit(no))
    }

    /// Visits the numbers of all objects that have affinity, ascending, until `visit` breaks off.
    ///
    /// # Errors
    /// Returns the error of reading the notes.
    pub fn visit_affine_objects(
        &self,
        visit: &mut dyn FnMut(ObjectNo) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut each = |no, head: &[u8]| {
            if HeldObject::has_affinity(head) {
                visit(no)
            } else {
                ControlFlow::Continue(())
            }
        };
        self.store.each_note(ObjectNo::ROOT, &mut each)
    }

    fn shard_of(&self, no: ObjectNo) -> &RwLock<()> {
        &self.shards[(no.get() % SHARDS) as usize]
    }
}
