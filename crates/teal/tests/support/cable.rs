//! Two machines of a test's own: network namespaces with a cable between them.
//!
//! # Guarantees
//! 1. Nothing has a name that another run could have too, and nothing is left when the test is killed: a namespace lives as long as
//!    somebody lives in it, and who keeps it ends when the test's end of a pipe closes.

use super::{Said, World, run};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The machines' addresses.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// What both call their end of the cable.
const END: &str = "cable";

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Machine {
    keeper: Child,
}

impl Machine {
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        // Told by the end of its input to end.
        command.args(["--net", "sh", "-c", "ip link set lo up && echo here && exec cat"]);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut said = String::new();
        let heard = BufReader::new(keeper.stdout.take()?).read_line(&mut said);
        let this = Self { keeper };
        (heard.is_ok() && said.trim() == "here").then_some(this)
    }

    /// A program that is to run there.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace().display())).arg("--").arg(program);
        command
    }

    /// The namespace, as long as the machine lives.
    fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.keeper.id()).into()
    }

    fn ip(&self, args: &[&str]) -> Said {
        run(self.command("ip").args(args))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Two machines, and what connects them.
#[derive(Debug)]
pub(crate) struct Cable([Arc<Machine>; 2]);

impl Cable {
    /// `None`, on record as skipped, where there are no namespaces.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let made = super::is_root().then(|| Some([Arc::new(Machine::new()?), Arc::new(Machine::new()?)])).flatten();
        let Some(ends) = made else {
            teal_testkit::skip(test, "needs root, network namespaces and the Debian package iproute2");
            return None;
        };
        let [one, other] = ends.each_ref().map(|end| end.keeper.id().to_string());
        let pair = ["link", "add", END, "netns", &one, "type", "veth", "peer", "name", END, "netns", &other];
        run(Command::new("ip").args(pair)).good();
        for (end, address) in ends.iter().zip(ADDRESSES) {
            end.ip(&["address", "add", &format!("{address}/24"), "dev", END]).good();
        }
        let this = Self(ends);
        for end in 0..2 {
            this.plug(end);
        }
        Some(this)
    }

    /// The namespaces, as long as the machines live.
    pub(crate) fn namespaces(&self) -> [PathBuf; 2] {
        self.0.each_ref().map(|end| end.namespace())
    }

    /// A test's world on the first or second machine.
    pub(crate) fn world(&self, end: usize, world: World) -> World {
        world.on(Arc::clone(&self.0[end]))
    }

    /// The end of one machine goes down: it has no way to the other any more, and what the other sends vanishes.
    pub(crate) fn unplug(&self, end: usize) {
        self.0[end].ip(&["link", "set", END, "down"]).good();
    }

    pub(crate) fn plug(&self, end: usize) {
        self.0[end].ip(&["link", "set", END, "up"]).good();
    }
}
