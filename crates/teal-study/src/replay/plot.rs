//! Draws a replay as SVG: energy by device and state, delays, and wake-ups over time.
//!
//! # Guarantees
//! 1. The same runs give the same bytes.
//! 2. The picture refers to nothing outside: no fonts, scripts or style sheets.

use super::{EnergyBound, ModelledMachine, PolicyRun};
use std::fmt::Write as _;
use teal_energy::profile::DeviceKind;
use teal_types::{Energy, Time, TimeSpan};

const WIDTH: f64 = 1080.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 370.0;
const BAR: f64 = 26.0;
const PANEL: f64 = 230.0;
/// The decades of the axis of delays, from 10 us to 1000 s.
const DELAY_DECADES: f64 = 8.0;
/// Limits the steps that are drawn of a line.
const STEPS: usize = 1000;
/// Colours that are told apart without seeing the difference between red and green.
const COLOURS: [&str; 12] = [
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222255",
    "#ee8866", "#44bb99", "#eedd88", "#77aadd",
];

/// Renders the picture. `title` names the trace.
pub fn render_svg(
    title: &str,
    machine: &ModelledMachine,
    runs: &[PolicyRun],
    bound: &EnergyBound,
) -> String {
    // Bars grow with the number of policies; the other panels have a fixed height.
    let bars = BAR * runs.len() as f64 + 90.0;
    let wakeups = WakeupPanel::for_machine(machine);
    let height = 50.0 + bars + (1 + wakeups.len()) as f64 * PANEL + 40.0;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">"
    );
    let _ = writeln!(
        out,
        r#"<rect width="{WIDTH}" height="{height}" fill="white"/>"#
    );
    draw_text(
        &mut out,
        12.0,
        20.0,
        "start",
        &format!("{title} on {}", machine.name),
    );
    draw_text(
        &mut out,
        12.0,
        36.0,
        "start",
        &format!("modelled by {}", machine.profile_names().join(", ")),
    );
    draw_energy(&mut out, 50.0, machine, runs, bound);
    draw_delays(&mut out, 50.0 + bars, runs);
    let mut top = 50.0 + bars + PANEL;
    for panel in &wakeups {
        draw_wakeups(&mut out, top, panel, runs);
        top += PANEL;
    }
    out.push_str("</svg>\n");
    out
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn draw_text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(
        out,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
        escape_xml(words)
    );
}

fn draw_line(out: &mut String, points: &[(f64, f64)], colour: &str) {
    let points: Vec<_> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let _ = writeln!(
        out,
        r#"<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{}"/>"#,
        points.join(" ")
    );
}

/// Returns the energy of a run by its use, in a fixed order.
fn energy_parts(machine: &ModelledMachine, run: &PolicyRun) -> Vec<(String, Energy)> {
    let of = |(part, device): (&super::MachineDevice, &teal_energy::sim::DeviceReport)| {
        let uses: Vec<_> = device
            .named_uses()
            .map(|(name, entry)| (format!("{}: {name}", part.label), entry.energy()))
            .collect();
        uses
    };
    let devices = machine.parts.iter().zip(&run.report.devices).flat_map(of);
    // The machine's own power while programs wait is part of the energy.
    devices
        .chain([(
            "machine, while somebody waits".to_owned(),
            run.report.waited,
        )])
        .collect()
}

/// The colours of the uses of energy: the largest uses have one of their own.
struct EnergyPalette<'a> {
    /// Uses with a colour of their own, the largest first.
    names: Vec<&'a str>,
}

impl<'a> EnergyPalette<'a> {
    /// Gives colours to the uses that are largest in some run.
    fn for_largest_uses(runs: &'a [Vec<(String, Energy)>]) -> Self {
        let mut largest: Vec<(&str, u64)> = Vec::new();
        for (name, energy) in runs.iter().flatten() {
            debug_assert!(!name.is_empty(), "a use has a name");
            match largest.iter_mut().find(|(known, _)| known == name) {
                Some((_, most)) => *most = energy.get().max(*most),
                None => largest.push((name, energy.get())),
            }
        }
        // The name breaks ties, so that the picture is repeatable.
        largest.sort_by_key(|(name, most)| (std::cmp::Reverse(*most), *name));
        // The last colour is for all other uses.
        largest.truncate(COLOURS.len() - 1);
        Self {
            names: largest.into_iter().map(|(name, _)| name).collect(),
        }
    }

    /// Returns the colour of a use.
    fn colour(&self, name: &str) -> &'static str {
        let own = self.names.iter().position(|known| *known == name);
        COLOURS[own.unwrap_or(COLOURS.len() - 1)]
    }

    /// Lists the uses with a colour of their own beside the chart.
    fn draw_legend(&self, out: &mut String, top: f64) {
        let x = WIDTH - RIGHT + 80.0;
        for (n, name) in self.names.iter().enumerate() {
            let y = top + 22.0 + 13.0 * n as f64;
            let colour = self.colour(name);
            let _ = writeln!(
                out,
                r#"<rect x="{x:.1}" y="{:.1}" width="9" height="9" fill="{colour}"/>"#,
                y - 8.0
            );
            draw_text(out, x + 13.0, y, "start", name);
        }
    }
}

/// Returns the width of a microjoule: the run that took most energy fills the chart.
fn energy_scale(runs: &[PolicyRun]) -> f64 {
    let totals = runs.iter().map(|run| run.report.total_energy().get());
    let most = totals.max().unwrap_or(1).max(1);
    (WIDTH - LEFT - RIGHT) / most as f64
}

/// Draws the energy of one run as a bar at the height `y`, stacked from its uses. Returns where
/// the bar ends.
fn draw_stacked_bar(
    out: &mut String,
    y: f64,
    scale: f64,
    parts: &[(String, Energy)],
    palette: &EnergyPalette<'_>,
) -> f64 {
    let mut x = LEFT;
    for (name, energy) in parts {
        let width = energy.get() as f64 * scale;
        // Bars thinner than a hair are left out of the file, but still move the next one.
        if width >= 0.05 {
            let colour = palette.colour(name);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{:.1}\" \
                 fill=\"{colour}\"><title>{}: {energy}</title></rect>",
                BAR - 6.0,
                escape_xml(name)
            );
        }
        x += width;
    }
    x
}

/// Draws the floor and the bound as lines across all bars.
fn draw_energy_limits(
    out: &mut String,
    (top, bottom): (f64, f64),
    scale: f64,
    floor: Option<Energy>,
    bound: &EnergyBound,
) {
    let mut draw_limit = |energy: Energy, colour: &str, name: &str, y: f64| {
        let x = LEFT + energy.get() as f64 * scale;
        draw_line(out, &[(x, top + 22.0), (x, bottom + 2.0)], colour);
        draw_text(out, x, y, "middle", &format!("{name} {energy}"));
    };
    if let Some(floor) = floor {
        draw_limit(floor, "black", "floor", bottom + 14.0);
    }
    if let Some(least) = bound.least() {
        draw_limit(least, "red", "bound", bottom + 28.0);
    }
}

fn draw_energy(
    out: &mut String,
    top: f64,
    machine: &ModelledMachine,
    runs: &[PolicyRun],
    bound: &EnergyBound,
) {
    let scale = energy_scale(runs);
    let uses: Vec<_> = runs.iter().map(|run| energy_parts(machine, run)).collect();
    let palette = EnergyPalette::for_largest_uses(&uses);
    draw_text(out, LEFT, top + 16.0, "start", "Energy by device and state");
    for (n, (run, parts)) in runs.iter().zip(&uses).enumerate() {
        let y = top + 26.0 + BAR * n as f64;
        draw_text(out, LEFT - 6.0, y + 14.0, "end", &run.policy);
        let end = draw_stacked_bar(out, y, scale, parts, &palette);
        let total = run.report.total_energy().to_string();
        draw_text(out, end + 4.0, y + 14.0, "start", &total);
    }
    let bottom = top + 26.0 + BAR * runs.len() as f64;
    // The floor is that of the machine and the trace, and the same for all policies.
    let floor = runs.first().map(|run| run.report.floor);
    draw_energy_limits(out, (top, bottom), scale, floor, bound);
    palette.draw_legend(out, top);
}

fn draw_frame(out: &mut String, top: f64, title: &str) -> (f64, f64) {
    let (base, high) = (top + PANEL - 45.0, PANEL - 80.0);
    draw_text(out, LEFT, top + 16.0, "start", title);
    draw_line(
        out,
        &[(LEFT, base - high), (LEFT, base), (WIDTH - RIGHT, base)],
        "black",
    );
    (base, high)
}

fn draw_legend(out: &mut String, top: f64, runs: &[PolicyRun]) {
    for (n, run) in runs.iter().enumerate() {
        let y = top + 40.0 + 14.0 * n as f64;
        draw_line(
            out,
            &[
                (WIDTH - RIGHT + 20.0, y - 4.0),
                (WIDTH - RIGHT + 40.0, y - 4.0),
            ],
            COLOURS[n % COLOURS.len()],
        );
        draw_text(out, WIDTH - RIGHT + 46.0, y, "start", &run.policy);
    }
}

/// Returns where a delay is on the axis of [`draw_delays`].
fn delay_position(delay: TimeSpan) -> f64 {
    // The axis begins at 10 us.
    let decades = (delay.get().max(1) as f64).log10() - 4.0;
    LEFT + (WIDTH - LEFT - RIGHT) * decades.clamp(0.0, DELAY_DECADES) / DELAY_DECADES
}

/// Labels the decades of the logarithmic axis, and the shares of the reads on the vertical one.
fn draw_delay_axes(out: &mut String, base: f64, high: f64) {
    const LABELS: [&str; 9] = [
        "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s", "1000 s",
    ];
    for (n, label) in LABELS.iter().enumerate() {
        let x = LEFT + (WIDTH - LEFT - RIGHT) * n as f64 / DELAY_DECADES;
        draw_text(out, x, base + 14.0, "middle", label);
    }
    for percent in [0, 50, 100] {
        let y = base - high * f64::from(percent) / 100.0 + 4.0;
        draw_text(out, LEFT - 6.0, y, "end", &format!("{percent} %"));
    }
}

/// Draws the distribution of delays of reads, on a scale of powers of ten from 10 us to 1000 s.
fn draw_delays(out: &mut String, top: f64, runs: &[PolicyRun]) {
    let (base, high) = draw_frame(out, top, "Reads that took at most so long");
    draw_delay_axes(out, base, high);
    // One curve for each policy.
    for (n, run) in runs.iter().enumerate() {
        let mut sorted = run.report.delays.clone();
        sorted.sort_unstable();
        let mut points = Vec::new();
        for step in 0..=200 {
            // The delay at a quantile; an empty run has none.
            let rank = sorted.len() * (step * 5) / 1000;
            if let Some(delay) = sorted.get(rank.min(sorted.len().saturating_sub(1))) {
                points.push((delay_position(*delay), base - high * step as f64 / 200.0));
            }
        }
        draw_line(out, &points, COLOURS[n % COLOURS.len()]);
    }
    draw_legend(out, top, runs);
}

/// A picture of wake-ups. Those of a radio wear nothing out and cost little; so they are not added
/// to those of disks.
struct WakeupPanel {
    title: &'static str,
    /// Places of the devices in the machine.
    devices: Vec<usize>,
}

impl WakeupPanel {
    /// Returns the pictures that a machine needs: of its disks, and of its links.
    fn for_machine(machine: &ModelledMachine) -> Vec<Self> {
        // Flash has starts like a disk, and belongs to the devices that store.
        let (mut disks, mut links) = (Vec::new(), Vec::new());
        for (at, part) in machine.parts.iter().enumerate() {
            if part.device.kind == DeviceKind::Link {
                links.push(at);
            } else {
                disks.push(at);
            }
        }
        let mut panels = Vec::new();
        for (title, devices) in [
            ("Wake-ups of disks so far", disks),
            ("Wake-ups of links so far", links),
        ] {
            if !devices.is_empty() {
                panels.push(Self { title, devices });
            }
        }
        panels
    }

    /// Returns the times of the wake-ups of its devices in a run, in order.
    fn wakeup_times(&self, run: &PolicyRun) -> Vec<Time> {
        // Wake-ups of several devices are one series: each step is a wake-up of any.
        let mut times = Vec::new();
        for at in &self.devices {
            times.extend_from_slice(&run.report.devices[*at].started);
        }
        times.sort_unstable();
        times
    }
}

/// The axes of a picture of wake-ups, which end with the largest value of any policy.
struct WakeupAxes {
    /// The heights of no wake-up and of the most.
    base: f64,
    high: f64,
    elapsed: TimeSpan,
    starts: usize,
}

impl WakeupAxes {
    /// Returns where a moment is on the axis of time.
    fn time_position(&self, nanos: u64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * nanos as f64 / self.elapsed.get().max(1) as f64
    }

    /// Returns the height of a count of wake-ups.
    fn count_height(&self, count: usize) -> f64 {
        self.base - self.high * count as f64 / self.starts as f64
    }

    fn draw_labels(&self, out: &mut String) {
        let below = self.base + 14.0;
        draw_text(out, LEFT, below, "middle", "0");
        draw_text(
            out,
            WIDTH - RIGHT,
            below,
            "middle",
            &self.elapsed.to_string(),
        );
        draw_text(out, LEFT - 6.0, self.base + 4.0, "end", "0");
        let top = self.base - self.high + 4.0;
        draw_text(out, LEFT - 6.0, top, "end", &self.starts.to_string());
    }

    /// Returns the wake-ups of a run as a staircase that ends with the run.
    fn staircase(&self, times: &[Time], elapsed: TimeSpan) -> Vec<(f64, f64)> {
        // A long series is thinned: the steps would be too fine to see.
        let every = times.len().div_ceil(STEPS).max(1);
        let mut points = vec![(LEFT, self.base)];
        // Each step goes right first, then up.
        for (count, time) in times.iter().enumerate().step_by(every) {
            let x = self.time_position(time.get());
            points.push((x, self.count_height(count)));
            points.push((x, self.count_height((count + every).min(times.len()))));
        }
        let end = self.time_position(elapsed.get());
        points.push((end, self.count_height(times.len())));
        points
    }
}

fn draw_wakeups(out: &mut String, top: f64, panel: &WakeupPanel, runs: &[PolicyRun]) {
    let (base, high) = draw_frame(out, top, panel.title);
    let mut axes = WakeupAxes {
        base,
        high,
        elapsed: TimeSpan::ZERO,
        starts: 1,
    };
    // The largest run of all fills the picture.
    let mut all_times = Vec::new();
    for run in runs {
        let times = panel.wakeup_times(run);
        axes.elapsed = axes.elapsed.max(run.report.elapsed);
        axes.starts = axes.starts.max(times.len());
        all_times.push(times);
    }
    axes.draw_labels(out);
    for (n, (run, times)) in runs.iter().zip(&all_times).enumerate() {
        let points = axes.staircase(times, run.report.elapsed);
        draw_line(out, &points, COLOURS[n % COLOURS.len()]);
    }
    draw_legend(out, top, runs);
}
