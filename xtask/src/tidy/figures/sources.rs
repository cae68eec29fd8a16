//! The source files of the workspace's crates, files of tests left out.

use super::code_mask::mask_text;
use super::pattern::pattern;
use anyhow::{Context as _, Result};
use regex::Regex;
use std::path::{Path, PathBuf};

/// Folders with files that are no part of the product.
const FOLDERS_LEFT_OUT: &[&str] = &["target", ".git", "tests", "benches", "examples", "fuzz"];

/// One source file that isn't a file of tests.
#[derive(Debug)]
pub(super) struct SourceFile {
    /// The path below the crate's folder, with `/`.
    pub(super) path: String,
    /// The whole text, its tests included.
    pub(super) text: String,
}

/// The source files of one crate, files of tests left out.
#[derive(Debug)]
pub(super) struct CrateSources {
    pub(super) name: String,
    pub(super) files: Vec<SourceFile>,
}

/// Reads the crates in `root/crates`, and `xtask`.
pub(super) fn read_crates(root: &Path) -> Result<Vec<CrateSources>> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root.join("crates"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    folders.push(root.join("xtask"));
    folders.retain(|folder| folder.join("Cargo.toml").is_file());
    folders.sort();
    folders.iter().map(|folder| read_crate(folder)).collect()
}

fn read_crate(folder: &Path) -> Result<CrateSources> {
    let name = folder.file_name().context("a crate's folder has a name")?;
    let mut files = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(current) = waiting.pop() {
        for entry in std::fs::read_dir(&current)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                // Tests and examples may be written as they need to be.
                if !FOLDERS_LEFT_OUT.contains(&&*name) {
                    waiting.push(path);
                }
            } else if is_product_source(&name) {
                let text =
                    std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                let path = path
                    .strip_prefix(folder)?
                    .to_string_lossy()
                    .replace('\\', "/");
                files.push(SourceFile { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let name = name.to_string_lossy().into_owned();
    Ok(CrateSources { name, files })
}

fn is_product_source(name: &str) -> bool {
    name.ends_with(".rs")
        && !["tests.rs", "test.rs"].contains(&name)
        && !name.ends_with("_tests.rs")
}

impl SourceFile {
    /// Returns the text before the file's first module of tests.
    pub(super) fn product_text(&self) -> &str {
        pattern!(TESTS, r"#\[cfg\(test\)\]\s*\nmod \w+ \{");
        let end = TESTS
            .find(&mask_text(&self.text))
            .map_or(self.text.len(), |found| found.start());
        &self.text[..end]
    }
}

impl CrateSources {
    /// Returns the names of the crate's structures, enumerations and traits, in the order of its
    /// files.
    pub(super) fn type_names(&self) -> Vec<&str> {
        pattern!(
            TYPES,
            r"(?m)^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait) ([A-Z]\w*)"
        );
        self.capture_names(&TYPES)
    }

    /// Returns the names of the crate's functions and methods, in the order of its files.
    pub(super) fn function_names(&self) -> Vec<&str> {
        pattern!(
            FUNCTIONS,
            r"(?m)^\s*(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe )*fn ([a-z_0-9]+)"
        );
        self.capture_names(&FUNCTIONS)
    }

    fn capture_names(&self, pattern: &Regex) -> Vec<&str> {
        let names = self.files.iter().flat_map(|file| {
            let found = pattern.captures_iter(file.product_text());
            found.map(|found| found.get(1).map_or("", |name| name.as_str()))
        });
        names.collect()
    }
}
