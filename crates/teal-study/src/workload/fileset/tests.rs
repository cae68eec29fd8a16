//! Filesets: what is picked, and what becomes of it.

use super::*;
use crate::workload::layout::{Dir, Entry};

fn files(count: u32) -> Files {
    let layout = Layout {
        dirs: vec![
            Dir {
                parent: 0,
                number: 0,
            },
            Dir {
                parent: 0,
                number: 1,
            },
            Dir {
                parent: 1,
                number: 12,
            },
        ],
        files: (1..=count)
            .map(|number| Entry {
                dir: 2,
                number,
                size: 0,
            })
            .collect(),
        leaves: vec![Entry {
            dir: 1,
            number: 3,
            size: 0,
        }],
    };
    Files::new("ff", "/root".into(), Access::Both, layout)
}

#[test]
fn paths_have_eight_digits() {
    let (files, mut path) = (files(10), Vec::new());
    files.path(What::File, 6, &mut path);
    assert_eq!(path, b"00000001/00000012/00000007\0");
    files.path(What::Leaf, 0, &mut path);
    assert_eq!(path, b"00000001/00000003\0");
    files.dir_path(0, &mut path);
    assert_eq!(path, b".\0");
    assert_eq!(files.shown(b"00000001/x\0"), "/root/00000001/x");
}

#[test]
fn picks_go_round_and_pass_over_what_is_busy() {
    let (files, stop) = (files(4), Stop::default());
    (0..4).for_each(|at| files.mark_existing(What::File, at));
    let pick = || files.pick(What::File, true, Turn::Next, &stop).unwrap();
    assert_eq!([pick(), pick()], [0, 1]);
    files.release(What::File, 0, true);
    assert_eq!([pick(), pick(), pick()], [2, 3, 0], "1 is busy");
    [0, 2, 3]
        .into_iter()
        .for_each(|at| files.release(What::File, at, true));
    assert_eq!(
        [pick(), pick(), pick()],
        [2, 3, 0],
        "from the rotor on, not from the start"
    );
}

#[test]
fn a_thread_of_opennext_has_a_turn_of_its_own() {
    let (files, stop) = (files(3), Stop::default());
    (0..3).for_each(|at| files.mark_existing(What::File, at));
    let (mut mine, mut yours) = (0, 0);
    let pick = |rotor: &mut usize| {
        let at = files
            .pick(What::File, true, Turn::Own(rotor), &stop)
            .unwrap();
        files.release(What::File, at, true);
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
    let (files, stop) = (files(5), Stop::default());
    files.mark_existing(What::File, 1);
    files.mark_existing(What::File, 3);
    let pick = |index| {
        let at = files
            .pick(What::File, true, Turn::Index(index), &stop)
            .unwrap();
        files.release(What::File, at, true);
        at
    };
    assert_eq!([pick(0), pick(1), pick(2), pick(4)], [1, 1, 3, 1]);
}

#[test]
fn nothing_left_is_no_resource() {
    let (files, stop) = (files(1), Stop::default());
    assert_eq!(files.pick(What::File, true, Turn::Next, &stop), None);
    assert_eq!(files.pick(What::File, false, Turn::Next, &stop), Some(0));
    files.release(What::File, 0, true);
    assert_eq!(files.pick(What::File, false, Turn::Next, &stop), None);
    assert!(files.claim(0, &stop));
    files.release(What::File, 0, false);
    assert!(!files.claim(0, &stop), "it does not exist any more");
}
