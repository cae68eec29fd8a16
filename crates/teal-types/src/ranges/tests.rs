//! Ranges against a set of bytes.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn bytes(ranges: &ByteRanges) -> BTreeSet<u64> {
    assert!(
        ByteRanges::from_sorted(ranges.0.clone()).is_some(),
        "{ranges:?}"
    );
    ranges.iter().flat_map(|(from, to)| from..to).collect()
}

proptest! {
    #[test]
    fn ranges_are_the_bytes_that_were_added_and_not_removed(
        steps in prop::collection::vec((any::<bool>(), 0..60_u64, 0..20_u64), 0..40),
        other in prop::collection::vec((0..60_u64, 0..20_u64), 0..6),
        window in (0..70_u64, 0..30_u64),
    ) {
        let (mut ranges, mut model) = (ByteRanges::default(), BTreeSet::new());
        for (add, from, len) in steps {
            if add {
                ranges.add(from, from + len);
                model.extend(from..from + len);
            } else {
                ranges.remove(from, from + len);
                model.retain(|byte| !(from..from + len).contains(byte));
            }
            prop_assert_eq!(bytes(&ranges), model.clone());
        }
        let (from, to) = (window.0, window.0 + window.1);
        prop_assert_eq!(ranges.overlaps(from, to), model.range(from..to).next().is_some());
        prop_assert_eq!(bytes(&ranges.clipped_to(from, to)), model.range(from..to).copied().collect::<BTreeSet<_>>());
        let mut others = ByteRanges::default();
        other.iter().for_each(|(from, len)| others.add(*from, from + len));
        let theirs = bytes(&others);
        prop_assert_eq!(bytes(&ranges.difference(&others)), &model - &theirs);
        let mut coarse = ranges.clone();
        coarse.coarsen_to(2);
        prop_assert!(coarse.0.len() <= 2 && bytes(&coarse).is_superset(&model));
        ranges.add_all(&others);
        prop_assert_eq!(bytes(&ranges), &model | &theirs);
    }
}
