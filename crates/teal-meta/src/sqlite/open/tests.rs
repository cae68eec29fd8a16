//! The tables are those of the version, and foreign files are refused.

use super::*;
use crate::{MetaStore as _, NameTally, Sqlite, write};
use teal_types::{CommitSeq, ObjectNo, VolumeId};

#[test]
fn the_tables_of_each_version_are_pinned() {
    // Whoever changes a table makes a new version, with a way there from the old one.
    let digests = [
        6_879_845_871_405_250_944,
        2_575_816_757_859_279_488,
        13_140_057_061_166_340_572,
    ];
    assert_eq!(SCHEMAS.map(|schema| digest(schema.as_bytes())), digests);
    let page = include_str!("../../../../../docs/format-meta.md");
    let tables = SCHEMAS
        .iter()
        .flat_map(|schema| schema.lines())
        .filter_map(|line| line.strip_prefix("CREATE TABLE "));
    for table in tables.filter_map(|line| line.split('(').next()) {
        assert!(
            page.contains(&format!("`{table}`")),
            "docs/format-meta.md does not tell of {table}"
        );
    }
}

/// FNV-1a: enough to see a change.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A directory with one name, in which 100 came and went; and one in which nothing went.
const OLD: &str = "
    INSERT INTO volumes VALUES(7, 'home', 1, 250, zeroblob(32), 0, 0, 1, 1, 1, 1);
    WITH RECURSIVE n(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM n WHERE n < 100)
      INSERT INTO past_entries SELECT 7, 1, CAST('gone' || n AS BLOB), 2 * n, 500 FROM n;
    INSERT INTO past_entries SELECT volume, dir, name, seq + 1, NULL FROM past_entries;
    INSERT INTO past_entries VALUES(7, 1, CAST('here' AS BLOB), 90, 501), (7, 2, CAST('too' AS BLOB), 91, 502);
    INSERT INTO entries VALUES(7, 1, CAST('here' AS BLOB), 501, 90), (7, 2, CAST('too' AS BLOB), 502, 91);";

#[test]
fn an_older_database_goes_on_and_lists_what_was_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    let old = Connection::open(&path).unwrap();
    old.execute_batch(&format!("{}{OLD}", SCHEMAS[0])).unwrap();
    old.pragma_update(None, "application_id", APPLICATION)
        .unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    drop(old);
    for _ in 0..2 {
        let meta = crate::Sqlite::open(&path).unwrap();
        crate::read::<_, MetaError>(&meta, teal_types::VolumeId::new(7), |txn| {
            let at = |dir, at| {
                let past = txn
                    .names_at(ObjectNo::new(dir), CommitSeq::new(at))
                    .unwrap();
                let names: Vec<_> = past
                    .names
                    .iter()
                    .map(|(name, object)| (name.to_string(), object.get()))
                    .collect();
                (names, past.rows)
            };
            let here = ("here".to_owned(), 501);
            assert_eq!(at(1, 89), (vec![], 88));
            assert_eq!(at(1, 90).0, [("gone45".to_owned(), 500), here.clone()]);
            assert_eq!(
                at(1, 250),
                (vec![here], 1),
                "a snapshot of the newest state"
            );
            assert_eq!(at(2, 250), (vec![("too".to_owned(), 502)], 1));
            assert_eq!(
                txn.name_tally(ObjectNo::new(1))?,
                NameTally {
                    names: 1,
                    changes: 0
                }
            );
            assert_eq!(
                txn.name_tally(ObjectNo::new(2))?,
                NameTally {
                    names: 1,
                    changes: 1
                }
            );
            Ok(())
        })
        .unwrap();
    }
    let version: i32 = Connection::open(&path)
        .unwrap()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, VERSION);
}

#[test]
fn another_programs_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t(x)").unwrap();
    drop(other);
    let before = std::fs::read(&path).unwrap();
    let error = open_writer(&path, &DatabaseName::new(&path)).unwrap_err();
    assert!(matches!(error, MetaError::Foreign { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_newer_format_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    open_writer(&path, &DatabaseName::new(&path))
        .unwrap()
        .pragma_update(None, "user_version", 9)
        .unwrap();
    let error = open_writer(&path, &DatabaseName::new(&path))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("meta.db") && error.contains("format 9"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_no_database_is_damaged_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    let error = open_writer(&path, &DatabaseName::new(&path)).unwrap_err();
    assert!(
        matches!(error, MetaError::Damaged { .. }) && error.to_string().contains("meta.db"),
        "{error}"
    );
}

#[test]
fn a_page_that_was_overwritten_is_found_by_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    let store = Sqlite::open(&path).unwrap();
    let volume = VolumeId::new(1);
    write(&store, volume, |txn| {
        for setting in 0..2000_u32 {
            txn.put_setting(&format!("setting {setting}"), &[7; 100])?;
        }
        Ok::<(), MetaError>(())
    })
    .unwrap();
    assert_eq!(store.check_integrity().unwrap(), Vec::<String>::new());
    // Closing moves everything from the log into the file.
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    let (mut found, pages) = (0, bytes.len() / 4096);
    assert!(pages > 20, "{pages} pages");
    // The last pages hold the rows; each is overwritten in turn.
    for page in pages - 10..pages {
        let at = page * 4096;
        let whole = bytes[at..at + 4096].to_vec();
        bytes[at..at + 4096].fill(0x5a);
        std::fs::write(&path, &bytes).unwrap();
        let checked = Sqlite::open(&path).and_then(|store| store.check_integrity());
        found += usize::from(checked.map_or(true, |problems| !problems.is_empty()));
        bytes[at..at + 4096].copy_from_slice(&whole);
    }
    assert_eq!(found, 10, "every page is looked at");
}
