//! The time and energy that a request costs a device at file level, without the place on the
//! surface.
//!
//! # Guarantees
//! 1. A job's time and energy are the sums of its parts.
//! 2. On a disk a first access costs an average seek and half a turn, a continued one only the
//!    transfer; on flash and links every access costs the latency: nothing is read ahead.
//!
//! [`mechanics`](crate::mechanics) does the same for single requests with their places.

use crate::ledger::{Femtojoules, WorkPhase, power_over_time};
use crate::power::{MissingFigure, PowerModel};
use crate::profile::{DeviceKind, Profile, StateId, TransferFigures};
use crate::quantity::Rate;
use teal_types::{Energy, Power, TimeSpan};

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferDirection {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// One part of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobPart {
    /// The phase of work.
    pub phase: WorkPhase,
    /// The power that the device draws.
    pub power: Power,
    /// The time of the part.
    pub time: TimeSpan,
    /// Energy for the bytes besides, in femtojoules.
    extra: Femtojoules,
}

impl JobPart {
    pub(crate) fn new(phase: WorkPhase, power: Power, time: TimeSpan) -> Self {
        Self {
            phase,
            power,
            time,
            extra: 0,
        }
    }
    pub(crate) fn exact_energy(&self) -> Femtojoules {
        power_over_time(self.power, self.time) + self.extra
    }
}

/// The parts of a piece of work, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job(Vec<JobPart>);

impl Job {
    /// Makes a job of these parts, and leaves out those that cost nothing.
    pub(crate) fn from_parts(parts: Vec<JobPart>) -> Self {
        Self(
            parts
                .into_iter()
                .filter(|part| part.time > TimeSpan::ZERO || part.extra > 0)
                .collect(),
        )
    }
    /// Adds another job so many times, as one more part for each of its parts.
    #[must_use]
    pub(crate) fn with_repeated(mut self, other: &Self, times: u64) -> Self {
        let repeated = |part: &JobPart| JobPart {
            time: part.time * times,
            extra: part.extra * u128::from(times),
            ..*part
        };
        self.0.extend(
            other
                .0
                .iter()
                .map(repeated)
                .filter(|part| part.time > TimeSpan::ZERO || part.extra > 0),
        );
        self
    }
    /// Returns the parts.
    pub fn parts(&self) -> &[JobPart] {
        &self.0
    }
    /// Returns the time of all parts together.
    pub fn total_time(&self) -> TimeSpan {
        self.0.iter().map(|part| part.time).sum()
    }
    /// Returns the energy of all parts together, rounded once.
    pub fn total_energy(&self) -> Energy {
        let exact: Femtojoules = self.0.iter().map(JobPart::exact_energy).sum();
        Energy::from_microjoules(
            u64::try_from((exact + 500_000_000) / 1_000_000_000).unwrap_or(u64::MAX),
        )
    }
}

/// The service of a device in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StateService {
    state: StateId,
    read: DirectionService,
    write: DirectionService,
}

/// The service of one direction: the parts before the first byte, and the rate after it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DirectionService {
    first: Vec<JobPart>,
    /// Is true if a request that continues the last one needs no `first`.
    streams: bool,
    phase: WorkPhase,
    power: Power,
    rate: Rate,
    picojoules_per_byte: u32,
}

/// The service of a device, in each of its serving states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceModel(Vec<StateService>);

impl ServiceModel {
    /// Makes the service of a profile's device from the profile's figures.
    ///
    /// # Errors
    /// [`MissingFigure`] figures.
    pub fn new(profile: &Profile, power: &PowerModel) -> Result<Self, MissingFigure> {
        let serving = power.state_ids().filter(|state| power.serves(*state));
        serving
            .map(|state| match profile.kind {
                DeviceKind::Disk => disk_service(profile, power, state),
                DeviceKind::Flash | DeviceKind::Link => line_service(profile, power, state),
                DeviceKind::Machine => Err(MissingFigure::new(profile, "way to serve requests")),
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns the job of moving `bytes` while in `state`; `None` if the device does not serve
    /// there. A continued request follows the last one on the same device without a gap.
    pub fn job_for(
        &self,
        state: StateId,
        direction: TransferDirection,
        bytes: u64,
        is_continued: bool,
    ) -> Option<Job> {
        let way = self.direction_service(state, direction)?;
        // A stream goes on where the head is: it has no seek and no wait.
        let mut parts = if is_continued && way.streams {
            Vec::new()
        } else {
            way.first.clone()
        };
        // Picojoules become femtojoules.
        let extra = u128::from(way.picojoules_per_byte) * u128::from(bytes) * 1000;
        parts.push(JobPart {
            phase: way.phase,
            power: way.power,
            time: way.rate.transfer_time(bytes),
            extra,
        });
        Some(Job::from_parts(parts))
    }

    /// Returns the time before the first byte, and the rate of the bytes after it.
    pub(crate) fn first_bytes(
        &self,
        state: StateId,
        direction: TransferDirection,
    ) -> Option<(TimeSpan, Rate)> {
        let way = self.direction_service(state, direction)?;
        Some((way.first.iter().map(|part| part.time).sum(), way.rate))
    }

    fn direction_service(
        &self,
        state: StateId,
        direction: TransferDirection,
    ) -> Option<&DirectionService> {
        let serving = self.0.iter().find(|serving| serving.state == state)?;
        Some(match direction {
            TransferDirection::Read => &serving.read,
            TransferDirection::Write => &serving.write,
        })
    }
}

fn disk_service(
    profile: &Profile,
    power: &PowerModel,
    state: StateId,
) -> Result<StateService, MissingFigure> {
    let missing = |figure| MissingFigure::new(profile, figure);
    let seek = profile.seek.ok_or_else(|| missing("seek times"))?;
    let turn = profile
        .rotation
        .ok_or_else(|| missing("speed of rotation"))?
        .turn_time();
    let media = profile.media.ok_or_else(|| missing("media rate"))?;
    let active = profile
        .active
        .ok_or_else(|| missing("power while active"))?;
    // The mean of both rates, without an overflow of their sum: the last term adds the halves that
    // the divisions cut off.
    let mean =
        media.inner.get() / 2 + media.outer.get() / 2 + (media.inner.get() & media.outer.get() & 1);
    let rate = Rate::per_second(mean).ok_or_else(|| missing("media rate"))?;
    // A first access costs a command, an average seek and half a turn.
    let first = vec![
        JobPart::new(
            WorkPhase::Latency,
            power.state_power(state),
            profile.electronics.overhead,
        ),
        JobPart::new(WorkPhase::Seek, active.seek, seek.average),
        JobPart::new(
            WorkPhase::Rotate,
            active.rotate,
            TimeSpan::from_nanos(turn.get() / 2),
        ),
    ];
    let way = |phase, power| DirectionService {
        first: first.clone(),
        streams: true,
        phase,
        power,
        rate,
        picojoules_per_byte: 0,
    };
    Ok(StateService {
        state,
        read: way(WorkPhase::Read, active.read),
        write: way(WorkPhase::Write, active.write),
    })
}

fn line_service(
    profile: &Profile,
    power: &PowerModel,
    state: StateId,
) -> Result<StateService, MissingFigure> {
    let service = profile
        .services
        .iter()
        .find(|service| service.state == state);
    let service = service.ok_or_else(|| {
        MissingFigure::new(profile, format!("service in `{}`", power.state_name(state)))
    })?;
    let way = |phase, line: TransferFigures| DirectionService {
        first: vec![JobPart::new(
            WorkPhase::Latency,
            power.state_power(state),
            line.latency,
        )],
        streams: false,
        phase,
        power: line.power,
        rate: line.rate,
        picojoules_per_byte: line.picojoules_per_byte,
    };
    Ok(StateService {
        state,
        read: way(WorkPhase::Read, service.read),
        write: way(WorkPhase::Write, service.write),
    })
}
