//! Composes working days from recorded sessions, with pauses drawn by a seed.
//!
//! # Guarantees
//! 1. The same sessions, length and seed give the same day on every machine.
//! 2. Within a step of a session times are as recorded. Time is added only between sessions and
//!    where a mark says that a person takes time.
//! 3. Files that a session made are its own; what was there before it is the same for all sessions
//!    of its kind.
//!
//! The pauses are [`THINK`] and [`APART`]: a pause twice as long is half as frequent, within
//! bounds. So most of what is asked comes close together, and most of the time is in few pauses, of
//! all lengths.

use crate::numbers::{SeededNumbers, mix_bits};
use std::collections::HashSet;
use std::time::Duration;
use teal_trace::{Action, EventOutcome, TraceEvent, TraceItem};

/// Describes a pause: its shortest length in milliseconds, and the limit on its doublings.
pub type PauseRange = (u64, u32);
/// A person reads or thinks: 2.5 s to 160 s.
pub const THINK: PauseRange = (2_500, 5);
/// A person does something else: 2 min to 128 min.
pub const APART: PauseRange = (120_000, 5);

/// A recorded session.
#[derive(Debug, Clone)]
pub struct RecordedSession {
    /// Names the kind, such as `git`: sessions of one kind begin with the same files.
    pub kind: String,
    /// Recorded items.
    pub items: Vec<TraceItem>,
}

fn draw_pause((shortest, doublings): PauseRange, numbers: &mut SeededNumbers) -> Duration {
    // Trailing zeros of an even number are geometric: a pause twice as long is half as frequent.
    let doubled = numbers.next_u64().trailing_zeros().min(doublings);
    Duration::from_millis((shortest + numbers.next_below(shortest)) << doubled)
}

/// Returns a day of this length, made of these sessions in an order drawn by a seed.
pub fn compose_day(sessions: &[RecordedSession], length: Duration, seed: u64) -> Vec<TraceItem> {
    let mut numbers = SeededNumbers::new(seed);
    let (mut items, mut now, mut instance) = (Vec::new(), Duration::ZERO, 0);
    while now < length && !sessions.is_empty() {
        let session = &sessions[numbers.next_below(sessions.len() as u64) as usize];
        instance += 1;
        now = append_session(&mut items, session, now, (instance, length), &mut numbers);
        now += draw_pause(APART, &mut numbers);
    }
    items
}

/// Puts one session at `begin` and returns the time of its end. Events after the end of the day are
/// left out. The instance tells this session from all others of its kind.
fn append_session(
    items: &mut Vec<TraceItem>,
    session: &RecordedSession,
    begin: Duration,
    (instance, end): (u64, Duration),
    numbers: &mut SeededNumbers,
) -> Duration {
    let mut objects = SessionObjects {
        kind: hash_kind(&session.kind),
        instance,
        made: HashSet::new(),
    };
    let mut clock = SessionClock {
        recorded: Duration::ZERO,
        now: begin,
        marked: begin,
    };
    for item in &session.items {
        match item {
            TraceItem::Event(event) => {
                clock.advance_to(event.at);
                if let Action::Mark { text } = &event.action {
                    clock.take_mark(text.as_bytes(), numbers);
                    continue;
                }
                // The day ends within the session.
                if clock.now > end {
                    break;
                }
                objects.note_made(event);
                // The event keeps everything but its time and its numbers.
                let shifted = shift_event(event, clock.now, |object| objects.of_day(object));
                items.push(TraceItem::Event(shifted));
            }
            TraceItem::Called(called) => items.push(TraceItem::Called(teal_trace::ObjectName {
                object: objects.of_day(called.object),
                parent: objects.of_day(called.parent),
                ..called.clone()
            })),
            _ => {}
        }
    }
    debug_assert!(clock.now >= begin, "a session ends after its beginning");
    clock.now
}

/// Returns a number of a kind: it separates the files of one kind from those of another.
fn hash_kind(kind: &str) -> u64 {
    // The name is text of the user: any length, any bytes.
    let mut sum = 0;
    for byte in kind.bytes() {
        sum = mix_bits(sum ^ u64::from(byte));
    }
    sum >> 40
}

/// Holds the time of a session in the day.
struct SessionClock {
    /// Time of the last event in the recording.
    recorded: Duration,
    now: Duration,
    /// Time of the last mark in the day.
    marked: Duration,
}

impl SessionClock {
    /// Goes on to an event: distances between events are kept.
    fn advance_to(&mut self, at: Duration) {
        // A recording that was put together may go back in time: that is no distance.
        self.now += at.saturating_sub(self.recorded);
        self.recorded = at;
    }

    /// Moves all that follows by what a mark says: `play` holds a pace since the mark before,
    /// `think` draws a pause.
    fn take_mark(&mut self, words: &[u8], numbers: &mut SeededNumbers) {
        // Any other word only names a place in the recording.
        let words = String::from_utf8_lossy(words);
        let pace = words
            .strip_prefix("play ")
            .and_then(|pace| pace.parse().ok());
        if let Some(pace) = pace {
            self.now = self.now.max(self.marked + Duration::from_millis(pace));
        } else if words == "think" {
            self.now += draw_pause(THINK, numbers);
        }
        self.marked = self.now;
    }
}

/// Numbers the objects of a session in the day.
struct SessionObjects {
    kind: u64,
    instance: u64,
    /// Objects that the session has made.
    made: HashSet<u64>,
}

impl SessionObjects {
    fn note_made(&mut self, event: &TraceEvent) {
        if let EventOutcome::Done(object) = event.outcome
            && creates_object(&event.action)
        {
            self.made.insert(object);
        }
    }

    /// Returns an object's number in the day: 0 stays 0. Files that the session made get a number
    /// of this instance, the others one that all sessions of the kind share.
    fn of_day(&self, object: u64) -> u64 {
        if object == 0 {
            return 0;
        }
        // The instance stands in bits above those of recorded numbers.
        let whose = if self.made.contains(&object) {
            self.instance << 24
        } else {
            0
        };
        mix_bits(self.kind ^ (whose << 16)) << 20 ^ object
    }
}

fn creates_object(action: &Action) -> bool {
    matches!(
        action,
        Action::Create { .. }
            | Action::Mkdir { .. }
            | Action::Mknod { .. }
            | Action::Symlink { .. }
            | Action::Tmpfile { .. }
    )
}

fn shift_event(event: &TraceEvent, at: Duration, own: impl Fn(u64) -> u64) -> TraceEvent {
    let mut event = TraceEvent {
        at,
        object: own(event.object),
        ..event.clone()
    };
    match &mut event.action {
        Action::Link { target, .. } | Action::Copy { target, .. } => *target = own(*target),
        Action::Rename { to, .. } => *to = own(*to),
        _ => {}
    }
    // The outcome of these actions is an object's number, not bytes.
    let finds = creates_object(&event.action) || matches!(event.action, Action::Lookup { .. });
    if let (true, EventOutcome::Done(object)) = (finds, event.outcome) {
        event.outcome = EventOutcome::Done(own(object));
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_trace::{Text, TextReader};

    fn session(kind: &str, lines: &str) -> RecordedSession {
        let reader =
            TextReader::new(format!("teal-trace 1 file\n{lines}").leak().as_bytes()).unwrap();
        RecordedSession {
            kind: kind.into(),
            items: reader.map(Result::unwrap).collect(),
        }
    }

    fn sessions() -> Vec<RecordedSession> {
        let lines = "0.1 7 5 read offset=0 length=10 = 10\n0.2 7 1 create name=\"a\" = 9\n0.3 7 9 \
                     write offset=0 length=5 = 5\n\
                     0.4 7 0 mark text=\"think\"\n0.5 7 5 read offset=0 length=10 = 10\n0.6 7 0 \
                     mark text=\"play 16384\"\n0.7 7 9 read offset=0 length=5 = 5\n";
        vec![session("edit", lines), session("git", lines)]
    }

    fn events(items: &[TraceItem]) -> Vec<&TraceEvent> {
        let events = items.iter().filter_map(|item| {
            if let TraceItem::Event(event) = item {
                Some(event)
            } else {
                None
            }
        });
        events.collect()
    }

    #[test]
    fn a_seed_is_a_day() {
        let hour = Duration::from_secs(3600);
        let one = compose_day(&sessions(), hour, 7);
        assert_eq!(one, compose_day(&sessions(), hour, 7));
        assert_ne!(one, compose_day(&sessions(), hour, 8));
        let events = events(&one);
        assert!(
            events.windows(2).all(|pair| pair[0].at <= pair[1].at)
                && events.last().unwrap().at <= hour
        );
        assert!(compose_day(&[], hour, 7).is_empty());
    }

    #[test]
    fn time_is_added_only_where_somebody_takes_it() {
        let one = compose_day(&sessions()[..1], Duration::from_secs(60), 1);
        let at: Vec<_> = events(&one)
            .iter()
            .map(|event| event.at.as_millis())
            .collect();
        assert_eq!(at[..3], [100, 200, 300]);
        let think = at[3] - at[2] - 200;
        assert!((2_500..160_000).contains(&think), "{think}");
        assert_eq!(
            at[4] - at[3],
            16_384,
            "the pace counts from the mark before"
        );
    }

    #[test]
    fn what_a_session_made_is_its_own() {
        let day = compose_day(&sessions()[..1], Duration::from_secs(6 * 3600), 3);
        let events = events(&day);
        let read: HashSet<u64> = events
            .iter()
            .filter(|e| e.action.word() == "read")
            .map(|e| e.object)
            .collect();
        let made: Vec<u64> = events
            .iter()
            .filter(|e| e.action.word() == "write")
            .map(|e| e.object)
            .collect();
        let name = Text::truncated(b"a");
        assert!(
            events
                .iter()
                .any(|e| e.action == Action::Create { name: name.clone() })
        );
        let each: HashSet<u64> = made.iter().copied().collect();
        assert!(
            made.len() > 3 && each.len() == made.len(),
            "each session another one"
        );
        assert_eq!(
            read.difference(&each).count(),
            1,
            "all sessions read the file that was there"
        );
    }
}
