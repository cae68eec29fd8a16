//! One volume on two machines: served by one daemon, joined by another, on loopback or over a
//! cable.

use super::cable::ADDRESSES;
use super::{
    Cable, Mounted, PATIENCE, ProgramOutput, World, are_alike, compare_replicas, wait_until,
};
use std::path::Path;

/// The size of every store.
const SIZE: &str = "1G";

/// Returns what `teal serve` prints for others: where it listens, and the token.
fn invitation(said: &str) -> (String, String) {
    let word = |before: &str, text: &str| {
        text.split(before)
            .nth(1)
            .map(|rest| rest.split_whitespace().next().unwrap().to_owned())
    };
    let address = word("is served on ", said)
        .unwrap()
        .trim_end_matches(',')
        .to_owned();
    (address, word("--token ", said).unwrap())
}

/// A served volume; it listens on a port of its own.
pub(crate) struct Nas(pub(crate) Mounted);

impl Nas {
    /// A volume that lives alone, filled by `begin`, then served.
    pub(crate) fn of(test: &str, begin: impl FnOnce(&Path)) -> Option<Self> {
        let mut this = Self::alone(World::new(test)?, begin);
        this.serve();
        Some(this)
    }

    /// Returns such a volume that is not served yet.
    pub(crate) fn alone(world: World, begin: impl FnOnce(&Path)) -> Self {
        let mounted = Mounted::of(world, SIZE);
        begin(mounted.point());
        Self(mounted)
    }

    /// Serves it, or asks for another token.
    #[track_caller]
    pub(crate) fn serve(&mut self) -> (String, String) {
        let is_served = self
            .0
            .store()
            .with_extension("teal.d")
            .join("replica.toml")
            .exists();
        self.serve_with(if is_served {
            &[]
        } else {
            &["--listen", "127.0.0.1:0"]
        })
    }

    /// Serves it at this address from now on.
    #[track_caller]
    pub(crate) fn serve_at(&mut self, listen: &str) -> (String, String) {
        self.serve_with(&["--listen", listen])
    }

    /// Serves it with these arguments.
    #[track_caller]
    pub(crate) fn serve_with(&mut self, more: &[&str]) -> (String, String) {
        let (point, store) = (
            self.0.point().to_str().unwrap().to_owned(),
            self.0.store().to_str().unwrap().to_owned(),
        );
        let args = ["serve", &point, "--store", &store, "--device", "nas"];
        let said = self
            .0
            .world()
            .teal(&[&args[..], more].concat())
            .expect_success();
        self.0.adopt();
        invitation(&said)
    }

    /// Serves it on a port that it has again after a restart.
    #[track_caller]
    pub(crate) fn serve_for_good(&mut self) -> (String, String) {
        let (address, _) = self.serve();
        self.serve_at(&format!(
            "127.0.0.1:{}",
            address.rsplit_once(':').unwrap().1
        ))
    }

    #[track_caller]
    pub(crate) fn flush(&self) {
        flush(&self.0);
    }
}

#[track_caller]
pub(crate) fn flush(m: &Mounted) {
    m.world()
        .teal(&["flush", m.point().to_str().unwrap()])
        .expect_success();
}

/// Joins a volume in a world of its own.
pub(crate) fn try_join(world: &World, (address, token): &(String, String)) -> ProgramOutput {
    let (point, store) = (world.path("Teal"), world.path("store.teal"));
    let store = store.to_str().unwrap();
    let args = [
        "join",
        address,
        point.to_str().unwrap(),
        "--token",
        token,
        "--store",
        store,
        "--size",
        SIZE,
    ];
    world.teal(&[&args[..], &["--device", "laptop"]].concat())
}

#[track_caller]
pub(crate) fn join(test: &str, with: &(String, String)) -> Mounted {
    join_from(World::new(test).unwrap(), with)
}

#[track_caller]
pub(crate) fn join_from(world: World, with: &(String, String)) -> Mounted {
    try_join(&world, with).expect_success();
    let store = world.path("store.teal");
    Mounted::found(world, store)
}

/// A volume that is served on one machine and joined on another; flushed, and the same on both.
#[track_caller]
pub(crate) fn apart(test: &str, begin: impl FnOnce(&Path)) -> Option<(Cable, Nas, Mounted)> {
    let worlds = [World::new(test)?, World::new(test)?];
    apart_in(test, worlds, begin)
}

/// Does so in worlds that exist already.
pub(crate) fn apart_in(
    test: &str,
    worlds: [World; 2],
    begin: impl FnOnce(&Path),
) -> Option<(Cable, Nas, Mounted)> {
    let cable = Cable::new(test)?;
    let [one, other] = worlds;
    let mut nas = Nas::alone(cable.world(0, one), begin);
    let (_, token) = nas.serve_at("0.0.0.0:4717");
    let laptop = join_from(cable.world(1, other), &(ADDRESSES[0].to_owned(), token));
    converge(&nas.0, &laptop);
    Some((cable, nas, laptop))
}

/// Waits until both mounts show the same, byte for byte.
#[track_caller]
pub(crate) fn converge(a: &Mounted, b: &Mounted) {
    for m in [a, b, a] {
        flush(m);
    }
    let upstream = |m: &Mounted| m.status()["upstream"].clone();
    let caught_up = || {
        upstream(a)["seen"] == upstream(b)["seen"]
            && upstream(a)["only_here"] == 0
            && upstream(b)["only_here"] == 0
    };
    assert!(
        wait_until(PATIENCE, caught_up),
        "{} and {}",
        upstream(a),
        upstream(b)
    );
    // The kernel is told after that what to forget.
    let _ = wait_until(PATIENCE, || are_alike(a.point(), b.point()));
    compare_replicas(a.point(), b.point());
}

pub(crate) fn end(mut mounts: Vec<Mounted>) {
    for m in &mut mounts {
        m.down();
        m.check();
    }
}
