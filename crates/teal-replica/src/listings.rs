//! Which directory's entries are just coming in, and whether directories are listed again.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_types::ObjectNo;

/// See the module. The lock is a leaf.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    coming_in: Mutex<Option<ObjectNo>>,
    has_again: AtomicBool,
}

/// The entries of a directory come in until this is dropped.
#[derive(Debug)]
pub(crate) struct ComingIn<'l>(&'l Listings);

impl Drop for ComingIn<'_> {
    fn drop(&mut self) {
        *self.0.coming_in.lock() = None;
    }
}

impl Listings {
    /// Notes that the entries of a directory come in, until what is returned is dropped. One does
    /// at a time.
    pub(crate) fn begin(&self, dir: ObjectNo) -> ComingIn<'_> {
        let before = self.coming_in.lock().replace(dir);
        debug_assert_eq!(before, None, "one directory's entries come in at a time");
        ComingIn(self)
    }

    /// Returns whether the entries of a directory are just coming in.
    pub(crate) fn is_coming_in(&self, dir: ObjectNo) -> bool {
        *self.coming_in.lock() == Some(dir)
    }

    /// Notes that directories whose entries were here are listed again: names may have been looked
    /// up in them.
    pub(crate) fn set_again(&self) {
        self.has_again.store(true, Ordering::Relaxed);
    }

    /// Returns whether directories whose entries were here are listed again.
    pub(crate) fn has_again(&self) -> bool {
        self.has_again.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_until_the_end_whether_it_is_good_or_not() {
        let (listings, dir) = (Listings::default(), ObjectNo::new(70));
        let coming = listings.begin(dir);
        assert!(listings.is_coming_in(dir) && !listings.is_coming_in(ObjectNo::ROOT));
        drop(coming);
        assert!(!listings.is_coming_in(dir) && !listings.has_again());
    }
}
