//! PostgreSQL, killed together with the daemon under it.

use super::super::{Mounted, PATIENCE, World, run_program, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(self.programs.join(name));
        self.world
            .furnish(&mut command)
            .env("PGHOST", self.world.path("sockets"))
            .env("PGUSER", "test");
        command
            .env("PGDATABASE", "postgres")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    fn start(&mut self) {
        let sockets = self.world.path("sockets");
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.data).arg("-k").arg(&sockets);
        for setting in [
            "listen_addresses=",
            "fsync=on",
            "synchronous_commit=on",
            "shared_buffers=16MB",
        ] {
            command.args(["-c", setting]);
        }
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.world.path("pg.log"))
            .unwrap();
        self.server = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let is_up = wait_until(PATIENCE, || {
            run_program(self.command("pg_isready").arg("-q")).code == 0
        });
        assert!(
            is_up,
            "{}",
            std::fs::read_to_string(self.world.path("pg.log")).unwrap()
        );
    }

    fn query(&self, sql: &str) -> String {
        run_program(self.command("psql").args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            sql,
        ]))
        .expect_success()
        .trim()
        .into()
    }

    /// Kills the server with SIGKILL, and with it whatever works for it.
    fn kill(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let parent = server.id().to_string();
        let workers =
            run_program(Command::new("ps").args(["-o", "pid=", "--ppid", &parent])).stdout;
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
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&server),
            rustix::process::Signal::INT,
        )
        .unwrap();
        assert!(
            wait_until(PATIENCE, || server.try_wait().unwrap().is_some()),
            "the server ends"
        );
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let mut places: Vec<_> = versions
        .map(|version| version.unwrap().path().join("bin"))
        .collect();
    places.push("/usr/local/bin".into());
    let needs = [
        "initdb",
        "postgres",
        "pgbench",
        "psql",
        "pg_isready",
        "pg_dump",
    ];
    places
        .into_iter()
        .find(|place| needs.iter().all(|name| place.join(name).is_file()))
}

/// A cluster on a mount in a [`World::open_to_all`] keeps every acknowledged transaction over
/// `rounds` crashes; `false`, on record as skipped, where it cannot run.
#[track_caller]
pub(crate) fn postgresql(test: &str, m: &mut Mounted, rounds: u32) -> bool {
    if !super::super::is_user_able() {
        teal_testkit::skip_test(test, "needs root and setpriv");
        return false;
    }
    let Some(programs) = postgres_programs() else {
        teal_testkit::skip_test(test, "PostgreSQL is not installed");
        return false;
    };
    // A world of its own for the sockets and the home: the mount is borrowed mutably while the
    // cluster lives.
    let outer = World::open_to_all();
    rustix::fs::chmod(m.point(), rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    let mut cluster = Cluster {
        world: &outer,
        programs,
        data: m.path("pg"),
        server: None,
    };
    for dir in [
        cluster.data.clone(),
        outer.path("sockets"),
        outer.path("home"),
    ] {
        let _ = std::fs::create_dir(&dir);
        std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
    }
    run_program(
        cluster
            .command("initdb")
            .arg("-D")
            .arg(&cluster.data)
            .args(["-U", "test", "-A", "trust", "-k"]),
    )
    .expect_success();
    cluster.start();
    run_program(cluster.command("pgbench").args(["-i", "-q", "-s", "2"])).expect_success();
    for round in 1..=rounds {
        let logs = outer.path(format!("home/round{round}"));
        let mut bench = cluster.command("pgbench");
        bench
            .args([
                "-n",
                "-c",
                "4",
                "-j",
                "2",
                "-T",
                "60",
                "--log",
                "--log-prefix",
            ])
            .arg(&logs);
        let before: u64 = cluster
            .query("SELECT count(*) FROM pgbench_history")
            .parse()
            .unwrap();
        let mut bench = bench
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let history = |cluster: &Cluster<'_>| {
            cluster
                .query("SELECT count(*) FROM pgbench_history")
                .parse::<u64>()
                .unwrap()
        };
        let is_enough = wait_until(PATIENCE, || history(&cluster) >= before + 400);
        // Rows that a query sees were committed, and were synced before that.
        let seen = history(&cluster);
        m.kill();
        cluster.kill();
        let _ = bench.wait();
        assert!(is_enough, "round {round}: {seen} transactions");
        m.up();
        cluster.start();
        let there = history(&cluster);
        assert!(
            there >= seen,
            "round {round}: {seen} were acknowledged, {there} are there"
        );
        let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
            AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)";
        assert_eq!(cluster.query(sums), "t", "round {round}: the books balance");
        let tables = [
            "pgbench_accounts",
            "pgbench_history",
            "pgbench_tellers",
            "pgbench_branches",
        ];
        if cluster.query("SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'")
            == "1"
        {
            cluster.query("CREATE EXTENSION IF NOT EXISTS amcheck");
            cluster.query("SELECT bt_index_check('pgbench_accounts_pkey', true)");
            for table in tables {
                assert_eq!(
                    cluster.query(&format!("SELECT count(*) FROM verify_heapam('{table}')")),
                    "0",
                    "{table}"
                );
            }
        }
        assert!(
            run_program(&mut cluster.command("pg_dump"))
                .expect_success()
                .len()
                > 1 << 20
        );
    }
    cluster.stop();
    m.remount();
    cluster.start();
    assert!(cluster.query("SELECT count(*) FROM pgbench_accounts") == "200000");
    cluster.stop();
    true
}
