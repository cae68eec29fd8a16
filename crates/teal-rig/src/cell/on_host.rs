//! Counts on this machine: reads the device's figures from a modelled disk or the kernel, and
//! joules from a meter.

use super::{CellCounter, CellTask, WorkloadFigures, run_on_testbed};
use crate::meter::{self, MeterWatch, PowerMeter};
use crate::testbed::Testbed;
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock, Timer as _};
use teal_study::matrix::{DeviceUse, MeterSettings, READINGS_MIN};

/// Limits the points of a run's power over time that are kept.
const POINTS: usize = 200;
/// Time after which an end is looked for while the idle power is measured.
const LOOK: Duration = Duration::from_millis(200);

/// Holds the work of a run's device, and its cost.
#[derive(Debug)]
pub struct DeviceFigures {
    /// Source of the joules.
    pub meter: teal_study::matrix::EnergySource,
    /// Work from the first operation to the last.
    pub run: DeviceUse,
    /// Work from then on until nothing was left to be written.
    pub drain: DeviceUse,
    /// Seconds since the first operation, and the mean watts around them.
    pub power: Vec<[f64; 2]>,
}

/// Runs a cell on this machine's kernel; returns `None` if it was interrupted.
///
/// # Errors
/// Returns an error if the cell cannot be run, or the meter fails.
pub fn run_here(
    task: &CellTask,
    testbed: &Testbed,
    schedulers: &[String],
    metering: Option<&MeterSettings>,
    ended: &AtomicBool,
) -> Result<Option<(WorkloadFigures, DeviceFigures)>> {
    let mut counter = HostCounter {
        meter: metering.map(PowerMeter::open).transpose()?,
        idle_seconds: metering.map_or(0, |of| of.idle_seconds),
        ended,
        watch: None,
        from: DeviceUse::default(),
        last_operation: 0.0,
        run: DeviceUse::default(),
        drain: DeviceUse::default(),
        power: Vec::new(),
    };
    let Some(figures) = run_on_testbed(task, testbed, schedulers, &mut counter, ended)? else {
        return Ok(None);
    };
    let meter = match metering {
        Some(of) => teal_study::matrix::EnergySource::Measured(of.name()),
        None => testbed.energy_source(),
    };
    let HostCounter {
        run, drain, power, ..
    } = counter;
    Ok(Some((
        figures,
        DeviceFigures {
            meter,
            run,
            drain,
            power,
        },
    )))
}

/// Holds a meter that is being read.
struct MeterReading {
    watch: MeterWatch,
    /// Time at which reading began, in seconds.
    since: f64,
    /// Time at which the workload began.
    began: f64,
}

struct HostCounter<'a> {
    meter: Option<PowerMeter>,
    /// Seconds before the run in which the idle power is measured; with 0 it is not.
    idle_seconds: u64,
    ended: &'a AtomicBool,
    watch: Option<MeterReading>,
    /// Work of the device before the run.
    from: DeviceUse,
    /// Time at which the last operation ended, in seconds.
    last_operation: f64,
    run: DeviceUse,
    drain: DeviceUse,
    power: Vec<[f64; 2]>,
}

impl CellCounter for HostCounter<'_> {
    fn begin_count(&mut self, testbed: &Testbed) -> Result<()> {
        // The meter is read during the idle time too, so that its mean can be taken off.
        if let Some(meter) = &self.meter {
            let (watch, since) = (meter.start_watch()?, meter::now_seconds());
            let clock = SystemClock;
            let end = clock.monotonic_time() + Duration::from_secs(self.idle_seconds);
            while clock.monotonic_time() < end && !self.ended.load(Ordering::Relaxed) {
                clock.wait_until(end.min(clock.monotonic_time() + LOOK));
            }
            self.watch = Some(MeterReading {
                watch,
                since,
                began: meter::now_seconds(),
            });
        }
        self.from = testbed.set_mark()?;
        Ok(())
    }

    fn end_operations(&mut self, testbed: &Testbed) -> Result<()> {
        // The time is taken first: asking the device takes some.
        self.last_operation = meter::now_seconds();
        self.run = testbed.device_use()?.since(&self.from);
        Ok(())
    }

    fn end_drain(&mut self, testbed: &Testbed) -> Result<()> {
        self.drain = testbed.device_use()?.since(&self.from).since(&self.run);
        self.power = testbed.watts_over_time()?;
        self.add_measured_joules()
    }
}

impl HostCounter<'_> {
    /// Adds the meter's joules, if there is one, to the run and to the drain, which has ended now;
    /// keeps the power of that time, thinned.
    fn add_measured_joules(&mut self) -> Result<()> {
        let (Some(meter), Some(reading)) = (&self.meter, self.watch.take()) else {
            return Ok(());
        };
        let MeterReading {
            watch,
            since,
            began,
        } = reading;
        let drained = meter::now_seconds();
        debug_assert!(
            since <= began && began <= drained,
            "times of a run are in order"
        );
        let power = watch.finish(meter)?;
        let too_few = |from: f64, to: f64| {
            let read = power.count_between(from, to);
            format!(
                "the meter was read {read} times in {:.1} s, and {READINGS_MIN} readings are \
                 needed: say a smaller meter.every_ms, or a longer runs.seconds",
                to - from
            )
        };
        // The idle power belongs to the machine, not to the run.
        let idle_watts = if self.idle_seconds > 0 {
            power
                .mean_watts(since, began)
                .with_context(|| too_few(since, began))?
        } else {
            0.0
        };
        let net_joules = |to: f64| {
            power
                .joules_between(began, to)
                .map(|joules| joules - idle_watts * (to - began))
        };
        let ended = self.last_operation;
        debug_assert!(
            ended >= began,
            "the last operation ends after the beginning"
        );
        self.run.joules = net_joules(ended).with_context(|| too_few(began, ended))?;
        // The drain is a difference, so both together are exact.
        let all = net_joules(drained).with_context(|| too_few(began, drained))?;
        self.drain.joules = all - self.run.joules;
        self.power.extend(thin_readings(power.readings(), began));
        Ok(())
    }
}

/// Returns seconds since `began` and watts of at most [`POINTS`] means of neighbouring readings.
fn thin_readings(readings: &[(f64, f64)], began: f64) -> Vec<[f64; 2]> {
    let of_run: Vec<_> = readings.iter().filter(|(at, _)| *at >= began).collect();
    debug_assert!(
        readings.windows(2).all(|pair| pair[0].0 <= pair[1].0),
        "readings are in the order of their times"
    );
    let every = of_run.len().div_ceil(POINTS).max(1);
    let mean = |some: &[&(f64, f64)]| {
        let many = some.len() as f64;
        let seconds: f64 = some.iter().map(|(at, _)| at - began).sum();
        let watts: f64 = some.iter().map(|(_, watts)| watts).sum();
        [seconds / many, watts / many]
    };
    of_run.chunks(every).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_over_time_is_thinned_to_means_and_begins_with_the_run() {
        let readings: Vec<_> = (0..1000_u32)
            .map(|at| (f64::from(at), f64::from(at % 2)))
            .collect();
        let points = thin_readings(&readings, 200.0);
        assert_eq!(points.len(), POINTS);
        assert_eq!(points[0], [1.5, 0.5]);
        assert_eq!(points[POINTS - 1], [797.5, 0.5]);
        assert_eq!(thin_readings(&readings[..3], 1.0), [[0.0, 1.0], [1.0, 0.0]]);
    }
}
