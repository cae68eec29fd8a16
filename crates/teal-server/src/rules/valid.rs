//! Operations that make no sense, whatever the volume holds.

use teal_types::limits::{CHUNK_MAX, FILE_MAX, TARGET_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX};
use teal_types::{
    ContentChange, HardLink, ObjectNo, Op, PieceSource, REPLICATED_LIMIT, ReplicatedAttributes,
    Timestamp,
};

/// Returns what is wrong with an operation, in words.
pub(crate) fn find_fault(op: &Op) -> Option<String> {
    let object = op.object();
    let why = object_fault(object).or_else(|| match op {
        Op::Create {
            attributes, target, ..
        } => {
            let is_reserved = (object < ObjectNo::FIRST_FREE).then_some("this number is reserved");
            is_reserved
                .or_else(|| attributes_fault(attributes))
                .or((target.len() > TARGET_MAX)
                    .then_some("the target of a symbolic link is too long"))
        }
        Op::Remove { link, time, .. } | Op::Place { link, time, .. } => {
            link_fault(object, link).or_else(|| time_fault(*time))
        }
        Op::Move { from, to, time, .. } => link_fault(object, from)
            .or_else(|| link_fault(object, to))
            .or_else(|| time_fault(*time)),
        Op::SetAttributes { attributes, .. } => attributes_fault(attributes),
        Op::SetXattr { name, value, .. } => xattr_fault(name, value.as_deref()),
        Op::SetContent { change, .. } => content_fault(change),
        Op::Append { change, .. } => content_fault(change).or_else(|| tail_fault(change)),
    })?;
    Some(format!(
        "an operation on object {object} makes no sense: {why}"
    ))
}

fn object_fault(object: ObjectNo) -> Option<&'static str> {
    (object.get() == 0 || object.get() >= REPLICATED_LIMIT).then_some("no object has this number")
}

fn link_fault(object: ObjectNo, link: &HardLink) -> Option<&'static str> {
    if object == ObjectNo::ROOT {
        return Some("the root has no name");
    }
    object_fault(link.dir)
}

fn attributes_fault(attributes: &ReplicatedAttributes) -> Option<&'static str> {
    (!attributes.are_valid())
        .then_some("permissions have twelve bits, and times less than a second of nanoseconds")
}

fn time_fault(time: Timestamp) -> Option<&'static str> {
    (!time.is_valid()).then_some("nanoseconds of a time are less than a second")
}

fn xattr_fault(name: &[u8], value: Option<&[u8]>) -> Option<&'static str> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX || name.contains(&0) {
        return Some("this is no name of an extended attribute");
    }
    (value.is_some_and(|value| value.len() > XATTR_VALUE_MAX)).then_some("the value is too long")
}

fn content_fault(change: &ContentChange) -> Option<&'static str> {
    if let Some(fault) = time_fault(change.mtime) {
        return Some(fault);
    }
    if change.cut > change.size || change.size > FILE_MAX {
        return Some("the size is too large, or less than what it was cut to");
    }
    let mut end = 0;
    for piece in &change.pieces {
        let is_ordered = piece.offset >= end && piece.len > 0;
        match piece.offset.checked_add(piece.len) {
            Some(next) if is_ordered && next <= change.size => end = next,
            _ => return Some("its pieces overlap, are empty, or go beyond its size"),
        }
        let is_inside =
            |offset: u32| u64::from(offset).saturating_add(piece.len) <= CHUNK_MAX as u64;
        if matches!(piece.source, PieceSource::Chunk { offset, .. } if !is_inside(offset)) {
            return Some("a piece goes beyond the longest chunk");
        }
    }
    None
}

fn tail_fault(change: &ContentChange) -> Option<&'static str> {
    let is_before = change
        .pieces
        .first()
        .is_some_and(|piece| piece.offset < change.cut);
    is_before.then_some("what is appended begins before the end")
}

#[cfg(test)]
mod tests;
