//! A [`Disk`] that takes the time and spends the joules of a modelled drive.
//!
//! # Guarantees
//! 1. The bytes are those of the wrapped disk, and so is durability: a sync is answered after that
//!    of the wrapped disk.
//! 2. Every request within the disk is modelled and logged before its bytes move, in the order in
//!    which it came.
//! 3. The error of a log that cannot be written is in the [`DiskSnapshot`]; the disk goes on.

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
use teal_types::{Energy, SECTOR, Sector, Time, TimeSpan};

/// A request that was modelled, and the time when its answer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct CompletionTicket {
    /// The time when the drive is done.
    pub done: Time,
}

/// The state of a disk at one time.
#[derive(Debug, Clone)]
pub struct DiskSnapshot {
    /// The drive's time.
    pub now: Time,
    /// The account since the start.
    pub account: DriveAccount,
    /// The account at the last mark; empty before the first.
    pub at_mark: DriveAccount,
    /// Joules since the last mark, or the start, over time.
    pub series: EnergySeries,
    /// The last mark and its time.
    pub mark: Option<(String, Time)>,
    /// The state in which the drive rests.
    pub power: RestState,
    /// Bytes in the cache that are not on the surface.
    pub unwritten: u64,
    /// Rated cycles used up.
    pub cycles: u64,
    /// Records given to the log.
    pub records: u64,
    /// The error for which the log is incomplete.
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
    /// Makes a disk that keeps its bytes in `inner`.
    ///
    /// # Errors
    /// [`SetupError`], if figures are missing or `inner` is too small.
    pub fn new(
        inner: D,
        setup: &EmulationSetup,
        pace: EmulationPace,
        sink: Box<dyn RecordSink>,
    ) -> Result<Self, SetupError> {
        // Checked once: a request within the emulated disk is then within the other one.
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
        let state = EmulatorState {
            drive,
            requests: RequestCounts::default(),
            at_mark: DriveAccount::default(),
            mark: None,
            sink,
            records: 0,
            log_error: None,
        };
        // A copy outside of the lock: the model does not change.
        let model = state.drive.model().clone();
        Ok(Self {
            inner,
            shape,
            header: Self::log_header(setup, &pace),
            model,
            pace,
            state: Mutex::new(state),
        })
    }

    /// Returns the header of the log of such a disk.
    pub fn log_header(setup: &EmulationSetup, pace: &EmulationPace) -> DiskLogHeader {
        DiskLogHeader {
            profile: setup.profile().name.clone(),
            sectors: setup.sectors(),
            write_cache: setup.profile().electronics.write_cache.get(),
            real_time: pace.is_real(),
        }
    }

    /// Returns the model with the names of the power states.
    pub fn model(&self) -> &PowerModel {
        &self.model
    }

    /// Returns whether writes are answered before they are on the surface.
    pub fn has_cache(&self) -> bool {
        self.header.write_cache > 0
    }

    /// Returns the pace of its time.
    pub fn pace(&self) -> &EmulationPace {
        &self.pace
    }

    /// Returns the disk that holds the bytes.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Models and logs a request. The caller moves the bytes, and answers no earlier than the
    /// ticket says.
    pub fn submit(&self, request: SectorRequest) -> CompletionTicket {
        let state = &mut *self.state.lock();
        // Asked under the lock: the order of times is the order of requests.
        let asked = self.pace.now();
        let served = state.drive.serve_request(asked, request);
        debug_assert!(asked <= served.done, "an answer follows its request");
        // A request that has woken the drive comes behind that in the log.
        state.log_power();
        let (kind, at, count) = match request {
            SectorRequest::Read { at, count } => (DiskEventKind::Read, at, count),
            SectorRequest::Write { at, count, fua } => {
                let kind = if fua {
                    DiskEventKind::WriteThrough
                } else {
                    DiskEventKind::Write
                };
                (kind, at, count)
            }
            SectorRequest::Flush => (DiskEventKind::Flush, Sector::new(0), 0),
        };
        state.requests.count_request(kind, count);
        state.append_record(&DiskLogRecord {
            kind,
            at,
            count,
            asked,
            start: served.start,
            done: served.done,
            energy: served.energy,
            total: served.total,
            label: String::new(),
        });
        CompletionTicket { done: served.done }
    }

    /// Waits until the answer is due.
    pub fn wait_for(&self, ticket: CompletionTicket) {
        self.pace.wait_until(ticket.done);
    }

    /// Puts a label into the log; the account from here on is kept apart.
    pub fn set_mark(&self, label: &str) {
        let state = &mut *self.state.lock();
        let now = state.advance(&self.pace);
        state.log_instant(DiskEventKind::Mark, Sector::new(0), 0, now, label);
        state.at_mark = state.account();
        // A series has a fixed number of bins: a new one shows the time since the mark finely.
        state.drive.begin_series();
        state.mark = Some((label.to_owned(), now));
        // A reader of the file finds the mark, also if the program is killed later.
        state.flush_log();
    }

    /// Sends the drive to sleep. The ticket says when it is there.
    pub fn put_to_sleep(&self) -> CompletionTicket {
        let state = &mut *self.state.lock();
        let done = state.drive.go_to_sleep(self.pace.now());
        state.log_power();
        CompletionTicket { done }
    }

    /// Lets virtual time pass without requests; real time passes by itself.
    pub fn pass_idle_time(&self, span: TimeSpan) {
        let state = &mut *self.state.lock();
        // Real time passes by itself.
        if let EmulationPace::Virtual(clock) = &self.pace {
            // The drive may be busy beyond the clock's time: the idle time begins after that.
            clock.advance_to(state.drive.accounted_until());
            clock.advance_by(span);
        }
        state.advance(&self.pace);
    }

    /// Returns the present state.
    pub fn snapshot(&self) -> DiskSnapshot {
        let state = &mut *self.state.lock();
        let now = state.advance(&self.pace);
        DiskSnapshot {
            now,
            account: state.account(),
            at_mark: state.at_mark.clone(),
            series: state.drive.series().clone(),
            mark: state.mark.clone(),
            power: state.drive.power(),
            unwritten: state.drive.unwritten_bytes(),
            cycles: state.drive.used_cycles(),
            records: state.records,
            log_error: state.log_error.clone(),
        }
    }

    /// Writes out the log.
    pub fn flush_log(&self) {
        self.state.lock().flush_log();
    }

    /// Returns the sectors of a transfer, if it is one of whole sectors within the disk.
    pub(crate) fn check_range(&self, at: Sector, bytes: usize) -> io::Result<u64> {
        let bytes = bytes as u64;
        if !bytes.is_multiple_of(SECTOR) {
            let what = "not a whole number of sectors";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let sectors = bytes / SECTOR;
        match at.get().checked_add(sectors) {
            Some(end) if end <= self.shape.sectors => Ok(sectors),
            _ => {
                let what = "beyond the end of the disk";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
            }
        }
    }
}

impl EmulatorState {
    /// Lets the drive's time pass until now.
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

    /// Logs the changes of the power state since the last time.
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
            // The wake is charged to the request that caused it, which comes next in the log.
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

    /// Logs an event that takes no time.
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
            // After an error nothing more is given to the sink: a gap would look like a whole log.
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
        // The bytes move while the modelled time passes.
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
            let state = &mut *self.state.lock();
            let now = state.advance(&self.pace);
            // A discard takes no time: the modelled drives do not know the command.
            state.requests.discards += 1;
            state.log_instant(DiskEventKind::Discard, at, sectors, now, "");
        }
        self.inner.discard(at, sectors)
    }
}

impl<D> Drop for EmulatedDisk<D> {
    fn drop(&mut self) {
        self.state.get_mut().flush_log();
    }
}
