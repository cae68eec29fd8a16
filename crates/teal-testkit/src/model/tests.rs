//! What the comparison with a real file system does not reach, and seeded bugs in a tree.

use super::*;
use crate::ops::{FsOp, OpTarget as _, OpWeights, generate_op};
use crate::rng::Rng;
use teal_types::{RenameMode, XattrMode};

#[test]
fn an_open_object_outlives_its_names() {
    let mut m = ReferenceModel::new();
    let ino = m.create(ROOT, b"f", 0o644).unwrap();
    m.open(ino).unwrap();
    m.unlink(ROOT, b"f").unwrap();
    m.write(ino, 4095, b"xy").unwrap();
    assert_eq!(
        (m.read(ino, 4094, 9).unwrap(), m.stat(ino).unwrap().nlink),
        (b"\0xy".to_vec(), 0)
    );
    assert_eq!(m.link(ino, ROOT, b"again"), Err(Errno::NOENT));
    m.forget(ino);
    assert_eq!((m.stat(ino), m.object_count()), (Err(Errno::STALE), 1));
}

#[test]
fn a_directory_counts_its_subdirectories() {
    let mut m = ReferenceModel::new();
    let (a, b) = (
        m.mkdir(ROOT, b"a", 0o755).unwrap(),
        m.mkdir(ROOT, b"b", 0o755).unwrap(),
    );
    m.mkdir(a, b"c", 0o755).unwrap();
    let nlinks = |m: &ReferenceModel| [ROOT, a, b].map(|ino| m.stat(ino).unwrap().nlink);
    assert_eq!(nlinks(&m), [4, 3, 2]);
    m.rename((a, b"c"), (b, b"c"), RenameMode::Replace).unwrap();
    assert_eq!(nlinks(&m), [4, 2, 3]);
    assert_eq!(
        m.rename((ROOT, b"b"), (b, b"x"), RenameMode::Replace),
        Err(Errno::INVAL)
    );
    assert_eq!(m.link(a, ROOT, b"l"), Err(Errno::PERM));
}

#[test]
fn nothing_is_made_in_a_removed_directory() {
    let mut m = ReferenceModel::new();
    let dir = m.mkdir(ROOT, b"d", 0o755).unwrap();
    m.create(ROOT, b"f", 0o644).unwrap();
    m.open(dir).unwrap();
    m.rmdir(ROOT, b"d").unwrap();
    assert_eq!(m.create(dir, b"x", 0o644), Err(Errno::NOENT));
    assert_eq!(
        m.rename((ROOT, b"f"), (dir, b"x"), RenameMode::Replace),
        Err(Errno::NOENT)
    );
    assert_eq!(m.stat(dir).unwrap().nlink, 0);
}

#[test]
fn extended_attributes_can_be_read_back() {
    let mut m = ReferenceModel::new();
    m.setxattr(ROOT, b"user.a", b"1", XattrMode::Create)
        .unwrap();
    assert_eq!(m.getxattr(ROOT, b"user.a"), Ok(&b"1"[..]));
    assert_eq!(m.listxattr(ROOT).unwrap().collect::<Vec<_>>(), [b"user.a"]);
    assert_eq!(
        m.setxattr(ROOT, b"user.a", b"2", XattrMode::Create),
        Err(Errno::EXIST)
    );
    assert_eq!(m.getxattr(ROOT, b"user.b"), Err(Errno::NODATA));
    assert_eq!(
        m.setxattr(ROOT, &[b'x'; 256], b"", XattrMode::Any),
        Err(Errno::RANGE)
    );
}

#[test]
fn a_clone_is_a_state_of_its_own() {
    let mut m = ReferenceModel::new();
    let ino = m.create(ROOT, b"f", 0o644).unwrap();
    m.write(ino, 0, b"old").unwrap();
    let before = m.clone();
    m.write(ino, 0, b"new").unwrap();
    assert_eq!(before.read(ino, 0, 9).unwrap(), b"old");
    assert_eq!(before.to_tree().diff(&m.to_tree()).len(), 1);
}

#[test]
fn every_lost_operation_shows_in_the_tree() {
    // The seeded bug: an implementation that answers and does nothing, once.
    let mut rng = Rng::new(5);
    let mut model = ReferenceModel::new();
    let mut seen = 0;
    for _ in 0..1_000 {
        let op = generate_op(&mut rng, &model, &OpWeights::default());
        let before = model.clone();
        let is_done = model.apply(&op).is_ok();
        let is_change = matches!(
            op,
            FsOp::Create { .. }
                | FsOp::Mkdir { .. }
                | FsOp::Write { .. }
                | FsOp::Unlink { .. }
                | FsOp::Link { .. }
        );
        if is_done && is_change {
            assert_ne!(before.to_tree().diff(&model.to_tree()), [""; 0], "{op:?}");
            seen += 1;
        }
    }
    assert!(seen > 200, "{seen}");
}
