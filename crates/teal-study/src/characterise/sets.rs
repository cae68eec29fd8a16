//! Assigns files to sets: those below one directory, those used at random places, and single files
//! that all threads use.

use super::VisitStep;
use super::survey::TreeSurvey;
use super::table::SampledValue;
use super::visits::{FileVisit, ObservedTrace};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Limits the directories at the top that have sets of their own; files below the others form one
/// set.
const TOPS_MAX: usize = 8;
/// Limits the single files that are sets of their own. Such a file has at least this many times the
/// visits of its neighbours, and this part of all visits.
const HOT_MAX: usize = 4;
const HOT_TIMES: u64 = 10;
const HOT_PART: u64 = 50;
/// Visits for each visited file from which on their distribution can be told.
const TOLD_FROM: u64 = 4;

/// Identifies a set of files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SetKey {
    top: Vec<u8>,
    random: bool,
    hot: Option<u64>,
}

/// A set.
#[derive(Debug)]
pub(super) struct TraceFileset {
    /// Describes the content of the set for people.
    pub(super) about: String,
    /// Files that are there at the beginning.
    pub(super) initial_files: u64,
    /// All files: those at the beginning and those that come.
    pub(super) entries: u64,
    pub(super) sizes: Vec<u64>,
    /// Files in a directory on average.
    pub(super) width: u64,
    /// Is true when all files lie in one directory.
    pub(super) flat: bool,
    /// Draws the file to be visited, where visits are not even.
    pub(super) choice: Option<SampledValue>,
    /// Directories that come and go.
    pub(super) leaf_dirs: u64,
}

/// Holds all sets.
#[derive(Debug)]
pub(super) struct TraceFilesets {
    pub(super) sets: Vec<TraceFileset>,
    set_by_object: HashMap<u64, usize>,
}

impl TraceFilesets {
    /// Returns the set of a visit's file.
    pub(super) fn set_of(&self, visit: &FileVisit) -> Option<usize> {
        self.set_by_object.get(&visit.object).copied()
    }
}

/// Counts the calls on a file by their kind.
#[derive(Debug, Default, Clone, Copy)]
struct FileUse {
    visits: u64,
    random: u64,
    ordered: u64,
}

fn has_step(visit: &FileVisit, step: VisitStep) -> bool {
    visit.steps.iter().any(|(of, _)| *of == step)
}

fn count_uses(seen: &ObservedTrace) -> BTreeMap<u64, FileUse> {
    let mut uses: BTreeMap<u64, FileUse> = BTreeMap::new();
    for visit in &seen.visits {
        let used = uses.entry(visit.object).or_default();
        used.visits += 1;
        for (step, done) in &visit.steps {
            match step {
                VisitStep::ReadRandom | VisitStep::WriteRandom => used.random += done.times,
                VisitStep::Read | VisitStep::ReadWhole | VisitStep::Write | VisitStep::Append => {
                    used.ordered += done.times
                }
                _ => {}
            }
        }
    }
    uses
}

/// Sums of the files below one directory at the top.
#[derive(Debug, Default, Clone, Copy)]
struct TopSums {
    files: u64,
    visits: u64,
}

/// Returns the directory at the top below which an object lies.
fn top_of(seen: &ObservedTrace, object: u64) -> &[u8] {
    seen.places.get(&object).map_or(&b""[..], |top| top)
}

/// Returns the set of each object.
fn assign_keys(seen: &ObservedTrace, uses: &BTreeMap<u64, FileUse>) -> BTreeMap<u64, SetKey> {
    let mut by_top: BTreeMap<&[u8], TopSums> = BTreeMap::new();
    for (object, used) in uses {
        let sums = by_top.entry(top_of(seen, *object)).or_default();
        sums.files += 1;
        sums.visits += used.visits;
    }
    let kept = busiest_tops(&by_top);
    let hot = hot_files(seen, uses, &by_top);
    let mut keys = BTreeMap::new();
    for (object, used) in uses {
        let place = top_of(seen, *object);
        let top = if kept.contains(place) {
            place.to_vec()
        } else {
            b"...".to_vec()
        };
        let key = SetKey {
            top,
            random: used.random > used.ordered,
            hot: hot.contains(object).then_some(*object),
        };
        keys.insert(*object, key);
    }
    keys
}

/// Returns the directories with the most visits, which keep their names; the rest is one set.
fn busiest_tops<'a>(by_top: &BTreeMap<&'a [u8], TopSums>) -> BTreeSet<&'a [u8]> {
    // The name breaks ties, so that the script is repeatable.
    let mut tops = Vec::new();
    for (top, sums) in by_top {
        tops.push((sums.visits, *top));
    }
    tops.sort_unstable_by(|a, b| b.cmp(a));
    tops.truncate(TOPS_MAX);
    tops.into_iter().map(|(_, top)| top).collect()
}

/// Returns the hot files. Such a file needs neighbours to be compared with, and enough visits to
/// matter at all.
fn hot_files(
    seen: &ObservedTrace,
    uses: &BTreeMap<u64, FileUse>,
    by_top: &BTreeMap<&[u8], TopSums>,
) -> Vec<u64> {
    let all = seen.visits.len() as u64;
    let mut hot = Vec::new();
    for (object, used) in uses {
        // The mean visits of the neighbours, without the file itself.
        let top = by_top[top_of(seen, *object)];
        let neighbours = top.files - 1;
        if !seen.dirs.contains(object)
            && used.visits > HOT_TIMES * (top.visits - used.visits) / neighbours.max(1)
            && used.visits > all / HOT_PART
            && neighbours > 0
        {
            hot.push((used.visits, *object));
        }
    }
    hot.sort_unstable_by(|a, b| b.cmp(a));
    hot.truncate(HOT_MAX);
    hot.into_iter().map(|(_, object)| object).collect()
}

/// Groups all files into sets.
pub(super) fn group_files(seen: &ObservedTrace, survey: &TreeSurvey) -> TraceFilesets {
    let uses = count_uses(seen);
    let keys = assign_keys(seen, &uses);
    let numbers = number_sets(&keys);
    let mut members: Vec<Vec<u64>> = vec![Vec::new(); numbers.len()];
    let mut set_by_object = HashMap::new();
    for (object, key) in &keys {
        members[numbers[key]].push(*object);
        set_by_object.insert(*object, numbers[key]);
    }
    add_surveyed_files(survey, &keys, &numbers, &mut members);
    // Each set knows how many files came and went, to leave room for them.
    let mut counts = vec![SetTurnover::default(); numbers.len()];
    for visit in &seen.visits {
        counts[set_by_object[&visit.object]].count_visit(visit);
    }
    let mut sets = Vec::new();
    for (key, at) in &numbers {
        sets.push(build_set(
            key,
            &members[*at],
            counts[*at],
            (seen, survey),
            &uses,
        ));
    }
    TraceFilesets {
        sets,
        set_by_object,
    }
}

/// Numbers the sets in the order of their keys, so that the script is repeatable.
fn number_sets(keys: &BTreeMap<u64, SetKey>) -> BTreeMap<&SetKey, usize> {
    // Equal keys are one set.
    let ordered: BTreeSet<&SetKey> = keys.values().collect();
    let mut numbers = BTreeMap::new();
    for (at, key) in ordered.into_iter().enumerate() {
        numbers.insert(key, at);
    }
    numbers
}

/// Adds files of the survey that the trace did not touch to the set of their directory, if there is
/// one: they make its tree as large as it was. They are without a visit, so nothing will ask for
/// their set.
fn add_surveyed_files(
    survey: &TreeSurvey,
    keys: &BTreeMap<u64, SetKey>,
    numbers: &BTreeMap<&SetKey, usize>,
    members: &mut [Vec<u64>],
) {
    for (object, (_, top)) in &survey.files {
        // Files of the trace have their sets already.
        if keys.contains_key(object) {
            continue;
        }
        let of = |random| {
            numbers.get(&SetKey {
                top: top.clone(),
                random,
                hot: None,
            })
        };
        if let Some(at) = of(false).or_else(|| of(true)) {
            members[*at].push(*object);
        }
    }
}

/// Counts files and directories that came and went.
#[derive(Debug, Default, Clone, Copy)]
struct SetTurnover {
    created: u64,
    deleted: u64,
    dirs: u64,
}

impl SetTurnover {
    fn count_visit(&mut self, visit: &FileVisit) {
        self.created += u64::from(has_step(visit, VisitStep::Create));
        self.deleted += u64::from(has_step(visit, VisitStep::Delete));
        self.dirs +=
            u64::from(has_step(visit, VisitStep::MakeDir) || has_step(visit, VisitStep::RemoveDir));
    }
}

impl SetTurnover {
    /// Returns whether files come or go.
    fn moves(&self) -> bool {
        self.created + self.deleted > 0
    }

    /// Returns the number of files that are there at the beginning; there is one at least.
    fn initial_files(&self, known: u64, threads: u64) -> u64 {
        let mut first = known;
        if self.moves() {
            // Enough files for each thread to find one, however many the others have taken.
            first = first.max(2 * threads);
        }
        first.max(1)
    }

    /// Returns the room for the files that come: a quarter, ten for each thread, and twenty times
    /// the growth. A set without comings and goings needs none.
    fn room_for_more(&self, first: u64, threads: u64) -> u64 {
        if !self.moves() {
            return 0;
        }
        (first / 4)
            .max(10 * threads)
            .max(20 * self.created.saturating_sub(self.deleted))
    }
}

/// Describes a set in a comment of the script.
fn describe_set(key: &SetKey) -> String {
    // Names come from foreign programs: a line break would end the comment in the script.
    let name = String::from_utf8_lossy(&key.top).replace(['\n', '\r'], "?");
    let place = if name.is_empty() {
        "files at the top".to_owned()
    } else {
        format!("{name}/")
    };
    match (key.hot, key.random) {
        (Some(_), _) => format!("one much visited file in {place}"),
        (None, true) => format!("{place}, visited at random places"),
        (None, false) => place,
    }
}

/// Counts the directories that hold files of a set; there is one at least.
fn count_holders(key: &SetKey, members: &[u64], seen: &ObservedTrace, survey: &TreeSurvey) -> u64 {
    // The survey counted directories before the recording; without one the trace's parents stand
    // in.
    let holders = match survey.holders.get(&key.top) {
        Some(holders) => *holders,
        None => members
            .iter()
            .filter_map(|object| seen.parents.get(object))
            .collect::<BTreeSet<_>>()
            .len() as u64,
    };
    holders.max(1)
}

/// Returns the size of a file: that of the survey, or else the one that the trace tells.
fn known_size(object: u64, seen: &ObservedTrace, survey: &TreeSurvey) -> Option<u64> {
    match survey.files.get(&object) {
        Some((size, _)) => Some(*size),
        None => seen.sizes.get(&object).copied(),
    }
}

/// Returns the known sizes of files. A listed directory is a member of a set too, but it has no
/// size.
fn known_sizes(objects: &[u64], seen: &ObservedTrace, survey: &TreeSurvey) -> Vec<u64> {
    // Files of an unknown size take theirs from the distribution of the others.
    let mut sizes = Vec::new();
    for object in objects {
        sizes.extend(known_size(*object, seen, survey));
    }
    sizes
}

fn build_set(
    key: &SetKey,
    members: &[u64],
    counts: SetTurnover,
    (seen, survey): (&ObservedTrace, &TreeSurvey),
    uses: &BTreeMap<u64, FileUse>,
) -> TraceFileset {
    // Files that the trace made were not there at the beginning.
    let mut old = members.to_vec();
    old.retain(|object| !seen.made.contains(object));
    let mut sizes = known_sizes(&old, seen, survey);
    let first = counts.initial_files(sizes.len() as u64, seen.threads);
    // A set with no file at the beginning takes its sizes from the files that came.
    if sizes.is_empty() {
        sizes = known_sizes(members, seen, survey);
    }
    let holders = count_holders(key, members, seen, survey);
    debug_assert!(
        first >= 1 && holders >= 1,
        "a set has a file and a directory at least"
    );
    TraceFileset {
        about: describe_set(key),
        initial_files: first,
        entries: first + counts.room_for_more(first, seen.threads),
        sizes,
        width: (first / holders).max(1),
        flat: holders == 1,
        choice: if counts.moves() {
            None
        } else {
            skewed_choice(&old, uses)
        },
        leaf_dirs: match counts.dirs {
            0 => 0,
            dirs => (4 * dirs).max(20 * seen.threads),
        },
    }
}

/// Returns the distribution of visits over the files, if some files are visited much more often
/// than others. Its rows are the ranks that hold a tenth of the visits each.
fn skewed_choice(files: &[u64], uses: &BTreeMap<u64, FileUse>) -> Option<SampledValue> {
    let mut visits: Vec<u64> = files
        .iter()
        .map(|object| uses.get(object).map_or(0, |used| used.visits))
        .collect();
    visits.sort_unstable_by(|a, b| b.cmp(a));
    let all: u64 = visits.iter().sum();
    let visited = visits.iter().filter(|visits| **visits > 0).count();
    let fifth: u64 = visits.iter().take(visited / 5).sum();
    // Too few visits to tell, or visits that are nearly even.
    if all < TOLD_FROM * visited as u64 || (visited * 2 > files.len() && fifth * 5 < all * 2) {
        return None;
    }
    let (mut rows, mut from, mut sum) = (Vec::new(), 0, 0);
    for (rank, count) in visits.iter().enumerate() {
        // A row ends where another tenth of all visits is reached.
        sum += count;
        while rows.len() < 10 && sum * 10 >= all * (rows.len() as u64 + 1) {
            rows.push([10, from, rank as u64 + 1]);
            from = (rank as u64 + 1).min(visited as u64 - 1);
        }
    }
    debug_assert_eq!(rows.len(), 10, "each tenth of the visits has a row");
    Some(SampledValue::Table(rows))
}
