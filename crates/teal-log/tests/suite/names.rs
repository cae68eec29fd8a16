//! What the store derives from an object's names.

use crate::new_objects::new_object;
use crate::stores::new_store;
use teal_log::Cost;
use teal_types::{FileType, Name, ObjectNo};

#[test]
fn a_removed_directory_has_no_links() {
    let store = new_store(16);
    let name = Name::new(b"d").unwrap();
    let op = store.begin(Cost::names(2)).unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let dir = locked.create(new_object(FileType::Dir));
    locked.insert_entry(ObjectNo::ROOT, &name, dir).unwrap();
    assert_eq!(
        (locked.attr(dir).nlink, locked.attr(ObjectNo::ROOT).nlink),
        (2, 3)
    );
    locked.remove_entry(ObjectNo::ROOT, &name).unwrap();
    locked.set_orphan(dir, true).unwrap();
    assert_eq!(
        (locked.attr(dir).nlink, locked.attr(ObjectNo::ROOT).nlink),
        (0, 2)
    );
}
