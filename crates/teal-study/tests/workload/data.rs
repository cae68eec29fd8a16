//! Reads, writes, appends, syncs.

use super::{body, count, figures, run, sizes, try_run};

const K16: &str = "entries=4,size=16k,prealloc";

#[test]
fn a_data_flowop_opens_its_file_and_the_open_is_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let text = body(K16, "flowop read name=rr,filename=ff,iosize=4k", "rr", 8);
    let rr = figures(&run(dir.path(), &text), "rr");
    assert_eq!(
        (rr.count, rr.opens, rr.bytes),
        (8, 1, 4 * 4096 + 3 * 4096),
        "the fifth read is the end of the file: 0 bytes"
    );
    let rr = figures(&try_run(dir.path(), true, &text).unwrap(), "rr");
    assert_eq!((rr.count, rr.opens), (8, 0), "Filebench counts it");
    assert_eq!(rr.bytes, (4 + 2) * 4096);
}

#[test]
fn slots_of_opennext_rotate_and_each_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let text = body(
        K16,
        "flowop read name=rr,filename=ff,iosize=4k,random,opennext",
        "rr",
        300,
    );
    let rr = figures(&run(dir.path(), &text), "rr");
    assert_eq!((rr.count, rr.opens), (300, 128));
}

#[test]
fn random_places_reach_the_last_block_unless_filebenchs_are_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let text = body(
        "entries=1,size=16k",
        "flowop createfile name=cc,filename=ff,fd=1\nflowop write name=ww,fd=1,iosize=4k,random,iters=200\n\
        flowop closefile name=close,fd=1",
        "cc",
        1,
    );
    run(dir.path(), &text);
    assert_eq!(
        sizes(dir.path()),
        [16_384],
        "the last of four blocks was written"
    );
    try_run(dir.path(), true, &text).unwrap();
    assert_eq!(sizes(dir.path()), [12_288]);
}

#[test]
fn a_working_set_bounds_random_places() {
    let dir = tempfile::tempdir().unwrap();
    let text = body(
        "entries=1,size=1m",
        "flowop createfile name=cc,filename=ff,fd=1\n\
        flowop write name=ww,fd=1,iosize=4k,workingset=8k,random,iters=100\nflowop closefile name=close,fd=1",
        "cc",
        1,
    );
    run(dir.path(), &text);
    assert_eq!(sizes(dir.path()), [8192]);
}

#[test]
fn random_transfers_must_fit() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "set $size=randvar(type=uniform,mean=1k,min=1k)\n{}",
        body(
            "entries=1,size=$size,prealloc",
            "flowop read name=rr,filename=ff,iosize=4k,random",
            "rr",
            1
        )
    );
    let error = try_run(dir.path(), false, &text).unwrap_err().to_string();
    assert!(
        error.contains("'rr'") && error.contains("do not fit the 1024 bytes"),
        "{error}"
    );
}

#[test]
fn sequential_writes_never_wrap() {
    let dir = tempfile::tempdir().unwrap();
    run(
        dir.path(),
        &body(
            "entries=1,size=4k,prealloc",
            "flowop write name=ww,filename=ff,iosize=4k",
            "ww",
            10,
        ),
    );
    assert_eq!(sizes(dir.path()), [40_960]);
}

#[test]
fn whole_files_are_read_in_one_operation() {
    let dir = tempfile::tempdir().unwrap();
    for iosize in ["0", "3k", "1m"] {
        let rr = figures(
            &run(
                dir.path(),
                &body(
                    K16,
                    &format!("flowop readwholefile name=rr,filename=ff,iosize={iosize}"),
                    "rr",
                    5,
                ),
            ),
            "rr",
        );
        assert_eq!(
            (rr.count, rr.bytes, rr.opens),
            (5, 5 * 16_384, 1),
            "{iosize}"
        );
    }
}

#[test]
fn whole_files_are_written_to_their_size_unless_filebenchs_overshoot_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let text = body(
        "entries=1,size=2500k",
        "flowop createfile name=cc,filename=ff,fd=1\nflowop writewholefile name=ww,fd=1,iosize=1m\n\
        flowop closefile name=close,fd=1",
        "cc",
        1,
    );
    let ww = figures(&run(dir.path(), &text), "ww");
    assert_eq!(
        (ww.count, ww.bytes, sizes(dir.path())),
        (1, 2500 << 10, vec![2500 << 10])
    );
    try_run(dir.path(), true, &text).unwrap();
    assert_eq!(sizes(dir.path()), [3 << 20]);
}

#[test]
fn what_is_written_has_the_size_of_srcfds_file() {
    let dir = tempfile::tempdir().unwrap();
    let text = "set mode quit firstdone\ndefine file name=src,path=$dir,size=5k,prealloc\ndefine file name=dst,path=$dir,size=1k\n\
        define process name=pp { thread name=tt {\nflowop openfile name=oo,filename=src,fd=1\nflowop createfile name=cc,filename=dst,fd=2\n\
        flowop writewholefile name=ww,fd=2,srcfd=1,iosize=1m\nflowop finishoncount name=end,value=1,target=ww } }\nrun";
    run(dir.path(), text);
    assert_eq!(sizes(dir.path()), [5120, 5120]);
}

#[test]
fn appends_go_to_the_end() {
    let dir = tempfile::tempdir().unwrap();
    run(
        dir.path(),
        &body(
            "entries=1,size=4k,prealloc",
            "flowop appendfile name=aa,filename=ff,iosize=4k",
            "aa",
            10,
        ),
    );
    assert_eq!(sizes(dir.path()), [11 * 4096]);
    let aa = figures(
        &run(
            dir.path(),
            &body(
                "entries=1,size=0,prealloc",
                "flowop appendfilerand name=aa,filename=ff,iosize=4k",
                "aa",
                2000,
            ),
        ),
        "aa",
    );
    let mean = aa.bytes as f64 / aa.count as f64;
    assert!((1900.0..2200.0).contains(&mean), "half of iosize: {mean}");
    assert_eq!(sizes(dir.path()), [aa.bytes]);
}

#[test]
fn appends_of_many_threads_to_one_file_do_not_write_over_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let text = body(
        "entries=1,size=0,prealloc",
        "flowop appendfilerand name=aa,filename=ff,iosize=4k",
        "aa",
        4000,
    );
    let text = text
        .replace("thread name=tt {", "thread name=tt,instances=8 {")
        .replace("firstdone", "alldone");
    let aa = figures(&run(dir.path(), &text), "aa");
    assert_eq!(sizes(dir.path()), [aa.bytes]);
}

#[test]
fn fsync_syncs_a_slot_and_fsyncset_all_of_a_set() {
    let dir = tempfile::tempdir().unwrap();
    let flowops = "flowop openfile name=one,filename=ff,fd=1\nflowop openfile name=two,filename=ff,fd=2\nflowop fsync name=sync,fd=1\n\
        flowop fsyncset name=all,filename=ff\nflowop closefile name=c1,fd=1\nflowop closefile name=c2,fd=2";
    let outcome = run(dir.path(), &body(K16, flowops, "all", 3));
    assert_eq!(
        [
            count(&outcome, "sync"),
            count(&outcome, "all"),
            count(&outcome, "c2")
        ],
        [3, 3, 3]
    );
}

#[test]
fn writes_in_the_background_are_waited_for_by_halves() {
    let dir = tempfile::tempdir().unwrap();
    let flowops = "flowop aiowrite name=aa,filename=ff,fd=1,iosize=4k,random,iters=10\nflowop aiowait name=ww";
    let outcome = run(
        dir.path(),
        &body("entries=1,size=64k,prealloc", flowops, "ww", 50),
    );
    assert_eq!(
        (
            count(&outcome, "aa"),
            figures(&outcome, "aa").bytes,
            count(&outcome, "ww")
        ),
        (500, 500 * 4096, 50)
    );
    assert_eq!(sizes(dir.path()), [65_536]);
}

#[test]
fn reading_what_may_only_be_written_is_an_error_with_its_flowop() {
    let dir = tempfile::tempdir().unwrap();
    let text = body(
        &format!("{K16},writeonly"),
        "flowop read name=rr,filename=ff,iosize=4k",
        "rr",
        1,
    );
    let error = try_run(dir.path(), false, &text).unwrap_err().to_string();
    assert!(error.contains("flowop 'rr': reading"), "{error}");
    let text = body(
        &format!("{K16},readonly"),
        "flowop write name=ww,filename=ff,iosize=4k",
        "ww",
        1,
    );
    assert!(try_run(dir.path(), false, &text).is_err());
}

#[test]
fn transfers_point_into_the_threads_memory() {
    let dir = tempfile::tempdir().unwrap();
    let text = body(
        K16,
        "flowop read name=rr,filename=ff,iosize=4k,random",
        "rr",
        100,
    )
    .replace("name=tt", "name=tt,memsize=10k,useism");
    assert_eq!(count(&run(dir.path(), &text), "rr"), 100);
}
