//! Decides when a device's queue is written (GreenFS 2.2; BlueFS 4.3.1).
//!
//! # Guarantees
//! 1. A queue is always written whole: one burst for all that has gathered.
//! 2. A burst that a user asked for (a sync, a shutdown) or that keeps data safe (memory pressure,
//!    size) comes before comfort: only age and quiet hours wait while a user is there to hear the
//!    disk.

use super::{MachineSignal, MachineView, PowerSupply};
use crate::device::DeviceId;
use crate::profile::DeviceKind;
use teal_types::{Time, TimeSpan};

/// The reason why a queue is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlushTrigger {
    /// The oldest change has waited long enough.
    Age,
    /// Enough has gathered.
    Size,
    /// The device is awake anyway.
    Awake,
    /// The machine goes down.
    Shutdown,
    /// Memory is short.
    Memory,
    /// Much is read or written for a while; the device is wanted anyway.
    Traffic,
    /// The user is probably away.
    Quiet,
    /// A user asked for it.
    User,
}

/// When queues are written, besides the hard limits of each device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushConfig {
    /// The age at which a queue is written when powered, and on battery.
    pub age: (TimeSpan, TimeSpan),
    /// The part of the size limit at which a queue is written, in percent (BlueFS: 75).
    pub percent: u64,
    /// The quiet hours, from and until these times of day, in which queues older than `quiet_age`
    /// are written.
    pub quiet: Option<(TimeSpan, TimeSpan)>,
    /// The age from which on a queue is written in quiet hours.
    pub quiet_age: TimeSpan,
    /// Is true if a sleeping disk is not woken for age while a user is there.
    pub is_silent: bool,
}

impl Default for FlushConfig {
    fn default() -> Self {
        Self {
            age: (TimeSpan::from_hours(24), TimeSpan::from_hours(24)),
            percent: 75,
            quiet: Some((TimeSpan::from_hours(3), TimeSpan::from_hours(5))),
            quiet_age: TimeSpan::from_hours(6),
            is_silent: true,
        }
    }
}

fn is_within(time: TimeSpan, (from, until): (TimeSpan, TimeSpan)) -> bool {
    if from <= until {
        from <= time && time < until
    } else {
        from <= time || time < until
    }
}

/// Returns the reason why the queue of a device is to be written now, if it is, and the time to ask
/// again.
pub fn flush_due(
    view: &MachineView<'_>,
    id: DeviceId,
    config: &FlushConfig,
    signal: Option<MachineSignal>,
) -> (Option<FlushTrigger>, Option<Time>) {
    let known = view.device(id);
    let (Some(limits), Some(oldest)) = (known.device.queue, known.oldest) else {
        return (None, None);
    };
    // A shutdown, a sync and short memory cannot wait; neither can a queue near its limit.
    let asked = match signal {
        Some(MachineSignal::Shutdown) => Some(FlushTrigger::Shutdown),
        Some(MachineSignal::Sync) => Some(FlushTrigger::User),
        Some(MachineSignal::MemoryPressure) => Some(FlushTrigger::Memory),
        _ => (known.queued.saturating_mul(100) >= limits.bytes.saturating_mul(config.percent))
            .then_some(FlushTrigger::Size),
    };
    if asked.is_some() {
        return (asked, None);
    }
    let wakes_a_disk =
        known.device.kind == DeviceKind::Disk && !known.device.power.serves(known.target_state());
    // Age alone does not wake a sleeping disk while a user would hear it. The hard limit of the
    // queue still does.
    if config.is_silent && view.is_user_present && wakes_a_disk {
        return (None, None);
    }
    let age = view.now.since(oldest);
    let wanted = if view.supply == PowerSupply::Powered {
        config.age.0
    } else {
        config.age.1
    };
    if age >= wanted {
        return (Some(FlushTrigger::Age), None);
    }
    let mut again = oldest + wanted;
    if let Some(quiet) = config.quiet {
        let is_old = age >= config.quiet_age;
        if is_old && is_within(view.time_of_day, quiet) {
            return (Some(FlushTrigger::Quiet), None);
        }
        let day = TimeSpan::from_hours(24);
        // The time of day wraps at midnight.
        let until_quiet = TimeSpan::from_nanos(
            (quiet.0.get() + day.get() - view.time_of_day.get() % day.get()) % day.get(),
        );
        let next = if is_old {
            view.now + until_quiet
        } else {
            oldest + config.quiet_age
        };
        again = again.min(next);
    }
    (None, Some(again))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_may_pass_midnight() {
        let night = (TimeSpan::from_hours(23), TimeSpan::from_hours(5));
        let inside = [22, 23, 0, 4, 5].map(|hour| is_within(TimeSpan::from_hours(hour), night));
        assert_eq!(inside, [false, true, true, true, false]);
        assert!(is_within(
            TimeSpan::from_hours(3),
            (TimeSpan::from_hours(3), TimeSpan::from_hours(5))
        ));
    }
}
