//! Definitions, floors, what is done on files, and tables.

use super::*;
use std::cell::Cell as Slot;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use teal_energy::Profile;

const MIB: u64 = 1 << 20;

fn named(group: PhaseGroup, name: &str, scale: f64) -> WorkloadPhase {
    group
        .phases_at_scale(scale)
        .into_iter()
        .find(|phase| phase.name == name)
        .unwrap()
}

#[test]
fn phases_are_those_of_the_thesis() {
    let names = |group: PhaseGroup| {
        group
            .phases_at_scale(1.0)
            .into_iter()
            .filter(|p| p.counts)
            .map(|p| p.name)
            .collect::<Vec<_>>()
    };
    let six = [
        "create",
        "read",
        "rand_read",
        "rewrite",
        "reread",
        "rand_reread",
    ];
    for (kib, count) in [(4, 12_800), (32, 1600), (1024, 50)] {
        let group = PhaseGroup::Files(kib);
        assert_eq!(names(group), six);
        for phase in group.phases_at_scale(1.0) {
            let (PhaseAct::Write {
                set, call: None, ..
            }
            | PhaseAct::Read {
                set, call: None, ..
            }) = phase.act
            else {
                panic!("a file is one operation: {phase:?}");
            };
            assert_eq!((phase.user_bytes(), set.count), (50 * MIB, count));
            assert!(set.file_sizes().iter().all(|size| *size == kib << 10));
            let paths: Vec<_> = (0..count).map(|at| set.path_parts(at)).collect();
            assert_eq!(paths.iter().collect::<BTreeSet<_>>().len() as u64, count);
            let first = &paths[0].0;
            assert_eq!(
                paths.iter().filter(|(dir, _)| dir == first).count() as u64,
                count.min(200)
            );
        }
    }
    assert_eq!(
        names(PhaseGroup::Update),
        ["read", "rand_read", "write", "reread", "rand_reread"]
    );
    assert_eq!(
        named(PhaseGroup::Update, "read", 1.0).user_bytes(),
        100 * MIB
    );
    assert_eq!(
        named(PhaseGroup::Update, "write", 1.0).user_bytes(),
        24 * MIB
    );
    let levels = [
        "camera at 80 %",
        "mp3 write at 80 %",
        "mp3 read at 80 %",
        "camera at 60 %",
    ];
    assert_eq!(names(PhaseGroup::Fragmented)[..4], levels);
    assert_eq!(names(PhaseGroup::Fragmented).len(), 12);
}

#[test]
fn photos_and_music_have_their_number_and_size_and_differ() {
    for (group, name, count, mib) in [
        (PhaseGroup::Camera, "camera", 156, 145.8),
        (PhaseGroup::Mp3, "mp3 write", 35, 138.4),
    ] {
        let PhaseAct::Write {
            set,
            call: None,
            again: false,
        } = named(group, name, 1.0).act
        else {
            panic!("{name}")
        };
        let sizes = set.file_sizes();
        assert_eq!((sizes.len(), set.bytes), (count, (mib * MIB as f64) as u64));
        assert_eq!(sizes.iter().sum::<u64>(), set.bytes);
        let mean = set.bytes / count as u64;
        assert!(
            sizes
                .iter()
                .all(|size| (mean * 3 / 4..mean * 5 / 4).contains(size)),
            "{sizes:?}"
        );
        assert!(sizes.iter().collect::<BTreeSet<_>>().len() > 20);
        assert_eq!(sizes, set.file_sizes(), "the same each time");
    }
}

#[test]
fn a_scale_takes_a_part_of_the_files_and_keeps_their_sizes() {
    let PhaseAct::Write { set, .. } = named(PhaseGroup::Files(4), "create", 0.01).act else {
        panic!()
    };
    assert_eq!((set.count, set.bytes), (128, 128 << 12));
    let PhaseAct::Write { set, .. } = named(PhaseGroup::Camera, "camera", 0.05).act else {
        panic!()
    };
    assert_eq!(set.count, 8);
    assert!(
        (set.bytes / 8).abs_diff(957_000) < 50_000,
        "{}",
        set.bytes / 8
    );
    assert_eq!(
        named(PhaseGroup::Files(1024), "create", 1e-9).user_bytes(),
        MIB,
        "there is always one"
    );
}

#[test]
fn random_orders_visit_everything_once_and_are_the_same_everywhere() {
    let order = orders::shuffle_places(1000, 1000, 7);
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 1000);
    assert_eq!(order, orders::shuffle_places(1000, 1000, 7));
    assert_ne!(order, orders::shuffle_places(1000, 1000, 8));
    assert_eq!(orders::shuffle_places(1000, 10, 7), order[..10]);
    let ascending = order
        .windows(2)
        .filter(|pair| pair[1] == pair[0] + 1)
        .count();
    assert!(ascending < 10, "{ascending} of 1000 follow each other");
    assert!(orders::shuffle_places(0, 0, 7).is_empty());
}

#[test]
fn the_floor_is_the_bytes_in_one_run_and_one_seek() {
    let microdrive = Profile::find_shipped("ibm-microdrive-1gb").unwrap();
    let joules =
        |phase: &WorkloadPhase| phase_floor(&microdrive, phase).unwrap().get() as f64 / 1e6;
    // scherlfs, Table 3.1: 627 and 756 mW at 3300 KiB/s; a seek 7.64 mJ, at most a turn of 9.9 mJ.
    for (group, name, kib) in [
        (PhaseGroup::Files(4), "create", 51_200.0),
        (PhaseGroup::Files(32), "rewrite", 51_200.0),
        (PhaseGroup::Update, "write", 24_576.0),
        (PhaseGroup::Camera, "camera", 149_299.0),
    ] {
        let floor = joules(&named(group, name, 1.0));
        let bytes = kib / 3300.0 * 0.756;
        assert!(
            (bytes + 0.0076..bytes + 0.02).contains(&floor),
            "{name}: {floor} J, {bytes} J"
        );
    }
    let reading = joules(&named(PhaseGroup::Files(4), "read", 1.0));
    assert!(
        (reading - 51_200.0 / 3300.0 * 0.627).abs() < 0.02,
        "{reading}"
    );
    // Each file for itself: a seek and half a turn on the average.
    let random = joules(&named(PhaseGroup::Files(4), "rand_read", 1.0));
    let each = (random - reading) / 12_800.0;
    assert!((0.0100..0.0128).contains(&each), "{each}");
    assert!(joules(&named(PhaseGroup::Fragmented, "fill", 1.0)) == 0.0);
}

#[test]
fn a_profile_without_mechanics_has_no_floor() {
    let flash = Profile::find_shipped("samsung-970-evo-plus-500gb").unwrap();
    assert!(phase_floor(&flash, &named(PhaseGroup::Files(4), "create", 1.0)).is_err());
}

/// A ground that mounts nothing and notes what it is told.
#[derive(Default)]
struct Notes {
    dir: PathBuf,
    told: Vec<String>,
    forgotten: Slot<u64>,
    ticks: Slot<u64>,
    over: bool,
}

impl PhaseEnvironment for Notes {
    fn mount(&mut self) -> Result<PathBuf, PhaseError> {
        self.told.push("mount".into());
        Ok(self.dir.clone())
    }
    fn unmount(&mut self) -> Result<(), PhaseError> {
        self.told.push("unmount".into());
        Ok(())
    }
    fn begin_phase(&mut self, phase: &WorkloadPhase) -> Result<(), PhaseError> {
        self.told.push(format!("begin {}", phase.name));
        Ok(())
    }
    fn end_operations(&mut self, _: &WorkloadPhase) -> Result<(), PhaseError> {
        self.told.push("ran".into());
        Ok(())
    }
    fn end_drain(&mut self, _: &WorkloadPhase, operations: u64) -> Result<(), PhaseError> {
        self.told.push(format!("drained {operations}"));
        Ok(())
    }
    fn drop_cached(&self, _: &File) -> Result<(), PhaseError> {
        self.forgotten.set(self.forgotten.get() + 1);
        Ok(())
    }
    fn next_tick(&self) {
        self.ticks.set(self.ticks.get() + 1);
    }
    fn is_over(&self) -> bool {
        self.over
    }
}

#[test]
fn each_phase_counts_from_its_mount_to_its_unmount_and_forgets_after_each_operation() {
    let dir = tempfile::tempdir().unwrap();
    let mut ground = Notes {
        dir: dir.path().to_owned(),
        ..Notes::default()
    };
    carry_out(
        &PhaseGroup::Files(4).phases_at_scale(0.02),
        SyncMode::T,
        &mut ground,
    )
    .unwrap();
    let of = |name: &str| {
        [
            "mount",
            &format!("begin {name}"),
            "ran",
            "unmount",
            "drained 256",
        ]
        .map(str::to_owned)
    };
    let wanted: Vec<_> = [
        "create",
        "read",
        "rand_read",
        "rewrite",
        "reread",
        "rand_reread",
    ]
    .iter()
    .flat_map(|name| of(name))
    .collect();
    assert_eq!(ground.told, wanted);
    assert_eq!(
        (ground.forgotten.get(), ground.ticks.get()),
        (6 * 256, 2 * 256)
    );
    assert_eq!(
        std::fs::metadata(dir.path().join("d001/f055"))
            .unwrap()
            .len(),
        4096
    );
    assert!(!dir.path().join("d001/f056").exists());

    let mut update = Notes {
        dir: dir.path().join("d000"),
        ..Notes::default()
    };
    carry_out(
        &PhaseGroup::Update.phases_at_scale(0.01),
        SyncMode::C,
        &mut update,
    )
    .unwrap();
    assert_eq!(
        update.told[..3],
        ["mount", "unmount", "mount"],
        "making the file does not count"
    );
    assert_eq!(update.told[6], "drained 1");
    assert_eq!(update.told[11], "drained 31");
    assert_eq!(
        (update.forgotten.get(), update.ticks.get()),
        (0, 0),
        "cached"
    );
}

#[test]
fn rewriting_changes_the_content_and_what_is_missing_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let mut ground = Notes {
        dir: dir.path().to_owned(),
        ..Notes::default()
    };
    let phases = PhaseGroup::Files(32).phases_at_scale(0.001);
    carry_out(&phases[..1], SyncMode::C, &mut ground).unwrap();
    let file = dir.path().join("d000/f000");
    let first = std::fs::read(&file).unwrap();
    let again = [
        WorkloadPhase {
            counts: false,
            ..phases[0].clone()
        },
        phases[3].clone(),
    ];
    carry_out(&again[1..], SyncMode::F, &mut ground).unwrap();
    assert_eq!(first.len(), 32 << 10);
    std::fs::write(&file, &first[1..]).unwrap();
    let short = carry_out(&phases[1..2], SyncMode::T, &mut ground).unwrap_err();
    assert!(
        matches!(&short, PhaseError::Io { what, source } if what.contains("f000") && source.to_string().contains("shorter")),
        "{short:?}"
    );
    std::fs::remove_file(&file).unwrap();
    let gone = carry_out(&phases[1..2], SyncMode::T, &mut ground)
        .unwrap_err()
        .to_string();
    assert!(gone.contains("f000"), "{gone}");
    ground.over = true;
    assert!(matches!(
        carry_out(&phases[..1], SyncMode::T, &mut ground),
        Err(PhaseError::Interrupted)
    ));
}

fn cell(system: &str, joules: u64) -> PhaseCell {
    let use_of = |name: &str, part| EnergyUsage {
        name: name.into(),
        count: 1,
        ns: 1,
        microjoules: joules * part / 4,
    };
    let uses = vec![use_of("seek", 1), use_of("rotate", 1), use_of("write", 2)];
    let tally = DiskTally {
        microjoules: joules,
        seeks: 7,
        writes: 9,
        bytes_written: 3 << 20,
        uses,
        ..DiskTally::default()
    };
    let measured = PhaseResult {
        phase: "create".into(),
        operations: 3,
        bytes: MIB,
        tally,
        drain_microjoules: 0,
        floor_microjoules: 500_000,
        writes: true,
    };
    PhaseCell {
        version: PhaseCell::VERSION,
        system: system.into(),
        kernel: "Linux 6.1".into(),
        group: "4k".into(),
        mode: SyncMode::T,
        scale: 0.1,
        profile: "ibm-microdrive-1gb".into(),
        size: 1_000_000_000,
        phases: vec![measured],
    }
}

#[test]
fn the_table_has_joules_and_how_many_times_the_floor_and_what_they_went_for() {
    let cells = [cell("ext4", 4_000_000), cell("teal", 1_000_000)];
    let text = render_markdown(&PhaseSheet {
        cells: &cells,
        assumed: &["half a millisecond".to_owned()],
    });
    assert!(
        text.contains("| 4k create | 4.00 (8.0) | 1.00 (2.0) | 0.500 |"),
        "{text}"
    );
    assert!(
        text.contains("modelled by ibm-microdrive-1gb") && text.contains("scale 0.1"),
        "{text}"
    );
    assert!(text.contains("Assumed: half a millisecond"), "{text}");
    assert!(
        text.contains(
            "| 4k create | 4.00 | 1.00 | 1.00 | 2.00 | 0 | 0 | 0 | 7 | 0 | 0.0 | 9 | \
                       3.0 | 1.0 | 0 |"
        ),
        "{text}"
    );
    assert_eq!(
        render_markdown(&PhaseSheet {
            cells: &[],
            assumed: &[]
        }),
        "No phase has been measured.\n"
    );
}

#[test]
fn ageing_is_drawn_by_its_seed_and_its_files_are_larger_than_those_of_the_thesis() {
    let parts = |percent, seed| match &ageing_phases(percent, seed)[..] {
        [
            WorkloadPhase {
                act: PhaseAct::Fill(filling),
                counts: false,
                ..
            },
            WorkloadPhase {
                act: PhaseAct::Thin { percent, seed },
                counts: false,
                ..
            },
        ] => (*filling, *percent, *seed),
        other => panic!("{other:?}"),
    };
    let sizes = |seed| {
        (0..10_000)
            .map(|at| parts(60, seed).0.file_size(at))
            .collect::<Vec<u64>>()
    };
    let mine = sizes(7);
    assert_eq!((parts(60, 7).1, parts(60, 7).2, &mine), (60, 7, &sizes(7)));
    assert!(
        mine.iter()
            .all(|size| (4096..=15 * 4096).contains(size) && size % 4096 == 0)
    );
    let mean = mine.iter().sum::<u64>() / 10_000;
    assert!((31 << 10..33 << 10).contains(&mean), "{mean}");
    let same = mine.iter().zip(sizes(8)).filter(|(a, b)| **a == *b).count();
    assert!((500..850).contains(&same), "one of 15: {same}");
    let PhaseAct::Fill(thesis) = named(PhaseGroup::Fragmented, "fill", 1.0).act else {
        panic!()
    };
    assert!((0..100).all(|at| thesis.file_size(at) == 8192));
}
