//! Real input: source trees, git, cargo, SQLite and PostgreSQL with their files on a mount that is unmounted or killed.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use support::{Mounted, PATIENCE, World, compare_trees, program, run, shell, wait_until};

/// Sources that are surely here: what this was built from, up to about `bytes`.
fn sources(world: &World, bytes: u64) -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"))).unwrap();
    let tree = world.path("sources");
    std::fs::create_dir(&tree).unwrap();
    let registry = home.join("registry/src");
    let mut crates: Vec<PathBuf> = std::fs::read_dir(registry)
        .into_iter()
        .flatten()
        .flat_map(|index| std::fs::read_dir(index.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    crates.push(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned());
    crates.sort();
    let mut taken = 0;
    for dir in crates {
        if taken > bytes {
            break;
        }
        let du = run(Command::new("du").arg("-sb").arg(&dir)).good();
        taken += du.split_whitespace().next().unwrap().parse::<u64>().unwrap();
        run(Command::new("cp").arg("-a").arg(&dir).arg(&tree)).good();
    }
    tree
}

#[test]
fn a_large_source_tree_comes_back_byte_for_byte() {
    let Some(mut m) = Mounted::new("a_large_source_tree_comes_back_byte_for_byte", "2G") else { return };
    let tree = sources(m.world(), 100 << 20);
    let script = r#"tar cf sources.tar -C "$1" .; mkdir "$2"; tar xf sources.tar -C "$2"; rm sources.tar"#;
    let ours = m.path("sources");
    shell(m.world(), script, &[&tree, &ours]).good();
    let count = compare_trees(&tree, &ours);
    assert!(count > 100, "{count} files and directories");
    m.remount();
    assert_eq!(compare_trees(&tree, &ours), count);
    println!("{count} files and directories");
    m.down();
    m.check();
}

#[test]
fn a_git_repository_is_whole_after_a_remount() {
    let test = "a_git_repository_is_whole_after_a_remount";
    let Some(mut m) = Mounted::new(test, "1G") else { return };
    if program("git", &[]).is_none() {
        return teal_testkit::skip(test, "git is not installed");
    }
    let tree = sources(m.world(), 30 << 20);
    let git = |m: &Mounted, script: &str| {
        let head = r#"
            export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
            git() { command git -c user.name=T -c user.email=t@example.org -c core.fsync=all "$@"; }
            cd "$1"
        "#;
        shell(m.world(), &format!("{head}{script}"), &[m.point(), &tree]).good()
    };
    git(&m, r#"mkdir repo; cp -a "$2"/. repo; cd repo; git init -q .; git add -A; git commit -qm first"#);
    git(&m, r#"cd repo; echo more > more; git add more; git commit -qm second; git gc -q; git branch side HEAD~1"#);
    m.remount();
    let status =
        r#"cd repo; git fsck --full --strict 2>&1; git status --porcelain --ignored=no; git log --oneline | wc -l"#;
    let said = git(&m, status);
    assert_eq!(said.trim(), "2", "no complaint, nothing changed, two commits: {said}");
    git(&m, "cd repo; git checkout -q side; test ! -e more; git checkout -q -; test -e more; git clone -q . ../clone");
    // Killed after one file was synced, which takes everything before it along: the repository is as it was.
    git(&m, "sync clone/.git/HEAD");
    m.kill();
    m.up();
    assert_eq!(git(&m, status).trim(), "2");
    assert_eq!(git(&m, "cd clone; git fsck --full 2>&1; git status --porcelain").trim(), "");
}

#[test]
fn two_crates_are_built_inside_the_mount() {
    let Some(mut m) = Mounted::new("two_crates_are_built_inside_the_mount", "1G") else { return };
    let files = [
        ("Cargo.toml", "[workspace]\nmembers = [\"below\", \"above\"]\nresolver = \"3\"\n"),
        ("below/Cargo.toml", "[package]\nname = \"below\"\nversion = \"0.1.0\"\nedition = \"2024\"\n"),
        ("below/src/lib.rs", "pub fn answer() -> u32 {\n    6 * 7\n}\n"),
        (
            "above/Cargo.toml",
            "[package]\nname = \"above\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nbelow = { path = \"../below\" }\n",
        ),
        ("above/src/main.rs", "fn main() {\n    println!(\"{}\", below::answer());\n}\n"),
    ];
    for (path, text) in files {
        let path = m.path("ws").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let cargo = |m: &Mounted, args: &[&str]| {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(m.path("ws")).args(args).arg("--offline");
        command.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS").env_remove("CARGO_MAKEFLAGS");
        run(&mut command)
    };
    cargo(&m, &["build"]).good();
    assert_eq!(run(&mut Command::new(m.path("ws/target/debug/above"))).good(), "42\n");
    m.remount();
    assert_eq!(run(&mut Command::new(m.path("ws/target/debug/above"))).good(), "42\n");
    let again = cargo(&m, &["build"]);
    assert!(!again.stderr.contains("Compiling"), "times came back, so nothing is stale: {again}");
    std::fs::write(m.path("ws/below/src/lib.rs"), "pub fn answer() -> u32 {\n    43\n}\n").unwrap();
    assert_eq!(cargo(&m, &["run", "-q"]).good(), "43\n");
}

/// A client that says after each transaction which one it was; killed with its daemon when enough were acknowledged.
fn acknowledged(mut child: Child, enough: u64, kill: impl FnOnce()) -> u64 {
    let (sender, receiver) = mpsc::channel();
    let out = child.stdout.take().unwrap();
    let reader = std::thread::Builder::new().spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Ok(n) = line.trim().parse::<u64>() {
                sender.send(n).unwrap();
            }
        }
    });
    let mut last = 0;
    let is_enough = wait_until(PATIENCE * 2, || {
        last = receiver.try_iter().last().unwrap_or(last);
        last >= enough
    });
    kill();
    let _ = child.kill();
    let _ = child.wait();
    reader.unwrap().join().unwrap();
    assert!(is_enough, "{last} of {enough} transactions were acknowledged in time");
    receiver.try_iter().last().unwrap_or(last)
}

fn sqlite(test: &str, journal: &str) {
    let Some(mut m) = Mounted::new(test, "512M") else { return };
    if program("sqlite3", &[]).is_none() {
        return teal_testkit::skip(test, "sqlite3 is not installed");
    }
    let db = m.path("data.db");
    let query = |sql: &str| run(Command::new("sqlite3").arg(&db).arg(sql)).good();
    query(&format!("PRAGMA journal_mode={journal}; CREATE TABLE t(n INTEGER PRIMARY KEY, x BLOB);"));
    let mut before = 0;
    for round in 1..=3 {
        // With less than EXTRA, SQLite itself does not wait for the end of the rollback journal.
        // Each INSERT is a transaction; the SELECT after it says that it was acknowledged.
        let script = r#"
            (echo 'PRAGMA synchronous=EXTRA;'
            n=$2
            while [ $n -lt 100000 ]; do
                n=$((n + 1))
                echo "INSERT INTO t VALUES($n, randomblob(abs(random()) % 5000)); SELECT $n;"
            done) | exec sqlite3 -bail "$1"
        "#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&db).arg(before.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let seen = acknowledged(child, before + 150, || m.kill());
        m.up();
        assert_eq!(query("PRAGMA integrity_check;").trim(), "ok");
        assert_eq!(query(&format!("SELECT count(*) FROM t WHERE n <= {seen};")).trim(), seen.to_string());
        let max: u64 = query("SELECT max(n) FROM t;").trim().parse().unwrap();
        assert!(max == seen || max == seen + 1, "round {round}: {seen} acknowledged, {max} there");
        before = max;
    }
    m.remount();
    assert_eq!(query("PRAGMA integrity_check;").trim(), "ok");
    m.down();
    m.check();
}

#[test]
fn sqlite_with_a_write_ahead_log_keeps_every_acknowledged_commit() {
    sqlite("sqlite_with_a_write_ahead_log_keeps_every_acknowledged_commit", "WAL");
}

#[test]
fn sqlite_with_a_rollback_journal_keeps_every_acknowledged_commit() {
    sqlite("sqlite_with_a_rollback_journal_keeps_every_acknowledged_commit", "DELETE");
}

/// A PostgreSQL cluster on the mount, run by an unprivileged user; ended when dropped.
struct Cluster<'w> {
    world: &'w World,
    programs: PathBuf,
    data: PathBuf,
    server: Option<Child>,
}

impl<'w> Cluster<'w> {
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(self.programs.join(name));
        self.world.furnish(&mut command).env("PGHOST", self.world.path("sockets")).env("PGUSER", "test");
        command.env("PGDATABASE", "postgres").env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    fn start(&mut self) {
        let sockets = self.world.path("sockets");
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.data).arg("-k").arg(&sockets);
        for setting in ["listen_addresses=", "fsync=on", "synchronous_commit=on", "shared_buffers=16MB"] {
            command.args(["-c", setting]);
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.world.path("pg.log")).unwrap();
        self.server = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let is_up = wait_until(PATIENCE, || run(self.command("pg_isready").arg("-q")).code == 0);
        assert!(is_up, "{}", std::fs::read_to_string(self.world.path("pg.log")).unwrap());
    }

    fn query(&self, sql: &str) -> String {
        run(self.command("psql").args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql]))
            .good()
            .trim()
            .into()
    }

    /// Kills the server with SIGKILL, and with it whatever works for it.
    fn kill(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let parent = server.id().to_string();
        let workers = run(Command::new("ps").args(["-o", "pid=", "--ppid", &parent])).stdout;
        server.kill().unwrap();
        server.wait().unwrap();
        for pid in workers.split_whitespace() {
            let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
            let is_ours = || {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                name.trim() == "postgres"
            };
            if is_ours() {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            let _ = wait_until(PATIENCE, || !is_ours());
        }
    }

    fn stop(&mut self) {
        let mut server = self.server.take().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::INT).unwrap();
        assert!(wait_until(PATIENCE, || server.try_wait().unwrap().is_some()), "the server ends");
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut places: Vec<_> = versions.map(|version| version.unwrap().path().join("bin")).collect();
    places.push("/usr/local/bin".into());
    let needs = ["initdb", "postgres", "pgbench", "psql", "pg_isready", "pg_dump"];
    places.into_iter().find(|place| needs.iter().all(|name| place.join(name).is_file()))
}

#[test]
fn postgresql_keeps_every_acknowledged_transaction() {
    let test = "postgresql_keeps_every_acknowledged_transaction";
    if !support::is_user_able() || !Path::new("/dev/fuse").exists() {
        return teal_testkit::skip(test, "needs root, setpriv and /dev/fuse");
    }
    let Some(programs) = postgres_programs() else {
        return teal_testkit::skip(test, "PostgreSQL is not installed");
    };
    let mut m = Mounted::of(World::open_to_all(), "1G");
    // A world of its own for the sockets and the home: the mount is borrowed mutably while the cluster lives.
    let outer = World::open_to_all();
    rustix::fs::chmod(m.point(), rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    let mut cluster = Cluster { world: &outer, programs, data: m.path("pg"), server: None };
    for dir in [cluster.data.clone(), outer.path("sockets"), outer.path("home")] {
        let _ = std::fs::create_dir(&dir);
        std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
    }
    run(cluster.command("initdb").arg("-D").arg(&cluster.data).args(["-U", "test", "-A", "trust", "-k"])).good();
    cluster.start();
    run(cluster.command("pgbench").args(["-i", "-q", "-s", "2"])).good();
    for round in 1..=2 {
        let logs = outer.path(format!("home/round{round}"));
        let mut bench = cluster.command("pgbench");
        bench.args(["-n", "-c", "4", "-j", "2", "-T", "60", "--log", "--log-prefix"]).arg(&logs);
        let before: u64 = cluster.query("SELECT count(*) FROM pgbench_history").parse().unwrap();
        let mut bench = bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let history =
            |cluster: &Cluster<'_>| cluster.query("SELECT count(*) FROM pgbench_history").parse::<u64>().unwrap();
        let is_enough = wait_until(PATIENCE, || history(&cluster) >= before + 400);
        // What a query sees was committed, and what was committed was synced before.
        let seen = history(&cluster);
        m.kill();
        cluster.kill();
        let _ = bench.wait();
        assert!(is_enough, "round {round}: {seen} transactions");
        m.up();
        cluster.start();
        let there = history(&cluster);
        assert!(there >= seen, "round {round}: {seen} were acknowledged, {there} are there");
        let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
            AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)";
        assert_eq!(cluster.query(sums), "t", "round {round}: the books balance");
        let tables = ["pgbench_accounts", "pgbench_history", "pgbench_tellers", "pgbench_branches"];
        if cluster.query("SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'") == "1" {
            cluster.query("CREATE EXTENSION IF NOT EXISTS amcheck");
            cluster.query("SELECT bt_index_check('pgbench_accounts_pkey', true)");
            for table in tables {
                assert_eq!(cluster.query(&format!("SELECT count(*) FROM verify_heapam('{table}')")), "0", "{table}");
            }
        }
        assert!(run(&mut cluster.command("pg_dump")).good().len() > 1 << 20);
    }
    cluster.stop();
    m.remount();
    cluster.start();
    assert!(cluster.query("SELECT count(*) FROM pgbench_accounts") == "200000");
    cluster.stop();
    m.down();
    m.check();
}
