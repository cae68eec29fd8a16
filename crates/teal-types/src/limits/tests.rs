//! One table of limits for all.

use super::*;
use crate::{CommitSeq, FileType, HardLink, NAME_MAX, Name, ObjectNo};
use std::path::{Path, PathBuf};

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.extension() {
            _ if path.is_dir() && !path.ends_with("target") => sources(&path, found),
            Some(extension) if extension == "rs" => found.push(path),
            _ => {}
        }
    }
}

/// The names that constants of these meanings have or had.
fn is_of_a_volume(name: &str) -> bool {
    let words = [
        "LINK_MAX",
        "LINKS_MAX",
        "TARGET_MAX",
        "SYMLINK_MAX",
        "FILE_MAX",
        "CHUNK_MAX",
        "NAME_MAX",
    ];
    words.contains(&name) || (name.starts_with("XATTR") && name.ends_with("_MAX"))
}

#[test]
fn no_other_crate_has_limits_of_its_own_for_what_a_volume_can_hold() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // Workloads and modelled disks of the laboratory have names of their own kind, not of files of
    // a volume.
    let others = [
        "teal-types/src/limits.rs",
        "teal-types/src/name.rs",
        "teal-emulator/",
        "teal-lab/",
        "teal-rig/",
        "teal-study/",
        "teal-trace/",
    ];
    let mut all = Vec::new();
    sources(crates, &mut all);
    assert!(all.len() > 300, "the sources are there");
    let mut own = Vec::new();
    for path in all {
        let within = path
            .strip_prefix(crates)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text
            .lines()
            .filter(|_| !others.iter().any(|other| within.starts_with(other)))
        {
            let Some((_, rest)) = line.split_once("const ") else {
                continue;
            };
            let name = rest.split([':', ' ']).next().unwrap();
            if is_of_a_volume(name) {
                own.push(format!("{within}: {line}"));
            }
        }
    }
    assert!(
        own.is_empty(),
        "these belong into teal-types/src/limits.rs: {own:#?}"
    );
}

#[test]
fn a_state_at_its_limits_fits_into_a_message_and_one_beyond_is_named() {
    let link = |n: usize| HardLink {
        dir: ObjectNo::ROOT,
        name: Name::new(format!("{n:0>NAME_MAX$}").as_bytes()).unwrap(),
    };
    let attributes = ReplicatedAttributes {
        perm: PERM_MAX,
        ..ReplicatedAttributes::default()
    };
    let seq = CommitSeq::new(1);
    let value = vec![0; XATTR_VALUE_MAX];
    let rest = vec![0; XATTRS_BYTES_MAX - xattr_bytes(1, XATTR_VALUE_MAX) - xattr_bytes(1, 0)];
    let full = ObjectVersion {
        object: ObjectNo::new(100),
        kind: FileType::Symlink,
        attributes,
        attr_seq: seq,
        size: FILE_MAX,
        data_seq: seq,
        target: vec![b't'; TARGET_MAX],
        links: (0..LINKS_MAX).map(link).collect(),
        link_seq: seq,
        xattrs: vec![(b"a".to_vec(), value), (b"b".to_vec(), rest)],
        xattr_seq: seq,
    };
    assert_eq!(full.beyond_limits(), None);
    let bytes = full.links.len() * (NAME_MAX + 16) + XATTRS_BYTES_MAX + TARGET_MAX + 1024;
    assert!(
        bytes < 1 << 20,
        "the largest state fits into a reply: {bytes}"
    );
    let beyond = [
        ObjectVersion {
            links: (0..=LINKS_MAX).map(link).collect(),
            ..full.clone()
        },
        ObjectVersion {
            target: vec![b't'; TARGET_MAX + 1],
            ..full.clone()
        },
        ObjectVersion {
            size: FILE_MAX + 1,
            ..full.clone()
        },
        ObjectVersion {
            xattrs: vec![(vec![b'n'; XATTR_NAME_MAX + 1], vec![])],
            ..full.clone()
        },
        ObjectVersion {
            xattrs: vec![(b"a".to_vec(), vec![0; XATTR_VALUE_MAX + 1])],
            ..full.clone()
        },
        ObjectVersion {
            xattrs: [&full.xattrs[..], &[(b"c".to_vec(), vec![])]].concat(),
            ..full.clone()
        },
        ObjectVersion {
            attributes: ReplicatedAttributes {
                perm: PERM_MAX + 1,
                ..attributes
            },
            ..full.clone()
        },
        ObjectVersion {
            attributes: ReplicatedAttributes {
                mtime: Timestamp {
                    secs: 0,
                    nanos: NANOS_END,
                },
                ..attributes
            },
            ..full
        },
    ];
    for version in beyond {
        let words = version.beyond_limits();
        assert!(words.is_some_and(|words| words.contains("beyond what a volume can hold")));
    }
}
