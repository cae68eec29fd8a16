//! The client and the reference model agree on every error and on the tree, whatever happens to the
//! store in between.

use crate::fixture::Volume;
use crate::target::ClientTarget;
use std::time::Duration;
use teal_testkit::Rng;
use teal_testkit::model::ReferenceModel;
use teal_testkit::ops::{FsOp, OpTarget, OpWeights, generate_op};

const OPS: usize = 2_000;
const SEEDS: u64 = 12;

/// Something that must not change what programs see.
fn disturb(rng: &mut Rng, target: &mut ClientTarget, model: &mut ReferenceModel) {
    let client = &target.volume.client;
    match rng.below(200) {
        0..8 => client.sync().unwrap(),
        8..12 => client.store().checkpoint().unwrap(),
        12..16 => client.store().drop_caches(),
        16..30 => {
            target
                .volume
                .clock
                .advance(Duration::from_millis(rng.below(20_000)));
            client.step();
        }
        n @ 30..32 => {
            // Open files do not outlive the client.
            for slot in target.open_slots() {
                let close = FsOp::Close { slot };
                assert_eq!(
                    (target.apply(&close), model.apply(&close)),
                    (Ok(()), Ok(()))
                );
            }
            let client = &target.volume.client;
            if n == 30 {
                assert_eq!(
                    client.shutdown().unwrap(),
                    Default::default(),
                    "references are left"
                );
            } else {
                client.sync().unwrap();
            }
            target.volume.reopen();
            assert_eq!(target.volume.client.status().unwrap().orphans, 0);
        }
        _ => {}
    }
}

fn compare(seed: u64) -> Result<(), String> {
    let (mut target, mut model) = (ClientTarget::new(Volume::new()), ReferenceModel::new());
    let mut rng = Rng::new(seed);
    let mut fate = rng.fork();
    let mut errors = 0;
    for n in 0..OPS {
        let op = generate_op(&mut rng, &model, &OpWeights::default());
        let (said, expected) = (target.apply(&op), model.apply(&op));
        if said != expected {
            return Err(format!(
                "op {n}, {op:?}: model {expected:?}, client {said:?}"
            ));
        }
        errors += usize::from(said.is_err());
        disturb(&mut fate, &mut target, &mut model);
        if n % 100 == 99 {
            let diff = model.snapshot().diff(&target.snapshot());
            if !diff.is_empty() {
                return Err(format!(
                    "up to op {n}, last {op:?}, model | client:\n{}",
                    diff.join("\n")
                ));
            }
        }
    }
    assert!(
        (OPS / 20..OPS / 2).contains(&errors),
        "{errors} of {OPS} operations failed"
    );
    println!(
        "seed {seed}: {} bytes shared since the last opening",
        target.volume.client.store().counter_values().bytes_shared
    );
    Ok(())
}

/// `TEAL_SEED` picks one seed.
#[test]
fn the_client_agrees_with_the_model() {
    let seeds = match std::env::var("TEAL_SEED") {
        Ok(seed) => vec![seed.parse().expect("TEAL_SEED is a number")],
        Err(_) => (0..SEEDS).collect(),
    };
    for seed in seeds {
        if let Err(e) = compare(seed) {
            panic!("TEAL_SEED={seed}: {e}");
        }
    }
}
