//! User-mode Linux guests: whether they can be had here, and which of a test's are there.

use super::World;
use std::fs;
use std::path::Path;

/// Returns whether a guest can run here and these programs are there; otherwise on record as
/// skipped.
pub(crate) fn has_guests(test: &str, programs: &[&str]) -> bool {
    let found = |program: &str| {
        ["/usr/bin", "/usr/sbin", "/sbin"]
            .iter()
            .any(|dir| Path::new(dir).join(program).exists())
    };
    let missing = ["linux.uml", "nbd-client"]
        .iter()
        .chain(programs)
        .find(|name| !found(name));
    let why = match missing {
        Some(name) => format!("{name} is not installed"),
        None if !Path::new("/dev/net/tun").exists() => "there are no TAP devices".into(),
        None => return true,
    };
    teal_testkit::skip_test(test, &why);
    false
}

/// Guests of a test: their kernels are found by its home in the environment.
pub(crate) fn guests_of(world: &World) -> Vec<String> {
    let home = format!("HOME={}", world.path("home").display());
    let has = |text: &[u8], word: &[u8]| text.windows(word.len()).any(|part| part == word);
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let is_ours =
            fs::read(process.path().join("environ")).is_ok_and(|vars| has(&vars, home.as_bytes()));
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        if is_ours && has(&command, b"linux.uml") {
            found.push(process.file_name().to_string_lossy().into_owned());
        }
    }
    found
}
