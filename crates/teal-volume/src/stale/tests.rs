//! Rules and bounds of the list of files that the kernel may be behind with.

use super::*;

const FILE: ObjectNo = ObjectNo::new(7);

fn seq(n: u64) -> CommitSeq {
    CommitSeq::new(n)
}

/// A file of 5 bytes that has 10 now, by commit 3; the kernel knows commit 2.
fn grown() -> StaleFiles {
    let stale = StaleFiles::default();
    stale.note_replaced(FILE, 5, seq(2), seq(3));
    stale
}

#[test]
fn a_write_at_the_size_the_kernel_was_given_appends() {
    let stale = grown();
    assert_eq!(stale.place_write(FILE, 5, 10, true), WritePlacement::End);
    assert_eq!(
        stale.place_write(FILE, 10, 10, true),
        WritePlacement::End,
        "the end is the end"
    );
}

#[test]
fn any_other_write_is_positioned_on_what_the_kernel_was_given() {
    let stale = grown();
    for (offset, asks_for_end) in [(5, false), (12, false), (4, true), (6, true)] {
        assert_eq!(
            stale.place_write(FILE, offset, 10, asks_for_end),
            WritePlacement::Offset(Some(seq(2))),
            "{offset}"
        );
    }
    assert_eq!(
        stale.place_write(FILE, 10, 10, false),
        WritePlacement::Offset(None),
        "it takes nothing from anybody"
    );
    assert_eq!(
        stale.place_write(ObjectNo::new(8), 5, 10, true),
        WritePlacement::Offset(None),
        "nothing is known of others"
    );
}

#[test]
fn a_kernel_that_was_told_of_the_new_size_does_not_append_at_the_old_one() {
    let stale = grown();
    stale.note_kernel_size(FILE, 10, 10);
    assert_eq!(
        stale.place_write(FILE, 5, 10, true),
        WritePlacement::Offset(Some(seq(2)))
    );
    // Programs still act on the content they have seen.
    assert_eq!(
        stale.place_write(FILE, 5, 10, false),
        WritePlacement::Offset(Some(seq(2)))
    );
}

#[test]
fn what_is_given_after_the_change_is_the_base_from_then_on() {
    let stale = grown();
    stale.note_given(FILE, Moment(0));
    assert!(
        stale.was_replaced_after(FILE, Moment(0)),
        "the answer may be of before"
    );
    assert_eq!(
        stale.place_write(FILE, 2, 10, false),
        WritePlacement::Offset(Some(seq(2)))
    );
    stale.note_given(FILE, stale.current_moment());
    assert!(!stale.was_replaced_after(FILE, stale.current_moment()));
    assert_eq!(
        stale.place_write(FILE, 2, 10, false),
        WritePlacement::Offset(None)
    );
    stale.note_kernel_size(FILE, 10, 10);
    assert!(
        stale.listed.lock().files.is_empty(),
        "nothing is left to know"
    );
}

#[test]
fn appends_follow_each_other_in_the_places_of_the_kernel() {
    let stale = grown();
    // Three requests of one write: the kernel counts on from where it began.
    for (offset, size) in [(5, 10), (9, 14), (13, 18)] {
        assert_eq!(
            stale.place_write(FILE, offset, size, true),
            WritePlacement::End,
            "{offset}"
        );
        stale.note_kernel_size(FILE, offset + 4, size + 4);
    }
    assert_eq!(stale.place_write(FILE, 17, 22, true), WritePlacement::End);
    assert_eq!(
        stale.place_write(FILE, 5, 22, true),
        WritePlacement::Offset(Some(seq(2))),
        "the kernel is beyond that"
    );
}

#[test]
fn a_kernel_that_wrote_while_it_was_told_holds_the_larger_size() {
    let stale = grown();
    // Its write from 5 to 15 ends after it was told of 10.
    stale.note_kernel_size(FILE, 15, 20);
    stale.note_kernel_size(FILE, 10, 20);
    assert_eq!(stale.place_write(FILE, 15, 20, true), WritePlacement::End);
    assert_eq!(
        stale.place_write(FILE, 10, 20, true),
        WritePlacement::Offset(Some(seq(2)))
    );
}

#[test]
fn a_write_inside_the_file_changes_nothing_of_its_end() {
    let stale = grown();
    stale.note_kernel_size(FILE, 3, 10);
    assert_eq!(stale.place_write(FILE, 5, 10, true), WritePlacement::End);
    assert_eq!(
        stale.place_write(FILE, 3, 10, true),
        WritePlacement::Offset(Some(seq(2)))
    );
}

#[test]
fn the_oldest_changes_make_way_for_new_ones() {
    let stale = StaleFiles::default();
    let first = ObjectNo::new(1);
    for no in 1..=FILES_MAX as u64 {
        stale.note_replaced(ObjectNo::new(no), 5, seq(2), seq(3));
    }
    assert_eq!(stale.place_write(first, 5, 10, true), WritePlacement::End);
    // Changed again, it is among the newest.
    stale.note_replaced(first, 10, seq(3), seq(4));
    stale.note_replaced(ObjectNo::new(1 << 40), 5, seq(2), seq(3));
    assert_eq!(stale.place_write(first, 5, 20, true), WritePlacement::End);
    assert_eq!(
        stale.place_write(first, 4, 20, true),
        WritePlacement::Offset(Some(seq(2))),
        "what was seen first counts"
    );
    assert_eq!(
        stale.place_write(ObjectNo::new(2), 5, 10, true),
        WritePlacement::Offset(None)
    );
    for size in 100..110 {
        stale.note_replaced(first, size, seq(5), seq(6));
    }
    assert_eq!(
        stale.place_write(first, 100, 200, true),
        WritePlacement::Offset(Some(seq(2))),
        "the newest sizes are kept"
    );
    assert_eq!(
        stale.place_write(first, 109, 200, true),
        WritePlacement::End
    );
}

#[test]
fn a_size_that_the_kernel_was_told_too_late_is_known_to_be_none() {
    let stale = StaleFiles::default();
    stale.note_possible_size(FILE, 10);
    assert_eq!(stale.place_write(FILE, 10, 0, true), WritePlacement::End);
    assert_eq!(
        stale.place_write(FILE, 4, 0, true),
        WritePlacement::Offset(None)
    );
}

#[test]
fn a_file_that_the_kernel_forgets_is_not_listed() {
    let stale = grown();
    stale.forget_file(FILE);
    assert_eq!(
        stale.place_write(FILE, 5, 10, true),
        WritePlacement::Offset(None)
    );
}
