//! Attachments of drives that are interrupted.

use crate::drive_faults::{Gate, StickDisk};
use crate::drives::SHAPE;
use crate::power::{Power, PoweredDisk};
use crate::world::World;
use std::sync::Arc;
use teal_device::Drive;
use teal_posix::FileSystem;
use teal_replica::{KnownDrives, NewDrive};
use teal_testkit::{RecordingDisk, Rng};

#[test]
fn answers_that_are_lost_make_no_copy_of_a_drive() {
    let (mut world, mut rng) = (World::new(1, false), Rng::new(1));
    world.found(&mut rng, |_| {});
    world.join("laptop", &mut rng);
    let [nas, laptop]: [Arc<FileSystem>; 2] =
        [0, 1].map(|at: usize| Arc::clone(&world.machines[at].client));
    laptop.replica().unwrap().upstream_step().unwrap();
    let mut disk = RecordingDisk::new(SHAPE);
    let with = |disk: &RecordingDisk, power: &Power| {
        let disk = PoweredDisk {
            disk: disk.clone(),
            power: power.clone(),
        };
        Arc::new(StickDisk {
            disk,
            gate: Gate::default(),
            is_protected: false,
        })
    };
    let attach = |client: &Arc<FileSystem>, disk: &RecordingDisk, power: &Power| {
        client.replica().unwrap().attach_drive(
            with(disk, power),
            "a stick",
            &KnownDrives::new(),
            &*world.entropy,
        )
    };
    let new = NewDrive {
        name: "usb".to_owned(),
        portable: true,
        profile: String::new(),
    };
    nas.replica()
        .unwrap()
        .add_drive(with(&disk, &Power::new()), "a stick", &new, &*world.entropy)
        .unwrap();
    nas.replica().unwrap().detach_drive("usb", false).unwrap();
    let is_heard_of = || {
        nas.replica().unwrap().registered_drives().unwrap()[0]
            .attached
            .is_some()
    };
    assert!(!is_heard_of());
    // The server hears of an attachment, and the drive not of its answer.
    for writes in 1.. {
        let power = Power::new();
        power.fails_after(writes);
        assert!(
            attach(&nas, &disk, &power).is_err(),
            "nobody has heard of it after {writes} writes"
        );
        if is_heard_of() {
            break;
        }
    }
    let is_settled = |disk: &RecordingDisk| {
        let label = Drive::open(Arc::new(disk.clone()), world.clock())
            .unwrap()
            .label();
        label.nonce == label.begun_nonce
    };
    let pulled = (0..100)
        .map(|_| disk.trace().crash_at_end(&mut rng, true).disk)
        .find(|disk| !is_settled(disk));
    disk = pulled.expect("what was written last may be lost");
    // The next one it does not hear of.
    world.machines[0].wire.cut(true);
    assert!(attach(&nas, &disk, &Power::new()).is_err());
    world.machines[0].wire.cut(false);
    nas.replica().unwrap().upstream_step().unwrap();
    attach(&laptop, &disk, &Power::new()).expect("it is no copy");
}
