//! Random operations on a mount, compared with the reference file system and with ext4: the same
//! errors, the same trees.

use super::support::{Mounted, TestMount, World, find_program, has_loop_devices, shell};
use std::path::{Path, PathBuf};
use teal_testkit::model::ReferenceModel;
use teal_testkit::ops::{FsOp, OpTarget, OpWeights, generate_op};
use teal_testkit::{PathTarget, Rng};

const OPS: usize = 2_000;
/// Trees are compared after so many operations.
const LOOK: usize = 25;

/// The root starts alike everywhere.
fn begin(targets: &mut [&mut dyn OpTarget]) {
    let root = FsOp::SetMode {
        path: PathBuf::new(),
        perm: 0o755,
    };
    targets
        .iter_mut()
        .for_each(|target| assert_eq!(target.apply(&root), Ok(())));
}

/// Runs `ops` operations on both and the model that suggests them; they agree on everything.
fn agree(
    seed: u64,
    ops: usize,
    rng: &mut Rng,
    model: &mut ReferenceModel,
    one: &mut dyn OpTarget,
    other: Option<&mut PathTarget>,
) {
    let mut other = other;
    let mut errors = 0;
    for n in 0..ops {
        let op = generate_op(rng, model, &OpWeights::default());
        let (said, by_model) = (one.apply(&op), model.apply(&op));
        let expected = other.as_mut().map_or(by_model, |o| o.apply(&op));
        assert_eq!(said, expected, "seed {seed}, op {n}: {op:?}");
        errors += usize::from(said.is_err());
        if n % LOOK == LOOK - 1 || n + 1 == ops {
            let mut want = other
                .as_mut()
                .map_or_else(|| model.snapshot(), |o| o.snapshot());
            // The two file systems act at different times; only the model knows which times a
            // program has set.
            let known = model.snapshot();
            for (path, node) in &mut want.nodes {
                node.mtime = known.nodes.get(path).and_then(|n| n.mtime);
            }
            let diff = want.diff(&one.snapshot());
            assert!(
                diff.is_empty(),
                "seed {seed}, up to op {n}, last {op:?}, wanted | found:\n{}",
                diff.join("\n")
            );
        }
    }
    assert!(
        (ops / 20..ops / 2).contains(&errors),
        "{errors} of {ops} operations failed"
    );
}

fn with_the_model(test: &str, seeds: std::ops::Range<u64>) {
    let Some(mut m) = Mounted::new(test, "512M") else {
        return;
    };
    for seed in seeds {
        let dir = m.path(format!("seed-{seed}"));
        std::fs::create_dir(&dir).unwrap();
        let (mut rng, mut model) = (Rng::new(seed), ReferenceModel::new());
        for _ in 0..4 {
            let mut target = PathTarget::new(&dir).unwrap();
            if model.list_paths().len() == 1 {
                begin(&mut [&mut target, &mut model]);
            }
            agree(seed, OPS / 4, &mut rng, &mut model, &mut target, None);
            // A remount closes what is open: so does the model.
            for slot in 0..8 {
                let close = FsOp::Close { slot };
                assert_eq!(target.apply(&close), model.apply(&close));
            }
            drop(target);
            m.remount();
            let diff = model
                .snapshot()
                .diff(&PathTarget::new(&dir).unwrap().snapshot());
            assert!(
                diff.is_empty(),
                "seed {seed}, after a remount, model | mount:\n{}",
                diff.join("\n")
            );
        }
    }
    m.down();
    m.check();
}

#[test]
fn the_mount_does_what_the_model_does() {
    with_the_model("the_mount_does_what_the_model_does", 0..3);
}

#[test]
fn the_mount_does_what_the_model_does_with_other_seeds() {
    with_the_model(
        "the_mount_does_what_the_model_does_with_other_seeds",
        100..103,
    );
}

/// An ext4 file system on a loop device; `None`, on record as skipped, where there can be none.
fn ext4(test: &str, world: &World) -> Option<TestMount> {
    if find_program("mkfs.ext4", &[]).is_none() {
        teal_testkit::skip_test(test, "mkfs.ext4 is missing");
        return None;
    }
    if !has_loop_devices(test) {
        return None;
    }
    let (image, point) = (world.path("ext4.img"), world.path("ext4"));
    std::fs::create_dir(&point).unwrap();
    let script = r#"truncate -s 512M "$1"; mkfs.ext4 -q -F "$1"; mount -o loop "$1" "$2""#;
    shell(world, script, &[&image, &point]).expect_success();
    Some(TestMount(point))
}

#[test]
fn the_mount_does_what_ext4_does() {
    let test = "the_mount_does_what_ext4_does";
    let Some(m) = Mounted::new(test, "512M") else {
        return;
    };
    let Some(ext4) = ext4(test, m.world()) else {
        return;
    };
    let below = |root: &Path, seed: u64| {
        let dir = root.join(format!("seed-{seed}"));
        std::fs::create_dir(&dir).unwrap();
        PathTarget::new(&dir).unwrap()
    };
    for seed in 200..203 {
        let (mut ours, mut theirs) = (below(m.point(), seed), below(&ext4.0, seed));
        let mut model = ReferenceModel::new();
        begin(&mut [&mut ours, &mut theirs, &mut model]);
        agree(
            seed,
            OPS,
            &mut Rng::new(seed),
            &mut model,
            &mut ours,
            Some(&mut theirs),
        );
    }
}

#[test]
fn a_lost_operation_is_noticed() {
    // The seeded bug: a target that answers and does nothing, once in a while.
    struct Lossy(PathTarget, u32);
    impl OpTarget for Lossy {
        fn apply(&mut self, op: &FsOp) -> Result<(), teal_testkit::Errno> {
            self.1 += 1;
            if self.1.is_multiple_of(97) {
                Ok(())
            } else {
                self.0.apply(op)
            }
        }
        fn snapshot(&mut self) -> teal_testkit::tree::TreeSnapshot {
            self.0.snapshot()
        }
    }
    let Some(m) = Mounted::new("a_lost_operation_is_noticed", "64M") else {
        return;
    };
    let mut target = Lossy(PathTarget::new(m.point()).unwrap(), 0);
    let mut model = ReferenceModel::new();
    begin(&mut [&mut target, &mut model]);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        agree(5, OPS, &mut Rng::new(5), &mut model, &mut target, None);
    }));
    assert!(caught.is_err());
}
