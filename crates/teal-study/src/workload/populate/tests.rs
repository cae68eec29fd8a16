//! Filesets on a real directory: made, kept, refused.

use super::*;
use crate::wml::parse_script;
use crate::workload::plan::{WorkloadOptions, plan_script};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

fn planned(dir: &Path, attributes: &str) -> WorkloadPlan {
    let text = format!(
        "define fileset name=ff,path=$dir,entries=200,size=5000,dirwidth=20,{attributes}\ncreate \
         files\nquit"
    );
    plan_script(
        &parse_script("t.wml", &text, &mut |_| Err("no".into())).unwrap(),
        WorkloadOptions::new(dir),
    )
    .unwrap()
}

fn made(dir: &Path, attributes: &str) -> FilesetState {
    populate_filesets(&planned(dir, attributes), &|_| ())
        .unwrap_or_else(|error| panic!("{error}"))
        .remove(0)
}

/// All regular files below.
fn found(dir: &Path) -> Vec<PathBuf> {
    let (mut files, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path())
            } else {
                files.push(entry.path())
            }
        }
    }
    files.sort();
    files
}

#[test]
fn all_files_are_made_with_their_sizes_and_real_content() {
    let dir = tempfile::tempdir().unwrap();
    for attributes in ["prealloc", "prealloc,paralloc"] {
        let files = made(dir.path(), attributes);
        let found = found(&dir.path().join("ff"));
        assert_eq!(
            (found.len(), files.existing_count(EntryKind::File)),
            (200, 200)
        );
        let contents: Vec<Vec<u8>> = found
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect();
        assert!(contents.iter().all(|content| content.len() == 5000));
        assert_ne!(
            contents[0][..4096],
            contents[1][..4096],
            "no two blocks are the same"
        );
        assert!(
            found[0].starts_with(dir.path().join("ff/00000001")),
            "{:?}",
            found[0]
        );
    }
}

#[test]
fn a_part_of_the_files_is_made_and_the_same_part_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let there = made(dir.path(), "prealloc=80").existing_count(EntryKind::File);
    let first = found(&dir.path().join("ff"));
    assert!(
        (140..180).contains(&there) && first.len() == there,
        "{there}"
    );
    made(dir.path(), "prealloc=80");
    assert_eq!(found(&dir.path().join("ff")), first);
}

#[test]
fn without_prealloc_nothing_but_the_root_is_made() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path(), "prealloc");
    assert_eq!(
        made(dir.path(), "leafdirs=3").existing_count(EntryKind::File),
        0
    );
    assert_eq!(
        std::fs::read_dir(dir.path().join("ff")).unwrap().count(),
        0,
        "and what was there is gone"
    );
}

#[test]
fn reuse_keeps_what_fits_shortens_what_is_longer_and_rewrites_what_is_shorter() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path(), "prealloc");
    let root = dir.path().join("ff");
    let paths = found(&root);
    std::fs::write(&paths[0], "kept").unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&paths[1])
        .unwrap()
        .set_len(9000)
        .unwrap();
    std::fs::remove_file(&paths[2]).unwrap();
    let kept = std::fs::metadata(&paths[3]).unwrap().ino();
    let long = std::fs::read(&paths[1]).unwrap();
    made(dir.path(), "prealloc,reuse");
    let now = |at: usize| std::fs::read(&paths[at]).unwrap();
    assert!(
        now(0).len() == 5000 && !now(0).starts_with(b"kept"),
        "rewritten from its start"
    );
    assert_eq!(now(1), long[..5000]);
    assert_eq!(now(2).len(), 5000);
    assert_eq!(std::fs::metadata(&paths[3]).unwrap().ino(), kept);
}

#[test]
fn trusttree_does_not_even_look() {
    let dir = tempfile::tempdir().unwrap();
    let files = made(dir.path(), "prealloc,trusttree");
    assert_eq!(
        (
            files.existing_count(EntryKind::File),
            found(dir.path()).len()
        ),
        (200, 0)
    );
}

#[test]
fn leaf_directories_are_made() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        made(dir.path(), "prealloc,leafdirs=30").existing_count(EntryKind::Leaf),
        30
    );
}

#[test]
fn what_no_fileset_made_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("ff")).unwrap();
    std::fs::write(dir.path().join("ff/thesis.tex"), "years").unwrap();
    let error = populate_filesets(&planned(dir.path(), "prealloc"), &|_| ()).unwrap_err();
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    assert!(dir.path().join("ff/thesis.tex").exists());
}

#[test]
fn sets_that_do_not_fit_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = planned(dir.path(), "prealloc");
    plan.filesets[0].size = crate::workload::FixedOrDrawn::Fixed(1 << 45);
    let error = populate_filesets(&plan, &|_| ()).unwrap_err();
    assert!(
        matches!(error, RunError::Space { .. }) && error.to_string().contains("--scale 0.0"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
