//! Lists the choices of `teal lab tune`: file systems with options that make a difference, and
//! combinations of these options.
//!
//! # Guarantees
//! 1. Options that are not marked as a risk keep what the file system promises without options. A
//!    combination has the risks of its options.
//! 2. No combination sets the same thing twice, or has options that are known to exclude each
//!    other.

use super::system::{FileSystemKind, FileSystemSetup};

/// Holds a kind, the options of mkfs and of mount, and what is lost by them.
type OptionRow = (
    FileSystemKind,
    &'static [&'static str],
    &'static str,
    Option<&'static str>,
);

const OPTIONS: &[OptionRow] = &[
    (FileSystemKind::Ext4, &[], "", None),
    (FileSystemKind::Ext4, &[], "noatime", None),
    (FileSystemKind::Ext4, &["-b", "1024"], "noatime", None),
    (FileSystemKind::Ext4, &["-I", "1024"], "noatime", None),
    (
        FileSystemKind::Ext4,
        &["-O", "fast_commit"],
        "noatime",
        None,
    ),
    (FileSystemKind::Ext4, &[], "noatime,data=journal", None),
    (
        FileSystemKind::Ext4,
        &[],
        "noatime,commit=60",
        Some("a minute's work instead of five seconds' may be lost"),
    ),
    (
        FileSystemKind::Ext4,
        &[],
        "noatime,data=writeback",
        Some("after a crash files may hold what other files held"),
    ),
    (
        FileSystemKind::Ext4,
        &["-O", "^has_journal"],
        "noatime",
        Some("after a crash it must be repaired, and may lose files"),
    ),
    (FileSystemKind::Ext3, &[], "", None),
    (FileSystemKind::Ext3, &[], "noatime", None),
    (
        FileSystemKind::Ext2,
        &[],
        "",
        Some("after a crash it must be repaired, and may lose files"),
    ),
    (
        FileSystemKind::Ext2,
        &[],
        "noatime",
        Some("after a crash it must be repaired, and may lose files"),
    ),
    (FileSystemKind::Xfs, &[], "", None),
    (FileSystemKind::Xfs, &[], "noatime", None),
    (FileSystemKind::Xfs, &["-i", "size=1024"], "noatime", None),
    (FileSystemKind::Xfs, &["-d", "agcount=2"], "noatime", None),
    (FileSystemKind::Xfs, &["-b", "size=1024"], "noatime", None),
    (FileSystemKind::Btrfs, &[], "", None),
    (FileSystemKind::Btrfs, &[], "noatime", None),
    (
        FileSystemKind::Btrfs,
        &["-m", "single"],
        "noatime",
        Some("metadata is kept once, not twice"),
    ),
    (FileSystemKind::Btrfs, &[], "noatime,compress=zstd:1", None),
    (
        FileSystemKind::Btrfs,
        &[],
        "noatime,nodatacow",
        Some("data has no checksums and is overwritten in place"),
    ),
    (
        FileSystemKind::Reiserfs,
        &[],
        "",
        Some("Linux 6.13 and later have no reiserfs"),
    ),
    (
        FileSystemKind::Reiserfs,
        &[],
        "noatime",
        Some("Linux 6.13 and later have no reiserfs"),
    ),
    (
        FileSystemKind::Reiserfs,
        &[],
        "noatime,notail",
        Some("Linux 6.13 and later have no reiserfs"),
    ),
    (FileSystemKind::Jfs, &[], "", None),
    (FileSystemKind::Jfs, &[], "noatime", None),
    (FileSystemKind::Nilfs2, &[], "", None),
    (FileSystemKind::Nilfs2, &[], "noatime", None),
    (FileSystemKind::Nilfs2, &["-B", "512"], "noatime", None),
    (FileSystemKind::F2fs, &[], "", None),
    (FileSystemKind::F2fs, &[], "noatime", None),
    (FileSystemKind::F2fs, &[], "noatime,mode=lfs", None),
    (FileSystemKind::Teal, &[], "", None),
];

/// Returns every file system of these kinds with its options, those at a risk if they are wanted.
/// The first is the first kind without options.
pub fn known_systems(kinds: &[FileSystemKind], risky: bool) -> Vec<FileSystemSetup> {
    let wanted = OPTIONS
        .iter()
        .filter(|(kind, .., risk)| kinds.contains(kind) && (risky || risk.is_none()));
    wanted
        .map(|(kind, mkfs, mount, _)| FileSystemSetup {
            name: [&[kind.name()], *mkfs, &[*mount]]
                .concat()
                .join(" ")
                .trim_end()
                .to_owned(),
            kind: *kind,
            mkfs: mkfs.iter().map(|&arg| arg.to_owned()).collect(),
            mount: (*mount).to_owned(),
            place: None,
        })
        .collect()
}

/// Returns the risks of a file system's options, with semicolons between; `None` if none is known
/// here.
pub fn risk_of(system: &FileSystemSetup) -> Option<String> {
    let mine = OptionSet::from_arguments(&system.mkfs, &system.mount);
    // A row applies if the system has all of its options.
    let is_in = |(kind, mkfs, mount, _): &&OptionRow| {
        *kind == system.kind
            && OptionSet::from_arguments(mkfs, mount)
                .0
                .iter()
                .all(|choice| mine.0.contains(choice))
    };
    let mut risks: Vec<&str> = OPTIONS
        .iter()
        .filter(is_in)
        .filter_map(|(.., risk)| *risk)
        .collect();
    risks.dedup();
    (!risks.is_empty()).then(|| risks.join("; "))
}

/// Pairs of options that exclude each other, by their beginnings: together they mean nothing, or
/// cannot be had.
const EXCLUDED: &[[&str; 2]] = &[
    ["nodatacow", "compress="],
    ["-O ^has_journal", "data="],
    ["-O ^has_journal", "commit="],
    ["-O fast_commit", "data=journal"],
];
/// Limits the rows of options that are combined.
const COMBINED: usize = 3;

/// Holds single options: of mkfs with its value (`-b 1024`), of mount (`data=journal`); sorted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct OptionSet(Vec<SystemOption>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SystemOption {
    Mkfs(Vec<String>),
    Mount(String),
}

impl SystemOption {
    /// Returns the setting that it sets.
    fn subject(&self) -> &str {
        match self {
            Self::Mkfs(args) => &args[0],
            Self::Mount(option) => option.split('=').next().unwrap_or_default(),
        }
    }

    fn to_words(&self) -> String {
        match self {
            Self::Mkfs(args) => args.join(" "),
            Self::Mount(option) => option.clone(),
        }
    }

    fn excludes(&self, other: &Self) -> bool {
        let [a, b] = [self.to_words(), other.to_words()];
        let is_same = self.subject() == other.subject() && self != other;
        is_same
            || EXCLUDED
                .iter()
                .any(|[one, two]| a.starts_with(one) && b.starts_with(two))
    }
}

impl OptionSet {
    fn from_arguments(mkfs: &[impl AsRef<str>], mount: &str) -> Self {
        let mut found: Vec<SystemOption> = Vec::new();
        // An argument without a dash is the value of the option before it.
        for arg in mkfs.iter().map(AsRef::as_ref) {
            match found.last_mut() {
                Some(SystemOption::Mkfs(args)) if !arg.starts_with('-') => {
                    args.push(arg.to_owned())
                }
                _ => found.push(SystemOption::Mkfs(vec![arg.to_owned()])),
            }
        }
        found.extend(
            mount
                .split(',')
                .filter(|option| !option.is_empty())
                .map(|option| SystemOption::Mount(option.to_owned())),
        );
        found.sort();
        found.dedup();
        Self(found)
    }

    /// Returns a file system with these options, otherwise like another.
    fn apply_to(self, like: &FileSystemSetup) -> FileSystemSetup {
        // mkfs keeps the order of its options, mount's are joined by commas.
        let (mut mkfs, mut mount) = (Vec::new(), Vec::new());
        for choice in self.0 {
            match choice {
                SystemOption::Mkfs(args) => mkfs.extend(args),
                SystemOption::Mount(option) => mount.push(option),
            }
        }
        let mount = mount.join(",");
        // The name is what the user would type.
        let name = [
            &[like.kind.name().to_owned()],
            &mkfs[..],
            std::slice::from_ref(&mount),
        ]
        .concat()
        .join(" ");
        FileSystemSetup {
            name: name.trim_end().to_owned(),
            mkfs,
            mount,
            ..like.clone()
        }
    }

    /// Returns all options of both; `None` if they exclude each other.
    fn combined_with(&self, other: &Self) -> Option<Self> {
        let excluded = |a: &SystemOption| other.0.iter().any(|b| a.excludes(b) || b.excludes(a));
        // Options that set the same thing differently cannot be combined.
        if self.0.iter().any(excluded) {
            return None;
        }
        let mut all = [&self.0[..], &other.0].concat();
        all.sort();
        all.dedup();
        Some(Self(all))
    }
}

/// Returns new combinations of up to three of the options that file systems of one kind have. In
/// all else they are like the first of them.
pub fn combine_options(systems: &[FileSystemSetup]) -> Vec<FileSystemSetup> {
    let rows: Vec<(&FileSystemSetup, OptionSet)> = systems
        .iter()
        .map(|of| (of, OptionSet::from_arguments(&of.mkfs, &of.mount)))
        .collect();
    // Each round extends the combinations of the last one by one more row.
    let (mut known, mut last) = (rows.clone(), rows.clone());
    for _ in 1..COMBINED {
        let mut larger = Vec::new();
        for (like, choices) in &last {
            for (_, other) in rows.iter().filter(|(of, _)| of.kind == like.kind) {
                let Some(all) = choices.combined_with(other) else {
                    continue;
                };
                if !known
                    .iter()
                    .any(|(of, known)| of.kind == like.kind && *known == all)
                {
                    known.push((*like, all.clone()));
                    larger.push((*like, all));
                }
            }
        }
        last = larger;
    }
    known
        .split_off(rows.len())
        .into_iter()
        .map(|(like, choices)| choices.apply_to(like))
        .collect()
}

/// Returns the features of each pair of a file system and a scheduler, as numbers that pairs share:
/// the kind, each option of that kind, the scheduler, and the kind under the scheduler.
pub fn pair_features(pairs: &[(&FileSystemSetup, &str)]) -> Vec<Vec<u32>> {
    let mut known = std::collections::HashMap::new();
    let mut all = Vec::new();
    for (system, scheduler) in pairs {
        let kind = system.kind.name();
        // An option counts for its kind only: the same letter means other things elsewhere.
        let options = OptionSet::from_arguments(&system.mkfs, &system.mount).0;
        let options = options
            .iter()
            .map(|option| format!("{kind} {}", option.to_words()));
        let others = [
            kind.to_owned(),
            format!("under {scheduler}"),
            format!("{kind} under {scheduler}"),
        ];
        // Numbers are given in the order of first use.
        let number = |name: String| {
            let next = known.len() as u32;
            *known.entry(name).or_insert(next)
        };
        all.push(others.into_iter().chain(options).map(number).collect());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_safety_is_offered_only_when_it_is_asked_for_and_is_said() {
        let safe = known_systems(
            &[
                FileSystemKind::Ext2,
                FileSystemKind::Ext4,
                FileSystemKind::Teal,
            ],
            false,
        );
        assert_eq!(
            (safe[0].name.as_str(), safe[1].name.as_str()),
            ("ext4", "ext4 noatime")
        );
        assert!(
            safe.iter()
                .all(|system| risk_of(system).is_none() && system.kind != FileSystemKind::Ext2)
        );
        let offered = |kind| {
            known_systems(FileSystemKind::ALL, true)
                .iter()
                .any(|system| system.kind == kind)
        };
        let none: Vec<&FileSystemKind> = FileSystemKind::ALL
            .iter()
            .filter(|kind| !offered(**kind))
            .collect();
        assert_eq!(
            none,
            [&FileSystemKind::Vfat],
            "it has no owners and no modes of files"
        );
        let all = known_systems(&[FileSystemKind::Ext2, FileSystemKind::Ext4], true);
        assert!(all.len() > safe.len() && all.iter().filter_map(risk_of).count() >= 3);
        let mut names: Vec<&str> = all.iter().map(|system| system.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len(), "each has a name of its own");
    }

    #[test]
    fn combinations_are_new_say_nothing_twice_and_have_the_risks_of_their_options() {
        let rows = known_systems(
            &[
                FileSystemKind::Ext4,
                FileSystemKind::Xfs,
                FileSystemKind::Btrfs,
            ],
            true,
        );
        let all = combine_options(&rows);
        let named = |name: &str| all.iter().find(|system| system.name == name);
        let both = named("ext4 -I 1024 -b 1024 noatime").unwrap();
        assert_eq!(
            (&both.mkfs[..], &*both.mount),
            (
                &["-I", "1024", "-b", "1024"].map(str::to_owned)[..],
                "noatime"
            )
        );
        assert!(named("xfs -d agcount=2 -i size=1024 noatime").is_some());
        for system in &all {
            assert!(
                !rows
                    .iter()
                    .any(|row| OptionSet::from_arguments(&row.mkfs, &row.mount)
                        == OptionSet::from_arguments(&system.mkfs, &system.mount))
            );
            let words = format!("{} {}", system.mkfs.join(" "), system.mount);
            let once = |word: &str| words.matches(word).count() <= 1;
            assert!(
                ["-b ", "-O ", "-i ", "data=", "noatime"]
                    .into_iter()
                    .all(once),
                "{words}"
            );
            assert!(
                !words.contains("nodatacow") || !words.contains("compress"),
                "{words}"
            );
        }
        let risky = named("btrfs -m single compress=zstd:1,noatime").unwrap();
        assert_eq!(risk_of(risky).unwrap(), "metadata is kept once, not twice");
        assert!(
            all.iter()
                .any(|system| risk_of(system).is_some_and(|risk| risk.contains("; ")))
        );
        let safe = combine_options(&known_systems(
            &[
                FileSystemKind::Ext4,
                FileSystemKind::Xfs,
                FileSystemKind::Btrfs,
            ],
            false,
        ));
        assert!(safe.len() < all.len() && safe.iter().all(|system| risk_of(system).is_none()));
        assert!(combine_options(&known_systems(&[FileSystemKind::Teal], true)).is_empty());
    }

    #[test]
    fn pairs_share_the_features_that_they_have_in_common() {
        let rows = known_systems(&[FileSystemKind::Ext4], false);
        let pairs: Vec<(&FileSystemSetup, &str)> = rows[..3]
            .iter()
            .flat_map(|row| [(row, "none"), (row, "bfq")])
            .collect();
        let of = pair_features(&pairs);
        let common = |a: usize, b: usize| of[a].iter().filter(|n| of[b].contains(n)).count();
        assert_eq!(
            (of[0].len(), of[2].len(), of[4].len()),
            (3, 4, 5),
            "the kind, the scheduler, both; noatime; -b 1024"
        );
        assert_eq!(
            (common(0, 1), common(0, 2), common(2, 4), common(3, 4)),
            (1, 3, 4, 2)
        );
    }
}
