//! Finds import circles: sets of modules of one crate that reach each other through their `use`
//! paths.

use super::code_mask::mask_text;
use super::pattern::pattern;
use super::sources::CrateSources;
use std::collections::{BTreeMap, BTreeSet};

/// The path of a module inside its crate; empty for the crate's root.
type ModulePath = Vec<String>;

/// Returns the percentage of the lines in `src` that belong to the crate's largest circle.
pub(super) fn largest_circle_percent(sources: &CrateSources) -> f64 {
    let graph = ModuleGraph::from_sources(sources);
    let total: usize = graph.lines.values().sum();
    let largest = graph
        .find_circles()
        .iter()
        .map(|circle| graph.lines_of(circle))
        .max();
    debug_assert!(
        largest.unwrap_or_default() <= total,
        "a circle is a part of the crate"
    );
    let percent = 1000.0 * largest.unwrap_or_default() as f64 / total.max(1) as f64;
    percent.round() / 10.0
}

/// The modules of a crate, and which of them uses which.
struct ModuleGraph {
    lines: BTreeMap<ModulePath, usize>,
    uses: BTreeMap<ModulePath, BTreeSet<ModulePath>>,
}

impl ModuleGraph {
    fn from_sources(sources: &CrateSources) -> Self {
        let mut imports = BTreeMap::new();
        let mut lines = BTreeMap::new();
        for file in &sources.files {
            let Some(module) = module_of(&file.path) else {
                continue;
            };
            lines.insert(module.clone(), file.text.matches('\n').count());
            imports.insert(module, file.text.as_str());
        }
        // All modules must be known before paths can be resolved.
        let names = NameTable::from_texts(&imports);
        let mut uses: BTreeMap<ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
        for (module, paths) in &names.used {
            let targets = paths
                .iter()
                .filter_map(|path| names.resolve_module(path, 0));
            let others = targets.filter(|target| target != module);
            uses.insert(module.clone(), others.collect());
        }
        Self { lines, uses }
    }

    fn lines_of(&self, circle: &[ModulePath]) -> usize {
        circle.iter().map(|module| self.lines[module]).sum()
    }

    /// Returns the sets of two or more modules that reach each other.
    fn find_circles(&self) -> Vec<Vec<ModulePath>> {
        let reached: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = self
            .lines
            .keys()
            .map(|module| (module, self.reached_from(module)))
            .collect();
        let mut placed = BTreeSet::new();
        let mut circles = Vec::new();
        for (module, targets) in &reached {
            let mutual = targets
                .iter()
                .filter(|target| reached[*target].contains(*module));
            let circle: Vec<ModulePath> = mutual.map(|target| (*target).clone()).collect();
            // Each member of a circle finds the same circle: it is kept once.
            if circle.len() > 1 && placed.insert(circle.clone()) {
                circles.push(circle);
            }
        }
        circles
    }

    /// Returns every module that `start` uses, directly or through others.
    fn reached_from(&self, start: &ModulePath) -> BTreeSet<&ModulePath> {
        let mut reached = BTreeSet::new();
        let mut waiting: Vec<&ModulePath> = self.uses[start].iter().collect();
        while let Some(module) = waiting.pop() {
            debug_assert!(self.lines.contains_key(module), "every target is a module");
            if reached.insert(module) {
                waiting.extend(&self.uses[module]);
            }
        }
        reached
    }
}

/// Returns the module that the file at `path` holds; none if the file lies outside `src`.
fn module_of(path: &str) -> Option<ModulePath> {
    let stem = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    if stem == "lib" || stem == "main" {
        return Some(Vec::new());
    }
    Some(stem.split('/').map(str::to_owned).collect())
}

/// The names each module defines, passes on, and uses, as paths from the crate's root.
struct NameTable {
    defined: BTreeMap<ModulePath, BTreeSet<String>>,
    exported: BTreeMap<ModulePath, BTreeMap<String, Vec<String>>>,
    used: BTreeMap<ModulePath, Vec<Vec<String>>>,
}

impl NameTable {
    fn from_texts(texts: &BTreeMap<ModulePath, &str>) -> Self {
        let mut table = Self {
            defined: BTreeMap::new(),
            exported: BTreeMap::new(),
            used: BTreeMap::new(),
        };
        for (module, text) in texts {
            table.defined.insert(module.clone(), defined_names(text));
            table.exported.insert(module.clone(), BTreeMap::new());
        }
        for (module, text) in texts {
            table.add_uses(module, &without_tests(text));
        }
        table
    }

    fn is_module(&self, path: &[String]) -> bool {
        self.defined.contains_key(path)
    }

    fn add_uses(&mut self, module: &ModulePath, code: &str) {
        pattern!(USE, r"(?m)^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);");
        pattern!(INLINE, r"\b((?:crate|super)(?:::\w+)+)");
        pattern!(CHILD, r"\b([a-z_]+)::(\w+)");
        let mut used = Vec::new();
        for found in USE.captures_iter(code) {
            for path in expand_use_tree(&found[2]) {
                let Some(path) = self.resolve_from_root(module, &path) else {
                    continue;
                };
                if let (Some(_), Some(name)) = (found.get(1), path.last()) {
                    let exported = self.exported.entry(module.clone()).or_default();
                    exported.insert(name.clone(), path.clone());
                }
                used.push(path);
            }
        }
        for found in INLINE.captures_iter(code) {
            let path: Vec<String> = found[1].split("::").map(str::to_owned).collect();
            used.extend(self.resolve_from_root(module, &path));
        }
        for found in CHILD.captures_iter(code) {
            let mut path = module.clone();
            path.push(found[1].to_owned());
            if self.is_module(&path) {
                path.push(found[2].to_owned());
                used.push(path);
            }
        }
        self.used.insert(module.clone(), used);
    }

    /// Returns `path`, as written in `module`, as a path from the crate's root; none if it leads to
    /// another crate.
    fn resolve_from_root(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let first = path.first()?;
        match first.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let parent = &module[..module.len().saturating_sub(ups)];
                Some([parent, &path[ups..]].concat())
            }
            _ => {
                // A path may begin with a child module, without `self`.
                let child = [module, std::slice::from_ref(first)].concat();
                self.is_module(&child).then(|| [module, path].concat())
            }
        }
    }

    /// Returns the module in which `path` ends, through names that modules pass on.
    fn resolve_module(&self, path: &[String], depth: usize) -> Option<ModulePath> {
        const DEPTH_MAX: usize = 6;
        // The longest prefix that is a module; the next part is a name in it.
        let length = (0..=path.len())
            .rev()
            .find(|length| self.is_module(&path[..*length]))?;
        let module = &path[..length];
        let Some(name) = path.get(length) else {
            return Some(module.to_vec());
        };
        let passed_on = self.exported[module].get(name);
        match passed_on {
            Some(target) if depth < DEPTH_MAX && !self.defined[module].contains(name) => {
                let further = [target.as_slice(), &path[length + 1..]].concat();
                self.resolve_module(&further, depth + 1)
            }
            _ => Some(module.to_vec()),
        }
    }
}

fn defined_names(text: &str) -> BTreeSet<String> {
    pattern!(
        DEFINITION,
        r"(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe |const |async )*(?:fn|struct|enum|trait|type|const|static|macro_rules!)\s+(\w+)"
    );
    DEFINITION
        .captures_iter(text)
        .map(|found| found[1].to_owned())
        .collect()
}

/// Returns `text` up to its first item for tests, without comments.
fn without_tests(text: &str) -> String {
    pattern!(TESTS, r"#\[cfg\((?:all\()?test");
    pattern!(COMMENT, r"//.*");
    let code = mask_text(text);
    let end = TESTS.find(&code).map_or(text.len(), |found| found.start());
    COMMENT.replace_all(&text[..end], "").into_owned()
}

/// Returns the paths that a `use` declaration names, its braces resolved and new names left out.
fn expand_use_tree(tree: &str) -> Vec<Vec<String>> {
    pattern!(RENAME, r"\s+as\s+\w+$");
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path = RENAME.replace(tree, "");
        return vec![path_parts(&path)];
    };
    let close = tree.rfind('}').unwrap_or(tree.len());
    let prefix = path_parts(&tree[..open]);
    let branches = split_at_commas(&tree[open + 1..close]);
    let paths = branches.into_iter().flat_map(expand_use_tree);
    paths
        .map(|path| [prefix.as_slice(), &path].concat())
        .collect()
}

fn path_parts(path: &str) -> Vec<String> {
    let parts = path
        .split("::")
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// Splits `list` at the commas that lie in no braces.
fn split_at_commas(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}
