//! A batch in flight that two threads know of: the one that flushes, and the one that pulls news.

use crate::world::{CALLER, ROOT, World};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use teal_proto::ClientRequest;
use teal_testkit::Rng;

/// A thread that pulls must not acknowledge the batch of a flush that is at work: the flush may
/// have the next batch in flight by then, and nothing would ask for that one's fate again.
#[test]
fn a_flush_at_work_alone_acknowledges_its_batch() {
    let (mut world, mut rng) = (World::new(3, false), Rng::new(3));
    world.found(&mut rng, |_| {});
    let client = Arc::clone(&world.machines[0].client);
    let wire = Arc::clone(&world.machines[0].wire);
    let replica = client.replica().unwrap();
    replica.flush_upstream().unwrap();
    client.create(&CALLER, ROOT, b"one", 0o600, true).unwrap();
    // The network goes between the parts of the batch and its commit.
    let of_cut = Arc::clone(&wire);
    wire.set_meanwhile(Some(Box::new(move |request| {
        if let ClientRequest::Stage { .. } = request {
            of_cut.cut(true);
        }
    })));
    replica.flush_upstream().unwrap_err();
    wire.cut(false);
    client.create(&CALLER, ROOT, b"two", 0o600, true).unwrap();
    let commits = || {
        let status = replica.upstream_status().unwrap();
        let found = status.counts.iter().find(|(name, _)| *name == "batches");
        found.expect("batches are counted").1
    };
    let before = commits();
    let puller = Arc::new(Mutex::new(None));
    let (of_use, of_thread) = (Arc::downgrade(&client), Arc::clone(&puller));
    wire.set_meanwhile(Some(Box::new(move |request| {
        let (ClientRequest::Commit { .. }, Some(client)) = (request, of_use.upgrade()) else {
            return;
        };
        // Of the first commit only.
        let mut puller = of_thread.lock();
        if puller.is_some() {
            return;
        }
        let (tell, ended) = mpsc::channel();
        let pull = move || {
            let done = client.replica().unwrap().upstream_step();
            // After the hook has gone, nothing waits for it.
            let _ = tell.send(());
            done
        };
        let thread = std::thread::Builder::new().name("puller".into());
        *puller = Some(thread.spawn(pull).unwrap());
        let early = ended.recv_timeout(Duration::from_millis(300));
        assert!(early.is_err(), "the other thread waits for the flush");
    })));
    replica.flush_upstream().unwrap();
    wire.set_meanwhile(None);
    let thread = puller.lock().take().expect("a batch was committed");
    thread.join().unwrap().unwrap();
    let status = replica.upstream_status().unwrap();
    assert_eq!(status.only_here, 0, "{status:?}");
    assert_eq!(commits() - before, 2, "each batch is acknowledged once");
    let server = world.server();
    let peer = wire.peer();
    let reply = server.handle(
        peer,
        ClientRequest::List {
            dirs: vec![(ROOT, None)],
            ahead: 8,
        },
    );
    let said = format!("{reply:?}");
    assert!(
        said.contains("\"one\"") && said.contains("\"two\""),
        "{said}"
    );
}
