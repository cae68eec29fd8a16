//! Changes of an object that could not be brought to the server's state.

use crate::world::{CALLER, ROOT, World};
use std::sync::Arc;
use teal_posix::XattrMode;
use teal_testkit::Rng;

#[test]
fn a_change_made_without_having_seen_anothers_meets_it_as_a_conflict() {
    let (mut world, mut rng) = (World::new(1, false), Rng::new(1));
    world.found(&mut rng, |client| {
        client.create(&CALLER, ROOT, b"file", 0o600, true).unwrap();
    });
    world.join("laptop", &mut rng);
    let [nas, laptop] = [0, 1].map(|who| Arc::clone(&world.machines[who].client));
    nas.replica().unwrap().flush_upstream().unwrap();
    laptop.replica().unwrap().upstream_step().unwrap();
    let file = laptop.lookup(ROOT, b"file").unwrap().object;
    let set = |client: &teal_posix::FileSystem, name: &str, value: &[u8]| {
        client
            .setxattr(file, name.as_bytes(), value, XattrMode::Any, false)
            .unwrap();
    };
    set(&nas, "user.n", &[b'n'; 20_000]);
    nas.replica().unwrap().flush_upstream().unwrap();
    // With these there is no room for the other here.
    set(&laptop, "user.l1", &[1; 60_000]);
    set(&laptop, "user.l2", &[2; 60_000]);
    laptop.replica().unwrap().upstream_step().unwrap();
    laptop.replica().unwrap().upstream_step().unwrap();
    assert!(laptop.getxattr(file, b"user.n").is_err(), "it did not fit");
    laptop.removexattr(file, b"user.l2").unwrap();
    set(&laptop, "user.n", b"mine");
    laptop.replica().unwrap().flush_upstream().unwrap();
    nas.replica().unwrap().upstream_step().unwrap();
    for client in [&nas, &laptop] {
        assert_eq!(
            client.getxattr(file, b"user.n").unwrap(),
            [b'n'; 20_000],
            "the first to commit"
        );
        assert_eq!(client.getxattr(file, b"user.l1").unwrap(), [1; 60_000]);
        let conflicts = client.replica().unwrap().unresolved_conflicts().unwrap();
        assert!(
            conflicts.len() == 1 && conflicts[0].note.lost.contains("user.n = mine"),
            "{conflicts:?}"
        );
    }
}
