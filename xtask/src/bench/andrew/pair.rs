//! A volume served by one daemon, and replicas of it that joined over a line of some length.

use super::super::lab::run;
use super::super::undo::{self, Undo};
use super::road::Road;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use teal_testkit::{Cable, Machine};

/// Bytes of a store; taken as they are used.
const SIZE: &str = "2G";

/// What passed between a replica and its server: the counters of `teal status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Counts(pub(in super::super) BTreeMap<String, u64>);

impl Counts {
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
pub(in super::super) struct Replica {
    program: PathBuf,
    dir: PathBuf,
    point: PathBuf,
    store: PathBuf,
    /// Where it runs; `None`: here.
    machine: Option<Arc<Machine>>,
}

/// How another machine joins: where, and with which token.
#[derive(Debug, PartialEq, Eq)]
struct Invitation {
    address: String,
    token: String,
}

/// Returns what `teal serve` prints for others.
fn invitation(said: &str) -> Result<Invitation> {
    let word = |before: &str| {
        said.split(before)
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next())
    };
    let address = word("is served on ").with_context(|| format!("no address in {said:?}"))?;
    let token = word("--token ").with_context(|| format!("no token in {said:?}"))?;
    Ok(Invitation {
        address: address.trim_end_matches(',').to_owned(),
        token: token.to_owned(),
    })
}

impl Replica {
    fn new(program: &Path, dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (point, store) = (dir.join("Teal"), dir.join("store.teal"));
        undo::note(Undo::Mount(point.clone()));
        Ok(Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            point,
            store,
            machine: None,
        })
    }

    /// A served volume, for who invites others later.
    pub(in super::super) fn serving(program: &Path, dir: &Path) -> Result<Self> {
        Ok(Self::serve(program, dir)?.0)
    }

    /// A served volume.
    fn serve(program: &Path, dir: &Path) -> Result<(Self, Invitation)> {
        let this = Self::new(program, dir)?;
        let said = this.teal(&[
            "serve",
            "--size",
            SIZE,
            "--listen",
            "127.0.0.1:0",
            "--device",
            "nas",
        ])?;
        Ok((this, invitation(&said)?))
    }

    /// A replica that reaches its server over `road`.
    fn join(program: &Path, dir: &Path, device: &str, token: &str, road: &Road) -> Result<Self> {
        Self::new(program, dir)?.joined(device, token, road)
    }

    fn joined(self, device: &str, token: &str, road: &Road) -> Result<Self> {
        let this = self;
        let address = road.address().to_string();
        this.teal(&[
            "join", &address, "--token", token, "--size", SIZE, "--device", device,
        ])?;
        Ok(this)
    }

    /// The program in a home of its own.
    pub(in super::super) fn command(&self) -> Command {
        let here = || Command::new(&self.program);
        let there = |machine: &Arc<Machine>| machine.command(&self.program.to_string_lossy());
        let mut command = self.machine.as_ref().map_or_else(here, there);
        for variable in ["HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"] {
            command.env(variable, &self.dir);
        }
        command
    }

    /// A command that takes a mount point and a store.
    fn teal(&self, args: &[&str]) -> Result<String> {
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
        run(&mut command)
    }

    pub(in super::super) fn point(&self) -> &Path {
        &self.point
    }

    pub(in super::super) fn flush(&self) -> Result<()> {
        run(self.command().arg("flush").arg(&self.point)).map(drop)
    }

    pub(in super::super) fn down(&self) -> Result<()> {
        run(self.command().arg("down").arg(&self.point)).map(drop)
    }

    /// `teal device …` of the mount.
    pub(in super::super) fn teal_device(&self, args: &[&str]) -> Result<String> {
        run(self.command().arg("device").args(args).arg(&self.point))
    }

    /// Mounts it again.
    pub(in super::super) fn up(&self) -> Result<()> {
        run(self
            .command()
            .arg("up")
            .arg(&self.point)
            .arg("--store")
            .arg(&self.store))
        .map(drop)
    }

    pub(in super::super) fn remount(&self) -> Result<()> {
        self.down()?;
        self.up()
    }

    pub(in super::super) fn status(&self) -> Result<Value> {
        let said = run(self.command().args(["status", "--json"]).arg(&self.point))?;
        Ok(serde_json::from_str::<Value>(&said)?[0].take())
    }

    pub(in super::super) fn pid(&self) -> Result<u32> {
        Ok(u32::try_from(
            self.status()?["pid"]
                .as_u64()
                .context("status without pid")?,
        )?)
    }

    pub(in super::super) fn counts(&self) -> Result<Counts> {
        counts(&self.status()?)
    }
}

fn counts(status: &Value) -> Result<Counts> {
    let pairs: Vec<(String, u64)> = serde_json::from_value(status["upstream"]["counts"].clone())?;
    Ok(Counts(pairs.into_iter().collect()))
}

/// A served volume, and the end of a line to it: a cable of some width to another machine.
pub(in super::super) struct Line {
    program: PathBuf,
    dir: PathBuf,
    pub(in super::super) nas: Replica,
    road: Road,
    cable: Cable,
}

impl Line {
    /// To a volume that is served already.
    pub(in super::super) fn to(program: &Path, dir: &Path, nas: Replica) -> Result<Self> {
        let invitation = invitation(&nas.teal(&["serve"])?)?;
        // It has the same port again after a restart.
        nas.teal(&["serve", "--listen", &invitation.address])?;
        let cable = Cable::new()?.context("no network namespaces can be had")?;
        let road = Road::behind(&cable, &invitation.address)?;
        Ok(Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            nas,
            road,
            cable,
        })
    }

    /// From now on the line has this round trip, and lets so many megabits a second through.
    pub(in super::super) fn set(&self, delay: u64, mbit: f64) -> Result<()> {
        self.road.set_delay(delay);
        Ok(self.cable.shape(mbit)?)
    }

    /// A machine that joins over it.
    pub(in super::super) fn join(&self, device: &str) -> Result<Replica> {
        let invitation = invitation(&self.nas.teal(&["serve"])?)?;
        let mut there = Replica::new(&self.program, &self.dir.join(device))?;
        there.machine = Some(Arc::clone(self.cable.machine(1)));
        there.joined(device, &invitation.token, &self.road)
    }
}

/// A served volume, and one replica of it at the end of a line.
pub(in super::super) struct Pair {
    program: PathBuf,
    dir: PathBuf,
    pub(in super::super) nas: Replica,
    road: Road,
    pub(in super::super) replica: Replica,
}

impl Pair {
    pub(in super::super) fn begin(
        program: &Path,
        dir: &Path,
        delay: u64,
        mbit: f64,
    ) -> Result<Self> {
        let (nas, invitation) = Replica::serve(program, &dir.join("nas"))?;
        let road = Road::to(&invitation.address, delay, mbit)?;
        let replica = Replica::join(
            program,
            &dir.join("laptop"),
            "laptop",
            &invitation.token,
            &road,
        )?;
        // What joining itself waits for is not the build's.
        let first = std::fs::read_dir(replica.point())?.next();
        anyhow::ensure!(first.is_none(), "a new volume is not empty");
        Ok(Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            nas,
            road,
            replica,
        })
    }

    /// One more machine at the end of the same line.
    pub(in super::super) fn another(&self, device: &str) -> Result<Replica> {
        let invitation = invitation(&self.nas.teal(&["serve"])?)?;
        Replica::join(
            &self.program,
            &self.dir.join(device),
            device,
            &invitation.token,
            &self.road,
        )
    }

    /// Unmounts both, and takes their stores away.
    pub(in super::super) fn end(self) -> Result<()> {
        self.replica.down()?;
        self.nas.down()?;
        Ok(std::fs::remove_dir_all(&self.dir)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_token_are_found_in_what_serve_says() {
        let said = "/a is served on 127.0.0.1:4, fingerprint sha256:1\non another machine:\n  teal join HOST:4 --token 5-6.7\n";
        let found = Invitation {
            address: "127.0.0.1:4".into(),
            token: "5-6.7".into(),
        };
        assert_eq!(invitation(said).unwrap(), found);
        assert!(invitation("/a is mounted").is_err());
    }

    #[test]
    fn counts_are_differences() {
        let status = |waits| serde_json::json!({"upstream": {"counts": [["waits", waits], ["requests", 9]]}});
        let (before, after) = (counts(&status(2)).unwrap(), counts(&status(5)).unwrap());
        assert_eq!(
            (
                after.since(&before).get("waits"),
                after.since(&before).get("requests")
            ),
            (3, 0)
        );
        assert!(counts(&serde_json::json!({"upstream": null})).is_err());
    }
}
