//! Reading on after a read, until the track buffer is full.
//!
//! # Guarantees
//! 1. What was read ahead is there without the surface; what comes next is met without a turn while
//!    the disk still reads on.
//! 2. The energy of reading on is handed out once: up to `told`, and not for time in which
//!    something was asked for.

use super::Mechanics;
use crate::ledger::Phase;
use crate::service::Part;
use teal_types::{SECTOR, Time};

/// Reading on after a read: a stream of sectors into the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    /// First sector in the buffer.
    pub(super) first: u64,
    /// From here on the disk reads on its own,
    pub(super) from: u64,
    /// since this time,
    pub(super) since: Time,
    /// up to here.
    pub(super) limit: u64,
    /// Until when it was handed out as background work.
    pub(super) told: Time,
}

impl Mechanics {
    /// A read that begins in the buffer or where the disk is reading on.
    pub(super) fn read_buffered(
        &mut self,
        stream: Stream,
        begin: Time,
        at: u64,
        count: u64,
        parts: &mut Vec<Part>,
    ) -> Time {
        let by_bus = begin + self.bus(count);
        let (end, here) = (at + count, self.buffered(stream, begin));
        let buffer = self.electronics.track_buffer.get() / SECTOR;
        let mut kept = Stream {
            first: stream.first.max(end.saturating_sub(buffer)),
            ..stream
        };
        let mut done = begin;
        if end > here && here == stream.limit {
            // The disk had stopped reading: it waits for the place to come round.
            done = self.surface(begin, here, end - here, Phase::Read, parts);
            kept = Stream {
                from: end,
                since: done,
                ..kept
            };
        } else if end > here {
            done = self.stream_time(stream, end).max(begin);
            self.track = self.layout.place(end - 1).track;
            parts.push(Part::new(Phase::Read, self.active.read, done.since(begin)));
        }
        let last = done.max(by_bus);
        parts.push(Part::new(
            Phase::Latency,
            self.active.rotate,
            last.since(done),
        ));
        kept.limit = kept.limit.max(end + buffer).min(self.layout.sectors());
        kept.told = last;
        self.stream = Some(kept);
        last
    }

    /// Hands out the reading on that was done until `now`.
    pub(super) fn read_on(&mut self, now: Time, parts: &mut Vec<Part>) {
        let Some(mut stream) = self.stream else {
            return;
        };
        let end = self.stream_time(stream, stream.limit);
        let until = now.min(end);
        if until > stream.told {
            parts.push(Part::new(
                Phase::ReadAhead,
                self.active.read,
                until.since(stream.told),
            ));
            stream.told = until;
            let here = self.buffered(stream, until);
            self.track = self.layout.place(here.saturating_sub(1)).track;
            self.free = self.free.max(until);
        }
        self.stream = Some(stream);
    }

    /// When sector `end` of a stream has been passed.
    fn stream_time(&self, stream: Stream, end: u64) -> Time {
        let (mut now, mut next, mut track) = (stream.since, stream.from, None);
        while next < end {
            let place = self.layout.place(next);
            if track.is_some_and(|before| before != place.track)
                || track.is_none() && place.sector == 0
            {
                now = now + self.curve.switch();
                now = now + self.layout.wait(now, place);
            }
            let run = (end - next).min(place.left());
            now = now + self.layout.transfer(place, run);
            (next, track) = (next + run, Some(place.track));
        }
        now
    }

    /// The first sector of a stream that is not in the buffer at `now`.
    pub(super) fn buffered(&self, stream: Stream, now: Time) -> u64 {
        let (mut low, mut high) = (stream.from, stream.limit.max(stream.from));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.stream_time(stream, middle) <= now {
                low = middle
            } else {
                high = middle - 1
            }
        }
        low
    }
}
