//! Access control lists against the definition in POSIX 1003.1e draft 17, sections 23.1.1 to
//! 23.1.6.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Codes of tags as the kernel numbers them.
const CODES: [u16; 6] = [1, 2, 4, 8, 16, 32];

fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

fn decode(entries: &[(u16, u16, u32)]) -> Result<Option<Acl>, i32> {
    Acl::decode(&bytes(entries)).map_err(|e| e.errno())
}

fn well_formed() -> impl Strategy<Value = Acl> {
    let perm = || 0u16..8;
    let named = || proptest::collection::vec((0u32..6, 0u16..8), 0..4);
    (
        perm(),
        named(),
        perm(),
        named(),
        proptest::option::of(perm()),
        perm(),
    )
        .prop_map(|(u, users, g, groups, m, o)| {
            let mut list = vec![AclEntry {
                tag: AclTag::Owner,
                perm: u,
            }];
            list.extend(users.iter().map(|&(id, perm)| AclEntry {
                tag: AclTag::User(id),
                perm,
            }));
            list.push(AclEntry {
                tag: AclTag::OwningGroup,
                perm: g,
            });
            list.extend(groups.iter().map(|&(id, perm)| AclEntry {
                tag: AclTag::Group(id),
                perm,
            }));
            let mask = m.or((users.len() + groups.len() > 0).then_some(7));
            list.extend(mask.map(|perm| AclEntry {
                tag: AclTag::Mask,
                perm,
            }));
            list.push(AclEntry {
                tag: AclTag::Other,
                perm: o,
            });
            Acl::new(list).expect("made by the rules")
        })
}

/// Returns whether a user may have `wanted`, by the access check algorithm of section 23.1.5.
fn grants(
    acl: &Acl,
    owner: u32,
    group: u32,
    user: u32,
    groups: &BTreeSet<u32>,
    wanted: u16,
) -> bool {
    let find = |tag: AclTag| acl.0.iter().find(|e| e.tag == tag).map(|e| e.perm);
    let mask = find(AclTag::Mask).unwrap_or(7);
    let has = |perm: u16| perm & wanted == wanted;
    if user == owner {
        return has(find(AclTag::Owner).expect("required"));
    }
    if let Some(perm) = find(AclTag::User(user)) {
        return has(perm & mask);
    }
    let of_groups: Vec<u16> = acl
        .0
        .iter()
        .filter_map(|e| match e.tag {
            AclTag::OwningGroup => groups.contains(&group).then_some(e.perm),
            AclTag::Group(id) => groups.contains(&id).then_some(e.perm),
            _ => None,
        })
        .collect();
    if of_groups.is_empty() {
        return has(find(AclTag::Other).expect("required"));
    }
    of_groups.into_iter().any(|perm| has(perm & mask))
}

proptest! {
    #[test]
    fn a_list_is_read_as_it_was_written(acl in well_formed()) {
        prop_assert_eq!(Acl::decode(&acl.encode()).expect("well-formed"), Some(acl));
    }

    #[test]
    fn only_what_the_definition_allows_is_read(tags in proptest::collection::vec((0usize..6, 0u16..9), 1..8)) {
        let entries: Vec<_> = tags.iter().map(|&(tag, perm)| (CODES[tag], perm, 7)).collect();
        // By state, as the kernel walks the entries.
        let (mut state, mut needs_mask, mut good) = (0, false, true);
        for &(tag, perm, _) in &entries {
            good &= perm < 8;
            state = match (state, tag) {
                (0, 1) | (1, 2) => 1,
                (1, 4) | (2, 8) => 2,
                (2, 16) => 3,
                (2, 32) if !needs_mask => 4,
                (3, 32) => 4,
                _ => 9,
            };
            needs_mask |= tag == 2 || tag == 8;
        }
        good &= state == 4;
        prop_assert_eq!(decode(&entries).is_ok(), good, "{:?}", entries);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60), version in any::<bool>()) {
        let mut bytes = bytes;
        if version && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&2u32.to_le_bytes());
        }
        if let Ok(Some(acl)) = Acl::decode(&bytes) {
            prop_assert_eq!(acl.encode().len(), bytes.len());
        }
    }

    #[test]
    fn the_mode_is_what_was_set(acl in well_formed(), mode in 0u16..0o1000) {
        let mut changed = acl.clone();
        changed.set_mode(mode);
        prop_assert_eq!(changed.permission_bits(), mode);
        prop_assert_eq!(changed.is_mode(), acl.is_mode());
        let named = |acl: &Acl| -> Vec<AclEntry> {
            acl.0.iter().filter(|e| matches!(e.tag, AclTag::User(_) | AclTag::Group(_))).copied().collect()
        };
        prop_assert_eq!(named(&changed), named(&acl));
    }

    /// Section 23.1.5: a list that is a mode grants what the nine bits grant.
    #[test]
    fn a_list_that_is_a_mode_grants_the_same(mode in 0u16..0o1000, user in 0u32..4, member in any::<bool>(), wanted in 1u16..8) {
        let entries = [(1, mode >> 6, 0), (4, mode >> 3 & 7, 0), (32, mode & 7, 0)];
        let acl = decode(&entries).expect("well-formed").expect("has entries");
        prop_assert!(acl.is_mode());
        prop_assert_eq!(acl.permission_bits(), mode);
        let groups = if member { BTreeSet::from([9]) } else { BTreeSet::new() };
        let class = if user == 1 { mode >> 6 } else if member { mode >> 3 } else { mode };
        prop_assert_eq!(grants(&acl, 1, 9, user, &groups, wanted), class & wanted == wanted);
    }

    /// Section 23.1.6: what is inherited grants nobody more than the default list, nor more than
    /// the bits the maker asked for.
    #[test]
    fn nobody_inherits_more_than_was_given_or_asked_for(
        acl in well_formed(), mode in 0u16..0o1000, user in 0u32..8, groups in proptest::collection::btree_set(0u32..8, 0..4), wanted in 1u16..8
    ) {
        let made = acl.inherited_by(mode);
        prop_assert_eq!(made.permission_bits(), acl.permission_bits() & mode);
        let (owner, group) = (1, 2);
        let granted = grants(&made, owner, group, user, &groups, wanted);
        let given = grants(&acl, owner, group, user, &groups, wanted);
        let is_other = user != owner
            && made.0.iter().all(|e| match e.tag {
                AclTag::User(id) => id != user,
                AclTag::Group(id) => !groups.contains(&id),
                AclTag::OwningGroup => !groups.contains(&group),
                _ => true,
            });
        let class = if user == owner { mode >> 6 } else if is_other { mode } else { mode >> 3 };
        prop_assert!(!granted || (given && class & wanted == wanted));
        if mode == 0o777 {
            prop_assert_eq!(granted, given);
        }
    }
}

#[test]
fn each_malformation_has_its_error_number() {
    let errno = |bytes: &[u8]| Acl::decode(bytes).map_err(|e| e.errno());
    let (invalid, unsupported, too_big) = (Err(22), Err(95), Err(7));
    assert_eq!(errno(b""), Ok(None));
    assert_eq!(errno(&bytes(&[])), Ok(None));
    assert_eq!(errno(&[2, 0, 0]), invalid);
    assert_eq!(errno(&[1, 0, 0, 0]), unsupported);
    assert_eq!(
        errno(&bytes(&[(1, 7, 0), (4, 5, 0), (32, 5, 0)])[..27]),
        invalid
    );
    assert_eq!(decode(&[(1, 7, 0), (4, 5, 0)]), invalid, "nobody else");
    assert_eq!(
        decode(&[(1, 7, 0), (2, 7, 5), (4, 5, 0), (32, 5, 0)]),
        invalid,
        "no mask"
    );
    assert_eq!(
        decode(&[(1, 8, 0), (4, 5, 0), (32, 5, 0)]),
        invalid,
        "a fourth bit"
    );
    assert_eq!(
        decode(&[(4, 5, 0), (1, 7, 0), (32, 5, 0)]),
        invalid,
        "out of order"
    );
    assert_eq!(
        decode(&[(1, 7, 0), (4, 5, 0), (32, 5, 0), (64, 0, 0)]),
        invalid,
        "an unknown tag"
    );
    assert_eq!(
        decode(&[(1, 7, 0), (2, 7, NO_ID), (4, 5, 0), (16, 7, 0), (32, 5, 0)]),
        invalid,
        "nobody named"
    );
    let mut long = vec![(1, 7, 0)];
    long.extend((0..507).map(|id| (2, 7, id)));
    long.extend([(4, 5, 0), (16, 7, 0), (32, 5, 0)]);
    assert!(decode(&long).is_ok(), "as long as the kernel can read");
    long.insert(1, (2, 7, 1000));
    assert_eq!(decode(&long), too_big);
}

#[test]
fn a_mask_hides_the_group_in_the_mode() {
    let acl = decode(&[(1, 6, 0), (2, 7, 5), (4, 4, 0), (16, 5, 0), (32, 0, 0)]);
    let mut acl = acl.expect("well-formed").expect("has entries");
    assert_eq!((acl.permission_bits(), acl.is_mode()), (0o650, false));
    acl.set_mode(0o421);
    assert_eq!(
        acl.encode(),
        bytes(&[
            (1, 4, NO_ID),
            (2, 7, 5),
            (4, 4, NO_ID),
            (16, 2, NO_ID),
            (32, 1, NO_ID)
        ])
    );
}
