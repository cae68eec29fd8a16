//! Opens, creations, deletions, attributes, directories.

use super::{body, count, figures, run, sizes, try_run};

#[test]
fn files_are_created_filled_and_deleted_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let flowops = "flowop createfile name=cc,filename=ff,fd=1\nflowop writewholefile name=ww,fd=1,iosize=4k\nflowop closefile name=close,fd=1\n\
        flowop statfile name=st,filename=ff\nflowop deletefile name=dd,filename=ff";
    let outcome = run(dir.path(), &body("entries=10,size=6k", flowops, "dd", 25));
    for name in ["cc", "ww", "close", "st", "dd"] {
        assert_eq!(count(&outcome, name), 25, "{name}");
    }
    assert_eq!(sizes(dir.path()), [0; 0]);
    assert_eq!(outcome.summary().all.count, 125, "the end rule is no I/O");
    assert_eq!((outcome.summary().reads, outcome.summary().writes), (0, 25));
}

#[test]
fn a_slot_is_opened_once_and_closed_once() {
    let dir = tempfile::tempdir().unwrap();
    let set = "entries=3,size=1k,prealloc";
    let twice = body(set, "flowop openfile name=oo,filename=ff,fd=1", "oo", 5);
    let error = try_run(dir.path(), false, &twice).unwrap_err().to_string();
    assert!(error.contains("fd=1 is in use"), "{error}");
    let never = body(set, "flowop closefile name=cc,fd=1", "cc", 5);
    let error = try_run(dir.path(), false, &never).unwrap_err().to_string();
    assert!(error.contains("fd=1 is empty"), "{error}");
    let unnamed = body(set, "flowop read name=rr,fd=3,iosize=1k", "rr", 5);
    let error = try_run(dir.path(), false, &unnamed)
        .unwrap_err()
        .to_string();
    assert!(error.contains("names no fileset"), "{error}");
}

#[test]
fn what_is_open_elsewhere_is_not_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let flowops = "flowop openfile name=oo,filename=ff,fd=1\nflowop deletefile name=dd,filename=ff\nflowop closefile name=cc,fd=1";
    let one = run(
        dir.path(),
        &body("entries=1,size=1k,prealloc", flowops, "cc", 4),
    );
    assert_eq!((count(&one, "dd"), figures(&one, "dd").skips), (0, 4));
    let two = run(
        dir.path(),
        &body("entries=2,size=1k,prealloc", flowops, "cc", 1),
    );
    assert_eq!(
        (count(&two, "dd"), figures(&two, "dd").skips),
        (1, 0),
        "another one is, that nobody has open"
    );
    let own = "flowop openfile name=oo,filename=ff,fd=1\nflowop deletefile name=dd,fd=1\nflowop closefile name=cc,fd=1";
    assert_eq!(
        count(
            &run(
                dir.path(),
                &body("entries=3,size=1k,prealloc", own, "cc", 3)
            ),
            "dd"
        ),
        3,
        "one's own slot does not count"
    );
}

#[test]
fn a_slot_that_is_closed_still_names_its_file() {
    let dir = tempfile::tempdir().unwrap();
    // The last of four files is replaced by a copy, for which the first one makes room.
    let flowops = "flowop openfile name=old,filename=ff,fd=1,indexed=3\n\
        flowop createfile name=new,filename=ff,fd=2\nflowop closefile name=c1,fd=1\n\
        flowop writewholefile name=ww,fd=2,srcfd=1,iosize=1k\nflowop closefile name=c2,fd=2\n\
        flowop deletefile name=dd,fd=1";
    let set = "entries=4,size=3k,prealloc=100";
    let deleting = format!("flowop deletefile name=first,filename=ff\n{flowops}");
    let outcome = run(dir.path(), &body(set, &deleting, "dd", 1));
    assert_eq!((count(&outcome, "dd"), count(&outcome, "ww")), (1, 1));
    assert_eq!(sizes(dir.path()), [3072; 3], "two files went, and one came");
    // A slot that never held a file names none.
    let never = body(set, "flowop deletefile name=dd,fd=5", "dd", 1);
    let error = try_run(dir.path(), false, &never).unwrap_err().to_string();
    assert!(error.contains("names no fileset"), "{error}");
}

#[test]
fn attributes_of_an_open_file_are_asked_by_its_slot() {
    let dir = tempfile::tempdir().unwrap();
    let flowops = "flowop openfile name=oo,filename=ff,fd=1\nflowop deletefile name=dd,fd=1\nflowop statfile name=st,fd=1\nflowop closefile name=cc,fd=1";
    assert_eq!(
        count(
            &run(
                dir.path(),
                &body("entries=1,size=1k,prealloc", flowops, "cc", 1)
            ),
            "st"
        ),
        1,
        "it has no name any more"
    );
}

#[test]
fn leaf_directories_are_made_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let flowops = "flowop makedir name=mm,filename=ff\nflowop makedir name=nn,filename=ff\nflowop removedir name=rr,filename=ff";
    let outcome = run(dir.path(), &body("leafdirs=20", flowops, "rr", 10));
    assert_eq!(
        [
            count(&outcome, "mm"),
            count(&outcome, "nn"),
            count(&outcome, "rr")
        ],
        [10, 10, 10]
    );
    let root = dir.path().join("ff/00000001");
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 10);
}

#[test]
fn listing_counts_names_and_entries() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = run(
        dir.path(),
        &body(
            "entries=5,size=1k,prealloc",
            "flowop listdir name=ll,filename=ff",
            "ll",
            2,
        ),
    );
    // The root: ".", "..", one directory; then that: ".", "..", five files.
    let (root, leaf) = (3 + 8 + 3 * 279, 3 + 5 * 8 + 7 * 279);
    assert_eq!(
        (count(&outcome, "ll"), figures(&outcome, "ll").bytes),
        (2, root + leaf)
    );
}

#[test]
fn missing_parents_are_made() {
    let dir = tempfile::tempdir().unwrap();
    let text = body(
        "entries=30,size=1k",
        "flowop createfile name=cc,filename=ff,fd=1\nflowop closefile name=close,fd=1",
        "close",
        30,
    )
    .replace("dirwidth=100", "dirwidth=3");
    run(dir.path(), &text);
    assert_eq!(sizes(dir.path()), [0; 30]);
}

#[test]
fn an_index_chooses_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let flowops = "flowop deletefile name=dd,filename=ff,indexed=2";
    run(
        dir.path(),
        &body("entries=4,size=1k,prealloc", flowops, "dd", 2),
    );
    let left: Vec<bool> = (1..=4)
        .map(|n| dir.path().join(format!("ff/00000001/{n:08}")).exists())
        .collect();
    assert_eq!(left, [true, true, false, false]);
}
