//! The programs and packages that the tests need, and their installation.

use anyhow::Result;
use std::path::Path;
use std::process::{Command, Stdio};

/// Debian packages with the programs and servers that tests run.
const PACKAGES: &[&str] = &[
    "acl",
    "attr",
    "dbench",
    "dosfstools",
    "e2fsprogs",
    "fio",
    "fsmark",
    "fuse3",
    "git",
    "iproute2",
    "libcap2-bin",
    "make",
    "nbd-client",
    "nilfs-tools",
    "postgresql",
    "procps",
    "reiserfsprogs",
    "runc",
    "sqlite3",
    "stress-ng",
    "user-mode-linux",
    "util-linux",
    "xfsprogs",
    "xz-utils",
    "zstd",
];

/// Outside test suites from crates.io: (package, version).
const TOOLS: &[(&str, &str)] = &[("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Installs the missing [`PACKAGES`].
pub(super) fn install_packages() -> Result<()> {
    if let Err(list) = install_missing(PACKAGES) {
        println!(
            "could not install them: tests that need them will fail. As root: apt-get install \
                {list}"
        );
    }
    Ok(())
}

/// Installs those of `packages` that are missing.
///
/// # Errors
/// Their names.
pub(crate) fn install_missing(packages: &[&str]) -> Result<(), String> {
    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    // The names are printed first, so that the user knows what the command does to the machine.
    let list = missing.join(" ");
    println!("these Debian packages are needed, installing them: {list}");
    // Old lists name packages that are gone.
    let update = run_apt(&["update", "-q"]);
    let done = update
        && run_apt(
            &[
                &["install", "-y", "-q", "--no-install-recommends"],
                missing.as_slice(),
            ]
            .concat(),
        );
    if done { Ok(()) } else { Err(list) }
}

/// Mounts the file system through which FUSE connections are aborted at its usual place, unless it
/// is mounted. Without it, a process that waits for a file system of its own that was unmounted
/// lazily cannot be ended.
pub(super) fn mount_fuse_control() {
    let point = Path::new("/sys/fs/fuse/connections");
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if !point.exists() || !rustix::process::geteuid().is_root() || table.contains(" fusectl ") {
        return;
    }
    println!(
        "mounting the control file system of FUSE at {}",
        point.display()
    );
    let mounted = rustix::mount::mount(
        "fusectl",
        point,
        "fusectl",
        rustix::mount::MountFlags::empty(),
        None,
    );
    if let Err(e) = mounted {
        println!("could not mount it: {e}");
    }
}

fn is_installed(package: &str) -> bool {
    let status = Command::new("dpkg-query")
        .args(["-W", "-f=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .map(|out| out.stdout);
    status.is_ok_and(|said| said == b"installed")
}

/// Returns whether `apt-get` with `args` did its work, as root or through `sudo` if that asks for
/// nothing.
fn run_apt(args: &[&str]) -> bool {
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|out| out.stdout.trim_ascii() == b"0");
    let mut command = if is_root {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    } else {
        let mut command = Command::new("sudo");
        command.args(["-n", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        command
    };
    command
        .args(args)
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Builds the missing [`TOOLS`] into `tools`, which later runs find again.
pub(super) fn install_tools(tools: &Path) -> Result<()> {
    let list = crate::workspace::cargo_command()
        .args(["install", "--list", "--root"])
        .arg(tools)
        .output()?
        .stdout;
    let list = String::from_utf8_lossy(&list);
    let missing: Vec<String> = TOOLS
        .iter()
        .filter(|tool| !is_listed(&list, tool))
        .map(|(name, version)| format!("{name}@{version}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let text = missing.join(" ");
    println!(
        "the tests need these outside suites, building them in {}: {text}",
        tools.display()
    );
    let done = crate::workspace::cargo_command()
        .args(["install", "--locked", "--force", "--root"])
        .arg(tools)
        .args(&missing)
        .stdin(Stdio::null())
        .status()?;
    if !done.success() {
        println!("could not build them: tests that need them will fail");
    }
    Ok(())
}

/// Returns whether the output of `cargo install --list` has this version.
fn is_listed(list: &str, (name, version): &(&str, &str)) -> bool {
    list.lines().any(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest == format!(" v{version}:"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_version_of_a_tool_counts() {
        let list = "fsx v0.3.2:\n    fsx\npjdfstest v0.2.1:\n    pjdfstest\n";
        assert!(is_listed(list, &("fsx", "0.3.2")));
        assert!(!is_listed(list, &("fsx", "0.3")));
        assert!(!is_listed(list, &("pjdfstest", "0.2.2")));
    }

    #[test]
    fn packages_are_listed_once_in_order() {
        assert!(PACKAGES.is_sorted_by(|a, b| a < b));
    }
}
