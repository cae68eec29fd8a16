//! What a request costs a device at file level: time and energy, without the place on the surface.
//!
//! # Guarantees
//! 1. A job's time and energy are the sums of its parts.
//! 2. On a disk a first access costs an average seek and half a turn, a continued one only the
//!    transfer; on flash and links every access costs the latency: nothing is read ahead.
//!
//! [`mechanics`](crate::mechanics) does the same for single requests with their places.

use crate::ledger::{Femtojoules, Phase, femtojoules};
use crate::power::{Missing, PowerModel};
use crate::profile::{Kind, Line, Profile, StateId};
use crate::quantity::Rate;
use teal_types::{Energy, Power, Span};

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// One part of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub phase: Phase,
    /// What the device draws.
    pub power: Power,
    /// For how long.
    pub time: Span,
    /// Energy for the bytes besides, in femtojoules.
    extra: Femtojoules,
}

impl Part {
    pub(crate) fn new(phase: Phase, power: Power, time: Span) -> Self {
        Self {
            phase,
            power,
            time,
            extra: 0,
        }
    }
    pub(crate) fn femtojoules(&self) -> Femtojoules {
        femtojoules(self.power, self.time) + self.extra
    }
}

/// The parts of a piece of work, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job(Vec<Part>);

impl Job {
    /// A job of these parts.
    pub(crate) fn of(parts: Vec<Part>) -> Self {
        Self(
            parts
                .into_iter()
                .filter(|part| part.time > Span::ZERO || part.extra > 0)
                .collect(),
        )
    }
    /// This job and another one so many times, as one part more for each of its parts.
    #[must_use]
    pub(crate) fn with_repeated(mut self, other: &Self, times: u64) -> Self {
        let repeated = |part: &Part| Part {
            time: part.time * times,
            extra: part.extra * u128::from(times),
            ..*part
        };
        self.0.extend(
            other
                .0
                .iter()
                .map(repeated)
                .filter(|part| part.time > Span::ZERO || part.extra > 0),
        );
        self
    }
    /// The parts.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }
    /// How long it takes.
    pub fn time(&self) -> Span {
        self.0.iter().map(|part| part.time).sum()
    }
    /// Returns what it costs, rounded once.
    pub fn energy(&self) -> Energy {
        let exact: Femtojoules = self.0.iter().map(Part::femtojoules).sum();
        Energy::microjoules(
            u64::try_from((exact + 500_000_000) / 1_000_000_000).unwrap_or(u64::MAX),
        )
    }
}

/// How a device serves in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Serving {
    state: StateId,
    read: Way,
    write: Way,
}

/// How one direction is served.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    first: Vec<Part>,
    /// Whether `first` falls away where a request continues the last one.
    streams: bool,
    phase: Phase,
    power: Power,
    rate: Rate,
    picojoules_per_byte: u32,
}

/// How a device serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceModel(Vec<Serving>);

impl ServiceModel {
    /// How the device of a profile serves, in each of its serving states.
    ///
    /// # Errors
    /// [`Missing`] figures.
    pub fn new(profile: &Profile, power: &PowerModel) -> Result<Self, Missing> {
        let serving = power.ids().filter(|state| power.serves(*state));
        serving
            .map(|state| match profile.kind {
                Kind::Disk => disk(profile, power, state),
                Kind::Flash | Kind::Link => line(profile, power, state),
                Kind::Machine => Err(Missing::new(profile, "way to serve requests")),
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The job of moving `bytes` while in `state`; `None` if it does not serve there. A continued
    /// request follows the last one on the same device without a gap.
    pub fn job(
        &self,
        state: StateId,
        direction: Direction,
        bytes: u64,
        is_continued: bool,
    ) -> Option<Job> {
        let way = self.way(state, direction)?;
        let mut parts = if is_continued && way.streams {
            Vec::new()
        } else {
            way.first.clone()
        };
        let extra = u128::from(way.picojoules_per_byte) * u128::from(bytes) * 1000;
        parts.push(Part {
            phase: way.phase,
            power: way.power,
            time: way.rate.span(bytes),
            extra,
        });
        Some(Job::of(parts))
    }

    /// How long the first bytes take to come, and how fast the others do.
    pub(crate) fn first(&self, state: StateId, direction: Direction) -> Option<(Span, Rate)> {
        let way = self.way(state, direction)?;
        Some((way.first.iter().map(|part| part.time).sum(), way.rate))
    }

    fn way(&self, state: StateId, direction: Direction) -> Option<&Way> {
        let serving = self.0.iter().find(|serving| serving.state == state)?;
        Some(match direction {
            Direction::Read => &serving.read,
            Direction::Write => &serving.write,
        })
    }
}

fn disk(profile: &Profile, power: &PowerModel, state: StateId) -> Result<Serving, Missing> {
    let missing = |figure| Missing::new(profile, figure);
    let seek = profile.seek.ok_or_else(|| missing("seek times"))?;
    let turn = profile
        .rotation
        .ok_or_else(|| missing("speed of rotation"))?
        .turn();
    let media = profile.media.ok_or_else(|| missing("media rate"))?;
    let active = profile
        .active
        .ok_or_else(|| missing("power while active"))?;
    let mean =
        media.inner.get() / 2 + media.outer.get() / 2 + (media.inner.get() & media.outer.get() & 1);
    let rate = Rate::per_second(mean).ok_or_else(|| missing("media rate"))?;
    let first = vec![
        Part::new(
            Phase::Latency,
            power.power(state),
            profile.electronics.overhead,
        ),
        Part::new(Phase::Seek, active.seek, seek.average),
        Part::new(Phase::Rotate, active.rotate, Span::nanos(turn.get() / 2)),
    ];
    let way = |phase, power| Way {
        first: first.clone(),
        streams: true,
        phase,
        power,
        rate,
        picojoules_per_byte: 0,
    };
    Ok(Serving {
        state,
        read: way(Phase::Read, active.read),
        write: way(Phase::Write, active.write),
    })
}

fn line(profile: &Profile, power: &PowerModel, state: StateId) -> Result<Serving, Missing> {
    let service = profile
        .services
        .iter()
        .find(|service| service.state == state);
    let service = service
        .ok_or_else(|| Missing::new(profile, format!("service in `{}`", power.name(state))))?;
    let way = |phase, line: Line| Way {
        first: vec![Part::new(Phase::Latency, power.power(state), line.latency)],
        streams: false,
        phase,
        power: line.power,
        rate: line.rate,
        picojoules_per_byte: line.picojoules_per_byte,
    };
    Ok(Serving {
        state,
        read: way(Phase::Read, service.read),
        write: way(Phase::Write, service.write),
    })
}
