//! Writes the script as text.

use super::VisitStep;
use super::sets::{TraceFileset, TraceFilesets};
use super::shapes::{ShapeStep, VisitShape};
use super::table::SampledValue;
use super::visits::ObservedTrace;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Limits the slots of a thread that can be named.
const SLOTS: usize = 127;

/// Limits the threads of a role.
const THREADS_MAX: u64 = 4096;
/// Tokens of the smaller of the two sides of a semaphore: the parts of roles are right to one in
/// this number.
const FINE: f64 = 1000.0;

/// Writes the whole script.
pub(super) fn write_script(
    seen: &ObservedTrace,
    sets: &TraceFilesets,
    roles: &[(u64, Vec<VisitShape>)],
    about: &str,
) -> String {
    let mut out = ScriptWriter {
        text: String::new(),
        variables: 0,
    };
    let mut shapes = Vec::new();
    for (role, (_, of_role)) in roles.iter().enumerate() {
        for shape in of_role {
            shapes.push((role, shape));
        }
    }
    let kept: u64 = shapes.iter().map(|(_, shape)| shape.count).sum();
    out.write_header(seen, about, kept);
    out.write_thread_counts(roles);
    out.write_pace(seen, kept);
    out.write_filesets(sets, &shapes);
    let mut calls = vec![String::new(); roles.len()];
    // Shapes are numbered over all roles: flowops have one namespace.
    for (at, (role, shape)) in shapes.into_iter().enumerate() {
        let call = out.write_visit(at, shape, &sets.sets[shape.set]);
        calls[role].push_str(&call);
    }
    add_pacing(roles, &mut calls);
    out.write_process(&calls);
    out.text
}

/// Returns the largest call at a random place in a set: files have at least that size, so that it
/// has room.
fn largest_random_call(set: usize, shapes: &[(usize, &VisitShape)]) -> u64 {
    // Only transfers at random places must fit as a whole.
    let mut largest = 0;
    for (_, shape) in shapes {
        if shape.set != set {
            continue;
        }
        for part in &shape.parts {
            if matches!(part.step, VisitStep::ReadRandom | VisitStep::WriteRandom) {
                largest = largest.max(part.sizes.largest());
            }
        }
    }
    largest
}

/// Adds the calls by which the first role paces the others.
fn add_pacing(roles: &[(u64, Vec<VisitShape>)], calls: &mut [String]) {
    debug_assert_eq!(roles.len(), calls.len(), "each role has its calls");
    let (first, others) = calls.split_first_mut().expect("there is one role at least");
    // The first role paces the others through one semaphore each: they keep their parts of the
    // work, however fast each of them could be.
    for (role, calls) in (1..).zip(others) {
        let RolePacing {
            posted,
            taken,
            ahead,
        } = RolePacing::between_roles(&roles[0], &roles[role]);
        let _ = writeln!(
            first,
            "    flowop sempost name=lets{role},value={posted},target=turn{role},blocking"
        );
        *calls =
            format!("    flowop semblock name=turn{role},value={taken},highwater={ahead}\n{calls}");
    }
}

/// Returns the variable with the number of a role's threads.
fn threads_of(role: usize) -> String {
    if role == 0 {
        "$threads".to_owned()
    } else {
        format!("$threads{role}")
    }
}

/// Paces another role by the first: the tokens that each round of the first gives to each thread of
/// the other, the tokens that a round of the other takes, and the number of tokens that may be
/// left.
struct RolePacing {
    posted: u64,
    taken: u64,
    ahead: u64,
}

impl RolePacing {
    fn between_roles(
        (threads, first): &(u64, Vec<VisitShape>),
        (others, other): &(u64, Vec<VisitShape>),
    ) -> Self {
        // A round is one pass over the shapes of a role, and its commonest shape is done once in
        // it.
        let rounds = |shapes: &[VisitShape]| {
            shapes
                .iter()
                .map(|shape| shape.count)
                .max()
                .unwrap_or(1)
                .max(1) as f64
        };
        // Rounds of the other role for each round of the first, by each thread.
        let each = rounds(other) / (rounds(first) * (*others).clamp(1, THREADS_MAX) as f64);
        let taken = (FINE / each.min(1.0)).ceil() as u64;
        let posted = ((taken as f64 * each).round() as u64).max(1);
        // Room for some rounds: with none the threads of a role would wait for each other, with
        // many the parts of the work would hold over long times only.
        let ahead = taken + posted * (1 + (*threads).clamp(1, THREADS_MAX) / 4);
        debug_assert!(
            taken > 0 && posted > 0,
            "a role that takes or gives nothing would never be paced"
        );
        Self {
            posted,
            taken,
            ahead,
        }
    }
}

struct ScriptWriter {
    text: String,
    variables: usize,
}

impl ScriptWriter {
    /// Writes the rate of visits and the length: those of the recording, so that a replay is as
    /// busy as the original was.
    fn write_pace(&mut self, seen: &ObservedTrace, kept: u64) {
        // A recording of a moment has no rate of its own.
        let length = seen.length.as_secs_f64();
        let seconds = length.ceil().max(1.0);
        let rate = (kept as f64 / length.max(0.001)).round().max(1.0);
        let _ = writeln!(
            self.text,
            "# Visits a second, as they were met; 0: as fast as it goes"
        );
        let _ = writeln!(
            self.text,
            "set $rate={rate}\nset $seconds={seconds}\n\n\
             eventgen rate=$rate\nset mode quit firstdone\n"
        );
    }

    /// Writes the filesets that some shape uses.
    fn write_filesets(&mut self, sets: &TraceFilesets, shapes: &[(usize, &VisitShape)]) {
        let used: BTreeSet<usize> = shapes.iter().map(|(_, shape)| shape.set).collect();
        for at in used {
            self.write_fileset(at, &sets.sets[at], largest_random_call(at, shapes));
        }
    }

    /// Writes the flowop of a visit, and returns the call of it in its thread.
    fn write_visit(&mut self, at: usize, shape: &VisitShape, set: &TraceFileset) -> String {
        let [now, of_these] = shape.times.each_ref().map(|times| self.write_value(times));
        self.write_shape(at, shape, set);
        // A shape that occurs at most once in a round needs no second, rarer flowop around it.
        if of_these == "1" {
            return format!("    flowop visit{at} name=v{at},iters={now}\n");
        }
        let _ = writeln!(
            self.text,
            "define flowop name=seldom{at} {{\n  flowop visit{at} name=v,iters={of_these}\n}}\n"
        );
        format!("    flowop seldom{at} name=v{at},iters={now}\n")
    }

    /// Writes the number of threads of each role.
    fn write_thread_counts(&mut self, roles: &[(u64, Vec<VisitShape>)]) {
        // Numbers of threads are variables, so that a run can change them from the command line.
        for (role, (threads, shapes)) in roles.iter().enumerate() {
            let visits: u64 = shapes.iter().map(|shape| shape.count).sum();
            if roles.len() > 1 {
                let _ = writeln!(self.text, "# Threads of role {role}: {visits} visits");
            }
            let _ = writeln!(
                self.text,
                "set {}={}",
                threads_of(role),
                (*threads).clamp(1, THREADS_MAX)
            );
        }
    }

    /// Writes the process with a thread of each role, and the run.
    fn write_process(&mut self, calls: &[String]) {
        self.text
            .push_str("define process name=recorded,instances=1 {\n");
        for (role, calls) in calls.iter().enumerate() {
            let name = if role == 0 {
                "worker".to_owned()
            } else {
                format!("worker{role}")
            };
            let _ = writeln!(
                self.text,
                "  thread name={name},instances={} {{\n{calls}  }}",
                threads_of(role)
            );
        }
        let _ = writeln!(self.text, "}}\n\nrun $seconds");
    }

    fn write_header(&mut self, seen: &ObservedTrace, about: &str, kept: u64) {
        let _ = writeln!(
            self.text,
            "# Characterised from {}",
            about.replace(['\n', '\r'], " ")
        );
        let all = seen.visits.len();
        let _ = writeln!(
            // The first lines say how faithful the script is, and what is missing in it.
            self.text,
            "# {kept} of {all} visits in {:.1} s, by {} threads at a time",
            seen.length.as_secs_f64(),
            seen.threads
        );
        if !seen.tells_openings {
            let _ = writeln!(
                self.text,
                "# No opening was seen: they are made up, and what a page cache answered is not \
                 in it."
            );
        }
        // The user can judge by the counts whether the loss matters.
        if !seen.lost.is_empty() {
            let lost: Vec<_> = seen
                .lost
                .iter()
                .map(|(word, count)| format!("{word} {count}"))
                .collect();
            let _ = writeln!(
                self.text,
                "# Not in it, for want of words: {}",
                lost.join(", ")
            );
        }
    }

    /// Writes a value. A value that is drawn becomes a variable, which is set before its use.
    fn write_value(&mut self, value: &SampledValue) -> String {
        match value {
            SampledValue::Fixed(value) => value.to_string(),
            // The slots of a table are what Filebench's tabular variables draw from.
            SampledValue::Table(rows) => {
                self.variables += 1;
                let rows: Vec<_> = rows
                    .iter()
                    .map(|[percent, low, high]| format!("{{{percent},{low},{high}}}"))
                    .collect();
                let name = format!("$rv{}", self.variables);
                let _ = writeln!(
                    self.text,
                    "set {name}=randvar(type=tabular,randtable={{{}}})",
                    rows.join(",")
                );
                name
            }
        }
    }

    fn write_fileset(&mut self, at: usize, set: &TraceFileset, least: u64) {
        let _ = writeln!(self.text, "# {}", set.about);
        let size = self.write_value(&SampledValue::from_sizes(&mut set.sizes.clone(), least));
        // `prealloc` has whole percents only: the number of entries is corrected, so that the right
        // number of files is there at first.
        let percent = (set.initial_files * 100 / set.entries).clamp(1, 100);
        let entries = set.initial_files * 100 / percent;
        let _ = writeln!(self.text, "set $files{at}={entries}");
        // Filebench makes one directory for entries that are fewer than its width.
        let (width, gamma) = if set.flat {
            (1_000_000, ",dirgamma=0")
        } else {
            (set.width.max(2), "")
        };
        let _ = writeln!(
            self.text,
            "define fileset \
             name=set{at},path=$dir,entries=$files{at},size={size},\
             dirwidth={width}{gamma},prealloc={percent}"
        );
        // Directories that come and go live in a set of their own, half of them there at first.
        if set.leaf_dirs > 0 {
            let _ = writeln!(
                self.text,
                "define fileset \
                 name=dirs{at},path=$dir,entries=1,leafdirs={},dirwidth={},prealloc=50",
                set.leaf_dirs,
                set.width.max(20)
            );
        }
        // The variable is set beside the fileset, and drawn anew for each file that is opened.
        if let Some(pick) = &set.choice {
            let pick = self.write_value(pick);
            let _ = writeln!(self.text, "set $pick{at}={pick}");
        }
        self.text.push('\n');
    }

    fn write_shape(&mut self, at: usize, shape: &VisitShape, set: &TraceFileset) {
        // Values are written before the flowop, because drawn ones become variables there.
        let mut parts = Vec::new();
        for part in &shape.parts {
            parts.push([&part.times, &part.sizes].map(|value| self.write_value(value)));
        }
        let _ = writeln!(self.text, "# {} visits", shape.count);
        let _ = writeln!(
            self.text,
            "define flowop name=visit{at} {{\n  flowop eventlimit name=go"
        );
        // All steps of a visit work on one file.
        let place = VisitPlace::of_shape(shape, set);
        let makes_first = shape
            .parts
            .first()
            .is_some_and(|part| part.step == VisitStep::Create);
        if shape.opens && !makes_first {
            let _ = writeln!(
                self.text,
                "  flowop openfile name=open,{},fd={}",
                place.pick, place.slot
            );
        }
        // Steps follow in the order in which they were first seen in the visit.
        for (number, (ShapeStep { step, .. }, [times, size])) in
            shape.parts.iter().zip(&parts).enumerate()
        {
            let what = place.flowop_of(*step, number, size);
            // A file is created once in a visit, and one call is the default.
            let iters = if *step == VisitStep::Create || times == "1" {
                String::new()
            } else {
                format!(",iters={times}")
            };
            let _ = writeln!(self.text, "  flowop {what}{iters}");
        }
        if shape.opens {
            let _ = writeln!(self.text, "  flowop closefile name=close,fd={}", place.slot);
        }
        let _ = writeln!(self.text, "}}\n");
    }
}

/// Says how the flowops of a visit name their file.
struct VisitPlace {
    /// Number of the set.
    set: usize,
    /// Attributes that pick a file, which is drawn anew each time where visits are not even.
    pick: String,
    slot: usize,
    /// Is true when the visit opens its file, and closes it again.
    opens: bool,
}

impl VisitPlace {
    fn of_shape(shape: &VisitShape, set: &TraceFileset) -> Self {
        let number = shape.set;
        let pick = if set.choice.is_some() {
            format!("filesetname=set{number},indexed=$pick{number}")
        } else {
            format!("filesetname=set{number}")
        };
        // A file that is kept open has a slot of its own, by set: these are spread over the slots
        // that can be named. Slot 1 is for files that are opened and closed.
        let slot = if shape.opens {
            1
        } else {
            2 + number % (SLOTS - 1)
        };
        Self {
            set: number,
            pick,
            slot,
            opens: shape.opens,
        }
    }

    /// Returns the attributes of a flowop on the file: an open one is in the slot, any other is
    /// picked.
    fn file(&self) -> String {
        if self.opens {
            format!("fd={}", self.slot)
        } else {
            format!("{},fd={}", self.pick, self.slot)
        }
    }

    /// Returns the flowop of a step.
    fn flowop_of(&self, step: VisitStep, number: usize, size: &str) -> String {
        let Self { set, slot, .. } = self;
        // The number tells flowops of one kind apart.
        let file = self.file();
        match step {
            VisitStep::Create => format!("createfile name=make,filesetname=set{set},fd={slot}"),
            VisitStep::ReadWhole => format!("readwholefile name=read{number},{file},iosize={size}"),
            VisitStep::Read => format!("read name=read{number},{file},iosize={size}"),
            VisitStep::ReadRandom => format!("read name=read{number},{file},iosize={size},random"),
            VisitStep::Append => format!("appendfile name=append{number},{file},iosize={size}"),
            VisitStep::Write => format!("write name=write{number},{file},iosize={size}"),
            VisitStep::WriteRandom => {
                format!("write name=write{number},{file},iosize={size},random")
            }
            VisitStep::Fsync => format!("fsync name=fsync{number},{file}"),
            VisitStep::Stat if self.opens => format!("statfile name=stat{number},{file}"),
            VisitStep::Stat => format!("statfile name=stat{number},{}", self.pick),
            VisitStep::Delete => format!("deletefile name=delete,filesetname=set{set}"),
            VisitStep::List => format!("listdir name=ls,filesetname=set{set}"),
            VisitStep::MakeDir => format!("makedir name=makedir,filesetname=dirs{set}"),
            VisitStep::RemoveDir => format!("removedir name=removedir,filesetname=dirs{set}"),
        }
    }
}
