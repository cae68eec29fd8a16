//! Draws plots of a workload's cells as SVG.

use super::super::findings::{CellRow, WorkloadVerdict};
use super::super::show::format_short;
use super::escape_html;
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
/// Room for the labels on the left and below.
const LEFT: f64 = 70.0;
const BELOW: f64 = 45.0;
/// Height of a bar with its margin, and the width of the column of names.
const BAR: f64 = 20.0;
const NAMES: f64 = 260.0;

fn cell_label(row: &CellRow) -> String {
    escape_html(&format!("{}, {}", row.names[1], row.names[2]))
}

/// Returns at most five round steps that cover zero to at least this value.
fn axis_steps(most: f64) -> Vec<f64> {
    let raw = most.max(f64::MIN_POSITIVE) / 5.0;
    let ten = 10_f64.powf(raw.log10().floor());
    // The usual round numbers of axes.
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|part| part * ten)
        .find(|step| *step >= raw)
        .unwrap_or(raw);
    debug_assert!(step > 0.0, "an axis has a step");
    (0..=(most / step).ceil().clamp(1.0, 5.0) as u32)
        .map(|n| f64::from(n) * step)
        .collect()
}

/// Holds a cell in the plane of both goals.
struct CellPoint<'a> {
    row: &'a CellRow,
    rate: f64,
    per_joule: f64,
    is_front: bool,
}

/// Draws the grid, the figures of both axes and their titles.
fn draw_axes(along: &[f64], up: &[f64], x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) -> String {
    let (bottom, right) = (HEIGHT - BELOW, WIDTH - 20.0);
    let mut out = String::new();
    // Vertical lines with their figures below.
    for value in along {
        let (at, text) = (x(*value), format_short(*value));
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"10\" \
             y2=\"{bottom:.1}\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{text}</text>",
            bottom + 16.0
        );
    }
    // Horizontal lines with their figures on the left.
    for value in up {
        let (at, text) = (y(*value), format_short(*value));
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{at:.1}\" \
             y2=\"{at:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    out
}

/// Returns the points of a scatter plot.
fn cell_points<'a>(rows: &[(usize, &'a CellRow)], front: &[usize]) -> Vec<CellPoint<'a>> {
    // Only cells with both figures are points.
    let points = rows.iter().filter_map(|(at, row)| {
        let (rate, joules) = (row.rate_of_device?.mean, row.joules_per_thousand?.mean);
        Some(CellPoint {
            row,
            rate,
            per_joule: 1000.0 / joules,
            is_front: front.contains(at),
        })
    });
    points.collect()
}

/// Draws a point with its title, which browsers show under the pointer.
fn draw_point(point: &CellPoint<'_>, x: f64, y: f64, out: &mut String) {
    let class = if point.is_front { "dot front" } else { "dot" };
    let title = format!(
        "{}: {} ops/s, {} ops/J",
        cell_label(point.row),
        format_short(point.rate),
        format_short(point.per_joule)
    );
    let _ = writeln!(
        out,
        "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" \
         r=\"4.5\"><title>{title}</title></circle>"
    );
}

/// Names the cells of the front. Few names fit beside the plot: the fastest six.
fn draw_front_names(front: &[&CellPoint<'_>], out: &mut String) {
    for (at, point) in front.iter().rev().take(6).enumerate() {
        let y = 28.0 + 16.0 * at as f64;
        let _ = writeln!(
            out,
            "<circle class=\"dot front\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4.5\"/><text x=\"{:.1}\" \
             y=\"{y:.1}\">{}</text>",
            LEFT + 12.0,
            y - 4.0,
            LEFT + 22.0,
            cell_label(point.row)
        );
    }
}

/// Draws operations for each second of the device by operations for each joule. A line joins the
/// Pareto front.
pub(super) fn draw_scatter(rows: &[(usize, &CellRow)], front: &[usize]) -> String {
    let points = cell_points(rows, front);
    if points.is_empty() {
        return String::new();
    }
    let along = axis_steps(points.iter().map(|point| point.rate).fold(0.0, f64::max));
    let up = axis_steps(
        points
            .iter()
            .map(|point| point.per_joule)
            .fold(0.0, f64::max),
    );
    // Scales map the largest round step to the edge.
    let (wide, high) = (along[along.len() - 1], up[up.len() - 1]);
    let x = |value: f64| LEFT + value / wide * (WIDTH - LEFT - 20.0);
    let y = |value: f64| 10.0 + (1.0 - value / high) * (HEIGHT - BELOW - 10.0);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" \
         aria-label=\"operations a second by operations for each joule\">\n{}\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">operations for each second the \
         device worked</text>\n\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">operations \
         for each joule</text>\n",
        draw_axes(&along, &up, &x, &y),
        WIDTH / 2.0,
        HEIGHT - 8.0,
        HEIGHT / 2.0
    );
    // The line runs from left to right, so the front is sorted by rate.
    let mut best: Vec<&CellPoint<'_>> = points.iter().filter(|point| point.is_front).collect();
    best.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let mut line = Vec::new();
    for point in &best {
        line.push(format!("{:.1},{:.1}", x(point.rate), y(point.per_joule)));
    }
    let _ = writeln!(
        out,
        "<polyline class=\"line\" points=\"{}\"/>",
        line.join(" ")
    );
    for point in &points {
        draw_point(point, x(point.rate), y(point.per_joule), &mut out);
    }
    draw_front_names(&best, &mut out);
    out.push_str("</svg>\n");
    out
}

/// Draws a bar between a name and a figure, with the whisker of its interval. The ends are those of
/// the bar and of both sides of the interval.
fn draw_bar(
    [name, figure]: [&str; 2],
    class: &str,
    y: f64,
    [end, low, high]: [f64; 3],
    out: &mut String,
) {
    let middle = y + BAR / 2.0 - 3.0;
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        NAMES - 6.0,
        middle + 4.0,
        name
    );
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{y:.1}\" width=\"{:.1}\" \
         height=\"{:.1}\"/>",
        end - NAMES,
        BAR - 6.0
    );
    let _ = writeln!(
        out,
        "<line class=\"whisker\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle:.1}\" \
         y2=\"{middle:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\">{figure}</text>",
        high + 6.0,
        middle + 4.0
    );
}

/// Draws joules of a thousand operations with their intervals, the most frugal first; on devices
/// without joules operations a second. Bars that cannot be told from the best are dark.
pub(super) fn draw_bars(rows: &[(usize, &CellRow)], of: &WorkloadVerdict) -> String {
    // Without joules the rates are drawn instead.
    let has_joules = rows
        .iter()
        .any(|(_, row)| row.joules_per_thousand.is_some());
    let pick = |row: &CellRow| {
        if has_joules {
            row.joules_per_thousand
        } else {
            row.rate.or(row.rate_of_device)
        }
    };
    let mut bars: Vec<_> = rows
        .iter()
        .filter_map(|(_, row)| Some((*row, pick(row)?)))
        .collect();
    bars.sort_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
    if !has_joules {
        bars.reverse();
    }
    let choice = if has_joules {
        &of.by_joule
    } else {
        &of.by_rate
    };
    let is_best = |row: &CellRow| {
        choice.as_ref().is_some_and(|of| {
            of.best.names == row.names || of.ties.iter().any(|(score, _)| score.names == row.names)
        })
    };
    // A single run has an infinite interval, which is not drawn.
    let half = |of: f64| if of.is_finite() { of } else { 0.0 };
    // The scale leaves room for the whiskers.
    let most = bars
        .iter()
        .map(|(_, of)| of.mean + half(of.half_width))
        .fold(f64::MIN_POSITIVE, f64::max);
    let height = BAR * (bars.len() as f64 + 1.0) + 10.0;
    let x = |value: f64| NAMES + value / most * (WIDTH - NAMES - 70.0);
    let what = if has_joules {
        "joules of 1,000 operations, the most frugal first"
    } else {
        "operations a second, the fastest first"
    };
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" role=\"img\" \
         aria-label=\"{what}\">\n<text x=\"0\" y=\"14\">{what}; dark: not to be told from the \
         best</text>\n"
    );
    // Each row has its name on the left, its bar, its whisker and its figure.
    for (at, (row, of)) in bars.iter().enumerate() {
        let y = BAR * (at as f64 + 1.0) + 4.0;
        let class = if is_best(row) { "bar best" } else { "bar" };
        let ends = [
            of.mean,
            (of.mean - half(of.half_width)).max(0.0),
            of.mean + half(of.half_width),
        ];
        let name = cell_label(row);
        draw_bar(
            [&name, &format_short(of.mean)],
            class,
            y,
            ends.map(x),
            &mut out,
        );
    }
    out.push_str("</svg>\n");
    out
}

/// Draws watts over the time of a run, if they are known. `modelled` says that both are a model's.
pub(super) fn draw_power(row: &CellRow, modelled: bool) -> String {
    let (Some(first), Some(last)) = (row.power.first(), row.power.last()) else {
        return String::new();
    };
    // The scale of power begins at zero, so that plots compare.
    let up = axis_steps(row.power.iter().map(|of| of[1]).fold(0.0, f64::max));
    let high = up[up.len() - 1];
    let x = |time: f64| {
        LEFT + (time - first[0]) / (last[0] - first[0]).max(f64::MIN_POSITIVE)
            * (WIDTH - LEFT - 20.0)
    };
    // This plot is half as high as the others.
    let y = |watts: f64| 10.0 + (1.0 - watts / high) * (HEIGHT / 2.0 - BELOW - 10.0);
    let high = HEIGHT / 2.0;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {high}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"watts \
         over time\">\n"
    );
    // Grid lines of watts.
    for watts in &up {
        let at = y(*watts);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text \
             x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - 20.0,
            LEFT - 6.0,
            at + 4.0,
            format_short(*watts)
        );
    }
    // The readings are joined as they are, without smoothing.
    let points: Vec<String> = row
        .power
        .iter()
        .map(|of| format!("{:.1},{:.1}", x(of[0]), y(of[1])))
        .collect();
    let _ = writeln!(
        out,
        "<polyline class=\"line\" points=\"{}\"/>",
        points.join(" ")
    );
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">watts over {:.1} s of {}: {}</text>",
        WIDTH / 2.0,
        high - 12.0,
        last[0] - first[0],
        if modelled {
            "virtual time, modelled"
        } else {
            "a run, measured"
        },
        cell_label(row)
    );
    out.push_str("</svg>\n");
    out
}
