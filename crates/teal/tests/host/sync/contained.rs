//! A daemon that is killed together with the mount namespace it lives in leaves no process, no mount
//! and no lock behind, and what was synced is there.

use super::kind_of;
use crate::support::{
    Mounted, PATIENCE, PrivateMounts, World, find_program, run_program, wait_until,
};
use std::path::Path;
use std::process::Command;
use teal_testkit::skip_test;

/// What is done in each namespace; `$1`: the directory of the test, `$2`: the program, `$3`: the name
/// of a file that is made. Prints the number of the daemon.
///
/// On a device the daemon would get stuck when it is killed: it is not even tried.
const USE: &str = r#"
    dir="${1%/}"; teal="$2"; point="$dir/point"
    "$teal" mount "$dir/store.teal" "$point"
    grep -q " $point fuse.teal " /proc/self/mounts
    "$teal" status "$point" | grep -q "do not reach this volume"
    "$teal" status --json "$point" | grep -q "\"syncfs\": false"
    echo content > "$point/$3"; sync "$point/$3"
    pid=$("$teal" status --json "$point" | sed -n "s/.*\"pid\": *\([0-9]*\).*/\1/p")
"#;

/// A store that is mounted in namespaces which end with their daemon.
struct NamespacedStore {
    world: World,
    /// The files that were made and synced.
    made: Vec<String>,
}

impl NamespacedStore {
    /// `None`, with the reason, where no namespaces can be made.
    fn new(test: &str) -> Option<Self> {
        let world = World::new(test)?;
        if PrivateMounts::new(&world).is_none() {
            skip_test(test, "mount namespaces cannot be made here");
            return None;
        }
        world.store("store.teal", "64M");
        for dir in ["point", "root"] {
            std::fs::create_dir(world.path(dir)).unwrap();
        }
        let made = Vec::new();
        Some(Self { world, made })
    }

    /// Looks at the store after the namespace has ended in which the file `name` was made.
    fn check_after(&mut self, what: &str, name: &str) {
        self.made.push(name.to_owned());
        let store = self.world.path("store.teal");
        let mut m = Mounted::on(World::new(what).unwrap(), store);
        assert_eq!(
            kind_of(m.point()),
            "fuseblk.teal",
            "here, in the first namespace"
        );
        for name in &self.made {
            assert_eq!(std::fs::read(m.path(name)).unwrap(), b"content\n", "{what}");
        }
        m.down();
        m.check();
    }
}

/// The ways in which a daemon comes to live in a mount namespace that ends with it, and the
/// commands that make them.
const NAMESPACES: &[(&str, &str)] = &[
    ("a mount namespace", "unshare --mount sh -e -c"),
    (
        "a process namespace, too",
        "unshare --mount --pid --fork sh -e -c",
    ),
    (
        "a process namespace with its own /proc",
        "unshare --mount --pid --fork --mount-proc sh -e -c",
    ),
    (
        "as in a container",
        "unshare --mount --pid --fork --ipc --uts --net --cgroup sh -e -c 'mount --rbind / root; \
         mount -t proc proc root/proc; cd root; exec chroot . sh -e -c \"$0\" \"$@\"'",
    ),
];

#[test]
fn a_daemon_that_is_killed_with_its_mount_namespace_leaves_nothing_behind() {
    let test = "a_daemon_that_is_killed_with_its_mount_namespace_leaves_nothing_behind";
    let Some(mut store) = NamespacedStore::new(test) else {
        return;
    };
    for (n, (what, command)) in NAMESPACES.iter().enumerate() {
        // The namespace's first process kills the daemon, and all else in it, with its own end.
        let script = format!("{USE}\nkill -9 \"$pid\"; echo \"$pid\"");
        let whole = format!(r#"cd "$1"; {command} "$0" sh "$@""#);
        let mut shell = Command::new("sh");
        let name = format!("f{n}");
        shell.args(["-e", "-c", &whole, &script]);
        shell.arg(store.world.path(""));
        shell.args([env!("CARGO_BIN_EXE_teal"), &name]);
        let said = run_program(store.world.furnish(&mut shell)).expect_success();
        // A namespace of processes has ended only when all in it are dead. Elsewhere the number is
        // the daemon's here, too.
        let daemon = Path::new("/proc").join(said.trim());
        assert!(
            n > 0 || wait_until(PATIENCE, || !daemon.exists()),
            "{what}: {} does not die",
            daemon.display()
        );
        store.check_after(what, &name);
    }
}

/// Returns the configuration of a container with the machine's own tree that runs a shell script.
fn container_config(world: &World, script: &str) -> String {
    let capabilities = [
        "CAP_SYS_ADMIN",
        "CAP_DAC_OVERRIDE",
        "CAP_CHOWN",
        "CAP_FOWNER",
    ];
    let namespaces = ["pid", "ipc", "uts", "mount", "network"];
    let env: Vec<String> = std::env::vars()
        .filter(|(name, _)| name == "PATH")
        .chain([("HOME".to_owned(), world.path("").display().to_string())])
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let args = [
        "sh".into(),
        "-e".into(),
        "-c".into(),
        script.to_owned(),
        "sh".into(),
        world.path("").display().to_string(),
        env!("CARGO_BIN_EXE_teal").to_owned(),
        "f".to_owned(),
    ];
    serde_json::json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": args,
            "env": env,
            "cwd": "/",
            "capabilities": {
                "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
            },
        },
        "root": {"path": "root"},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        ],
        "linux": {
            "namespaces": namespaces.map(|kind| serde_json::json!({"type": kind})),
            "devices": [{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}],
            "resources": {"devices": [{"allow": true, "access": "rwm"}]},
        },
    })
    .to_string()
}

/// Runs a container, and ends it with `kill -9` when the file `ready` is there; `$1`: the directory
/// of the test, `$2`: the name of the container. Prints what it is told.
const CONTAINER: &str = r#"
    cd "$1"; name="$2"; rm -f ready
    mount --rbind / root; mount --make-rslave root
    runc --root "$PWD/state" run --bundle "$PWD" "$name" > said 2>&1 & runs=$!
    while kill -0 $runs 2> /dev/null && ! test -e ready; do sleep 0.05; done
    runc --root "$PWD/state" kill "$name" KILL 2> killed || cat killed >> said
    wait $runs || true
    test -e ready || { cat said >&2; exit 1; }
"#;

#[test]
fn a_container_that_is_killed_leaves_nothing_behind() {
    let test = "a_container_that_is_killed_leaves_nothing_behind";
    let Some(mut store) = NamespacedStore::new(test) else {
        return;
    };
    if find_program("runc", &[]).is_none() {
        return skip_test(
            test,
            "runc is not installed; `cargo xtask test` installs it",
        );
    }
    let run = |store: &NamespacedStore, script: &str| {
        let config = container_config(&store.world, script);
        std::fs::write(store.world.path("config.json"), config).unwrap();
        let name = format!("teal-{}", std::process::id());
        let private = PrivateMounts::new(&store.world).unwrap();
        private.run(CONTAINER, &[&store.world.path(""), Path::new(&name)])
    };
    let said = run(&store, r#"touch "$1/ready"; exec sleep 100"#);
    if said.code != 0 {
        return skip_test(test, &format!("no container can be run here: {said}"));
    }
    let script = format!("{USE}\ntouch \"$dir/ready\"; exec sleep 100");
    run(&store, &script).expect_success();
    store.check_after(test, "f");
}

/// Runs a unit with a mount namespace of its own under a service manager of its own; `$1`: the
/// directory of the test, with the unit. The manager is the first process of its namespace, as in a
/// container, and ends when the unit has ended.
const UNIT: &str = r#"
    cd "${1%/}"
    group="/sys/fs/cgroup/systemd/teal-test-$$"
    mkdir "$group"
    trap 'for n in 1 2 3 4 5 6 7 8 9; do
              find "$group" -depth -type d -exec rmdir {} + 2> /dev/null || sleep 0.1
          done' EXIT
    export -p > env
    timeout 60 sh -e -c '
        echo $$ > "$1/cgroup.procs"
        exec unshare --mount --pid --fork --ipc --uts --cgroup --kill-child sh -e -c "$2"
    ' sh "$group" '
        mount --rbind / root; mount --make-rslave root
        mount -t proc proc root/proc
        mount -t tmpfs tmpfs root/run
        mount -t tmpfs tmpfs root/sys/fs/cgroup; mkdir root/sys/fs/cgroup/systemd
        mount -t cgroup -o none,name=systemd cgroup root/sys/fs/cgroup/systemd
        # The manager would mount the hierarchies it finds here, and leave groups in them.
        echo none > no-controllers; mount --bind no-controllers root/proc/cgroups
        here="$PWD"; cd root
        exec env -i container=other PATH="$PATH" SYSTEMD_UNIT_PATH="$here/units" \
            chroot . /lib/systemd/systemd --system --unit=teal.service --log-target=console \
            systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1
    ' > said 2>&1 || true
    test -e ended || { cat said >&2; exit 1; }
"#;

#[test]
fn a_unit_with_private_mounts_that_is_killed_leaves_nothing_behind() {
    let test = "a_unit_with_private_mounts_that_is_killed_leaves_nothing_behind";
    let Some(mut store) = NamespacedStore::new(test) else {
        return;
    };
    let is_there = |path: &str| Path::new(path).exists();
    if !is_there("/lib/systemd/systemd") || !is_there("/sys/fs/cgroup/systemd/cgroup.procs") {
        return skip_test(test, "needs systemd and its hierarchy of cgroups");
    }
    let dir = store.world.path("");
    std::fs::create_dir(dir.join("units")).unwrap();
    // Its first process ends at once, and the manager kills the daemon, which is the last process
    // in the mount namespace. Nothing here tells the manager that the group is empty then.
    let used = format!("set -e\n. \"$1/env\"\n{USE}\necho \"$pid\" > \"$dir/pid\"");
    std::fs::write(dir.join("use.sh"), used).unwrap();
    let ended = r#"
        for n in $(seq 200); do test -d "/proc/$(cat "$1/pid")" || break; sleep 0.05; done
        test -d "/proc/$(cat "$1/pid")" || touch "$1/ended"
        kill -s RTMIN+14 1
    "#;
    std::fs::write(dir.join("ended.sh"), ended).unwrap();
    let (at, teal) = (dir.display(), env!("CARGO_BIN_EXE_teal"));
    let unit = format!(
        "[Unit]\nDefaultDependencies=no\n[Service]\nPrivateMounts=yes\nKillSignal=SIGKILL\n\
         TimeoutStopSec=3\nExecStart=/bin/sh {at}/use.sh {at} {teal} f\n\
         ExecStopPost=/bin/sh {at}/ended.sh {at}\n"
    );
    std::fs::write(dir.join("units/teal.service"), unit).unwrap();
    let private = PrivateMounts::new(&store.world).unwrap();
    private.run(UNIT, &[&dir]).expect_success();
    store.check_after(test, "f");
}
