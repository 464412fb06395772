//! Encrypted connections: rustls, with the cryptography of graviola, whose licences fit a plugin under
//! GPL-2.0 as those of ring and of AWS-LC do not. Files that have changed are for clients that come
//! afterwards (MC-9).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use varve::{Error, Result};

use crate::watched::Watched;

/// With what connections by TCP are encrypted. All files are PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and those that lead to one that clients trust.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Clients need a certificate of one of these authorities.
    pub authorities: Option<PathBuf>,
}

/// How connections are encrypted, as files say it.
pub struct Tls(Watched<TlsAcceptor>);

impl Tls {
    pub fn open(files: &TlsFiles) -> Result<Tls> {
        if !can_encrypt() {
            let why = "TLS needs a processor with AES, PCLMULQDQ, ADX, BMI2 and AVX2, as those since 2014 have";
            return Err(Error::invalid(why));
        }
        let files = files.clone();
        let paths = [&files.certificate, &files.key].into_iter();
        let paths = paths.chain(&files.authorities).cloned().collect();
        Watched::open(paths, move || acceptor(&files)).map(Tls)
    }

    /// For the client that comes now. `warn` is told why files that have changed are not used.
    pub fn acceptor(&self, warn: impl FnOnce(&str)) -> TlsAcceptor {
        let warn = |why| warn(&format!("certificates stay as they were: {why}"));
        self.0.see(warn, TlsAcceptor::clone)
    }
}

/// TLS 1.2 and 1.3.
fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| bad(&files.key, e))?;
    let provider = Arc::new(rustls_graviola::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::invalid(e.to_string()))?;
    let builder = match &files.authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|e| bad(path, e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|e| bad(path, e))?)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let config = config.map_err(|e| bad(&files.certificate, e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// graviola panics where these instructions are missing.
#[cfg(target_arch = "x86_64")]
fn can_encrypt() -> bool {
    use std::arch::is_x86_feature_detected as has;
    let ciphers = has!("aes") && has!("pclmulqdq") && has!("ssse3");
    ciphers && has!("avx") && has!("avx2") && has!("adx") && has!("bmi1") && has!("bmi2")
}

/// graviola panics where these instructions are missing.
#[cfg(target_arch = "aarch64")]
fn can_encrypt() -> bool {
    use std::arch::is_aarch64_feature_detected as has;
    has!("aes") && has!("pmull") && has!("neon") && has!("sha2")
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let list = CertificateDer::pem_file_iter(path).map_err(|e| bad(path, e))?;
    let list: std::result::Result<Vec<_>, _> = list.collect();
    let list = list.map_err(|e| bad(path, e))?;
    if list.is_empty() {
        return Err(bad(path, "there is no certificate"));
    }
    Ok(list)
}

fn bad(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::invalid(format!("{}: {why}", path.display()))
}
