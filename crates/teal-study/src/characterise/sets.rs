//! Files to sets: below one directory, at random or not, or a single one that all turn to.

use super::Step;
use super::survey::Survey;
use super::table::Value;
use super::visits::{Seen, Visit};
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
struct Key {
    top: Vec<u8>,
    random: bool,
    hot: Option<u64>,
}

/// A set.
#[derive(Debug)]
pub(super) struct Set {
    /// What is in it, for people.
    pub(super) about: String,
    /// There at the beginning.
    pub(super) first: u64,
    /// First, and those that come.
    pub(super) entries: u64,
    pub(super) sizes: Vec<u64>,
    /// Files in a directory.
    pub(super) width: u64,
    /// All are in one.
    pub(super) flat: bool,
    /// Which file is visited, where that is not even.
    pub(super) pick: Option<Value>,
    /// Directories that come and go.
    pub(super) leaves: u64,
}

/// All sets.
#[derive(Debug)]
pub(super) struct Sets {
    pub(super) sets: Vec<Set>,
    of: HashMap<u64, usize>,
}

impl Sets {
    /// The set of a visit's file.
    pub(super) fn of(&self, visit: &Visit) -> Option<usize> {
        self.of.get(&visit.object).copied()
    }
}

/// What visits make of a file.
#[derive(Debug, Default, Clone, Copy)]
struct Use {
    visits: u64,
    random: u64,
    ordered: u64,
}

fn has(visit: &Visit, step: Step) -> bool {
    visit.steps.iter().any(|(of, _)| *of == step)
}

fn uses(seen: &Seen) -> BTreeMap<u64, Use> {
    let mut uses: BTreeMap<u64, Use> = BTreeMap::new();
    for visit in &seen.visits {
        let used = uses.entry(visit.object).or_default();
        used.visits += 1;
        for (step, done) in &visit.steps {
            match step {
                Step::ReadRandom | Step::WriteRandom => used.random += done.times,
                Step::Read | Step::ReadWhole | Step::Write | Step::Append => {
                    used.ordered += done.times
                }
                _ => {}
            }
        }
    }
    uses
}

/// By object: the set that it is in.
fn keys(seen: &Seen, uses: &BTreeMap<u64, Use>) -> BTreeMap<u64, Key> {
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
    let key = |(object, used): (&u64, &Use)| {
        let place = top(object);
        let is_hot = hot.iter().any(|(_, other)| other == object);
        let key = Key {
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
pub(super) fn sets(seen: &Seen, survey: &Survey) -> Sets {
    let uses = uses(seen);
    let keys = keys(seen, &uses);
    let mut numbers: BTreeMap<&Key, usize> = keys.values().map(|key| (key, 0)).collect();
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
            numbers.get(&Key {
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
    let mut counts = vec![Counts::default(); numbers.len()];
    seen.visits
        .iter()
        .for_each(|visit| counts[of[&visit.object]].add(visit));
    let make =
        |(key, at): (&&Key, &usize)| set(key, &members[*at], counts[*at], (seen, survey), &uses);
    Sets {
        sets: numbers.iter().map(make).collect(),
        of,
    }
}

/// Comings and goings.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    created: u64,
    deleted: u64,
    dirs: u64,
}

impl Counts {
    fn add(&mut self, visit: &Visit) {
        self.created += u64::from(has(visit, Step::Create));
        self.deleted += u64::from(has(visit, Step::Delete));
        self.dirs += u64::from(has(visit, Step::MakeDir) || has(visit, Step::RemoveDir));
    }
}

fn set(
    key: &Key,
    members: &[u64],
    counts: Counts,
    (seen, survey): (&Seen, &Survey),
    uses: &BTreeMap<u64, Use>,
) -> Set {
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
    let Counts {
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
    Set {
        about,
        first,
        entries: if moves { first + more } else { first },
        sizes,
        width: (first / holders).max(1),
        flat: holders == 1,
        pick: (!moves).then(|| pick(&old, uses)).flatten(),
        leaves: if dirs == 0 {
            0
        } else {
            (4 * dirs).max(20 * seen.threads)
        },
    }
}

/// Returns which of the files is visited, if few are much more often than others: their places by
/// tenths of the visits.
fn pick(files: &[u64], uses: &BTreeMap<u64, Use>) -> Option<Value> {
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
    Some(Value::Table(rows))
}
