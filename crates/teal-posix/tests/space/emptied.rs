//! A full store can be emptied: whatever fills it, however it came to be there, everything can be
//! removed, always.
//!
//! Space may be refused to what makes the store fuller. Removing, opening, closing and committing
//! are never refused, and in the end all space is back.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use crate::load::{Load, Run};
use std::time::Duration;
use teal_posix::{Caller, FsError, WriteFlags};
use teal_testkit::Rng;
use teal_types::{BLOCK, ObjectNo};

const CALLER: Caller = Caller {
    uid: 0,
    gid: 0,
    pid: 1,
    umask: 0,
};
const CROWD: usize = 1000;
/// Most microseconds an operation takes.
const SLOW: u64 = 400;
/// What may not have come back: pages that are not full any more.
const TOLERANCE: u64 = 1 << 20;

/// What the store is full of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// Files of a few bytes: names, records and maps are all there is.
    Tiny,
    /// Empty directories.
    Dirs,
    /// Files of some MiB, overwritten in single blocks until their maps are as large as they get.
    Large,
    /// Long names, small files, hard links, attributes, directories.
    Mixed,
}

/// In which order it is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    AsMade,
    Random,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) mib: u64,
    pub(crate) crowd: Crowd,
    pub(crate) order: Order,
    /// Whether a background thread works.
    pub(crate) background: bool,
    /// It has its turn after one in so many operations.
    pub(crate) rarely: u64,
    /// How often a third of all goes and the store is filled again, before it is emptied.
    pub(crate) cycles: u64,
    pub(crate) seed: u64,
}

/// Something that has a name.
#[derive(Debug, Clone)]
struct Item {
    dir: ObjectNo,
    name: String,
    /// A directory has none.
    file: Option<ObjectNo>,
}

struct Life {
    plan: Plan,
    run: Run,
    rng: Rng,
    dirs: Vec<ObjectNo>,
    items: Vec<Item>,
    made: usize,
}

/// Fills and empties one store; says how many names it held at most.
pub(crate) fn filled_and_emptied(plan: Plan) -> usize {
    let run = Run::new(Load {
        mib: plan.mib,
        background: plan.background,
        seed: plan.seed,
        ..crate::OVERWRITE
    });
    let start = run.space().free;
    let mut life = Life {
        plan,
        run,
        rng: Rng::new(plan.seed),
        dirs: Vec::new(),
        items: Vec::new(),
        made: 0,
    };
    let mut most = 0;
    for cycle in 0..=plan.cycles {
        life.fill();
        most = most.max(life.items.len());
        if cycle < plan.cycles {
            life.shuffle();
            life.remove(life.items.len() / 3);
        }
    }
    life.run.is_whole_after_reopening();
    match plan.order {
        Order::AsMade => life.items.reverse(),
        Order::Random => life.shuffle(),
    }
    life.remove(life.items.len());
    for n in 0..life.dirs.len() {
        life.run
            .client
            .rmdir(ObjectNo::ROOT, format!("d{n}").as_bytes())
            .unwrap();
    }
    while life.run.client.step() == Some(Duration::ZERO) {}
    life.run.client.store().checkpoint().unwrap();
    let back = life.run.space().free;
    assert!(
        back + TOLERANCE > start,
        "{plan:?}: {back} of {start} bytes came back"
    );
    life.run.is_whole_after_reopening();
    most
}

impl Life {
    fn shuffle(&mut self) {
        let rng = &mut self.rng;
        self.items.sort_by_cached_key(|_| rng.next_u64());
    }

    /// Up to so many operations pass before the background thread comes to its turn.
    fn some_time(&mut self) {
        self.run
            .clock
            .advance(Duration::from_micros(self.rng.below(SLOW)));
        if self.rng.below(self.plan.rarely) == 0 {
            if self.plan.background {
                self.run.client.step();
            } else {
                self.run
                    .client
                    .store()
                    .tick()
                    .unwrap_or_else(|e| panic!("{:?}: tick: {e}", self.plan));
            }
        }
    }

    /// Makes things until nothing more fits.
    fn fill(&mut self) {
        loop {
            match self.make() {
                Ok(()) => {}
                Err(FsError::NoSpace) => break,
                Err(e) => panic!("{:?}: {e}", self.plan),
            }
            self.some_time();
        }
        if self.plan.crowd == Crowd::Large {
            self.wear();
        }
    }

    fn make(&mut self) -> Result<(), FsError> {
        if self.made >= self.dirs.len() * CROWD {
            let name = format!("d{}", self.dirs.len());
            let dir = self
                .run
                .client
                .mkdir(&CALLER, ObjectNo::ROOT, name.as_bytes(), 0o755)?
                .object;
            self.run.client.release(dir, 1);
            self.dirs.push(dir);
        }
        let dir = *self.dirs.last().unwrap();
        let name = format!("item-{}", self.made);
        self.made += 1;
        match self.plan.crowd {
            Crowd::Tiny => self.make_file(dir, name, 1 + self.made.ilog10() as usize),
            Crowd::Dirs => self.make_dir(dir, name),
            Crowd::Large => {
                let len = self.rng.pick_index(4 << 20);
                self.make_file(dir, name, len)
            }
            Crowd::Mixed => self.make_any(dir, name),
        }
    }

    fn make_file(&mut self, dir: ObjectNo, name: String, len: usize) -> Result<(), FsError> {
        let no = self.run.create(dir, &name)?;
        self.items.push(Item {
            dir,
            name,
            file: Some(no),
        });
        let mut data = vec![0; len];
        for piece in data.chunks_mut(BLOCK as usize) {
            let n = piece.len().min(16);
            self.rng.fill(&mut piece[..n]);
        }
        self.run
            .client
            .write(no, 0, &data, WriteFlags::default())
            .map(drop)
    }

    fn make_dir(&mut self, dir: ObjectNo, name: String) -> Result<(), FsError> {
        let no = self
            .run
            .client
            .mkdir(&CALLER, dir, name.as_bytes(), 0o755)?
            .object;
        self.run.client.release(no, 1);
        self.items.push(Item {
            dir,
            name,
            file: None,
        });
        Ok(())
    }

    fn make_any(&mut self, dir: ObjectNo, name: String) -> Result<(), FsError> {
        let len = *self.rng.pick(&[12, 30, 255]);
        let name = format!("{name:x>len$}");
        let mut files = self.items.iter().filter_map(|item| item.file);
        match (self.rng.below(10), files.next_back()) {
            (0, _) => self.make_dir(dir, name),
            (1, Some(no)) => {
                match self.run.client.link(no, dir, name.as_bytes()) {
                    Err(FsError::TooManyLinks) => return Ok(()),
                    linked => linked.map(|_| self.run.client.release(no, 1))?,
                }
                self.items.push(Item {
                    dir,
                    name,
                    file: Some(no),
                });
                Ok(())
            }
            _ => {
                let len = self.rng.pick_index(6000);
                self.make_file(dir, name, len)
            }
        }
    }

    /// Overwrites single blocks anywhere, about as many as there are.
    fn wear(&mut self) {
        let blocks = (self.plan.mib << 20) / BLOCK;
        for _ in 0..blocks / 2 {
            let Some(no) = self
                .items
                .get(self.rng.pick_index(self.items.len()))
                .and_then(|item| item.file)
            else {
                continue;
            };
            let size = self.run.client.store().attr(no).unwrap().size;
            let data = [self.rng.next_u64() as u8; BLOCK as usize];
            let at = self.rng.below(size / BLOCK + 1) * BLOCK;
            let len = BLOCK.min(size.saturating_sub(at)) as usize;
            match self
                .run
                .client
                .write(no, at, &data[..len], WriteFlags::default())
            {
                Ok(_) | Err(FsError::NoSpace) => {}
                Err(e) => panic!("{:?}: {e}", self.plan),
            }
            self.some_time();
        }
    }

    /// Removes the last ones, as the kernel does it: a name is looked up, taken away, and its inode
    /// forgotten.
    fn remove(&mut self, count: usize) {
        for n in 0..count {
            let item = self.items.pop().unwrap();
            let client = &self.run.client;
            let no = client
                .lookup(item.dir, item.name.as_bytes())
                .unwrap()
                .object;
            let removed = match item.file {
                Some(_) => client.unlink(item.dir, item.name.as_bytes()),
                None => client.rmdir(item.dir, item.name.as_bytes()),
            };
            client.release(no, 1);
            removed.unwrap_or_else(|e| {
                panic!(
                    "{:?}: removing {n} of {count}: {e}: {:?}",
                    self.plan,
                    self.run.space()
                )
            });
            self.some_time();
        }
    }
}
