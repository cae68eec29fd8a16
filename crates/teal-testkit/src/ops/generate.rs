//! Random operations that are likely to meet: few names, small trees, offsets around block
//! boundaries.

use super::operation::{FsOp, SeededBytes};
use crate::model::ReferenceModel;
use crate::rng::Rng;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use teal_types::{BLOCK, FileType, NAME_MAX, RenameMode, Timestamp, XattrMode};

/// Deepest directory in which new names are made.
const DEPTH_MAX: usize = 4;
/// Slots of files held open.
const SLOTS: u64 = 4;

/// The frequency of each operation relative to the others; 0 is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after the operations")]
pub struct OpWeights {
    pub create: u32,
    pub mknod: u32,
    pub mkdir: u32,
    pub symlink: u32,
    pub link: u32,
    pub unlink: u32,
    pub rmdir: u32,
    pub rename: u32,
    pub write: u32,
    pub truncate: u32,
    pub punch: u32,
    pub copy: u32,
    pub set_mode: u32,
    pub set_owner: u32,
    pub set_mtime: u32,
    pub set_xattr: u32,
    pub remove_xattr: u32,
    pub fsync: u32,
    pub open: u32,
    pub write_open: u32,
    pub truncate_open: u32,
    pub close: u32,
}

impl Default for OpWeights {
    fn default() -> Self {
        Self {
            create: 12,
            mknod: 3,
            mkdir: 10,
            symlink: 4,
            link: 6,
            unlink: 10,
            rmdir: 6,
            rename: 16,
            write: 20,
            truncate: 8,
            punch: 5,
            copy: 10,
            set_mode: 5,
            set_owner: 4,
            set_mtime: 4,
            set_xattr: 6,
            remove_xattr: 3,
            fsync: 2,
            open: 4,
            write_open: 5,
            truncate_open: 2,
            close: 3,
        }
    }
}

type Maker = fn(&mut OpGenerator<'_>) -> FsOp;
/// A maker, and how often it is drawn relative to the others.
type WeightedMaker = (u32, Maker);

/// Returns a random operation that suits the tree of `model`, though not always: errors are wanted
/// too.
///
/// # Panics
/// If all weights are 0.
pub fn generate_op(rng: &mut Rng, model: &ReferenceModel, weights: &OpWeights) -> FsOp {
    let mut makers: Vec<WeightedMaker> = Vec::new();
    makers.extend(name_makers(weights));
    makers.extend(content_makers(weights));
    makers.extend(attribute_makers(weights));
    makers.extend(open_file_makers(weights));
    let make = draw_maker(rng, &makers);
    let mut paths = Vec::new();
    for (path, ino) in model.list_paths() {
        let kind = model.stat(ino).map_or(FileType::File, |stat| stat.kind);
        paths.push((path, kind));
    }
    make(&mut OpGenerator { rng, paths })
}

/// Draws one of the makers, each in proportion to its weight.
///
/// # Panics
/// If all weights are 0.
fn draw_maker(rng: &mut Rng, makers: &[WeightedMaker]) -> Maker {
    let sum = makers.iter().map(|(weight, _)| u64::from(*weight)).sum();
    let mut at = rng.below(sum);
    for (weight, maker) in makers {
        let weight = u64::from(*weight);
        if at < weight {
            return *maker;
        }
        at -= weight;
    }
    unreachable!("a number below the sum lies within one of the weights")
}

/// Returns the operations that make, move and remove names, with their weights.
fn name_makers(w: &OpWeights) -> [WeightedMaker; 8] {
    [
        (w.create, |d| FsOp::Create {
            path: d.draw_new_path(),
            perm: d.draw_perm(),
        }),
        (w.mknod, |d| d.draw_mknod()),
        (w.mkdir, |d| FsOp::Mkdir {
            path: d.draw_new_path(),
            perm: d.draw_perm(),
        }),
        (w.symlink, |d| FsOp::Symlink {
            path: d.draw_new_path(),
            target: d.draw_target(),
        }),
        (w.link, |d| FsOp::Link {
            from: d.draw_object(FileType::File),
            to: d.draw_new_path(),
        }),
        (w.unlink, |d| FsOp::Unlink {
            path: d.draw_object(FileType::File),
        }),
        (w.rmdir, |d| FsOp::Rmdir {
            path: d.draw_object(FileType::Dir),
        }),
        (w.rename, |d| d.draw_rename()),
    ]
}

/// Returns the operations on the content of files, with their weights.
fn content_makers(w: &OpWeights) -> [WeightedMaker; 4] {
    [
        (w.write, |d| FsOp::Write {
            path: d.draw_object(FileType::File),
            offset: d.draw_offset(),
            data: d.draw_data(),
        }),
        (w.truncate, |d| FsOp::Truncate {
            path: d.draw_object(FileType::File),
            size: d.draw_offset(),
        }),
        (w.punch, |d| FsOp::Punch {
            path: d.draw_object(FileType::File),
            offset: d.draw_offset(),
            len: d.draw_offset().max(1),
        }),
        (w.copy, |d| d.draw_copy()),
    ]
}

/// Returns the operations on attributes and extended attributes, with their weights.
fn attribute_makers(w: &OpWeights) -> [WeightedMaker; 5] {
    [
        (w.set_mode, |d| FsOp::SetMode {
            path: d.draw_any(),
            perm: d.draw_perm(),
        }),
        (w.set_owner, |d| d.draw_set_owner()),
        (w.set_mtime, |d| d.draw_set_mtime()),
        (w.set_xattr, |d| d.draw_set_xattr()),
        (w.remove_xattr, |d| FsOp::RemoveXattr {
            path: d.draw_any(),
            name: d.draw_xattr_name(),
        }),
    ]
}

/// Returns the synchronisation of files, and the operations on open ones, with their weights.
fn open_file_makers(w: &OpWeights) -> [WeightedMaker; 5] {
    [
        (w.fsync, |d| FsOp::Fsync {
            path: d.draw_object(FileType::File),
        }),
        (w.open, |d| FsOp::Open {
            slot: d.draw_slot(),
            path: d.draw_object(FileType::File),
        }),
        (w.write_open, |d| FsOp::WriteOpen {
            slot: d.draw_slot(),
            offset: d.draw_offset(),
            data: d.draw_data(),
        }),
        (w.truncate_open, |d| FsOp::TruncateOpen {
            slot: d.draw_slot(),
            size: d.draw_offset(),
        }),
        (w.close, |d| FsOp::Close {
            slot: d.draw_slot(),
        }),
    ]
}

struct OpGenerator<'a> {
    rng: &'a mut Rng,
    paths: Vec<(PathBuf, FileType)>,
}

impl OpGenerator<'_> {
    /// Draws a name from a small pool.
    fn draw_name(&mut self) -> Vec<u8> {
        // Now and then a name at a limit: too long, not UTF-8, or like `..`.
        match self.rng.below(40) {
            0 => vec![b'L'; NAME_MAX],
            1 => vec![b'L'; NAME_MAX + 1],
            2 => b"not \xff utf-8\n".to_vec(),
            3 => b"...".to_vec(),
            n => vec![b'a' + (n % 9) as u8],
        }
    }

    /// Draws a path of a name in a directory, taken or not.
    fn draw_new_path(&mut self) -> PathBuf {
        let fits =
            |(path, kind): &&(PathBuf, FileType)| kind.is_dir() && path.iter().count() < DEPTH_MAX;
        let dirs: Vec<&PathBuf> = self
            .paths
            .iter()
            .filter(fits)
            .map(|(path, _)| path)
            .collect();
        // Now and then the parent is no directory.
        let dir = if self.rng.chance(0.03) {
            self.rng.pick(&self.paths).0.clone()
        } else {
            (*self.rng.pick(&dirs)).clone()
        };
        dir.join(OsStr::from_bytes(&self.draw_name()))
    }

    /// Draws mostly an object of this type.
    fn draw_object(&mut self, kind: FileType) -> PathBuf {
        let suits: Vec<&PathBuf> = self
            .paths
            .iter()
            .filter(|(path, k)| *k == kind && path != Path::new(""))
            .map(|(path, _)| path)
            .collect();
        if suits.is_empty() || self.rng.chance(0.2) {
            self.draw_named()
        } else {
            (*self.rng.pick(&suits)).clone()
        }
    }

    /// Draws mostly an object that has a name.
    fn draw_named(&mut self) -> PathBuf {
        if self.paths.len() < 2 || self.rng.chance(0.1) {
            return self.draw_new_path();
        }
        self.paths[1 + self.rng.pick_index(self.paths.len() - 1)]
            .0
            .clone()
    }

    /// Draws any object, the root included.
    fn draw_any(&mut self) -> PathBuf {
        if self.rng.chance(0.05) {
            PathBuf::new()
        } else {
            self.draw_named()
        }
    }

    fn draw_perm(&mut self) -> u32 {
        *self.rng.pick(&[
            0o644, 0o755, 0o600, 0o000, 0o777, 0o4755, 0o2755, 0o2644, 0o6711, 0o1777,
        ])
    }

    fn draw_target(&mut self) -> Vec<u8> {
        let lens = [1, 5, 59, 60, 61, 255, 256, 1000, 4000];
        vec![*self.rng.pick(b"ab/"); *self.rng.pick(&lens)]
    }

    fn draw_slot(&mut self) -> u8 {
        self.rng.below(SLOTS) as u8
    }

    /// Draws an offset around block boundaries, seldom far away.
    fn draw_offset(&mut self) -> u64 {
        let block = match self.rng.below(20) {
            0 => 2048,
            1 => 256,
            2..6 => self.rng.below(32),
            _ => self.rng.below(4),
        };
        // Bytes around sector and block boundaries.
        let near = [0, 0, 1, 511, 512, 4095, self.rng.below(BLOCK)];
        block * BLOCK + *self.rng.pick(&near)
    }

    /// Draws a copy: half of the time of whole blocks, between the same places, or to the end.
    fn draw_copy(&mut self) -> FsOp {
        let (from, to) = (
            self.draw_object(FileType::File),
            self.draw_object(FileType::File),
        );
        let (mut offset, mut to_offset) = (self.draw_offset(), self.draw_offset());
        let mut len = self.draw_offset().max(1);
        match self.rng.below(4) {
            0 => (offset, to_offset) = (offset / BLOCK * BLOCK, to_offset / BLOCK * BLOCK),
            1 => to_offset = offset,
            2 => (offset, to_offset, len) = (0, 0, 1 << 30),
            _ => {}
        }
        FsOp::Copy {
            from,
            offset,
            to,
            to_offset,
            len,
        }
    }

    fn draw_data(&mut self) -> SeededBytes {
        let lens = [1, 100, 511, 512, 4095, 4096, 4097, 8192, 20_000];
        SeededBytes {
            seed: self.rng.next_u64(),
            len: *self.rng.pick(&lens),
        }
    }

    fn draw_xattr_name(&mut self) -> Vec<u8> {
        self.rng
            .pick(&[
                &b"user.a"[..],
                b"user.b",
                b"user.a",
                b"trusted.t",
                b"user.",
                b"nowhere.x",
            ])
            .to_vec()
    }

    fn draw_mknod(&mut self) -> FsOp {
        let kinds = [
            FileType::Fifo,
            FileType::Socket,
            FileType::Char,
            FileType::Block,
            FileType::File,
        ];
        let (path, kind, perm) = (
            self.draw_new_path(),
            *self.rng.pick(&kinds),
            self.draw_perm(),
        );
        let has_rdev = matches!(kind, FileType::Char | FileType::Block);
        let rdev = if has_rdev {
            *self.rng.pick(&[(1, 3), (8, 300), (259, 70_000)])
        } else {
            (0, 0)
        };
        FsOp::Mknod {
            path,
            kind,
            perm,
            rdev,
        }
    }

    fn draw_rename(&mut self) -> FsOp {
        let from = self.draw_named();
        let modes = [
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ];
        let mode = *self.rng.pick(&modes);
        let wants_existing = mode == RenameMode::Exchange || self.rng.chance(0.4);
        let to = if wants_existing {
            self.draw_named()
        } else {
            self.draw_new_path()
        };
        FsOp::Rename { from, to, mode }
    }

    fn draw_set_owner(&mut self) -> FsOp {
        let ids = [None, Some(0), Some(1), Some(1000), Some(70_000)];
        FsOp::SetOwner {
            path: self.draw_any(),
            uid: *self.rng.pick(&ids),
            gid: *self.rng.pick(&ids),
        }
    }

    fn draw_set_mtime(&mut self) -> FsOp {
        let secs = [0, 1, -1, 1_700_000_000, (1 << 31) - 1, 1 << 31, 1 << 33];
        let mtime = Timestamp::new(*self.rng.pick(&secs), self.rng.below(1_000_000_000) as u32);
        FsOp::SetMtime {
            path: self.draw_any(),
            mtime,
        }
    }

    fn draw_set_xattr(&mut self) -> FsOp {
        let modes = [
            XattrMode::Any,
            XattrMode::Any,
            XattrMode::Create,
            XattrMode::Replace,
        ];
        let mut value = vec![0; *self.rng.pick(&[0, 1, 20, 200, 600])];
        self.rng.fill(&mut value);
        FsOp::SetXattr {
            path: self.draw_any(),
            name: self.draw_xattr_name(),
            value,
            mode: *self.rng.pick(&modes),
        }
    }
}
