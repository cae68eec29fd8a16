//! Reading on after a read, until the track buffer is full.
//!
//! # Guarantees
//! 1. A sector that was read ahead is served without the surface; one that comes next is met
//!    without a turn while the disk still reads on.
//! 2. The energy of reading on is handed out once: up to `accounted`, and not for time in which a
//!    request was served.

use super::Mechanics;
use crate::ledger::WorkPhase;
use crate::service::JobPart;
use teal_types::{SECTOR, Time};

/// Reading on after a read: a stream of sectors into the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadStream {
    /// First sector in the buffer.
    pub(super) first: u64,
    /// From here on the disk reads on its own,
    pub(super) from: u64,
    /// since this time,
    pub(super) since: Time,
    /// up to here.
    pub(super) limit: u64,
    /// The time until which it was handed out as background work.
    pub(super) accounted: Time,
}

impl Mechanics {
    /// Serves a read that begins in the buffer or where the disk is reading on.
    pub(super) fn read_buffered(
        &mut self,
        stream: ReadStream,
        begin: Time,
        at: u64,
        count: u64,
        parts: &mut Vec<JobPart>,
    ) -> Time {
        let by_bus = begin + self.interface_time(count);
        let (end, here) = (at + count, self.buffered_until(stream, begin));
        let buffer = self.electronics.track_buffer.get() / SECTOR;
        let mut kept = ReadStream {
            first: stream.first.max(end.saturating_sub(buffer)),
            ..stream
        };
        let mut done = begin;
        // The read goes beyond the buffer.
        if end > here && here == stream.limit {
            // The disk had stopped reading: it waits for the place to come round.
            done = self.transfer_sectors(begin, here, end - here, WorkPhase::Read, parts);
            kept = ReadStream {
                from: end,
                since: done,
                ..kept
            };
        } else if end > here {
            // The disk is still reading on: the rest comes without a seek or a turn.
            done = self.stream_time(stream, end).max(begin);
            self.arm_track = self.layout.place_of(end - 1).track;
            parts.push(JobPart::new(
                WorkPhase::Read,
                self.active.read,
                done.since(begin),
            ));
        }
        let last = done.max(by_bus);
        parts.push(JobPart::new(
            WorkPhase::Latency,
            self.active.rotate,
            last.since(done),
        ));
        kept.limit = kept.limit.max(end + buffer).min(self.layout.sector_count());
        kept.accounted = last;
        self.stream = Some(kept);
        last
    }

    /// Hands out the reading on that was done until `now`.
    pub(super) fn read_on(&mut self, now: Time, parts: &mut Vec<JobPart>) {
        let Some(mut stream) = self.stream else {
            return;
        };
        let end = self.stream_time(stream, stream.limit);
        // Reading on stops when the buffer is full.
        let until = now.min(end);
        if until > stream.accounted {
            parts.push(JobPart::new(
                WorkPhase::ReadAhead,
                self.active.read,
                until.since(stream.accounted),
            ));
            stream.accounted = until;
            let here = self.buffered_until(stream, until);
            self.arm_track = self.layout.place_of(here.saturating_sub(1)).track;
            self.free_at = self.free_at.max(until);
        }
        self.stream = Some(stream);
    }

    /// Returns the time at which sector `end` of a stream has been passed.
    fn stream_time(&self, stream: ReadStream, end: u64) -> Time {
        let (mut now, mut next, mut track) = (stream.since, stream.from, None);
        while next < end {
            let place = self.layout.place_of(next);
            if track.is_some_and(|before| before != place.track)
                || track.is_none() && place.sector == 0
            {
                now = now + self.curve.track_switch();
                now = now + self.layout.rotation_wait(now, place);
            }
            let run = (end - next).min(place.left_on_track());
            now = now + self.layout.transfer_time(place, run);
            (next, track) = (next + run, Some(place.track));
        }
        now
    }

    /// Returns the first sector of a stream that is not in the buffer at `now`.
    pub(super) fn buffered_until(&self, stream: ReadStream, now: Time) -> u64 {
        let (mut low, mut high) = (stream.from, stream.limit.max(stream.from));
        while low < high {
            // Binary search: the time at which a sector has passed grows with its number.
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
