//! The admission of uploads, the chunks that are kept, and the times at which work is due.

use super::*;
use teal_types::{ReplicaNo, VolumeId};

const NOW: Duration = Duration::from_secs(100_000);

fn peer(replica: u32) -> Peer {
    Peer {
        volume: VolumeId::new(1),
        replica: ReplicaNo::new(replica),
    }
}

fn chunks(from: u8, many: u8) -> Vec<(ChunkId, u64)> {
    (from..from + many)
        .map(|n| (ChunkId::new([n; 32]), 1000))
        .collect()
}

fn ids(of: &[(ChunkId, u64)]) -> Vec<ChunkId> {
    of.iter().map(|(chunk, _)| *chunk).collect()
}

/// Returns a tracker that has nothing to do from an earlier run.
fn begun() -> UploadTracker {
    let mut uploads = UploadTracker::new(Duration::ZERO);
    uploads.begin_collection(Duration::ZERO);
    uploads
}

#[test]
fn whoever_commits_nothing_is_slowed_then_refused_and_others_are_not() {
    let mut uploads = begun();
    uploads.touch_upload(peer(1), NOW);
    uploads.record_sent(peer(1), chunks(0, 20));
    // A tenth of what was free before the upload, 20,000 bytes of which it has taken.
    assert_eq!(
        uploads.admit_content(peer(1), 1000, Some(900_000)),
        UploadAdmission::Now
    );
    assert_eq!(
        uploads.admit_content(peer(1), 1000, Some(5000)),
        UploadAdmission::After(SLOWED_BY)
    );
    let refused = UploadAdmission::Refused {
        chunks: 20,
        bytes: 20_000,
    };
    assert_eq!(uploads.admit_content(peer(1), 1000, Some(3000)), refused);
    assert_eq!(
        uploads.admit_content(peer(2), 1000, Some(3000)),
        UploadAdmission::Now,
        "the rest is for others"
    );
    assert_eq!(
        uploads.admit_content(peer(1), 1000, None),
        UploadAdmission::Now,
        "where nobody knows how much room there is"
    );
    uploads.record_named(peer(1), &ids(&chunks(0, 20)));
    assert_eq!(
        uploads.admit_content(peer(1), 1000, Some(3000)),
        UploadAdmission::Now,
        "what is named is no upload any more"
    );
}

#[test]
fn an_upload_that_fits_goes_through_on_a_large_disk_that_is_nearly_full() {
    let mut uploads = begun();
    uploads.touch_upload(peer(1), NOW);
    uploads.record_sent(peer(1), chunks(0, 20));
    let free = 1 << 30;
    assert!(free < ROOM_FOR_OTHERS_MAX);
    assert_eq!(
        uploads.admit_content(peer(1), free / 2, Some(free)),
        UploadAdmission::Now
    );
}

#[test]
fn what_is_sent_again_or_named_by_another_counts_once_and_stays_its_own() {
    let mut uploads = begun();
    uploads.touch_upload(peer(1), NOW);
    uploads.record_sent(peer(1), chunks(0, 3));
    uploads.record_sent(peer(1), chunks(2, 2));
    uploads.record_named(peer(2), &ids(&chunks(0, 3)));
    assert_eq!(
        uploads.admit_content(peer(1), 0, Some(0)),
        UploadAdmission::Refused {
            chunks: 4,
            bytes: 4000
        }
    );
    uploads.record_named(peer(1), &ids(&chunks(0, 1)));
    assert_eq!(
        uploads.admit_content(peer(1), 0, Some(0)),
        UploadAdmission::Refused {
            chunks: 3,
            bytes: 3000
        }
    );
}

#[test]
fn an_upload_in_progress_keeps_what_came_since_its_beginning_and_one_given_up_does_not() {
    let mut uploads = begun();
    assert_eq!(
        uploads.time_until_collection(NOW),
        None,
        "nothing is to be done"
    );
    uploads.touch_upload(peer(1), NOW);
    uploads.record_sent(peer(1), chunks(0, 3));
    assert_eq!(uploads.time_until_collection(NOW), Some(UNNAMED_GRACE));
    let begun = NOW.checked_sub(Duration::from_nanos(1));
    let mut now = NOW;
    let mut go_on_until = |uploads: &mut UploadTracker, until| {
        while now < until {
            now += UPLOAD_ACTIVE / 2;
            uploads.touch_upload(peer(1), now);
        }
        now
    };
    let later = go_on_until(&mut uploads, NOW + UNNAMED_GRACE * 3);
    assert_eq!(uploads.keep_since(later), begun);
    assert_eq!(
        uploads.keep_since(later + UPLOAD_ACTIVE),
        Some(later + UPLOAD_ACTIVE - UNNAMED_GRACE),
        "it has gone"
    );
    let much_later = go_on_until(&mut uploads, NOW + UPLOAD_LONGEST);
    assert!(uploads.keep_since(much_later) > begun, "it lasts too long");
    assert_eq!(
        uploads.time_until_collection(much_later + UNNAMED_GRACE),
        Some(Duration::ZERO)
    );
    // After a rest another one begins.
    let rested = much_later + UNNAMED_GRACE * 2;
    uploads.touch_upload(peer(1), rested);
    uploads.record_no_room(peer(2));
    assert_eq!(
        uploads.keep_since(rested + UPLOAD_ACTIVE / 2),
        rested.checked_sub(Duration::from_nanos(1))
    );
}

#[test]
fn an_upload_without_room_goes_first_when_another_needs_it() {
    let mut uploads = begun();
    for n in 1..=2 {
        uploads.touch_upload(peer(n), NOW);
        uploads.record_sent(peer(n), chunks(n as u8 * 10, 3));
    }
    let later = NOW + Duration::from_secs(30);
    for n in 1..=3 {
        uploads.touch_upload(peer(n), later);
    }
    uploads.record_named(peer(2), &ids(&chunks(20, 3)));
    uploads.record_no_room(peer(1));
    assert_eq!(uploads.time_until_collection(later), Some(Duration::ZERO));
    assert_eq!(
        uploads.keep_since(later),
        NOW.checked_sub(Duration::from_nanos(1)),
        "nobody else needs it"
    );
    uploads.record_no_room(peer(3));
    let begun_by_the_third = later.checked_sub(Duration::from_nanos(1));
    assert_eq!(
        uploads.keep_since(later),
        begun_by_the_third,
        "another needs it, and its own upload stays"
    );
    uploads.begin_collection(later);
    uploads.retain_present(later, |chunks| vec![false; chunks.len()]);
    assert_eq!(
        uploads.admit_content(peer(1), 0, Some(0)),
        UploadAdmission::Now,
        "nothing of it is left"
    );
}
