//! Pages of trees: the next fold writes anew those that live in a segment.

use super::mark_unchanged;
use crate::error::StoreError;
use crate::format::page::TreeKind;
use crate::object::directory::{DirectoryContent, DirectoryEntries};
use crate::object::extents::FileExtents;
use crate::object::state::{BlockContent, ObjectContent};
use crate::store::handle::Store;
use crate::store::op::StoreOperation;
use crate::tree::Tree;
use crate::tree::freed::FreedSpace;
use crate::tree::reader::CachedReader;
use teal_types::{ObjectNo, Sector};

/// The place of a page in its tree and on the disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedPage {
    pub(super) level: u8,
    pub(super) first_key: u64,
    pub(super) at: Sector,
}

impl PlacedPage {
    /// Lets the page be written anew by the next fold, if the tree still leads to it. Returns
    /// whether it does.
    fn touch_in(self, tree: &mut Tree, reader: &CachedReader) -> Result<bool, StoreError> {
        tree.touch(reader, self.level, self.first_key, self.at)
    }
}

impl Store {
    /// Lets the next fold write a page elsewhere, if its tree still leads to it.
    pub(super) fn move_page(
        &self,
        owner: ObjectNo,
        kind: TreeKind,
        page: PlacedPage,
    ) -> Result<(), StoreError> {
        let objects = self.objects();
        let reader = &objects.reader;
        let freed = match kind {
            TreeKind::InodeMap => {
                let mut imap = objects.inode_map.write();
                page.touch_in(&mut imap.tree, reader)?;
                imap.take_freed_space()
            }
            TreeKind::Orphans => {
                let mut tree = objects.orphans.lock();
                page.touch_in(&mut tree, reader)?;
                tree.take_freed_space()
            }
            TreeKind::Usage => {
                let mut tree = self.log.usage.lock();
                page.touch_in(&mut tree, reader)?;
                tree.take_freed_space()
            }
            TreeKind::Extents | TreeKind::Directory => self.move_page_of_object(owner, page)?,
            TreeKind::SharedExtents => {
                let mut table = reader.shared.write();
                page.touch_in(&mut table.tree, reader)?;
                let freed = table.tree.take_freed_space();
                reader.shared.publish_totals(&table);
                freed
            }
            TreeKind::Notes => {
                let mut tree = objects.notes.lock();
                page.touch_in(&mut tree, reader)?;
                tree.take_freed_space()
            }
            // No pages of these kinds exist yet.
            TreeKind::History | TreeKind::Xattrs => Vec::new(),
        };
        objects.account_freed(&freed);
        Ok(())
    }

    /// Moves a page of an object's own tree. Returns the space that is freed.
    fn move_page_of_object(
        &self,
        owner: ObjectNo,
        page: PlacedPage,
    ) -> Result<Vec<FreedSpace>, StoreError> {
        let op: StoreOperation<'_> = self.begin_cleaning();
        let mut locked = op.lock(&[owner])?;
        let tree = match &mut locked.state_mut(owner).content {
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Tree(tree),
                ..
            })
            | ObjectContent::Dir(DirectoryContent {
                entries: DirectoryEntries::Tree(tree),
                ..
            }) => tree,
            _ => return Ok(Vec::new()),
        };
        let mut freed = Vec::new();
        // Folding the object needs it in the batch.
        if page.touch_in(tree, &self.objects().reader)? {
            mark_unchanged(&mut locked, owner).take_freed_pages(&mut freed);
        }
        Ok(freed)
    }
}
