//! The figures of a trace, for people and for programs.

use serde_json::{Value, json};
use std::time::Duration;
use teal_command::size::human;
use teal_trace::{Ending, GAP_LIMITS, Header, Level, Run, Stat};

fn level(header: &Header) -> &'static str {
    match header.level {
        Level::File => "file",
        Level::Block => "block",
    }
}

/// A time for people.
fn time(time: Duration) -> String {
    match time.as_secs() {
        0 if time < Duration::from_millis(1) => format!("{:.1} us", time.as_nanos() as f64 / 1e3),
        0 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        1..=119 => format!("{:.1} s", time.as_secs_f64()),
        120..=7199 => format!("{:.1} min", time.as_secs_f64() / 60.0),
        _ => format!("{:.2} h", time.as_secs_f64() / 3600.0),
    }
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        "-".into()
    } else {
        format!("{:.1} %", part as f64 * 100.0 / whole as f64)
    }
}

/// Requests that could have followed another of their kind on the same object.
fn later(run: &Run) -> u64 {
    run.requests - run.first
}

/// Returns what to print for people.
pub(crate) fn lines(header: &Header, stat: &Stat) -> Vec<String> {
    let mut out = Vec::new();
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let duration = stat.end.saturating_sub(stat.first.unwrap_or_default());
    let events: u64 = stat.actions.values().map(|tally| tally.events()).sum();
    out.push(format!(
        "level      {}{}",
        level(header),
        if header.anonymous { ", anonymous" } else { "" }
    ));
    if !header.machine.as_bytes().is_empty() {
        out.push(format!("machine    {}", text(header.machine.as_bytes())));
    }
    out.push(format!("source     {}", text(header.source.as_bytes())));
    out.push(format!("duration   {}", time(duration)));
    let more = if stat.forgot {
        "more than a million objects"
    } else {
        &format!("{} objects", stat.objects())
    };
    out.push(format!(
        "events     {events} on {more} by {} threads",
        stat.processes()
    ));
    if stat.dropped > 0 {
        out.push(format!(
            "missing    {} events came too fast to be recorded",
            stat.dropped
        ));
    }
    let (read, written) = stat.bytes();
    let ratio = if written == 0 {
        "-".into()
    } else {
        format!("{:.2}", read as f64 / written as f64)
    };
    out.push(format!(
        "bytes      {} read, {} written, ratio {ratio}",
        human(read),
        human(written)
    ));
    for (what, run) in [("reads", &stat.reads), ("writes", &stat.writes)] {
        let (count, sequential) = (run.requests, share(run.sequential, later(run)));
        out.push(format!(
            "{what:10} {count}; {sequential} of those after the first of an object are sequential"
        ));
    }
    out.push(String::new());
    out.push(format!(
        "{:12} {:>10} {:>8} {:>8} {:>12} {:>12}",
        "action", "done", "failed", "unknown", "bytes", "mean"
    ));
    for (word, tally) in &stat.actions {
        let nanos = tally.latency.as_nanos().checked_div(tally.timed.into());
        let mean = nanos.map_or_else(|| "-".into(), |ns| time(Duration::from_nanos(ns as u64)));
        let bytes = if tally.bytes == 0 {
            "-".into()
        } else {
            human(tally.bytes)
        };
        let (done, failed, unknown) = (tally.done, tally.failed, tally.unknown);
        out.push(format!(
            "{word:12} {done:>10} {failed:>8} {unknown:>8} {bytes:>12} {mean:>12}"
        ));
    }
    out.push(String::new());
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
        let name = GAP_LIMITS
            .get(class)
            .map_or_else(|| "longer".into(), |limit| format!("< {}", time(*limit)));
        out.push(format!(
            "{name:12} {:>10} {:>12}",
            gap.count,
            time(gap.total)
        ));
    }
    for (at, mark) in &stat.marks {
        out.push(format!("mark at {}: {}", time(*at), text(mark.as_bytes())));
    }
    out
}

/// The same for programs; times in nanoseconds.
pub(crate) fn json(header: &Header, stat: &Stat, ending: &Ending) -> Value {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (read, written) = stat.bytes();
    let run = |run: &Run| json!({ "requests": run.requests, "first": run.first, "sequential": run.sequential });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let actions = stat.actions.iter().map(|(word, t)| {
        let value = json!({ "done": t.done, "failed": t.failed, "unknown": t.unknown, "bytes": t.bytes,
            "timed": t.timed, "latency": nanos(t.latency) });
        ((*word).to_owned(), value)
    });
    let gaps = stat.gaps.iter().enumerate().map(|(class, gap)| {
        let below = GAP_LIMITS.get(class).map(|limit| nanos(*limit));
        json!({ "below": below, "count": gap.count, "total": nanos(gap.total) })
    });
    json!({
        "level": level(header),
        "anonymous": header.anonymous,
        "machine": text(header.machine.as_bytes()),
        "source": text(header.source.as_bytes()),
        "complete": *ending == Ending::Complete,
        "ending": ending.to_string(),
        "duration": nanos(stat.end.saturating_sub(stat.first.unwrap_or_default())),
        "objects": stat.objects(),
        "objects_forgotten": stat.forgot,
        "threads": stat.processes(),
        "dropped": stat.dropped,
        "bytes_read": read,
        "bytes_written": written,
        "reads": run(&stat.reads),
        "writes": run(&stat.writes),
        "actions": actions.collect::<serde_json::Map<_, _>>(),
        "gaps": gaps.collect::<Vec<_>>(),
        "marks": stat.marks.iter().map(|(at, m)| json!({ "at": nanos(*at), "text": text(m.as_bytes()) })).collect::<Vec<_>>(),
    })
}
