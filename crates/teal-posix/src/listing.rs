//! Reading directories.
//!
//! # Guarantees
//! 1. *Stable*: an entry that is there from the first call to the last is seen exactly once,
//!    whatever else comes and goes: a cookie belongs to its name.
//!
//! # How
//! Entries are taken out in pieces and shown without any lock.

use crate::FileSystem;
use std::ops::ControlFlow;
use teal_types::{Attr, FileType, ObjectNo};
use teal_volume::FsError;

/// Entries taken out at a time.
const PIECE: usize = 128;
const COOKIE_DOT: u64 = 1;
const COOKIE_DOT_DOT: u64 = 2;

/// An entry as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Where to go on after this entry.
    pub cookie: u64,
    /// The object.
    pub object: ObjectNo,
    /// Its type.
    pub kind: FileType,
    /// The name; `.` and `..` come first.
    pub name: Box<[u8]>,
}

impl FileSystem {
    /// Shows the entries after `cookie` (0: all) to `visit`, until it breaks: it had no room for
    /// the entry it was shown last.
    ///
    /// # Errors
    /// [`FsError::NotDir`], [`FsError::Stale`].
    pub fn readdir(
        &self,
        dir: ObjectNo,
        cookie: u64,
        visit: &mut dyn FnMut(&DirEntry) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.volume.name_damage(dir, || {
            let attr = self.store().attr(dir)?;
            if !attr.kind.is_dir() {
                return Err(FsError::NotDir);
            }
            self.residency.make_listed(dir)?;
            self.note_access(&attr);
            let mut at = cookie;
            loop {
                let piece = self.read_piece(dir, at)?;
                let Some(last) = piece.last() else {
                    return Ok(());
                };
                at = last.cookie;
                if piece.iter().any(|entry| visit(entry).is_break()) {
                    return Ok(());
                }
            }
        })
    }

    /// As [`readdir`](Self::readdir), with attributes. Every entry with attributes that `visit` had
    /// room for counts as one reference that the caller [releases](Self::release); `.` and `..`
    /// come without.
    ///
    /// # Errors
    /// As [`readdir`](Self::readdir).
    pub fn readdirplus(
        &self,
        dir: ObjectNo,
        cookie: u64,
        visit: &mut dyn FnMut(&DirEntry, Option<&Attr>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let mut failed = None;
        self.readdir(dir, cookie, &mut |entry| {
            if entry.cookie <= COOKIE_DOT_DOT {
                return visit(entry, None);
            }
            self.volume.references().hold(entry.object, 1);
            let shown = match self.getattr(entry.object) {
                Ok(attr) => visit(entry, Some(&attr)),
                // Removed meanwhile.
                Err(FsError::Stale) => {
                    self.release(entry.object, 1);
                    return ControlFlow::Continue(());
                }
                Err(e) => {
                    failed = Some(e);
                    ControlFlow::Break(())
                }
            };
            if shown.is_break() {
                self.release(entry.object, 1);
            }
            shown
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn read_piece(&self, dir: ObjectNo, after: u64) -> Result<Vec<DirEntry>, FsError> {
        let mut piece = Vec::new();
        let dot = |cookie, object, name: &[u8]| DirEntry {
            cookie,
            object,
            kind: FileType::Dir,
            name: name.into(),
        };
        if after < COOKIE_DOT {
            piece.push(dot(COOKIE_DOT, dir, b"."));
        }
        if after < COOKIE_DOT_DOT {
            piece.push(dot(COOKIE_DOT_DOT, self.store().parent(dir)?, b".."));
        }
        let from = after.max(COOKIE_DOT_DOT).saturating_add(1);
        self.store()
            .each_entry(dir, from, &mut |cookie, object, kind, name| {
                piece.push(DirEntry {
                    cookie,
                    object,
                    kind,
                    name: name.as_bytes().into(),
                });
                if piece.len() < PIECE {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
        Ok(piece)
    }
}
