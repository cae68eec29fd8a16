//! The outside suites on both machines of a volume, which are network namespaces of their own: a
//! replica is a full file system.

use super::support::{
    DIRECT_AND_MAPPED, MIXED, Mounted, World, apart, apart_in, converge, digest, end, fio, fsx,
    git, is_long, pjdfstest, postgresql, sqlite,
};
use std::fs;

/// The serving machine, and the one that joined.
const NAS: usize = 0;
const LAPTOP: usize = 1;

/// Does something on one of the two machines; then both have the same.
fn on(which: usize, test: &str, work: impl FnOnce(&mut Mounted) -> bool) {
    if World::new(test).is_none() {
        return;
    }
    // Some of what runs there becomes other users.
    let worlds = [World::open_to_all(), World::open_to_all()];
    let Some((_cable, nas, laptop)) = apart_in(test, worlds, |_| {}) else {
        return;
    };
    let mut both = [nas.0, laptop];
    if work(&mut both[which]) {
        let [nas, laptop] = both;
        converge(&nas, &laptop);
        end(vec![laptop, nas]);
    }
}

/// Does something on both machines at once.
fn on_both<T: Send>(both: [&Mounted; 2], work: impl Fn(&Mounted, usize) -> T + Sync) -> [T; 2] {
    let work = &work;
    std::thread::scope(|scope| {
        let at_work = [0, 1].map(|n| {
            let m = both[n];
            std::thread::Builder::new()
                .spawn_scoped(scope, move || work(m, n))
                .unwrap()
        });
        at_work.map(|thread| thread.join().unwrap())
    })
}

#[test]
fn pjdfstest_passes_on_a_joined_mount() {
    let test = "pjdfstest_passes_on_a_joined_mount";
    on(LAPTOP, test, |m| pjdfstest(test, m));
}

#[test]
fn pjdfstest_passes_on_the_serving_machine() {
    let test = "pjdfstest_passes_on_the_serving_machine";
    on(NAS, test, |m| pjdfstest(test, m));
}

#[test]
fn fsx_sees_its_own_writes_on_both_machines_and_each_sees_the_others_last() {
    let test = "fsx_sees_its_own_writes_on_both_machines_and_each_sees_the_others_last";
    let (ops, seeds) = if is_long() {
        (100_000, 1..9)
    } else {
        (6_000, 1..3)
    };
    for seed in seeds {
        let Some((_cable, nas, laptop)) = apart(test, |_| {}) else {
            return;
        };
        // Each on a file of its own: both flush every second.
        let left = on_both([&nas.0, &laptop], |m, n| {
            let n = u32::try_from(n).unwrap();
            fsx(
                test,
                m,
                &format!("file{n}"),
                (10 * seed + n, ops),
                seed % 2 == 0,
            )
        });
        converge(&nas.0, &laptop);
        for (n, left) in left.into_iter().enumerate() {
            let Some(left) = left else { return };
            let name = format!("file{n}");
            assert_eq!(
                [left; 2],
                [&nas.0, &laptop].map(|m| digest(&m.path(&name))),
                "seed {seed}"
            );
        }
        end(vec![laptop, nas.0]);
    }
}

#[test]
fn fio_verifies_on_each_machine_what_it_wrote_on_the_other() {
    let test = "fio_verifies_on_each_machine_what_it_wrote_on_the_other";
    let size = if is_long() { "48m" } else { "8m" };
    for jobs in [MIXED, DIRECT_AND_MAPPED] {
        let Some((_cable, nas, laptop)) = apart(test, |root| {
            fs::create_dir(root.join("0")).unwrap();
            fs::create_dir(root.join("1")).unwrap();
        }) else {
            return;
        };
        let mut both = [nas.0, laptop];
        let run = |m: &Mounted, dir: usize, how: &str| {
            fio(test, m, &m.path(dir.to_string()), (jobs, size), &[how])
        };
        for said in on_both(both.each_ref(), |m, n| run(m, n, "--do_verify=1")) {
            let Some(said) = said else { return };
            said.expect_success();
        }
        converge(&both[NAS], &both[LAPTOP]);
        // The caches hold nothing useful any more.
        both.iter_mut().for_each(Mounted::remount);
        for (m, other) in [(NAS, 1), (LAPTOP, 0)] {
            run(&both[m], other, "--verify_only")
                .unwrap()
                .expect_success();
        }
        let [nas, laptop] = both;
        end(vec![laptop, nas]);
    }
}

/// Returns how often a daemon is killed while SQLite works.
fn kills() -> u32 {
    if is_long() { 20 } else { 2 }
}

#[test]
fn sqlite_keeps_every_acknowledged_commit_on_a_joined_mount() {
    let test = "sqlite_keeps_every_acknowledged_commit_on_a_joined_mount";
    on(LAPTOP, test, |m| sqlite(test, m, "WAL", kills()));
}

#[test]
fn sqlite_keeps_every_acknowledged_commit_on_the_serving_machine() {
    let test = "sqlite_keeps_every_acknowledged_commit_on_the_serving_machine";
    on(NAS, test, |m| sqlite(test, m, "DELETE", kills()));
}

#[test]
fn postgresql_keeps_every_acknowledged_transaction_on_a_joined_mount() {
    let test = "postgresql_keeps_every_acknowledged_transaction_on_a_joined_mount";
    if World::new(test).is_none() {
        return;
    }
    let worlds = [World::open_to_all(), World::open_to_all()];
    let Some((_cable, nas, mut laptop)) = apart_in(test, worlds, |_| {}) else {
        return;
    };
    if postgresql(test, &mut laptop, if is_long() { 10 } else { 1 }) {
        converge(&nas.0, &laptop);
        end(vec![laptop, nas.0]);
    }
}

#[test]
fn a_git_repository_is_whole_on_a_joined_mount() {
    let test = "a_git_repository_is_whole_on_a_joined_mount";
    on(LAPTOP, test, |m| {
        git(test, m, if is_long() { 60 << 20 } else { 4 << 20 })
    });
}

#[test]
fn a_git_repository_is_whole_on_the_serving_machine() {
    let test = "a_git_repository_is_whole_on_the_serving_machine";
    on(NAS, test, |m| {
        git(test, m, if is_long() { 60 << 20 } else { 4 << 20 })
    });
}
