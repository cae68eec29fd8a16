//! A profile as a person wrote it: TOML, nothing checked but names and figures.

use crate::quantity::{Rate, RotationSpeed, SettingsFigure};
use serde::Deserialize;
use teal_types::{Bytes, Energy, Power, TimeSpan};
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileSettings {
    pub(super) name: Spanned<String>,
    pub(super) title: String,
    pub(super) kind: KindSetting,
    #[serde(default)]
    pub(super) state: Vec<Spanned<StateSettings>>,
    #[serde(default)]
    pub(super) transition: Vec<Spanned<TransitionSettings>>,
    pub(super) seek: Option<Spanned<SeekSettings>>,
    pub(super) rotation: Option<Spanned<RotationSettings>>,
    pub(super) media: Option<Spanned<MediaSettings>>,
    pub(super) active: Option<Spanned<ActiveSettings>>,
    pub(super) electronics: Option<Spanned<ElectronicsSettings>>,
    #[serde(default)]
    pub(super) service: Vec<Spanned<ServiceSettings>>,
    pub(super) burst: Option<Spanned<BurstSettings>>,
    pub(super) rating: Option<Spanned<RatingSettings>>,
    pub(super) machine: Option<Spanned<MachineSettings>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KindSetting {
    Disk,
    Flash,
    Link,
    Machine,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateSettings {
    pub(super) name: String,
    pub(super) power: SettingsFigure<Power>,
    #[serde(default)]
    pub(super) serves: bool,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransitionSettings {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) time: SettingsFigure<TimeSpan>,
    pub(super) energy: SettingsFigure<Energy>,
    #[serde(default)]
    pub(super) cycles: u32,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeekSettings {
    pub(super) average: SettingsFigure<TimeSpan>,
    pub(super) track: Option<SettingsFigure<TimeSpan>>,
    pub(super) full: Option<SettingsFigure<TimeSpan>>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RotationSettings {
    pub(super) speed: SettingsFigure<RotationSpeed>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MediaSettings {
    pub(super) capacity: SettingsFigure<Bytes>,
    pub(super) outer: SettingsFigure<Rate>,
    pub(super) inner: SettingsFigure<Rate>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActiveSettings {
    pub(super) seek: SettingsFigure<Power>,
    pub(super) rotate: SettingsFigure<Power>,
    pub(super) read: SettingsFigure<Power>,
    pub(super) write: SettingsFigure<Power>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ElectronicsSettings {
    pub(super) overhead: Option<SettingsFigure<TimeSpan>>,
    pub(super) interface: Option<SettingsFigure<Rate>>,
    pub(super) track_buffer: Option<SettingsFigure<Bytes>>,
    pub(super) write_cache: Option<SettingsFigure<Bytes>>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceSettings {
    pub(super) state: String,
    pub(super) read_latency: SettingsFigure<TimeSpan>,
    pub(super) write_latency: SettingsFigure<TimeSpan>,
    pub(super) read_rate: SettingsFigure<Rate>,
    pub(super) write_rate: SettingsFigure<Rate>,
    pub(super) read_power: SettingsFigure<Power>,
    pub(super) write_power: SettingsFigure<Power>,
    /// Picojoules for each byte, besides the power.
    #[serde(default)]
    pub(super) read_picojoules_per_byte: u32,
    #[serde(default)]
    pub(super) write_picojoules_per_byte: u32,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BurstSettings {
    pub(super) start: SettingsFigure<Energy>,
    pub(super) power: SettingsFigure<Power>,
    pub(super) rate: SettingsFigure<Rate>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RatingSettings {
    pub(super) cycles: u32,
    pub(super) life: SettingsFigure<TimeSpan>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineSettings {
    pub(super) base: SettingsFigure<Power>,
    pub(super) source: String,
}
