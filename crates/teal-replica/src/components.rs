//! Installing single components of an object that is locked: attributes, extended attributes,
//! content.

use super::ObjectNote;
use super::acknowledge::InstallableTimes;
use super::cut::attributes_of;
use teal_log::{AttributeChanges, LockedObjects, StoreError};
use teal_types::ObjectVersion;
use teal_types::ranges::CONTENT_END;
use teal_volume::Invalidation;

/// Installs attributes. While content is dirty, the times stay; otherwise the change time never
/// goes back.
pub(super) fn install_attributes(
    locked: &mut LockedObjects<'_>,
    version: &ObjectVersion,
    times: InstallableTimes,
    invalidations: &mut Vec<Invalidation>,
) {
    let no = version.object;
    let here = attributes_of(&locked.attr(no));
    let mut of = version.attributes;
    match times {
        InstallableTimes::None => {
            of.mtime = here.mtime;
            of.ctime = here.ctime;
        }
        // The change time never goes back where changes of this replica may be newer.
        InstallableTimes::NotOlder if of.ctime < here.ctime => {
            of.ctime = here.ctime;
            // Neither does the modification time of a directory, which its entries set. One that is
            // later than the last change was set by a program, and gives way to the server's.
            if version.kind.is_dir() && here.mtime <= here.ctime {
                of.mtime = of.mtime.max(here.mtime);
            }
        }
        InstallableTimes::NotOlder | InstallableTimes::Any => {}
    }
    if here != of {
        let perm = Some(of.perm);
        let uid = Some(of.uid);
        let gid = Some(of.gid);
        locked.set_attr(
            no,
            AttributeChanges {
                perm,
                uid,
                gid,
                atime: None,
                mtime: Some(of.mtime),
                ctime: Some(of.ctime),
            },
        );
        invalidations.push(Invalidation::Attributes(no));
    }
}

/// Tells whether an object holds all extended attributes of the server's state beside its dirty
/// ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum XattrFit {
    Fully,
    /// Together they are more than an object can have: the server decides which, when it has those
    /// from here.
    Partly,
}

pub(super) fn install_xattrs(
    locked: &mut LockedObjects<'_>,
    version: &ObjectVersion,
    note: &ObjectNote,
    invalidations: &mut Vec<Invalidation>,
) -> Result<XattrFit, StoreError> {
    let no = version.object;
    // Extended attributes that are dirty or in flight are this replica's; the server's values of
    // them wait.
    let in_batch = note
        .in_flight
        .iter()
        .flat_map(|in_flight| &in_flight.components.xattrs);
    let ours: Vec<&[u8]> = note
        .dirty
        .xattrs
        .iter()
        .chain(in_batch)
        .map(|(name, _)| &name[..])
        .collect();
    let mut changed = false;
    for name in locked.xattr_names(no) {
        // All that goes or is another goes first, so that what comes has the room.
        let same = |(known, value): &(Vec<u8>, Vec<u8>)| {
            *known == name && locked.xattr(no, &name) == Some(&value[..])
        };
        if !ours.contains(&&name[..]) && !version.xattrs.iter().any(same) {
            changed |= locked.set_xattr(no, &name, None)?;
        }
    }
    let mut fits = XattrFit::Fully;
    for (name, value) in &version.xattrs {
        if ours.contains(&&name[..]) || locked.xattr(no, name).is_some() {
            continue;
        }
        match locked.set_xattr(no, name, Some(value)) {
            // This replica's own attributes take up the room. The rest follows when they have been
            // sent.
            Err(StoreError::TooBig(_)) if !ours.is_empty() => fits = XattrFit::Partly,
            done => changed |= done.map(|_| true)?,
        }
    }
    if changed {
        // Access control lists are among them, and the kernel remembers those with the attributes.
        invalidations.push(Invalidation::Attributes(no));
    }
    Ok(fits)
}

/// Installs content. The change time does not go back where dirty names or attributes forbid it.
pub(super) fn install_content_of(
    locked: &mut LockedObjects<'_>,
    version: &ObjectVersion,
    (ranges, times): (Option<&[(u64, u64)]>, InstallableTimes),
    note: &mut ObjectNote,
) -> Result<InstalledContent, StoreError> {
    let no = version.object;
    let ctime = locked.attr(no).ctime;
    let content = install_content(locked, version, ranges, note)?;
    // The installed content brought the server's change time, which may be older than the one here.
    if times != InstallableTimes::Any && locked.attr(no).ctime < ctime {
        locked.set_attr(
            no,
            AttributeChanges {
                ctime: Some(ctime),
                ..AttributeChanges::default()
            },
        );
    }
    Ok(content)
}

/// The fate of a file's content when a state is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstalledContent {
    Kept,
    Replaced,
}

pub(super) fn install_content(
    locked: &mut LockedObjects<'_>,
    version: &ObjectVersion,
    ranges: Option<&[(u64, u64)]>,
    note: &mut ObjectNote,
) -> Result<InstalledContent, StoreError> {
    let no = version.object;
    let size = locked.attr(no).size;
    let all = [(0, CONTENT_END)];
    // A file of which a part is absent already, of another commit than this one: the ranges tell
    // from where on.
    let changed = match ranges {
        Some(ranges) => ranges,
        None if !note.absent.is_empty()
            && note.data_seq == version.data_seq
            && size == version.size =>
        {
            return Ok(InstalledContent::Kept);
        }
        None => &all,
    };
    // The server's commit changed other components only.
    if changed.is_empty() && size == version.size {
        return Ok(InstalledContent::Kept);
    }
    // Ranges that changed at the server are absent from here on, until they are fetched.
    for &(offset, len) in changed {
        note.absent.add(
            offset,
            offset.saturating_add(len).min(version.size.max(offset)),
        );
    }
    // Bytes by which the file grew are new, whatever the ranges say.
    note.absent.add(size, version.size);
    note.absent.remove(version.size, CONTENT_END);
    note.data_seq = version.data_seq;
    for (from, to) in note.absent.iter() {
        // Blocks that lie in it altogether are given back; what is beside them is covered by the
        // note.
        locked.punch(no, from, to.min(size.max(from)))?;
    }
    // The size is set after the ranges were punched, so that no old byte can come back into the
    // file.
    if size != version.size {
        locked.truncate(no, version.size)?;
    }
    let of = &version.attributes;
    locked.set_attr(
        no,
        AttributeChanges {
            mtime: Some(of.mtime),
            ctime: Some(of.ctime),
            ..AttributeChanges::default()
        },
    );
    Ok(InstalledContent::Replaced)
}
