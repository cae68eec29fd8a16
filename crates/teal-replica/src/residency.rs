//! The replica as [`Residency`]: operations ask which content is here, and have more of it brought.

use super::{ObjectNote, Replica};
use teal_log::StoreError;
use teal_types::ranges::CONTENT_END;
use teal_types::{Attr, ByteRanges, FileType, ObjectNo};
use teal_volume::{FsError, NearbyContent, RankedReadGuard, RankedWriteGuard, Residency};

/// Asserts, in debug builds, that what a note says of the residency of an object fits the object.
pub(super) fn check(note: &ObjectNote, attr: &Attr) {
    if cfg!(debug_assertions)
        && let Err(broken) = invariants(note, attr)
    {
        panic!("the residency of {}: {broken}: {note:?}", attr.object);
    }
}

/// Returns the first invariant that does not hold.
fn invariants(note: &ObjectNote, attr: &Attr) -> Result<(), &'static str> {
    if note.unlisted && !attr.kind.is_dir() {
        return Err("only a directory has entries that are not here");
    }
    if note.absent.is_empty() {
        return Ok(());
    }
    if attr.kind != FileType::File {
        return Err("only a file has content that is not here");
    }
    if note.absent.overlaps(attr.size, CONTENT_END) {
        return Err("nothing is absent behind the end of a file");
    }
    if note.dirty.created {
        return Err("all of an object that the server has never heard of is here");
    }
    Ok(())
}

impl Residency for Replica {
    fn is_listed(&self, dir: ObjectNo) -> Result<bool, StoreError> {
        Self::is_listed(self, dir)
    }

    fn make_listed(&self, dir: ObjectNo) -> Result<(), FsError> {
        self.ensure_listed(dir)
    }

    fn absent_ranges(&self, no: ObjectNo) -> Result<ByteRanges, StoreError> {
        Ok(self.note_of(no)?.absent)
    }

    fn make_present(&self, no: ObjectNo, from: u64, to: u64) -> Result<(), FsError> {
        self.ensure_present(no, from, to)
    }

    fn read_nearby(
        &self,
        attr: &Attr,
        from: u64,
        to: u64,
    ) -> Result<Option<NearbyContent<'_>>, FsError> {
        let Some((parts, fresh)) = self.read_from_drive(attr, (from, to))? else {
            return Ok(None);
        };
        let no = attr.object;
        let keep = Box::new(move || {
            // The reader has its answer; the copy only saves time.
            if let Err(e) = self.store_content(fresh) {
                log::debug!("what was read of {no} is not kept: {e}");
            }
        });
        Ok(Some(NearbyContent { parts, keep }))
    }

    fn lock_for_reading(&self, no: ObjectNo) -> Option<RankedReadGuard<'_, ()>> {
        Some(self.residency_lock(no).read())
    }

    fn lock_for_changing(&self, no: ObjectNo) -> Option<RankedWriteGuard<'_, ()>> {
        Some(self.residency_lock(no).write())
    }

    fn note_read(&self, no: ObjectNo, end: u64) {
        self.note_read(no, end);
    }

    fn make_space(&self, bytes: u64) {
        self.room_for(bytes);
    }

    fn wait_for_queue(&self, bytes: u64) -> Result<(), FsError> {
        self.wait_until_queue_has_room(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::{CommitSeq, Timestamp};

    fn attr(kind: FileType, size: u64) -> Attr {
        let time = Timestamp::new(1, 0);
        Attr {
            object: ObjectNo::new(17),
            kind,
            perm: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            sectors: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        }
    }

    fn absent(from: u64, to: u64) -> ObjectNote {
        let mut note = ObjectNote {
            data_seq: CommitSeq::new(1),
            ..ObjectNote::default()
        };
        note.absent.add(from, to);
        note
    }

    #[test]
    fn what_is_absent_lies_within_a_file_that_the_server_has() {
        let file = attr(FileType::File, 8192);
        assert_eq!(invariants(&absent(0, 8192), &file), Ok(()));
        assert!(invariants(&absent(0, 8193), &file).is_err());
        assert!(invariants(&absent(0, 1), &attr(FileType::Symlink, 8192)).is_err());
        let mut note = absent(0, 4096);
        note.dirty.created = true;
        assert!(invariants(&note, &file).is_err());
    }

    #[test]
    fn only_a_directory_is_unlisted() {
        let note = ObjectNote {
            unlisted: true,
            ..ObjectNote::default()
        };
        assert_eq!(invariants(&note, &attr(FileType::Dir, 0)), Ok(()));
        assert!(invariants(&note, &attr(FileType::File, 0)).is_err());
    }
}
