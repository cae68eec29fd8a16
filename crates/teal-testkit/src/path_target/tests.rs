//! The model and a real file system agree on every error and on the tree.

use super::*;
use crate::model::ReferenceModel;
use crate::ops::{OpWeights, generate_op};
use crate::rng::Rng;

const OPS: usize = 2_000;

/// Runs the same operations on a directory below `place` and on the model; says where they part.
fn compare(place: &Path, seed: u64) -> Result<(), String> {
    let dir = tempfile::tempdir_in(place).unwrap();
    let mut real = PathTarget::new(dir.path()).unwrap();
    let mut model = ReferenceModel::new();
    let root = FsOp::SetMode {
        path: PathBuf::new(),
        perm: 0o755,
    };
    assert_eq!((real.apply(&root), model.apply(&root)), (Ok(()), Ok(())));
    let mut rng = Rng::new(seed);
    let mut errors = 0;
    for n in 0..OPS {
        let op = generate_op(&mut rng, &model, &OpWeights::default());
        let (said, expected) = (real.apply(&op), model.apply(&op));
        if said != expected {
            return Err(format!(
                "seed {seed}, op {n}, {op:?}: model {expected:?}, real {said:?}"
            ));
        }
        errors += usize::from(said.is_err());
        if n % 50 == 49 || n + 1 == OPS {
            let diff = model.snapshot().diff(&real.snapshot());
            if !diff.is_empty() {
                return Err(format!(
                    "seed {seed}, up to op {n}, last {op:?}, model | real:\n{}",
                    diff.join("\n")
                ));
            }
        }
    }
    // The generator must not waste its time, nor spare the errors.
    assert!(
        (OPS / 20..OPS / 2).contains(&errors),
        "{errors} of {OPS} operations failed"
    );
    Ok(())
}

/// Checks whether the file system at `place` can show what the comparison needs: not all containers
/// and overlays can.
fn suits(place: &Path) -> Result<(), Errno> {
    let dir = tempfile::tempdir_in(place).unwrap();
    let mut target = PathTarget::new(dir.path())?;
    let (d, c) = (PathBuf::from("d"), PathBuf::from("c"));
    target.apply(&FsOp::Mkdir {
        path: d.clone(),
        perm: 0o755,
    })?;
    target.apply(&FsOp::Mknod {
        path: c.clone(),
        kind: FileType::Char,
        perm: 0o600,
        rdev: (1, 3),
    })?;
    target.apply(&FsOp::SetOwner {
        path: c,
        uid: Some(70_000),
        gid: None,
    })?;
    for name in ["user.a", "trusted.t"] {
        let (path, name) = (d.clone(), name.into());
        target.apply(&FsOp::SetXattr {
            path,
            name,
            value: vec![0; 600],
            mode: XattrMode::Any,
        })?;
    }
    if target.snapshot().nodes[&d].nlink == 2 {
        Ok(())
    } else {
        Err(Errno::MLINK)
    }
}

#[test]
fn the_model_agrees_with_the_host_file_system() {
    let place = ["/var/tmp", "/dev/shm"]
        .map(Path::new)
        .into_iter()
        .find(|place| suits(place).is_ok());
    let Some(place) = place else {
        let reason = "needs root and a file system with devices, extended attributes and link \
            counts of directories";
        return crate::skip_test("the_model_agrees_with_the_host_file_system", reason);
    };
    for seed in 0..8 {
        compare(place, seed).unwrap();
    }
}

#[test]
fn symbolic_links_are_never_followed() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("f"), "x").unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("l")).unwrap();
    let mut target = PathTarget::new(dir.path()).unwrap();
    assert_eq!(
        target.apply(&FsOp::Unlink { path: "l/f".into() }),
        Err(Errno::LOOP)
    );
    assert_eq!(
        target.apply(&FsOp::Truncate {
            path: "l".into(),
            size: 0
        }),
        Err(Errno::LOOP)
    );
    assert_eq!(std::fs::read(outside.path().join("f")).unwrap(), b"x");
}
