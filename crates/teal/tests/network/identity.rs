//! The right to speak: tokens, certificates, copies of stores.

use super::support::stranger::{
    DEADLINE, Office, days_ago, identity_dir, runtime, server_identity,
};
use super::support::{
    History, Mounted, Nas, PATIENCE, World, converge, end, flush, join, run_program, seeded,
    try_join, wait_until,
};
use super::{Volume, flush_fails, trouble};
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::process::Command;
use std::time::Duration;
use teal_env::{Clock as _, SystemClock};
use teal_net::{CertifiedPeer, ClientIdentity, ServerIdentity, enrol};
use teal_testkit::SimClock;
use teal_types::{ReplicaNo, VolumeId};

#[test]
fn a_token_that_has_expired_and_guessed_ones_are_refused() {
    let test = "a_token_that_has_expired_and_guessed_ones_are_refused";
    let Some(mut volume) = Volume::new(test) else {
        return;
    };
    let (address, token) = volume.nas.serve();
    let (_, fingerprint) = token.rsplit_once('.').unwrap();
    // One that was good for no time at all, as the server would give it out.
    let data = volume.nas.0.store().with_extension("teal.d").join("server");
    volume.nas.0.down();
    let old = {
        let history = History::open(&data);
        history
            .server()
            .make_token(history.peer().volume, Duration::ZERO)
            .unwrap()
    };
    volume.nas.serve_at(&address);
    let world = World::new(test).unwrap();
    let said =
        try_join(&world, &(address.clone(), format!("{old}.{fingerprint}"))).expect_refusal();
    assert!(
        said.contains("this token has expired; make a new one on the server"),
        "{said}"
    );
    assert!(
        !world.path("store.teal").exists() && !world.path("store.teal.d").exists(),
        "nothing is left of it"
    );
    // A stranger guesses tokens.
    let runtime = runtime();
    let guess = |n: u32| {
        let token = format!("{}-{n:032x}", &token[..8]);
        enrol(
            runtime.handle(),
            &address,
            &fingerprint.parse().unwrap(),
            &token,
            "guesser",
            DEADLINE,
        )
        .unwrap_err()
    };
    let refusals: Vec<String> = (0..25).map(|n| guess(n).to_string()).collect();
    assert!(
        refusals[0].contains("no token of this server"),
        "{refusals:?}"
    );
    assert!(
        refusals[24].contains("too many wrong tokens have come; try again in 60 seconds"),
        "{refusals:?}"
    );
    volume.is_undisturbed();
    volume.end();
}

/// Returns a volume on a server that is two years old, and a machine that has joined it, unmounted.
pub(crate) fn old_volume(test: &str) -> Option<(Volume, Mounted, CertifiedPeer)> {
    let mut nas = Nas::alone(World::new(test)?, |root| {
        fs::write(root.join("known"), "x").unwrap()
    });
    let dir = server_identity(&nas.0);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .unwrap();
    ServerIdentity::open(&dir, &SimClock::new(days_ago(730))).unwrap();
    let (address, _) = nas.serve();
    let laptop = join(test, &nas.serve_at(&address));
    let mut other = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    flush(&other);
    fs::write(other.path("only here"), "not lost").unwrap();
    other.down();
    let peer = ClientIdentity::load(&identity_dir(&other)).unwrap().peer();
    Some((
        Volume {
            nas,
            laptop,
            told: 0,
        },
        other,
        peer,
    ))
}

#[test]
fn a_certificate_that_ended_is_renewed_and_one_that_ended_long_ago_is_refused() {
    let test = "a_certificate_that_ended_is_renewed_and_one_that_ended_long_ago_is_refused";
    let Some((mut volume, mut other, peer)) = old_volume(test) else {
        return;
    };
    let dir = server_identity(&volume.nas.0);
    let of_age = |days: i64| Office::new(&dir, days_ago(days), peer, Vec::new()).identity;
    // As when this machine's clock, or the server's, is off by a year: the certificate ended half a
    // year ago.
    of_age(365).save(&identity_dir(&other)).unwrap();
    other.up();
    let words = [
        "certificate ended on",
        "the server's clock",
        "enrol this machine again",
    ];
    trouble(&other, &words);
    flush_fails(&other, &words);
    assert_eq!(fs::read(other.path("only here")).unwrap(), b"not lost");
    volume.is_undisturbed();
    other.down();
    // Two months after its end it is renewed without a word, and what waited is sent.
    of_age(150).save(&identity_dir(&other)).unwrap();
    let before = ClientIdentity::load(&identity_dir(&other))
        .unwrap()
        .expires();
    other.up();
    assert!(
        wait_until(PATIENCE, || other.status()["upstream"]["only_here"] == 0),
        "{}",
        other.status()
    );
    let after = ClientIdentity::load(&identity_dir(&other))
        .unwrap()
        .expires();
    assert!(
        before < SystemClock.civil_time() && after > days_ago(-80),
        "{before:?} and {after:?}"
    );
    converge(&volume.nas.0, &other);
    end(vec![other]);
    volume.end();
}

#[test]
fn certificates_of_others_are_refused() {
    let test = "certificates_of_others_are_refused";
    let Some((mut volume, mut other, peer)) = old_volume(test) else {
        return;
    };
    let own = ClientIdentity::load(&identity_dir(&other)).unwrap();
    let dir = server_identity(&volume.nas.0);
    let foreign = other.world().path("foreign");
    let now = days_ago(0);
    let strange = CertifiedPeer {
        volume: VolumeId::new(peer.volume.get() + 1),
        ..peer
    };
    let unknown = CertifiedPeer {
        replica: ReplicaNo::new(77),
        ..peer
    };
    for (identity, words) in [
        // This certificate is of another server, which this one does not know.
        (
            Office::new(&foreign, now, peer, Vec::new()).identity,
            &["not the expected server", "fingerprint"][..],
        ),
        // These are of this server, for another volume, for a machine that was never enrolled, and
        // for the other machine.
        (
            Office::new(&dir, now, strange, Vec::new()).identity,
            &["enrol"],
        ),
        (
            Office::new(&dir, now, unknown, Vec::new()).identity,
            &["not enrolled", "new token"],
        ),
        (
            ClientIdentity::load(&identity_dir(&volume.laptop)).unwrap(),
            &[
                "this store belongs to replica",
                "join with the certificate that was made for it",
            ],
        ),
    ] {
        identity.save(&identity_dir(&other)).unwrap();
        other.up();
        trouble(&other, words);
        flush_fails(&other, words);
        assert_eq!(fs::read(other.path("only here")).unwrap(), b"not lost");
        other.down();
        volume.is_undisturbed();
    }
    own.save(&identity_dir(&other)).unwrap();
    other.up();
    converge(&volume.nas.0, &other);
    assert_eq!(
        fs::read(volume.nas.0.path("only here")).unwrap(),
        b"not lost"
    );
    end(vec![other]);
    volume.end();
}

#[test]
fn a_copied_store_goes_on_as_another_one_and_nothing_of_either_is_lost() {
    let test = "a_copied_store_goes_on_as_another_one_and_nothing_of_either_is_lost";
    let Some(mut volume) = Volume::new(test) else {
        return;
    };
    let write = |m: &Mounted, who: &str, round: u64| {
        for n in 0..5 {
            fs::write(
                m.path(format!("{who} {round} {n}")),
                seeded(10 * round + n, 20_000),
            )
            .unwrap();
        }
        fs::create_dir(m.path(format!("dir of {who} {round}"))).unwrap();
        fs::write(m.path(format!("dir of {who} {round}/file")), who).unwrap();
    };
    // Something that was never sent is in both.
    let (address, _) = volume.nas.serve();
    volume.nas.0.down();
    write(&volume.laptop, "both", 0);
    volume.laptop.down();
    let world = World::new(test).unwrap();
    let script = r#"cp -a "$1" "$2/store.teal"; cp -a "$1.d" "$2/store.teal.d""#;
    run_program(
        Command::new("sh")
            .args(["-ec", script, "sh"])
            .arg(volume.laptop.store())
            .arg(world.path("")),
    )
    .expect_success();
    volume.nas.serve_at(&address);
    volume.laptop.up();
    write(&volume.laptop, "the first", 1);
    flush(&volume.laptop);
    // The copy comes up when the first one has gone on, and then both are there at once.
    let store = world.path("store.teal");
    let mut copy = Mounted::on(world, store);
    for round in 2..5 {
        write(&copy, "the copy", round);
        write(&volume.laptop, "the first", round);
        flush(&copy);
        flush(&volume.laptop);
    }
    assert!(
        copy.log()
            .contains("this store is a copy of one that went on"),
        "{}",
        copy.log()
    );
    converge(&volume.nas.0, &volume.laptop);
    converge(&volume.nas.0, &copy);
    for (who, rounds) in [("both", 0..1), ("the first", 1..5), ("the copy", 2..5)] {
        for round in rounds {
            for n in 0..5 {
                let there = volume.nas.0.path(format!("{who} {round} {n}"));
                assert_eq!(
                    fs::read(&there).unwrap(),
                    seeded(10 * round + n, 20_000),
                    "{}",
                    there.display()
                );
            }
            let file = volume.nas.0.path(format!("dir of {who} {round}/file"));
            assert_eq!(fs::read(file).unwrap(), who.as_bytes());
        }
    }
    copy.down();
    copy.check();
    volume.is_undisturbed();
    volume.end();
}
