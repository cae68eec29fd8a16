//! The choice among sources, as reads and answers come in.

use super::attached::{AttachedDrive, DriveFacts};
use super::attached_drives::{AttachedDrives, ContentSource};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teal_device::{Drive, DriveLabel};
use teal_energy::Profile;
use teal_env::Clock;
use teal_env::{MemDisk, SystemClock, SystemEntropy};
use teal_proto::ContentAnswer;
use teal_proto::{ClientRequest, ServerReply, encode_reply};
use teal_types::{BLOCK, CommitSeq, DriveNo, ObjectNo};
use teal_types::{SECTOR, TimeSpan};

const NO: ObjectNo = ObjectNo::new(70);
const SEQ: CommitSeq = CommitSeq::new(3);

/// A drive in memory, of a profile.
fn drive(profile: Option<&Profile>) -> Arc<AttachedDrive> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let disk = Arc::new(MemDisk::new((16 << 20) / SECTOR));
    let drive = Drive::create(
        disk,
        Arc::clone(&clock),
        &SystemEntropy,
        "usb",
        DriveLabel::default(),
    )
    .unwrap();
    let facts = DriveFacts {
        device: DriveNo::new(1),
        name: "usb".into(),
        place: "there".into(),
        profile: String::new(),
        is_untold: false,
    };
    let attached = AttachedDrive::new(facts, drive, profile, Duration::ZERO).unwrap();
    attached.set_checked(true);
    Arc::new(attached)
}

fn with(drive: &Arc<AttachedDrive>) -> AttachedDrives {
    let drives = AttachedDrives::default();
    drives.attach(Arc::clone(drive)).unwrap();
    drives
}

/// The server has sent a block.
fn answers(drives: &AttachedDrives, millis: u64) {
    let data = teal_proto::ReplyPiece {
        offset: 0,
        bytes: serde_bytes::ByteBuf::from(vec![1; 4096]),
    };
    let reply = ServerReply::Data(vec![ContentAnswer::Is {
        len: 4096,
        pieces: vec![data],
    }]);
    let is_busy = drives.is_sending();
    drives.note_answer(
        &ClientRequest::Read { wants: Vec::new() },
        &reply,
        (Duration::from_millis(millis), is_busy),
    );
}

/// Returns whether the drive comes first.
fn is_drive_first(drives: &AttachedDrives) -> bool {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let order = drives.ordered_sources((NO, SEQ), BLOCK, true, (&clock, true));
    matches!(order.first(), Some(ContentSource::Drive(_)))
}

#[test]
fn after_a_jump_of_the_delay_the_clients_choice_follows_within_twenty_accesses() {
    let usb = drive(None);
    let drives = with(&usb);
    (0..8).for_each(|_| usb.meter().note_read(BLOCK, TimeSpan::from_millis(20)));
    for _ in 0..50 {
        answers(&drives, 2);
    }
    assert!(!is_drive_first(&drives));
    let mut accesses = 0;
    while !is_drive_first(&drives) {
        answers(&drives, 62);
        accesses += 1;
    }
    assert!(accesses <= 20, "{accesses}");
    // And back: what the drive serves is time for trying the server.
    let mut back = 0;
    loop {
        if is_drive_first(&drives) {
            usb.meter().note_read(BLOCK, TimeSpan::from_millis(20));
            drives.server_waits(TimeSpan::from_millis(20));
        } else {
            answers(&drives, 2);
            back += 1;
            if drives.server_latency().predict_time(BLOCK) < Some(TimeSpan::from_millis(20)) {
                break;
            }
        }
    }
    assert!(back <= 20, "{back}");
}

#[test]
fn nobody_waits_for_a_drive_that_sleeps_and_it_is_woken_once_that_pays() {
    // Its start costs what many reads lose.
    let disk = Profile::find_shipped("hitachi-travelstar-5k320").unwrap();
    let usb = drive(Some(&disk));
    let drives = with(&usb);
    usb.note_use(SystemClock.monotonic_time());
    answers(&drives, 60);
    assert!(is_drive_first(&drives), "it is awake, and faster");
    usb.sleep_long_ago();
    let mut served = 0;
    while usb.counters.woken.load(Ordering::Relaxed) == 0 {
        assert!(!is_drive_first(&drives), "another has it");
        answers(&drives, 60);
        served += 1;
        assert!(served < 1000, "what was lost never counts");
    }
    assert!(served > 1, "not for one read");
    assert_eq!(usb.counters.asleep.load(Ordering::Relaxed), served);
    while usb.reader.is_late() || usb.is_asleep(SystemClock.monotonic_time()) {
        std::thread::yield_now();
    }
    assert!(is_drive_first(&drives), "it was woken");
    // Without another, it is asked whatever it does.
    usb.sleep_long_ago();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let alone = drives.ordered_sources((NO, SEQ), BLOCK, false, (&clock, true));
    assert!(matches!(alone[..], [ContentSource::Drive(_)]));
}

#[test]
fn nobody_waits_for_a_drive_that_is_slow_or_gone() {
    let usb = drive(None);
    let drives = with(&usb);
    usb.meter().note_read(BLOCK, TimeSpan::from_millis(1));
    answers(&drives, 200);
    assert!(is_drive_first(&drives));
    let (go, gone) = std::sync::mpsc::channel::<()>();
    assert_eq!(
        usb.reader
            .run_with_deadline(Duration::from_millis(1), move || gone.recv().is_ok()),
        None
    );
    for n in 1..=5 {
        assert!(!is_drive_first(&drives));
        assert_eq!(usb.counters.avoided.load(Ordering::Relaxed), n);
    }
    drop(go);
    while usb.reader.is_late() {
        std::thread::yield_now();
    }
    assert!(is_drive_first(&drives), "it has come back");
    usb.queue.let_go();
    assert!(!is_drive_first(&drives));
}

#[test]
fn a_burst_under_way_is_anticipated() {
    let usb = drive(None);
    let drives = with(&usb);
    usb.meter().note_read(BLOCK, TimeSpan::from_millis(10));
    answers(&drives, 15);
    assert!(is_drive_first(&drives));
    let burst = usb.hold_burst();
    assert!(!is_drive_first(&drives), "it would wait behind it");
    usb.meter().note_busy_read(BLOCK, TimeSpan::from_millis(11));
    assert!(is_drive_first(&drives), "it was measured");
    drop(burst);
    assert!(is_drive_first(&drives));
}

#[test]
fn a_batch_on_its_way_to_the_server_is_anticipated() {
    let usb = drive(None);
    let drives = with(&usb);
    (0..8).for_each(|_| usb.meter().note_read(BLOCK, TimeSpan::from_millis(15)));
    answers(&drives, 10);
    assert!(!is_drive_first(&drives));
    let quiet = drives.server_latency().predict_time(BLOCK);
    let batch = drives.begin_sending();
    assert!(is_drive_first(&drives), "content would come behind it");
    drives.note_answer(
        &ClientRequest::Have { chunks: Vec::new() },
        &ServerReply::Done,
        (Duration::from_secs(1), true),
    );
    answers(&drives, 11);
    assert!(!is_drive_first(&drives), "it was measured");
    drop(batch);
    assert_eq!(
        drives.server_latency().predict_time(BLOCK),
        quiet,
        "that tells nothing of how it is otherwise"
    );
    assert!(!is_drive_first(&drives));
}

#[test]
fn names_tell_how_narrow_the_way_to_the_server_is_before_any_content_comes() {
    let usb = drive(None);
    let drives = with(&usb);
    usb.meter().note_read(BLOCK, TimeSpan::from_millis(2));
    let answered = |reply: &ServerReply, millis| {
        let request = ClientRequest::List {
            dirs: Vec::new(),
            ahead: 0,
        };
        drives.note_answer(
            &request,
            reply,
            (Duration::from_millis(millis), drives.is_sending()),
        );
    };
    let listing = |no: u64| teal_proto::DirectoryListing {
        dir: ObjectNo::new(no),
        entries: None,
        more: false,
    };
    let few = ServerReply::Listings {
        head: SEQ,
        dirs: vec![listing(70)],
    };
    let many = ServerReply::Listings {
        head: SEQ,
        dirs: (1 << 20..(1 << 20) + 20_000).map(listing).collect(),
    };
    let blocks = encode_reply(&many).unwrap().len() as u64 / BLOCK;
    assert!(blocks > 10, "{blocks}");
    answered(&ServerReply::Done, 1);
    answered(&few, 1);
    assert!(
        !is_drive_first(&drives) && drives.is_server_unknown(),
        "the way is short, and that is all that is known"
    );
    answered(&many, 1 + 16 * (blocks + 1));
    assert!(
        is_drive_first(&drives) && !drives.is_server_unknown(),
        "2 Mbit/s"
    );
    answered(&many, 1 + (blocks + 1) / 10);
    assert!(!is_drive_first(&drives), "it was the server's work");
    assert!(
        !AttachedDrives::default().is_server_unknown(),
        "who has no drives asks the server for all"
    );
}

#[test]
fn a_drive_that_is_written_to_outside_of_a_burst_is_anticipated() {
    let usb = drive(None);
    assert!(!usb.is_busy());
    let label = usb.drive.update_label(|_| assert!(usb.is_busy()));
    assert!(label.is_ok() && !usb.is_busy());
}
