//! Names the file in the error of an operation on it.

use anyhow::{Context, Result};
use std::path::Path;

/// Adds the path of a file to an error.
pub trait PathContext<T, E>: Context<T, E> + Sized {
    /// Names the file that the operation was about.
    ///
    /// # Errors
    /// Returns the error of the operation, with the path before it.
    fn at_path(self, path: &Path) -> Result<T> {
        self.with_context(|| path.display().to_string())
    }
}

impl<C: Context<T, E>, T, E> PathContext<T, E> for C {}
