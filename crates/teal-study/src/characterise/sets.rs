//! Files to sets: below one directory, at random or not, or a single one that all turn to.

use super::VisitStep;
use super::survey::TreeSurvey;
use super::table::SampledValue;
use super::visits::{FileVisit, ObservedTrace};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Directories at the top that have sets of their own; what is below others is one.
const TOPS_MAX: usize = 8;
/// Single files that are sets of their own, how many times the visits of their neighbours they have
/// at least, and which part of all.
const HOT_MAX: usize = 4;
const HOT_TIMES: u64 = 10;
const HOT_PART: u64 = 50;
/// Visits for each file that was visited, from which on it can be told how they are spread.
const TOLD_FROM: u64 = 4;

/// Which files are a set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SetKey {
    top: Vec<u8>,
    random: bool,
    hot: Option<u64>,
}

/// A set.
#[derive(Debug)]
pub(super) struct TraceFileset {
    /// What is in it, for people.
    pub(super) about: String,
    /// There at the beginning.
    pub(super) initial_files: u64,
    /// First, and those that come.
    pub(super) entries: u64,
    pub(super) sizes: Vec<u64>,
    /// Files in a directory.
    pub(super) width: u64,
    /// All are in one.
    pub(super) flat: bool,
    /// Which file is visited, where that is not even.
    pub(super) choice: Option<SampledValue>,
    /// Directories that come and go.
    pub(super) leaf_dirs: u64,
}

/// All sets.
#[derive(Debug)]
pub(super) struct TraceFilesets {
    pub(super) sets: Vec<TraceFileset>,
    set_by_object: HashMap<u64, usize>,
}

impl TraceFilesets {
    /// The set of a visit's file.
    pub(super) fn set_of(&self, visit: &FileVisit) -> Option<usize> {
        self.set_by_object.get(&visit.object).copied()
    }
}

/// What visits make of a file.
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

/// By object: the set that it is in.
fn assign_keys(seen: &ObservedTrace, uses: &BTreeMap<u64, FileUse>) -> BTreeMap<u64, SetKey> {
    let mut by_top: BTreeMap<&[u8], [u64; 2]> = BTreeMap::new();
    let top = |object: &u64| seen.places.get(object).map_or(&b""[..], |top| top);
    for (object, used) in uses {
        let sums = by_top.entry(top(object)).or_default();
        *sums = [sums[0] + 1, sums[1] + used.visits];
    }
    let mut tops: Vec<_> = by_top
        .iter()
        .map(|(top, [_, visits])| (*visits, *top))
        .collect();
    tops.sort_unstable_by(|a, b| b.cmp(a));
    let kept: BTreeSet<&[u8]> = tops.iter().take(TOPS_MAX).map(|(_, top)| *top).collect();
    let all = seen.visits.len() as u64;
    let mut hot: Vec<(u64, u64)> = uses
        .iter()
        .map(|(object, used)| (used.visits, *object))
        .collect();
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
    uses.iter().map(key).collect()
}

/// All files as sets.
pub(super) fn group_files(seen: &ObservedTrace, survey: &TreeSurvey) -> TraceFilesets {
    let uses = count_uses(seen);
    let keys = assign_keys(seen, &uses);
    let mut numbers: BTreeMap<&SetKey, usize> = keys.values().map(|key| (key, 0)).collect();
    numbers
        .values_mut()
        .enumerate()
        .for_each(|(at, number)| *number = at);
    let mut members: Vec<Vec<u64>> = vec![Vec::new(); numbers.len()];
    keys.iter()
        .for_each(|(object, key)| members[numbers[key]].push(*object));
    // What nobody turned to is beside what somebody did.
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
        if let Some(at) = of(false).or_else(|| of(true)) {
            members[*at].push(*object);
        }
    }
    let of: HashMap<u64, usize> = keys
        .iter()
        .map(|(object, key)| (*object, numbers[key]))
        .collect();
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

/// Comings and goings.
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
    // A directory that is listed is a member too; it has no size.
    let mut sizes: Vec<u64> = old.iter().filter_map(size).collect();
    let mut first = sizes.len() as u64;
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
        // As many that a thread finds one, whatever the others have taken.
        first = first.max(2 * seen.threads);
    }
    let first = first.max(1);
    let more = (first / 4)
        .max(10 * seen.threads)
        .max(20 * created.saturating_sub(deleted));
    let holders = match survey.holders.get(&key.top) {
        Some(holders) => *holders,
        None => members
            .iter()
            .filter_map(|object| seen.parents.get(object))
            .collect::<BTreeSet<_>>()
            .len() as u64,
    };
    let holders = holders.max(1);
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

/// Returns which of the files is visited, if few are much more often than others: their places by
/// tenths of the visits.
fn skewed_choice(files: &[u64], uses: &BTreeMap<u64, FileUse>) -> Option<SampledValue> {
    let mut visits: Vec<u64> = files
        .iter()
        .map(|object| uses.get(object).map_or(0, |used| used.visits))
        .collect();
    visits.sort_unstable_by(|a, b| b.cmp(a));
    let all: u64 = visits.iter().sum();
    let visited = visits.iter().filter(|visits| **visits > 0).count();
    let fifth: u64 = visits.iter().take(visited / 5).sum();
    if all < TOLD_FROM * visited as u64 || (visited * 2 > files.len() && fifth * 5 < all * 2) {
        return None;
    }
    let (mut rows, mut from, mut sum) = (Vec::new(), 0, 0);
    for (rank, count) in visits.iter().enumerate() {
        sum += count;
        while rows.len() < 10 && sum * 10 >= all * (rows.len() as u64 + 1) {
            rows.push([10, from, rank as u64 + 1]);
            from = (rank as u64 + 1).min(visited as u64 - 1);
        }
    }
    Some(SampledValue::Table(rows))
}
