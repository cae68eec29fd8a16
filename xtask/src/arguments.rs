//! Values of arguments that several commands take.

use clap::builder::RangedU64ValueParser;

/// Takes a count that is at least `least`.
pub(crate) fn count(least: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..)
}

/// Takes a number above zero.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 => Ok(number),
        Ok(_) => Err("it must be above zero".to_owned()),
        Err(e) => Err(format!("{e}")),
    }
}

/// Parses the arguments of one command.
#[cfg(test)]
pub(crate) fn parse<A: clap::Args>(arguments: &[&str]) -> Result<A, clap::Error> {
    let command = A::augment_args(clap::Command::new("test").no_binary_name(true));
    A::from_arg_matches(&command.try_get_matches_from(arguments)?)
}
