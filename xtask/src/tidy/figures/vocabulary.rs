//! Holds names to the glossary: its types exist, and words that were given up do not come back.

use super::pattern::pattern;
use super::sources::CrateSources;
use crate::tidy::finding::Finding;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const PATH: &str = "xtask/forbidden-words.toml";
const GLOSSARY_PATH: &str = "docs/glossary.md";

const HEADER: &str = "\
# Words that are no names of types or functions, with the better word. `remains` counts the uses \
    that are left in each crate.
# `cargo xtask tidy` refuses more uses of a word in the workspace than are left; `cargo xtask \
    tidy --figures --write` records
# fewer. Counting the workspace as a whole lets code move from crate to crate.

";

/// The glossary, and the words that are given up.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    words: ForbiddenWords,
    glossary: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForbiddenWords {
    #[serde(default)]
    words: Vec<ForbiddenWord>,
}

/// A word that must not be the whole name of a type, or of a function.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForbiddenWord {
    word: String,
    better: String,
    /// The number of types and functions that still have this name, by crate.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    remains: BTreeMap<String, usize>,
}

impl Vocabulary {
    pub(super) fn read(root: &Path) -> Result<Self> {
        Ok(Self {
            words: toml::from_str(&text_of(root, PATH)?).context(PATH)?,
            glossary: text_of(root, GLOSSARY_PATH)?,
        })
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let text = HEADER.to_owned() + &toml::to_string(&self.words)?;
        std::fs::write(root.join(PATH), text).context(PATH)
    }

    /// Records how many uses of each word are left, where these are fewer than recorded.
    pub(super) fn record_fewer(&mut self, crates: &[CrateSources]) {
        for word in &mut self.words.words {
            let uses = word.count_uses(crates);
            // Code may move between crates: only the sum counts.
            if uses.values().sum::<usize>() <= word.allowed_uses() {
                word.remains = uses;
            }
        }
    }

    pub(super) fn check_words(&self, crates: &[CrateSources]) -> Vec<Finding> {
        let mut findings = self.check_glossary(crates);
        for word in &self.words.words {
            let uses = word.count_uses(crates);
            if uses.values().sum::<usize>() > word.allowed_uses() {
                let advice = format!(
                    "`{}` names a type or function in {uses:?}, more than the list has; say {}",
                    word.word, word.better
                );
                findings.push(Finding::new(PATH, 1, "vocabulary", advice));
            }
        }
        findings
    }

    /// Returns a finding for each type the glossary names that doesn't exist, and for each term
    /// that it explains twice.
    fn check_glossary(&self, crates: &[CrateSources]) -> Vec<Finding> {
        pattern!(ENTRY, r"^- \*\*([^*]+)\*\*([^:]*):");
        pattern!(TYPE, r"`([A-Z]\w*)`");
        let types: BTreeSet<&str> = crates.iter().flat_map(CrateSources::type_names).collect();
        let mut terms = BTreeSet::new();
        let mut findings = Vec::new();
        for (at, line) in self.glossary.lines().enumerate() {
            let Some(entry) = ENTRY.captures(line) else {
                continue;
            };
            if !terms.insert(entry[1].to_lowercase()) {
                let advice = format!(
                    "`{}` is explained twice: one word has one meaning",
                    &entry[1]
                );
                findings.push(Finding::new(GLOSSARY_PATH, at + 1, "glossary", advice));
            }
            for named in TYPE.captures_iter(&entry[2]) {
                if !types.contains(&named[1]) {
                    let advice = format!("no type is called `{}`: mend the entry", &named[1]);
                    findings.push(Finding::new(GLOSSARY_PATH, at + 1, "glossary", advice));
                }
            }
        }
        findings
    }

    #[cfg(test)]
    pub(super) fn for_test(words: &str, glossary: &str) -> Self {
        Self {
            words: toml::from_str(words).unwrap(),
            glossary: glossary.to_owned(),
        }
    }
}

impl ForbiddenWord {
    /// Returns how many types and functions of each crate have the word as their whole name.
    fn count_uses(&self, crates: &[CrateSources]) -> BTreeMap<String, usize> {
        let mut uses = BTreeMap::new();
        for sources in crates {
            let mut names = sources.type_names();
            names.extend(sources.function_names());
            let count = names.iter().filter(|name| **name == self.word).count();
            if count > 0 {
                uses.insert(sources.name.clone(), count);
            }
        }
        uses
    }

    fn allowed_uses(&self) -> usize {
        self.remains.values().sum()
    }
}

/// Returns the text of a file of the repository; an empty one if there is no such file.
fn text_of(root: &Path, path: &str) -> Result<String> {
    match std::fs::read_to_string(root.join(path)) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).context(path.to_owned()),
    }
}
