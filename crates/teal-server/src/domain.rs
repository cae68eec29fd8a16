//! The deduplication domain of a server: made once, kept in its metadata.

use teal_chunk::{Domain, DomainId};
use teal_env::Entropy;
use teal_meta::{Meta, MetaError};
use teal_types::VolumeId;

/// What belongs to the server as a whole is kept under this number.
pub(crate) const SERVER: VolumeId = VolumeId::new(0);
const KEY: &str = "domain";

/// The domain in which this metadata names chunks: open the chunk store with it. Made at random the
/// first time.
///
/// # Errors
/// [`MetaError`].
pub fn domain(meta: &dyn Meta, entropy: &dyn Entropy) -> Result<Domain, MetaError> {
    Ok(domain_and_key(meta, entropy)?.0)
}

pub(crate) fn domain_and_key(
    meta: &dyn Meta,
    entropy: &dyn Entropy,
) -> Result<(Domain, [u8; 32]), MetaError> {
    let known: Option<Vec<u8>> = teal_meta::read(meta, SERVER, |txn| txn.setting(KEY))?;
    let bytes = match known.and_then(|bytes| <[u8; 48]>::try_from(bytes).ok()) {
        Some(bytes) => bytes,
        None => teal_meta::write(meta, SERVER, |txn| {
            if let Some(bytes) = txn
                .setting(KEY)?
                .and_then(|bytes| <[u8; 48]>::try_from(bytes).ok())
            {
                return Ok::<_, MetaError>(bytes);
            }
            let mut bytes = [0; 48];
            entropy.fill(&mut bytes);
            txn.put_setting(KEY, &bytes)?;
            Ok(bytes)
        })?,
    };
    let (mut id, mut key) = ([0; 16], [0; 32]);
    id.copy_from_slice(&bytes[..16]);
    key.copy_from_slice(&bytes[16..]);
    Ok((Domain::new(DomainId::new(id), key), key))
}
