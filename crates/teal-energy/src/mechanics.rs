//! A disk's mechanics: the positions of arm and surface, and the time and energy that each request
//! costs.
//!
//! # Guarantees
//! 1. *Deterministic*: the same requests at the same times give the same answers. The angle of the
//!    surface is a function of time.
//! 2. *Accounted*: a request's parts fill the time from when the mechanics was free for it to its
//!    end; background work is handed out exactly once.
//! 3. *Durable means durable*: after [`SectorRequest::Flush`], and after a write with `fua`, the
//!    surface holds the data that was written.
//! 4. A stream of requests that follow each other without a gap costs no seek and no turn.
//!
//! Addresses run along tracks, outermost first, in zones of equal tracks. Neighbouring tracks are
//! skewed by the time of a seek between them. After a read the drive reads on until its buffer is
//! full; written data that went to the cache is put on the surface in the order of addresses as
//! soon as nothing else is to be done. The place of a request matters here; at file level
//! [`service`](crate::service) has the averages.

mod cache;
mod layout;
mod read_ahead;
mod seek;
#[cfg(test)]
mod tests;

use crate::ledger::WorkPhase;
use crate::power::MissingFigure;
use crate::profile::{ActivePower, DriveElectronics, Profile};
use crate::service::{Job, JobPart};
use cache::DirtyRuns;
use layout::SurfaceLayout;
use read_ahead::ReadStream;
use seek::SeekCurve;
use teal_types::{Power, SECTOR, Sector, Time, TimeSpan};

/// A request to a disk, with the place of its sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectorRequest {
    /// Read `count` sectors.
    Read {
        /// The first sector.
        at: Sector,
        /// The number of sectors.
        count: u64,
    },
    /// Write `count` sectors.
    Write {
        /// The first sector.
        at: Sector,
        /// The number of sectors.
        count: u64,
        /// Answer only when they are on the surface.
        fua: bool,
    },
    /// Put everything that was written on the surface.
    Flush,
}

/// A request that was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedRequest {
    /// When it began: at the time it was asked, or when background work under way was finished.
    pub start: Time,
    /// When it was done.
    pub done: Time,
    /// The work for the request, from its start to its end.
    pub job: Job,
    /// The work that the disk had done on its own before.
    pub background: Job,
}

/// The state of a disk's mechanics.
#[derive(Debug, Clone)]
pub struct Mechanics {
    layout: SurfaceLayout,
    curve: SeekCurve,
    active: ActivePower,
    electronics: DriveElectronics,
    arm_track: u64,
    free_at: Time,
    stream: Option<ReadStream>,
    dirty: DirtyRuns,
}

impl Mechanics {
    /// Makes a disk at rest, its arm on the outermost track.
    ///
    /// # Errors
    /// [`MissingFigure`] figures.
    pub fn new(profile: &Profile) -> Result<Self, MissingFigure> {
        let missing = |figure| MissingFigure::new(profile, figure);
        let seek = profile.seek.ok_or_else(|| missing("seek times"))?;
        let curve = SeekCurve::new(seek).ok_or_else(|| missing("seek times that fit a curve"))?;
        let turn = profile
            .rotation
            .ok_or_else(|| missing("speed of rotation"))?
            .turn_time();
        let media = profile.media.ok_or_else(|| missing("media rate"))?;
        Ok(Self {
            // Tracks are skewed by the time of a seek to the next one, so that a stream loses no
            // turn.
            layout: SurfaceLayout::new(media, turn, curve.track_switch()),
            curve,
            active: profile
                .active
                .ok_or_else(|| missing("power while active"))?,
            electronics: profile.electronics,
            arm_track: 0,
            free_at: Time::ZERO,
            stream: None,
            dirty: DirtyRuns::default(),
        })
    }

    /// Returns the number of sectors that the disk holds.
    pub fn sector_count(&self) -> u64 {
        self.layout.sector_count()
    }

    /// Returns the time at which all requests are done. Background work may go on after it.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Returns the number of bytes that are in the cache and not on the surface.
    pub fn unwritten_bytes(&self) -> u64 {
        self.dirty.sector_count() * SECTOR
    }

    /// Lets the disk work on its own until `now`, and returns the work it did. Work that began
    /// before `now` is finished.
    pub fn run_background(&mut self, now: Time) -> Job {
        let mut parts = Vec::new();
        self.read_on(now, &mut parts);
        // The cache is written in the order of addresses from the arm's place on (an elevator), as
        // long as the disk is idle.
        while self.free_at < now
            && let Some((at, count)) = self
                .dirty
                .take_next(self.layout.first_sector_of(self.arm_track))
        {
            self.stream = None;
            let begin = self.free_at;
            self.free_at = self.transfer_sectors(begin, at, count, WorkPhase::Write, &mut parts);
        }
        Job::from_parts(parts)
    }

    /// Serves a request that is asked at `now`, after all that were asked before. Addresses beyond
    /// the end are cut off.
    pub fn serve_request(&mut self, now: Time, request: SectorRequest) -> ServedRequest {
        // Background work comes first: what the disk began before the request is finished.
        let background = self.run_background(now);
        let start = self.free_at.max(now);
        let mut parts = vec![JobPart::new(
            WorkPhase::Latency,
            self.active.rotate,
            self.electronics.overhead,
        )];
        // The command is taken in before anything moves.
        let ready = start + self.electronics.overhead;
        let end = self.layout.sector_count();
        let clip =
            |at: Sector, count: u64| (at.get().min(end), count.min(end.saturating_sub(at.get())));
        let done = match request {
            SectorRequest::Read { at, count } => {
                let (at, count) = clip(at, count);
                self.read_sectors(ready, at, count, &mut parts)
            }
            SectorRequest::Write { at, count, fua } => {
                let (at, count) = clip(at, count);
                self.write_sectors(ready, at, count, fua, &mut parts)
            }
            SectorRequest::Flush => self.write_back(ready, u64::MAX, &mut parts),
        };
        self.free_at = done;
        if let Some(stream) = &mut self.stream {
            // The time of the request is accounted for: reading ahead meanwhile costs nothing
            // besides.
            stream.accounted = stream.accounted.max(done);
        }
        ServedRequest {
            start,
            done,
            job: Job::from_parts(parts),
            background,
        }
    }

    fn read_sectors(&mut self, ready: Time, at: u64, count: u64, parts: &mut Vec<JobPart>) -> Time {
        let bus = self.interface_time(count);
        // All of it is in the write cache: only the transfer to the host is left.
        if self.dirty.holds_all(at, count) {
            parts.push(JobPart::new(WorkPhase::Latency, self.active.rotate, bus));
            return ready + bus;
        }
        let mut begin = ready;
        // A part of it is in the cache: the surface must have the newest bytes before it is read.
        if self.dirty.holds_some(at, count) {
            begin = self.write_back(begin, u64::MAX, parts);
        }
        let buffer = self.electronics.track_buffer.get() / SECTOR;
        if let Some(stream) = self
            .stream
            .filter(|s| s.first <= at && at <= self.buffered_until(*s, begin))
        {
            return self.read_buffered(stream, begin, at, count, parts);
        }
        // The arm leaves the place at which it read ahead.
        self.stream = None;
        let done = self.transfer_sectors(begin, at, count, WorkPhase::Read, parts);
        // Surface and interface work at the same time; the slower one decides.
        let last = done.max(begin + bus);
        parts.push(JobPart::new(
            WorkPhase::Latency,
            self.active.rotate,
            last.since(done),
        ));
        // From here on the disk reads on until its buffer is full.
        let limit = (at + count + buffer).min(self.layout.sector_count());
        // The buffer keeps the end of what was read, if it was more than fits.
        let first = at.max((at + count).saturating_sub(buffer));
        self.stream = Some(ReadStream {
            first,
            from: at + count,
            since: done,
            limit,
            accounted: last,
        });
        last
    }

    fn write_sectors(
        &mut self,
        ready: Time,
        at: u64,
        count: u64,
        fua: bool,
        parts: &mut Vec<JobPart>,
    ) -> Time {
        self.stream = None;
        let bus = self.interface_time(count);
        let room = self.electronics.write_cache.get() / SECTOR;
        // Data that must be durable, or that does not fit into the cache, goes to the surface at
        // once.
        if fua || count > room {
            // Older data of these sectors must not be written over the new data later.
            self.dirty.drop_range(at, count);
            let done = self.transfer_sectors(ready, at, count, WorkPhase::Write, parts);
            let last = done.max(ready + bus);
            parts.push(JobPart::new(
                WorkPhase::Latency,
                self.active.rotate,
                last.since(done),
            ));
            return last;
        }
        // The cache makes room first, and the request waits for that.
        let begin = self.write_back(ready, room - count, parts);
        self.dirty.add_run(at, count);
        parts.push(JobPart::new(WorkPhase::Latency, self.active.rotate, bus));
        begin + bus
    }

    /// Puts dirty data on the surface until at most `keep` sectors are left; all of it for
    /// [`u64::MAX`].
    fn write_back(&mut self, begin: Time, keep: u64, parts: &mut Vec<JobPart>) -> Time {
        // The sentinel means that nothing may be left.
        let keep = if keep == u64::MAX { 0 } else { keep };
        let mut now = begin;
        while self.dirty.sector_count() > keep
            && let Some((at, count)) = self
                .dirty
                .take_next(self.layout.first_sector_of(self.arm_track))
        {
            self.stream = None;
            now = self.transfer_sectors(now, at, count, WorkPhase::Write, parts);
        }
        now
    }

    /// Moves sectors between surface and buffer from `begin` on, and returns the time at which that
    /// is done.
    fn transfer_sectors(
        &mut self,
        begin: Time,
        at: u64,
        count: u64,
        phase: WorkPhase,
        parts: &mut Vec<JobPart>,
    ) -> Time {
        let power = if phase == WorkPhase::Write {
            self.active.write
        } else {
            self.active.read
        };
        // One piece for each track: seek, wait for the sector, transfer.
        let (mut now, mut next, end) = (begin, at, at + count);
        while next < end {
            let place = self.layout.place_of(next);
            let seek = self.curve.seek_time(
                self.arm_track.abs_diff(place.track),
                self.layout.track_count(),
            );
            parts.push(JobPart::new(WorkPhase::Seek, self.active.seek, seek));
            self.arm_track = place.track;
            // The angle is a function of time: the wait begins where the seek ends.
            let wait = self.layout.rotation_wait(now + seek, place);
            parts.push(JobPart::new(WorkPhase::Rotate, self.active.rotate, wait));
            let run = (end - next).min(place.left_on_track());
            let transfer = self.layout.transfer_time(place, run);
            parts.push(JobPart::new(phase, power, transfer));
            now = now + seek + wait + transfer;
            next += run;
        }
        now
    }

    fn interface_time(&self, count: u64) -> TimeSpan {
        self.electronics
            .interface
            .map_or(TimeSpan::ZERO, |rate| rate.transfer_time(count * SECTOR))
    }

    /// Returns the power that the disk draws while it is ready and serves no request.
    pub fn ready_power(&self) -> Power {
        self.active.rotate
    }
}
