//! The shape of filesets: depths, widths and names.

use super::*;
use crate::workload::plan::{ExistingFiles, OpenAccess, Populating};
use crate::workload::random::Distribution;

fn set(entries: u64, dirwidth: u64, dirgamma: u64) -> Fileset {
    Fileset {
        place: String::new(),
        name: "ff".into(),
        root: "/x/ff".into(),
        entries,
        entries_asked: entries,
        size: FixedOrDrawn::Fixed(1000),
        size_scale: 1.0,
        dirwidth: FixedOrDrawn::Fixed(dirwidth),
        dirdepth: None,
        dirgamma,
        leafdirs: 0,
        prealloc: 100,
        populating: Populating::OneThread,
        existing: ExistingFiles::Removed,
        access: OpenAccess::Both,
    }
}

#[test]
fn a_flat_set_lies_one_directory_deep() {
    let layout = lay_out(&set(50, 1_000_000, 0), &[], 1);
    assert_eq!((layout.dirs.len(), layout.files.len()), (2, 50));
    assert_eq!(
        layout.files[0],
        LayoutEntry {
            dir: 1,
            number: 1,
            size: 1000
        }
    );
    assert_eq!((layout.mean_depth(), layout.total_bytes()), (1.0, 50_000));
}

#[test]
fn without_gamma_widths_and_depths_are_the_means() {
    // Depth is ln 1000 / ln 10 = 3: the root, one level of directories, and leaves of ten files.
    let layout = lay_out(&set(1000, 10, 0), &[], 1);
    let depth = (1000.0_f64.ln() / 10.0_f64.ln()).floor();
    assert!(layout.files.len() == 1000 && layout.mean_depth() <= depth);
    let mut in_dir = vec![0; layout.dirs.len()];
    layout
        .files
        .iter()
        .for_each(|file| in_dir[file.dir as usize] += 1);
    assert_eq!(in_dir[0], 0, "the root holds no file");
    assert!(
        in_dir.iter().all(|files| *files == 0 || *files == 10),
        "{in_dir:?}"
    );
}

#[test]
fn the_studys_servers_are_as_deep_as_it_says() {
    for (entries, width, wanted) in [
        (20_000, 20, 3.3),
        (50_000, 20, 3.6),
        (50_000, 1_000_000, 0.8),
    ] {
        let drawn = mean_drawn_depth(&set(entries, width, 1500), &[]);
        assert!((drawn - wanted).abs() < 0.05, "{drawn} is not {wanted}");
    }
}

#[test]
fn leaf_directories_come_behind_the_files() {
    let layout = lay_out(
        &Fileset {
            leafdirs: 25,
            ..set(30, 10, 0)
        },
        &[],
        1,
    );
    assert_eq!((layout.files.len(), layout.leaves.len()), (30, 25));
    assert!(layout.leaves.iter().all(|leaf| leaf.dir > 0));
}

#[test]
fn sizes_widths_and_depths_may_be_random() {
    let size = RandomVariable {
        name: "ss".into(),
        distribution: Distribution::Uniform,
        min: 100.0,
        max: f64::INFINITY,
        mean: Some(1000.0),
        round: 0.0,
        seed: 0,
    };
    let width = RandomVariable {
        mean: Some(8.0),
        min: 1.0,
        ..size.clone()
    };
    let random = Fileset {
        size: FixedOrDrawn::Drawn(0),
        dirwidth: FixedOrDrawn::Drawn(1),
        dirdepth: Some(1),
        ..set(500, 1, 0)
    };
    let layout = lay_out(&random, &[size, width], 3);
    assert_eq!(layout.files.len(), 500);
    let mean = layout.total_bytes() as f64 / 500.0;
    assert!((900.0..1100.0).contains(&mean), "{mean}");
    assert!(
        layout
            .files
            .iter()
            .any(|file| file.size != layout.files[0].size)
    );
}

#[test]
fn the_same_seed_lays_out_the_same() {
    let set = set(2000, 7, 1500);
    assert_eq!(lay_out(&set, &[], 5), lay_out(&set, &[], 5));
    assert_ne!(lay_out(&set, &[], 5), lay_out(&set, &[], 6));
}
