//! Headers and items of every kind.

use proptest::prelude::*;
use std::time::Duration;
use teal_trace::{
    Action, EventOutcome, Level, ObjectName, Text, TraceEvent, TraceHeader, TraceItem,
    TracedProcess,
};
use teal_types::Timestamp;

pub(crate) fn plain() -> TraceHeader {
    TraceHeader {
        level: Level::File,
        anonymous: false,
        start: Timestamp::default(),
        machine: Text::default(),
        source: Text::default(),
    }
}

pub(crate) fn text() -> impl Strategy<Value = Text> {
    prop_oneof![
        "[a-z]{1,8}\\.txt".prop_map(|s| Text::new(s.as_bytes()).unwrap()),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Text::new(&bytes).unwrap()),
        Just(Text::new(&[b'\xff'; 4096]).unwrap()),
    ]
}

pub(crate) fn header() -> impl Strategy<Value = TraceHeader> {
    let level = prop_oneof![Just(Level::File), Just(Level::Block)];
    (
        level,
        any::<bool>(),
        any::<i64>(),
        0..1_000_000_000_u32,
        text(),
        text(),
    )
        .prop_map(|(level, anonymous, secs, nanos, machine, source)| {
            let start = Timestamp { secs, nanos };
            TraceHeader {
                level,
                anonymous,
                start,
                machine,
                source,
            }
        })
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..300_u64, any::<u64>(), Just(u64::MAX)]
}

fn action(level: Level) -> BoxedStrategy<Action> {
    let n = number;
    let b = any::<bool>;
    let both = text().prop_map(|text| Action::Mark { text });
    match level {
        Level::Block => prop_oneof![
            (n(), n()).prop_map(|(sector, bytes)| Action::ReadSectors { sector, bytes }),
            (n(), n(), b(), b()).prop_map(|(sector, bytes, flush, fua)| Action::WriteSectors {
                sector,
                bytes,
                flush,
                fua
            }),
            Just(Action::Flush {}),
            (n(), n()).prop_map(|(sector, bytes)| Action::Discard { sector, bytes }),
            both,
        ]
        .boxed(),
        Level::File => prop_oneof![
            prop::sample::select(vec![
                Action::Open {},
                Action::Close {},
                Action::Sync {},
                Action::Stat {},
                Action::Tmpfile {},
                Action::Readlink {},
                Action::Getxattr {},
                Action::Listxattr {},
                Action::Removexattr {},
                Action::Statfs {},
            ]),
            (n(), n()).prop_map(|(offset, length)| Action::Read { offset, length }),
            (n(), n()).prop_map(|(offset, length)| Action::Write { offset, length }),
            b().prop_map(|data| Action::Fsync { data }),
            n().prop_map(|size| Action::Truncate { size }),
            (n(), n(), n()).prop_map(|(offset, length, mode)| Action::Allocate {
                offset,
                length,
                mode
            }),
            (n(), n(), n(), n()).prop_map(|(offset, target, to, length)| Action::Copy {
                offset,
                target,
                to,
                length
            }),
            (n(), b()).prop_map(|(offset, hole)| Action::Seek { offset, hole }),
            (b(), b(), b()).prop_map(|(perm, owner, times)| Action::Setattr { perm, owner, times }),
            text().prop_map(|name| Action::Lookup { name }),
            text().prop_map(|name| Action::Create { name }),
            text().prop_map(|name| Action::Mkdir { name }),
            text().prop_map(|name| Action::Mknod { name }),
            (text(), n()).prop_map(|(name, length)| Action::Symlink { name, length }),
            (text(), n()).prop_map(|(name, target)| Action::Link { name, target }),
            text().prop_map(|name| Action::Unlink { name }),
            text().prop_map(|name| Action::Rmdir { name }),
            (text(), n(), text(), b()).prop_map(|(name, to, new, exchange)| Action::Rename {
                name,
                to,
                new,
                exchange
            }),
            n().prop_map(|length| Action::Readdir { length }),
            n().prop_map(|length| Action::Setxattr { length }),
            both,
        ]
        .boxed(),
    }
}

fn item(level: Level) -> impl Strategy<Value = TraceItem> {
    let outcome = prop_oneof![
        Just(EventOutcome::Unknown),
        number().prop_map(EventOutcome::Done),
        (1..=u16::MAX).prop_map(EventOutcome::Failed)
    ];
    let latency = prop::option::of(number().prop_map(Duration::from_nanos));
    let event = (
        0..1_u64 << 40,
        0..3_u32,
        number(),
        action(level),
        outcome,
        latency,
    );
    prop_oneof![
        8 => event.prop_map(|(gap, process, object, action, outcome, latency)| {
            let at = Duration::from_nanos(gap);
            TraceItem::Event(TraceEvent { at, process, object, action, outcome, latency })
        }),
        1 => (number(), number(), text()).prop_map(|(object, parent, name)| TraceItem::Called(ObjectName { object, parent, name })),
        1 => (any::<u32>(), any::<u32>(), any::<u32>(), text())
            .prop_map(|(id, leader, session, name)| TraceItem::Process(TracedProcess { id, leader, session, name })),
        1 => number().prop_map(TraceItem::Dropped),
    ]
}

/// Items whose times do not go back.
pub(crate) fn items(level: Level) -> impl Strategy<Value = Vec<TraceItem>> {
    prop::collection::vec(item(level), 0..40).prop_map(|mut items| {
        let mut now = Duration::ZERO;
        for item in &mut items {
            if let TraceItem::Event(event) = item {
                now += event.at;
                event.at = now;
            }
        }
        items
    })
}
