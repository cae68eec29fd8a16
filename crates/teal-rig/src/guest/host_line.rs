//! Connects a guest with its host: the guest sends a word and perhaps more, and gets a line as the
//! answer (`host.rs` has the table).

use super::job::{ADDRESSES, PORTS};
use anyhow::{Context, Result};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

/// Holds the line to the host, which counts.
#[derive(Debug)]
pub(crate) struct HostLine(BufReader<TcpStream>);

impl HostLine {
    pub(super) fn connect() -> Result<Self> {
        let stream = TcpStream::connect((ADDRESSES[0], PORTS[1])).context("no line to the host")?;
        stream.set_nodelay(true).context("the line to the host")?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(super) fn send_word(&mut self, what: &str) -> Result<String> {
        self.0
            .get_mut()
            .write_all(format!("{what}\n").as_bytes())
            .context("the host does not listen")?;
        let mut answer = String::new();
        self.0
            .read_line(&mut answer)
            .context("the host does not answer")?;
        Ok(answer)
    }

    /// Tells that counting begins.
    pub(super) fn tell_begin(&mut self) -> Result<()> {
        self.send_word("begin").map(drop)
    }

    /// Tells that the last operation is done.
    pub(super) fn tell_ran(&mut self) -> Result<()> {
        self.send_word("ran").map(drop)
    }

    /// Tells that all data is written.
    pub(super) fn tell_drained(&mut self) -> Result<()> {
        self.send_word("drained").map(drop)
    }
}
