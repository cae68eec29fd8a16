//! Programs of others, other users, and mount namespaces in which the machine can be changed
//! without changing it.

use super::{ProgramOutput, World, find_program, run_program};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns whether this runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An outside test suite: where `cargo xtask test` puts it, or in `PATH`.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let installed =
        std::env::var_os("TEAL_TOOLS").map(|dir| Path::new(&dir).join("bin").join(name));
    installed
        .filter(|file| file.is_file())
        .or_else(|| find_program(name, &["/opt/tools/bin"]))
}

/// Returns whether programs can be run as another user here.
pub(crate) fn is_user_able() -> bool {
    is_root() && find_program("setpriv", &[]).is_some()
}

/// The directory above `path` that other users may not pass through, as root's own home, which
/// mostly has the mode 0700.
pub(crate) fn closed_to_others(path: &Path) -> Option<PathBuf> {
    let is_closed = |dir: &&Path| {
        std::fs::metadata(dir).is_ok_and(|meta| meta.permissions().mode() & 0o001 == 0)
    };
    path.ancestors().skip(1).find(is_closed).map(Path::to_owned)
}

/// Returns whether the long forms run, which take hours: `cargo xtask test --long`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TEAL_LONG").is_some()
}

/// For scripts: `set -e` takes no notice of a command behind `!`.
const NOT: &str = r#"not() { if "$@"; then echo "unexpected: $*" >&2; exit 1; fi; }"#;

/// Runs a shell script; `$1` and so on are `args`.
pub(crate) fn shell(world: &World, script: &str, args: &[&Path]) -> ProgramOutput {
    let mut command = Command::new("sh");
    let script = format!("{NOT}\n{script}");
    world
        .furnish(&mut command)
        .args(["-e", "-c", &script, "sh"])
        .args(args);
    run_program(&mut command)
}

/// A mount namespace of its own for shell scripts.
#[derive(Debug)]
pub(crate) struct PrivateMounts<'w>(&'w World);

impl<'w> PrivateMounts<'w> {
    /// `None` where namespaces cannot be made.
    pub(crate) fn new(world: &'w World) -> Option<Self> {
        let can = Command::new("unshare")
            .args(["--mount", "true"])
            .output()
            .is_ok_and(|o| o.status.success());
        can.then_some(Self(world))
    }

    /// Runs a script in which `mount.teal` and `mount.fuseblk.teal` are where mount(8) looks for
    /// them. The daemons it starts live in the namespace: the script ends them.
    pub(crate) fn with_mount_programs(&self, script: &str, args: &[&Path]) -> ProgramOutput {
        const PREPARE: &str = r#"
            new="$1"; teal="$2"; shift 2
            mkdir -p "$new/old" "$new/sbin"
            mount --bind /usr/sbin "$new/old"
            for f in "$new/old"/*; do ln -s "$f" "$new/sbin/"; done
            ln -sf "$teal" "$new/sbin/mount.teal"
            ln -sf "$teal" "$new/sbin/mount.fuseblk.teal"
            mount --bind "$new/sbin" /usr/sbin
        "#;
        let place = tempfile::Builder::new()
            .prefix("sbin-")
            .tempdir_in(self.0.path(""))
            .unwrap();
        let args = [&[place.path(), Path::new(super::world::TEAL)], args].concat();
        self.run(&format!("{PREPARE}\n{script}"), &args)
    }

    /// Runs a script in a namespace of its own.
    pub(crate) fn run(&self, script: &str, args: &[&Path]) -> ProgramOutput {
        let mut command = Command::new("unshare");
        let script = format!("{NOT}\n{script}");
        self.0
            .furnish(&mut command)
            .args(["--mount", "sh", "-e", "-c", &script, "sh"])
            .args(args);
        run_program(&mut command)
    }
}
