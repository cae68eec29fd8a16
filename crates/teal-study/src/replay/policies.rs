//! Names policies.
//!
//! # Guarantees
//! 1. Every printed name can be parsed again.

use super::PreparedReplay;
use std::fmt;
use std::str::FromStr;
use teal_energy::policy::Policy;
use teal_energy::policy::always_on::AlwaysOn;
use teal_energy::policy::bluefs::BlueFs;
use teal_energy::policy::choice::CostWeights;
use teal_energy::policy::coda::Coda;
use teal_energy::policy::greenfs::GreenFs;
use teal_energy::policy::teal::{Teal, TealConfig};
use teal_energy::policy::timeout::FixedTimeout;
use teal_energy::profile::DeviceKind;
use teal_types::TimeSpan;

/// Names a policy, with its setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedPolicy {
    /// Nothing ever sleeps.
    AlwaysOn,
    /// Every device sleeps after this time.
    TimeOut(TimeSpan),
    /// The fixed time-out of ten that costs least on the trace; no policy knows it beforehand.
    BestTimeOut,
    /// Coda's static hierarchy, as BlueFS measured it. Its disk sleeps after this time, and its
    /// radio saves power always.
    Coda(TimeSpan),
    /// The policy of BlueFS.
    BlueFs,
    /// The policy of GreenFS.
    GreenFs,
    /// The policy of TealFS.
    Teal,
}

/// No policy has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no policy {0}; there are always-on, time-out, time-out=30s, coda, coda=5s, bluefs, \
     greenfs, teal, all"
)]
pub struct UnknownPolicy(pub String);

/// Fixed time-outs that are tried: 0.25 s to 128 s.
pub const TIME_OUTS: [TimeSpan; 10] = [
    TimeSpan::from_millis(250),
    TimeSpan::from_millis(500),
    TimeSpan::from_secs(1),
    TimeSpan::from_secs(2),
    TimeSpan::from_secs(4),
    TimeSpan::from_secs(8),
    TimeSpan::from_secs(16),
    TimeSpan::from_secs(32),
    TimeSpan::from_secs(64),
    TimeSpan::from_secs(128),
];
/// Default time-out of Coda's disk: the drive's own management is adaptive and unpublished.
const CODA: TimeSpan = TimeSpan::from_secs(2);

fn write_with_time(f: &mut fmt::Formatter<'_>, name: &str, time: TimeSpan) -> fmt::Result {
    match time.get() {
        nanos if nanos % 1_000_000_000 == 0 => write!(f, "{name}={}s", nanos / 1_000_000_000),
        nanos => write!(f, "{name}={}ms", nanos / 1_000_000),
    }
}

fn parse_time(text: &str) -> Option<TimeSpan> {
    let (digits, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(digits), _) => (digits, 1_000_000),
        (None, Some(digits)) => (digits, 1_000_000_000),
        (None, None) => (text, 1_000_000_000),
    };
    digits
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)
        .map(TimeSpan::from_nanos)
}

impl NamedPolicy {
    /// All policies, teal last.
    pub const ALL: [Self; 6] = [
        Self::AlwaysOn,
        Self::BestTimeOut,
        Self::Coda(CODA),
        Self::BlueFs,
        Self::GreenFs,
        Self::Teal,
    ];

    pub(super) fn create_policy(&self, scene: &PreparedReplay) -> Box<dyn Policy> {
        let devices = &scene.world.devices;
        match self {
            Self::AlwaysOn => Box::new(AlwaysOn::default()),
            Self::TimeOut(time) => Box::new(FixedTimeout::new(vec![Some(*time); devices.len()])),
            Self::BestTimeOut => {
                Box::new(FixedTimeout::new(vec![Some(TIME_OUTS[0]); devices.len()]))
            }
            Self::Coda(disk) => {
                // Coda's radio always saves power, without a time-out.
                let time = |kind| {
                    if kind == DeviceKind::Link {
                        TimeSpan::ZERO
                    } else {
                        *disk
                    }
                };
                Box::new(Coda::new(
                    devices
                        .iter()
                        .map(|device| Some(time(device.kind)))
                        .collect(),
                ))
            }
            Self::BlueFs => Box::new(BlueFs::new(CostWeights::EQUAL)),
            Self::GreenFs => Box::new(GreenFs::default()),
            Self::Teal => Box::new(Teal::new(TealConfig::default())),
        }
    }
}

impl fmt::Display for NamedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlwaysOn => "always-on",
            Self::TimeOut(time) => return write_with_time(f, "time-out", *time),
            Self::BestTimeOut => "time-out",
            Self::Coda(CODA) => "coda",
            Self::Coda(time) => return write_with_time(f, "coda", *time),
            Self::BlueFs => "bluefs",
            Self::GreenFs => "greenfs",
            Self::Teal => "teal",
        })
    }
}

impl FromStr for NamedPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let unknown = || UnknownPolicy(text.to_owned());
        for (prefix, of) in [
            ("time-out=", Self::TimeOut as fn(TimeSpan) -> Self),
            ("coda=", Self::Coda),
        ] {
            if let Some(text) = text.strip_prefix(prefix) {
                return parse_time(text).map(of).ok_or_else(unknown);
            }
        }
        Self::ALL
            .into_iter()
            .find(|named| named.to_string() == text)
            .ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_given_back() {
        let mut all = NamedPolicy::ALL.to_vec();
        all.extend(TIME_OUTS.map(NamedPolicy::TimeOut));
        all.extend(TIME_OUTS.map(NamedPolicy::Coda));
        for named in all {
            assert_eq!(named.to_string().parse(), Ok(named));
        }
        for bad in [
            "",
            "tealy",
            "time-out=",
            "time-out=-1s",
            "time-out=99999999999999999999s",
        ] {
            assert_eq!(bad.parse::<NamedPolicy>(), Err(UnknownPolicy(bad.into())));
        }
        assert_eq!(
            "time-out=30".parse(),
            Ok(NamedPolicy::TimeOut(TimeSpan::from_secs(30)))
        );
    }
}
