//! Events to visits: what one thread does with one file, until it closes it or turns to another.
//!
//! # Guarantees
//! 1. Every read, write, creation, removal, sync and listing that succeeded is in exactly one
//!    visit; what else succeeded is counted as lost, but for names that were looked up.

mod calls;

use super::VisitStep;
use super::survey::{TreeSurvey, top_directory};
use calls::VisitCalls;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use teal_trace::{Action, EventOutcome, PathTracker, Text, TraceEvent, TraceItem};

/// Visits that are remembered; what comes after is not looked at.
const VISITS_MAX: usize = 4_000_000;
/// A file that a thread comes back to more often after others is kept open; from then on each
/// return is a visit of its own.
const RETURNS_MAX: u32 = 4;
/// Where nothing tells of openings, a longer pause ends a visit, and so many calls at random places
/// do: else one that goes on for hours would be one visit.
const PAUSE: Duration = Duration::from_secs(1);
const RANDOM_MAX: u64 = 16;

/// What was done in a step of a visit.
#[derive(Debug, Clone, Default)]
pub(super) struct StepCalls {
    /// How often.
    pub(super) times: u64,
    /// Bytes of each time; of whole files what a call asked for.
    pub(super) sizes: Vec<u64>,
}

/// A visit.
#[derive(Debug)]
pub(super) struct FileVisit {
    pub(super) object: u64,
    /// The thread; 0 if that is not known.
    pub(super) process: u32,
    /// It begins with an opening and ends with a closing.
    pub(super) opens: bool,
    /// Each kind once, in the order in which they began.
    pub(super) steps: Vec<(VisitStep, StepCalls)>,
}

/// What a trace comes to.
#[derive(Debug)]
pub(super) struct ObservedTrace {
    pub(super) visits: Vec<FileVisit>,
    /// By object: the directory at the top that it is below, as far as that is known.
    pub(super) places: HashMap<u64, Vec<u8>>,
    /// The directories that files are in.
    pub(super) parents: HashMap<u64, u64>,
    /// Sizes at the beginning, as far as the trace tells.
    pub(super) sizes: HashMap<u64, u64>,
    /// What was made meanwhile.
    pub(super) made: HashSet<u64>,
    pub(super) dirs: HashSet<u64>,
    pub(super) lost: BTreeMap<&'static str, u64>,
    pub(super) threads: u64,
    /// By thread: first and last heard of.
    pub(super) lives: HashMap<u32, [Duration; 2]>,
    pub(super) length: Duration,
    pub(super) tells_openings: bool,
}

/// A visit that goes on.
#[derive(Debug)]
struct OngoingVisit {
    visit: usize,
    process: u32,
    calls: VisitCalls,
    /// When it was last heard of.
    at: Duration,
    /// Its opening was seen.
    opened: bool,
    returns: u32,
}

/// Follows a trace.
pub(super) struct VisitTracker<'a> {
    survey: &'a TreeSurvey,
    paths: PathTracker,
    seen: ObservedTrace,
    /// Sizes now.
    sizes: HashMap<u64, u64>,
    dirs: HashSet<u64>,
    /// By object, the oldest first.
    going: HashMap<u64, Vec<OngoingVisit>>,
    /// What each thread did last: object and visit.
    last: HashMap<u32, (u64, usize)>,
}

impl<'a> VisitTracker<'a> {
    pub(super) fn new(survey: &'a TreeSurvey) -> Self {
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
        if event.process != 0 {
            self.seen
                .lives
                .entry(event.process)
                .or_insert([event.at; 2])[1] = event.at;
        }
        let object = event.object;
        match &event.action {
            Action::Open {} => self.on_open(event),
            Action::Close {} => self.on_close(object),
            Action::Read { offset, length } => {
                self.on_read(event, *offset, *length, done.unwrap_or(*length))
            }
            Action::Write { offset, length } => {
                self.on_write(event, *offset, done.unwrap_or(*length))
            }
            Action::Fsync { .. } if self.dirs.contains(&object) => self.count_lost(event),
            Action::Fsync { .. } => self.continue_visit(event).add_step(VisitStep::Fsync, None),
            Action::Truncate { size } => {
                self.sizes.insert(object, *size);
                if let Some(going) = self.ongoing_visit(event.process, object) {
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

    /// Notes what an object is called, while it is called so.
    fn note_place(&mut self, object: u64) {
        if self.seen.places.contains_key(&object) {
            return;
        }
        if let Some((_, top)) = self.survey.files.get(&object) {
            self.seen.places.insert(object, top.clone());
        } else if let Some(mut path) = self.paths.path_of(object) {
            if self.dirs.contains(&object) {
                path.extend(b"/.");
            }
            self.seen.places.insert(object, top_directory(&path));
        }
    }

    /// A new visit of a thread.
    fn begin_visit(&mut self, event: &TraceEvent, object: u64, opened: bool) -> &mut OngoingVisit {
        self.note_place(object);
        if let Some(size) = self.sizes.get(&object) {
            self.seen.sizes.entry(object).or_insert(*size);
        }
        let visit = self.seen.visits.len();
        self.seen.visits.push(FileVisit {
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

    /// A visit of one step that nothing follows.
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

    /// The visit that an event on a file belongs to: one of its thread, or a new one.
    fn continue_visit(&mut self, event: &TraceEvent) -> &mut VisitCalls {
        let (object, process) = (event.object, event.process);
        let last = self.last.get(&process).copied();
        let mut fits = None;
        if let Some(going) = self.ongoing_visit(process, object) {
            let returns = last.is_some_and(|(_, visit)| visit != going.visit);
            going.returns += u32::from(returns);
            let paused = !going.opened && event.at.saturating_sub(going.at) > PAUSE;
            let paused = paused || (!going.opened && going.calls.random_calls() >= RANDOM_MAX);
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
        // A path that is opened is looked at first, by the kernel.
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
            // What is made is looked at and opened by the same call.
            going.calls.steps.truncate(1);
            going.opened = true;
            let visit = going.visit;
            self.seen.visits[visit].opens = true;
            return;
        }
        self.begin_visit(event, object, true);
    }

    /// The visit ends that was opened first: nobody tells whose the closing is.
    fn on_close(&mut self, object: u64) {
        self.seen.tells_openings = true;
        let first = self
            .going
            .get(&object)
            .and_then(|all| all.iter().find(|going| going.opened))
            .map(|g| g.visit);
        self.end_visits(object, |going| Some(going.visit) == first);
    }

    /// Visits of an object end.
    fn end_visits(&mut self, object: u64, which: impl Fn(&OngoingVisit) -> bool) {
        let Some(all) = self.going.get_mut(&object) else {
            return;
        };
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
            // It ends here.
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

    /// A name is gone, or another file has it.
    fn on_name_gone(&mut self, event: &TraceEvent, (dir, name): (u64, &Text)) {
        if let Some(object) = self
            .paths
            .object_named(dir, name)
            .filter(|object| !self.dirs.contains(object))
        {
            self.add_single_step(event, object, VisitStep::Delete);
        } else if matches!(event.action, Action::Unlink { .. }) {
            // A file that nobody had turned to, or another thing with a name: somewhere in this
            // directory.
            self.dirs.insert(dir);
            self.add_single_step(event, dir, VisitStep::Delete);
        }
    }

    /// A listing takes several calls.
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
        if !again {
            self.add_single_step(event, event.object, VisitStep::List);
        }
    }

    fn on_stat(&mut self, event: &TraceEvent) {
        self.continue_visit(event).add_step(VisitStep::Stat, None);
    }

    /// Returns what came of it.
    pub(super) fn finish(mut self) -> ObservedTrace {
        let objects: Vec<u64> = self.going.keys().copied().collect();
        objects
            .into_iter()
            .for_each(|object| self.end_visits(object, |_| true));
        let mut seen = self.seen;
        seen.visits
            .retain(|visit| visit.opens || !visit.steps.is_empty());
        for visit in seen.visits.iter_mut().filter(|_| !seen.tells_openings) {
            visit.opens = visit.steps.iter().any(|(step, _)| step.needs_a_file_open());
        }
        for visit in &mut seen.visits {
            visit.opens |= visit
                .steps
                .iter()
                .any(|(step, _)| *step == VisitStep::Create);
        }
        seen.dirs = self.dirs;
        seen.threads = mean_concurrency(seen.lives.values().copied().collect());
        seen
    }
}

/// How many threads there were at a time, while there was one.
fn mean_concurrency(mut lives: Vec<[Duration; 2]>) -> u64 {
    const LEAST: Duration = Duration::from_millis(1);
    lives.sort_unstable();
    let (mut all, mut any, mut until) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for [from, to] in lives {
        let to = to.max(from + LEAST);
        all += to - from;
        any += to.saturating_sub(from.max(until));
        until = until.max(to);
    }
    ((all.as_secs_f64() / any.as_secs_f64().max(1e-9)).round() as u64).clamp(1, 4096)
}

impl VisitStep {
    /// Returns whether it is done to a file that is open.
    pub(super) fn needs_a_file_open(self) -> bool {
        !matches!(
            self,
            Self::Stat | Self::Delete | Self::List | Self::MakeDir | Self::RemoveDir
        )
    }
}
