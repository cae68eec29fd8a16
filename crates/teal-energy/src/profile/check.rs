//! Checks the settings that a person wrote, and makes a consistent profile of them.

use super::settings::{self, ProfileSettings};
use super::{
    ActivePower, BurstEnergy, CycleRating, DeviceKind, DiskSurface, DriveElectronics, PowerState,
    Profile, ProfileError, SeekTimes, ServiceFigures, StateId, TransferFigures, Transition,
};
use std::ops::Range;
use teal_types::{Bytes, TimeSpan};
use toml::Spanned;

/// States of one device: a bound that a [`StateId`] holds.
const STATES_MAX: usize = 16;

struct ProfileChecker<'a> {
    text: &'a str,
    sources: Vec<(String, String)>,
}

pub(super) fn check_settings(
    text: &str,
    settings: ProfileSettings,
) -> Result<Profile, ProfileError> {
    let mut checker = ProfileChecker {
        text,
        sources: Vec::new(),
    };
    let kind = match settings.kind {
        settings::KindSetting::Disk => DeviceKind::Disk,
        settings::KindSetting::Flash => DeviceKind::Flash,
        settings::KindSetting::Link => DeviceKind::Link,
        settings::KindSetting::Machine => DeviceKind::Machine,
    };
    let name = settings.name.get_ref();
    if name.is_empty()
        || !name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
    {
        return Err(checker.refuse(
            settings.name.span(),
            "a name has lower-case letters, digits, `-` and `.` only",
        ));
    }
    checker.check_groups(kind, &settings)?;
    let states = checker.check_states(&settings.state)?;
    let transitions = checker.check_transitions(&settings.transition, &states)?;
    let profile = Profile {
        name: settings.name.into_inner(),
        title: settings.title,
        kind,
        seek: checker.check_seek(settings.seek.as_ref())?,
        rotation: checker.take_group("rotation", settings.rotation.as_ref(), |r| {
            (r.speed.0, &r.source)
        })?,
        media: checker.check_media(settings.media.as_ref())?,
        active: checker.take_group("active", settings.active.as_ref(), take_active)?,
        electronics: checker
            .take_group(
                "electronics",
                settings.electronics.as_ref(),
                take_electronics,
            )?
            .unwrap_or_default(),
        services: checker.check_services(&settings.service, &states)?,
        burst: checker.take_group("burst", settings.burst.as_ref(), |b| {
            (
                BurstEnergy {
                    start: b.start.0,
                    power: b.power.0,
                    rate: b.rate.0,
                },
                &b.source,
            )
        })?,
        rating: checker.check_rating(settings.rating.as_ref())?,
        base: checker.take_group("machine", settings.machine.as_ref(), |m| {
            (m.base.0, &m.source)
        })?,
        sources: checker.sources,
        states,
        transitions,
    };
    Ok(profile)
}

fn take_active(a: &settings::ActiveSettings) -> (ActivePower, &String) {
    (
        ActivePower {
            seek: a.seek.0,
            rotate: a.rotate.0,
            read: a.read.0,
            write: a.write.0,
        },
        &a.source,
    )
}

fn take_electronics(e: &settings::ElectronicsSettings) -> (DriveElectronics, &String) {
    let parts = DriveElectronics {
        overhead: e.overhead.map_or(TimeSpan::ZERO, |g| g.0),
        interface: e.interface.map(|g| g.0),
        track_buffer: e.track_buffer.map_or(Bytes::new(0), |g| g.0),
        write_cache: e.write_cache.map_or(Bytes::new(0), |g| g.0),
    };
    (parts, &e.source)
}

impl ProfileChecker<'_> {
    fn refuse(&self, span: Range<usize>, problem: impl Into<String>) -> ProfileError {
        ProfileError::at_span(self.text, span, problem)
    }

    fn note_source(
        &mut self,
        group: &str,
        span: Range<usize>,
        source: &str,
    ) -> Result<(), ProfileError> {
        if source.trim().is_empty() {
            return Err(self.refuse(
                span,
                format!("`{group}` needs a source: where do its figures come from?"),
            ));
        }
        self.sources.push((group.to_owned(), source.to_owned()));
        Ok(())
    }

    fn take_group<S, T>(
        &mut self,
        name: &str,
        given: Option<&Spanned<S>>,
        take: impl Fn(&S) -> (T, &String),
    ) -> Result<Option<T>, ProfileError> {
        let Some(given) = given else { return Ok(None) };
        let (taken, source) = take(given.get_ref());
        self.note_source(name, given.span(), source)?;
        Ok(Some(taken))
    }

    /// Refuses groups in profiles of a kind that they do not describe.
    fn check_groups(
        &self,
        kind: DeviceKind,
        settings: &ProfileSettings,
    ) -> Result<(), ProfileError> {
        let span = |there: Option<Range<usize>>, name: &'static str| there.map(|span| (span, name));
        let of_disks = [
            span(settings.seek.as_ref().map(Spanned::span), "seek"),
            span(settings.rotation.as_ref().map(Spanned::span), "rotation"),
            span(settings.media.as_ref().map(Spanned::span), "media"),
            span(settings.active.as_ref().map(Spanned::span), "active"),
            span(
                settings.electronics.as_ref().map(Spanned::span),
                "electronics",
            ),
        ];
        let of_lines = [span(settings.service.first().map(Spanned::span), "service")];
        let of_devices = [
            span(settings.state.first().map(Spanned::span), "state"),
            span(settings.burst.as_ref().map(Spanned::span), "burst"),
            span(settings.rating.as_ref().map(Spanned::span), "rating"),
        ];
        let of_machines = [span(
            settings.machine.as_ref().map(Spanned::span),
            "machine",
        )];
        let foreign: Vec<_> = match kind {
            DeviceKind::Disk => of_lines.into_iter().chain(of_machines).flatten().collect(),
            DeviceKind::Flash | DeviceKind::Link => {
                of_disks.into_iter().chain(of_machines).flatten().collect()
            }
            DeviceKind::Machine => of_disks
                .into_iter()
                .chain(of_lines)
                .chain(of_devices)
                .flatten()
                .collect(),
        };
        match foreign.into_iter().next() {
            Some((span, name)) => Err(self.refuse(
                span,
                format!("`{name}` does not describe this kind of device"),
            )),
            None => Ok(()),
        }
    }

    fn check_states(
        &mut self,
        given: &[Spanned<settings::StateSettings>],
    ) -> Result<Vec<PowerState>, ProfileError> {
        let mut states: Vec<PowerState> = Vec::new();
        for entry in given {
            let state = entry.get_ref();
            if states.iter().any(|known| known.name == state.name) {
                return Err(self.refuse(
                    entry.span(),
                    format!("there are two states `{}`", state.name),
                ));
            }
            self.note_source(
                &format!("state {}", state.name),
                entry.span(),
                &state.source,
            )?;
            states.push(PowerState {
                name: state.name.clone(),
                power: state.power.0,
                serves: state.serves,
            });
        }
        if let Some(beyond) = given.get(STATES_MAX) {
            return Err(self.refuse(beyond.span(), format!("more than {STATES_MAX} states")));
        }
        // A state that serves nothing and draws more than one that serves would never be entered.
        let most = states
            .iter()
            .filter(|state| state.serves)
            .map(|state| state.power)
            .max();
        for (entry, state) in given.iter().zip(&states) {
            match most {
                None => {
                    return Err(
                        self.refuse(entry.span(), "no state serves: say `serves = true` in one")
                    );
                }
                Some(most) if !state.serves && state.power > most => {
                    let problem = format!(
                        "`{}` serves nothing and draws more than any state that serves",
                        state.name
                    );
                    return Err(self.refuse(entry.span(), problem));
                }
                Some(_) => {}
            }
        }
        Ok(states)
    }

    fn state_named(
        &self,
        span: Range<usize>,
        name: &str,
        states: &[PowerState],
    ) -> Result<StateId, ProfileError> {
        let at = states.iter().position(|state| state.name == name);
        at.and_then(|at| u8::try_from(at).ok())
            .map(StateId)
            .ok_or_else(|| {
                let names = states
                    .iter()
                    .map(|state| format!("`{}`", state.name))
                    .collect::<Vec<_>>()
                    .join(", ");
                self.refuse(
                    span,
                    format!("there is no state `{name}`; there are {names}"),
                )
            })
    }

    fn check_transitions(
        &mut self,
        given: &[Spanned<settings::TransitionSettings>],
        states: &[PowerState],
    ) -> Result<Vec<Transition>, ProfileError> {
        let mut all: Vec<Transition> = Vec::new();
        for entry in given {
            let way = entry.get_ref();
            let (from, to) = (
                self.state_named(entry.span(), &way.from, states)?,
                self.state_named(entry.span(), &way.to, states)?,
            );
            if from == to {
                return Err(self.refuse(
                    entry.span(),
                    format!("a transition from `{}` to itself", way.from),
                ));
            }
            if all.iter().any(|known| (known.from, known.to) == (from, to)) {
                let problem = format!(
                    "there are two transitions from `{}` to `{}`",
                    way.from, way.to
                );
                return Err(self.refuse(entry.span(), problem));
            }
            self.note_source(
                &format!("transition {} to {}", way.from, way.to),
                entry.span(),
                &way.source,
            )?;
            all.push(Transition {
                from,
                to,
                time: way.time.0,
                energy: way.energy.0,
                cycles: way.cycles,
            });
        }
        for (entry, way) in given.iter().zip(&all) {
            // A state without a way out would trap the device.
            if !all.iter().any(|back| back.from == way.to) {
                let name = &states[way.to.index()].name;
                return Err(self.refuse(
                    entry.span(),
                    format!("`{name}` can be entered and never left"),
                ));
            }
        }
        Ok(all)
    }

    fn check_seek(
        &mut self,
        given: Option<&Spanned<settings::SeekSettings>>,
    ) -> Result<Option<SeekTimes>, ProfileError> {
        let Some(entry) = given else { return Ok(None) };
        let seek = entry.get_ref();
        let average = seek.average.0;
        let extremes = match (seek.track, seek.full) {
            (None, None) => None,
            (Some(track), Some(full)) if track.0 <= average && average <= full.0 => {
                Some((track.0, full.0))
            }
            (Some(_), Some(_)) => {
                return Err(self.refuse(entry.span(), "seeks must grow: track, average, full"));
            }
            _ => {
                return Err(self.refuse(
                    entry.span(),
                    "`track` and `full` are given both or not at all",
                ));
            }
        };
        self.take_group("seek", given, |s| {
            (SeekTimes { average, extremes }, &s.source)
        })
    }

    fn check_media(
        &mut self,
        given: Option<&Spanned<settings::MediaSettings>>,
    ) -> Result<Option<DiskSurface>, ProfileError> {
        if let Some(entry) = given.filter(|entry| entry.get_ref().inner.0 > entry.get_ref().outer.0)
        {
            return Err(self.refuse(
                entry.span(),
                "the inner track cannot be faster than the outer",
            ));
        }
        self.take_group("media", given, |m| {
            (
                DiskSurface {
                    capacity: m.capacity.0,
                    outer: m.outer.0,
                    inner: m.inner.0,
                },
                &m.source,
            )
        })
    }

    fn check_services(
        &mut self,
        given: &[Spanned<settings::ServiceSettings>],
        states: &[PowerState],
    ) -> Result<Vec<ServiceFigures>, ProfileError> {
        let mut all: Vec<ServiceFigures> = Vec::new();
        for entry in given {
            let service = entry.get_ref();
            let state = self.state_named(entry.span(), &service.state, states)?;
            if !states[state.index()].serves {
                return Err(self.refuse(
                    entry.span(),
                    format!("the state `{}` does not serve", service.state),
                ));
            }
            if all.iter().any(|known| known.state == state) {
                return Err(self.refuse(
                    entry.span(),
                    format!("there are two services in `{}`", service.state),
                ));
            }
            self.note_source(
                &format!("service {}", service.state),
                entry.span(),
                &service.source,
            )?;
            let read = TransferFigures {
                latency: service.read_latency.0,
                rate: service.read_rate.0,
                power: service.read_power.0,
                picojoules_per_byte: service.read_picojoules_per_byte,
            };
            let write = TransferFigures {
                latency: service.write_latency.0,
                rate: service.write_rate.0,
                power: service.write_power.0,
                picojoules_per_byte: service.write_picojoules_per_byte,
            };
            all.push(ServiceFigures { state, read, write });
        }
        Ok(all)
    }

    fn check_rating(
        &mut self,
        given: Option<&Spanned<settings::RatingSettings>>,
    ) -> Result<Option<CycleRating>, ProfileError> {
        if let Some(entry) = given {
            let rating = entry.get_ref();
            if rating.cycles == 0 || rating.life.0 == TimeSpan::ZERO {
                return Err(
                    self.refuse(entry.span(), "a rating needs cycles and a life above zero")
                );
            }
        }
        self.take_group("rating", given, |r| {
            (
                CycleRating {
                    cycles: r.cycles,
                    life: r.life.0,
                },
                &r.source,
            )
        })
    }
}
