//! The messages of clients other than the program: too much, nonsense, and nothing at all.

use super::Volume;
use super::support::stranger::{DEADLINE, Stranger, call, call_with, days_ago};
use super::support::{Mounted, PATIENCE, World, end, seeded, try_join, wait_until};
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;
use teal_net::NetError;
use teal_proto::{
    ClientRequest, MESSAGE_MAX, PROTOCOL, RefusalCode, ServerReply, WantedRange, batch_digest,
    decode_request, encode_ops, encode_request,
};
use teal_types::{
    BatchNo, CommitSeq, FileType, HardLink, Incarnation, Name, ObjectNo, Op, ReplicatedAttributes,
};

/// Bytes of the daemon in memory.
fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        << 10
}

#[test]
fn messages_of_any_size_and_kind_are_refused_in_words() {
    let test = "messages_of_any_size_and_kind_are_refused_in_words";
    let Some(mut volume) = Volume::new(test) else {
        return;
    };
    let stranger = Stranger::new(&mut volume.nas);
    let before = resident(volume.nas.0.pid());
    let huge = vec![7; 1 << 30];
    let error = stranger
        .channel_to(&stranger.address, 2 << 30)
        .call(&huge, DEADLINE * 4)
        .unwrap_err();
    drop(huge);
    // The server ends the request when its length is announced: the answer may be lost behind what
    // is still being sent.
    let is_said = matches!(&error, NetError::TooLarge(_) | NetError::Unreachable { .. });
    assert!(is_said, "{error}");
    let after = resident(volume.nas.0.pid());
    assert!(
        after < before + (64 << 20),
        "{before} bytes of memory, then {after}"
    );
    volume.is_undisturbed();
    let channel = stranger.channel();
    let mut rng = teal_testkit::Rng::new(3);
    for n in 0..300 {
        let mut bytes = vec![0; *rng.pick(&[0, 1, 2, 3, 10, 100, 5000])];
        rng.fill(&mut bytes);
        if n % 2 == 0 && bytes.len() > 2 {
            bytes[..2].copy_from_slice(&PROTOCOL.to_le_bytes());
        }
        match call_with(&channel, &bytes) {
            Ok(ServerReply::Refused(refused)) => assert!(!refused.words.is_empty()),
            // Some are requests, by chance, that ask for nothing that could do harm.
            Ok(reply) => assert!(bytes.len() < 20, "{reply:?} to {bytes:?}"),
            Err(e) => panic!("{e}"),
        }
    }
    volume.is_undisturbed();
    volume.end();
}

/// A batch that makes a file called so, as bytes: a name that the program could never send, too.
fn named(incarnation: Incarnation, batch: u64, no: u64, name: &[u8]) -> Vec<u8> {
    let marker = b"a name to be replaced";
    let object = ObjectNo::new(no);
    let attributes = ReplicatedAttributes {
        perm: 0o644,
        ..ReplicatedAttributes::default()
    };
    let ops = vec![
        Op::Create {
            object,
            kind: FileType::File,
            attributes,
            target: Vec::new(),
        },
        Op::Place {
            object,
            base: CommitSeq::new(0),
            link: HardLink {
                dir: ObjectNo::ROOT,
                name: Name::new(marker).unwrap(),
            },
            time: days_ago(0),
        },
    ];
    let bytes = encode_request(&ClientRequest::Stage {
        incarnation,
        batch: BatchNo::new(batch),
        part: 0,
        ops,
    })
    .unwrap();
    let at = bytes
        .windows(marker.len())
        .position(|part| part == marker)
        .unwrap();
    let mut len = name.len();
    let mut varint = Vec::new();
    while len >= 0x80 {
        varint.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
        len >>= 7;
    }
    varint.push(u8::try_from(len).unwrap());
    [&bytes[..at - 1], &varint, name, &bytes[at + marker.len()..]].concat()
}

#[test]
fn names_that_lead_elsewhere_are_no_names_and_odd_ones_are_kept_as_they_are() {
    let test = "names_that_lead_elsewhere_are_no_names_and_odd_ones_are_kept_as_they_are";
    let Some(mut volume) = Volume::new(test) else {
        return;
    };
    let stranger = Stranger::new(&mut volume.nas);
    let channel = stranger.channel();
    let (incarnation, first) = Stranger::begin(&channel);
    let long = [b'x'; 256];
    for name in [
        &b".."[..],
        b".",
        b"",
        b"a/b",
        b"/etc/passwd",
        b"../../escape",
        b"a\0b",
        &long,
    ] {
        match call_with(&channel, &named(incarnation, 1, first, name)).unwrap() {
            ServerReply::Refused(refused) => {
                assert_eq!(refused.code, RefusalCode::BadRequest, "{refused}");
                assert!(
                    refused.words.contains("no message") || refused.words.contains("name"),
                    "{refused}"
                );
            }
            reply => panic!("{name:?}: {reply:?}"),
        }
    }
    let odd: [&[u8]; 7] = [
        b"caf\xe9",
        b"\xff\xfe",
        b"new\nline",
        b"-rf *",
        b"...",
        b"\x1b[31m",
        &long[1..],
    ];
    for (name, batch) in odd.iter().zip(1..) {
        let bytes = named(incarnation, batch, first + batch, name);
        assert_eq!(call_with(&channel, &bytes).unwrap(), ServerReply::Done);
        let Ok(ClientRequest::Stage { ops, .. }) = decode_request(&bytes) else {
            panic!("it is a part of a batch")
        };
        let digest = batch_digest([&encode_ops(&ops).unwrap()[..]]);
        let committed = call(
            &channel,
            &ClientRequest::Commit {
                incarnation,
                batch: BatchNo::new(batch),
                parts: 1,
                digest,
            },
        );
        assert!(
            matches!(committed, ServerReply::Committed { .. }),
            "{committed:?}"
        );
    }
    let names = |m: &Mounted| -> Vec<Vec<u8>> {
        let names = fs::read_dir(m.point())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().as_bytes().to_vec());
        names.filter(|name| odd.contains(&&name[..])).collect()
    };
    for m in [&volume.nas.0, &volume.laptop] {
        assert!(
            wait_until(PATIENCE, || names(m).len() == odd.len()),
            "{:?}: {}",
            names(m),
            m.status()
        );
        for name in odd {
            let meta = fs::metadata(m.path(OsStr::from_bytes(name))).unwrap();
            assert!(meta.is_file() && meta.len() == 0 && meta.nlink() == 1);
        }
    }
    // A machine's name that looks like a path was not taken over.
    assert!(
        volume.nas.0.status()["upstream"]["machines"]
            .to_string()
            .contains("\"stranger\"")
    );
    for m in [&volume.nas.0, &volume.laptop] {
        assert!(!m.world().path("escape").exists() && !Path::new("/escape").exists());
    }
    fs::remove_file(volume.laptop.path(OsStr::from_bytes(odd[0]))).unwrap();
    volume.is_undisturbed();
    volume.end();
}

/// A way to the server on which nothing comes back: answers pile up there.
fn one_way(to: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, to) = (listener.local_addr().unwrap().to_string(), to.to_owned());
    let forward = move || {
        // As long as the client lives. What the server says is read until it begins to speak of
        // content, and then no more.
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&to)) else {
                return;
            };
            let (mut up, mut onward) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let upward = move || drop(std::io::copy(&mut up, &mut onward));
            let downward = move || {
                let _ = std::io::copy(&mut (&server).take(20_000), &mut &client);
                // Both stay open and unread.
                let _ = wait_until(Duration::from_secs(120), || server.take_error().is_err());
                drop((server, client));
            };
            for (name, work) in [
                ("up", Box::new(upward) as Box<dyn FnOnce() + Send>),
                ("down", Box::new(downward)),
            ] {
                std::thread::Builder::new()
                    .name(name.into())
                    .spawn(work)
                    .unwrap();
            }
        }
    };
    std::thread::Builder::new()
        .name("one way".into())
        .spawn(forward)
        .unwrap();
    address
}

#[test]
fn machines_that_never_listen_do_not_keep_others_from_being_heard() {
    let test = "machines_that_never_listen_do_not_keep_others_from_being_heard";
    let Some(mut volume) = Volume::new(test) else {
        return;
    };
    fs::write(volume.nas.0.path("large"), seeded(9, 8_000_000)).unwrap();
    volume.nas.flush();
    let object = ObjectNo::new(fs::metadata(volume.nas.0.path("large")).unwrap().ino());
    let stranger = Stranger::new(&mut volume.nas);
    let ServerReply::Versions { versions, .. } = call(
        &stranger.channel(),
        &ClientRequest::Look {
            objects: vec![object],
        },
    ) else {
        panic!("it is there");
    };
    let data_seq = versions[0].as_ref().unwrap().data_seq;
    let read = encode_request(&ClientRequest::Read {
        wants: vec![WantedRange {
            object,
            data_seq,
            offset: 0,
            len: 8_000_000,
        }],
    });
    let read = read.unwrap();
    let way = one_way(&stranger.address);
    let channels: Vec<_> = (0..6)
        .map(|_| stranger.channel_to(&way, MESSAGE_MAX))
        .collect();
    // Many connections at a time that read nothing, and repeat their request again and again; and
    // pulls with answers that are never read.
    let (incarnation, since, digest) = (Incarnation::new(1), CommitSeq::new(1 << 40), [0; 32]);
    let pull = ClientRequest::Pull {
        incarnation,
        since,
        digest,
        filter: 0,
        after: None,
        wait_ms: 300_000,
    };
    let pull = encode_request(&pull).unwrap();
    std::thread::scope(|scope| {
        for n in 0..48 {
            let (channel, read, pull) = (&channels[n % channels.len()], &read, &pull);
            let nag = move || {
                for _ in 0..3 {
                    let said =
                        channel.call(if n % 4 == 0 { pull } else { read }, Duration::from_secs(3));
                    assert!(said.is_err() || n % 4 == 0, "the way back is closed");
                }
            };
            std::thread::Builder::new()
                .spawn_scoped(scope, nag)
                .unwrap();
        }
        for _ in 0..3 {
            volume.is_undisturbed();
        }
    });
    volume.is_undisturbed();
    volume.end();
}

#[test]
fn thousands_of_connections_cost_those_who_are_connected_nothing_and_newcomers_seconds() {
    let test =
        "thousands_of_connections_cost_those_who_are_connected_nothing_and_newcomers_seconds";
    let Some(mut volume) = Volume::new(test) else {
        return;
    };
    let with = volume.nas.serve();
    let memory = resident(volume.nas.0.pid());
    let mut held = Vec::new();
    for round in 0..4 {
        for _ in 0..1000 {
            // Some are turned away at once.
            held.extend(TcpStream::connect(&with.0));
        }
        assert!(held.len() > 500 * (round + 1), "{} connections", held.len());
        volume.is_undisturbed();
    }
    assert!(resident(volume.nas.0.pid()) < memory + (64 << 20));
    // They stay and say nothing: newcomers take their places.
    let world = World::new(test).unwrap();
    try_join(&world, &with).expect_success();
    let store = world.path("store.teal");
    let newcomer = Mounted::found(world, store);
    assert_eq!(
        fs::read(newcomer.path("known")).unwrap(),
        seeded(1, 200_000)
    );
    drop(held);
    end(vec![newcomer]);
    volume.end();
}
