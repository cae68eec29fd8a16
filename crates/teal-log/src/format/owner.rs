//! The machine that a record's header names as the owner of the store.

/// Bytes of a machine's name that are kept.
pub(crate) const MACHINE_NAME_BYTES: usize = 64;

/// A machine that may have a store open for writing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StoreOwner {
    /// Identifies the machine; zero: not known.
    pub machine: [u8; 16],
    /// Identifies the time since it was started.
    pub boot: [u8; 16],
    /// Its name, UTF-8, padded with zeros.
    pub(crate) name: [u8; MACHINE_NAME_BYTES],
}

impl Default for StoreOwner {
    fn default() -> Self {
        Self {
            machine: [0; 16],
            boot: [0; 16],
            name: [0; MACHINE_NAME_BYTES],
        }
    }
}

impl std::fmt::Debug for StoreOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Owner").field(&self.name()).finish()
    }
}

impl StoreOwner {
    /// A machine of this name, which is cut to 64 bytes.
    pub fn new(machine: [u8; 16], boot: [u8; 16], name: &str) -> Self {
        let mut kept = [0; MACHINE_NAME_BYTES];
        let mut end = name.len().min(MACHINE_NAME_BYTES);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        kept[..end].copy_from_slice(&name.as_bytes()[..end]);
        Self {
            machine,
            boot,
            name: kept,
        }
    }

    /// Its name for people.
    pub fn name(&self) -> String {
        let end = self
            .name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(MACHINE_NAME_BYTES);
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }

    /// Returns whether it says nothing: a store that is opened so is not marked, and no mark is
    /// looked at.
    pub fn is_unknown(&self) -> bool {
        self.machine == [0; 16]
    }

    /// Returns whether both are one machine. While it runs, its name may change, and a container on
    /// it may have another one.
    pub fn is_same_machine(&self, other: &Self) -> bool {
        self.machine == other.machine || self.boot == other.boot
    }
}
