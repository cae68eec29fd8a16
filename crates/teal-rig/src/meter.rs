//! Reads meters while a run goes on.
//!
//! # Guarantees
//! 1. A missing meter is reported before the first run.
//! 2. Its thread ends when the watch is over, whatever has happened. A failed reading is reported
//!    then, and no joules are made up.

use crate::command::program_output;
use crate::path_context::PathContext as _;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use teal_env::{Clock as _, SystemClock, Timer as _};
use teal_study::matrix::{MeterKind, MeterSettings, PowerReadings};

/// Directory of the kernel's RAPL counters.
const POWERCAP: &str = "/sys/class/powercap";

/// Seconds and values of one source.
type Readings = Vec<(f64, f64)>;

/// Names the source of readings.
#[derive(Debug, Clone)]
enum MeterSource {
    /// Counter of microjoules, and joules after which it begins anew.
    Counter(PathBuf, f64),
    /// File with microwatts.
    Watts(PathBuf),
    /// Program that prints watts.
    Program(Vec<String>),
}

/// Holds an open meter.
#[derive(Debug, Clone)]
pub struct PowerMeter {
    sources: Vec<MeterSource>,
    every: Duration,
}

impl PowerMeter {
    /// Opens the meter of a matrix and reads it once.
    ///
    /// # Errors
    /// Returns an error if it is missing or cannot be read.
    pub fn open(of: &MeterSettings) -> Result<Self> {
        let sources = match of.kind {
            MeterKind::Rapl => open_rapl(of.path.as_deref())?,
            MeterKind::Hwmon => vec![open_hwmon(Path::new(
                of.path.as_deref().unwrap_or_default(),
            ))?],
            MeterKind::Command => vec![MeterSource::Program(of.command.clone())],
        };
        // A meter that cannot be read now would fail in the middle of a run.
        for source in &sources {
            source.read_value().context("meter")?;
        }
        Ok(Self {
            sources,
            every: Duration::from_millis(of.every_ms),
        })
    }

    /// Starts reading it.
    pub(crate) fn start_watch(&self) -> Result<MeterWatch> {
        let end = Arc::new(AtomicBool::new(false));
        let (meter, ended) = (self.clone(), Arc::clone(&end));
        let thread = std::thread::Builder::new()
            .name("meter".into())
            .spawn(move || meter.read_until(&ended));
        Ok(MeterWatch {
            end,
            thread: Some(thread.context("a thread for the meter")?),
        })
    }

    fn read_until(&self, ended: &AtomicBool) -> Result<Vec<Readings>> {
        let clock = SystemClock;
        let mut readings = vec![Vec::new(); self.sources.len()];
        let mut next = clock.monotonic_time();
        loop {
            // One reading follows the end, so that the end lies between readings.
            let last = ended.load(Ordering::Relaxed);
            for (source, readings) in self.sources.iter().zip(&mut readings) {
                let (before, value) = (clock.monotonic_time(), source.read_value()?);
                // A reading takes time, so it is dated at its middle.
                let middle = (before + clock.monotonic_time()) / 2;
                readings.push((middle.as_secs_f64(), value));
            }
            debug_assert!(
                readings.iter().all(|of| of.len() == readings[0].len()),
                "all sources are read equally often"
            );
            if last {
                return Ok(readings);
            }
            // A slow meter delays the next reading, but makes no burst of them.
            next = (next + self.every).max(clock.monotonic_time());
            clock.wait_until(next);
        }
    }

    fn power_from(&self, readings: &[Readings]) -> PowerReadings {
        // Counters give joules, from which watts are computed; other sources give watts.
        let all = self
            .sources
            .iter()
            .zip(readings)
            .map(|(source, readings)| match source {
                MeterSource::Counter(_, range) => PowerReadings::of_counter(readings, *range),
                _ => PowerReadings::of_watts(readings.clone()),
            });
        PowerReadings::sum_of_meters(&all.collect::<Vec<_>>())
    }
}

impl MeterSource {
    fn read_value(&self) -> Result<f64> {
        let number = |path: &Path| -> Result<f64> {
            let text = std::fs::read_to_string(path).at_path(path)?;
            text.trim()
                .parse::<f64>()
                .with_context(|| format!("{} says '{}'", path.display(), text.trim()))
        };
        match self {
            // The kernel counts in micro-units.
            Self::Counter(path, _) | Self::Watts(path) => Ok(number(path)? / 1e6),
            Self::Program(words) => {
                let [program, args @ ..] = &words[..] else {
                    bail!("no command")
                };
                // The program prints one number each time it is called.
                let said = program_output(program, args).with_context(|| program.clone())?;
                let text = String::from_utf8_lossy(&said.stdout);
                let watts = text
                    .trim()
                    .parse::<f64>()
                    .ok()
                    .filter(|watts| said.status.success() && watts.is_finite());
                watts.with_context(|| {
                    format!("{} printed '{}', not watts", words.join(" "), text.trim())
                })
            }
        }
    }
}

/// Opens the package and memory counters, or the named one.
fn open_rapl(path: Option<&str>) -> Result<Vec<MeterSource>> {
    let zone = |dir: &Path| -> Result<MeterSource> {
        let range = dir.join("max_energy_range_uj");
        // The counter has few bits: its range is needed to see that it began anew.
        let text = std::fs::read_to_string(&range)
            .with_context(|| format!("RAPL: {}", range.display()))?;
        Ok(MeterSource::Counter(
            dir.join("energy_uj"),
            text.trim().parse::<f64>().unwrap_or(f64::MAX) / 1e6,
        ))
    };
    if let Some(path) = path {
        return Ok(vec![zone(Path::new(path))?]);
    }
    let named = |dir: &Path| std::fs::read_to_string(dir.join("name")).unwrap_or_default();
    let dirs = std::fs::read_dir(POWERCAP)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    // Packages and memory only: core counters are parts of the package's.
    let mut dirs: Vec<PathBuf> = dirs
        .filter(|dir| named(dir).starts_with("package") || named(dir).trim() == "dram")
        .collect();
    dirs.sort();
    if dirs.is_empty() {
        bail!(
            "meter: this machine has no RAPL counters ({POWERCAP}); say hwmon or command, or \
             leave [meter] out"
        );
    }
    dirs.iter().map(|dir| zone(dir)).collect()
}

fn open_hwmon(path: &Path) -> Result<MeterSource> {
    let name = path
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    if !path.is_file() {
        bail!(
            "meter: there is no {}; the kernel has such files as \
             /sys/class/hwmon/hwmon0/power1_input",
            path.display()
        );
    }
    // The kernel's names of such files tell their units.
    match &name[..] {
        name if name.starts_with("energy") => Ok(MeterSource::Counter(path.to_owned(), f64::MAX)),
        name if name.starts_with("power") => Ok(MeterSource::Watts(path.to_owned())),
        _ => bail!(
            "meter: {} is neither a power (powerN_input) nor an energy (energyN_input)",
            path.display()
        ),
    }
}

/// Holds a meter that is being read.
pub(crate) struct MeterWatch {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Readings>>>>,
}

impl MeterWatch {
    /// Returns the readings. Times are those of the machine's monotonic clock, in seconds.
    pub(crate) fn finish(mut self, meter: &PowerMeter) -> Result<PowerReadings> {
        // The thread reads once more before it ends.
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it ends once")?;
        let readings = thread
            .join()
            .map_err(|_| anyhow::anyhow!("the meter's thread has panicked"))??;
        Ok(meter.power_from(&readings))
    }
}

impl Drop for MeterWatch {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// Returns the time now, on the clock of [`PowerReadings`].
pub(crate) fn now_seconds() -> f64 {
    SystemClock.monotonic_time().as_secs_f64()
}
