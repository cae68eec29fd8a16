//! Hides names: the same name has the same hash within a trace, and only its extension can be told
//! from the hash.

use super::event::{Action, TraceEvent, TraceItem};
use super::field::Text;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::hash::Hasher as _;

/// Limits the length of an extension. A longer one, or one of other bytes than letters and digits,
/// is no extension.
const EXTENSION_MAX: usize = 8;

/// Holds the key of one trace's hashes. The key is not kept, so names cannot be guessed by trying.
pub(super) struct NameHasher([u8; 16]);

impl NameHasher {
    pub(super) fn new(key: [u8; 16]) -> Self {
        Self(key)
    }

    pub(super) fn hide_names(&self, item: &mut TraceItem) {
        match item {
            // A mark is written to be read.
            TraceItem::Event(TraceEvent {
                action: Action::Mark { .. },
                ..
            }) => {}
            TraceItem::Event(event) => event
                .action
                .change_names(&mut |text| *text = self.hash_name(text)),
            TraceItem::Called(called) => called.name = self.hash_name(&called.name),
            TraceItem::Process(process) => process.name = self.hash_name(&process.name),
            TraceItem::Dropped(_) => {}
        }
    }

    fn hash_name(&self, text: &Text) -> Text {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            // An empty name is the root's, and tells nothing.
            return Text::default();
        }
        let mut hasher = SipHasher24::new_with_key(&self.0);
        // A keyed hash: without the key, names of a small set cannot be tried out.
        hasher.write(bytes);
        let mut hidden = format!("{:016x}", hasher.finish128().h1).into_bytes();
        hidden.extend_from_slice(name_extension(bytes));
        Text::truncated(&hidden)
    }
}

/// The extension with its dot, if there is one and something before it.
fn name_extension(name: &[u8]) -> &[u8] {
    // A leading dot hides a file and begins no extension.
    let dot = name.iter().rposition(|b| *b == b'.').filter(|at| *at > 0);
    let found = dot.map_or(&[][..], |at| &name[at..]);
    let is_one = (2..=EXTENSION_MAX + 1).contains(&found.len())
        && found[1..].iter().all(u8::is_ascii_alphanumeric);
    if is_one { found } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_hashes_and_keep_their_extensions() {
        let anonymous = NameHasher::new([7; 16]);
        let hash = |name: &str| {
            String::from_utf8(
                anonymous
                    .hash_name(&Text::truncated(name.as_bytes()))
                    .as_bytes()
                    .into(),
            )
            .unwrap()
        };
        assert_eq!(hash("tax return.pdf"), hash("tax return.pdf"));
        assert!(hash("tax return.pdf").ends_with(".pdf") && hash("a.tar.gz").ends_with(".gz"));
        assert_ne!(hash("a.pdf"), hash("b.pdf"));
        for plain in ["Makefile", ".bashrc", "ends.", "mr. smith", "a.ninechars"] {
            let hidden = hash(plain);
            assert!(
                hidden.len() == 16 && hidden.bytes().all(|b| b.is_ascii_hexdigit()),
                "{plain}: {hidden}"
            );
        }
        let other = NameHasher::new([8; 16]);
        assert_ne!(
            other.hash_name(&Text::truncated(b"a")),
            anonymous.hash_name(&Text::truncated(b"a"))
        );
        assert_eq!(hash(""), "");
    }
}
