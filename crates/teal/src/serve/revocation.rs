//! Machines that are shut out of a served volume, and let in again.

use crate::control::{self, ControlAnswer, ControlRequest, MachineShown};
use anyhow::{Context, Result, bail};
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use teal_command::say::{escape_control, say};
use teal_types::ReplicaNo;

/// Returns the machine of this number, as the server on `dir` sees it.
fn find_machine(dir: &Path, replica: ReplicaNo) -> Result<MachineShown> {
    let status = match control::ask(dir, &ControlRequest::Status)? {
        Some(ControlAnswer::Status(status)) => status,
        _ => bail!(
            "nothing is mounted on {}; `teal up` mounts it",
            dir.display()
        ),
    };
    // Only the machine that serves the volume knows the others.
    let upstream = status.upstream.filter(|upstream| upstream.served.is_some());
    let machines = upstream
        .with_context(|| format!("nothing is served on {}", dir.display()))?
        .machines;
    machines
        .into_iter()
        .find(|machine| machine.replica == replica)
        .with_context(|| {
            format!(
                "no machine has the number {replica}; `teal status {}` lists them",
                dir.display()
            )
        })
}

/// Shuts a machine out of the volume that is served on `dir`.
pub(super) fn shut_out(dir: &Path, replica: ReplicaNo, is_sure: bool) -> Result<ExitCode> {
    let machine = find_machine(dir, replica)?;
    let name = format!("machine {replica} \"{}\"", escape_control(&machine.device));
    // The serving machine cannot shut itself out.
    if machine.local {
        bail!("{name} is this machine, which serves the volume: it cannot be shut out");
    }
    if machine.revoked {
        bail!("{name} is shut out already; `teal serve --readmit {replica}` lets it in again");
    }
    if !is_sure && !is_confirmed(&name, replica)? {
        bail!("{name} was not shut out");
    }
    match control::ask(dir, &ControlRequest::Revoke { replica })? {
        Some(ControlAnswer::Done) => {
            say!(
                "{name} is shut out; what it has sent stays. `teal serve --readmit {replica}` \
                 lets it in again"
            );
        }
        _ => bail!("nothing is served on {}", dir.display()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the person at the terminal.
fn is_confirmed(name: &str, replica: ReplicaNo) -> Result<bool> {
    let stdin = std::io::stdin();
    // A script has to say that it means it.
    if !stdin.is_terminal() {
        bail!(
            "{name} would be shut out, and there is no terminal to ask: \
             say `teal serve --revoke {replica} --yes`"
        );
    }
    say!("shut out {name}? What it has not sent yet stays with it alone [y/N]");
    let mut line = String::new();
    stdin
        .read_line(&mut line)
        .context("your answer cannot be read")?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Lets a machine in again that was shut out.
pub(super) fn readmit(dir: &Path, replica: ReplicaNo) -> Result<ExitCode> {
    let machine = find_machine(dir, replica)?;
    let name = format!("machine {replica} \"{}\"", escape_control(&machine.device));
    if !machine.revoked {
        bail!("{name} is not shut out");
    }
    match control::ask(dir, &ControlRequest::Readmit { replica })? {
        Some(ControlAnswer::Done) => {
            say!("{name} is let in again; it connects by itself within half a minute")
        }
        _ => bail!("nothing is served on {}", dir.display()),
    }
    Ok(ExitCode::SUCCESS)
}
