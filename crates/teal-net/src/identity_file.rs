//! A private key and its certificate in one file: lines of `name: value`, then PEM, which other
//! tools read too.
//!
//! # Guarantees
//! 1. The file is readable by its owner only, from its first byte on; one that others may read is
//!    refused.
//! 2. The file is replaced as a whole or not at all, and is on the disk when writing returns
//!    ([`replace_file`]).

use crate::error::IdentityError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::fmt::{Display, Write as _};
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use teal_env::{ExistingFile, replace_file};

/// The most bytes such a file has; ours have about 1200.
const SIZE_MAX: u64 = 64 << 10;

/// The content of an identity file.
pub(crate) struct IdentityFile {
    /// Names and values; neither contains a line's end.
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) key: PrivatePkcs8KeyDer<'static>,
    pub(crate) certificate: CertificateDer<'static>,
}

fn io_error_at(path: &Path) -> impl Fn(io::Error) -> IdentityError {
    move |source| IdentityError::Io {
        path: path.to_owned(),
        source,
    }
}

impl IdentityFile {
    /// Writes the file `path`, with `title` as its first line.
    pub(crate) fn write(
        &self,
        path: &Path,
        title: &str,
        existing: ExistingFile,
    ) -> Result<(), IdentityError> {
        let mut text = format!("{title}\n");
        for (name, value) in &self.fields {
            debug_assert!(!value.contains('\n'), "a value fits a line");
            text.push_str(&format!("{name}: {value}\n"));
        }
        push_pem_section(&mut text, "PRIVATE KEY", self.key.secret_pkcs8_der());
        push_pem_section(&mut text, "CERTIFICATE", &self.certificate);
        replace_file(path, text.as_bytes(), existing).map_err(io_error_at(path))
    }

    /// Reads the file `path`, which must have every one of `names`.
    pub(crate) fn read(path: &Path, names: &[&'static str]) -> Result<Self, IdentityError> {
        let damaged = |why: &str| IdentityError::Damaged {
            path: path.to_owned(),
            why: why.to_owned(),
        };
        let file = OpenOptions::new()
            .read(true)
            .open(path)
            .map_err(io_error_at(path))?;
        let meta = file.metadata().map_err(io_error_at(path))?;
        // Others may have read the key already, so using it in silence would be wrong.
        if meta.mode() & 0o077 != 0 {
            return Err(IdentityError::Exposed {
                path: path.to_owned(),
                mode: meta.mode() & 0o7777,
            });
        }
        // A file of the right size is read into memory; anything else is no identity.
        if meta.len() > SIZE_MAX {
            return Err(damaged("too long"));
        }
        let mut bytes = Vec::new();
        file.take(SIZE_MAX)
            .read_to_end(&mut bytes)
            .map_err(io_error_at(path))?;
        let text = String::from_utf8(bytes).map_err(|_| damaged("not a text"))?;
        let mut fields = Vec::new();
        for name in names {
            let Some(value) = value_of(&text, name) else {
                return Err(damaged(&format!("no line `{name}:`")));
            };
            fields.push((*name, value.to_owned()));
        }
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes())
            .map_err(|_| damaged("no private key"))?;
        let certificate = CertificateDer::from_pem_slice(text.as_bytes())
            .map_err(|_| damaged("no certificate"))?;
        Ok(Self {
            fields,
            key,
            certificate,
        })
    }

    /// Returns the value of the line `name` as a `T`.
    pub(crate) fn parse_field<T: std::str::FromStr>(
        &self,
        path: &Path,
        name: &str,
    ) -> Result<T, IdentityError> {
        let field = self.fields.iter().find(|(known, _)| *known == name);
        if let Some((_, value)) = field
            && let Ok(value) = value.parse()
        {
            return Ok(value);
        }
        Err(IdentityError::Damaged {
            path: path.to_owned(),
            why: format!("no sense in the line `{name}:`"),
        })
    }
}

/// Returns the value in the line of that name.
fn value_of<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix(name)
            && let Some(value) = rest.strip_prefix(": ")
        {
            return Some(value);
        }
    }
    None
}

/// Says that what `path` holds does not fit together.
pub(crate) fn damaged_file<E: Display>(path: &Path) -> impl Fn(E) -> IdentityError {
    move |why| IdentityError::Damaged {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn push_pem_section(text: &mut String, name: &str, der: &[u8]) {
    debug_assert!(!name.contains('-'), "a label of PEM has no dashes");
    let encoded = BASE64_STANDARD.encode(der);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "-----BEGIN {name}-----");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        debug_assert!(rest.is_ascii(), "Base64 can be cut anywhere");
        let (line, after) = rest.split_at(rest.len().min(64));
        let _ = writeln!(text, "{line}");
        rest = after;
    }
    let _ = writeln!(text, "-----END {name}-----");
}
