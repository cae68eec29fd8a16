//! Regular expressions that are compiled once.

/// Declares a regular expression that is compiled at its first use.
macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: std::sync::LazyLock<regex::Regex> = std::sync::LazyLock::new(|| {
            regex::Regex::new($text).expect("the pattern is a regular expression")
        });
    };
}
pub(super) use pattern;
