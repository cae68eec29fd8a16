//! Lives near the limits of objects, and with a change that the server refuses.
//!
//! # Guarantees
//! 1. Whatever names and extended attributes two machines make of one object, nothing is stuck in
//!    the end.
//! 2. While the server refuses one file, everything else of its author and of all others goes both
//!    ways, and that file is named.

use crate::operator::DIRTY;
use crate::run::{Run, Stage};
use crate::tree::walk;
use crate::world::{CALLER, Machine, ROOT, World};
use std::sync::Arc;
use std::time::Duration;
use teal_posix::{FileSystem, FsError, WriteFlags, XattrMode};
use teal_testkit::Rng;
use teal_types::ObjectNo;
use teal_types::limits::{LINKS_MAX, XATTR_VALUE_MAX};

/// The file with many names, and the directory they are in.
const MANY: &[u8] = b"many";
const DIR: &[u8] = b"names of many";
/// Files with names that begin like this are refused by the server, as it seems to their author.
pub(crate) const POISON: &str = "poison";

fn find(client: &FileSystem, dir: ObjectNo, name: &[u8]) -> Option<ObjectNo> {
    let attr = client.lookup(dir, name).ok()?;
    client.release(attr.object, 1);
    Some(attr.object)
}

/// A server that merges more than a client can have: what it has beyond that stays as it was at
/// each client, is named, and stops nothing else; with fewer names it comes.
#[allow(dead_code, reason = "where bugs can be switched on")]
pub(crate) fn an_older_server_stops_nobody() {
    let (mut world, mut rng) = (World::new(5, false), Rng::new(5));
    world.found(&mut rng, |client| {
        client.create(&CALLER, ROOT, MANY, 0o600, true).unwrap();
    });
    world.join("laptop", &mut rng);
    let both = [0, 1].map(|who| Arc::clone(&world.machines[who].client));
    both[0].replica().unwrap().flush_upstream().unwrap();
    both[1].replica().unwrap().upstream_step().unwrap();
    let many = find(&both[1], ROOT, MANY).unwrap();
    for (client, who) in both.iter().zip(["nas", "laptop"]) {
        for n in 0..600 {
            client
                .link(many, ROOT, format!("{who} {n}").as_bytes())
                .unwrap();
        }
    }
    let stuck = |client: &FileSystem| {
        client
            .replica()
            .unwrap()
            .upstream_status()
            .unwrap()
            .stuck_objects
    };
    both[0].replica().unwrap().flush_upstream().unwrap();
    let said = both[1].replica().unwrap().flush_upstream();
    assert!(
        matches!(&said, Err(FsError::Stuck(words)) if words.contains("names: 1201, at most 1000")),
        "{said:?}"
    );
    both[0].replica().unwrap().upstream_step().unwrap();
    assert_eq!(both.each_ref().map(|client| stuck(client).0), [1, 1]);
    for (client, name) in both.iter().zip([b"of nas", &b"of laptop"[..]]) {
        client.create(&CALLER, ROOT, name, 0o600, true).unwrap();
        assert!(matches!(
            client.replica().unwrap().flush_upstream(),
            Err(FsError::Stuck(_))
        ));
    }
    both[0].replica().unwrap().upstream_step().unwrap();
    assert!(
        find(&both[0], ROOT, b"of laptop").is_some() && find(&both[1], ROOT, b"of nas").is_some()
    );
    (0..300).for_each(|n| both[0].unlink(ROOT, format!("nas {n}").as_bytes()).unwrap());
    let _ = both[0].replica().unwrap().flush_upstream();
    for client in &both {
        world.advance(Duration::from_secs(31));
        client.replica().unwrap().upstream_step().unwrap();
        assert_eq!(
            (stuck(client).0, client.getattr(many).unwrap().nlink),
            (0, 901),
            "{:?}",
            stuck(client)
        );
    }
}

impl Run {
    /// A file and a directory near their limits, known to all.
    pub(crate) fn begin_near_limits(&mut self) {
        let client = Arc::clone(&self.world.machines[0].client);
        let many = client
            .create(&CALLER, ROOT, MANY, 0o644, true)
            .unwrap()
            .object;
        let dir = client.mkdir(&CALLER, ROOT, DIR, 0o755).unwrap().object;
        let begun = LINKS_MAX as u64 - 60 + self.rng.below(50);
        for n in 0..begun {
            client
                .link(many, dir, format!("first {n}").as_bytes())
                .unwrap();
        }
        for _ in 0..2 {
            (0..self.world.machines.len()).for_each(|who| drop(self.round(who, true)));
        }
    }

    /// Something that brings an object nearer to a limit, or away from it.
    pub(crate) fn near_limits(&mut self, who: usize) {
        let (client, hand) = (Arc::clone(&self.world.machines[who].client), self.hand(who));
        let (Some(many), Some(dir)) = (find(&client, ROOT, MANY), find(&client, ROOT, DIR)) else {
            return;
        };
        let name = self.rng.below(1_000_000);
        match self.rng.below(3) {
            0 => {
                for n in 0..1 + self.rng.below(40) {
                    let _ = client.link(many, dir, format!("of {who}, {name} {n}").as_bytes());
                }
            }
            1 => {
                let names = crate::tree::entries(&client, dir).unwrap_or_default();
                for (name, no, _) in names.into_iter().take(self.rng.below(15) as usize) {
                    hand.tags.loses_name(no);
                    let _ = client.unlink(dir, &name);
                }
            }
            _ => {
                let (name, len) = (
                    format!("user.{}", self.rng.below(5)),
                    self.rng.below(XATTR_VALUE_MAX as u64 + 1),
                );
                let value = vec![who as u8; len as usize];
                let _ = client.setxattr(many, name.as_bytes(), &value, XattrMode::Any, false);
            }
        }
        self.say(format_args!("{who} is near a limit"));
    }

    /// One file of a machine is refused, whatever it is sent with.
    pub(crate) fn poison(&mut self) {
        if self.stage != Stage::Limits {
            return;
        }
        let who = self.rng.pick_index(self.world.machines.len());
        let Machine { client, wire, .. } = &self.world.machines[who];
        let (client, wire) = (Arc::clone(client), Arc::clone(wire));
        wire.set_meanwhile(None);
        wire.refuse(true);
        let poison = format!("{POISON} {}", self.rng.below(100));
        let write = |dir, name: &str, bytes: &[u8]| {
            let no = client
                .create(&CALLER, dir, name.as_bytes(), 0o644, true)
                .unwrap()
                .object;
            client.write(no, 0, bytes, WriteFlags::default()).unwrap();
            no
        };
        let mut fine = Vec::new();
        let dir = client
            .mkdir(&CALLER, ROOT, b"beside it", 0o755)
            .unwrap()
            .object;
        let before = self.rng.below(12);
        for n in 0..before + self.rng.below(12) {
            if n == before {
                write(dir, &poison, &vec![7; self.rng.below(3000) as usize]);
            }
            let content = vec![n as u8; 1 + self.rng.below(3000) as usize];
            write(dir, &format!("fine {n}"), &content);
            fine.push((format!("/beside it/fine {n}"), content));
        }
        if find(&client, dir, poison.as_bytes()).is_none() {
            write(dir, &poison, b"the last one");
        }
        let path = format!("/beside it/{poison}");
        for _ in 0..3 {
            self.world.advance(Duration::from_secs(2));
            match client.replica().unwrap().flush_upstream() {
                Err(FsError::Stuck(words)) => {
                    assert!(words.contains(&path) && !words.contains("fine"), "{words}")
                }
                other => panic!("a flush with {path} refused says {other:?}"),
            }
        }
        let status = client.replica().unwrap().upstream_status().unwrap();
        let (count, named) = status.stuck_objects;
        assert_eq!(
            (count, status.only_here, named[0].path.as_str()),
            (1, 1, path.as_str()),
            "{named:?}"
        );
        let pending = self.world.machines[who]
            .notes()
            .iter()
            .filter(|(_, note)| note[1] & DIRTY != 0)
            .count();
        assert_eq!(pending, 1, "nothing else waits");
        for at in 0..self.world.machines.len() {
            self.round(at, at != who).unwrap();
            let tree = walk(&self.world.machines[at].client).unwrap();
            for (path, _) in &fine {
                assert!(
                    tree.contains_key(path),
                    "{} lacks {path}",
                    self.world.machines[at].name
                );
            }
            assert_eq!(tree.contains_key(&path), at == who);
        }
        // And it comes when it may, by itself.
        wire.refuse(false);
        self.world.advance(Duration::from_secs(31));
        client.replica().unwrap().upstream_step().unwrap();
        let status = client.replica().unwrap().upstream_status().unwrap();
        assert_eq!(
            (status.stuck_objects.0, status.only_here),
            (0, 0),
            "{:?}",
            status.stuck_objects
        );
    }
}
