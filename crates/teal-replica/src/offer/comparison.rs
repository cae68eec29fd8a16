//! Compares an object here with its states at a restored server, and finds the components that the
//! server has lost.

use crate::cut::attributes_of;
use crate::note::{DirtyContent, ObjectNote, links_of};
use teal_log::LockedObjects;
use teal_types::ranges::ByteRanges;
use teal_types::{
    CommitSeq, FileType, HardLink, ObjectNo, ObjectVersion, ReplicatedAttributes, Timestamp,
};

/// An object that lives at the server: as it is here, as it is there, and as it was there at the
/// last common commit, if that is another state.
pub(super) struct StateComparison<'a> {
    pub(super) locked: &'a LockedObjects<'a>,
    pub(super) no: ObjectNo,
    pub(super) now: &'a ObjectVersion,
    pub(super) before: Option<&'a ObjectVersion>,
    pub(super) common: CommitSeq,
}

impl StateComparison<'_> {
    /// Returns whether this replica's state of a component is neither the server's nor what it was
    /// at the last common commit. `of`: the state in a version; `at`: the commit that changed it
    /// there.
    fn is_lost<T: PartialEq>(
        &self,
        here: &T,
        of: impl Fn(&ObjectVersion) -> T,
        at: CommitSeq,
    ) -> bool {
        // The state here is neither the server's nor that of the common commit.
        *here != of(self.now) && (at <= self.common || self.before.map(of).as_ref() != Some(here))
    }

    /// Makes dirty what the server has lost of it; says whether it is anything.
    pub(super) fn offer_lost(&self, note: &mut ObjectNote) -> bool {
        // Each component is compared, whatever has become of the others.
        let has_xattrs = self.offer_xattrs(note);
        let has_attributes = self.offer_attributes(note);
        let has_names = self.offer_names(note);
        let has_content = self.offer_content(note);
        has_xattrs || has_attributes || has_names || has_content
    }

    fn offer_attributes(&self, note: &mut ObjectNote) -> bool {
        let attr = self.locked.attr(self.no);
        let kind = attr.kind;
        let is_lost = self.is_lost(
            &without_derived_times(attributes_of(&attr), kind),
            |of| without_derived_times(of.attributes, kind),
            self.now.attr_seq,
        );
        if is_lost {
            note.dirty.attributes.get_or_insert(self.common);
        }
        is_lost
    }

    fn offer_names(&self, note: &mut ObjectNote) -> bool {
        let here = sorted_links(&links_of(self.locked, self.no));
        let is_dirty = note.dirty.links.is_some();
        let is_lost = self.is_lost(&here, |of| sorted_links(&of.links), self.now.link_seq);
        if is_dirty || is_lost {
            note.dirty.links = Some((self.common, self.now.links.clone()));
        }
        is_lost && !is_dirty
    }

    fn offer_content(&self, note: &mut ObjectNote) -> bool {
        let attr = self.locked.attr(self.no);
        let here = content_mark(self.locked, self.no);
        // Absent content of a lost commit cannot be offered.
        let can_be_offered = attr.kind == FileType::File && note.data_seq <= self.common;
        if !can_be_offered || !self.is_lost(&here, content_mark_of, self.now.data_seq) {
            return false;
        }
        let before = note.dirty.data.as_ref();
        let least_size = before.map_or(u64::MAX, |dirty| dirty.least_size);
        // Changes from before the common commit keep their base: they have not seen what others
        // did since.
        let base = before.map_or(self.common, |dirty| dirty.base.min(self.common));
        let mut ranges = ByteRanges::default();
        ranges.add(0, attr.size.max(1));
        // The absent part is as it was at the last common commit.
        note.dirty.data = Some(DirtyContent {
            base,
            least_size,
            ranges: ranges.difference(&note.absent),
            tail: None,
        });
        true
    }

    fn offer_xattrs(&self, note: &mut ObjectNote) -> bool {
        let of = |version: &ObjectVersion, name: &[u8]| {
            version
                .xattrs
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.clone())
        };
        let mut names = self.locked.xattr_names(self.no);
        names.extend(self.now.xattrs.iter().map(|(name, _)| name.clone()));
        names.sort();
        names.dedup();
        names.retain(|name| {
            let here = self.locked.xattr(self.no, name).map(<[u8]>::to_vec);
            // A dirty attribute is sent in any case.
            let is_pending = note.dirty.xattrs.iter().any(|(known, _)| known == name);
            !is_pending && self.is_lost(&here, |version| of(version, name), self.now.xattr_seq)
        });
        let is_any = !names.is_empty();
        note.dirty
            .xattrs
            .extend(names.into_iter().map(|name| (name, self.common)));
        is_any
    }
}

/// Returns attributes without the times that follow from others: a directory's times are those of
/// its entries.
fn without_derived_times(of: ReplicatedAttributes, kind: FileType) -> ReplicatedAttributes {
    if !kind.is_dir() {
        return of;
    }
    ReplicatedAttributes {
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        ..of
    }
}

/// Returns names in an order that is the same for the same names; it has no other meaning.
fn sorted_links(links: &[HardLink]) -> Vec<HardLink> {
    let mut links = links.to_vec();
    links.sort();
    links
}

/// Returns whether the server's object of this number is the one here. No program can set the time
/// of creation, so it tells them apart.
pub(super) fn is_same_object(
    locked: &LockedObjects<'_>,
    no: ObjectNo,
    there: &ObjectVersion,
) -> bool {
    let here = locked.attr(no);
    // Two objects of the same number differ in the time of their birth.
    no == ObjectNo::ROOT || (here.kind, here.btime) == (there.kind, there.attributes.btime)
}

/// Size, modification time and change time: each change of content changes one of them, and no
/// program can set the last.
pub(super) type ContentMark = (u64, Timestamp, Timestamp);

pub(super) fn content_mark(locked: &LockedObjects<'_>, no: ObjectNo) -> ContentMark {
    let attr = locked.attr(no);
    (attr.size, attr.mtime, attr.ctime)
}

pub(super) fn content_mark_of(version: &ObjectVersion) -> ContentMark {
    (
        version.size,
        version.attributes.mtime,
        version.attributes.ctime,
    )
}
