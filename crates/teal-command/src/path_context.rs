//! The path of a file in the errors about it.

use anyhow::{Context, Result};
use std::path::Path;

/// Says which file an error is about.
pub trait PathContext<T> {
    /// Puts the path in front of the error, if there is one.
    ///
    /// # Errors
    /// The error, with the path.
    fn with_path(self, path: &Path) -> Result<T>;
}

impl<T, E> PathContext<T> for std::result::Result<T, E>
where
    Self: Context<T, E>,
{
    fn with_path(self, path: &Path) -> Result<T> {
        self.with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_begins_with_the_path_that_it_is_about() {
        let failed: std::io::Result<()> = Err(std::io::Error::other("no space"));
        let error = failed.with_path(Path::new("/a/b")).unwrap_err();
        assert_eq!(format!("{error:#}"), "/a/b: no space");
    }
}
