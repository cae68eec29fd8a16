//! A device as the policies know it: its model, its use, and the limits of its queue and of its
//! starts.
//!
//! # Guarantees
//! 1. A [`DeviceModel`] is complete: whatever a policy or a simulation asks of it is there.

use crate::power::{MissingFigure, PowerModel};
use crate::profile::{DeviceKind, Profile, StateId};
use crate::quantity::Rate;
use crate::service::{Job, ServiceModel, TransferDirection};
use teal_types::TimeSpan;

/// Most devices of one machine.
pub const DEVICES_MAX: usize = 16;

/// A device, by its place in the list of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(u8);

impl DeviceId {
    /// Makes the number of the device at this place; `None` beyond [`DEVICES_MAX`].
    pub fn new(index: usize) -> Option<Self> {
        u8::try_from(index)
            .ok()
            .filter(|_| index < DEVICES_MAX)
            .map(Self)
    }
    /// Returns the place in the list of devices.
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
    /// Returns the set with one more device.
    #[must_use]
    pub const fn with_device(self, device: DeviceId) -> Self {
        Self(self.0 | 1 << device.0)
    }
    /// Returns the set without one device.
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
    /// Returns the devices of the set in the order of their numbers.
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

/// The limits on how long changes may wait for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// The oldest change is flushed at this age, whatever a policy says.
    pub age: TimeSpan,
    /// A queue of so many bytes is flushed, whatever a policy says.
    pub bytes: u64,
}

impl QueueLimits {
    /// The window of BlueFS (4.3.1): 30 s.
    pub const BLUEFS: Self = Self {
        age: TimeSpan::from_secs(30),
        bytes: 15 << 20,
    };
    /// A sleeping disk behind a home log: a day.
    pub const SLEEPING_DISK: Self = Self {
        age: TimeSpan::from_hours(24),
        bytes: 1 << 30,
    };
}

/// The limits on how often a device may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Starts that may come at once.
    pub burst: u32,
    /// The time after which one more start is allowed.
    pub each: TimeSpan,
}

/// One device.
#[derive(Debug, Clone)]
pub struct DeviceModel {
    /// Name of the profile.
    pub name: String,
    /// The kind of the device.
    pub kind: DeviceKind,
    /// Its power states.
    pub power: PowerModel,
    /// The model of its service, state by state.
    pub service: ServiceModel,
    /// The limits of its queue; `None` if it takes no changes.
    pub queue: Option<QueueLimits>,
    /// Is true if each object of a burst has a place of its own (a directory tree), and false if
    /// all of them have one (a log).
    pub is_scattered: bool,
    /// The limits on its starts; `None` if it may start as often as it is told.
    pub budget: Option<BudgetLimits>,
}

impl DeviceModel {
    /// Makes the device of a profile, which takes no changes and starts as often as its rating
    /// allows.
    ///
    /// # Errors
    /// [`MissingFigure`] figures.
    pub fn new(profile: &Profile) -> Result<Self, MissingFigure> {
        let power = PowerModel::new(profile)?;
        let service = ServiceModel::new(profile, &power)?;
        // The rating spread over the promised life gives the time for one start.
        let budget = profile.rating.map(|rating| BudgetLimits {
            burst: BURST,
            each: TimeSpan::from_nanos(rating.life.get() / u64::from(rating.cycles)),
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

    /// Makes it a device that takes changes, which may wait within `limits`.
    #[must_use]
    pub fn with_queue(mut self, limits: QueueLimits) -> Self {
        self.queue = Some(limits);
        self
    }

    /// Returns the job of reading; `None` if the device does not serve in `state`.
    pub fn read_job(&self, state: StateId, bytes: u64, is_continued: bool) -> Option<Job> {
        self.service
            .job_for(state, TransferDirection::Read, bytes, is_continued)
    }

    /// Returns the job of a burst of changes; `None` if the device does not serve in `state`.
    pub fn flush_job(&self, state: StateId, bytes: u64, objects: u64) -> Option<Job> {
        // Every place costs an access of its own; a log has one place for the whole burst.
        let places = if self.is_scattered { objects.max(1) } else { 1 };
        let first = self
            .service
            .job_for(state, TransferDirection::Write, bytes, false)?;
        let more = self
            .service
            .job_for(state, TransferDirection::Write, 0, false)?;
        Some(first.with_repeated(&more, places - 1))
    }

    /// Returns the time that bursts take, without their job; `None` if the device does not serve in
    /// `state`.
    pub fn burst_time(&self, state: StateId) -> Option<BurstTime> {
        let (place, rate) = self.service.first_bytes(state, TransferDirection::Write)?;
        Some(BurstTime {
            place,
            rate,
            is_scattered: self.is_scattered,
        })
    }
}

/// The time that bursts take in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstTime {
    /// The time for each place that is written.
    place: TimeSpan,
    rate: Rate,
    is_scattered: bool,
}

impl BurstTime {
    /// Returns the time of [`DeviceModel::flush_job`].
    pub fn time_of(&self, bytes: u64, objects: u64) -> TimeSpan {
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
