//! The tables are those of the version, and foreign files are refused.

use super::*;

#[test]
fn the_tables_of_version_1_are_pinned() {
    // Whoever changes a table makes a new version, with a way there from the old one.
    assert_eq!((VERSION, digest(SCHEMA.as_bytes())), (1, 6_879_845_871_405_250_944));
    let page = include_str!("../../../../../docs/format-meta.md");
    let tables = SCHEMA.lines().filter_map(|line| line.strip_prefix("CREATE TABLE "));
    for table in tables.filter_map(|line| line.split('(').next()) {
        assert!(page.contains(&format!("`{table}`")), "docs/format-meta.md does not tell of {table}");
    }
}

/// FNV-1a: enough to see a change.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn another_programs_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t(x)").unwrap();
    drop(other);
    let before = std::fs::read(&path).unwrap();
    let error = writer(&path, &Names::new(&path)).unwrap_err();
    assert!(matches!(error, MetaError::Foreign { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_newer_format_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    writer(&path, &Names::new(&path)).unwrap().pragma_update(None, "user_version", 9).unwrap();
    let error = writer(&path, &Names::new(&path)).unwrap_err().to_string();
    assert!(error.contains("meta.db") && error.contains("format 9"), "{error}");
}

#[test]
fn a_file_that_is_no_database_is_damaged_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    let error = writer(&path, &Names::new(&path)).unwrap_err();
    assert!(matches!(error, MetaError::Damaged { .. }) && error.to_string().contains("meta.db"), "{error}");
}
