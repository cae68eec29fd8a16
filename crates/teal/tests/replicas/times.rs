//! Times of what changes while an earlier change of it is on its way to the server.

use crate::world::{CALLER, ROOT, World};
use std::sync::Arc;
use std::time::Duration;
use teal_posix::SetAttrRequest;
use teal_proto::ClientRequest;
use teal_testkit::Rng;

/// `make` and `unlink` look at change times right after an operation, whatever is being sent at
/// that moment.
#[test]
fn time_does_not_go_back_where_an_older_state_comes_from_the_server() {
    let (mut world, mut rng) = (World::new(1, false), Rng::new(1));
    world.found(&mut rng, |_| {});
    world.join("laptop", &mut rng);
    let (client, wire) = (
        Arc::clone(&world.machines[0].client),
        Arc::clone(&world.machines[0].wire),
    );
    let dir = client.mkdir(&CALLER, ROOT, b"dir", 0o755).unwrap().object;
    let file = client
        .create(&CALLER, dir, b"one", 0o600, true)
        .unwrap()
        .object;
    let times = |client: &teal_posix::FileSystem| {
        [file, dir].map(|no| {
            client
                .getattr(no)
                .map(|attr| (attr.mtime, attr.ctime))
                .unwrap()
        })
    };
    let (of_use, clock) = (Arc::downgrade(&client), world.machines[0].clock.clone());
    wire.set_meanwhile(Some(Box::new(move |request| {
        if let (ClientRequest::Commit { .. }, Some(client)) = (request, of_use.upgrade())
            && client.lookup(dir, b"two").is_err()
        {
            clock.advance(Duration::from_secs(5));
            client.link(file, dir, b"two").unwrap();
        }
    })));
    let before = times(&client);
    world.advance(Duration::from_secs(3));
    client.replica().unwrap().flush_upstream().unwrap();
    wire.set_meanwhile(None);
    let [of_file, of_dir] = times(&client);
    let linked = client.lookup(dir, b"two").unwrap();
    assert_eq!(linked.nlink, 2, "the link was made meanwhile");
    assert_eq!(of_file.0, before[0].0);
    assert!(
        of_file.1.secs >= before[0].1.secs + 5,
        "{of_file:?} after {before:?}"
    );
    assert!(
        of_dir.0.secs >= before[1].0.secs + 5 && of_dir.1 == of_dir.0,
        "{of_dir:?} after {before:?}"
    );
    client.replica().unwrap().flush_upstream().unwrap();
    let laptop = &world.machines[1].client;
    laptop.replica().unwrap().upstream_step().unwrap();
    let listed = laptop
        .lookup(ROOT, b"dir")
        .and_then(|dir| laptop.lookup(dir.object, b"two"))
        .unwrap();
    assert_eq!((listed.object, listed.ctime), (file, of_file.1));
    assert_eq!(
        (times(&client), times(laptop)),
        ([of_file, of_dir], [of_file, of_dir]),
        "both have the same"
    );
}

/// Another machine's permissions hold, and this machine's entry of the meantime has set the time.
#[test]
fn attributes_that_lose_take_no_time_of_an_entry_back() {
    let (mut world, mut rng) = (World::new(2, false), Rng::new(2));
    world.found(&mut rng, |_| {});
    world.join("laptop", &mut rng);
    let [client, laptop] = [0, 1].map(|at: usize| Arc::clone(&world.machines[at].client));
    let wire = Arc::clone(&world.machines[0].wire);
    let dir = client.mkdir(&CALLER, ROOT, b"dir", 0o755).unwrap().object;
    client.replica().unwrap().flush_upstream().unwrap();
    laptop.replica().unwrap().upstream_step().unwrap();
    let there = laptop.lookup(ROOT, b"dir").unwrap().object;
    let permissions = |perm| SetAttrRequest {
        perm: Some(perm),
        ..SetAttrRequest::default()
    };
    laptop.setattr(there, &permissions(0o700)).unwrap();
    laptop.replica().unwrap().flush_upstream().unwrap();
    client.setattr(dir, &permissions(0o711)).unwrap();
    let (of_use, clock) = (Arc::downgrade(&client), world.machines[0].clock.clone());
    wire.set_meanwhile(Some(Box::new(move |request| {
        if let (ClientRequest::Commit { .. }, Some(client)) = (request, of_use.upgrade())
            && client.lookup(dir, b"new").is_err()
        {
            clock.advance(Duration::from_secs(5));
            client.create(&CALLER, dir, b"new", 0o600, true).unwrap();
        }
    })));
    let before = client.getattr(dir).unwrap();
    client.replica().unwrap().flush_upstream().unwrap();
    wire.set_meanwhile(None);
    client.replica().unwrap().flush_upstream().unwrap();
    laptop.replica().unwrap().upstream_step().unwrap();
    let times = [&client, &laptop].map(|of| of.getattr(dir).unwrap().mtime);
    assert!(
        times[0].secs >= before.mtime.secs + 5,
        "{times:?} after {before:?}"
    );
    assert_eq!(times[0], times[1], "both have the same");
    assert_eq!(client.getattr(dir).unwrap().perm, 0o700);
}
