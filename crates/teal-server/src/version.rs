//! Versions put together from their rows, and paths.

use crate::limits::{DEPTH_MAX, ITEM_BYTES};
use crate::refusal::Outcome;
use teal_meta::{ObjectRow, ReadTransaction};
use teal_types::{CommitSeq, HardLink, ObjectNo, ObjectVersion};

fn assemble_version(
    object: ObjectNo,
    row: ObjectRow,
    links: Vec<HardLink>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
) -> ObjectVersion {
    let ObjectRow {
        kind,
        attributes,
        attr_seq,
        size,
        data_seq,
        target,
        link_seq,
        xattr_seq,
        ..
    } = row;
    ObjectVersion {
        object,
        kind,
        attributes,
        attr_seq,
        size,
        data_seq,
        target,
        links,
        link_seq,
        xattrs,
        xattr_seq,
    }
}

/// Returns the live version of an object.
pub(crate) fn live_version(
    txn: &dyn ReadTransaction,
    object: ObjectNo,
) -> Outcome<Option<ObjectVersion>> {
    let Some(row) = txn.object(object)? else {
        return Ok(None);
    };
    let links = txn
        .links_of(object)?
        .into_iter()
        .map(|(link, _)| link)
        .collect();
    // Nearly all objects have no extended attributes, and their rows say so without a query.
    let has_xattrs = row.xattr_seq > CommitSeq::new(0);
    let xattrs = if has_xattrs {
        txn.xattrs(object)?
    } else {
        Vec::new()
    };
    let mut values = Vec::new();
    for (name, row) in xattrs {
        values.push((name, row.value));
    }
    Ok(Some(assemble_version(object, row, links, values)))
}

/// Returns the version of an object after a commit, made from its row at that time.
pub(crate) fn past_version(
    txn: &dyn ReadTransaction,
    object: ObjectNo,
    row: ObjectRow,
    at: CommitSeq,
) -> Outcome<ObjectVersion> {
    let mut links = Vec::new();
    // A name counts if it led to the object at that commit, wherever it leads now.
    for link in txn.names_ever(object, at)? {
        if let Some((_, led_to)) = txn.entry_at(&link, at)?
            && led_to == Some(object)
        {
            links.push(link);
        }
    }
    let mut xattrs = Vec::new();
    for (name, _, value) in txn.xattrs_at(object, at)? {
        // Without a value, the attribute had been removed by then.
        if let Some(value) = value {
            xattrs.push((name, value));
        }
    }
    Ok(assemble_version(object, row, links, xattrs))
}

/// Returns the directories in which these versions lie.
pub(crate) fn parent_dirs<'a>(
    versions: impl IntoIterator<Item = &'a ObjectVersion>,
) -> Vec<ObjectNo> {
    let mut dirs = Vec::new();
    for version in versions {
        for link in &version.links {
            dirs.push(link.dir);
        }
    }
    dirs.sort_unstable();
    dirs.dedup();
    dirs
}

/// Returns about how many bytes a version takes in a message.
pub(crate) fn message_weight(version: &ObjectVersion) -> usize {
    let mut weight = 4 * ITEM_BYTES + version.target.len();
    for link in &version.links {
        weight += link.name.as_bytes().len() + 10;
    }
    for (name, value) in &version.xattrs {
        weight += name.len() + value.len() + 4;
    }
    weight
}

/// Returns where an object lies, by its first names; empty if it has none.
pub(crate) fn path_of(txn: &dyn ReadTransaction, object: ObjectNo) -> Outcome<String> {
    let (mut names, mut at) = (Vec::new(), object);
    // Bounded, because a damaged tree may have a cycle.
    while at != ObjectNo::ROOT && names.len() < DEPTH_MAX {
        let Some((link, _)) = txn.links_of(at)?.into_iter().next() else {
            return Ok(String::new());
        };
        names.push(link.name.to_string());
        debug_assert!(names.len() <= DEPTH_MAX, "the walk is bounded");
        at = link.dir;
    }
    names.reverse();
    Ok(format!("/{}", names.join("/")))
}
