//! Random operations of one machine on its tree.

use crate::logs::LOG;
use crate::operator::{Operator, seen};
use crate::tags::{NOBODY, TAG};
use crate::tree::entries;
use crate::world::{CALLER, ROOT};
use std::sync::Arc;
use teal_posix::{
    FileSystem, FsError, RenameMode, SetAttrRequest, TimeChange, WriteFlags, XattrMode,
};
use teal_testkit::Rng;
use teal_types::{Attr, FileType, ObjectNo, Timestamp};

const NAMES: [&str; 6] = ["a", "b", "c", "d.txt", "e", "f"];
/// Files stay below this size.
const SIZE_MAX: u64 = 400 << 10;

/// The state that operations are made with.
pub(crate) struct Steps<'a> {
    pub(crate) client: Arc<FileSystem>,
    pub(crate) hand: &'a Operator,
    pub(crate) rng: &'a mut Rng,
}

/// A place in the tree: directory, name, and what is there.
type Place = (ObjectNo, Vec<u8>, Option<(ObjectNo, FileType)>);

impl Steps<'_> {
    fn client(&self) -> Arc<FileSystem> {
        Arc::clone(&self.client)
    }

    pub(crate) fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.hand.is_printed {
            println!("  {}: {what}", self.hand.name);
        }
    }

    /// Returns where changes are made: anywhere, or below the home.
    pub(crate) fn dir(&mut self) -> Result<ObjectNo, FsError> {
        let from = match &self.hand.home {
            Some(home) => self.home(home)?,
            None => ROOT,
        };
        self.below(from)
    }

    fn home(&self, name: &str) -> Result<ObjectNo, FsError> {
        let (client, name) = (self.client(), name.as_bytes());
        let attr = match client.lookup(ROOT, name) {
            Err(FsError::NotFound) => client.mkdir(&CALLER, ROOT, name, 0o755)?,
            there => there?,
        };
        client.release(attr.object, 1);
        Ok(attr.object)
    }

    /// A directory, by a walk that may end anywhere.
    fn below(&mut self, mut at: ObjectNo) -> Result<ObjectNo, FsError> {
        while self.rng.chance(0.55) {
            let dirs: Vec<_> = entries(&self.client(), at)?
                .into_iter()
                .filter(|(.., kind)| kind.is_dir())
                .collect();
            if dirs.is_empty() {
                break;
            }
            at = self.rng.pick(&dirs).1;
        }
        Ok(at)
    }

    fn place(&mut self) -> Result<Place, FsError> {
        let dir = self.dir()?;
        let name = self.rng.pick(&NAMES).as_bytes().to_vec();
        let there = match self.client().lookup(dir, &name) {
            Ok(Attr { object, kind, .. }) => {
                self.client().release(object, 1);
                Some((object, kind))
            }
            Err(FsError::NotFound) => None,
            Err(e) => return Err(e),
        };
        Ok((dir, name, there))
    }

    /// Something that is there.
    fn there(
        &mut self,
        kind: Option<FileType>,
    ) -> Result<Option<(ObjectNo, Vec<u8>, ObjectNo)>, FsError> {
        let dir = self.dir()?;
        Ok(self.pick(dir, kind)?.map(|(name, no)| (dir, name, no)))
    }

    fn pick(
        &mut self,
        dir: ObjectNo,
        kind: Option<FileType>,
    ) -> Result<Option<(Vec<u8>, ObjectNo)>, FsError> {
        let mut found = entries(&self.client(), dir)?;
        found.retain(|(.., of)| kind.is_none_or(|kind| kind == *of));
        if found.is_empty() {
            return Ok(None);
        }
        let (name, no, _) = self.rng.pick(&found).clone();
        Ok(Some((name, no)))
    }

    /// Returns a file; rarely a log, because a write over a log's content excuses all of it.
    fn file(&mut self) -> Result<Option<ObjectNo>, FsError> {
        let found = self.there(Some(FileType::File))?;
        Ok(found
            .filter(|(_, name, _)| !name.starts_with(LOG) || self.rng.chance(0.1))
            .map(|(.., no)| no))
    }

    /// One operation. Errors that a program can meet are none.
    pub(crate) fn step(&mut self) {
        let share = if self.rng.chance(0.2) { 100 } else { 0 };
        let done = match share + self.rng.below(100) {
            0..18 => self.create(),
            18..38 => self.write(),
            38..44 => self.truncate(),
            44..52 => self.attributes(),
            52..58 => self.xattr(),
            58..62 => self.link(),
            62..71 => self.remove(),
            71..83 => self.rename(),
            83..92 => self.mkdir(),
            92..94 => self.symlink(),
            94..100 => self.read(),
            _ => self.log(),
        };
        match done {
            Ok(()) => {}
            Err(
                e @ (FsError::NotFound
                | FsError::Exists
                | FsError::NotEmpty
                | FsError::IsDir
                | FsError::NotDir
                | FsError::Invalid
                | FsError::Unreachable(_)
                | FsError::NotNow(_)
                | FsError::NoData
                | FsError::Permission
                // Removed elsewhere, which was noticed by asking for its content.
                | FsError::Stale
                | FsError::NotSupported),
            ) => self.say(format_args!("  {e}")),
            Err(e) if self.hand.power.is_off() => self.say(format_args!("  {e}: the power has gone")),
            Err(e) => panic!("{}: {e}", self.hand.name),
        }
    }

    /// Notes that a part of an object is about to be changed by an author that may have seen it.
    pub(crate) fn changes(&mut self, no: ObjectNo, from: u64, to: u64) {
        let (seen, store) = (seen(&self.client), Arc::clone(self.client().store()));
        // Asks for the content that is here, without fetching more: the number may be a new one.
        if let Ok(content) = store
            .attr(no)
            .and_then(|attr| store.read(no, 0, attr.size as usize))
        {
            self.hand.tags.is_in(no, &content);
        }
        self.hand.tags.change(self.hand.who, seen, no, from, to);
    }

    pub(crate) fn put(&mut self, no: ObjectNo, from: u64, len: usize) -> Result<(), FsError> {
        self.look_if_prompt(no)?;
        self.changes(no, from, from + len as u64);
        let content = self.hand.tags.write(self.hand.who, no, from, len);
        self.say(format_args!(
            "write {no} {from}+{len}: {}",
            String::from_utf8_lossy(&content[..TAG])
        ));
        let n = self
            .client()
            .write(no, from, &content, WriteFlags::default());
        // Content that came while this waited for older content was there when the new was written.
        self.hand
            .tags
            .change(NOBODY, seen(&self.client), no, from, from + len as u64);
        let n = n?;
        assert_eq!(n, len);
        self.hand.kernel.wrote(no, from + len as u64);
        Ok(())
    }

    pub(crate) fn len(&mut self) -> usize {
        let blocks = match self.rng.below(10) {
            0 => 4096 + self.rng.below(2000),
            1..4 => 256 + self.rng.below(400),
            _ => 1 + self.rng.below(40),
        };
        blocks as usize * TAG
    }

    fn create(&mut self) -> Result<(), FsError> {
        let (dir, name, _) = self.place()?;
        self.say(format_args!(
            "create {dir}/{}",
            String::from_utf8_lossy(&name)
        ));
        let attr = self.client().create(&CALLER, dir, &name, 0o644, true)?;
        self.client().release(attr.object, 1);
        let len = self.len();
        if self.rng.chance(0.85) {
            self.put(attr.object, 0, len)
        } else {
            Ok(())
        }
    }

    fn write(&mut self) -> Result<(), FsError> {
        let Some(no) = self.file()? else {
            return Ok(());
        };
        let size = self.stat(no)?;
        let most = if self.rng.chance(0.2) {
            size + 60_000
        } else {
            size
        };
        let from = (self.rng.below(most + 1) / TAG as u64 * TAG as u64).min(SIZE_MAX);
        let len = self.len();
        self.put(no, from, len)
    }

    fn truncate(&mut self) -> Result<(), FsError> {
        let Some(no) = self.file()? else {
            return Ok(());
        };
        let size = self.stat(no)?;
        let size = if self.rng.chance(0.3) {
            0
        } else {
            self.rng.below(size + 5000).min(SIZE_MAX)
        };
        self.say(format_args!("truncate {no} to {size}"));
        self.changes(no, size, u64::MAX);
        let done = self.client().setattr(
            no,
            &SetAttrRequest {
                size: Some(size),
                ..SetAttrRequest::default()
            },
        );
        self.hand
            .tags
            .change(NOBODY, seen(&self.client), no, size, u64::MAX);
        self.hand.kernel.was_cut(no, size);
        done.map(drop)
    }

    fn attributes(&mut self) -> Result<(), FsError> {
        let Some((.., no)) = self.there(None)? else {
            return Ok(());
        };
        let mut set = SetAttrRequest::default();
        if self.rng.chance(0.7) {
            set.perm = Some(self.rng.below(0o1000) as u16 | 0o700);
        } else {
            set.mtime = Some(TimeChange::Set(Timestamp::new(
                1_600_000_000 + self.rng.below(1000) as i64,
                0,
            )));
        }
        self.say(format_args!("setattr {no} {set:?}"));
        self.client().setattr(no, &set).map(drop)
    }

    fn xattr(&mut self) -> Result<(), FsError> {
        let Some((.., no)) = self.there(None)? else {
            return Ok(());
        };
        let name = *self.rng.pick(&[&b"user.x"[..], b"user.y"]);
        if self.rng.chance(0.3) {
            self.say(format_args!(
                "removexattr {no} {}",
                String::from_utf8_lossy(name)
            ));
            return self.client().removexattr(no, name);
        }
        let value = format!("value {}", self.rng.below(1000));
        self.say(format_args!(
            "setxattr {no} {} {value}",
            String::from_utf8_lossy(name)
        ));
        self.client()
            .setxattr(no, name, value.as_bytes(), XattrMode::Any, false)
    }

    fn link(&mut self) -> Result<(), FsError> {
        let Some(no) = self.file()? else {
            return Ok(());
        };
        let (dir, name, _) = self.place()?;
        self.say(format_args!(
            "link {no} {dir}/{}",
            String::from_utf8_lossy(&name)
        ));
        let attr = self.client().link(no, dir, &name)?;
        self.client().release(attr.object, 1);
        Ok(())
    }

    /// Notes that an object loses a name, perhaps the last.
    ///
    /// No program holds it from here on: what has no name after a power cut is given back by a
    /// thread that machines here do not have.
    fn loses_name(&mut self, no: ObjectNo) -> Result<(), FsError> {
        self.hand.kernel.closes(&self.client, no);
        let attr = self.client().getattr(no)?;
        if attr.kind == FileType::File && attr.nlink == 1 {
            self.changes(no, 0, u64::MAX);
        } else {
            self.hand.tags.loses_name(no);
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<(), FsError> {
        let Some((dir, name, no)) = self.there(None)? else {
            return Ok(());
        };
        if name.starts_with(LOG) && self.rng.chance(0.8) {
            return Ok(());
        }
        self.say(format_args!(
            "remove {dir}/{}: {no}",
            String::from_utf8_lossy(&name)
        ));
        if self.client().getattr(no)?.kind.is_dir() {
            return self.client().rmdir(dir, &name);
        }
        self.loses_name(no)?;
        self.client().unlink(dir, &name)
    }

    fn rename(&mut self) -> Result<(), FsError> {
        let Some((dir, name, no)) = self.there(None)? else {
            return Ok(());
        };
        let (to, new, there) = self.place()?;
        let mode = match self.rng.below(8) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        let words = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        self.say(format_args!(
            "rename {dir}/{} {to}/{} {mode:?}: {no} over {there:?}",
            words(&name),
            words(&new)
        ));
        if let (RenameMode::Replace, Some((there, _))) = (mode, there)
            && there != no
        {
            self.loses_name(there)?;
        }
        self.client().rename(dir, &name, to, &new, mode)
    }

    fn mkdir(&mut self) -> Result<(), FsError> {
        let (dir, name, _) = self.place()?;
        self.say(format_args!(
            "mkdir {dir}/{}",
            String::from_utf8_lossy(&name)
        ));
        let attr = self.client().mkdir(&CALLER, dir, &name, 0o755)?;
        self.client().release(attr.object, 1);
        Ok(())
    }

    fn symlink(&mut self) -> Result<(), FsError> {
        let (dir, name, _) = self.place()?;
        self.say(format_args!(
            "symlink {dir}/{}",
            String::from_utf8_lossy(&name)
        ));
        let attr = self.client().symlink(&CALLER, dir, &name, b"some/where")?;
        self.client().release(attr.object, 1);
        Ok(())
    }

    fn read(&mut self) -> Result<(), FsError> {
        let dir = self.below(ROOT)?;
        let Some((_, no)) = self.pick(dir, Some(FileType::File))? else {
            return Ok(());
        };
        let size = self.stat(no)?;
        self.say(format_args!("read {no} of {size}"));
        let from = self.rng.below(size + 1);
        let read = self.client().read(no, from, 70_000)?;
        self.hand
            .is_as_at_the_position(&self.client, no, from, &read);
        Ok(())
    }
}
