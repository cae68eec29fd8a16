//! Two network namespaces with a cable between them, which stand for two machines.
//!
//! # Guarantees
//! 1. Nothing has a name that another run could have too, and nothing is left when the test is
//!    killed: a namespace lives as long as a process lives in it, and the process that keeps it
//!    ends when the test's end of a pipe closes.

use std::io::{self, BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The name of each end of the cable.
const END: &str = "cable";

/// A network namespace.
#[derive(Debug)]
pub struct NetworkNamespace {
    keeper: Child,
}

impl NetworkNamespace {
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        // It ends at the end of its input.
        command.args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up && echo here && exec cat",
        ]);
        let mut keeper = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut said = String::new();
        let heard = BufReader::new(keeper.stdout.take()?).read_line(&mut said);
        let this = Self { keeper };
        (heard.is_ok() && said.trim() == "here").then_some(this)
    }

    /// Returns a command that runs a program in the namespace.
    pub fn command_inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.namespace_path().display()))
            .arg("--")
            .arg(program);
        command
    }

    /// Returns the path of the namespace, which exists as long as this value.
    pub fn namespace_path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.keeper.id()).into()
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // The keeper ends with its input, and the namespace with the keeper.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn run_checked(command: &mut Command) -> io::Result<()> {
    let done = command.stdin(Stdio::null()).output()?;
    let said = || {
        io::Error::other(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        ))
    };
    if done.status.success() {
        Ok(())
    } else {
        Err(said())
    }
}

/// Two network namespaces, connected by a pair of virtual Ethernet devices.
#[derive(Debug)]
pub struct NetworkCable([Arc<NetworkNamespace>; 2]);

impl NetworkCable {
    /// The machines' addresses.
    pub const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

    /// Makes two namespaces and connects them; `None` where there are no namespaces: that needs
    /// root, and the Debian package iproute2.
    ///
    /// # Errors
    /// When they cannot be connected.
    pub fn new() -> io::Result<Option<Self>> {
        let (Some(one), Some(other)) = (NetworkNamespace::new(), NetworkNamespace::new()) else {
            return Ok(None);
        };
        let ends = [Arc::new(one), Arc::new(other)];
        let [one, other] = ends.each_ref().map(|end| end.keeper.id().to_string());
        // Both ends are made inside their namespaces, so that the name is never seen outside.
        let pair = [
            "link", "add", END, "netns", &one, "type", "veth", "peer", "name", END, "netns", &other,
        ];
        run_checked(Command::new("ip").args(pair))?;
        for (end, address) in ends.iter().zip(Self::ADDRESSES) {
            run_checked(end.command_inside("ip").args([
                "address",
                "add",
                &format!("{address}/24"),
                "dev",
                END,
            ]))?;
        }
        let this = Self(ends);
        this.plug(0)?;
        this.plug(1)?;
        Ok(Some(this))
    }

    /// Returns the namespace at an end, 0 or 1.
    pub fn namespace_at(&self, end: usize) -> &Arc<NetworkNamespace> {
        &self.0[end]
    }

    /// Takes the end of one machine down: it has no way to the other any more, and the packets of
    /// the other vanish.
    ///
    /// # Errors
    /// The message of `ip`.
    pub fn unplug(&self, end: usize) -> io::Result<()> {
        run_checked(
            self.0[end]
                .command_inside("ip")
                .args(["link", "set", END, "down"]),
        )
    }

    /// Brings the end of one machine up again.
    ///
    /// # Errors
    /// The message of `ip`.
    pub fn plug(&self, end: usize) -> io::Result<()> {
        run_checked(
            self.0[end]
                .command_inside("ip")
                .args(["link", "set", END, "up"]),
        )
    }

    /// Limits each way to so many megabits a second, by a token bucket (tbf); packets that find no
    /// room in its queue are lost.
    ///
    /// # Errors
    /// The message of `tc`.
    pub fn limit_rate(&self, mbit: f64) -> io::Result<()> {
        let rate = format!("{}bit", (mbit * 1e6) as u64);
        let bucket = ["tbf", "rate", &rate, "burst", "16kb", "latency", "300ms"];
        self.0.iter().try_for_each(|machine| {
            run_checked(
                machine
                    .command_inside("tc")
                    .args(["qdisc", "replace", "dev", END, "root"])
                    .args(bucket),
            )
        })
    }
}
