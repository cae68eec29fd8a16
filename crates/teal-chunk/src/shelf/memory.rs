//! A shelf in memory: for tests and simulations.

use super::{PACKS, Shelf, ShelfError, ShelfObject};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Objects held in memory; every put is durable at once. Clones are the same shelf.
#[derive(Debug, Clone, Default)]
pub struct MemoryShelf(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl MemoryShelf {
    /// Makes an empty shelf.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a copy of everything on it.
    pub fn snapshot(&self) -> BTreeMap<String, Vec<u8>> {
        self.0.lock().clone()
    }

    /// Makes a shelf with these objects.
    pub fn from_objects(objects: BTreeMap<String, Vec<u8>>) -> Self {
        Self(Arc::new(Mutex::new(objects)))
    }

    /// Changes an object as decay or a careless hand would.
    pub fn damage_object(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(object) = self.0.lock().get_mut(name) {
            change(object);
        }
    }
}

impl Shelf for MemoryShelf {
    fn place(&self) -> String {
        "memory".into()
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ShelfError> {
        self.0.lock().insert(name.to_owned(), bytes);
        Ok(())
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ShelfError> {
        let objects = self.0.lock();
        let object = objects.get(name).ok_or_else(|| ShelfError::NotFound {
            name: name.to_owned(),
        })?;
        // A range beyond the end is cut, as the contract says.
        let clamp = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(object.len());
        Ok(object[clamp(range.start)..clamp(range.end).max(clamp(range.start))].to_vec())
    }

    fn list_objects(&self) -> Result<Vec<ShelfObject>, ShelfError> {
        let mut listed = Vec::new();
        for (name, object) in self.0.lock().iter() {
            if name.starts_with(PACKS) {
                listed.push(ShelfObject {
                    name: name.clone(),
                    bytes: object.len() as u64,
                });
            }
        }
        Ok(listed)
    }

    fn remove(&self, name: &str) -> Result<(), ShelfError> {
        self.0.lock().remove(name);
        Ok(())
    }
}
