//! The deduplication domain of a server: made once, kept in its metadata.

use teal_chunk::{DedupDomain, DomainId};
use teal_env::Entropy;
use teal_meta::{MetaError, MetaStore};
use teal_types::VolumeId;

/// The number under which settings of the server as a whole are kept.
pub(crate) const SERVER_VOLUME: VolumeId = VolumeId::new(0);
const KEY: &str = "domain";

/// Loads the domain in which this metadata names chunks; the chunk store is opened with it. The
/// first call makes the domain at random.
///
/// # Errors
/// [`MetaError`].
pub fn load_domain(meta: &dyn MetaStore, entropy: &dyn Entropy) -> Result<DedupDomain, MetaError> {
    Ok(load_domain_and_key(meta, entropy)?.0)
}

pub(crate) fn load_domain_and_key(
    meta: &dyn MetaStore,
    entropy: &dyn Entropy,
) -> Result<(DedupDomain, [u8; 32]), MetaError> {
    let known: Option<Vec<u8>> = teal_meta::read(meta, SERVER_VOLUME, |txn| txn.setting(KEY))?;
    let bytes = match known.and_then(|bytes| <[u8; 48]>::try_from(bytes).ok()) {
        Some(bytes) => bytes,
        None => teal_meta::write(meta, SERVER_VOLUME, |txn| {
            // Another opening may have made it since the first look.
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
    // The first bytes are the name of the domain, the others its key.
    let (mut id, mut key) = ([0; 16], [0; 32]);
    id.copy_from_slice(&bytes[..16]);
    key.copy_from_slice(&bytes[16..]);
    Ok((DedupDomain::new(DomainId::new(id), key), key))
}
