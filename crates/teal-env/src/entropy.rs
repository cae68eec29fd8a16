//! Random bytes.

/// Gives random bytes, for identities and hash seeds.
pub trait Entropy: Send + Sync {
    /// Fills `out`.
    fn fill(&self, out: &mut [u8]);

    /// Returns sixteen random bytes.
    fn random_id(&self) -> [u8; 16] {
        let mut out = [0; 16];
        self.fill(&mut out);
        out
    }
}

/// The kernel's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, out: &mut [u8]) {
        // The kernel may give fewer bytes than asked for, and a signal may interrupt it.
        let mut done = 0;
        while done < out.len() {
            match rustix::rand::getrandom(&mut out[done..], rustix::rand::GetRandomFlags::empty()) {
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => panic!("the kernel has no random generator: {e}"),
            }
        }
    }
}
