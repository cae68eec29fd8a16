//! A volume served by one daemon, and replicas of it that joined over a line of some length.

use super::super::programs::run_program;
use super::super::undo::{self, UndoStep};
use super::delay_proxy::DelayProxy;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use teal_testkit::{NetworkCable, NetworkNamespace};

/// Bytes of a store; taken as they are used.
const SIZE: &str = "2G";

/// The counters of the requests between a replica and its server, from `teal status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct UpstreamCounts(pub(in super::super) BTreeMap<String, u64>);

impl UpstreamCounts {
    pub(in super::super) fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(in super::super) fn since(&self, before: &Self) -> Self {
        Self(
            self.0
                .iter()
                .map(|(name, count)| (name.clone(), count - before.get(name)))
                .collect(),
        )
    }
}

/// One daemon and its mount.
#[derive(Debug)]
pub(in super::super) struct BenchReplica {
    program: PathBuf,
    dir: PathBuf,
    point: PathBuf,
    store: PathBuf,
    /// The namespace in which it runs; `None` if that is this machine's own.
    machine: Option<Arc<NetworkNamespace>>,
}

/// The address and the token with which another machine joins.
#[derive(Debug, PartialEq, Eq)]
struct JoinInvitation {
    address: String,
    token: String,
}

/// Returns the invitation in the output of `teal serve`.
fn parse_invitation(said: &str) -> Result<JoinInvitation> {
    let word = |before: &str| {
        said.split(before)
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next())
    };
    let address = word("is served on ").with_context(|| format!("no address in {said:?}"))?;
    let token = word("--token ").with_context(|| format!("no token in {said:?}"))?;
    Ok(JoinInvitation {
        address: address.trim_end_matches(',').to_owned(),
        token: token.to_owned(),
    })
}

impl BenchReplica {
    fn new(program: &Path, dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (point, store) = (dir.join("Teal"), dir.join("store.teal"));
        undo::note_undo(UndoStep::Mount(point.clone()));
        Ok(Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            point,
            store,
            machine: None,
        })
    }

    /// Serves a volume, to which others are invited later.
    pub(in super::super) fn serve_volume(program: &Path, dir: &Path) -> Result<Self> {
        Ok(Self::serve_with_invitation(program, dir)?.0)
    }

    /// Serves a volume, and returns the invitation for others.
    fn serve_with_invitation(program: &Path, dir: &Path) -> Result<(Self, JoinInvitation)> {
        let this = Self::new(program, dir)?;
        let said = this.run_teal(&[
            "serve",
            "--size",
            SIZE,
            "--listen",
            "127.0.0.1:0",
            "--device",
            "nas",
        ])?;
        Ok((this, parse_invitation(&said)?))
    }

    /// Makes a replica that reaches its server through a proxy.
    fn join_over(
        program: &Path,
        dir: &Path,
        device: &str,
        token: &str,
        road: &DelayProxy,
    ) -> Result<Self> {
        Self::new(program, dir)?.finish_join(device, token, road)
    }

    fn finish_join(self, device: &str, token: &str, road: &DelayProxy) -> Result<Self> {
        let this = self;
        let address = road.address().to_string();
        this.run_teal(&[
            "join", &address, "--token", token, "--size", SIZE, "--device", device,
        ])?;
        Ok(this)
    }

    /// Returns a command for the program in a home of its own.
    pub(in super::super) fn command(&self) -> Command {
        let here = || Command::new(&self.program);
        let there = |machine: &Arc<NetworkNamespace>| {
            machine.command_inside(&self.program.to_string_lossy())
        };
        let mut command = self.machine.as_ref().map_or_else(here, there);
        // Each daemon has a home of its own, so that two of them do not share sockets and stores.
        for variable in ["HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"] {
            command.env(variable, &self.dir);
        }
        command
    }

    /// Runs a command that takes a mount point and a store.
    fn run_teal(&self, args: &[&str]) -> Result<String> {
        let (first, rest) = args.split_first().context("no command")?;
        let mut command = self.command();
        command.arg(first);
        // `join` has the host before the mount point.
        let (places, options) = if *first == "join" {
            rest.split_at(1)
        } else {
            rest.split_at(0)
        };
        command
            .args(places)
            .arg(&self.point)
            .arg("--store")
            .arg(&self.store)
            .args(options);
        run_program(&mut command)
    }

    pub(in super::super) fn mount_point(&self) -> &Path {
        &self.point
    }

    pub(in super::super) fn flush(&self) -> Result<()> {
        run_program(self.command().arg("flush").arg(&self.point)).map(drop)
    }

    pub(in super::super) fn unmount(&self) -> Result<()> {
        run_program(self.command().arg("down").arg(&self.point)).map(drop)
    }

    /// Runs `teal device …` on the mount.
    pub(in super::super) fn teal_device(&self, args: &[&str]) -> Result<String> {
        run_program(self.command().arg("device").args(args).arg(&self.point))
    }

    /// Mounts it again.
    pub(in super::super) fn mount_again(&self) -> Result<()> {
        run_program(
            self.command()
                .arg("up")
                .arg(&self.point)
                .arg("--store")
                .arg(&self.store),
        )
        .map(drop)
    }

    pub(in super::super) fn remount(&self) -> Result<()> {
        self.unmount()?;
        self.mount_again()
    }

    pub(in super::super) fn status(&self) -> Result<Value> {
        let said = run_program(self.command().args(["status", "--json"]).arg(&self.point))?;
        Ok(serde_json::from_str::<Value>(&said)?[0].take())
    }

    pub(in super::super) fn pid(&self) -> Result<u32> {
        Ok(u32::try_from(
            self.status()?["pid"]
                .as_u64()
                .context("status without pid")?,
        )?)
    }

    pub(in super::super) fn read_counts(&self) -> Result<UpstreamCounts> {
        parse_counts(&self.status()?)
    }
}

fn parse_counts(status: &Value) -> Result<UpstreamCounts> {
    let pairs: Vec<(String, u64)> = serde_json::from_value(status["upstream"]["counts"].clone())?;
    Ok(UpstreamCounts(pairs.into_iter().collect()))
}

/// A served volume, and a cable of some bandwidth to another machine.
pub(in super::super) struct ServedLine {
    program: PathBuf,
    dir: PathBuf,
    pub(in super::super) nas: BenchReplica,
    road: DelayProxy,
    cable: NetworkCable,
}

impl ServedLine {
    /// Makes a line to a volume that is served already.
    pub(in super::super) fn to_volume(
        program: &Path,
        dir: &Path,
        nas: BenchReplica,
    ) -> Result<Self> {
        let invitation = parse_invitation(&nas.run_teal(&["serve"])?)?;
        // The address is fixed, so that a restart gets the same port again.
        nas.run_teal(&["serve", "--listen", &invitation.address])?;
        let cable = NetworkCable::new()?.context("no network namespaces can be had")?;
        let road = DelayProxy::behind_cable(&cable, &invitation.address)?;
        Ok(Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            nas,
            road,
            cable,
        })
    }

    /// Sets the round trip of the line, and the megabits a second that it lets through.
    pub(in super::super) fn set_line(&self, delay: u64, mbit: f64) -> Result<()> {
        self.road.set_delay(delay);
        Ok(self.cable.limit_rate(mbit)?)
    }

    /// Makes a machine that joins over the line.
    pub(in super::super) fn join_machine(&self, device: &str) -> Result<BenchReplica> {
        let invitation = parse_invitation(&self.nas.run_teal(&["serve"])?)?;
        let mut there = BenchReplica::new(&self.program, &self.dir.join(device))?;
        there.machine = Some(Arc::clone(self.cable.namespace_at(1)));
        there.finish_join(device, &invitation.token, &self.road)
    }
}

/// A served volume, and one replica of it at the end of a line.
pub(in super::super) struct ServedPair {
    program: PathBuf,
    dir: PathBuf,
    pub(in super::super) nas: BenchReplica,
    road: DelayProxy,
    pub(in super::super) replica: BenchReplica,
}

impl ServedPair {
    pub(in super::super) fn begin_pair(
        program: &Path,
        dir: &Path,
        delay: u64,
        mbit: f64,
    ) -> Result<Self> {
        let (nas, invitation) = BenchReplica::serve_with_invitation(program, &dir.join("nas"))?;
        let road = DelayProxy::to_target(&invitation.address, delay, mbit)?;
        let replica = BenchReplica::join_over(
            program,
            &dir.join("laptop"),
            "laptop",
            &invitation.token,
            &road,
        )?;
        // The wait for the first listing belongs to joining, not to the build.
        let first = std::fs::read_dir(replica.mount_point())?.next();
        anyhow::ensure!(first.is_none(), "a new volume is not empty");
        Ok(Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            nas,
            road,
            replica,
        })
    }

    /// Makes one more machine at the end of the same line.
    pub(in super::super) fn join_another(&self, device: &str) -> Result<BenchReplica> {
        let invitation = parse_invitation(&self.nas.run_teal(&["serve"])?)?;
        BenchReplica::join_over(
            &self.program,
            &self.dir.join(device),
            device,
            &invitation.token,
            &self.road,
        )
    }

    /// Unmounts both, and takes their stores away.
    pub(in super::super) fn end_pair(self) -> Result<()> {
        self.replica.unmount()?;
        self.nas.unmount()?;
        Ok(std::fs::remove_dir_all(&self.dir)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_token_are_found_in_what_serve_says() {
        let said = "/a is served on 127.0.0.1:4, fingerprint sha256:1\non another machine:\n  \
            teal join HOST:4 --token 5-6.7\n";
        let found = JoinInvitation {
            address: "127.0.0.1:4".into(),
            token: "5-6.7".into(),
        };
        assert_eq!(parse_invitation(said).unwrap(), found);
        assert!(parse_invitation("/a is mounted").is_err());
    }

    #[test]
    fn counts_are_differences() {
        let status = |waits| serde_json::json!({"upstream": {"counts": [["waits", waits], ["requests", 9]]}});
        let (before, after) = (
            parse_counts(&status(2)).unwrap(),
            parse_counts(&status(5)).unwrap(),
        );
        assert_eq!(
            (
                after.since(&before).get("waits"),
                after.since(&before).get("requests")
            ),
            (3, 0)
        );
        assert!(parse_counts(&serde_json::json!({"upstream": null})).is_err());
    }
}
