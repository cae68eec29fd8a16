//! What a program said when it ended.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

/// Exit status and output of a program.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// The exit status; 128 and the number of the signal that ended it.
    pub code: i32,
    /// Its output.
    pub stdout: String,
    /// Its complaints.
    pub stderr: String,
}

impl Said {
    /// The program did its work; its output.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, 0, "{self}");
        self.stdout
    }

    /// The program refused: exit status 1 and one line, which it gives.
    #[track_caller]
    pub(crate) fn refused(self) -> String {
        assert_eq!((self.code, self.stderr.lines().count()), (1, 1), "{self}");
        self.stderr.trim_end().to_owned()
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exit status {}\nstdout: {}\nstderr: {}",
            self.code, self.stdout, self.stderr
        )
    }
}

/// Runs a program to its end, without input.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Said {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let code = output
        .status
        .code()
        .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    Said {
        code,
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
