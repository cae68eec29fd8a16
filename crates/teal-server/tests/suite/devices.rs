//! The drives of a volume: names, numbers, attachments, copies.

use crate::fixture::{Device, World};
use teal_proto::{ClientRequest, DeviceNote, DeviceRequest, RefusalCode, ServerReply};
use teal_types::DriveNo;

on_both! {
    drives_are_listed_with_the_machine_they_are_attached_to
    a_copy_is_refused_while_the_other_is_here_and_told_apart_otherwise
    an_answer_that_was_lost_makes_no_copy
    numbers_are_never_given_twice_and_names_once_at_a_time
}

fn devices(of: &Device, ask: DeviceRequest) -> Vec<DeviceNote> {
    match of.ask(ClientRequest::Devices(ask)) {
        ServerReply::Devices(notes) => notes,
        other => panic!("{other:?}"),
    }
}

fn add(of: &Device, name: &str, nonce: u64) -> DeviceNote {
    let add = DeviceRequest::Add {
        name: name.into(),
        bytes: 9,
        portable: true,
        profile: "p".into(),
        nonce,
    };
    devices(of, add).pop().unwrap()
}

fn attach(of: &Device, device: DriveNo, nonces: [u64; 2], next: u64) -> DeviceNote {
    devices(
        of,
        DeviceRequest::Attach {
            device,
            nonces,
            next,
        },
    )
    .pop()
    .unwrap()
}

fn drives_are_listed_with_the_machine_they_are_attached_to(world: World) {
    let (laptop, desk) = (&world.laptop, &world.desk);
    let usb = add(laptop, "usb", 1);
    assert_eq!(
        (usb.bytes, usb.portable, usb.profile.as_str(), usb.is_copy),
        (9, true, "p", false)
    );
    assert_eq!(
        devices(desk, DeviceRequest::List),
        std::slice::from_ref(&usb)
    );
    assert_eq!(usb.attached.unwrap().1, "laptop");
    devices(laptop, DeviceRequest::Detach { device: usb.device });
    assert_eq!(devices(desk, DeviceRequest::List)[0].attached, None);
    assert_eq!(
        attach(desk, usb.device, [1, 1], 2).attached.unwrap().1,
        "desk"
    );
    // A late word of another machine changes nothing.
    devices(laptop, DeviceRequest::Detach { device: usb.device });
    assert_eq!(
        devices(desk, DeviceRequest::List)[0]
            .attached
            .as_ref()
            .unwrap()
            .1,
        "desk"
    );
}

fn a_copy_is_refused_while_the_other_is_here_and_told_apart_otherwise(world: World) {
    let (laptop, desk) = (&world.laptop, &world.desk);
    let usb = add(laptop, "usb", 1);
    // Pulled out and carried away: it tells of its last attachment.
    assert!(!attach(desk, usb.device, [1, 1], 2).is_copy);
    let again = DeviceRequest::Attach {
        device: usb.device,
        nonces: [1, 1],
        next: 3,
    };
    assert_eq!(
        laptop.refusal(ClientRequest::Devices(again)),
        RefusalCode::Busy
    );
    desk.ask(ClientRequest::Bye);
    assert!(attach(laptop, usb.device, [1, 1], 3).is_copy);
    assert!(
        attach(laptop, usb.device, [1, 1], 4).is_copy,
        "on the same machine, after a crash of it"
    );
}

fn an_answer_that_was_lost_makes_no_copy(world: World) {
    let usb = add(&world.laptop, "usb", 1);
    attach(&world.laptop, usb.device, [1, 1], 2);
    // The drive has noted 2 before it was asked, and never heard the answer.
    assert!(!attach(&world.laptop, usb.device, [1, 2], 3).is_copy);
    // Here not even the request arrived.
    assert!(!attach(&world.laptop, usb.device, [3, 4], 5).is_copy);
}

fn numbers_are_never_given_twice_and_names_once_at_a_time(world: World) {
    let usb = add(&world.laptop, "usb", 1);
    let ask = |name: &str| {
        let (name, profile) = (name.to_owned(), String::new());
        ClientRequest::Devices(DeviceRequest::Add {
            name,
            bytes: 9,
            portable: false,
            profile,
            nonce: 1,
        })
    };
    for bad in ["usb", "", "a/b"] {
        assert_eq!(
            world.desk.refusal(ask(bad)),
            RefusalCode::BadRequest,
            "{bad:?}"
        );
    }
    devices(&world.desk, DeviceRequest::Remove { device: usb.device });
    assert_eq!(devices(&world.desk, DeviceRequest::List), []);
    let gone = ClientRequest::Devices(DeviceRequest::Attach {
        device: usb.device,
        nonces: [1, 1],
        next: 2,
    });
    assert_eq!(world.laptop.refusal(gone), RefusalCode::BadRequest);
    assert_ne!(add(&world.desk, "usb", 1).device, usb.device);
}
