//! Hides comments and literals of a source text, so that only code is searched.

use super::pattern::pattern;
use regex::Captures;

/// Returns `text` with a blank for each byte of its comments, strings and characters; lines and the
/// places of everything else stay.
pub(super) fn mask_text(text: &str) -> String {
    // Whichever begins first wins: a quote in a comment opens no string, and `//` in a string
    // begins no comment.
    pattern!(
        HIDDEN,
        concat!(
            r"(?s)//[^\n]*|/\*.*?\*/",
            r##"|\br"[^"]*"|\br#".*?"#"##,
            r###"|\br##".*?"##"###,
            r#"|"(?:\\.|[^"\\])*""#,
            r"|'(?:\\'|\\[^\n']*|[^'\\\n])'",
        )
    );
    let masked = HIDDEN.replace_all(text, |found: &Captures<'_>| {
        let blank = |byte| if byte == b'\n' { '\n' } else { ' ' };
        found[0].bytes().map(blank).collect::<String>()
    });
    debug_assert_eq!(masked.len(), text.len(), "places stay as they are");
    masked.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comments_and_literals_are_hidden() {
        for (text, masked) in [
            ("a // \"b\nc", "a      \nc"),
            ("a \"// b\" c", "a        c"),
            ("a /* b\n*/ c", "a     \n   c"),
            ("r#\"a \" b\"# c", "           c"),
            ("\"a\\\" b\" c", "        c"),
            ("'\"' a '\\'' b", "    a      b"),
            ("fn f<'a>(b: &'a str)", "fn f<'a>(b: &'a str)"),
        ] {
            assert_eq!(mask_text(text), masked, "{text}");
        }
    }
}
