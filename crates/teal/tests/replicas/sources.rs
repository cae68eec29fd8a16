//! Reading what is not here: from a drive, beside the server.

use crate::drive_faults::{Gate, StickDisk};
use crate::drives::SHAPE;
use crate::power::{Power, PoweredDisk};
use crate::world::{CALLER, ROOT, World};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use teal_posix::{FileSystem, WriteFlags};
use teal_proto::ClientRequest;
use teal_replica::{KnownDrives, NewDrive};
use teal_testkit::{RecordingDisk, Rng};
use teal_types::ObjectNo;

const BYTES: usize = 10_000;
/// A way to the server and back.
const WAY: Duration = Duration::from_millis(10);

fn content() -> Vec<u8> {
    (0..BYTES).map(|at| (at % 251) as u8 + 1).collect()
}

fn write(client: &FileSystem, no: ObjectNo, at: u64, bytes: &[u8]) {
    assert_eq!(
        client.write(no, at, bytes, WriteFlags::default()).unwrap(),
        bytes.len()
    );
}

/// A file is on the server and on a drive that is in a laptop, which has nothing of its content.
fn carried() -> (World, Arc<FileSystem>, ObjectNo) {
    let (mut world, mut rng) = (World::new(1, false), Rng::new(1));
    world.found(&mut rng, |_| {});
    let nas = Arc::clone(&world.machines[0].client);
    let disk = RecordingDisk::new(SHAPE);
    let disk = PoweredDisk {
        disk,
        power: Power::new(),
    };
    let stick = Arc::new(StickDisk {
        disk,
        gate: Gate::default(),
        is_protected: false,
    });
    let new = NewDrive {
        name: "usb".to_owned(),
        portable: true,
        profile: String::new(),
    };
    nas.replica()
        .unwrap()
        .add_drive(Arc::clone(&stick) as _, "a stick", &new, &*world.entropy)
        .unwrap();
    let file = nas.mknod(&CALLER, ROOT, b"a", 0o100_644, 0).unwrap().object;
    write(&nas, file, 0, &content());
    nas.replica().unwrap().flush_upstream().unwrap();
    nas.replica().unwrap().flush_drives().unwrap();
    nas.replica().unwrap().detach_drive("usb", false).unwrap();
    world.join("laptop", &mut rng);
    let laptop = Arc::clone(&world.machines[1].client);
    let clock = world.machines[1].clock.clone();
    world.machines[1]
        .wire
        .set_meanwhile(Some(Box::new(move |_| clock.advance(WAY))));
    laptop.replica().unwrap().upstream_step().unwrap();
    assert_eq!(laptop.lookup(ROOT, b"a").unwrap().object, file);
    laptop
        .replica()
        .unwrap()
        .attach_drive(stick, "a stick", &KnownDrives::new(), &*world.entropy)
        .unwrap();
    (world, laptop, file)
}

fn here(client: &FileSystem, no: ObjectNo) -> u64 {
    client.locate_content(no).unwrap().sources[0].bytes
}

#[test]
fn who_reads_from_a_drive_is_answered_before_that_is_entered_and_what_is_written_meanwhile_stays() {
    let (_world, laptop, file) = carried();
    let mut is_answered = false;
    laptop.read_then(file, 0, BYTES, teal_posix::ReadAccess::Counted, |read| {
        is_answered = true;
        assert_eq!(read.unwrap().to_vec(), content());
        assert_eq!(here(&laptop, file), 0);
        write(&laptop, file, 4000, b"meanwhile");
    });
    assert!(is_answered);
    assert_eq!(here(&laptop, file), BYTES as u64, "it was entered");
    let mut now = content();
    now[4000..4009].copy_from_slice(b"meanwhile");
    assert_eq!(laptop.read(file, 0, BYTES).unwrap(), now);
    // At the end of the file, and behind it.
    assert_eq!(
        laptop.read(file, BYTES as u64 - 1, BYTES).unwrap(),
        &content()[BYTES - 1..]
    );
    assert_eq!(laptop.read(file, BYTES as u64, BYTES).unwrap(), []);
}

#[test]
fn a_reader_waits_for_what_it_asks_for_and_for_more_only_where_it_reads_on() {
    let (_world, laptop, file) = carried();
    assert_eq!(laptop.read(file, 0, 4096).unwrap(), &content()[..4096]);
    assert_eq!(here(&laptop, file), 4096);
    assert_eq!(laptop.read(file, 4096, 10).unwrap(), &content()[4096..4106]);
    assert_eq!(here(&laptop, file), BYTES as u64);
}

#[test]
fn while_a_batch_is_on_its_way_the_server_is_expected_to_take_longer() {
    let (world, laptop, file) = carried();
    let cost = move |client: &FileSystem, name: &str| {
        let sources = client.locate_content(file).unwrap().sources;
        sources
            .iter()
            .find(|source| source.name == name)
            .map(|source| source.price.map_or(0, |price| price.cost))
            .unwrap()
    };
    let during: Arc<Mutex<Vec<(u128, u128)>>> = Arc::default();
    let (clock, client, seen) = (
        world.machines[1].clock.clone(),
        Arc::clone(&laptop),
        Arc::clone(&during),
    );
    world.machines[1]
        .wire
        .set_meanwhile(Some(Box::new(move |request| {
            if matches!(
                request,
                ClientRequest::Put { .. } | ClientRequest::Stage { .. }
            ) {
                seen.lock()
                    .push((cost(&client, "server"), cost(&client, "usb")));
            }
            clock.advance(WAY);
        })));
    let quiet = (cost(&laptop, "server"), cost(&laptop, "usb"));
    let other = laptop
        .mknod(&CALLER, ROOT, b"b", 0o100_644, 0)
        .unwrap()
        .object;
    write(&laptop, other, 0, &content());
    laptop.replica().unwrap().flush_upstream().unwrap();
    world.machines[1].wire.set_meanwhile(None);
    let during = std::mem::take(&mut *during.lock());
    assert!(quiet.0 > 0 && !during.is_empty(), "{quiet:?}, {during:?}");
    assert!(
        during.iter().all(|now| now.0 > quiet.0 && now.1 == quiet.1),
        "{quiet:?}, then {during:?}"
    );
    assert_eq!(cost(&laptop, "server"), quiet.0, "it is over");
}
