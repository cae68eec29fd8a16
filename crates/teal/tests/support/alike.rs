//! Shell scripts that must say the same in a directory of the file system below and on a mount, and
//! leave the same behind.

use super::{Mounted, World, find_program, is_user_able, run_program};
use std::path::Path;
use std::process::Command;

/// The subject, and the script.
pub(crate) type Script = (&'static str, &'static str);

/// Shows everything in the current directory: modes, owners, lists as programs and as the kernel
/// see them. `as N command` runs one as user and group N; `with N M command` as user N in group M
/// besides; `nameless D N` makes a file without a name in D and then calls it N.
const WORDS: &str = r#"
show() {
    find . | LC_ALL=C sort | while read -r path; do
        stat -c '%n %A %u:%g %F' "$path"
        [ -L "$path" ] || getfacl -cnE "$path"
        [ -L "$path" ] || getfattr -d -m - -e hex "$path"
    done
}
as() { id=$1; shift; setpriv --reuid "$id" --regid "$id" --clear-groups "$@"; echo "$*: $?"; }
with() { id=$1; also=$2; shift 2; setpriv --reuid "$id" --regid "$id" --groups "$also" "$@"; echo "$*: $?"; }
nameless() {
    perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_RDWR | O_DIRECTORY | 020000000, 0664) or die "$!\n"; $n = fileno($f);
        exit(system("ln", "-L", "/proc/$$/fd/$n", "$ARGV[0]/$ARGV[1]") >> 8)' "$@"
}
chmod 755 .
umask 022
"#;

/// The programs that scripts use. (Not `xfs_io`: it asks every mount of the machine for its size,
/// and waits for those that do not answer.)
const PROGRAMS: [&str; 4] = ["setfacl", "getfattr", "perl", "setcap"];

fn outcome(script: &str, place: &Path) -> String {
    let script = format!("exec 2>&1\n{WORDS}\n{script}\nshow");
    run_program(
        Command::new("sh")
            .args(["-c", &script])
            .env("LC_ALL", "C")
            .current_dir(place),
    )
    .stdout
}

/// Runs each script in an empty directory of its own, in both places, and looks again after a
/// remount.
#[track_caller]
pub(crate) fn behaves_as_below(test: &str, scripts: &[Script]) {
    if !is_user_able()
        || PROGRAMS
            .iter()
            .any(|name| find_program(name, &[]).is_none())
    {
        return teal_testkit::skip_test(
            test,
            "needs root, setpriv, perl and the Debian packages acl, attr, libcap2-bin",
        );
    }
    if World::new(test).is_none() {
        return;
    }
    let mut m = Mounted::of(World::open_to_all(), "256M");
    let below = m.world().path("below");
    let places = |n: usize| [below.join(n.to_string()), m.path(n.to_string())];
    std::fs::create_dir(&below).unwrap();
    rustix::fs::chmod(m.point(), rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    let probe =
        "touch f && setfacl -m u:5:r f && setcap cap_chown+ep f && nameless . t && echo able";
    if !outcome(probe, &below).contains("able") {
        return teal_testkit::skip_test(
            test,
            "the file system of /var/tmp has not enough to compare with",
        );
    }
    for (n, (what, script)) in scripts.iter().enumerate() {
        let [theirs, ours] = places(n).map(|place| {
            std::fs::create_dir(&place).unwrap();
            outcome(script, &place)
        });
        assert!(theirs.lines().count() > 5, "{what}: {theirs}");
        same(what, &theirs, &ours);
    }
    let after: Vec<String> = (0..scripts.len())
        .map(|n| outcome("", &places(n)[0]))
        .collect();
    m.remount();
    for (n, (what, _)) in scripts.iter().enumerate() {
        same(
            &format!("{what}, mounted again"),
            &after[n],
            &outcome("", &m.path(n.to_string())),
        );
    }
    m.down();
    m.check();
}

/// Two outputs are the same; the first lines that are not, otherwise.
#[track_caller]
fn same(what: &str, theirs: &str, ours: &str) {
    let lines = || theirs.lines().zip(ours.lines());
    let at = lines().take_while(|(theirs, ours)| theirs == ours).count();
    let part = |text: &str| {
        text.lines()
            .skip(at.saturating_sub(6))
            .take(16)
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(
        theirs == ours,
        "{what}, line {at}\n--- there\n{}\n--- on the mount\n{}",
        part(theirs),
        part(ours)
    );
}
