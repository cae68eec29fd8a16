//! One volume on two machines: served by one daemon, joined by another, on loopback.

use super::{Mounted, PATIENCE, Said, World, compare_trees, wait_until};
use std::path::Path;

/// What `teal serve` prints for others: where it listens, and the token.
fn invitation(said: &str) -> (String, String) {
    let word = |before: &str, text: &str| {
        text.split(before).nth(1).map(|rest| rest.split_whitespace().next().unwrap().to_owned())
    };
    let address = word("is served on ", said).unwrap().trim_end_matches(',').to_owned();
    (address, word("--token ", said).unwrap())
}

/// A served volume; it listens on a port of its own.
pub(crate) struct Nas(pub(crate) Mounted);

impl Nas {
    /// A volume that lives alone, filled by `begin`, then served.
    pub(crate) fn of(test: &str, begin: impl FnOnce(&Path)) -> Option<Self> {
        let mounted = Mounted::new(test, "256M")?;
        begin(mounted.point());
        let mut this = Self(mounted);
        this.serve();
        Some(this)
    }

    /// Serves it, or asks for another token.
    #[track_caller]
    pub(crate) fn serve(&mut self) -> (String, String) {
        self.serve_at("127.0.0.1:0")
    }

    /// The same, at this address.
    #[track_caller]
    pub(crate) fn serve_at(&mut self, listen: &str) -> (String, String) {
        let (point, store) = (self.0.point().to_str().unwrap().to_owned(), self.0.store().to_str().unwrap().to_owned());
        let args = ["serve", &point, "--store", &store, "--listen", listen, "--device", "nas"];
        let said = self.0.world().teal(&args).good();
        self.0.adopt();
        invitation(&said)
    }

    /// Serves it on a port that it has again after a restart.
    #[track_caller]
    pub(crate) fn serve_for_good(&mut self) -> (String, String) {
        let (address, _) = self.serve();
        self.serve_at(&format!("127.0.0.1:{}", address.rsplit_once(':').unwrap().1))
    }

    #[track_caller]
    pub(crate) fn flush(&self) {
        flush(&self.0);
    }
}

#[track_caller]
pub(crate) fn flush(m: &Mounted) {
    m.world().teal(&["flush", m.point().to_str().unwrap()]).good();
}

/// Joins a volume in a world of its own.
pub(crate) fn try_join(world: &World, (address, token): &(String, String)) -> Said {
    let (point, store) = (world.path("Teal"), world.path("store.teal"));
    let store = store.to_str().unwrap();
    let args = ["join", address, point.to_str().unwrap(), "--token", token, "--store", store, "--size", "256M"];
    world.teal(&[&args[..], &["--device", "laptop"]].concat())
}

#[track_caller]
pub(crate) fn join(test: &str, with: &(String, String)) -> Mounted {
    let world = World::new(test).unwrap();
    try_join(&world, with).good();
    let store = world.path("store.teal");
    Mounted::found(world, store)
}

/// Waits until both mounts show the same, byte for byte.
#[track_caller]
pub(crate) fn converge(a: &Mounted, b: &Mounted) {
    for m in [a, b, a] {
        flush(m);
    }
    let upstream = |m: &Mounted| m.status()["upstream"].clone();
    let caught_up =
        || upstream(a)["seen"] == upstream(b)["seen"] && upstream(a)["only_here"] == 0 && upstream(b)["only_here"] == 0;
    assert!(wait_until(PATIENCE, caught_up), "{} and {}", upstream(a), upstream(b));
    compare_trees(a.point(), b.point());
}

pub(crate) fn end(mut mounts: Vec<Mounted>) {
    for m in &mut mounts {
        m.down();
        m.check();
    }
}
