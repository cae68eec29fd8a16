//! Two machines with a cable between them: killed while they work, cut off from each other, and
//! left alone.

use super::support::{
    Cable, History, Library, Mounted, PATIENCE, apart, converge, end, fill, flush, is_long,
    let_pass, seeded, wait_until,
};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock};

/// The serving machine, and the one that joined.
const NAS: usize = 0;
const LAPTOP: usize = 1;
const DIRS: [&str; 2] = ["of the nas", "of the laptop"];

/// The content that a machine has flushed of one file, version by version.
#[derive(Default)]
struct Ledger {
    flushed: Vec<u64>,
}

impl Ledger {
    fn name(machine: usize) -> String {
        format!("ledger {}", DIRS[machine])
    }

    fn bytes(seed: u64) -> Vec<u8> {
        seeded(seed, 3000 + 1000 * usize::try_from(seed % 97).unwrap())
    }

    /// Writes a version, and flushes it if the server is there.
    fn enter(&mut self, m: &Mounted, machine: usize, seed: u64) {
        let file = m.path(Self::name(machine));
        fs::write(&file, Self::bytes(seed)).unwrap();
        let value = seed.to_string();
        rustix::fs::setxattr(
            &file,
            "user.seed",
            value.as_bytes(),
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
        if m.world().teal(&["flush", m.point().to_str().unwrap()]).code == 0 {
            self.flushed.push(seed);
        }
    }

    /// Every flushed version is in the server's history, in order.
    fn check(&self, history: &History, object: u64) {
        let mut versions = history.versions(object).into_iter();
        for seed in &self.flushed {
            let bytes = Self::bytes(*seed);
            let is_it = |version: &teal_types::ObjectVersion, seq| {
                let value = seed.to_string().into_bytes();
                version.size == bytes.len() as u64
                    && version.xattrs.contains(&(b"user.seed".to_vec(), value))
                    && history.content(object, seq, version.size) == bytes
            };
            let found = versions.any(|note| {
                note.version
                    .as_ref()
                    .is_some_and(|version| is_it(version, note.seq))
            });
            assert!(
                found,
                "version {seed} of object {object} is not in history: {:?}",
                self.flushed
            );
        }
    }
}

#[test]
fn builds_go_on_over_kills_of_either_machine_and_every_flushed_version_is_kept() {
    let test = "builds_go_on_over_kills_of_either_machine_and_every_flushed_version_is_kept";
    let Some((_cable, nas, laptop)) = apart(test, |root| fill(root, 5, 40)) else {
        return;
    };
    let Some(library) = Library::new(test, nas.0.world()) else {
        return;
    };
    let mut both = [nas.0, laptop];
    let mut ledgers = [Ledger::default(), Ledger::default()];
    let mut rng = teal_testkit::Rng::new(17);
    let mut work = [NAS, LAPTOP].map(|n| Some(library.begin(&both[n], DIRS[n])));
    let rounds = if is_long() { 100 } else { 10 };
    for round in 1..=rounds {
        let_pass(Duration::from_millis(rng.below(1500)));
        for n in [NAS, LAPTOP] {
            ledgers[n].enter(&both[n], n, 10 * round + n as u64);
        }
        let_pass(Duration::from_millis(rng.below(1500)));
        // One goes on while the other is away.
        let victim = if rng.below(2) == 0 { NAS } else { LAPTOP };
        both[victim].kill();
        work[victim] = None;
        let other = 1 - victim;
        ledgers[other].enter(&both[other], other, 10 * round + 5 + other as u64);
        both[victim].up();
        work[victim] = Some(library.begin(&both[victim], DIRS[victim]));
    }
    drop(work);
    let [nas, laptop] = &both;
    converge(nas, laptop);
    // Work that was half done can be finished on the other machine.
    library.finish(&laptop.path(DIRS[NAS]));
    library.finish(&nas.path(DIRS[LAPTOP]));
    converge(nas, laptop);
    let said = laptop
        .world()
        .teal(&["conflicts", "ls", laptop.point().to_str().unwrap()])
        .expect_success();
    assert!(
        said.contains("no conflicts"),
        "nobody touched what the other did: {said}"
    );
    let objects = [NAS, LAPTOP].map(|n| fs::metadata(nas.path(Ledger::name(n))).unwrap().ino());
    let data = nas.store().with_extension("teal.d").join("server");
    for m in both.iter_mut().rev() {
        m.down();
        m.check();
    }
    let history = History::open(&data);
    for (ledger, object) in ledgers.iter().zip(objects) {
        assert!(
            ledger.flushed.len() as u64 >= rounds,
            "{:?}",
            ledger.flushed
        );
        ledger.check(&history, object);
    }
}

fn is_unreachable(read: &io::Result<usize>) -> bool {
    read.as_ref()
        .is_err_and(|e| e.raw_os_error() == Some(rustix::io::Errno::HOSTUNREACH.raw_os_error()))
}

/// Measures the time that `work` takes.
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let before = SystemClock.monotonic_time();
    let done = work();
    (SystemClock.monotonic_time() - before, done)
}

/// Cuts the cable at one end while both work, and looks at what the laptop can do.
fn cut_off(
    cable: &Cable,
    cut: usize,
    laptop: &Mounted,
    nas: &Mounted,
    library: &Library,
    time: Duration,
) {
    // Files with names that are known on the laptop, and content that is not; too large to come
    // along with another.
    let far = format!("far {cut}");
    fs::create_dir(nas.path(&far)).unwrap();
    for n in 0..40 {
        fs::write(nas.path(format!("{far}/{n}")), seeded(n, 70_000)).unwrap();
    }
    flush(nas);
    assert!(wait_until(PATIENCE, || fs::read_dir(laptop.path(&far))
        .is_ok_and(|names| names.count() == 40)));
    let work = [NAS, LAPTOP].map(|n| library.begin([nas, laptop][n], DIRS[n]));
    assert!(
        wait_until(PATIENCE * 2, || work.iter().all(|work| work.rounds() > 0)),
        "both build"
    );
    let known = fs::read(laptop.path("here")).unwrap();
    let name = |what: &str| format!("{what} while {cut} was cut off");
    cable.unplug(cut);
    let began = SystemClock.monotonic_time();
    // The first request waits until it is clear that the server does not answer.
    let far = |n: usize| fs::read(laptop.path(format!("{far}/{n}"))).map(|bytes| bytes.len());
    let (waited, first) = timed(|| far(0));
    // The failure is noticed after 2 s; in an earlier version it took up to 10 s.
    assert!(
        is_unreachable(&first) && waited < Duration::from_secs(7),
        "{first:?} after {waited:?}"
    );
    let before = work.each_ref().map(|work| work.rounds());
    let mut n = 0;
    while SystemClock.monotonic_time() - began < time {
        n += 1;
        let (waited, read) = timed(|| far(n % 40));
        assert!(is_unreachable(&read), "{read:?}");
        // No packet gets out: that is known at once. Where they vanish on the way, some wait again.
        assert!(
            waited < Duration::from_secs(if cut == LAPTOP { 3 } else { 30 }),
            "{waited:?}"
        );
        let (waited, _) = timed(|| {
            assert_eq!(fs::read(laptop.path("here")).unwrap(), known);
            fs::write(laptop.path(name("written")), seeded(n as u64, 50_000)).unwrap();
            fs::rename(laptop.path(name("written")), laptop.path(name("renamed"))).unwrap();
            fs::read_dir(laptop.point()).unwrap().for_each(drop);
        });
        assert!(
            waited < Duration::from_secs(10),
            "what is here takes {waited:?}"
        );
        let_pass(Duration::from_millis(500));
    }
    let status = laptop.status()["upstream"].clone();
    assert!(
        status["trouble"].is_string() && status["only_here"].as_u64() > Some(0),
        "{status}"
    );
    let goes_on = || {
        work.iter()
            .zip(before)
            .all(|(work, before)| work.rounds() > before)
    };
    assert!(
        wait_until(PATIENCE * 2, goes_on),
        "both have built more meanwhile"
    );
    drop(work);
    cable.plug(cut);
    let drained = wait_until(PATIENCE, || laptop.status()["upstream"]["only_here"] == 0);
    assert!(drained, "{}", laptop.status()["upstream"]);
    assert!(far(0).is_ok(), "what was out of reach is in reach again");
    converge(nas, laptop);
    assert_eq!(
        fs::read(nas.path(name("renamed"))).unwrap(),
        seeded(n as u64, 50_000)
    );
    [nas, laptop]
        .into_iter()
        .zip(DIRS)
        .for_each(|(m, dir)| library.finish(&m.path(dir)));
}

#[test]
fn a_cable_that_is_pulled_stops_nobody_and_what_was_done_meanwhile_arrives() {
    let test = "a_cable_that_is_pulled_stops_nobody_and_what_was_done_meanwhile_arrives";
    let Some((cable, nas, laptop)) = apart(test, |root| {
        fs::write(root.join("here"), seeded(1, 300_000)).unwrap()
    }) else {
        return;
    };
    let Some(library) = Library::new(test, nas.0.world()) else {
        return;
    };
    let time = Duration::from_secs(if is_long() { 180 } else { 15 });
    cut_off(&cable, LAPTOP, &laptop, &nas.0, &library, time);
    cut_off(&cable, NAS, &laptop, &nas.0, &library, time);
    end(vec![laptop, nas.0]);
}

/// Every file in and below, with size and time of its last change.
fn files(place: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut places = vec![place.to_owned()];
    while let Some(place) = places.pop() {
        let meta = fs::metadata(&place).unwrap();
        if meta.is_dir() {
            places.extend(
                fs::read_dir(&place)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        found.insert(place, (meta.len(), meta.mtime(), meta.mtime_nsec()));
    }
    found
}

/// Returns what is written to the store and beside it.
fn written(m: &Mounted) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let mut all = files(m.store());
    all.extend(files(&m.store().with_extension("teal.d")));
    all
}

fn requests(m: &Mounted) -> u64 {
    m.exchanged("counts", "requests")
}

#[test]
fn replicas_on_which_nothing_changes_write_nothing_and_ask_twice_a_minute() {
    let test = "replicas_on_which_nothing_changes_write_nothing_and_ask_twice_a_minute";
    let Some((_cable, nas, laptop)) = apart(test, |root| fill(root, 6, 60)) else {
        return;
    };
    let both = [&nas.0, &laptop];
    for m in both {
        m.set("checkpoint-seconds", "1");
        m.set("commit-seconds", "1");
    }
    let at_rest = || {
        let before = both.map(written);
        let_pass(Duration::from_secs(3));
        both.map(written) == before && both.iter().all(|m| m.status()["uncommitted"] == false)
    };
    assert!(wait_until(PATIENCE, at_rest), "{}", laptop.status());
    let minutes = if is_long() { 20 } else { 1 };
    let before = (both.map(written), both.map(requests));
    // Two requests a minute, and the one that ends just now.
    let_pass(Duration::from_secs(60 * minutes + 5));
    let after = (both.map(written), both.map(requests));
    assert_eq!(after.0, before.0, "nothing is written");
    for (n, (after, before)) in after.1.into_iter().zip(before.1).enumerate() {
        let asked = after - before;
        assert!(
            (2 * minutes - 1..=2 * minutes + 1).contains(&asked),
            "{} asked {asked} times",
            DIRS[n]
        );
    }
    // And it would have been noticed.
    fs::write(laptop.path("new"), "x").unwrap();
    assert!(wait_until(PATIENCE, || both.map(written)[NAS] != before.0[NAS]));
    end(vec![laptop, nas.0]);
}

#[test]
fn the_machines_of_a_test_end_with_it() {
    let test = "the_machines_of_a_test_end_with_it";
    let Some(cable) = Cable::new(test) else {
        return;
    };
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let namespaces = cable.namespaces();
    let theirs = namespaces
        .each_ref()
        .map(|path| fs::read_link(path).unwrap());
    assert!(theirs[0] != theirs[1] && !theirs.contains(&own));
    drop(cable);
    assert!(wait_until(PATIENCE, || namespaces
        .iter()
        .all(|path| !path.exists())));
}
