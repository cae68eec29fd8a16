//! The work that the server does for its chunks without a request, while clients go on.

use crate::fixture::{ROOT, World, link};
use std::time::Duration;
use teal_proto::{ClientRequest, ServerReply};
use teal_server::{UNNAMED_GRACE, UPLOAD_ACTIVE};
use teal_testkit::Rng;
use teal_types::FileType;

on_both! {
    what_nothing_names_goes_and_what_history_names_stays
    an_upload_in_progress_is_not_hurt
    what_was_said_to_be_here_can_be_committed_whatever_is_collected_meanwhile
    many_small_commits_leave_few_packs
}

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Rng::new(seed).fill(&mut content);
    content
}

/// Everything that is due is done; when the next will be.
fn look_after(world: &World) -> Option<Duration> {
    world.server.look_after_chunks().unwrap()
}

/// Bytes of all packs.
fn stored(world: &World) -> usize {
    world.stores.shelf.snapshot().values().map(Vec::len).sum()
}

fn what_nothing_names_goes_and_what_history_names_stays(mut world: World) {
    let file = world.laptop.file(ROOT, "a", &content(1, 50_000));
    let first = world.laptop.pull().to;
    let ops = [world.laptop.write(file, &content(2, 50_000))];
    world.laptop.commit(&ops);
    let gone = world.laptop.file(ROOT, "b", &content(3, 50_000));
    let there = world.laptop.pull().to;
    let ops = [world.laptop.remove(gone, link(ROOT, "b"))];
    world.laptop.commit(&ops);
    let named = stored(&world);
    world.laptop.put(&content(4, 300_000));
    assert!(stored(&world) > named + 300_000);
    world.stores.clock.advance(UNNAMED_GRACE);
    assert_eq!(look_after(&world), None, "nothing is due any more");
    assert!(
        stored(&world) <= named,
        "{} bytes, and {named} before",
        stored(&world)
    );
    assert_eq!(
        world.laptop.past(file, first).unwrap().1,
        content(1, 50_000)
    );
    assert_eq!(world.desk.read(file), content(2, 50_000));
    assert_eq!(
        world.laptop.past(gone, there).unwrap().1,
        content(3, 50_000)
    );
}

fn an_upload_in_progress_is_not_hurt(mut world: World) {
    let early = world.laptop.put(&content(1, 100_000));
    // The upload takes hours, and something is sent now and then.
    for n in 0..100 {
        world
            .stores
            .clock
            .advance(UPLOAD_ACTIVE - Duration::from_secs(1));
        world.laptop.put(&content(10 + n, 1000));
        look_after(&world);
    }
    world.laptop.file(ROOT, "a", &content(1, 100_000));
    assert_eq!(
        world.server.handle(
            world.laptop.peer,
            ClientRequest::Have {
                chunks: vec![early]
            }
        ),
        ServerReply::Missing(vec![])
    );
    assert_eq!(world.desk.read_named(ROOT, "a"), content(1, 100_000));
}

fn what_was_said_to_be_here_can_be_committed_whatever_is_collected_meanwhile(mut world: World) {
    // Another machine sent this chunk long ago and gave the upload up; now this one has the same
    // file.
    let bytes = content(1, 100_000);
    let chunk = world.desk.put(&bytes);
    world.stores.clock.advance(UNNAMED_GRACE);
    assert_eq!(
        world.laptop.ask(ClientRequest::Have {
            chunks: vec![chunk]
        }),
        ServerReply::Missing(vec![])
    );
    look_after(&world);
    world.stores.clock.advance(Duration::from_secs(60));
    look_after(&world);
    let object = world.laptop.number();
    let piece = teal_types::ContentPiece {
        offset: 0,
        len: bytes.len() as u64,
        source: teal_types::PieceSource::Chunk {
            id: chunk,
            offset: 0,
        },
    };
    let mtime = world.laptop.now();
    let change = teal_types::ContentChange {
        cut: 0,
        size: bytes.len() as u64,
        mtime,
        pieces: vec![piece],
    };
    let ops = [
        world.laptop.create(object, FileType::File),
        world.laptop.place(object, link(ROOT, "a")),
        teal_types::Op::SetContent {
            object,
            base: world.laptop.base,
            change,
        },
    ];
    world.laptop.commit(&ops);
    world.stores.clock.advance(UNNAMED_GRACE * 2);
    look_after(&world);
    assert_eq!(world.desk.read(object), bytes);
}

fn many_small_commits_leave_few_packs(mut world: World) {
    const EDITS: u64 = 1000;
    let size = 4_000_000;
    let file = world.laptop.file(ROOT, "a", &content(1, size as usize));
    let (before, packs) = (stored(&world), world.stores.shelf.snapshot().len());
    for n in 0..EDITS {
        let ops = [world
            .laptop
            .overwrite(file, size, n % 900 * 4096, &content(n + 2, 4096))];
        world.laptop.commit(&ops);
        world.laptop.pull();
        if n % 50 == 0 {
            look_after(&world);
        }
    }
    look_after(&world);
    let (grown, more) = (
        stored(&world) - before,
        world.stores.shelf.snapshot().len() - packs,
    );
    assert!(
        grown < EDITS as usize * (4096 + 200) && more < 64,
        "{grown} bytes and {more} packs more"
    );
    let read = world.desk.past(file, world.laptop.base).unwrap().1;
    assert_eq!(read[99 * 4096..100 * 4096], content(999 + 2, 4096)[..]);
}
