//! `teal doctor` names what is wrong, and the way out that it names works.

use crate::support::{Mounted, PATIENCE, run_program, shell, wait_until};
use std::process::{Command, Stdio};

/// Sends a signal to the daemon of a mount.
fn signal(m: &Mounted, name: &str) {
    let pid = m.pid().to_string();
    run_program(Command::new("kill").args([name, &pid])).expect_success();
}

/// Returns the lines that the doctor says of this mount, its name apart, and the way out below them.
fn lines_on(m: &Mounted) -> Vec<String> {
    let said = m.world().teal(&["doctor"]);
    let point = m.point().to_str().unwrap();
    let mut lines = said
        .stdout
        .lines()
        .skip_while(|line| !line.starts_with(point));
    let Some(first) = lines.next() else {
        return Vec::new();
    };
    assert_eq!(said.code, 1, "{said}");
    let way_out = lines.take_while(|line| line.starts_with(' '));
    std::iter::once(&first[point.len()..])
        .chain(way_out.map(str::trim))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_daemon_that_hangs_is_named_and_the_way_out_ends_the_waiting() {
    let test = "a_daemon_that_hangs_is_named_and_the_way_out_ends_the_waiting";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    shell(
        m.world(),
        r#"echo content > "$1"; sync "$1""#,
        &[&m.path("f")],
    )
    .expect_success();
    assert_eq!(
        lines_on(&m),
        Vec::<String>::new(),
        "nothing is wrong with it"
    );

    signal(&m, "-STOP");
    let mut caught = Command::new("stat")
        .arg(m.path("unheard of"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = lines_on(&m);
    assert_eq!(lines[0], ": its daemon does not answer within 3 s");
    let command = lines[1].strip_prefix("as root: ").unwrap();
    assert!(command.ends_with("/abort"), "{command}");
    assert!(caught.try_wait().unwrap().is_none(), "it waits");
    shell(m.world(), command, &[]).expect_success();
    assert!(
        wait_until(PATIENCE, || caught.try_wait().unwrap().is_some()),
        "it is freed"
    );
    signal(&m, "-KILL");
    let down = lines[2].strip_prefix("then: ").unwrap();
    let down = down.replacen("teal", env!("CARGO_BIN_EXE_teal"), 1);
    shell(m.world(), &down, &[]).expect_success();
    m.up();
    assert_eq!(std::fs::read(m.path("f")).unwrap(), b"content\n");
    assert_eq!(
        lines_on(&m),
        Vec::<String>::new(),
        "nothing is wrong any more"
    );
    m.down();
}

#[test]
fn a_mount_without_its_daemon_is_named_with_the_command_that_frees_it() {
    let test = "a_mount_without_its_daemon_is_named_with_the_command_that_frees_it";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    signal(&m, "-KILL");
    let is_told = || !lines_on(&m).is_empty();
    assert!(wait_until(PATIENCE, is_told));
    let lines = lines_on(&m);
    assert_eq!(
        lines[0],
        ": its daemon is gone; what was synced is in the store"
    );
    let down = lines[1].replacen("teal", env!("CARGO_BIN_EXE_teal"), 1);
    shell(m.world(), &down, &[]).expect_success();
    assert_eq!(
        lines_on(&m),
        Vec::<String>::new(),
        "nothing is mounted there"
    );
    m.up();
    m.down();
}
