//! A device as the policies know it: its model, what it is for, how long its queue may wait, how
//! often it may start.
//!
//! # Guarantees
//! 1. A [`Device`] is complete: whatever a policy or a simulation asks of it is there.

use crate::power::{MissingFigure, PowerModel};
use crate::profile::{DeviceKind, Profile, StateId};
use crate::quantity::Rate;
use crate::service::{Job, ServiceModel, TransferDirection};
use teal_types::Span;

/// Most devices of one machine.
pub const DEVICES_MAX: usize = 16;

/// A device, by its place in the list of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(u8);

impl DeviceId {
    /// The device at this place; `None` beyond [`DEVICES_MAX`].
    pub fn new(index: usize) -> Option<Self> {
        u8::try_from(index)
            .ok()
            .filter(|_| index < DEVICES_MAX)
            .map(Self)
    }
    /// Its place in the list of devices.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DeviceSet(u16);

impl DeviceSet {
    /// No device.
    pub const EMPTY: Self = Self(0);
    /// With one more.
    #[must_use]
    pub const fn with_device(self, device: DeviceId) -> Self {
        Self(self.0 | 1 << device.0)
    }
    /// Without one.
    #[must_use]
    pub const fn without_device(self, device: DeviceId) -> Self {
        Self(self.0 & !(1 << device.0))
    }
    /// Returns whether a device is in it.
    pub const fn contains(self, device: DeviceId) -> bool {
        self.0 & 1 << device.0 != 0
    }
    /// Returns whether no device is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The devices, in order.
    pub fn iter(self) -> impl Iterator<Item = DeviceId> {
        (0..16)
            .map(DeviceId)
            .filter(move |device| self.contains(*device))
    }
}

impl FromIterator<DeviceId> for DeviceSet {
    fn from_iter<I: IntoIterator<Item = DeviceId>>(devices: I) -> Self {
        devices.into_iter().fold(Self::EMPTY, Self::with_device)
    }
}

/// How long changes may wait for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// The oldest change is flushed at this age, whatever a policy says.
    pub age: Span,
    /// A queue of so many bytes is flushed, whatever a policy says.
    pub bytes: u64,
}

impl QueueLimits {
    /// The window of BlueFS (4.3.1): 30 s.
    pub const BLUEFS: Self = Self {
        age: Span::secs(30),
        bytes: 15 << 20,
    };
    /// A sleeping disk behind a home log: a day.
    pub const SLEEPING_DISK: Self = Self {
        age: Span::hours(24),
        bytes: 1 << 30,
    };
}

/// How often a device may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Starts that may come at once.
    pub burst: u32,
    /// One more after each such time.
    pub each: Span,
}

/// One device.
#[derive(Debug, Clone)]
pub struct DeviceModel {
    /// Name of the profile.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Its power states.
    pub power: PowerModel,
    /// How it serves.
    pub service: ServiceModel,
    /// How long changes may wait for it; `None`: it takes no changes.
    pub queue: Option<QueueLimits>,
    /// Whether each object of a burst has its own place on it (a directory tree), or all of them
    /// one (a log).
    pub is_scattered: bool,
    /// How often it may start; `None`: no limit.
    pub budget: Option<BudgetLimits>,
}

impl DeviceModel {
    /// The device of a profile, which takes no changes and starts as often as its rating allows.
    ///
    /// # Errors
    /// [`Missing`] figures.
    pub fn new(profile: &Profile) -> Result<Self, MissingFigure> {
        let power = PowerModel::new(profile)?;
        let service = ServiceModel::new(profile, &power)?;
        let budget = profile.rating.map(|rating| BudgetLimits {
            burst: BURST,
            each: Span::nanos(rating.life.get() / u64::from(rating.cycles)),
        });
        let is_scattered = profile.kind == DeviceKind::Disk;
        Ok(Self {
            name: profile.name.clone(),
            kind: profile.kind,
            power,
            service,
            queue: None,
            is_scattered,
            budget,
        })
    }

    /// With changes that may wait so long.
    #[must_use]
    pub fn with_queue(mut self, limits: QueueLimits) -> Self {
        self.queue = Some(limits);
        self
    }

    /// The job of reading.
    pub fn read_job(&self, state: StateId, bytes: u64, is_continued: bool) -> Option<Job> {
        self.service
            .job_for(state, TransferDirection::Read, bytes, is_continued)
    }

    /// The job of a burst of changes.
    pub fn flush_job(&self, state: StateId, bytes: u64, objects: u64) -> Option<Job> {
        let places = if self.is_scattered { objects.max(1) } else { 1 };
        let first = self
            .service
            .job_for(state, TransferDirection::Write, bytes, false)?;
        let more = self
            .service
            .job_for(state, TransferDirection::Write, 0, false)?;
        Some(first.with_repeated(&more, places - 1))
    }

    /// How long such bursts take, without the job; `None` where it does not serve.
    pub fn burst_time(&self, state: StateId) -> Option<BurstTime> {
        let (place, rate) = self.service.first_bytes(state, TransferDirection::Write)?;
        Some(BurstTime {
            place,
            rate,
            is_scattered: self.is_scattered,
        })
    }
}

/// How long bursts take in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstTime {
    /// For each place that is written.
    place: Span,
    rate: Rate,
    is_scattered: bool,
}

impl BurstTime {
    /// The time of [`Device::flush`].
    pub fn time_of(&self, bytes: u64, objects: u64) -> Span {
        let places = if self.is_scattered { objects.max(1) } else { 1 };
        self.place * places + self.rate.transfer_time(bytes)
    }
}

/// Starts that may come at once where the profile's rating gives the rate.
const BURST: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_time_of_a_burst_is_that_of_its_job(bytes in 0_u64..1 << 34, objects in 0_u64..10_000, is_scattered in any::<bool>()) {
            let mut compared = 0;
            for name in Profile::shipped_names() {
                // A machine serves nothing by itself.
                let Ok(device) = DeviceModel::new(&Profile::find_shipped(name).unwrap()) else { continue };
                let device = DeviceModel { is_scattered, ..device };
                for state in device.power.state_ids() {
                    let time = device.burst_time(state).map(|time| time.time_of(bytes, objects));
                    prop_assert_eq!(time, device.flush_job(state, bytes, objects).map(|job| job.total_time()), "{} {:?}", name, state);
                    compared += usize::from(time.is_some());
                }
            }
            prop_assert!(compared >= 7, "{}", compared);
        }
    }
}
