//! A git repository, remounted and killed.

use super::super::{Mounted, find_program, shell};
use super::sources::sources;

/// Makes one of about `bytes` of sources on a mount, and looks whether it is whole after a remount
/// and after the daemon was killed; `false`, on record as skipped, where git is not installed.
#[track_caller]
pub(crate) fn git(test: &str, m: &mut Mounted, bytes: u64) -> bool {
    if find_program("git", &[]).is_none() {
        teal_testkit::skip_test(test, "git is not installed");
        return false;
    }
    let tree = sources(m.world(), bytes);
    let git = |m: &Mounted, script: &str| {
        let head = r#"
            export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
            git() { command git -c user.name=T -c user.email=t@example.org -c core.fsync=all "$@"; }
            cd "$1"
        "#;
        shell(m.world(), &format!("{head}{script}"), &[m.point(), &tree]).expect_success()
    };
    git(
        m,
        r#"mkdir repo; cp -a "$2"/. repo; cd repo; git init -q .; git add -A; git commit -qm first"#,
    );
    git(
        m,
        r#"cd repo; echo more > more; git add more; git commit -qm second; git gc -q; git branch side HEAD~1"#,
    );
    m.remount();
    let status = r#"cd repo; git fsck --full --strict 2>&1; git status --porcelain --ignored=no; git log --oneline | wc -l"#;
    let said = git(m, status);
    assert_eq!(
        said.trim(),
        "2",
        "no complaint, nothing changed, two commits: {said}"
    );
    git(
        m,
        "cd repo; git checkout -q side; test ! -e more; git checkout -q -; test -e more; git clone -q . ../clone",
    );
    // Killed after one file was synced, which takes everything before it along: the repository is
    // as it was.
    git(m, "sync clone/.git/HEAD");
    m.kill();
    m.up();
    assert_eq!(git(m, status).trim(), "2");
    assert_eq!(
        git(m, "cd clone; git fsck --full 2>&1; git status --porcelain").trim(),
        ""
    );
    true
}
