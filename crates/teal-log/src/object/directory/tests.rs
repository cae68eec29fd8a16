//! Where names lie in a directory.

use super::{COLLISION_BITS, NameHash, group_of};
use std::collections::BTreeSet;
use teal_types::Name;

const GROUPED: NameHash = NameHash {
    seed: *b"fedcba9876543210",
    is_grouped: true,
};
const SCATTERED: NameHash = NameHash {
    seed: *b"fedcba9876543210",
    is_grouped: false,
};

fn cookie(names: NameHash, name: &str) -> u64 {
    names.first_cookie(&Name::new(name.as_bytes()).unwrap())
}

#[test]
fn groups_are_names_without_their_last_characters_and_extension() {
    let of = |name: &str| String::from_utf8(group_of(name.as_bytes()).to_vec()).unwrap();
    assert_eq!(of("IMG_20260117_120455.jpg"), "IMG_20260117_120");
    assert_eq!(of("an entry 123456"), "an entry 123");
    assert_eq!(of("backup.tar.gz"), "backup.");
    assert_eq!(
        of("notes.longer"),
        "notes.lon",
        "six characters are no extension"
    );
    assert_eq!(
        (
            of("abc").as_str(),
            of("a.b").as_str(),
            of(".profile").as_str()
        ),
        ("", "", ".prof")
    );
}

#[test]
fn names_made_one_after_the_other_lie_together_and_apart_from_others() {
    let group = |n: u32| -> BTreeSet<u64> {
        (0..1000)
            .map(|i| cookie(GROUPED, &format!("IMG_{:07}.jpg", n * 1000 + i)) >> COLLISION_BITS)
            .collect()
    };
    let groups: BTreeSet<u64> = (0..50)
        .map(|n| {
            let hashes = group(n);
            assert!(
                hashes.len() > 995,
                "a group of 1000 has hashes for nearly all"
            );
            let places: BTreeSet<_> = hashes.iter().map(|hash| hash >> 24).collect();
            assert_eq!(places.len(), 1);
            places.into_iter().next().unwrap()
        })
        .collect();
    assert_eq!(groups.len(), 50);
}

#[test]
fn where_names_lie_is_part_of_the_format() {
    let grouped = ["IMG_0000001.jpg", "IMG_0000002.jpg", "a"].map(|name| cookie(GROUPED, name));
    assert_eq!(
        cookie(SCATTERED, "IMG_0000001.jpg"),
        1_726_254_946_831_874_432
    );
    assert_eq!(
        grouped,
        [
            2_285_349_242_450_273_152,
            2_285_349_243_709_785_728,
            4_138_291_343_053_994_752
        ]
    );
}
