//! Power cuts between any two steps: what was answered is there, the rest is not, and going on
//! gives what was meant.

use crate::fixture::{Device, ROOT, Stores, World, link};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use teal_meta::{
    CommitDurability, MemoryMeta, MetaError, MetaStore, ReadTransaction, WriteTransaction,
};
use teal_proto::{HistoryVerdict, ServerReply};
use teal_types::{BatchNo, FileType, Op, VolumeId};

/// Metadata with a power that fails after so many transactions: the last one happens, or does not,
/// and is not answered.
struct Failing {
    memory: MemoryMeta,
    left: Arc<AtomicUsize>,
    is_last_kept: bool,
}

fn cut() -> MetaError {
    MetaError::Io {
        file: "memory".into(),
        source: "the power has gone".into(),
    }
}

impl MetaStore for Failing {
    fn volumes(&self) -> Result<Vec<VolumeId>, MetaError> {
        self.memory.volumes()
    }
    fn write(
        &self,
        volume: VolumeId,
        durability: CommitDurability,
        work: &mut dyn FnMut(&mut dyn WriteTransaction) -> bool,
    ) -> Result<(), MetaError> {
        let left = self.left.load(SeqCst);
        self.left.store(left.saturating_sub(1), SeqCst);
        if left > 1 || (left == 1 && self.is_last_kept) {
            self.memory.write(volume, durability, work)?;
        }
        if left > 1 { Ok(()) } else { Err(cut()) }
    }
    fn read(
        &self,
        volume: VolumeId,
        work: &mut dyn FnMut(&dyn ReadTransaction),
    ) -> Result<(), MetaError> {
        if self.left.load(SeqCst) == 0 {
            Err(cut())
        } else {
            self.memory.read(volume, work)
        }
    }
    fn check_integrity(&self) -> Result<Vec<String>, MetaError> {
        self.memory.check_integrity()
    }
}

/// The batches of one device, as it keeps them until they are acknowledged.
fn batches(device: &mut Device) -> Vec<Vec<Op>> {
    let mut all = Vec::new();
    for n in 0..4 {
        let file = device.number();
        all.push(vec![
            device.create(file, FileType::File),
            device.place(file, link(ROOT, &format!("file {n}"))),
            device.write(file, format!("content {n}").as_bytes()),
        ]);
    }
    all
}

#[test]
fn whatever_was_answered_survives_a_power_cut_at_any_step() {
    let mut completed = false;
    for (steps, is_last_kept) in (1..40).flat_map(|steps| [(steps, false), (steps, true)]) {
        let memory = MemoryMeta::new();
        let mut world = World::on(Stores::new(Arc::new(memory.clone())));
        let all = batches(&mut world.laptop);
        // From here on the power may go.
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let failing = Failing {
            memory: memory.clone(),
            left: Arc::clone(&left),
            is_last_kept,
        };
        let stores = Stores {
            meta: Arc::new(failing),
            ..world.stores.clone()
        };
        world.laptop.server = stores.open();
        world.laptop.hello();
        left.store(steps, SeqCst);
        let mut answered = 0;
        for (n, ops) in (1..).zip(&all) {
            match world.laptop.send(BatchNo::new(n), ops) {
                ServerReply::Committed { .. } => answered = n,
                ServerReply::Refused(_) => break,
                other => panic!("{other:?}"),
            }
        }
        completed |= answered == 4;
        // The next life: what was durable.
        let stores = Stores {
            meta: Arc::new(memory.after_power_cut()),
            ..world.stores.clone()
        };
        world.laptop.server = stores.open();
        world.laptop.batch = BatchNo::new(4);
        assert_eq!(world.laptop.hello().verdict, HistoryVerdict::Known);
        let pulled = world.laptop.ask_pull(world.laptop.base, None);
        assert!(
            (answered..=answered + 1).contains(&pulled.acknowledged.get()),
            "{answered} answered, {pulled:?}"
        );
        let there = world.laptop.names(ROOT).len();
        assert_eq!(
            there as u64,
            pulled.acknowledged.get(),
            "all of a batch or nothing"
        );
        // The client sends everything again that is not acknowledged, and one that is.
        for (n, ops) in (1..)
            .zip(&all)
            .filter(|(n, _)| *n >= pulled.acknowledged.get())
        {
            assert!(matches!(
                world.laptop.send(BatchNo::new(n), ops),
                ServerReply::Committed { .. }
            ));
        }
        for n in 0..4 {
            let name = format!("file {n}");
            assert_eq!(
                world.laptop.read_named(ROOT, &name),
                format!("content {n}").as_bytes()
            );
        }
        assert_eq!(
            (world.laptop.names(ROOT).len(), world.laptop.conflicts()),
            (4, vec![])
        );
    }
    assert!(completed, "some run must go through without a cut");
}

#[test]
fn an_enrolment_that_was_answered_survives() {
    let memory = MemoryMeta::new();
    let world = World::on(Stores::new(Arc::new(memory.clone())));
    let after = Stores {
        meta: Arc::new(memory.after_power_cut()),
        ..world.stores.clone()
    };
    let server = after.open();
    let laptop = Device {
        server,
        ..world.laptop
    };
    assert_eq!(laptop.hello().verdict, HistoryVerdict::Known);
}
