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

/// Returns the set of each object.
fn assign_keys(seen: &ObservedTrace, uses: &BTreeMap<u64, FileUse>) -> BTreeMap<u64, SetKey> {
    let mut by_top: BTreeMap<&[u8], [u64; 2]> = BTreeMap::new();
    let top = |object: &u64| seen.places.get(object).map_or(&b""[..], |top| top);
    for (object, used) in uses {
        let sums = by_top.entry(top(object)).or_default();
        // Files and visits below each directory at the top.
        *sums = [sums[0] + 1, sums[1] + used.visits];
    }
    let mut tops: Vec<_> = by_top
        .iter()
        .map(|(top, [_, visits])| (*visits, *top))
        .collect();
    // The directories with the most visits keep their names; the rest is one set.
    tops.sort_unstable_by(|a, b| b.cmp(a));
    let kept: BTreeSet<&[u8]> = tops.iter().take(TOPS_MAX).map(|(_, top)| *top).collect();
    let all = seen.visits.len() as u64;
    let mut hot: Vec<(u64, u64)> = uses
        .iter()
        .map(|(object, used)| (used.visits, *object))
        .collect();
    // A hot file needs neighbours to be compared with, and enough visits to matter at all.
    hot.retain(|(visits, object)| {
        let [objects, of_top] = by_top[top(object)];
        !seen.dirs.contains(object)
            && *visits > HOT_TIMES * (of_top - visits) / (objects - 1).max(1)
            && *visits > all / HOT_PART
            && objects > 1
    });
    hot.sort_unstable_by(|a, b| b.cmp(a));
    hot.truncate(HOT_MAX);
    let key = |(object, used): (&u64, &FileUse)| {
        let place = top(object);
        let is_hot = hot.iter().any(|(_, other)| other == object);
        let key = SetKey {
            top: if kept.contains(place) {
                place.to_vec()
            } else {
                b"...".to_vec()
            },
            random: used.random > used.ordered,
            hot: is_hot.then_some(*object),
        };
        (*object, key)
    };
    debug_assert!(
        hot.len() <= HOT_MAX,
        "more hot files than there may be sets of them"
    );
    uses.iter().map(key).collect()
}

/// Groups all files into sets.
pub(super) fn group_files(seen: &ObservedTrace, survey: &TreeSurvey) -> TraceFilesets {
    let uses = count_uses(seen);
    let keys = assign_keys(seen, &uses);
    // Sets are numbered in the order of their keys, so that the script is repeatable.
    let mut numbers: BTreeMap<&SetKey, usize> = keys.values().map(|key| (key, 0)).collect();
    numbers
        .values_mut()
        .enumerate()
        .for_each(|(at, number)| *number = at);
    let mut members: Vec<Vec<u64>> = vec![Vec::new(); numbers.len()];
    keys.iter()
        .for_each(|(object, key)| members[numbers[key]].push(*object));
    // Files of the survey that the trace did not touch join the set of their directory, if there is
    // one: they make its tree as large as it was.
    for (object, (_, top)) in survey
        .files
        .iter()
        .filter(|(object, _)| !keys.contains_key(object))
    {
        let of = |random| {
            numbers.get(&SetKey {
                top: top.clone(),
                random,
                hot: None,
            })
        };
        // Files without a visit are not in `keys`: nothing will ask for their set.
        if let Some(at) = of(false).or_else(|| of(true)) {
            members[*at].push(*object);
        }
    }
    let of: HashMap<u64, usize> = keys
        .iter()
        .map(|(object, key)| (*object, numbers[key]))
        .collect();
    // Each set knows how many files came and went, to leave room for them.
    let mut counts = vec![SetTurnover::default(); numbers.len()];
    seen.visits
        .iter()
        .for_each(|visit| counts[of[&visit.object]].count_visit(visit));
    let make = |(key, at): (&&SetKey, &usize)| {
        build_set(key, &members[*at], counts[*at], (seen, survey), &uses)
    };
    TraceFilesets {
        sets: numbers.iter().map(make).collect(),
        set_by_object: of,
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

fn build_set(
    key: &SetKey,
    members: &[u64],
    counts: SetTurnover,
    (seen, survey): (&ObservedTrace, &TreeSurvey),
    uses: &BTreeMap<u64, FileUse>,
) -> TraceFileset {
    let size = |object: &u64| match survey.files.get(object) {
        Some((size, _)) => Some(*size),
        None => seen.sizes.get(object).copied(),
    };
    let old: Vec<u64> = members
        .iter()
        .copied()
        .filter(|object| !seen.made.contains(object))
        .collect();
    // A listed directory is a member too, but it has no size.
    let mut sizes: Vec<u64> = old.iter().filter_map(size).collect();
    let mut first = sizes.len() as u64;
    // A set with no file at the beginning takes its sizes from the files that came.
    if sizes.is_empty() {
        sizes = members.iter().filter_map(size).collect();
    }
    let SetTurnover {
        created,
        deleted,
        dirs,
    } = counts;
    let moves = created + deleted > 0;
    if moves {
        // Enough files for each thread to find one, however many the others have taken.
        first = first.max(2 * seen.threads);
    }
    let first = first.max(1);
    // Room for the files that come: a quarter, ten for each thread, and twenty times the growth.
    let more = (first / 4)
        .max(10 * seen.threads)
        .max(20 * created.saturating_sub(deleted));
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
    let holders = holders.max(1);
    // Names come from foreign programs: a line break would end the comment in the script.
    let name = String::from_utf8_lossy(&key.top).replace(['\n', '\r'], "?");
    let place = if name.is_empty() {
        "files at the top".to_owned()
    } else {
        format!("{name}/")
    };
    let about = match (key.hot, key.random) {
        (Some(_), _) => format!("one much visited file in {place}"),
        (None, true) => format!("{place}, visited at random places"),
        (None, false) => place,
    };
    debug_assert!(
        first >= 1 && holders >= 1,
        "a set has a file and a directory at least"
    );
    // A set without comings and goings needs no further entries.
    TraceFileset {
        about,
        initial_files: first,
        entries: if moves { first + more } else { first },
        sizes,
        width: (first / holders).max(1),
        flat: holders == 1,
        choice: (!moves).then(|| skewed_choice(&old, uses)).flatten(),
        leaf_dirs: if dirs == 0 {
            0
        } else {
            (4 * dirs).max(20 * seen.threads)
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
