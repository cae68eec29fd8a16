//! What `teal lab tune` chooses from: file systems with options that make a difference.
//!
//! # Guarantees
//! 1. Whatever is not marked as a risk keeps what the file system promises without options.

use super::system::{Kind, System};

/// Options: of mkfs, of mount, and what is lost by them.
type Options = (Kind, &'static [&'static str], &'static str, Option<&'static str>);

const OPTIONS: &[Options] = &[
    (Kind::Ext4, &[], "", None),
    (Kind::Ext4, &[], "noatime", None),
    (Kind::Ext4, &["-b", "1024"], "noatime", None),
    (Kind::Ext4, &["-I", "1024"], "noatime", None),
    (Kind::Ext4, &["-O", "fast_commit"], "noatime", None),
    (Kind::Ext4, &[], "noatime,data=journal", None),
    (Kind::Ext4, &[], "noatime,commit=60", Some("a minute's work instead of five seconds' may be lost")),
    (Kind::Ext4, &[], "noatime,data=writeback", Some("after a crash files may hold what other files held")),
    (Kind::Ext4, &["-O", "^has_journal"], "noatime", Some("after a crash it must be repaired, and may lose files")),
    (Kind::Ext3, &[], "", None),
    (Kind::Ext3, &[], "noatime", None),
    (Kind::Ext2, &[], "", Some("after a crash it must be repaired, and may lose files")),
    (Kind::Ext2, &[], "noatime", Some("after a crash it must be repaired, and may lose files")),
    (Kind::Xfs, &[], "", None),
    (Kind::Xfs, &[], "noatime", None),
    (Kind::Xfs, &["-i", "size=1024"], "noatime", None),
    (Kind::Xfs, &["-d", "agcount=2"], "noatime", None),
    (Kind::Xfs, &["-b", "size=1024"], "noatime", None),
    (Kind::Btrfs, &[], "", None),
    (Kind::Btrfs, &[], "noatime", None),
    (Kind::Btrfs, &["-m", "single"], "noatime", Some("metadata is kept once, not twice")),
    (Kind::Btrfs, &[], "noatime,compress=zstd:1", None),
    (Kind::Btrfs, &[], "noatime,nodatacow", Some("data has no checksums and is overwritten in place")),
    (Kind::Teal, &[], "", None),
];

/// Every file system of these kinds with its options; those at a risk, if they are wanted. The first is the first kind as it comes.
pub fn space(kinds: &[Kind], risky: bool) -> Vec<System> {
    let wanted = OPTIONS.iter().filter(|(kind, .., risk)| kinds.contains(kind) && (risky || risk.is_none()));
    wanted
        .map(|(kind, mkfs, mount, _)| System {
            name: [&[kind.name()], *mkfs, &[*mount]].concat().join(" ").trim_end().to_owned(),
            kind: *kind,
            mkfs: mkfs.iter().map(|&arg| arg.to_owned()).collect(),
            mount: (*mount).to_owned(),
            place: None,
        })
        .collect()
}

/// What is lost by a file system's options; `None`: nothing that is known here.
pub fn risk(system: &System) -> Option<&'static str> {
    let same =
        |(kind, mkfs, mount, _): &&Options| *kind == system.kind && *mkfs == system.mkfs && *mount == system.mount;
    OPTIONS.iter().find(same).and_then(|(.., risk)| *risk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_safety_is_offered_only_when_it_is_asked_for_and_is_said() {
        let safe = space(&[Kind::Ext2, Kind::Ext4, Kind::Teal], false);
        assert_eq!((safe[0].name.as_str(), safe[1].name.as_str()), ("ext4", "ext4 noatime"));
        assert!(safe.iter().all(|system| risk(system).is_none() && system.kind != Kind::Ext2));
        let all = space(&[Kind::Ext2, Kind::Ext4], true);
        assert!(all.len() > safe.len() && all.iter().filter_map(risk).count() >= 3);
        let mut names: Vec<&str> = all.iter().map(|system| system.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len(), "each has a name of its own");
    }
}
