//! Draws plots of a workload's cells as SVG.

use super::super::cell_row::CellRow;
use super::super::findings::WorkloadVerdict;
use super::super::show::format_short;
use super::escape_html;
use crate::statistics::ConfidenceInterval;
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

/// The scales of a plot with two axes, which end with the largest round step.
struct PlotScales {
    along: Vec<f64>,
    up: Vec<f64>,
}

impl PlotScales {
    fn for_points(points: &[CellPoint<'_>]) -> Self {
        // Both axes begin at zero, so that ratios can be seen.
        let (mut wide, mut high) = (0.0, 0.0);
        for point in points {
            wide = f64::max(wide, point.rate);
            high = f64::max(high, point.per_joule);
        }
        Self {
            along: axis_steps(wide),
            up: axis_steps(high),
        }
    }

    fn x(&self, value: f64) -> f64 {
        let wide = self.along[self.along.len() - 1];
        LEFT + value / wide * (WIDTH - LEFT - 20.0)
    }

    fn y(&self, value: f64) -> f64 {
        let high = self.up[self.up.len() - 1];
        10.0 + (1.0 - value / high) * (HEIGHT - BELOW - 10.0)
    }

    /// Draws the grid and the figures of both axes.
    fn draw_axes(&self) -> String {
        let (bottom, right) = (HEIGHT - BELOW, WIDTH - 20.0);
        let mut out = String::new();
        // Vertical lines with their figures below.
        for value in &self.along {
            let (at, text) = (self.x(*value), format_short(*value));
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"10\" \
                 y2=\"{bottom:.1}\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{text}</text>",
                bottom + 16.0
            );
        }
        // Horizontal lines with their figures on the left.
        for value in &self.up {
            draw_level(&mut out, *value, self.y(*value), right);
        }
        out
    }
}

/// Draws a horizontal line with its figure on the left.
fn draw_level(out: &mut String, value: f64, at: f64, right: f64) {
    let text = format_short(value);
    let _ = writeln!(
        out,
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text \
         x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
        LEFT - 6.0,
        at + 4.0
    );
}

/// Draws a line through some points.
fn draw_polyline(out: &mut String, points: &[(f64, f64)]) {
    let mut line = Vec::new();
    for (x, y) in points {
        line.push(format!("{x:.1},{y:.1}"));
    }
    let _ = writeln!(
        out,
        "<polyline class=\"line\" points=\"{}\"/>",
        line.join(" ")
    );
}

/// Draws operations for each second of the device by operations for each joule. A line joins the
/// Pareto front.
pub(super) fn draw_scatter(rows: &[(usize, &CellRow)], front: &[usize]) -> String {
    let points = cell_points(rows, front);
    if points.is_empty() {
        return String::new();
    }
    let scales = PlotScales::for_points(&points);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" \
         aria-label=\"operations a second by operations for each joule\">\n{}\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">operations for each second the \
         device worked</text>\n\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">operations \
         for each joule</text>\n",
        scales.draw_axes(),
        WIDTH / 2.0,
        HEIGHT - 8.0,
        HEIGHT / 2.0
    );
    // The line runs from left to right, so the front is sorted by rate.
    let mut best: Vec<&CellPoint<'_>> = points.iter().filter(|point| point.is_front).collect();
    best.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let mut line = Vec::new();
    for point in &best {
        line.push((scales.x(point.rate), scales.y(point.per_joule)));
    }
    draw_polyline(&mut out, &line);
    for point in &points {
        draw_point(
            point,
            scales.x(point.rate),
            scales.y(point.per_joule),
            &mut out,
        );
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

/// Says what the bars of a workload show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BarFigure {
    /// Joules of a thousand operations: the fewer, the better.
    Joules,
    /// Operations a second, on devices without joules.
    Rate,
}

impl BarFigure {
    fn of_rows(rows: &[(usize, &CellRow)]) -> Self {
        if rows
            .iter()
            .any(|(_, row)| row.joules_per_thousand.is_some())
        {
            Self::Joules
        } else {
            Self::Rate
        }
    }

    fn of_row(self, row: &CellRow) -> Option<ConfidenceInterval> {
        match self {
            Self::Joules => row.joules_per_thousand,
            Self::Rate => row.rate.or(row.rate_of_device),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Joules => "joules of 1,000 operations, the most frugal first",
            Self::Rate => "operations a second, the fastest first",
        }
    }

    /// Returns the cells with their figures, the best first.
    fn sorted_rows<'a>(
        self,
        rows: &[(usize, &'a CellRow)],
    ) -> Vec<(&'a CellRow, ConfidenceInterval)> {
        let mut bars = Vec::new();
        for (_, row) in rows {
            if let Some(figure) = self.of_row(row) {
                bars.push((*row, figure));
            }
        }
        bars.sort_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
        if self == Self::Rate {
            bars.reverse();
        }
        bars
    }

    /// Returns whether a cell is the best of a workload, or cannot be told from it.
    fn is_best(self, row: &CellRow, of: &WorkloadVerdict) -> bool {
        // The verdict has its own best by each goal.
        let choice = match self {
            Self::Joules => &of.by_joule,
            Self::Rate => &of.by_rate,
        };
        choice.as_ref().is_some_and(|of| {
            of.best.names == row.names || of.ties.iter().any(|(score, _)| score.names == row.names)
        })
    }
}

/// Returns the half width of an interval as it is drawn: a single run has an infinite one, which is
/// not.
fn drawn_half_width(of: &ConfidenceInterval) -> f64 {
    if of.half_width.is_finite() {
        of.half_width
    } else {
        0.0
    }
}

/// Draws joules of a thousand operations with their intervals, the most frugal first; on devices
/// without joules operations a second. Bars that cannot be told from the best are dark.
pub(super) fn draw_bars(rows: &[(usize, &CellRow)], of: &WorkloadVerdict) -> String {
    // One plot shows one figure: bars of different units cannot stand beside each other.
    let shown = BarFigure::of_rows(rows);
    let bars = shown.sorted_rows(rows);
    // The scale leaves room for the whiskers.
    let mut most = f64::MIN_POSITIVE;
    for (_, of) in &bars {
        most = most.max(of.mean + drawn_half_width(of));
    }
    let height = BAR * (bars.len() as f64 + 1.0) + 10.0;
    let what = shown.title();
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" role=\"img\" \
         aria-label=\"{what}\">\n<text x=\"0\" y=\"14\">{what}; dark: not to be told from the \
         best</text>\n"
    );
    // Each row has its name on the left, its bar, its whisker and its figure.
    for (at, (row, figure)) in bars.iter().enumerate() {
        let y = BAR * (at as f64 + 1.0) + 4.0;
        let class = if shown.is_best(row, of) {
            "bar best"
        } else {
            "bar"
        };
        let half = drawn_half_width(figure);
        let ends = [
            figure.mean,
            (figure.mean - half).max(0.0),
            figure.mean + half,
        ];
        draw_bar(
            [&cell_label(row), &format_short(figure.mean)],
            class,
            y,
            ends.map(|value| NAMES + value / most * (WIDTH - NAMES - 70.0)),
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
    let length = last[0] - first[0];
    // The scale of power begins at zero, so that plots compare.
    let mut most = 0.0;
    for [_, watts] in &row.power {
        most = f64::max(most, *watts);
    }
    let up = axis_steps(most);
    let largest = up[up.len() - 1];
    // This plot is half as high as the others.
    let high = HEIGHT / 2.0;
    let y = |watts: f64| 10.0 + (1.0 - watts / largest) * (high - BELOW - 10.0);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {high}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"watts \
         over time\">\n"
    );
    for watts in &up {
        draw_level(&mut out, *watts, y(*watts), WIDTH - 20.0);
    }
    // The readings are joined as they are, without smoothing.
    let mut points = Vec::new();
    for [time, watts] in &row.power {
        let part = (time - first[0]) / length.max(f64::MIN_POSITIVE);
        points.push((LEFT + part * (WIDTH - LEFT - 20.0), y(*watts)));
    }
    draw_polyline(&mut out, &points);
    let source = if modelled {
        "virtual time, modelled"
    } else {
        "a run, measured"
    };
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">watts over {length:.1} s of \
         {source}: {}</text>",
        WIDTH / 2.0,
        high - 12.0,
        cell_label(row)
    );
    out.push_str("</svg>\n");
    out
}
