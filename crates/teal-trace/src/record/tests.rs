//! Recordings with a real clock and a writer in memory.

use super::*;
use crate::{Level, TraceEnding, TraceEvent, TraceHeader, TraceItem, TraceReader};
use std::collections::HashMap;
use std::time::Duration;
use teal_env::SystemClock;
use teal_types::Timestamp;

/// A file that is looked at while it is written, with so much room.
#[derive(Debug, Clone)]
struct File(Arc<Mutex<Vec<u8>>>, usize);

impl File {
    fn new(room: usize) -> Self {
        Self(Arc::default(), room)
    }
    fn read(&self) -> (Vec<String>, TraceEnding) {
        let bytes = self.0.lock().clone();
        let mut reader = TraceReader::new(&bytes[..]).unwrap();
        let items = reader
            .by_ref()
            .map(|item| timeless(&item.unwrap()))
            .collect();
        (items, reader.ending().unwrap().clone())
    }
}

/// An item as text, an event's without its times.
fn timeless(item: &TraceItem) -> String {
    match item {
        TraceItem::Event(event) => {
            let at = Duration::ZERO;
            TraceItem::Event(TraceEvent {
                at,
                latency: None,
                ..event.clone()
            })
            .to_string()
            .replacen("0.000000000 ", "", 1)
        }
        item => item.to_string(),
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.0.lock();
        let room = self.1.saturating_sub(file.len()).min(bytes.len());
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.extend_from_slice(&bytes[..room]);
        Ok(room)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct World(HashMap<u64, (u64, &'static str)>);

impl RecordingContext for World {
    fn name_of(&mut self, object: u64) -> Option<(u64, Vec<u8>)> {
        self.0
            .get(&object)
            .map(|(parent, name)| (*parent, name.as_bytes().to_vec()))
    }
    fn process_facts(&mut self, id: u32) -> Option<ProcessFacts> {
        (id == 70).then(|| ProcessFacts {
            leader: 7,
            session: 6,
            name: b"vi".to_vec(),
        })
    }
}

fn settings() -> RecordingSettings {
    let empty = Text::default();
    let header = TraceHeader {
        level: Level::File,
        anonymous: false,
        start: Timestamp::default(),
        machine: empty.clone(),
        source: empty,
    };
    RecordingSettings {
        header,
        root: 1,
        limit: None,
        key: [3; 16],
    }
}

fn start(file: &File, settings: RecordingSettings) -> TraceRecording {
    let names = HashMap::from([(5, (4, "b")), (4, (1, "a"))]);
    let clock = Arc::new(SystemClock);
    TraceRecording::start(
        file.clone(),
        |_| Ok(()),
        settings,
        clock,
        Box::new(World(names)),
        |p| assert!(p.ended),
    )
    .unwrap()
}

fn name(name: &str) -> Text {
    Text::truncated(name.as_bytes())
}

#[test]
fn events_are_written_in_the_order_of_their_beginning_with_names_and_processes() {
    let file = File::new(1 << 20);
    let recording = start(&file, settings());
    let recorder = recording.recorder();
    let read = recorder
        .begin_event(
            70,
            5,
            Action::Read {
                offset: 0,
                length: 9,
            },
        )
        .unwrap();
    let made = recorder
        .begin_event(71, 4, Action::Create { name: name("new") })
        .unwrap();
    recorder.end_event(made, EventOutcome::Done(12));
    let wrote = recorder
        .begin_event(
            70,
            12,
            Action::Write {
                offset: 0,
                length: 3,
            },
        )
        .unwrap();
    recorder.end_event(wrote, EventOutcome::Failed(28));
    recorder.set_mark(name("phase 2"));
    recorder.end_event(read, EventOutcome::Done(9));
    let _open = recorder
        .begin_event(0, 99, Action::Fsync { data: true })
        .unwrap();
    let done = recording.finish();
    assert_eq!(
        (done.events, done.dropped, done.ended, done.failure),
        (5, 0, true, None)
    );
    assert_eq!(done.bytes, file.0.lock().len() as u64);
    let want = [
        "process 70 7 6 \"vi\"",
        "called 1 0 \"\"",
        "called 4 1 \"a\"",
        "called 5 4 \"b\"",
        "70 5 read offset=0 length=9 = 9",
        "71 4 create name=\"new\" = 12",
        "70 12 write offset=0 length=3 ! 28",
        "0 0 mark text=\"phase 2\"",
        "0 99 fsync data=yes",
    ];
    assert_eq!(
        file.read(),
        (want.map(str::to_owned).to_vec(), TraceEnding::Complete)
    );
    assert_eq!(
        recorder.begin_event(0, 5, Action::Stat {}),
        None,
        "it has ended"
    );
}

#[test]
fn what_is_too_much_is_dropped_and_counted_where_it_is_missing() {
    let file = File::new(64 << 20);
    let recording = start(&file, settings());
    let recorder = recording.recorder();
    // One that is not answered holds up all the others, until the queue is full.
    let slow = recorder
        .begin_event(0, 5, Action::Fsync { data: false })
        .unwrap();
    let mut dropped = 0;
    for n in 0..QUEUE_MAX as u64 + 10 {
        match recorder.begin_event(
            0,
            5,
            Action::Read {
                offset: n,
                length: 1,
            },
        ) {
            Some(ticket) => recorder.end_event(ticket, EventOutcome::Done(1)),
            None => dropped += 1,
        }
    }
    recorder.end_event(slow, EventOutcome::Done(0));
    assert!(dropped >= 1, "the queue was full");
    let done = recording.finish();
    assert_eq!(
        (done.dropped, done.events),
        (dropped, QUEUE_MAX as u64 + 11 - dropped)
    );
    let (items, ending) = file.read();
    assert_eq!(ending, TraceEnding::Complete);
    assert_eq!(
        items[3], "0 5 fsync data=no",
        "it is not waited for any longer, and has no outcome"
    );
    let said = items
        .iter()
        .filter_map(|item| item.strip_prefix("dropped ")?.parse::<u64>().ok());
    assert_eq!(said.sum::<u64>(), dropped);
}

#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() {
    let file = File::new(100_000);
    let recording = start(&file, settings());
    let recorder = recording.recorder();
    let mut handed = 0;
    while let Some(ticket) = recorder.begin_event(
        0,
        5,
        Action::Lookup {
            name: name(&"x".repeat(200)),
        },
    ) {
        recorder.end_event(ticket, EventOutcome::Failed(2));
        handed += 1;
        assert!(handed < 100_000_000, "it never ends");
    }
    let done = recording.finish();
    assert!(
        done.ended
            && done
                .failure
                .is_some_and(|why| why.contains("no storage space")),
        "{handed}"
    );
    let (items, ending) = file.read();
    assert!(items.len() > 100 && matches!(ending, TraceEnding::CutOff { .. }));
}

#[test]
fn what_was_handed_in_is_in_the_file_soon_and_without_an_end() {
    let file = File::new(1 << 20);
    let recording = start(&file, settings());
    let recorder = recording.recorder();
    let ticket = recorder.begin_event(0, 5, Action::Stat {}).unwrap();
    recorder.end_event(ticket, EventOutcome::Done(0));
    let clock = SystemClock;
    let patience = clock.monotonic_time() + Duration::from_secs(60);
    while file.read().0.len() < 4 {
        assert!(
            clock.monotonic_time() < patience,
            "nothing is written: {:?}",
            file.read()
        );
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert!(matches!(
        file.read().1,
        TraceEnding::CutOff { blocks: 1, .. }
    ));
    recording.finish();
    assert_eq!(file.read().1, TraceEnding::Complete);
}

#[test]
fn a_recording_ends_when_its_time_is_over() {
    let file = File::new(1 << 20);
    let limit = Some(Duration::from_millis(100));
    let recording = start(
        &file,
        RecordingSettings {
            limit,
            ..settings()
        },
    );
    let recorder = recording.recorder();
    while recorder.begin_event(0, 1, Action::Stat {}).is_some() {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let done = recording.finish();
    assert!(done.ended && done.failure.is_none() && done.events > 0);
    assert_eq!(file.read().1, TraceEnding::Complete);
}

#[test]
fn an_anonymous_recording_has_no_name_in_it() {
    let file = File::new(1 << 20);
    let mut settings = settings();
    settings.header.anonymous = true;
    let recording = start(&file, settings);
    let recorder = recording.recorder();
    let secret = name("secret plan.odt");
    for action in [
        Action::Create {
            name: secret.clone(),
        },
        Action::Unlink { name: secret },
    ] {
        let ticket = recorder.begin_event(70, 5, action).unwrap();
        recorder.end_event(ticket, EventOutcome::Done(12));
    }
    recorder.set_mark(name("phase 1"));
    recording.finish();
    let (items, _) = file.read();
    let all = items.join("\n");
    assert!(
        !all.contains("secret") && !all.contains("vi\"") && !all.contains("\"a\""),
        "{all}"
    );
    let hidden = items[4].split('"').nth(1).unwrap();
    assert!(
        hidden.ends_with(".odt") && items[5].contains(hidden) && all.contains("phase 1"),
        "{all}"
    );
}
