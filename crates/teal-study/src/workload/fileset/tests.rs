//! Filesets: what is picked, and what becomes of it.

use super::*;
use crate::workload::layout::{LayoutDir, LayoutEntry};

fn files(count: u32) -> FilesetState {
    let layout = TreeLayout {
        dirs: vec![
            LayoutDir {
                parent: 0,
                number: 0,
            },
            LayoutDir {
                parent: 0,
                number: 1,
            },
            LayoutDir {
                parent: 1,
                number: 12,
            },
        ],
        files: (1..=count)
            .map(|number| LayoutEntry {
                dir: 2,
                number,
                size: 0,
            })
            .collect(),
        leaves: vec![LayoutEntry {
            dir: 1,
            number: 3,
            size: 0,
        }],
    };
    FilesetState::new("ff", "/root".into(), OpenAccess::Both, layout)
}

#[test]
fn paths_have_eight_digits() {
    let (files, mut path) = (files(10), Vec::new());
    files.write_path(EntryKind::File, 6, &mut path);
    assert_eq!(path, b"00000001/00000012/00000007\0");
    files.write_path(EntryKind::Leaf, 0, &mut path);
    assert_eq!(path, b"00000001/00000003\0");
    files.write_dir_path(0, &mut path);
    assert_eq!(path, b".\0");
    assert_eq!(files.display_path(b"00000001/x\0"), "/root/00000001/x");
}

#[test]
fn picks_go_round_and_pass_over_what_is_busy() {
    let (files, stop) = (files(4), StopFlag::default());
    (0..4).for_each(|at| files.mark_existing(EntryKind::File, at));
    let pick = || {
        files
            .pick_entry(EntryKind::File, true, PickTurn::Next, &stop)
            .unwrap()
    };
    assert_eq!([pick(), pick()], [0, 1]);
    files.release_entry(EntryKind::File, 0, true);
    assert_eq!([pick(), pick(), pick()], [2, 3, 0], "1 is busy");
    [0, 2, 3]
        .into_iter()
        .for_each(|at| files.release_entry(EntryKind::File, at, true));
    assert_eq!(
        [pick(), pick(), pick()],
        [2, 3, 0],
        "from the rotor on, not from the start"
    );
}

#[test]
fn a_thread_of_opennext_has_a_turn_of_its_own() {
    let (files, stop) = (files(3), StopFlag::default());
    (0..3).for_each(|at| files.mark_existing(EntryKind::File, at));
    let (mut mine, mut yours) = (0, 0);
    let pick = |rotor: &mut usize| {
        let at = files
            .pick_entry(EntryKind::File, true, PickTurn::Own(rotor), &stop)
            .unwrap();
        files.release_entry(EntryKind::File, at, true);
        at
    };
    assert_eq!(
        [
            pick(&mut mine),
            pick(&mut mine),
            pick(&mut yours),
            pick(&mut mine)
        ],
        [0, 1, 0, 2]
    );
}

#[test]
fn an_index_is_the_next_from_there_on() {
    let (files, stop) = (files(5), StopFlag::default());
    files.mark_existing(EntryKind::File, 1);
    files.mark_existing(EntryKind::File, 3);
    let pick = |index| {
        let at = files
            .pick_entry(EntryKind::File, true, PickTurn::Index(index), &stop)
            .unwrap();
        files.release_entry(EntryKind::File, at, true);
        at
    };
    assert_eq!([pick(0), pick(1), pick(2), pick(4)], [1, 1, 3, 1]);
}

#[test]
fn nothing_left_is_no_resource() {
    let (files, stop) = (files(1), StopFlag::default());
    assert_eq!(
        files.pick_entry(EntryKind::File, true, PickTurn::Next, &stop),
        None
    );
    assert_eq!(
        files.pick_entry(EntryKind::File, false, PickTurn::Next, &stop),
        Some(0)
    );
    files.release_entry(EntryKind::File, 0, true);
    assert_eq!(
        files.pick_entry(EntryKind::File, false, PickTurn::Next, &stop),
        None
    );
    assert!(files.claim_file(0, &stop));
    files.release_entry(EntryKind::File, 0, false);
    assert!(!files.claim_file(0, &stop), "it does not exist any more");
}
