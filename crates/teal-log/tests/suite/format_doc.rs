//! `docs/format.md` and the tables beside the code say the same.

use std::path::Path;

/// The Markdown tables in the comments of a source file.
fn tables(source: &str) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    for line in source.lines().map(str::trim_start) {
        let text = line
            .strip_prefix("//!")
            .or(line.strip_prefix("///"))
            .map(str::trim_start);
        match text.filter(|t| t.starts_with('|')) {
            Some(row) => found.last_mut().unwrap().push(row.trim_end().to_owned()),
            None if !found.last().unwrap().is_empty() => found.push(Vec::new()),
            None => {}
        }
    }
    found.retain(|t| !t.is_empty());
    found
}

#[test]
fn the_document_has_every_table_of_the_code() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let doc = std::fs::read_to_string(here.join("../../docs/format.md")).unwrap();
    let mut seen = 0;
    for file in [
        "superblock",
        "anchor",
        "root_copy",
        "record",
        "delta",
        "inode",
        "extent",
        "imap",
        "usage",
        "shared",
        "future",
    ]
    .map(|n| format!("src/format/{n}.rs"))
    .into_iter()
    .chain(["src/format/page.rs".to_owned()])
    {
        for table in tables(&std::fs::read_to_string(here.join(&file)).unwrap()) {
            seen += 1;
            assert!(
                doc.contains(&table.join("\n")),
                "docs/format.md lacks or changes this table of {file}:\n{}",
                table.join("\n")
            );
        }
    }
    assert!(
        seen >= 14,
        "only {seen} tables were found: has their form changed?"
    );
}
