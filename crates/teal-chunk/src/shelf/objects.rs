//! A shelf over the crate `object_store`. Its async stays in here: every call waits, on the runtime
//! handed in.

use super::{PACKS, ShelfError, ShelfObject};
use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutPayload};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use tokio::runtime::Handle;

/// An object store, driven synchronously. Not to be called from inside an async task: that would
/// stop its thread.
#[derive(Debug)]
pub(super) struct BlockingObjectStore {
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
    place: String,
}

impl BlockingObjectStore {
    pub(super) fn new(store: Arc<dyn ObjectStore>, runtime: Handle, place: String) -> Self {
        Self {
            store,
            runtime,
            place,
        }
    }

    pub(super) fn place(&self) -> String {
        self.place.clone()
    }

    /// Waits for a call, and sorts out its error.
    fn block_on<T>(
        &self,
        name: &str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ShelfError> {
        self.runtime.block_on(call).map_err(|error| {
            // People need the place as well as the object's name.
            let name = if name.is_empty() {
                self.place.clone()
            } else {
                format!("{}/{name}", self.place)
            };
            match error {
                Error::NotFound { .. } => ShelfError::NotFound { name },
                error => ShelfError::from_cause(name, Arc::new(error)),
            }
        })
    }

    pub(super) fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ShelfError> {
        self.block_on(
            name,
            self.store.put(&Path::from(name), PutPayload::from(bytes)),
        )
        .map(drop)
    }

    pub(super) fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ShelfError> {
        let path = Path::from(name);
        let read = self.block_on(name, self.store.get_range(&path, range.clone()));
        match read {
            Ok(bytes) => Ok(bytes.into()),
            Err(error) => match self.block_on(name, self.store.head(&path)) {
                // The object has become shorter than it was: that is damage, and the shelf is not
                // out of reach.
                Ok(meta) if meta.size <= range.start || range.is_empty() => Ok(Vec::new()),
                Err(gone @ ShelfError::NotFound { .. }) => Err(gone),
                _ => Err(error),
            },
        }
    }

    pub(super) fn list_objects(&self) -> Result<Vec<ShelfObject>, ShelfError> {
        let items = self
            .store
            .list(Some(&Path::from(PACKS)))
            .map_ok(|meta| ShelfObject {
                name: meta.location.to_string(),
                bytes: meta.size,
            });
        let mut items: Vec<ShelfObject> = self.block_on("", items.try_collect())?;
        // Object stores list in orders of their own.
        items.sort();
        Ok(items)
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), ShelfError> {
        match self.block_on(name, self.store.delete(&Path::from(name))) {
            // As the contract says: an object that is not there is removed.
            Err(ShelfError::NotFound { .. }) => Ok(()),
            done => done,
        }
    }
}
