//! The promises of the tree, each against a sorted map and a device of pages in memory.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::ControlFlow,
};

use proptest::prelude::*;
use teal_types::Sector;

use super::change::split_if_over;
use super::*;
use crate::format::page::{PAGE_MAX, VALUE_MAX};

const KIND: TreeKind = TreeKind::Directory;
const OWNER: ObjectNo = ObjectNo::new(77);

/// A device of pages that counts loads and fails when its budget of loads is used up.
#[derive(Default)]
struct Pages {
    stored: RefCell<HashMap<Sector, Vec<u8>>>,
    next: Cell<u64>,
    loads: Cell<u64>,
    budget: Cell<Option<u64>>,
}

impl PageSource for Pages {
    fn load_page(&self, ptr: PagePtr, want: ExpectedPage) -> Result<Arc<Node>, StoreError> {
        self.loads.set(self.loads.get() + 1);
        if let Some(left) = self.budget.get() {
            self.budget.set(Some(
                left.checked_sub(1)
                    .ok_or_else(|| want.damaged_at(ptr.addr()))?,
            ));
        }
        let stored = self.stored.borrow();
        let page = stored
            .get(&ptr.addr())
            .filter(|page| ptr.matches(page))
            .ok_or_else(|| want.damaged_at(ptr.addr()))?;
        Node::decode(page, ptr.addr(), want).map(Arc::new)
    }
}

impl Pages {
    fn fold(&self, tree: &mut Tree) -> Vec<(PageMeta, PagePtr)> {
        let mut written = Vec::new();
        let root = tree.fold(&mut |meta, page| {
            let ptr = PagePtr::seal(Sector::new(self.next.get()), &page);
            self.next.set(self.next.get() + ptr.sectors());
            self.stored.borrow_mut().insert(ptr.addr(), page);
            written.push((meta, ptr));
            ptr
        });
        assert_eq!(
            (root, tree.mem_pages(), tree.is_dirty()),
            (tree.root(), 0, false)
        );
        assert_eq!(
            root,
            written.last().map(|last| last.1).or(root),
            "the root is written last"
        );
        written
    }
    fn failing<R>(&self, after: u64, act: impl FnOnce() -> R) -> R {
        self.budget.set(Some(after));
        let result = act();
        self.budget.set(None);
        result
    }
}

fn tree() -> Tree {
    Tree::new(KIND, OWNER)
}

fn content(tree: &Tree, src: &Pages) -> Vec<(u64, Vec<u8>)> {
    let mut items = Vec::new();
    tree.scan(src, 0, &mut |key, value| {
        items.push((key, value.to_vec()));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    items
}

fn live(tree: &Tree, src: &Pages) -> BTreeSet<Sector> {
    let mut found = BTreeSet::new();
    tree.walk_nodes(
        src,
        &mut |page, _| {
            assert!(
                page.is_none_or(|ptr| found.insert(ptr.addr())),
                "a page is referred to once"
            )
        },
        &mut |ptr, error| panic!("{ptr:?}: {error}"),
    );
    found
}

/// The shape that `How` 2 and 3 of the module promise; counts owned nodes.
fn check_shape(tree: &Tree, src: &Pages) {
    fn below(
        tree: &Tree,
        src: &Pages,
        child: &Child,
        level: Option<u8>,
        low: u64,
        high: Option<u64>,
    ) -> usize {
        let (node, owned) = match child {
            Child::Mem(node) => (Arc::new((**node).clone()), 1),
            Child::Disk(ptr) => (src.load_page(*ptr, tree.expected_page(level)).unwrap(), 0),
        };
        assert!(
            !node.is_empty()
                && node.encoded_len(tree.kind()) <= PAGE_MAX
                && level.is_none_or(|level| level == node.level)
        );
        assert!(node.first_key() >= low);
        let NodeItems::Inner(items) = &node.items else {
            let NodeItems::Leaf(items) = &node.items else {
                unreachable!()
            };
            assert!(
                items.is_sorted_by(|a, b| a.0 < b.0)
                    && high.is_none_or(|high| items.last().unwrap().0 < high)
            );
            return owned;
        };
        assert!(items.is_sorted_by(|a, b| a.0 < b.0));
        let ends = items[1..].iter().map(|item| Some(item.0)).chain([high]);
        let counts = items
            .iter()
            .zip(ends)
            .map(|((key, child), end)| below(tree, src, child, Some(node.level - 1), *key, end));
        let count: usize = counts.sum();
        assert!(
            owned == 1 || count == 0,
            "what leads to an owned node is owned"
        );
        owned + count
    }
    let owned = tree
        .root
        .as_ref()
        .map_or(0, |root| below(tree, src, root, None, 0, None));
    assert_eq!(tree.mem_pages(), owned);
    assert!(owned == 0 || tree.is_dirty());
}

fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ (n >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d)
}

fn value_of(seed: u64) -> Vec<u8> {
    let long = if seed.is_multiple_of(3) { 600 } else { 40 };
    vec![seed as u8; (mix(seed) % long) as usize]
}

#[derive(Debug, Clone)]
enum Act {
    Insert(u64, u64),
    InsertRun(u64, u8),
    Remove(u64),
    RemoveRun(u64, u8),
    Fold,
    Look(u64),
    Touch(prop::sample::Index),
    Warm(u64, u64),
    Fail(u64, u64),
    Destroy,
}

fn any_act() -> impl Strategy<Value = Act> {
    let key = || prop_oneof![4 => 0..600u64, 2 => (0..600u64).prop_map(mix), 1 => prop::sample::select(vec![0, u64::MAX])];
    prop_oneof![
        12 => (key(), any::<u64>()).prop_map(|(key, seed)| Act::Insert(key, seed)),
        4 => (key(), 1..60u8).prop_map(|(key, count)| Act::InsertRun(key, count)),
        8 => key().prop_map(Act::Remove),
        4 => (key(), 1..90u8).prop_map(|(key, count)| Act::RemoveRun(key, count)),
        6 => Just(Act::Fold),
        8 => key().prop_map(Act::Look),
        4 => any::<prop::sample::Index>().prop_map(Act::Touch),
        3 => (key(), key()).prop_map(|(from, to)| Act::Warm(from.min(to), from.max(to))),
        4 => (key(), 0..6u64).prop_map(|(key, after)| Act::Fail(key, after)),
        1 => prop::bool::weighted(0.1).prop_map(|all| if all { Act::Destroy } else { Act::Fold }),
    ]
}

/// A tree, the map it must equal and the pages it must refer to.
#[derive(Default)]
struct Twin {
    src: Pages,
    model: BTreeMap<u64, Vec<u8>>,
    metas: HashMap<Sector, PageMeta>,
    live: BTreeSet<Sector>,
}

impl Twin {
    fn fold(&mut self, tree: &mut Tree) {
        for (meta, ptr) in self.src.fold(tree) {
            assert!(self.live.insert(ptr.addr()));
            self.metas.insert(ptr.addr(), meta);
        }
        for ptr in tree.take_freed() {
            assert!(
                self.live.remove(&ptr.addr()),
                "{ptr:?} is freed once and was written"
            );
        }
        assert_eq!(live(tree, &self.src), self.live);
    }

    fn insert(&mut self, tree: &mut Tree, key: u64, seed: u64) {
        let old = tree.insert(&self.src, key, &value_of(seed)).unwrap();
        assert_eq!(old.map(Vec::from), self.model.insert(key, value_of(seed)));
    }

    fn remove(&mut self, tree: &mut Tree, key: u64) {
        assert_eq!(
            tree.remove(&self.src, key).unwrap().map(Vec::from),
            self.model.remove(&key)
        );
    }

    fn look(&self, tree: &Tree, key: u64) {
        let plain =
            |item: Option<(u64, Box<[u8]>)>| item.map(|(key, value)| (key, value.into_vec()));
        let (src, model) = (&self.src, &self.model);
        let owned = |(key, value): (&u64, &Vec<u8>)| (*key, value.clone());
        assert_eq!(
            tree.get(src, key).unwrap().map(Vec::from),
            model.get(&key).cloned()
        );
        assert_eq!(
            plain(tree.at_or_after(src, key).unwrap()),
            model.range(key..).next().map(owned)
        );
        assert_eq!(
            plain(tree.at_or_before(src, key).unwrap()),
            model.range(..=key).next_back().map(owned)
        );
        let mut seen = Vec::new();
        let end = key.saturating_add(90);
        tree.range(src, key, end, &mut |key, value| {
            seen.push((key, value.to_vec()));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(seen, model.range(key..=end).map(owned).collect::<Vec<_>>());
    }

    fn fail(&mut self, tree: &mut Tree, key: u64, after: u64) {
        let value = value_of(after + 1);
        match self
            .src
            .failing(after, || tree.insert(&self.src, key, &value))
        {
            Ok(old) => assert_eq!(old.map(Vec::from), self.model.insert(key, value)),
            Err(_) => assert!(
                tree.get(&self.src, key).unwrap().map(Vec::from) == self.model.get(&key).cloned()
            ),
        }
        if let Ok(old) = self.src.failing(after, || tree.remove(&self.src, key)) {
            assert_eq!(old.map(Vec::from), self.model.remove(&key));
        }
        let _warmed_or_not = self
            .src
            .failing(after, || tree.warm(&self.src, key, key.saturating_add(50)));
        if live(tree, &self.src).len() as u64 > after {
            assert!(
                self.src
                    .failing(after, || tree.destroy(&self.src, &mut |_, _| ()))
                    .is_err()
            );
        }
    }

    fn act(&mut self, tree: &mut Tree, act: Act) {
        match act {
            Act::Insert(key, seed) => self.insert(tree, key, seed),
            Act::InsertRun(key, count) => {
                (0..u64::from(count)).for_each(|i| self.insert(tree, key.wrapping_add(i), i))
            }
            Act::Remove(key) => self.remove(tree, key),
            Act::RemoveRun(from, count) => {
                let keys: Vec<u64> = self
                    .model
                    .range(from..)
                    .map(|item| *item.0)
                    .take(count.into())
                    .collect();
                keys.into_iter().for_each(|key| self.remove(tree, key));
            }
            Act::Fold => self.fold(tree),
            Act::Look(key) => self.look(tree, key),
            Act::Touch(which) if !self.metas.is_empty() => {
                let mut all: Vec<_> = self.metas.iter().collect();
                all.sort_by_key(|(addr, _)| **addr);
                let (&addr, meta) = all[which.index(all.len())];
                let before = live(tree, &self.src).contains(&addr);
                assert_eq!(
                    tree.touch(&self.src, meta.level, meta.first_key, addr)
                        .unwrap(),
                    before
                );
                assert!(!live(tree, &self.src).contains(&addr));
            }
            Act::Touch(_) => {}
            Act::Warm(from, to) => tree.warm(&self.src, from, to).unwrap(),
            Act::Fail(key, after) => self.fail(tree, key, after),
            Act::Destroy => {
                let mut shown = Vec::new();
                tree.destroy(&self.src, &mut |key, value| {
                    shown.push((key, value.to_vec()))
                })
                .unwrap();
                assert!(shown.into_iter().eq(std::mem::take(&mut self.model)) && tree.is_empty());
            }
        }
        check_shape(tree, &self.src);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn content_and_exactly_once(acts in prop::collection::vec(any_act(), 1..120), start in 0..1500u64) {
        let (mut tree, mut twin) = (tree(), Twin::default());
        for n in 0..start {
            twin.insert(&mut tree, mix(n) >> 54, n);
        }
        for act in acts {
            twin.act(&mut tree, act);
        }
        prop_assert!(content(&tree, &twin.src).into_iter().eq(twin.model.clone()));
        twin.fold(&mut tree);
        let again = Tree::with_root(KIND, OWNER, tree.root());
        prop_assert!(content(&again, &twin.src).into_iter().eq(twin.model));
    }

    #[test]
    fn warm(
        keys in prop::collection::btree_set(0..40_000u64, 1..3000),
        ends in any::<[(prop::sample::Index, u64); 2]>(),
        acts in prop::collection::vec((any::<bool>(), any::<u64>()), 0..300),
        clear in any::<bool>(),
    ) {
        let (mut tree, mut twin) = (tree(), Twin::default());
        for key in keys {
            twin.insert(&mut tree, key, key);
        }
        twin.fold(&mut tree);
        // Where leaves begin and end it is decided which neighbours are needed.
        let mut edges: Vec<u64> = twin.metas.values().filter(|m| m.level == 0).map(|m| m.first_key).collect();
        edges.sort_unstable();
        let [from, to] = ends.map(|(leaf, off)| (leaf.get(&edges) + off % 3).saturating_sub(1));
        let (from, width) = (from.min(to), from.abs_diff(to));
        let to = from + width;
        tree.warm(&twin.src, from, to).unwrap();
        check_shape(&tree, &twin.src);
        twin.src.budget.set(Some(0));
        if clear {
            let inside: Vec<u64> = twin.model.range(from..=to).map(|item| *item.0).collect();
            inside.into_iter().for_each(|key| twin.remove(&mut tree, key));
        }
        for (insert, at) in acts {
            let key = from + at % (width + 1);
            if insert { twin.insert(&mut tree, key, at) } else { twin.remove(&mut tree, key) }
            tree.get(&twin.src, key).unwrap();
            tree.at_or_before(&twin.src, key).unwrap();
            tree.at_or_after(&twin.src, key).unwrap();
            tree.range(&twin.src, key, to, &mut |_, _| Ok(ControlFlow::Continue(()))).unwrap();
        }
        twin.src.budget.set(None);
        check_shape(&tree, &twin.src);
        twin.fold(&mut tree);
        prop_assert!(content(&tree, &twin.src).into_iter().eq(twin.model));
    }

    #[test]
    fn a_failing_source_changes_no_content(keys in prop::collection::btree_set(any::<u64>(), 300..900), at in any::<u64>()) {
        let (src, mut tree) = (Pages::default(), tree());
        for &key in &keys {
            tree.insert(&src, key, &value_of(key)).unwrap();
        }
        src.fold(&mut tree);
        let (root, before) = (tree.root(), content(&tree, &src));
        let there = *keys.range(at..).next().or(keys.first()).unwrap();
        for after in 0..2 {
            let mut tree = Tree::with_root(KIND, OWNER, root);
            prop_assert!(src.failing(after, || tree.insert(&src, at, b"new")).is_err() || after > 0);
            let mut tree = Tree::with_root(KIND, OWNER, root);
            prop_assert!(src.failing(after, || tree.remove(&src, there)).is_err());
            prop_assert!(src.failing(after, || tree.warm(&src, 0, u64::MAX)).is_err());
            prop_assert!(src.failing(after, || tree.touch(&src, 0, there, Sector::new(0))).is_err() || after > 0);
            let mut shown = 0;
            prop_assert!(src.failing(after, || tree.destroy(&src, &mut |_, _| shown += 1)).is_err() && shown == 0);
            prop_assert_eq!(&content(&tree, &src), &before);
        }
    }
}

#[test]
fn full_pages_from_ascending_keys_and_the_right_height() {
    let (src, mut tree) = (Pages::default(), tree());
    for key in 0..100_000u64 {
        tree.insert(&src, key, &key.to_le_bytes()).unwrap();
    }
    let pages = src.fold(&mut tree);
    let bytes: usize = pages.iter().map(|(_, ptr)| usize::from(ptr.bytes())).sum();
    let leaves: Vec<usize> = pages
        .iter()
        .filter(|p| p.0.level == 0)
        .map(|p| p.1.bytes().into())
        .collect();
    assert!(
        leaves.iter().sum::<usize>() * 100 > leaves.len() * PAGE_MAX * 98,
        "{} leaves",
        leaves.len()
    );
    let inner: Vec<u16> = pages
        .iter()
        .filter(|p| p.0.level == 1)
        .map(|p| p.1.bytes())
        .collect();
    assert!(
        inner[..inner.len() - 1].iter().all(|&bytes| bytes > 4000),
        "{inner:?}"
    );
    assert!(
        bytes * 10 > pages.len() * PAGE_MAX * 9,
        "{bytes} bytes in {} pages",
        pages.len()
    );
    assert_eq!(
        pages.last().unwrap().0,
        PageMeta {
            kind: KIND,
            owner: OWNER,
            level: 2,
            first_key: 0
        }
    );
    check_shape(&tree, &src);
}

#[test]
fn random_keys_fill_two_thirds_at_the_same_height() {
    let (src, mut tree) = (Pages::default(), tree());
    for n in 0..100_000u64 {
        tree.insert(&src, mix(n), &n.to_le_bytes()).unwrap();
    }
    let pages = src.fold(&mut tree);
    let bytes: usize = pages.iter().map(|(_, ptr)| usize::from(ptr.bytes())).sum();
    assert!(
        bytes * 100 > pages.len() * PAGE_MAX * 63,
        "{bytes} bytes in {} pages",
        pages.len()
    );
    assert_eq!(pages.last().unwrap().0.level, 2);
    check_shape(&tree, &src);
    for n in 0..100_000u64 {
        assert_eq!(
            tree.remove(&src, mix(n)).unwrap().as_deref(),
            Some(&n.to_le_bytes()[..])
        );
    }
    assert!(tree.is_empty() && tree.is_dirty() && tree.mem_pages() == 0);
    assert_eq!(tree.take_freed().len(), pages.len());
    assert!(src.fold(&mut tree).is_empty() && tree.root().is_none());
}

#[test]
fn removals_give_pages_back() {
    let (src, mut tree) = (Pages::default(), tree());
    (0..20_000u64).for_each(|key| assert!(tree.insert(&src, key, &[1; 20]).unwrap().is_none()));
    let full = tree.mem_pages();
    (0..20_000u64)
        .filter(|key| key % 10 > 0)
        .for_each(|key| assert!(tree.remove(&src, key).unwrap().is_some()));
    assert!(
        tree.mem_pages() * 3 < full,
        "{} of {full}",
        tree.mem_pages()
    );
    check_shape(&tree, &src);
}

#[test]
fn once_a_scan_loads_each_leaf_once_and_none_behind_its_end() {
    let (src, mut tree) = (Pages::default(), tree());
    (0..10_000u64).for_each(|key| assert!(tree.insert(&src, key, &[1; 20]).unwrap().is_none()));
    let pages = src.fold(&mut tree);
    content(&tree, &src);
    assert_eq!(src.loads.replace(0), pages.len() as u64);
    let (from, to) = (pages[5].0.first_key, pages[6].0.first_key - 1);
    tree.range(&src, from, to, &mut |_, _| Ok(ControlFlow::Continue(())))
        .unwrap();
    assert_eq!(src.loads.replace(0), 2);
}

#[test]
fn a_value_over_the_limit_is_refused() {
    let (src, mut tree) = (Pages::default(), tree());
    assert!(matches!(
        tree.insert(&src, 1, &[0; VALUE_MAX + 1]),
        Err(StoreError::TooBig(_))
    ));
    assert!(!tree.is_dirty());
    for key in 0..40 {
        tree.insert(&src, key * 7 % 40, &[0; VALUE_MAX]).unwrap();
        tree.insert(&src, key * 7 % 40, &vec![0; (key * 26) as usize])
            .unwrap();
    }
    check_shape(&tree, &src);
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let (src, mut tree) = (Pages::default(), tree());
    (0..1000u64).for_each(|key| assert!(tree.insert(&src, key * 2, &[1; 20]).unwrap().is_none()));
    let pages = src.fold(&mut tree);
    assert!(tree.remove(&src, 7).unwrap().is_none());
    let (meta, ptr) = pages[3];
    assert!(
        !tree
            .touch(&src, meta.level, meta.first_key, ptr.addr().plus(1))
            .unwrap()
    );
    assert!(
        !tree
            .touch(&src, meta.level + 1, meta.first_key, ptr.addr())
            .unwrap()
    );
    assert!(!tree.is_dirty() && tree.mem_pages() == 0 && tree.take_freed().is_empty());
    assert!(
        tree.touch(&src, meta.level, meta.first_key, ptr.addr())
            .unwrap()
    );
    assert_eq!((tree.mem_pages(), tree.take_freed().len()), (2, 2));
}

#[test]
fn a_walk_goes_on_beside_a_damaged_page() {
    let (src, mut tree) = (Pages::default(), tree());
    (0..1000u64).for_each(|key| assert!(tree.insert(&src, key, &[1; 20]).unwrap().is_none()));
    let pages = src.fold(&mut tree);
    src.stored.borrow_mut().get_mut(&pages[2].1.addr()).unwrap()[100] ^= 4;
    let (mut seen, mut errors) = (0, Vec::new());
    tree.walk_nodes(&src, &mut |_, _| seen += 1, &mut |ptr, error| {
        errors.push((ptr, error.to_string()))
    });
    assert_eq!(seen, pages.len() - 1);
    let message = format!(
        "a directory page at sector {} of object #77 is damaged",
        pages[2].1.addr().get()
    );
    assert_eq!(errors, [(pages[2].1, message)]);
}

#[test]
fn a_full_page_of_an_older_store_is_split_into_two_that_fit() {
    let leaf = Node {
        level: 0,
        items: NodeItems::Leaf(vec![(1, Box::from([0; 25]))]),
    };
    let page = leaf.encode(TreeKind::InodeMap, crate::format::page::STORE_WIDE);
    let child = |at: u64| Child::Disk(PagePtr::seal(Sector::new(at), &page));
    // As many as a page holds whose pointers name no second copies, and one more.
    let items: Vec<_> = (0..204).map(|key| (key, child(key + 1))).collect();
    let last = items.len() - 1;
    let items = NodeItems::Inner(items);
    let mut node = Node { level: 1, items };
    let right = split_if_over(&mut node, last, TreeKind::InodeMap).unwrap();
    let right = Node {
        level: 1,
        items: right,
    };
    assert_eq!(node.len() + right.len(), 204);
    for part in [node, right] {
        assert!(part.encoded_len(TreeKind::InodeMap) <= PAGE_MAX);
    }
}
