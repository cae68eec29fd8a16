//! Real programs that tests run: finding them, running them to their end, and reading their output.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Exit status and output of a program.
#[derive(Debug, Clone)]
pub struct ProgramOutput {
    /// The exit status; 128 and the number of the signal that ended it.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its messages on standard error.
    pub stderr: String,
}

impl ProgramOutput {
    /// Returns the output of a program that must have done its work.
    ///
    /// # Panics
    /// If its exit status is not 0.
    #[track_caller]
    pub fn expect_success(self) -> String {
        assert_eq!(self.code, 0, "{self}");
        self.stdout
    }

    /// Returns the one line in which a program must have refused.
    ///
    /// # Panics
    /// If its exit status is not 1, or it said more or less than a line.
    #[track_caller]
    pub fn expect_refusal(self) -> String {
        assert_eq!((self.code, self.stderr.lines().count()), (1, 1), "{self}");
        self.stderr.trim_end().to_owned()
    }
}

impl fmt::Display for ProgramOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exit status {}\nstdout: {}\nstderr: {}",
            self.code, self.stdout, self.stderr
        )
    }
}

/// Runs a program to its end, without input.
///
/// # Panics
/// If it cannot be started.
#[track_caller]
pub fn run_program(command: &mut Command) -> ProgramOutput {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    // A shell reports signals in the same way.
    let code = output
        .status
        .code()
        .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    ProgramOutput {
        code,
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Returns the program `name` in `PATH`, in one of `also`, or where only root has it in `PATH`.
pub fn find_program(name: &str, also: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let places = std::env::split_paths(&path)
        .chain(also.iter().map(PathBuf::from))
        .chain(system);
    places.map(|dir| dir.join(name)).find(|file| file.is_file())
}
