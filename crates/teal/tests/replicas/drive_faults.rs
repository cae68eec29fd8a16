//! Troubles of a drive other than being pulled out: it is full, slow, write-protected, or damaged
//! in places.
//!
//! # Guarantees
//! 1. *Full*: what may not make way stays, whole, and what makes way is not there any more.
//! 2. *Slow*: a reader waits for it once; the drive is not asked again before it has come back.
//! 3. *Write-protected*: it is not attached, and the server hears of nothing new.
//! 4. *Damaged*: what is read is right all the same, and what was met is whole again after the next
//!    burst.

use crate::drives::{SHAPE, Stick};
use crate::power::PoweredDisk;
use crate::run::Run;
use crate::tags::TAG_BEGINS;
use crate::tree::entries;
use crate::world::ROOT;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;
use teal_device::Drive;
use teal_env::{Disk, DiskShape};
use teal_posix::FileSystem;
use teal_replica::{DriveStatus, KnownDrives};
use teal_testkit::{RecordingDisk, Rng};
use teal_types::{BLOCK, ByteRanges, FileType, ObjectNo, SECTOR, Sector};

/// The thread that reads from drives for others, which do not wait for long.
const READER: &str = "teal-drive";
/// The longest time for which the gate stays closed. A reader without another source waits longer
/// than this for a drive, and one with another source waits less.
const CLOSED_MAX: Duration = Duration::from_secs(3);
/// The first number of objects that no replica of the volume has made.
const BALLAST: ObjectNo = ObjectNo::new(1 << 50);
const BALLAST_BYTES: u64 = 400 << 10;

/// A way that is closed now and then.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn close(&self) {
        *self.0.0.lock() = true;
    }

    fn open(&self) {
        *self.0.0.lock() = false;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut is_closed = self.0.0.lock();
        if *is_closed && std::thread::current().name() == Some(READER) {
            self.0
                .1
                .wait_while_for(&mut is_closed, |is_closed| *is_closed, CLOSED_MAX);
        }
    }
}

/// A drive's disk.
pub(crate) struct StickDisk {
    pub(crate) disk: PoweredDisk,
    pub(crate) gate: Gate,
    pub(crate) is_protected: bool,
}

impl StickDisk {
    fn change(&self, change: impl FnOnce(&PoweredDisk) -> io::Result<()>) -> io::Result<()> {
        if self.is_protected {
            Err(io::ErrorKind::ReadOnlyFilesystem.into())
        } else {
            change(&self.disk)
        }
    }
}

impl Disk for StickDisk {
    fn shape(&self) -> DiskShape {
        self.disk.shape()
    }
    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        self.gate.pass();
        self.disk.read_at(at, buf)
    }
    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.change(|disk| disk.write_at(at, parts))
    }
    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }
    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.change(|disk| disk.allocate(at, sectors))
    }
    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.change(|disk| disk.discard(at, sectors))
    }
}

/// The troubles of one drive.
#[derive(Default)]
pub(crate) struct DriveFaults {
    pub(crate) gate: Gate,
    /// Objects that fill it, and may not make way.
    ballast: u64,
    /// Bits have flipped anywhere on it.
    is_damaged: bool,
}

impl DriveFaults {
    pub(crate) fn of_copy(&self) -> Self {
        Self {
            gate: Gate::default(),
            ..*self
        }
    }

    pub(crate) fn is_ballast(no: ObjectNo) -> bool {
        no >= BALLAST
    }

    fn ballast(n: u64) -> (ObjectNo, Vec<u8>) {
        (
            ObjectNo::new(BALLAST.get() + n),
            vec![n as u8 + 1; BALLAST_BYTES as usize],
        )
    }

    /// Checks that the ballast is still there.
    pub(crate) fn judge(&self, drive: &Drive) {
        for n in 0..if self.is_damaged { 0 } else { self.ballast } {
            let (no, bytes) = Self::ballast(n);
            let content = drive
                .held_object(no)
                .unwrap()
                .content
                .unwrap_or_else(|| panic!("{}: {no} made way", drive.name()));
            let found = drive.read(no, content.data_seq, 0, BALLAST_BYTES).unwrap();
            let read = found.pieces.concat_at(BALLAST_BYTES);
            assert!(read == bytes, "{}: {no} is another", drive.name());
        }
    }
}

/// Pieces of content, put together.
pub(crate) trait Pieces {
    fn concat_at(self, bytes: u64) -> Vec<u8>;
}

impl Pieces for Vec<teal_device::DataPiece> {
    fn concat_at(self, bytes: u64) -> Vec<u8> {
        let mut whole = vec![0; bytes as usize];
        for (at, piece) in self {
            whole[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
        }
        whole
    }
}

fn count(client: &FileSystem, stick: &str, name: &str) -> u64 {
    let of = |drive: &DriveStatus| {
        drive
            .counts
            .iter()
            .find(|(of, _)| *of == name)
            .map_or(0, |(_, count)| *count)
    };
    client
        .replica()
        .unwrap()
        .drive_statuses()
        .iter()
        .find(|drive| drive.name == stick)
        .map_or(0, of)
}

impl Stick {
    /// Bits flip where something was written, or where content is.
    fn flip(&self, rng: &mut Rng, count: u64, is_content: bool) {
        let image = self.disk.snapshot();
        let sector = |at: &u64| &image[(at * SECTOR) as usize..][..SECTOR as usize];
        let is_meant = |at: &u64| match is_content {
            true => sector(at)
                .windows(TAG_BEGINS.len())
                .any(|bytes| bytes == TAG_BEGINS),
            false => sector(at).iter().any(|byte| *byte != 0),
        };
        let meant: Vec<u64> = (64..SHAPE.sectors - 64).filter(is_meant).collect();
        for _ in 0..if meant.is_empty() { 0 } else { count } {
            self.disk
                .flip_bit(Sector::new(*rng.pick(&meant)), rng.below(SECTOR * 8) as u32);
        }
    }
}

/// Damaged content, by file.
type DamagedContent = HashMap<ObjectNo, ByteRanges>;

impl Run {
    /// Bits of a drive flip while it lies in a drawer.
    pub(crate) fn flip(&mut self, which: usize) {
        let (count, stick) = (1 + self.rng.below(6), &mut self.world.sticks[which]);
        stick.flip(&mut self.rng, count, false);
        stick.disk.restart_trace();
        stick.ails.is_damaged = true;
        self.counts.flipped += 1;
    }

    /// Fills a drive with objects that may not make way.
    pub(crate) fn fill(&mut self, which: usize) {
        let (left, clock) = (self.rng.below(2 << 20), self.world.clock());
        let stick = &mut self.world.sticks[which];
        let Ok(drive) = Drive::open(stick.disk(), clock) else {
            return;
        };
        let (seen, first) = (drive.label().position, stick.ails.ballast);
        while drive.capacity().free > left + BALLAST_BYTES {
            let (no, bytes) = DriveFaults::ballast(stick.ails.ballast);
            drive.set_affinity(no, true, false).unwrap();
            match drive.install(no, (seen, BALLAST_BYTES), (0, BALLAST_BYTES), &[(0, bytes)]) {
                Ok(is_in) => assert!(is_in, "{}: {no} is not taken", stick.name),
                Err(_) => break,
            }
            stick.ails.ballast += 1;
            assert!(
                stick.ails.ballast < SHAPE.sectors * SECTOR / BALLAST_BYTES,
                "what fills {} makes way",
                stick.name
            );
        }
        if drive.close().is_err() {
            // The drive was damaged, so content that came since may be missing.
            stick.ails.ballast = first;
        }
        self.counts.filled += 1;
    }

    /// A drive that cannot be written to comes to a machine.
    pub(crate) fn attach_protected(&mut self, which: usize, who: usize) {
        let (client, entropy) = (self.client(who), Arc::clone(&self.world.entropy));
        let clock = self.world.clock();
        let stick = &mut self.world.sticks[which];
        let label = Drive::open(stick.disk(), clock).map(|drive| drive.label());
        let known = client.replica().unwrap().registered_drives();
        let disk = StickDisk {
            is_protected: true,
            ..stick.stick_disk()
        };
        let done = client.replica().unwrap().attach_drive(
            Arc::new(disk),
            "a stick",
            &KnownDrives::new(),
            &*entropy,
        );
        assert!(
            done.is_err(),
            "{} cannot be written to, and is attached",
            stick.name
        );
        // An attachment that was begun before may be told once more.
        let is_settled = label.is_ok_and(|label| label.nonce == label.begun_nonce);
        if let (true, Ok(before), Ok(after)) = (
            is_settled,
            known,
            client.replica().unwrap().registered_drives(),
        ) {
            assert_eq!(before, after, "the server has heard of {}", stick.name);
            self.counts.protected += u64::from(before.iter().all(|note| note.attached.is_none()));
        }
    }

    /// Frees the content in the root of a machine: it goes to the drives, and not all of it stays
    /// here.
    fn gives_back(&mut self, at: usize) {
        let client = self.client(at);
        let done = self
            .round(at, true)
            .and_then(|()| client.replica().unwrap().flush_drives());
        for (_, no, kind) in entries(&client, ROOT).unwrap_or_default() {
            if done.is_ok() && kind == FileType::File && self.rng.chance(0.8) {
                let _ = client.replica().unwrap().free(no);
            }
        }
    }

    /// Makes a drive hang while a program reads a file that may be on it.
    pub(crate) fn read_while_slow(&mut self, which: usize, at: usize) {
        let (client, stick) = (self.client(at), &self.world.sticks[which]);
        let (name, gate) = (stick.name.clone(), stick.ails.gate.clone());
        self.gives_back(at);
        let before = count(&client, &name, "late");
        gate.close();
        self.read_all(at);
        let waited = count(&client, &name, "late").saturating_sub(before);
        gate.open();
        while client
            .replica()
            .unwrap()
            .drive_statuses()
            .iter()
            .any(|drive| drive.is_late)
        {
            std::thread::yield_now();
        }
        assert!(
            waited <= 1,
            "{waited} times somebody waited for {name}, which had not come back"
        );
        self.counts.slow += waited;
    }

    /// Damages content of a drive that is attached to a machine, and reads it there.
    pub(crate) fn read_damaged(&mut self, which: usize, at: usize) {
        let (client, hand, name) = (
            self.client(at),
            self.hand(at),
            self.world.sticks[which].name.clone(),
        );
        self.gives_back(at);
        if client.replica().unwrap().upstream_step().is_err() {
            return;
        }
        self.world.sticks[which].flip(&mut self.rng, 4, true);
        let of_file = |(_, no, kind)| (kind == FileType::File).then_some(no);
        let files: Vec<ObjectNo> = entries(&client, ROOT)
            .unwrap_or_default()
            .into_iter()
            .filter_map(of_file)
            .collect();
        let before_reads = self.damaged_on(which, &files);
        let (spoiled, mut met) = (|| count(&client, &name, "spoiled"), Vec::new());
        for &no in &files {
            let before = spoiled();
            // Damage is met only by a read.
            for from in [0, 70_000] {
                if let Ok(read) = client.read(no, from, 70_000) {
                    hand.is_as_at_the_position(&client, no, from, &read);
                }
            }
            met.extend((spoiled() > before).then_some(no));
        }
        if met.is_empty()
            || client.replica().unwrap().upstream_step().is_err()
            || client.replica().unwrap().flush_drives().is_err()
        {
            return;
        }
        // What no read has met stays damaged: content that was here, or came from another drive.
        let after_reads = self.damaged_on(which, &files);
        for no in met {
            let damaged = |all: &DamagedContent| all.get(&no).map_or(0, ByteRanges::byte_count);
            let [was, is] = [damaged(&before_reads), damaged(&after_reads)];
            assert!(
                is == 0 || is < was,
                "{name}: {was} bytes of {no} were damaged, and {is} are"
            );
            self.counts.repaired += 1;
        }
    }

    /// Returns the damaged content of these files on a drive.
    fn damaged_on(&self, which: usize, files: &[ObjectNo]) -> DamagedContent {
        let stick = &self.world.sticks[which];
        let disk = RecordingDisk::from_bytes(SHAPE, stick.disk.snapshot());
        let mut all = DamagedContent::new();
        let Ok(drive) = Drive::open(Arc::new(disk), self.world.clock()) else {
            return all;
        };
        for &no in files {
            let Ok(Some(content)) = drive.held_object(no).map(|held| held.content) else {
                continue;
            };
            // Block by block, because a read gives up all of a step that has damage in it.
            let mut damaged = ByteRanges::default();
            for from in (0..content.size).step_by(BLOCK as usize) {
                if let Ok(found) = drive.read(no, content.data_seq, from, BLOCK) {
                    let ranges = found.damaged.iter();
                    ranges.for_each(|(from, to)| damaged.add(from, to));
                }
            }
            all.insert(no, damaged);
        }
        all
    }
}
