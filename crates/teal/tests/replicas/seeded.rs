//! The simulation is tested itself: each bug of [`teal_posix::seeded`], [`teal_server::seeded`] and
//! [`teal_device::seeded`], switched on, is caught.

#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod attempt;
mod bounds;
mod drive_faults;
mod drives;
mod judge;
mod ledger;
mod logs;
mod operator;
mod pins;
mod power;
mod restore;
mod run;
mod steps;
mod tags;
mod tree;
mod wire;
mod world;

use attempt::attempt;
use run::Stage;
use teal_device::seeded as device;
use teal_posix::seeded as posix;
use teal_replica::seeded as replica;
use teal_server::seeded as server;

/// Lives looked at before a bug counts as missed.
const LIVES: u64 = 400;

/// Every bug of the replicas, and where it shows soonest.
fn of_replicas(bug: replica::Bug) -> Stage {
    match bug {
        replica::Bug::NewerOverwritten
        | replica::Bug::BaseKept
        | replica::Bug::StaleFetched
        | replica::Bug::RewriteTakenForAppend => Stage::AtOnce,
        replica::Bug::DriveStale
        | replica::Bug::DriveGetsPending
        | replica::Bug::DriveMissesNews
        | replica::Bug::DrivePositionTooEarly
        | replica::Bug::DriveToldTooEarly
        | replica::Bug::LateAskedAgain
        | replica::Bug::SpoiledServed
        | replica::Bug::SpoiledKept
        | replica::Bug::PendingGivenBack
        | replica::Bug::PinNotFollowed => Stage::Drives,
        replica::Bug::NotRenumbered | replica::Bug::CopyUnnoticed => Stage::Copies,
        replica::Bug::KeptHalfSaid => Stage::AtOnce,
        replica::Bug::OneStopsAll => Stage::Limits,
        _ => Stage::Power,
    }
}

/// Returns the stage in which a bug of the server shows soonest.
fn of_server(bug: server::Bug) -> Stage {
    match bug {
        server::Bug::BatchTwice => Stage::Faults,
        server::Bug::OtherHistory => Stage::CopiesRestored,
        server::Bug::DriveCopyTaken => Stage::Drives,
        server::Bug::OwnUnseen => Stage::Apart,
        server::Bug::AnsweredTooEarly => Stage::Power,
        server::Bug::LimitsDiffer => Stage::Limits,
        _ => Stage::AtOnce,
    }
}

/// Returns how many lives of one of these stages until something is noticed, and what.
fn caught(stages: &[Stage]) -> Option<(u64, String)> {
    stages.iter().find_map(|stage| {
        (0..LIVES).find_map(|seed| Some((seed + 1, attempt(*stage, seed, false).err()?)))
    })
}

#[test]
fn every_seeded_bug_is_caught() {
    let only = std::env::var("TEAL_SEEDED_BUG").ok();
    let mut missed = Vec::new();
    let mut look = |name: String, stages: &[Stage]| {
        if only.as_ref().is_some_and(|only| *only != name) {
            return;
        }
        match caught(stages) {
            Some((lives, words)) => println!(
                "{name}: life {lives}: {}",
                words.chars().take(160).collect::<String>()
            ),
            None => missed.push(name),
        }
    };
    for bug in replica::Bug::ALL {
        replica::seed(Some(bug));
        look(format!("{bug:?}"), &[of_replicas(bug)]);
    }
    replica::seed(None);
    for bug in posix::Bug::ALL {
        posix::seed(Some(bug));
        look(format!("{bug:?}"), &[Stage::AtOnce]);
    }
    posix::seed(None);
    for bug in server::Bug::ALL {
        server::seed(Some(bug));
        // The bug shows when a change meets a fetch on its way, which is rare everywhere.
        let anywhere = [Stage::Drives, Stage::Faults, Stage::AtOnce, Stage::Power];
        match bug {
            server::Bug::OtherContent => look(format!("{bug:?}"), &anywhere),
            bug => look(format!("{bug:?}"), &[of_server(bug)]),
        }
    }
    if only.as_ref().is_none_or(|only| only == "older") {
        server::seed(Some(server::Bug::LimitsDiffer));
        bounds::an_older_server_stops_nobody();
    }
    server::seed(None);
    for bug in device::DriveBug::ALL {
        device::seed(Some(bug));
        look(format!("{bug:?}"), &[Stage::Drives]);
    }
    device::seed(None);
    assert!(missed.is_empty(), "not caught in {LIVES} lives: {missed:?}");
}
