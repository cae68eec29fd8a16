//! A profile as a person wrote it: TOML, nothing checked but names and figures.

use crate::quantity::{Given, Rate, Speed};
use serde::Deserialize;
use teal_types::{Bytes, Energy, Power, Span};
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) name: Spanned<String>,
    pub(super) title: String,
    pub(super) kind: Kind,
    #[serde(default)]
    pub(super) state: Vec<Spanned<State>>,
    #[serde(default)]
    pub(super) transition: Vec<Spanned<Transition>>,
    pub(super) seek: Option<Spanned<Seek>>,
    pub(super) rotation: Option<Spanned<Rotation>>,
    pub(super) media: Option<Spanned<Media>>,
    pub(super) active: Option<Spanned<Active>>,
    pub(super) electronics: Option<Spanned<Electronics>>,
    #[serde(default)]
    pub(super) service: Vec<Spanned<Service>>,
    pub(super) burst: Option<Spanned<Burst>>,
    pub(super) rating: Option<Spanned<Rating>>,
    pub(super) machine: Option<Spanned<Machine>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Disk,
    Flash,
    Link,
    Machine,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) power: Given<Power>,
    #[serde(default)]
    pub(super) serves: bool,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Transition {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) time: Given<Span>,
    pub(super) energy: Given<Energy>,
    #[serde(default)]
    pub(super) cycles: u32,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Seek {
    pub(super) average: Given<Span>,
    pub(super) track: Option<Given<Span>>,
    pub(super) full: Option<Given<Span>>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rotation {
    pub(super) speed: Given<Speed>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Media {
    pub(super) capacity: Given<Bytes>,
    pub(super) outer: Given<Rate>,
    pub(super) inner: Given<Rate>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Active {
    pub(super) seek: Given<Power>,
    pub(super) rotate: Given<Power>,
    pub(super) read: Given<Power>,
    pub(super) write: Given<Power>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Electronics {
    pub(super) overhead: Option<Given<Span>>,
    pub(super) interface: Option<Given<Rate>>,
    pub(super) track_buffer: Option<Given<Bytes>>,
    pub(super) write_cache: Option<Given<Bytes>>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    pub(super) state: String,
    pub(super) read_latency: Given<Span>,
    pub(super) write_latency: Given<Span>,
    pub(super) read_rate: Given<Rate>,
    pub(super) write_rate: Given<Rate>,
    pub(super) read_power: Given<Power>,
    pub(super) write_power: Given<Power>,
    /// Picojoules for each byte, besides the power.
    #[serde(default)]
    pub(super) read_picojoules_per_byte: u32,
    #[serde(default)]
    pub(super) write_picojoules_per_byte: u32,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Burst {
    pub(super) start: Given<Energy>,
    pub(super) power: Given<Power>,
    pub(super) rate: Given<Rate>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rating {
    pub(super) cycles: u32,
    pub(super) life: Given<Span>,
    pub(super) source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) base: Given<Power>,
    pub(super) source: String,
}
