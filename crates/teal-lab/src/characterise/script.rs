//! The script, as text.

use super::Step;
use super::sets::{Set, Sets};
use super::shapes::{Part, Shape};
use super::table::Value;
use super::visits::Seen;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Slots of a thread that can be named.
const SLOTS: usize = 127;

/// Writes everything down.
pub(super) fn script(seen: &Seen, sets: &Sets, shapes: &[Shape], about: &str) -> String {
    let mut out = Out { text: String::new(), variables: 0 };
    let seconds = seen.length.as_secs_f64().ceil().max(1.0);
    let kept: u64 = shapes.iter().map(|shape| shape.count).sum();
    out.head(seen, about, kept);
    let _ = writeln!(out.text, "set $threads={}", seen.threads);
    let _ = writeln!(out.text, "# Visits a second, as they were met; 0: as fast as it goes");
    let rate = (kept as f64 / seen.length.as_secs_f64().max(0.001)).round().max(1.0);
    let _ = writeln!(
        out.text,
        "set $rate={rate}\nset $seconds={seconds}\n\neventgen rate=$rate\nset mode quit firstdone\n"
    );
    let used: BTreeSet<usize> = shapes.iter().map(|shape| shape.set).collect();
    for at in used {
        let random = shapes.iter().filter(|shape| shape.set == at).flat_map(|shape| &shape.parts);
        let random = random.filter(|part| matches!(part.step, Step::ReadRandom | Step::WriteRandom));
        // A place must have room for a call.
        let least = random.map(|part| part.sizes.largest()).max().unwrap_or(0);
        out.set(at, &sets.sets[at], least);
    }
    let mut calls = String::new();
    for (at, shape) in shapes.iter().enumerate() {
        let [now, of_these] = shape.times.each_ref().map(|times| out.value(times));
        out.shape(at, shape, &sets.sets[shape.set]);
        if of_these == "1" {
            let _ = writeln!(calls, "    flowop visit{at} name=v{at},iters={now}");
            continue;
        }
        let _ =
            writeln!(out.text, "define flowop name=seldom{at} {{\n  flowop visit{at} name=v,iters={of_these}\n}}\n");
        let _ = writeln!(calls, "    flowop seldom{at} name=v{at},iters={now}");
    }
    let _ = writeln!(
        out.text,
        "define process name=recorded,instances=1 {{\n  thread name=worker,instances=$threads {{\n{calls}  }}\n}}\n\nrun $seconds"
    );
    out.text
}

struct Out {
    text: String,
    variables: usize,
}

impl Out {
    fn head(&mut self, seen: &Seen, about: &str, kept: u64) {
        let _ = writeln!(self.text, "# Characterised from {}", about.replace(['\n', '\r'], " "));
        let all = seen.visits.len();
        let _ = writeln!(
            self.text,
            "# {kept} of {all} visits in {:.1} s, by {} threads at a time",
            seen.length.as_secs_f64(),
            seen.threads
        );
        if !seen.tells_openings {
            let _ = writeln!(
                self.text,
                "# No opening was seen: they are made up, and what a page cache answered is not in it."
            );
        }
        if !seen.lost.is_empty() {
            let lost: Vec<_> = seen.lost.iter().map(|(word, count)| format!("{word} {count}")).collect();
            let _ = writeln!(self.text, "# Not in it, for want of words: {}", lost.join(", "));
        }
    }

    /// A value; what is no number is set as a variable before.
    fn value(&mut self, value: &Value) -> String {
        match value {
            Value::Fixed(value) => value.to_string(),
            Value::Table(rows) => {
                self.variables += 1;
                let rows: Vec<_> =
                    rows.iter().map(|[percent, low, high]| format!("{{{percent},{low},{high}}}")).collect();
                let name = format!("$rv{}", self.variables);
                let _ = writeln!(self.text, "set {name}=randvar(type=tabular,randtable={{{}}})", rows.join(","));
                name
            }
        }
    }

    fn set(&mut self, at: usize, set: &Set, least: u64) {
        let _ = writeln!(self.text, "# {}", set.about);
        let size = self.value(&Value::sizes(&mut set.sizes.clone(), least));
        let percent = (set.first * 100 / set.entries).clamp(1, 100);
        let entries = set.first * 100 / percent;
        let _ = writeln!(self.text, "set $files{at}={entries}");
        // In one directory is what is fewer than its width.
        let (width, gamma) = if set.flat { (1_000_000, ",dirgamma=0") } else { (set.width.max(2), "") };
        let _ = writeln!(
            self.text,
            "define fileset name=set{at},path=$dir,entries=$files{at},size={size},dirwidth={width}{gamma},prealloc={percent}"
        );
        if set.leaves > 0 {
            let _ = writeln!(
                self.text,
                "define fileset name=dirs{at},path=$dir,entries=1,leafdirs={},dirwidth={},prealloc=50",
                set.leaves,
                set.width.max(20)
            );
        }
        if let Some(pick) = &set.pick {
            let pick = self.value(pick);
            let _ = writeln!(self.text, "set $pick{at}={pick}");
        }
        self.text.push('\n');
    }

    fn shape(&mut self, at: usize, shape: &Shape, set: &Set) {
        let parts: Vec<[String; 2]> =
            shape.parts.iter().map(|part| [&part.times, &part.sizes].map(|value| self.value(value))).collect();
        let _ = writeln!(self.text, "# {} visits", shape.count);
        let _ = writeln!(self.text, "define flowop name=visit{at} {{\n  flowop eventlimit name=go");
        let files = shape.set;
        // Drawn anew for each file that is opened.
        let from = if set.pick.is_some() {
            format!("filesetname=set{files},indexed=$pick{files}")
        } else {
            format!("filesetname=set{files}")
        };
        // A file that is kept open has a slot of its own, by set.
        let slot = if shape.opens { 1 } else { 2 + files % (SLOTS - 1) };
        if shape.opens && shape.parts.first().is_none_or(|part| part.step != Step::Create) {
            let _ = writeln!(self.text, "  flowop openfile name=open,{from},fd={slot}");
        }
        for (number, (Part { step, .. }, [times, size])) in shape.parts.iter().zip(&parts).enumerate() {
            let fd = if shape.opens { format!("fd={slot}") } else { format!("{from},fd={slot}") };
            let what = match step {
                Step::Create => format!("createfile name=make,filesetname=set{files},fd={slot}"),
                Step::ReadWhole => format!("readwholefile name=read{number},{fd},iosize={size}"),
                Step::Read => format!("read name=read{number},{fd},iosize={size}"),
                Step::ReadRandom => format!("read name=read{number},{fd},iosize={size},random"),
                Step::Append => format!("appendfile name=append{number},{fd},iosize={size}"),
                Step::Write => format!("write name=write{number},{fd},iosize={size}"),
                Step::WriteRandom => format!("write name=write{number},{fd},iosize={size},random"),
                Step::Fsync => format!("fsync name=fsync{number},{fd}"),
                Step::Stat if shape.opens => format!("statfile name=stat{number},{fd}"),
                Step::Stat => format!("statfile name=stat{number},{from}"),
                Step::Delete => format!("deletefile name=delete,filesetname=set{files}"),
                Step::List => format!("listdir name=ls,filesetname=set{files}"),
                Step::MakeDir => format!("makedir name=makedir,filesetname=dirs{files}"),
                Step::RemoveDir => format!("removedir name=removedir,filesetname=dirs{files}"),
            };
            let iters = if *step == Step::Create || times == "1" { String::new() } else { format!(",iters={times}") };
            let _ = writeln!(self.text, "  flowop {what}{iters}");
        }
        if shape.opens {
            let _ = writeln!(self.text, "  flowop closefile name=close,fd={slot}");
        }
        let _ = writeln!(self.text, "}}\n");
    }
}
