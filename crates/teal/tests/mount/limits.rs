//! The limits in `docs/semantics.md` as programs meet them: each reached on a mount, and each
//! passed by one.

use crate::support::Mounted;
use rustix::fs::{CWD, Mode, OFlags, fstat, ftruncate, mkdirat, openat, symlinkat};
use rustix::io::Errno;
use std::path::Path;

#[test]
fn names_links_and_paths_reach_their_limits() {
    let Some(mut m) = Mounted::new("names_links_and_paths_reach_their_limits", "64M") else {
        return;
    };
    let at = m.path("n".repeat(255));
    let beyond = m.path("n".repeat(256));
    std::fs::write(&at, "x").unwrap();
    assert_eq!(errno(std::fs::write(&beyond, "x")), Errno::NAMETOOLONG);
    assert_eq!(errno(std::fs::create_dir(&beyond)), Errno::NAMETOOLONG);
    assert_eq!(errno(std::fs::rename(&at, &beyond)), Errno::NAMETOOLONG);

    let target = "t".repeat(4095);
    symlinkat(target.as_str(), CWD, m.path("link")).unwrap();
    assert_eq!(
        symlinkat(format!("{target}t"), CWD, m.path("more")),
        Err(Errno::NAMETOOLONG)
    );

    for n in 1..1000 {
        std::fs::hard_link(&at, m.path(format!("name {n}"))).unwrap();
    }
    assert_eq!(
        errno(std::fs::hard_link(&at, m.path("name 1000"))),
        Errno::MLINK
    );

    // A path has 4095 bytes; trees are as deep as one likes.
    let mut dir = openat(
        CWD,
        m.point(),
        OFlags::CLOEXEC | OFlags::DIRECTORY,
        Mode::empty(),
    )
    .unwrap();
    let (mut path, name) = (m.point().to_str().unwrap().to_owned(), "d".repeat(200));
    for _ in 0..25 {
        mkdirat(&dir, name.as_str(), Mode::RWXU).unwrap();
        dir = openat(
            &dir,
            name.as_str(),
            OFlags::CLOEXEC | OFlags::DIRECTORY,
            Mode::empty(),
        )
        .unwrap();
        path = format!("{path}/{name}");
    }
    assert!(path.len() > 5000);
    let cut = |len: usize| format!("{}{}", "/".repeat(len), m.point().to_str().unwrap());
    let short = m.point().to_str().unwrap().len();
    assert!(Path::new(&cut(4095 - short)).exists());
    assert_eq!(
        errno(std::fs::metadata(cut(4096 - short))),
        Errno::NAMETOOLONG
    );
    drop(dir);
    m.remount();
    assert_eq!(
        std::fs::read_link(m.path("link")).unwrap(),
        Path::new(&target)
    );
    assert_eq!(
        std::os::unix::fs::MetadataExt::nlink(&std::fs::metadata(&at).unwrap()),
        1000
    );
    m.down();
    m.check();
}

#[test]
fn a_file_reaches_its_limit() {
    let Some(mut m) = Mounted::new("a_file_reaches_its_limit", "64M") else {
        return;
    };
    let limit = 1u64 << 60;
    let flags = OFlags::CLOEXEC | OFlags::CREATE | OFlags::RDWR;
    let file = openat(CWD, m.path("f"), flags, Mode::RUSR | Mode::WUSR).unwrap();
    assert_eq!(rustix::io::pwrite(&file, b"end", limit - 3), Ok(3));
    assert_eq!(rustix::io::pwrite(&file, b"x", limit), Err(Errno::FBIG));
    assert_eq!(ftruncate(&file, limit + 1), Err(Errno::FBIG));
    ftruncate(&file, limit).unwrap();
    drop(file);
    m.remount();
    let file = openat(
        CWD,
        m.path("f"),
        OFlags::CLOEXEC | OFlags::RDONLY,
        Mode::empty(),
    )
    .unwrap();
    let mut end = [0; 8];
    assert_eq!(rustix::io::pread(&file, &mut end, limit - 5), Ok(5));
    assert_eq!(&end, b"\0\0end\0\0\0");
    assert_eq!(fstat(&file).unwrap().st_size as u64, limit);
    drop(file);
    m.down();
    m.check();
}

#[track_caller]
fn errno<T>(result: std::io::Result<T>) -> Errno {
    Errno::from_io_error(&result.err().expect("refused")).unwrap()
}
