//! A disk's mechanics: where the arm and the surface are, and what each request costs in time and
//! energy.
//!
//! # Guarantees
//! 1. *Deterministic*: the same requests at the same times give the same answers. The angle of the
//!    surface is a function of time.
//! 2. *Accounted*: a request's parts fill the time from when the mechanics was free for it to its
//!    end; background work is handed out exactly once.
//! 3. *Durable means durable*: after [`Request::Flush`], and after a write with `fua`, the surface
//!    holds what was written.
//! 4. A stream of requests that follow each other without a gap costs no seek and no turn.
//!
//! How: addresses run along tracks, outermost first, in zones of equal tracks. Neighbouring tracks
//! are skewed by the time of a seek between them. After a read the drive reads on until its buffer
//! is full; written data that went to the cache is put on the surface in the order of addresses as
//! soon as nothing else is to be done. The place of a request matters here; at file level
//! [`service`](crate::service) has the averages.

mod ahead;
mod cache;
mod layout;
mod seek;
#[cfg(test)]
mod tests;

use crate::ledger::Phase;
use crate::power::Missing;
use crate::profile::{Active, Electronics, Profile};
use crate::service::{Job, Part};
use ahead::Stream;
use cache::Dirty;
use layout::Layout;
use seek::Curve;
use teal_types::{Power, SECTOR, Sector, Span, Time};

/// What is asked of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Read `count` sectors.
    Read {
        /// The first.
        at: Sector,
        /// How many.
        count: u64,
    },
    /// Write `count` sectors.
    Write {
        /// The first.
        at: Sector,
        /// How many.
        count: u64,
        /// Answer only when they are on the surface.
        fua: bool,
    },
    /// Put all that was written on the surface.
    Flush,
}

/// A request that was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// When it began: at the time it was asked, or when background work under way was finished.
    pub start: Time,
    /// When it was done.
    pub done: Time,
    /// What was done for it, from start to done.
    pub job: Job,
    /// What the disk had done on its own before.
    pub background: Job,
}

/// The state of a disk's mechanics.
#[derive(Debug, Clone)]
pub struct Mechanics {
    layout: Layout,
    curve: Curve,
    active: Active,
    electronics: Electronics,
    track: u64,
    free: Time,
    stream: Option<Stream>,
    dirty: Dirty,
}

impl Mechanics {
    /// A disk at rest, its arm on the outermost track.
    ///
    /// # Errors
    /// [`Missing`] figures.
    pub fn new(profile: &Profile) -> Result<Self, Missing> {
        let missing = |figure| Missing::new(profile, figure);
        let seek = profile.seek.ok_or_else(|| missing("seek times"))?;
        let curve = Curve::new(seek).ok_or_else(|| missing("seek times that fit a curve"))?;
        let turn = profile
            .rotation
            .ok_or_else(|| missing("speed of rotation"))?
            .turn();
        let media = profile.media.ok_or_else(|| missing("media rate"))?;
        Ok(Self {
            layout: Layout::new(media, turn, curve.switch()),
            curve,
            active: profile
                .active
                .ok_or_else(|| missing("power while active"))?,
            electronics: profile.electronics,
            track: 0,
            free: Time::ZERO,
            stream: None,
            dirty: Dirty::default(),
        })
    }

    /// Sectors it holds.
    pub fn sectors(&self) -> u64 {
        self.layout.sectors()
    }

    /// When nothing asked for is left to do. Background work may go on.
    pub fn free(&self) -> Time {
        self.free
    }

    /// Bytes that are in the cache and not on the surface.
    pub fn unwritten(&self) -> u64 {
        self.dirty.sectors() * SECTOR
    }

    /// Lets the disk work on its own until `now`, and says what it did. What it began before `now`
    /// it finishes.
    pub fn run(&mut self, now: Time) -> Job {
        let mut parts = Vec::new();
        self.read_on(now, &mut parts);
        while self.free < now
            && let Some((at, count)) = self.dirty.take_next(self.layout.first_of(self.track))
        {
            self.stream = None;
            let begin = self.free;
            self.free = self.surface(begin, at, count, Phase::Write, &mut parts);
        }
        Job::of(parts)
    }

    /// Serves a request that is asked at `now`, after all that were asked before. Addresses beyond
    /// the end are cut off.
    pub fn serve(&mut self, now: Time, request: Request) -> Served {
        let background = self.run(now);
        let start = self.free.max(now);
        let mut parts = vec![Part::new(
            Phase::Latency,
            self.active.rotate,
            self.electronics.overhead,
        )];
        let ready = start + self.electronics.overhead;
        let end = self.layout.sectors();
        let clip =
            |at: Sector, count: u64| (at.get().min(end), count.min(end.saturating_sub(at.get())));
        let done = match request {
            Request::Read { at, count } => {
                let (at, count) = clip(at, count);
                self.read(ready, at, count, &mut parts)
            }
            Request::Write { at, count, fua } => {
                let (at, count) = clip(at, count);
                self.write(ready, at, count, fua, &mut parts)
            }
            Request::Flush => self.write_back(ready, u64::MAX, &mut parts),
        };
        self.free = done;
        if let Some(stream) = &mut self.stream {
            stream.told = stream.told.max(done);
        }
        Served {
            start,
            done,
            job: Job::of(parts),
            background,
        }
    }

    fn read(&mut self, ready: Time, at: u64, count: u64, parts: &mut Vec<Part>) -> Time {
        let bus = self.bus(count);
        if self.dirty.holds(at, count) {
            parts.push(Part::new(Phase::Latency, self.active.rotate, bus));
            return ready + bus;
        }
        let mut begin = ready;
        if self.dirty.touches(at, count) {
            begin = self.write_back(begin, u64::MAX, parts);
        }
        let buffer = self.electronics.track_buffer.get() / SECTOR;
        if let Some(stream) = self
            .stream
            .filter(|s| s.first <= at && at <= self.buffered(*s, begin))
        {
            return self.read_buffered(stream, begin, at, count, parts);
        }
        self.stream = None;
        let done = self.surface(begin, at, count, Phase::Read, parts);
        let last = done.max(begin + bus);
        parts.push(Part::new(
            Phase::Latency,
            self.active.rotate,
            last.since(done),
        ));
        let limit = (at + count + buffer).min(self.layout.sectors());
        let first = at.max((at + count).saturating_sub(buffer));
        self.stream = Some(Stream {
            first,
            from: at + count,
            since: done,
            limit,
            told: last,
        });
        last
    }

    fn write(
        &mut self,
        ready: Time,
        at: u64,
        count: u64,
        fua: bool,
        parts: &mut Vec<Part>,
    ) -> Time {
        self.stream = None;
        let bus = self.bus(count);
        let room = self.electronics.write_cache.get() / SECTOR;
        if fua || count > room {
            self.dirty.forget(at, count);
            let done = self.surface(ready, at, count, Phase::Write, parts);
            let last = done.max(ready + bus);
            parts.push(Part::new(
                Phase::Latency,
                self.active.rotate,
                last.since(done),
            ));
            return last;
        }
        let begin = self.write_back(ready, room - count, parts);
        self.dirty.put(at, count);
        parts.push(Part::new(Phase::Latency, self.active.rotate, bus));
        begin + bus
    }

    /// Puts dirty data on the surface until at most `keep` sectors are left; all of it for
    /// [`u64::MAX`].
    fn write_back(&mut self, begin: Time, keep: u64, parts: &mut Vec<Part>) -> Time {
        let keep = if keep == u64::MAX { 0 } else { keep };
        let mut now = begin;
        while self.dirty.sectors() > keep
            && let Some((at, count)) = self.dirty.take_next(self.layout.first_of(self.track))
        {
            self.stream = None;
            now = self.surface(now, at, count, Phase::Write, parts);
        }
        now
    }

    /// Moves sectors between surface and buffer from `begin` on; says when that is done.
    fn surface(
        &mut self,
        begin: Time,
        at: u64,
        count: u64,
        phase: Phase,
        parts: &mut Vec<Part>,
    ) -> Time {
        let power = if phase == Phase::Write {
            self.active.write
        } else {
            self.active.read
        };
        let (mut now, mut next, end) = (begin, at, at + count);
        while next < end {
            let place = self.layout.place(next);
            let seek = self
                .curve
                .span(self.track.abs_diff(place.track), self.layout.tracks());
            parts.push(Part::new(Phase::Seek, self.active.seek, seek));
            self.track = place.track;
            let wait = self.layout.wait(now + seek, place);
            parts.push(Part::new(Phase::Rotate, self.active.rotate, wait));
            let run = (end - next).min(place.left());
            let transfer = self.layout.transfer(place, run);
            parts.push(Part::new(phase, power, transfer));
            now = now + seek + wait + transfer;
            next += run;
        }
        now
    }

    fn bus(&self, count: u64) -> Span {
        self.electronics
            .interface
            .map_or(Span::ZERO, |rate| rate.span(count * SECTOR))
    }

    /// Returns what it draws while it is ready and does nothing asked for.
    pub fn ready_power(&self) -> Power {
        self.active.rotate
    }
}
