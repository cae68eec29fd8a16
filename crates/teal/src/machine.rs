//! Which machine this is, for the mark that a store carries while it is open.

use anyhow::{Context, Result};
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::hash::Hasher as _;
use std::io::Write as _;
use std::path::Path;
use teal_command::paths;
use teal_env::{Entropy as _, SystemEntropy};
use teal_log::StoreOwner;

/// The files in which systems keep the number of the machine, as 32 hexadecimal digits.
const FILES: &[&str] = &["/etc/machine-id", "/var/lib/dbus/machine-id"];
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Stores do not show the machine's number itself, which is to stay on the machine.
const KEY: &[u8; 16] = b"TealFS owner v1\0";

/// This machine. A system that has no number gets one, which is kept.
///
/// # Errors
/// The system has no number, and none can be kept.
pub(crate) fn this_machine() -> Result<StoreOwner> {
    // The number of the system comes first, because other programs know the machine by it.
    let mut known = None;
    for file in FILES {
        if known.is_none() {
            known = read_machine_id(Path::new(file));
        }
    }
    let number = known.map_or_else(own_number, Ok)?;
    // Without it the machine is still told by its number.
    let boot = read_machine_id(Path::new(BOOT)).unwrap_or(number);
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let mut hasher = SipHasher24::new_with_key(KEY);
    hasher.write(&number);
    Ok(StoreOwner::new(hasher.finish128().as_bytes(), boot, &name))
}

/// Returns the number in a file, if it is one.
fn read_machine_id(file: &Path) -> Option<[u8; 16]> {
    parse_machine_id(&std::fs::read_to_string(file).ok()?)
}

/// Returns the sixteen bytes that `text` says in hexadecimal digits; `None` if it says anything
/// else, or only zeros.
fn parse_machine_id(text: &str) -> Option<[u8; 16]> {
    let digits = text.trim().replace('-', "");
    let value = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32 && value != 0).then(|| value.to_be_bytes())
}

/// Returns the number that this program keeps where the system has none.
fn own_number() -> Result<[u8; 16]> {
    let file = paths::machine_file()?;
    if let Some(number) = read_machine_id(&file) {
        return Ok(number);
    }
    let new = SystemEntropy.random_id();
    write_new(&file, &new).with_context(|| {
        format!(
            "no number of this machine can be kept in {}",
            file.display()
        )
    })?;
    // Another program may have been faster: then its number is the one that counts.
    Ok(read_machine_id(&file).unwrap_or(new))
}

/// Writes the file unless it exists: of several programs that begin at once, the first one's number
/// stays.
fn write_new(file: &Path, number: &[u8; 16]) -> std::io::Result<()> {
    // The file gets its content before it gets its name, so that no program reads half a number.
    let new = file.with_extension(std::process::id().to_string());
    let mut written = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&new)?;
    writeln!(written, "{:032x}", u128::from_be_bytes(*number))?;
    written.sync_all()?;
    // A hard link fails where the name exists; a rename would replace it.
    let named = std::fs::hard_link(&new, file);
    std::fs::remove_file(&new)?;
    named.or_else(|e| {
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            Ok(())
        } else {
            Err(e)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_are_taken() {
        let known = Some(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes());
        assert_eq!(
            parse_machine_id("0123456789abcdef0123456789abcdef\n"),
            known
        );
        assert_eq!(
            parse_machine_id("01234567-89ab-cdef-0123-456789abcdef\n"),
            known
        );
        for text in [
            "",
            "uninitialized\n",
            "00000000000000000000000000000000",
            "0123456789abcdef",
        ] {
            assert_eq!(parse_machine_id(text), None, "{text}");
        }
    }
}
