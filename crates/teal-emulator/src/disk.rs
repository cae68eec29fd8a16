//! A [`Disk`] that takes the time and spends the joules of a modelled drive.
//!
//! # Guarantees
//! 1. The bytes are those of the wrapped disk, and so is durability: a sync is answered after that
//!    of the wrapped disk.
//! 2. Every request within the disk is modelled and logged before its bytes move, in the order in
//!    which it came.
//! 3. A log that cannot be written is said in the [`Snapshot`]; the disk goes on.

use crate::account::{DriveAccount, RequestCounts};
use crate::drive::{ModelledDrive, PowerEvent, RestState};
use crate::log::{DiskEventKind, DiskLogHeader, DiskLogRecord, RecordSink};
use crate::pace::EmulationPace;
use crate::series::EnergySeries;
use crate::setup::{EmulationSetup, SetupError};
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use teal_energy::mechanics::SectorRequest;
use teal_energy::power::PowerModel;
use teal_env::{Disk, DiskShape};
use teal_types::{Energy, SECTOR, Sector, Span, Time};

/// When the answer to a request is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct CompletionTicket {
    /// The drive is done then.
    pub done: Time,
}

/// The state of a disk at one time.
#[derive(Debug, Clone)]
pub struct DiskSnapshot {
    /// The drive's time.
    pub now: Time,
    /// Since its start.
    pub account: DriveAccount,
    /// As it was at the last mark; empty before the first.
    pub at_mark: DriveAccount,
    /// Joules since the last mark, or the start, over time.
    pub series: EnergySeries,
    /// The last mark and its time.
    pub mark: Option<(String, Time)>,
    /// Where it rests.
    pub power: RestState,
    /// Bytes in the cache that are not on the surface.
    pub unwritten: u64,
    /// Rated cycles used up.
    pub cycles: u64,
    /// Records given to the log.
    pub records: u64,
    /// Why the log is incomplete.
    pub log_error: Option<String>,
}

struct EmulatorState {
    drive: ModelledDrive,
    requests: RequestCounts,
    at_mark: DriveAccount,
    mark: Option<(String, Time)>,
    sink: Box<dyn RecordSink>,
    records: u64,
    log_error: Option<String>,
}

/// A disk at the pace of a modelled drive.
pub struct EmulatedDisk<D> {
    inner: D,
    shape: DiskShape,
    header: DiskLogHeader,
    model: PowerModel,
    pace: EmulationPace,
    /// Guards the model and the log, so that requests are modelled in the order in which they come.
    /// The log is written under it: the order of records is the order of requests.
    state: Mutex<EmulatorState>,
}

impl<D> std::fmt::Debug for EmulatedDisk<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmulatedDisk")
            .field("header", &self.header)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

impl<D: Disk> EmulatedDisk<D> {
    /// A disk whose bytes are in `inner`.
    ///
    /// # Errors
    /// [`SetupError`], if figures are missing or `inner` is too small.
    pub fn new(
        inner: D,
        setup: &EmulationSetup,
        pace: EmulationPace,
        sink: Box<dyn RecordSink>,
    ) -> Result<Self, SetupError> {
        let (have, need) = (inner.shape().sectors, setup.sectors());
        if have < need {
            return Err(SetupError::Backing { have, need });
        }
        let drive = ModelledDrive::new(setup)?;
        let shape = DiskShape {
            sectors: need,
            logical: 512,
            physical: 512,
            rotational: true,
            sparse: inner.shape().sparse,
        };
        let core = EmulatorState {
            drive,
            requests: RequestCounts::default(),
            at_mark: DriveAccount::default(),
            mark: None,
            sink,
            records: 0,
            log_error: None,
        };
        let model = core.drive.model().clone();
        Ok(Self {
            inner,
            shape,
            header: Self::log_header(setup, &pace),
            model,
            pace,
            state: Mutex::new(core),
        })
    }

    /// Returns what the log of such a disk begins with.
    pub fn log_header(setup: &EmulationSetup, pace: &EmulationPace) -> DiskLogHeader {
        DiskLogHeader {
            profile: setup.profile().name.clone(),
            sectors: setup.sectors(),
            write_cache: setup.profile().electronics.write_cache.get(),
            real_time: pace.is_real(),
        }
    }

    /// Names of its power states.
    pub fn model(&self) -> &PowerModel {
        &self.model
    }

    /// Returns whether writes are answered before they are on the surface.
    pub fn has_cache(&self) -> bool {
        self.header.write_cache > 0
    }

    /// How its time passes.
    pub fn pace(&self) -> &EmulationPace {
        &self.pace
    }

    /// The disk that holds the bytes.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Models and logs a request. Its bytes are the caller's work, and so is to answer no earlier
    /// than the ticket says.
    pub fn submit(&self, request: SectorRequest) -> CompletionTicket {
        let core = &mut *self.state.lock();
        let asked = self.pace.now();
        let work = core.drive.serve_request(asked, request);
        core.log_power();
        let (kind, at, count) = match request {
            SectorRequest::Read { at, count } => (DiskEventKind::Read, at, count),
            SectorRequest::Write {
                at,
                count,
                fua: false,
            } => (DiskEventKind::Write, at, count),
            SectorRequest::Write {
                at,
                count,
                fua: true,
            } => (DiskEventKind::WriteThrough, at, count),
            SectorRequest::Flush => (DiskEventKind::Flush, Sector::new(0), 0),
        };
        match kind {
            DiskEventKind::Read => {
                core.requests.reads += 1;
                core.requests.sectors_read += count;
            }
            DiskEventKind::Flush => core.requests.flushes += 1,
            _ => {
                core.requests.writes += 1;
                core.requests.sectors_written += count;
            }
        }
        let (start, done) = (work.start, work.done);
        let label = String::new();
        core.append_record(&DiskLogRecord {
            kind,
            at,
            count,
            asked,
            start,
            done,
            energy: work.energy,
            total: work.total,
            label,
        });
        CompletionTicket { done }
    }

    /// Returns when the answer is due.
    pub fn wait_for(&self, ticket: CompletionTicket) {
        self.pace.wait_until(ticket.done);
    }

    /// Puts a label into the log; accounts since then are kept apart.
    pub fn set_mark(&self, label: &str) {
        let core = &mut *self.state.lock();
        let now = core.advance(&self.pace);
        core.log_instant(DiskEventKind::Mark, Sector::new(0), 0, now, label);
        core.at_mark = core.account();
        core.drive.begin_series();
        core.mark = Some((label.to_owned(), now));
        core.flush_log();
    }

    /// Sends the drive to sleep.
    pub fn put_to_sleep(&self) -> CompletionTicket {
        let core = &mut *self.state.lock();
        let done = core.drive.go_to_sleep(self.pace.now());
        core.log_power();
        CompletionTicket { done }
    }

    /// Lets virtual time pass in which nothing is asked; real time passes by itself.
    pub fn pass_idle_time(&self, span: Span) {
        let core = &mut *self.state.lock();
        if let EmulationPace::Virtual(clock) = &self.pace {
            clock.advance_to(core.drive.accounted_until());
            clock.advance_by(span);
        }
        core.advance(&self.pace);
    }

    /// The state now.
    pub fn snapshot(&self) -> DiskSnapshot {
        let core = &mut *self.state.lock();
        let now = core.advance(&self.pace);
        DiskSnapshot {
            now,
            account: core.account(),
            at_mark: core.at_mark.clone(),
            series: core.drive.series().clone(),
            mark: core.mark.clone(),
            power: core.drive.power(),
            unwritten: core.drive.unwritten_bytes(),
            cycles: core.drive.used_cycles(),
            records: core.records,
            log_error: core.log_error.clone(),
        }
    }

    /// Writes out the log.
    pub fn flush_log(&self) {
        self.state.lock().flush_log();
    }

    pub(crate) fn check_range(&self, at: Sector, bytes: usize) -> io::Result<u64> {
        let sectors = bytes as u64 / SECTOR;
        if !(bytes as u64).is_multiple_of(SECTOR) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a whole number of sectors",
            ));
        }
        let end = at
            .get()
            .checked_add(sectors)
            .filter(|end| *end <= self.shape.sectors);
        end.map(|_| sectors).ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the disk")
        })
    }
}

impl EmulatorState {
    /// Lets time pass until now.
    fn advance(&mut self, pace: &EmulationPace) -> Time {
        let now = pace.now();
        self.drive.advance(now);
        self.log_power();
        now
    }

    fn account(&self) -> DriveAccount {
        DriveAccount {
            requests: self.requests,
            ledger: self.drive.ledger().clone(),
        }
    }

    fn log_power(&mut self) {
        for PowerEvent {
            at,
            done,
            to,
            energy,
            total,
        } in self.drive.take_events()
        {
            let kind = if to == RestState::Ready {
                DiskEventKind::Awake
            } else {
                DiskEventKind::Asleep
            };
            self.requests.wakes += u64::from(kind == DiskEventKind::Awake);
            let (place, label) = (Sector::new(0), String::new());
            self.append_record(&DiskLogRecord {
                kind,
                at: place,
                count: 0,
                asked: at,
                start: at,
                done,
                energy,
                total,
                label,
            });
        }
    }

    /// Logs what takes no time.
    fn log_instant(&mut self, kind: DiskEventKind, at: Sector, count: u64, now: Time, label: &str) {
        let (total, label) = (self.drive.ledger().total_energy(), label.to_owned());
        let energy = Energy::ZERO;
        self.append_record(&DiskLogRecord {
            kind,
            at,
            count,
            asked: now,
            start: now,
            done: now,
            energy,
            total,
            label,
        });
    }

    fn append_record(&mut self, record: &DiskLogRecord) {
        if self.log_error.is_none() {
            self.records += 1;
            self.log_error = self.sink.put(record).err().map(|e| e.to_string());
        }
    }

    fn flush_log(&mut self) {
        if self.log_error.is_none() {
            self.log_error = self.sink.flush().err().map(|e| e.to_string());
        }
    }
}

impl<D: Disk> Disk for EmulatedDisk<D> {
    fn shape(&self) -> DiskShape {
        self.shape
    }

    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        let count = self.check_range(at, buf.len())?;
        let ticket = self.submit(SectorRequest::Read { at, count });
        let done = self.inner.read_at(at, buf);
        self.wait_for(ticket);
        done
    }

    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let count = self.check_range(at, parts.iter().map(|part| part.len()).sum())?;
        let ticket = self.submit(SectorRequest::Write {
            at,
            count,
            fua: false,
        });
        let done = self.inner.write_at(at, parts);
        self.wait_for(ticket);
        done
    }

    fn sync(&self) -> io::Result<()> {
        let ticket = self.submit(SectorRequest::Flush);
        let done = self.inner.sync();
        self.wait_for(ticket);
        done
    }

    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.inner.allocate(at, sectors)
    }

    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        {
            let core = &mut *self.state.lock();
            let now = core.advance(&self.pace);
            core.requests.discards += 1;
            core.log_instant(DiskEventKind::Discard, at, sectors, now, "");
        }
        self.inner.discard(at, sectors)
    }
}

impl<D> Drop for EmulatedDisk<D> {
    fn drop(&mut self) {
        self.state.get_mut().flush_log();
    }
}
