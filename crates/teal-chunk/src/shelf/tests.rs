//! Errors are sorted by what lies under them.

use super::*;
use std::io;

#[derive(Debug, thiserror::Error)]
#[error("wrapped")]
struct Wrapped(#[source] Box<dyn Error + Send + Sync>);

#[test]
fn the_cause_decides_about_the_kind() {
    let kind = |kind: io::ErrorKind| {
        let wrapped = Wrapped(Box::new(Wrapped(Box::new(io::Error::from(kind)))));
        ShelfError::from_cause("packs/x".into(), Arc::new(wrapped))
    };
    assert!(matches!(
        kind(io::ErrorKind::StorageFull),
        ShelfError::NoSpace { .. }
    ));
    assert!(matches!(
        kind(io::ErrorKind::QuotaExceeded),
        ShelfError::NoSpace { .. }
    ));
    assert!(matches!(
        kind(io::ErrorKind::ReadOnlyFilesystem),
        ShelfError::ReadOnly { .. }
    ));
    assert!(matches!(
        kind(io::ErrorKind::PermissionDenied),
        ShelfError::ReadOnly { .. }
    ));
    let unreachable = kind(io::ErrorKind::TimedOut);
    assert!(matches!(unreachable, ShelfError::Unreachable { .. }));
    assert!(unreachable.to_string().contains("packs/x"), "{unreachable}");
}

#[test]
fn a_shelf_in_memory_gives_what_there_is_of_a_range() {
    let shelf = memory::MemoryShelf::new();
    shelf.put("a", vec![1, 2, 3]).unwrap();
    let read = |range| shelf.read("a", range).unwrap();
    assert_eq!(
        (read(0..2), read(2..9), read(3..9), read(7..9)),
        (vec![1, 2], vec![3], vec![], vec![])
    );
    assert!(matches!(shelf.read("b", 0..1), Err(ShelfError::NotFound { name }) if name == "b"));
    shelf.remove("a").unwrap();
    shelf.remove("a").unwrap();
    assert_eq!(shelf.list_objects().unwrap(), []);
}
