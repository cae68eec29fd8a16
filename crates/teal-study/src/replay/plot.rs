//! Draws a replay as SVG: energy by device and state, delays, and wake-ups over time.
//!
//! # Guarantees
//! 1. The same runs give the same bytes.
//! 2. The picture refers to nothing outside: no fonts, scripts or style sheets.

use super::{EnergyBound, ModelledMachine, PolicyRun};
use std::fmt::Write as _;
use teal_types::{Energy, TimeSpan};

const WIDTH: f64 = 1080.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 370.0;
const BAR: f64 = 26.0;
const PANEL: f64 = 230.0;
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
    let height = 50.0 + bars + 2.0 * PANEL + 40.0;
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
    draw_wakeups(&mut out, 50.0 + bars + PANEL, runs);
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

fn draw_energy(
    out: &mut String,
    top: f64,
    machine: &ModelledMachine,
    runs: &[PolicyRun],
    bound: &EnergyBound,
) {
    // All bars share one scale.
    let most = runs
        .iter()
        .map(|run| run.report.total_energy().get())
        .max()
        .unwrap_or(1)
        .max(1) as f64;
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let all: Vec<_> = runs.iter().map(|run| energy_parts(machine, run)).collect();
    // Uses with a hundredth of some run have a colour of their own.
    let mut names: Vec<(&str, u64)> = Vec::new();
    for (name, energy) in all.iter().flatten() {
        match names.iter_mut().find(|(known, _)| known == name) {
            Some((_, most)) => *most = energy.get().max(*most),
            None => names.push((name, energy.get())),
        }
    }
    debug_assert!(
        names.iter().all(|(name, _)| !name.is_empty()),
        "a use has a name"
    );
    // The largest uses get colours first; the name breaks ties, so that the picture is repeatable.
    names.sort_by_key(|(name, most)| (std::cmp::Reverse(*most), *name));
    names.truncate(COLOURS.len() - 1);
    let colour = |name: &str| {
        let at = names
            .iter()
            .position(|(known, _)| *known == name)
            .unwrap_or(COLOURS.len() - 1);
        COLOURS[at]
    };
    draw_text(out, LEFT, top + 16.0, "start", "Energy by device and state");
    // One bar for each policy, stacked from its uses.
    for (n, (run, parts)) in runs.iter().zip(&all).enumerate() {
        let y = top + 26.0 + BAR * n as f64;
        draw_text(out, LEFT - 6.0, y + 14.0, "end", &run.policy);
        let mut x = LEFT;
        for (name, energy) in parts {
            let width = energy.get() as f64 * scale;
            // Bars thinner than a hair are left out of the file, but still move the next one.
            if width >= 0.05 {
                let colour = colour(name);
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
        draw_text(
            out,
            x + 4.0,
            y + 14.0,
            "start",
            &run.report.total_energy().to_string(),
        );
    }
    let bottom = top + 26.0 + BAR * runs.len() as f64;
    // The floor and the bound are lines across all bars.
    let mark = |out: &mut String, energy: Energy, colour: &str, words: &str, y: f64| {
        let x = LEFT + energy.get() as f64 * scale;
        draw_line(out, &[(x, top + 22.0), (x, bottom + 2.0)], colour);
        draw_text(out, x, y, "middle", words);
    };
    if let Some(run) = runs.first() {
        mark(
            out,
            run.report.floor,
            "black",
            &format!("floor {}", run.report.floor),
            bottom + 14.0,
        );
    }
    if let EnergyBound::Exact(least) | EnergyBound::Proven { least, .. } = bound {
        mark(out, *least, "red", &format!("bound {least}"), bottom + 28.0);
    }
    // The legend lists the uses with a colour of their own.
    for (n, (name, _)) in names.iter().enumerate() {
        let y = top + 22.0 + 13.0 * n as f64;
        let x = WIDTH - RIGHT + 80.0;
        let _ = writeln!(
            out,
            r#"<rect x="{x:.1}" y="{:.1}" width="9" height="9" fill="{}"/>"#,
            y - 8.0,
            colour(name)
        );
        draw_text(out, x + 13.0, y, "start", name);
    }
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

/// Draws the distribution of delays of reads, on a scale of powers of ten from 10 us to 1000 s.
fn draw_delays(out: &mut String, top: f64, runs: &[PolicyRun]) {
    const DECADES: f64 = 8.0;
    let (base, high) = draw_frame(out, top, "Reads that took at most so long");
    let width = WIDTH - LEFT - RIGHT;
    let x = |delay: TimeSpan| {
        LEFT + width * ((delay.get().max(1) as f64).log10() - 4.0).clamp(0.0, DECADES) / DECADES
    };
    // Decades of the logarithmic axis.
    for (n, words) in [
        "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s", "1000 s",
    ]
    .iter()
    .enumerate()
    {
        draw_text(
            out,
            LEFT + width * n as f64 / DECADES,
            base + 14.0,
            "middle",
            words,
        );
    }
    // Shares of the reads on the vertical axis.
    for percent in [0, 50, 100] {
        draw_text(
            out,
            LEFT - 6.0,
            base - high * f64::from(percent) / 100.0 + 4.0,
            "end",
            &format!("{percent} %"),
        );
    }
    // One curve for each policy.
    for (n, run) in runs.iter().enumerate() {
        let mut sorted = run.report.delays.clone();
        sorted.sort_unstable();
        // The delay at a quantile; an empty run has none.
        let at = |thousandth: usize| {
            sorted.get((sorted.len() * thousandth / 1000).min(sorted.len().saturating_sub(1)))
        };
        let points: Vec<_> = (0..=200)
            .filter_map(|step| Some((x(*at(step * 5)?), base - high * step as f64 / 200.0)))
            .collect();
        draw_line(out, &points, COLOURS[n % COLOURS.len()]);
    }
    draw_legend(out, top, runs);
}

fn draw_wakeups(out: &mut String, top: f64, runs: &[PolicyRun]) {
    let (base, high) = draw_frame(out, top, "Wake-ups so far");
    // Both axes end with the largest value of any policy.
    let elapsed = runs
        .iter()
        .map(|run| run.report.elapsed)
        .max()
        .unwrap_or_default();
    let most = runs
        .iter()
        .map(|run| run.report.total_starts())
        .max()
        .unwrap_or(0)
        .max(1);
    let width = WIDTH - LEFT - RIGHT;
    draw_text(out, LEFT, base + 14.0, "middle", "0");
    draw_text(
        out,
        LEFT + width,
        base + 14.0,
        "middle",
        &elapsed.to_string(),
    );
    draw_text(out, LEFT - 6.0, base + 4.0, "end", "0");
    draw_text(out, LEFT - 6.0, base - high + 4.0, "end", &most.to_string());
    // One staircase for each policy, over all of its devices.
    for (n, run) in runs.iter().enumerate() {
        let mut times: Vec<_> = run
            .report
            .devices
            .iter()
            .flat_map(|device| device.started.iter().copied())
            .collect();
        times.sort_unstable();
        let x = |nanos: u64| LEFT + width * nanos as f64 / elapsed.get().max(1) as f64;
        let y = |count: usize| base - high * count as f64 / most as f64;
        let mut points = vec![(LEFT, base)];
        // A long series is thinned: the steps would be too fine to see.
        let every = times.len().div_ceil(STEPS).max(1);
        // Each step goes right first, then up.
        for (count, time) in times.iter().enumerate().step_by(every) {
            points.extend([
                (x(time.get()), y(count)),
                (x(time.get()), y((count + every).min(times.len()))),
            ]);
        }
        points.push((x(run.report.elapsed.get()), y(times.len())));
        draw_line(out, &points, COLOURS[n % COLOURS.len()]);
    }
    draw_legend(out, top, runs);
}
