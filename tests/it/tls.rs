//! `rediss://`: a certificate that the system trusts is wanted, and nothing else is spoken to.

use std::net::TcpListener;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::redis_faults::Own;
use crate::serve::Serve;
use crate::servers::{TestEnv, env};
use crate::starting::{refused, says};

/// An authority, and a server's certificate that it signed, as files.
fn certificates() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let params = CertificateParams::new(names).unwrap();
    let server = params.signed_by(&key, &issuer).unwrap();
    let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
    write("ca.pem", authority.pem());
    write("server.pem", server.pem());
    write("server.key", key.serialize_pem());
    dir
}

/// A Redis, and the address at which it speaks nothing but TLS.
fn redis(certificates: &Path) -> (Own, String) {
    let file = |name: &str| certificates.join(name).display().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let own = Own::start(|options| {
        options.extra_args = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", file("server.pem")),
            ("--tls-key-file", file("server.key")),
            ("--tls-ca-cert-file", file("ca.pem")),
            ("--tls-auth-clients", "no".to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
    });
    (own, format!("rediss://127.0.0.1:{port}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_spoken_to_over_tls_if_its_certificate_is_trusted() {
    let certificates = certificates();
    let (_own, redis_url) = redis(certificates.path());
    let env = TestEnv {
        redis_url,
        ..env().await
    };
    // Nobody has said that this authority is to be trusted.
    says(&refused(&env).await, &["redis", "certificate"]);
    let authority = certificates.path().join("ca.pem");
    let settings = [("SSL_CERT_FILE", authority.to_str().unwrap())];
    let serve = Serve::start(&env, &settings).await;
    for n in 0..10 {
        assert_eq!(serve.like(&format!("u{n}"), "blog/1").await.status, 200);
    }
    let report = serve.admin("/admin/v1/flushes").await.unwrap();
    assert_eq!(report["entries"], 10);
    assert_eq!(serve.get("u3", "blog/1").await.json()["count"], 10);
    serve.stop();
}
