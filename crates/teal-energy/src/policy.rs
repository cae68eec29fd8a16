//! Policies decide which device serves a read, and when devices are flushed, woken and put to
//! sleep.
//!
//! # Guarantees
//! 1. A policy is told everything and touches nothing: it sees a [`MachineView`] and answers with a
//!    device or with [`PolicyAction`]s.
//! 2. The same views in the same order give the same answers. No policy looks at a clock, and none
//!    draws lots.
//! 3. The caller of a policy (the daemon, the [simulator](crate::sim)) keeps the hard limits: the
//!    age and size of queues, and the budget of starts. A policy may be bad; it cannot lose data or
//!    wear out a disk.

pub mod always_on;
pub mod awake_value;
pub mod bluefs;
pub mod budget;
pub mod choice;
pub mod coda;
pub mod flush;
pub mod ghost;
pub mod greenfs;
pub mod sleep;
pub mod teal;
#[cfg(test)]
mod tests;
pub mod timeout;

use crate::device::{DeviceId, DeviceModel, DeviceSet};
use crate::power::DeviceActivity;
use crate::profile::StateId;
pub use flush::FlushTrigger;
use teal_types::{Power, Time, TimeSpan};

/// The source of the machine's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerSupply {
    /// Every joule counts (scherlfs 4.1.5).
    Battery,
    /// Energy is there; time and wear count more.
    Powered,
}

/// An event besides reading and writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineSignal {
    /// The supply has changed.
    Supply(PowerSupply),
    /// A user is at the machine (`true`), or has gone.
    Presence(bool),
    /// The machine is about to be shut down or suspended.
    Shutdown,
    /// Memory is short.
    MemoryPressure,
    /// A user asked for everything to be written everywhere.
    Sync,
}

/// One device as it is now.
#[derive(Debug, Clone, Copy)]
pub struct DeviceView<'a> {
    /// Its model.
    pub device: &'a DeviceModel,
    /// Its activity.
    pub activity: DeviceActivity,
    /// Bytes in its queue.
    pub queued: u64,
    /// Since when the oldest of them waits.
    pub oldest: Option<Time>,
    /// Is true if work waits for it.
    pub is_wanted: bool,
    /// When it last finished something that was asked of it.
    pub last_used: Time,
    /// Is true if the budget allows one more stop and start.
    pub may_stop: bool,
    /// Stops and starts that it allows now.
    pub tokens: u64,
}

/// Everything as it is now.
#[derive(Debug, Clone, Copy)]
pub struct MachineView<'a> {
    /// Monotonic time.
    pub now: Time,
    /// Time since midnight.
    pub time_of_day: TimeSpan,
    /// The devices.
    pub devices: &'a [DeviceView<'a>],
    /// The power that the machine draws while a program waits.
    pub base: Power,
    /// The source of its power.
    pub supply: PowerSupply,
    /// Is true if a user is there, who hears a disk start.
    pub is_user_present: bool,
}

impl<'a> MachineView<'a> {
    /// Returns all devices with their numbers.
    pub fn devices_with_ids(
        &self,
    ) -> impl Iterator<Item = (DeviceId, &'a DeviceView<'a>)> + use<'a> {
        self.devices
            .iter()
            .enumerate()
            .filter_map(|(at, view)| Some((DeviceId::new(at)?, view)))
    }

    /// Returns one device.
    pub fn device(&self, id: DeviceId) -> &'a DeviceView<'a> {
        &self.devices[id.index()]
    }
}

impl DeviceView<'_> {
    /// Returns the state in which it rests and could serve at once.
    pub fn serving_state(&self) -> Option<StateId> {
        match self.activity {
            DeviceActivity::Resting { state, .. } if self.device.power.serves(state) => Some(state),
            _ => None,
        }
    }

    /// Returns the state it is in or on its way to.
    pub fn target_state(&self) -> StateId {
        match self.activity {
            DeviceActivity::Resting { state, .. }
            | DeviceActivity::Working { state, .. }
            | DeviceActivity::Moving { to: state, .. } => state,
        }
    }

    /// Returns the time since it was last asked for something; `None` while it works, moves or is
    /// wanted.
    pub fn idle_time(&self, now: Time) -> Option<TimeSpan> {
        match self.activity {
            DeviceActivity::Resting { since, .. } if !self.is_wanted => {
                Some(now.since(self.last_used.max(since)))
            }
            _ => None,
        }
    }
}

/// A read that has to be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// The object.
    pub object: u64,
    /// The offset in it.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// Devices that hold it; never empty.
    pub copies: DeviceSet,
    /// Those of the copies that the last access of the same device ends where this one begins.
    pub continued: DeviceSet,
}

/// A read that was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredRead {
    /// The device that served it.
    pub device: DeviceId,
    /// The state it was served from.
    pub state: StateId,
    /// The number of bytes.
    pub bytes: u64,
    /// Is true if it continued the device's last access.
    pub is_continued: bool,
    /// The time that the device worked on it, without the wait for the device.
    pub time: TimeSpan,
}

/// An action that a policy wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyAction {
    /// Take a device to a state, as soon as nothing waits for it.
    Enter(DeviceId, StateId),
    /// Write a device's whole queue, for this reason.
    Flush(DeviceId, FlushTrigger),
}

/// A policy of energy.
pub trait Policy {
    /// Returns its name in tables.
    fn name(&self) -> &'static str;

    /// Returns which device of `ask.copies` serves a read.
    fn choose_device(&mut self, view: &MachineView<'_>, ask: &ReadRequest) -> DeviceId;

    /// Tells the policy that a read was served.
    fn observe_read(&mut self, _view: &MachineView<'_>, _measured: &MeasuredRead) {}

    /// Adds the actions that are to be done now to `actions`, since something has changed or the
    /// time has come that the policy had asked for. Returns the time to ask again if nothing
    /// changes before.
    fn decide_actions(
        &mut self,
        view: &MachineView<'_>,
        signal: Option<MachineSignal>,
        actions: &mut Vec<PolicyAction>,
    ) -> Option<Time>;
}

/// Returns the earlier of two times to ask again.
pub(crate) fn earlier_time(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    a.into_iter().chain(b).min()
}
