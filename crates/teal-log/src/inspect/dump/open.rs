//! Dumps of what an open store knows, roll-forward state included.

use super::raw::{extent_text, mapped_text};
use super::{DumpWhat, dump_raw};
use crate::error::StoreError;
use crate::format::extent::MappedExtent;
use crate::format::inode::InodeCore;
use crate::format::page::{Node, NodeItems, PagePtr};
use crate::format::record::SectorRun;
use crate::format::shared::SharedItem;
use crate::format::usage::SegmentUse;
use crate::object::extents::FileExtents;
use crate::object::state::{BlockContent, ObjectContent, ObjectState};
use crate::store::handle::Store;
use crate::tree::Tree;
use crate::tree::inode_map::InodeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::ops::ControlFlow;
use teal_types::{ObjectNo, SECTOR};

impl Store {
    /// Prints a structure, one line per item. Damage is said in the text.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn dump(&self, what: DumpWhat, out: &mut dyn Write) -> io::Result<()> {
        // Objects that cannot be brought up to date are part of the dump.
        for (no, error) in self.objects().redo_each_deferred() {
            writeln!(out, "object {no}: {error}")?;
        }
        match what {
            DumpWhat::Usage => self.dump_usage(out),
            DumpWhat::InodeMap => self.dump_inode_map(out),
            DumpWhat::Inode(no) => self.dump_inode(no, out),
            DumpWhat::Directory(no) => self.dump_directory(no, out),
            DumpWhat::Orphans => match self.orphans() {
                Ok(orphans) => write_lines(out, orphans),
                Err(e) => writeln!(out, "{e}"),
            },
            DumpWhat::Notes => self.dump_notes(out),
            DumpWhat::Places => self.dump_places(out),
            DumpWhat::Shared => self.dump_shared(out),
            DumpWhat::Raw(what) => dump_raw(self.disk(), what, out),
        }
    }

    fn dump_places(&self, out: &mut dyn Write) -> io::Result<()> {
        for place in self.places() {
            let sector = place.byte / SECTOR;
            let byte = place.byte % SECTOR;
            write!(
                out,
                "sector {sector}+{byte}: {} bytes, {}",
                place.bytes, place.what
            )?;
            match place.owner {
                Some(no) => writeln!(out, " of {no}")?,
                None => writeln!(out)?,
            }
        }
        Ok(())
    }

    fn dump_notes(&self, out: &mut dyn Write) -> io::Result<()> {
        // Collected first: no lock is held while the output is written.
        let mut lines = Vec::new();
        let all = self.each_note(ObjectNo::new(0), &mut |no, head| {
            lines.push(format!("{no}: {}", head.escape_ascii()));
            ControlFlow::Continue(())
        });
        lines.extend(all.err().map(|e| e.to_string()));
        write_lines(out, lines)
    }

    fn dump_usage(&self, out: &mut dyn Write) -> io::Result<()> {
        // Collected first: no lock is held while the output is written.
        let mut lines = Vec::new();
        {
            let geometry = &self.objects().geometry;
            let segments = self.objects().segments.lock();
            let head = segments.log_head();
            // The segments of the head and its successor.
            let segment_of = |run: SectorRun| {
                let segment = geometry.segment_of(run.addr);
                segment.filter(|_| run.sectors > 0)
            };
            let now = segment_of(head.a);
            let next = segment_of(head.b);
            for (segment, u) in segments.all_segments() {
                let role = match Some(segment) {
                    here if here == now => ", the log goes on here",
                    here if here == next => ", the log goes on here next",
                    _ => "",
                };
                lines.push(format!("segment {}: {}{role}", segment.0, usage_text(u)));
            }
        }
        write_lines(out, lines)
    }

    fn dump_inode_map(&self, out: &mut dyn Write) -> io::Result<()> {
        let imap = self.objects().inode_map.read();
        // Newer entries replace those of the tree.
        let newer: std::collections::BTreeMap<_, _> = imap.newer_than_tree().collect();
        let mut done = Ok(());
        for_items(self, &imap.tree, &mut |item| {
            let line = match item {
                Ok((no, value)) if !newer.contains_key(&ObjectNo::new(no)) => {
                    match InodeMap::decode(no, value) {
                        Ok(Some(home)) => {
                            format!(
                                "#{no} at byte {}, {} bytes, lsn {}",
                                home.byte,
                                home.len,
                                home.lsn.get()
                            )
                        }
                        Ok(None) => format!("#{no} is gone"),
                        Err(e) => e.to_string(),
                    }
                }
                Ok(_) => return,
                Err(e) => e.to_string(),
            };
            if done.is_ok() {
                done = writeln!(out, "{line}");
            }
        });
        done?;
        for (no, home) in newer {
            match home {
                Some(h) => {
                    writeln!(
                        out,
                        "{no} at byte {}, {} bytes, lsn {}, since the checkpoint",
                        h.byte,
                        h.len,
                        h.lsn.get()
                    )?;
                }
                None => writeln!(out, "{no} is gone since the checkpoint")?,
            }
        }
        Ok(())
    }

    fn dump_inode(&self, no: ObjectNo, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Vec::new();
        // Written to memory first: the look may be repeated after a sealed batch.
        let looked = self.objects().with_state(no, |state| {
            text.clear();
            Ok(self.inode_text(no, state, &mut text))
        });
        match looked {
            Ok(done) => done?,
            Err(e) => writeln!(text, "{e}")?,
        }
        out.write_all(&text)
    }

    fn inode_text(&self, no: ObjectNo, state: &ObjectState, out: &mut Vec<u8>) -> io::Result<()> {
        write_core(no, &state.core, out)?;
        match state.home {
            Some(home) => writeln!(out, "  record at byte {}, {} bytes", home.byte, home.len)?,
            None => writeln!(out, "  no whole record yet")?,
        }
        for link in &state.links {
            writeln!(out, "  name {:?} in {}", link.name, link.parent)?;
        }
        for (name, value) in &state.xattrs {
            let name = String::from_utf8_lossy(name);
            writeln!(out, "  xattr {name:?}, {} bytes", value.len())?;
        }
        match &state.content {
            ObjectContent::None => Ok(()),
            ObjectContent::Inline(data) => writeln!(out, "  {} bytes inline", data.len()),
            ObjectContent::Dir(_) => writeln!(out, "  {} entries", state.core.size),
            ObjectContent::Blocks(BlockContent { extents, dirty, .. }) => {
                self.extents_text(extents, out)?;
                writeln!(out, "  {} blocks in memory only", dirty.len())
            }
        }
    }

    fn extents_text(&self, extents: &FileExtents, out: &mut Vec<u8>) -> io::Result<()> {
        let tree = match extents {
            FileExtents::Few(map) => {
                for (block, extent) in map {
                    writeln!(out, "  {}", mapped_text(*block, extent))?;
                }
                return Ok(());
            }
            FileExtents::Tree(tree) => tree,
        };
        for_items(self, tree, &mut |item| {
            let line = match item {
                Ok((block, value)) => match MappedExtent::decode_at(block, value) {
                    Some(extent) => mapped_text(block, &extent),
                    None => "an extent that makes no sense".into(),
                },
                Err(e) => e.to_string(),
            };
            out.extend_from_slice(format!("  {line}\n").as_bytes());
        });
        Ok(())
    }

    fn dump_shared(&self, out: &mut dyn Write) -> io::Result<()> {
        let table = self.objects().reader.shared.read();
        let mut lines = Vec::new();
        for_items(self, &table.tree, &mut |item| match item
            .map(|(key, value)| (key, SharedItem::decode(key, value)))
        {
            Ok((_, Some(SharedItem::Extent { id, shared }))) => {
                let count = shared.count;
                let text = extent_text(0, &shared.extent);
                lines.push(format!("shared extent {id}, {count} references: {text}"));
            }
            Ok((_, Some(SharedItem::Place { addr, id }))) => {
                lines.push(format!("at {}: shared extent {id}", addr.get()))
            }
            Ok((key, None)) => lines.push(format!("item {key:#x} makes no sense")),
            Err(e) => lines.push(e.to_string()),
        });
        for (addr, id) in table.moved_places() {
            lines.push(format!("at {}: shared extent {id}, moved", addr.get()));
        }
        drop(table);
        write_lines(out, lines)
    }

    fn dump_directory(&self, no: ObjectNo, out: &mut dyn Write) -> io::Result<()> {
        let mut done = Ok(());
        let looked = self.each_entry(no, 0, &mut |cookie, child, kind, name| {
            done = writeln!(out, "{cookie:#018x} {child} {kind:?} {name:?}");
            if done.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        done?;
        // Damage is a line of the dump, not an error of the output.
        looked.or_else(|e| writeln!(out, "{e}"))
    }
}

/// Returns what the table says of a segment.
fn usage_text(u: &SegmentUse) -> String {
    if !u.used {
        return "free".to_owned();
    }
    if u.holds_copies {
        return format!(
            "{} live bytes of second copies, touched in interval {}",
            u.live, u.touched
        );
    }
    format!(
        "{} live bytes, {} retained, first record {} at +{}, touched in interval {}, youngest {}",
        u.live,
        u.retained,
        u.first_seq,
        u.first,
        u.touched,
        u.born.get()
    )
}

fn write_lines(
    out: &mut dyn Write,
    lines: impl IntoIterator<Item = impl Display>,
) -> io::Result<()> {
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Writes the attributes of an object.
fn write_core(no: ObjectNo, c: &InodeCore, out: &mut Vec<u8>) -> io::Result<()> {
    writeln!(
        out,
        "{no}: {:?} mode {:o} uid {} gid {} rdev {:#x}",
        c.kind, c.perm, c.uid, c.gid, c.rdev
    )?;
    writeln!(
        out,
        "  size {} sectors {} subdirectories {} lsn {}",
        c.size,
        c.sectors,
        c.subdirs,
        c.lsn.get()
    )?;
    for (name, t) in [
        ("atime", c.atime),
        ("mtime", c.mtime),
        ("ctime", c.ctime),
        ("btime", c.btime),
    ] {
        writeln!(out, "  {name} {}.{:09}", t.secs, t.nanos)?;
    }
    Ok(())
}

type SeenItem<'a> = Result<(u64, &'a [u8]), StoreError>;

/// Shows every item of a tree, and what cannot be read.
fn for_items(store: &Store, tree: &Tree, item: &mut dyn FnMut(SeenItem<'_>)) {
    let mut damaged = Vec::new();
    let mut visit = |_: Option<PagePtr>, node: &Node| {
        if let NodeItems::Leaf(items) = &node.items {
            for (key, value) in items.iter() {
                item(Ok((*key, value)));
            }
        }
    };
    // Damaged pages come last, after all readable items.
    tree.walk_nodes(&store.objects().reader, &mut visit, &mut |_, error| {
        damaged.push(error)
    });
    for error in damaged {
        item(Err(error));
    }
}
