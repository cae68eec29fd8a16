//! Turns events into visits: the calls of one thread on one file, until it closes the file or turns
//! to another.
//!
//! # Guarantees
//! 1. Each read, write, creation, removal, sync and listing that succeeded is in exactly one visit.
//!    Other successful operations, except lookups of names, are counted as lost.

mod calls;
mod observed;

use super::VisitStep;
use super::survey::{TreeSurvey, top_directory};
use calls::VisitCalls;
use observed::mean_concurrency;
pub(super) use observed::{FileVisit, ObservedTrace, StepCalls};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use teal_trace::{Action, EventOutcome, PathTracker, Text, TraceEvent, TraceItem};

/// Limits the visits that are remembered; later events are ignored.
const VISITS_MAX: usize = 4_000_000;
/// A thread that comes back to a file more often than this after others keeps the file open. From
/// then on each return is a visit of its own.
const RETURNS_MAX: u32 = 4;
/// Without openings in the trace, a longer pause ends a visit, and so does this number of calls at
/// random places. Otherwise a visit could go on for hours.
const PAUSE: Duration = Duration::from_secs(1);
const RANDOM_MAX: u64 = 16;

/// Holds the state of a visit that goes on.
#[derive(Debug)]
struct OngoingVisit {
    visit: usize,
    process: u32,
    calls: VisitCalls,
    /// Time of its last event.
    at: Duration,
    /// Is true when the trace told its opening.
    opened: bool,
    returns: u32,
}

/// Follows a trace event by event.
pub(super) struct VisitTracker<'a> {
    survey: &'a TreeSurvey,
    paths: PathTracker,
    seen: ObservedTrace,
    /// Size of each object at this point of the trace.
    sizes: HashMap<u64, u64>,
    dirs: HashSet<u64>,
    /// Visits that go on, by object, the oldest first.
    going: HashMap<u64, Vec<OngoingVisit>>,
    /// Object and visit of the last call of each thread.
    last: HashMap<u32, (u64, usize)>,
}

impl<'a> VisitTracker<'a> {
    pub(super) fn new(survey: &'a TreeSurvey) -> Self {
        // Everything is unknown at first; one thread is the least that can be.
        let seen = ObservedTrace {
            visits: Vec::new(),
            places: HashMap::new(),
            parents: HashMap::new(),
            sizes: HashMap::new(),
            made: HashSet::new(),
            dirs: HashSet::new(),
            lost: BTreeMap::new(),
            threads: 1,
            lives: HashMap::new(),
            length: Duration::ZERO,
            tells_openings: false,
        };
        Self {
            survey,
            paths: PathTracker::default(),
            seen,
            // The survey gives the sizes before the first event.
            sizes: survey
                .files
                .iter()
                .map(|(object, (size, _))| (*object, *size))
                .collect(),
            dirs: HashSet::new(),
            going: HashMap::new(),
            last: HashMap::new(),
        }
    }

    pub(super) fn follow_item(&mut self, item: &TraceItem) {
        match item {
            TraceItem::Called(called) => drop(self.dirs.insert(called.parent)),
            TraceItem::Event(event) if self.seen.visits.len() < VISITS_MAX => {
                self.handle_event(event)
            }
            _ => {}
        }
        self.paths.follow_item(item);
    }

    fn handle_event(&mut self, event: &TraceEvent) {
        let done = match event.outcome {
            EventOutcome::Done(value) => Some(value),
            EventOutcome::Unknown => None,
            EventOutcome::Failed(_) => return,
        };
        self.seen.length = event.at;
        // A thread lives from its first to its last event; process 0 is the kernel.
        if event.process != 0 {
            self.seen
                .lives
                .entry(event.process)
                .or_insert([event.at; 2])[1] = event.at;
        }
        let object = event.object;
        // The sizes and directories must be noted even for actions that the language lacks.
        match &event.action {
            Action::Open {} => self.on_open(event),
            Action::Close {} => self.on_close(object),
            Action::Read { offset, length } => {
                self.on_read(event, *offset, *length, done.unwrap_or(*length))
            }
            Action::Write { offset, length } => {
                self.on_write(event, *offset, done.unwrap_or(*length))
            }
            // A sync of a directory has no word in the language.
            Action::Fsync { .. } if self.dirs.contains(&object) => self.count_lost(event),
            Action::Fsync { .. } => self.continue_visit(event).add_step(VisitStep::Fsync, None),
            Action::Truncate { size } => {
                self.sizes.insert(object, *size);
                if let Some(going) = self.ongoing_visit(event.process, object) {
                    // The next writes begin at an empty file and are no appends.
                    going.calls.truncated |= *size == 0;
                }
                self.count_lost(event);
            }
            Action::Create { name } => self.on_create(event, name, done),
            Action::Unlink { name } => self.on_name_gone(event, (object, name)),
            Action::Rename {
                to,
                new,
                exchange: false,
                ..
            } => {
                // A rename removes the file that had the new name; the move itself is lost.
                self.on_name_gone(event, (*to, new));
                self.count_lost(event);
            }
            Action::Mkdir { .. } | Action::Rmdir { .. } => {
                let made = matches!(event.action, Action::Mkdir { .. });
                self.dirs.insert(object);
                self.dirs.extend(done.filter(|_| made));
                self.add_single_step(
                    event,
                    object,
                    if made {
                        VisitStep::MakeDir
                    } else {
                        VisitStep::RemoveDir
                    },
                );
            }
            Action::Readdir { .. } => self.on_list(event),
            Action::Stat {} if !self.dirs.contains(&object) => self.on_stat(event),
            Action::Lookup { .. } | Action::Seek { .. } | Action::Mark { .. } | Action::Stat {} => {
            }
            _ => self.count_lost(event),
        }
        // The object of these actions is the directory in which the name lies.
        if matches!(
            event.action,
            Action::Create { .. }
                | Action::Unlink { .. }
                | Action::Lookup { .. }
                | Action::Rename { .. }
        ) {
            self.dirs.insert(object);
        }
    }

    fn count_lost(&mut self, event: &TraceEvent) {
        *self.seen.lost.entry(event.action.word()).or_default() += 1;
    }

    /// Notes the directory of an object while its name is known: later the name may be gone.
    fn note_place(&mut self, object: u64) {
        if self.seen.places.contains_key(&object) {
            return;
        }
        if let Some((_, top)) = self.survey.files.get(&object) {
            self.seen.places.insert(object, top.clone());
        } else if let Some(mut path) = self.paths.path_of(object) {
            if self.dirs.contains(&object) {
                // A directory lies below itself, not beside its files.
                path.extend(b"/.");
            }
            self.seen.places.insert(object, top_directory(&path));
        }
    }

    /// Begins a visit of a thread.
    fn begin_visit(&mut self, event: &TraceEvent, object: u64, opened: bool) -> &mut OngoingVisit {
        self.note_place(object);
        // The size before the visit, as a visit may change it.
        if let Some(size) = self.sizes.get(&object) {
            self.seen.sizes.entry(object).or_insert(*size);
        }
        let visit = self.seen.visits.len();
        self.seen.visits.push(FileVisit {
            // The steps are filled in at the end of the visit.
            object,
            process: event.process,
            opens: opened,
            steps: Vec::new(),
        });
        self.last.insert(event.process, (object, visit));
        let calls = VisitCalls::default();
        let going = OngoingVisit {
            visit,
            process: event.process,
            calls,
            at: event.at,
            opened,
            returns: 0,
        };
        let all = self.going.entry(object).or_default();
        all.push(going);
        all.last_mut().expect("it was just put there")
    }

    /// Adds a visit of one step, which nothing follows.
    fn add_single_step(&mut self, event: &TraceEvent, object: u64, step: VisitStep) {
        self.begin_visit(event, object, false)
            .calls
            .add_step(step, None);
        self.end_visits(object, |_| true);
    }

    fn ongoing_visit(&mut self, process: u32, object: u64) -> Option<&mut OngoingVisit> {
        self.going
            .get_mut(&object)?
            .iter_mut()
            .rev()
            .find(|going| going.process == process)
    }

    /// Returns the visit that an event on a file belongs to: one of its thread, or a new one.
    fn continue_visit(&mut self, event: &TraceEvent) -> &mut VisitCalls {
        let (object, process) = (event.object, event.process);
        let last = self.last.get(&process).copied();
        let mut fits = None;
        // Returning from another file shows that this file is kept open.
        if let Some(going) = self.ongoing_visit(process, object) {
            let returns = last.is_some_and(|(_, visit)| visit != going.visit);
            going.returns += u32::from(returns);
            let paused = !going.opened && event.at.saturating_sub(going.at) > PAUSE;
            let paused = paused || (!going.opened && going.calls.random_calls() >= RANDOM_MAX);
            // An opened file may be left a few times before each return counts as a visit.
            if !paused
                && (if going.opened {
                    going.returns <= RETURNS_MAX
                } else {
                    !returns
                })
            {
                going.at = event.at;
                fits = Some(going.visit);
            }
        }
        let visit = match fits {
            Some(visit) => visit,
            None => {
                // The old visit ends here, because the new one takes its place.
                self.end_visits(object, |going| going.process == process && !going.opened);
                self.begin_visit(event, object, false).visit
            }
        };
        self.last.insert(process, (object, visit));
        let all = self.going.get_mut(&object).expect("there is one now");
        &mut all
            .iter_mut()
            .find(|going| going.visit == visit)
            .expect("it was found or made")
            .calls
    }

    fn on_open(&mut self, event: &TraceEvent) {
        self.seen.tells_openings = true;
        let (object, process) = (event.object, event.process);
        // The kernel looks at a path before it opens it: that look is not a step of the program.
        if let Some((_, visit)) = self
            .last
            .get(&process)
            .copied()
            .filter(|(last, _)| *last == object)
            && let Some(all) = self.going.get_mut(&object)
            && let Some(at) = all
                .iter()
                .position(|going| going.visit == visit && going.calls.is_just(VisitStep::Stat))
        {
            let looked = all.remove(at);
            // Earlier looks were the program's own, and stay a visit without an opening.
            if looked.calls.steps[0].1.times > 1 {
                let mut calls = looked.calls;
                calls.steps[0].1.times -= 1;
                self.seen.visits[visit].steps = calls.finish(None);
            }
        }
        if let Some(going) = self
            .ongoing_visit(process, object)
            .filter(|going| !going.opened && going.calls.is_new())
        {
            // Creating a file looks at it and opens it in one call, so the opening belongs to the
            // creation.
            going.calls.steps.truncate(1);
            going.opened = true;
            let visit = going.visit;
            self.seen.visits[visit].opens = true;
            return;
        }
        self.begin_visit(event, object, true);
    }

    /// Ends the visit that was opened first: a closing does not tell its thread.
    fn on_close(&mut self, object: u64) {
        self.seen.tells_openings = true;
        let first = self
            .going
            .get(&object)
            .and_then(|all| all.iter().find(|going| going.opened))
            .map(|g| g.visit);
        self.end_visits(object, |going| Some(going.visit) == first);
    }

    /// Ends the visits of an object that `which` selects.
    fn end_visits(&mut self, object: u64, which: impl Fn(&OngoingVisit) -> bool) {
        let Some(all) = self.going.get_mut(&object) else {
            return;
        };
        // The size of the file decides which reads were of the whole file.
        for going in all.extract_if(.., |going| which(going)) {
            self.seen.visits[going.visit].steps =
                going.calls.finish(self.sizes.get(&object).copied());
        }
        if all.is_empty() {
            self.going.remove(&object);
        }
    }

    fn on_read(&mut self, event: &TraceEvent, offset: u64, asked: u64, got: u64) {
        self.continue_visit(event).add_read(offset, asked, got);
        if got > 0 && got < asked {
            // A short read shows the end of the file.
            self.sizes.insert(event.object, offset.saturating_add(got));
            self.seen
                .sizes
                .entry(event.object)
                .or_insert(offset.saturating_add(got));
        }
    }

    fn on_write(&mut self, event: &TraceEvent, offset: u64, length: u64) {
        let size = self.sizes.get(&event.object).copied();
        self.continue_visit(event).add_write(offset, length, size);
        let end = offset.saturating_add(length);
        let known = self.sizes.entry(event.object).or_insert(end);
        *known = end.max(*known);
    }

    fn on_create(&mut self, event: &TraceEvent, name: &Text, made: Option<u64>) {
        let Some(object) = made else {
            return self.count_lost(event);
        };
        if let Some(path) = self.paths.path_of(event.object) {
            let path = [&path[..], b"/", name.as_bytes()].concat();
            self.seen.places.insert(object, top_directory(&path));
        }
        self.seen.parents.insert(object, event.object);
        self.seen.made.insert(object);
        self.sizes.insert(object, 0);
        self.begin_visit(event, object, false)
            .calls
            .add_step(VisitStep::Create, None);
    }

    /// Handles a name that is gone, or that another file has taken.
    fn on_name_gone(&mut self, event: &TraceEvent, (dir, name): (u64, &Text)) {
        if let Some(object) = self
            .paths
            .object_named(dir, name)
            .filter(|object| !self.dirs.contains(object))
        {
            self.add_single_step(event, object, VisitStep::Delete);
        } else if matches!(event.action, Action::Unlink { .. }) {
            // The file was not met before, or has a further name: the deletion is counted for its
            // directory.
            self.dirs.insert(dir);
            self.add_single_step(event, dir, VisitStep::Delete);
        }
    }

    /// Handles a listing, which takes several calls.
    fn on_list(&mut self, event: &TraceEvent) {
        self.dirs.insert(event.object);
        let again = self
            .last
            .get(&event.process)
            .is_some_and(|(object, visit)| {
                *object == event.object
                    && self.seen.visits[*visit]
                        .steps
                        .first()
                        .is_some_and(|(s, _)| *s == VisitStep::List)
            });
        // Further calls of the same listing are no visits of their own.
        if !again {
            self.add_single_step(event, event.object, VisitStep::List);
        }
    }

    fn on_stat(&mut self, event: &TraceEvent) {
        self.continue_visit(event).add_step(VisitStep::Stat, None);
    }

    /// Ends all visits and returns what was found.
    pub(super) fn finish(mut self) -> ObservedTrace {
        let objects: Vec<u64> = self.going.keys().copied().collect();
        objects
            .into_iter()
            .for_each(|object| self.end_visits(object, |_| true));
        let mut seen = self.seen;
        seen.visits
            .retain(|visit| visit.opens || !visit.steps.is_empty());
        // Without openings in the trace, every visit that needs an open file opens it.
        for visit in seen.visits.iter_mut().filter(|_| !seen.tells_openings) {
            visit.opens = visit.steps.iter().any(|(step, _)| step.needs_a_file_open());
        }
        // Creating a file opens it.
        for visit in &mut seen.visits {
            visit.opens |= visit
                .steps
                .iter()
                .any(|(step, _)| *step == VisitStep::Create);
        }
        debug_assert!(
            seen.visits
                .iter()
                .all(|visit| visit.opens || !visit.steps.is_empty()),
            "a visit does something"
        );
        seen.dirs = self.dirs;
        seen.threads = mean_concurrency(seen.lives.values().copied().collect());
        seen
    }
}
