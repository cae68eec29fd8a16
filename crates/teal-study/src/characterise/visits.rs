//! Events to visits: what one thread does with one file, until it closes it or turns to another.
//!
//! # Guarantees
//! 1. Every read, write, creation, removal, sync and listing that succeeded is in exactly one
//!    visit; what else succeeded is counted as lost, but for names that were looked up.

mod calls;

use super::Step;
use super::survey::{Survey, top};
use calls::Calls;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use teal_trace::{Action, Event, Item, Outcome, Paths, Text};

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
pub(super) struct Done {
    /// How often.
    pub(super) times: u64,
    /// Bytes of each time; of whole files what a call asked for.
    pub(super) sizes: Vec<u64>,
}

/// A visit.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) object: u64,
    /// The thread; 0 if that is not known.
    pub(super) process: u32,
    /// It begins with an opening and ends with a closing.
    pub(super) opens: bool,
    /// Each kind once, in the order in which they began.
    pub(super) steps: Vec<(Step, Done)>,
}

/// What a trace comes to.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) visits: Vec<Visit>,
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
struct Going {
    visit: usize,
    process: u32,
    calls: Calls,
    /// When it was last heard of.
    at: Duration,
    /// Its opening was seen.
    opened: bool,
    returns: u32,
}

/// Follows a trace.
pub(super) struct Follower<'a> {
    survey: &'a Survey,
    paths: Paths,
    seen: Seen,
    /// Sizes now.
    sizes: HashMap<u64, u64>,
    dirs: HashSet<u64>,
    /// By object, the oldest first.
    going: HashMap<u64, Vec<Going>>,
    /// What each thread did last: object and visit.
    last: HashMap<u32, (u64, usize)>,
}

impl<'a> Follower<'a> {
    pub(super) fn new(survey: &'a Survey) -> Self {
        let seen = Seen {
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
            paths: Paths::default(),
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

    pub(super) fn follow(&mut self, item: &Item) {
        match item {
            Item::Called(called) => drop(self.dirs.insert(called.parent)),
            Item::Event(event) if self.seen.visits.len() < VISITS_MAX => self.event(event),
            _ => {}
        }
        self.paths.follow(item);
    }

    fn event(&mut self, event: &Event) {
        let done = match event.outcome {
            Outcome::Done(value) => Some(value),
            Outcome::Unknown => None,
            Outcome::Failed(_) => return,
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
            Action::Open {} => self.open(event),
            Action::Close {} => self.close(object),
            Action::Read { offset, length } => {
                self.read(event, *offset, *length, done.unwrap_or(*length))
            }
            Action::Write { offset, length } => self.write(event, *offset, done.unwrap_or(*length)),
            Action::Fsync { .. } if self.dirs.contains(&object) => self.lose(event),
            Action::Fsync { .. } => self.goes_on(event).step(Step::Fsync, None),
            Action::Truncate { size } => {
                self.sizes.insert(object, *size);
                if let Some(going) = self.mine(event.process, object) {
                    going.calls.truncated |= *size == 0;
                }
                self.lose(event);
            }
            Action::Create { name } => self.create(event, name, done),
            Action::Unlink { name } => self.gone(event, (object, name)),
            Action::Rename {
                to,
                new,
                exchange: false,
                ..
            } => {
                self.gone(event, (*to, new));
                self.lose(event);
            }
            Action::Mkdir { .. } | Action::Rmdir { .. } => {
                let made = matches!(event.action, Action::Mkdir { .. });
                self.dirs.insert(object);
                self.dirs.extend(done.filter(|_| made));
                self.alone(
                    event,
                    object,
                    if made { Step::MakeDir } else { Step::RemoveDir },
                );
            }
            Action::Readdir { .. } => self.list(event),
            Action::Stat {} if !self.dirs.contains(&object) => self.stat(event),
            Action::Lookup { .. } | Action::Seek { .. } | Action::Mark { .. } | Action::Stat {} => {
            }
            _ => self.lose(event),
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

    fn lose(&mut self, event: &Event) {
        *self.seen.lost.entry(event.action.word()).or_default() += 1;
    }

    /// Notes what an object is called, while it is called so.
    fn place(&mut self, object: u64) {
        if self.seen.places.contains_key(&object) {
            return;
        }
        if let Some((_, top)) = self.survey.files.get(&object) {
            self.seen.places.insert(object, top.clone());
        } else if let Some(mut path) = self.paths.path(object) {
            if self.dirs.contains(&object) {
                path.extend(b"/.");
            }
            self.seen.places.insert(object, top(&path));
        }
    }

    /// A new visit of a thread.
    fn begin(&mut self, event: &Event, object: u64, opened: bool) -> &mut Going {
        self.place(object);
        if let Some(size) = self.sizes.get(&object) {
            self.seen.sizes.entry(object).or_insert(*size);
        }
        let visit = self.seen.visits.len();
        self.seen.visits.push(Visit {
            object,
            process: event.process,
            opens: opened,
            steps: Vec::new(),
        });
        self.last.insert(event.process, (object, visit));
        let calls = Calls::default();
        let going = Going {
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
    fn alone(&mut self, event: &Event, object: u64, step: Step) {
        self.begin(event, object, false).calls.step(step, None);
        self.settle(object, |_| true);
    }

    fn mine(&mut self, process: u32, object: u64) -> Option<&mut Going> {
        self.going
            .get_mut(&object)?
            .iter_mut()
            .rev()
            .find(|going| going.process == process)
    }

    /// The visit that an event on a file belongs to: one of its thread, or a new one.
    fn goes_on(&mut self, event: &Event) -> &mut Calls {
        let (object, process) = (event.object, event.process);
        let last = self.last.get(&process).copied();
        let mut fits = None;
        if let Some(going) = self.mine(process, object) {
            let returns = last.is_some_and(|(_, visit)| visit != going.visit);
            going.returns += u32::from(returns);
            let paused = !going.opened && event.at.saturating_sub(going.at) > PAUSE;
            let paused = paused || (!going.opened && going.calls.random() >= RANDOM_MAX);
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
                self.settle(object, |going| going.process == process && !going.opened);
                self.begin(event, object, false).visit
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

    fn open(&mut self, event: &Event) {
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
                .position(|going| going.visit == visit && going.calls.is_just(Step::Stat))
        {
            let looked = all.remove(at);
            if looked.calls.steps[0].1.times > 1 {
                let mut calls = looked.calls;
                calls.steps[0].1.times -= 1;
                self.seen.visits[visit].steps = calls.end(None);
            }
        }
        if let Some(going) = self
            .mine(process, object)
            .filter(|going| !going.opened && going.calls.is_new())
        {
            // What is made is looked at and opened by the same call.
            going.calls.steps.truncate(1);
            going.opened = true;
            let visit = going.visit;
            self.seen.visits[visit].opens = true;
            return;
        }
        self.begin(event, object, true);
    }

    /// The visit ends that was opened first: nobody tells whose the closing is.
    fn close(&mut self, object: u64) {
        self.seen.tells_openings = true;
        let first = self
            .going
            .get(&object)
            .and_then(|all| all.iter().find(|going| going.opened))
            .map(|g| g.visit);
        self.settle(object, |going| Some(going.visit) == first);
    }

    /// Visits of an object end.
    fn settle(&mut self, object: u64, which: impl Fn(&Going) -> bool) {
        let Some(all) = self.going.get_mut(&object) else {
            return;
        };
        for going in all.extract_if(.., |going| which(going)) {
            self.seen.visits[going.visit].steps = going.calls.end(self.sizes.get(&object).copied());
        }
        if all.is_empty() {
            self.going.remove(&object);
        }
    }

    fn read(&mut self, event: &Event, offset: u64, asked: u64, got: u64) {
        self.goes_on(event).read(offset, asked, got);
        if got > 0 && got < asked {
            // It ends here.
            self.sizes.insert(event.object, offset.saturating_add(got));
            self.seen
                .sizes
                .entry(event.object)
                .or_insert(offset.saturating_add(got));
        }
    }

    fn write(&mut self, event: &Event, offset: u64, length: u64) {
        let size = self.sizes.get(&event.object).copied();
        self.goes_on(event).write(offset, length, size);
        let end = offset.saturating_add(length);
        let known = self.sizes.entry(event.object).or_insert(end);
        *known = end.max(*known);
    }

    fn create(&mut self, event: &Event, name: &Text, made: Option<u64>) {
        let Some(object) = made else {
            return self.lose(event);
        };
        if let Some(path) = self.paths.path(event.object) {
            let path = [&path[..], b"/", name.as_bytes()].concat();
            self.seen.places.insert(object, top(&path));
        }
        self.seen.parents.insert(object, event.object);
        self.seen.made.insert(object);
        self.sizes.insert(object, 0);
        self.begin(event, object, false)
            .calls
            .step(Step::Create, None);
    }

    /// A name is gone, or another file has it.
    fn gone(&mut self, event: &Event, (dir, name): (u64, &Text)) {
        if let Some(object) = self
            .paths
            .object(dir, name)
            .filter(|object| !self.dirs.contains(object))
        {
            self.alone(event, object, Step::Delete);
        } else if matches!(event.action, Action::Unlink { .. }) {
            // A file that nobody had turned to, or another thing with a name: somewhere in this
            // directory.
            self.dirs.insert(dir);
            self.alone(event, dir, Step::Delete);
        }
    }

    /// A listing takes several calls.
    fn list(&mut self, event: &Event) {
        self.dirs.insert(event.object);
        let again = self
            .last
            .get(&event.process)
            .is_some_and(|(object, visit)| {
                *object == event.object
                    && self.seen.visits[*visit]
                        .steps
                        .first()
                        .is_some_and(|(s, _)| *s == Step::List)
            });
        if !again {
            self.alone(event, event.object, Step::List);
        }
    }

    fn stat(&mut self, event: &Event) {
        self.goes_on(event).step(Step::Stat, None);
    }

    /// Returns what came of it.
    pub(super) fn end(mut self) -> Seen {
        let objects: Vec<u64> = self.going.keys().copied().collect();
        objects
            .into_iter()
            .for_each(|object| self.settle(object, |_| true));
        let mut seen = self.seen;
        seen.visits
            .retain(|visit| visit.opens || !visit.steps.is_empty());
        for visit in seen.visits.iter_mut().filter(|_| !seen.tells_openings) {
            visit.opens = visit.steps.iter().any(|(step, _)| step.needs_a_file_open());
        }
        for visit in &mut seen.visits {
            visit.opens |= visit.steps.iter().any(|(step, _)| *step == Step::Create);
        }
        seen.dirs = self.dirs;
        seen.threads = at_a_time(seen.lives.values().copied().collect());
        seen
    }
}

/// How many threads there were at a time, while there was one.
fn at_a_time(mut lives: Vec<[Duration; 2]>) -> u64 {
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

impl Step {
    /// Returns whether it is done to a file that is open.
    pub(super) fn needs_a_file_open(self) -> bool {
        !matches!(
            self,
            Self::Stat | Self::Delete | Self::List | Self::MakeDir | Self::RemoveDir
        )
    }
}
