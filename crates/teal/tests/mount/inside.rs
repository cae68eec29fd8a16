//! Looking inside a store, and what a user sees when a part of it has decayed.

use crate::support::{Mounted, seeded, shell};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// The places `teal dump` knows of an object that hold a certain thing: first byte and length.
fn places(m: &Mounted, what: &str, object: u64) -> Vec<(u64, u64)> {
    let all = m
        .world()
        .teal(&["dump", m.store().to_str().unwrap(), "places"])
        .expect_success();
    let end = format!("bytes, {what} of #{object}");
    let of = all.lines().filter(|line| line.ends_with(&end)).map(|line| {
        let numbers: Vec<u64> = line
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|n| n.parse().ok())
            .collect();
        (numbers[0] * 512 + numbers[1], numbers[2])
    });
    of.collect()
}

fn flip(store: &Path, byte: u64) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(store)
        .unwrap();
    let mut value = [0];
    file.read_exact_at(&mut value, byte).unwrap();
    file.write_all_at(&[value[0] ^ 0x10], byte).unwrap();
}

#[test]
fn decay_is_an_error_at_reading_a_line_in_the_log_and_a_line_of_check() {
    let Some(mut m) = Mounted::new(
        "decay_is_an_error_at_reading_a_line_in_the_log_and_a_line_of_check",
        "64M",
    ) else {
        return;
    };
    std::fs::create_dir(m.path("photos")).unwrap();
    let [good, content, record] =
        ["good", "content", "record"].map(|name| m.path("photos").join(name));
    for (seed, path) in [(1, &good), (2, &content), (3, &record)] {
        std::fs::write(path, seeded(seed, 300_000)).unwrap();
    }
    let numbers = [&content, &record].map(|path| path.metadata().unwrap().ino());
    m.down();
    // Behind what every opening reads.
    m.mount("rw");
    std::fs::write(m.path("later"), "later").unwrap();
    m.down();
    let (block, len) = places(&m, "content", numbers[0])[0];
    flip(m.store(), block + len / 2);
    let (inode, len) = places(&m, "an inode record", numbers[1])[0];
    flip(m.store(), inode + len / 2);

    let said = m.world().teal(&["check", m.store().to_str().unwrap()]);
    assert_eq!(said.code, 1, "{said}");
    assert!(said.to_string().contains("photos/content"), "{said}");
    assert!(
        said.to_string()
            .contains(&format!("object #{}", numbers[1])),
        "{said}"
    );

    m.mount("rw");
    assert_eq!(std::fs::read(&good).unwrap(), seeded(1, 300_000));
    for path in [&content, &record] {
        assert_eq!(
            std::fs::read(path).unwrap_err().raw_os_error(),
            Some(5),
            "{}",
            path.display()
        );
    }
    let log = m.log();
    assert!(
        log.contains("photos/content"),
        "the log does not name the file: {log}"
    );
    // The intact parts of the damaged file can still be copied out.
    let mut first = [0; 4096];
    std::fs::OpenOptions::new()
        .read(true)
        .open(&content)
        .unwrap()
        .read_exact_at(&mut first, 0)
        .unwrap();
    assert!(first[..] == seeded(2, 300_000)[..4096]);
    // A damaged file can be replaced, and then all is well again.
    std::fs::write(m.path("photos/new"), seeded(2, 300_000)).unwrap();
    std::fs::rename(m.path("photos/new"), &content).unwrap();
    assert_eq!(std::fs::read(&content).unwrap(), seeded(2, 300_000));
    m.down();
}

#[test]
fn dump_prints_every_structure() {
    let Some(mut m) = Mounted::new("dump_prints_every_structure", "64M") else {
        return;
    };
    std::fs::create_dir(m.path("d")).unwrap();
    std::fs::write(m.path("d/file"), seeded(1, 50_000)).unwrap();
    let (dir, file) = (
        m.path("d").metadata().unwrap().ino(),
        m.path("d/file").metadata().unwrap().ino(),
    );
    m.down();
    let dump = |what: &str| {
        m.world()
            .teal(&["dump", m.store().to_str().unwrap(), what])
            .expect_success()
    };
    let object = dump(&format!("object:{file}"));
    assert!(
        object.contains("size 50000") && object.contains(&format!("name \"file\" in #{dir}")),
        "{object}"
    );
    let entries = dump(&format!("dir:{dir}"));
    assert!(
        entries.contains(&format!("#{file} File \"file\"")),
        "{entries}"
    );
    let map = dump("imap");
    assert!(
        map.contains(&format!("#{file} at byte")) && map.contains(&format!("#{dir} at byte")),
        "{map}"
    );
    assert!(dump("superblock").contains("Teal"));
    assert!(dump("anchors").contains("checkpoint"));
    assert!(dump("log").contains("clean"));
    assert!(dump("usage").contains("live bytes"));
    assert!(dump("segment:0").contains("record"));
    assert_eq!(dump("orphans"), "");
    let content: u64 = places(&m, "content", file)
        .iter()
        .map(|place| place.1)
        .sum();
    assert_eq!(content, 50_176, "50,000 bytes in whole sectors");
    assert_eq!(places(&m, "an inode record", file).len(), 1);
}

#[test]
fn a_reader_who_has_seen_enough_is_no_failure() {
    let Some(m) = Mounted::new("a_reader_who_has_seen_enough_is_no_failure", "64M") else {
        return;
    };
    let script = r#"
        for what in "status --json" "config ls $2" "check $3" "dump $3 superblock"; do
            { "$1" $what; echo "$?" > code; } 2> said | true
            not grep -q panicked said
            test "$(cat code)" -le 1
        done
        not "$1" status --json > /dev/full 2> said
        grep -q 'teal: standard output: No space left' said
    "#;
    let teal = Path::new(env!("CARGO_BIN_EXE_teal"));
    let script = format!("not() {{ ! \"$@\"; }}\n{script}");
    shell(m.world(), &script, &[teal, m.point(), m.store()]).expect_success();
}
