//! Formats the figures of a trace, for people and for programs.

use serde_json::{Value, json};
use std::time::Duration;
use teal_command::size::human_size;
use teal_trace::{AccessPattern, GAP_LIMITS, Level, TraceEnding, TraceHeader, TraceStatistics};

fn level_word(header: &TraceHeader) -> &'static str {
    match header.level {
        Level::File => "file",
        Level::Block => "block",
    }
}

/// Formats a time for people.
fn format_time(time: Duration) -> String {
    match time.as_secs() {
        0 if time < Duration::from_millis(1) => format!("{:.1} us", time.as_nanos() as f64 / 1e3),
        0 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        1..=119 => format!("{:.1} s", time.as_secs_f64()),
        120..=7199 => format!("{:.1} min", time.as_secs_f64() / 60.0),
        _ => format!("{:.2} h", time.as_secs_f64() / 3600.0),
    }
}

fn format_share(part: u64, whole: u64) -> String {
    debug_assert!(part <= whole, "a part is no more than the whole");
    if whole == 0 {
        "-".into()
    } else {
        format!("{:.1} %", part as f64 * 100.0 / whole as f64)
    }
}

/// Returns the number of requests that could have followed another of their kind on the same
/// object.
fn count_followers(run: &AccessPattern) -> u64 {
    debug_assert!(
        run.first <= run.requests,
        "the first requests are among all"
    );
    run.requests - run.first
}

/// Returns the lines for people.
pub(crate) fn statistics_lines(header: &TraceHeader, stat: &TraceStatistics) -> Vec<String> {
    let mut out = header_lines(header);
    append_totals(stat, &mut out);
    out.push(String::new());
    append_actions(stat, &mut out);
    out.push(String::new());
    append_gaps(stat, &mut out);
    for (at, mark) in &stat.marks {
        out.push(format!(
            "mark at {}: {}",
            format_time(*at),
            mark.as_bytes().escape_ascii()
        ));
    }
    out
}

/// Returns level, machine and source of a trace.
fn header_lines(header: &TraceHeader) -> Vec<String> {
    let mut out = Vec::new();
    out.push(format!(
        "level      {}{}",
        level_word(header),
        if header.anonymous { ", anonymous" } else { "" }
    ));
    if !header.machine.as_bytes().is_empty() {
        let machine = header.machine.as_bytes().escape_ascii();
        out.push(format!("machine    {machine}"));
    }
    let source = header.source.as_bytes().escape_ascii();
    out.push(format!("source     {source}"));
    out
}

/// Appends duration, events, bytes, and the sequential part of the requests.
fn append_totals(stat: &TraceStatistics, out: &mut Vec<String>) {
    let duration = stat.end.saturating_sub(stat.first.unwrap_or_default());
    let events: u64 = stat.actions.values().map(|tally| tally.event_count()).sum();
    out.push(format!("duration   {}", format_time(duration)));
    // Objects are counted up to a limit of memory.
    let more = if stat.forgot {
        "more than a million objects"
    } else {
        &format!("{} objects", stat.object_count())
    };
    out.push(format!(
        "events     {events} on {more} by {} threads",
        stat.process_count()
    ));
    if stat.dropped > 0 {
        out.push(format!(
            "missing    {} events came too fast to be recorded",
            stat.dropped
        ));
    }
    let (read, written) = stat.bytes_moved();
    // A trace that writes nothing has no ratio.
    let ratio = if written == 0 {
        "-".into()
    } else {
        format!("{:.2}", read as f64 / written as f64)
    };
    out.push(format!(
        "bytes      {} read, {} written, ratio {ratio}",
        human_size(read),
        human_size(written)
    ));
    for (name, run) in [("reads", &stat.reads), ("writes", &stat.writes)] {
        let count = run.requests;
        let sequential = format_share(run.sequential, count_followers(run));
        out.push(format!(
            "{name:10} {count}; {sequential} of those after the first of an object are sequential"
        ));
    }
}

/// Appends the table of actions.
fn append_actions(stat: &TraceStatistics, out: &mut Vec<String>) {
    out.push(format!(
        "{:12} {:>10} {:>8} {:>8} {:>12} {:>12}",
        "action", "done", "failed", "unknown", "bytes", "mean"
    ));
    for (word, tally) in &stat.actions {
        // The mean is over the events with a known latency; without any it is a dash.
        let nanos = tally.latency.as_nanos().checked_div(tally.timed.into());
        let mean = nanos.map_or_else(
            || "-".into(),
            |ns| format_time(Duration::from_nanos(ns as u64)),
        );
        let bytes = if tally.bytes == 0 {
            "-".into()
        } else {
            human_size(tally.bytes)
        };
        let (done, failed, unknown) = (tally.done, tally.failed, tally.unknown);
        out.push(format!(
            "{word:12} {done:>10} {failed:>8} {unknown:>8} {bytes:>12} {mean:>12}"
        ));
    }
}

/// Appends the table of idle gaps by length; lengths without gaps are left out.
fn append_gaps(stat: &TraceStatistics, out: &mut Vec<String>) {
    out.push(format!(
        "{:12} {:>10} {:>12}",
        "idle gaps", "count", "together"
    ));
    for (class, gap) in stat
        .gaps
        .iter()
        .enumerate()
        .filter(|(_, gap)| gap.count > 0)
    {
        // The last class has no upper limit.
        let name = GAP_LIMITS.get(class).map_or_else(
            || "longer".into(),
            |limit| format!("< {}", format_time(*limit)),
        );
        out.push(format!(
            "{name:12} {:>10} {:>12}",
            gap.count,
            format_time(gap.total)
        ));
    }
}

/// Returns a time in nanoseconds; one beyond 584 years is cut off.
fn to_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn pattern_json(run: &AccessPattern) -> Value {
    json!({
        "requests": run.requests,
        "first": run.first,
        "sequential": run.sequential,
    })
}

/// Returns how often each kind of operation was done, by its word.
fn actions_json(stat: &TraceStatistics) -> serde_json::Map<String, Value> {
    let actions = stat.actions.iter().map(|(word, t)| {
        let value = json!({
            "done": t.done,
            "failed": t.failed,
            "unknown": t.unknown,
            "bytes": t.bytes,
            "timed": t.timed,
            "latency": to_nanos(t.latency),
        });
        ((*word).to_owned(), value)
    });
    actions.collect()
}

/// Returns the figures for programs; times are in nanoseconds.
pub(crate) fn statistics_json(
    header: &TraceHeader,
    stat: &TraceStatistics,
    ending: &TraceEnding,
) -> Value {
    let (read, written) = stat.bytes_moved();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let marks = stat
        .marks
        .iter()
        .map(|(at, mark)| json!({ "at": to_nanos(*at), "text": text(mark.as_bytes()) }));
    let gaps = stat.gaps.iter().enumerate().map(|(class, gap)| {
        let below = GAP_LIMITS.get(class).map(|limit| to_nanos(*limit));
        json!({ "below": below, "count": gap.count, "total": to_nanos(gap.total) })
    });
    json!({
        "level": level_word(header),
        "anonymous": header.anonymous,
        "machine": text(header.machine.as_bytes()),
        "source": text(header.source.as_bytes()),
        "complete": *ending == TraceEnding::Complete,
        "ending": ending.to_string(),
        "duration": to_nanos(stat.end.saturating_sub(stat.first.unwrap_or_default())),
        "objects": stat.object_count(),
        "objects_forgotten": stat.forgot,
        "threads": stat.process_count(),
        "dropped": stat.dropped,
        "bytes_read": read,
        "bytes_written": written,
        "reads": pattern_json(&stat.reads),
        "writes": pattern_json(&stat.writes),
        "actions": actions_json(stat),
        "gaps": gaps.collect::<Vec<_>>(),
        "marks": marks.collect::<Vec<_>>(),
    })
}
