//! `rediss://`: a certificate that the system trusts is wanted, and nothing else is spoken to.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::redis_faults::Own;
use crate::sentinel::Sentinel;
use crate::serve::Serve;
use crate::servers::{TestEnv, env, free_port};
use crate::starting::{refused, refused_with, says};

/// An authority, and a server's certificate that it signed, as files.
fn certificates() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Of one name with the server's, that one would pass for signed by itself where nodes check each other.
    let name = "an authority";
    params.distinguished_name.push(DnType::CommonName, name);
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

/// Settings of whoever speaks TLS with these certificates and wants none of its clients', as names and values.
fn settings(certificates: &Path) -> [(&'static str, String); 4] {
    let file = |name: &str| certificates.join(name).display().to_string();
    [
        ("tls-cert-file", file("server.pem")),
        ("tls-key-file", file("server.key")),
        ("tls-ca-cert-file", file("ca.pem")),
        ("tls-auth-clients", "no".to_owned()),
    ]
}

/// The same as arguments of a program.
fn arguments(certificates: &Path) -> Vec<String> {
    settings(certificates)
        .into_iter()
        .flat_map(|(name, value)| [format!("--{name}"), value])
        .collect()
}

/// A Redis, and the port at which it speaks nothing but TLS.
fn redis(certificates: &Path) -> (Own, u16) {
    let port = free_port();
    let own = Own::start(|options| {
        options.extra_args = arguments(certificates);
        let words = ["--tls-port".to_owned(), port.to_string()];
        options.extra_args.extend(words);
    });
    (own, port)
}

/// A program that trusts the authority takes ten likes, lands and reads them.
async fn works(env: &TestEnv, certificates: &Path, settings: &[(&str, &str)]) {
    let authority = certificates.join("ca.pem");
    let mut all = vec![("SSL_CERT_FILE", authority.to_str().unwrap())];
    all.extend(settings);
    let serve = Serve::start(env, &all).await;
    for n in 0..10 {
        assert_eq!(serve.like(&format!("u{n}"), "blog/1").await.status, 200);
    }
    let report = serve.admin("/admin/v1/flushes").await.unwrap();
    assert_eq!(report["entries"], 10);
    assert_eq!(serve.get("u3", "blog/1").await.json()["count"], 10);
    serve.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_spoken_to_over_tls_if_its_certificate_is_trusted() {
    let certificates = certificates();
    let (_own, port) = redis(certificates.path());
    let env = TestEnv {
        redis_url: format!("rediss://127.0.0.1:{port}"),
        ..env().await
    };
    // Nobody has said that this authority is to be trusted.
    says(&refused(&env).await, &["redis", "certificate"]);
    works(&env, certificates.path(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_spoken_to_over_tls() {
    let certificates = certificates();
    let cluster = Cluster::over_tls(arguments(certificates.path())).await;
    let env = TestEnv {
        redis_url: cluster.tls_url().await,
        ..env().await
    };
    says(&refused(&env).await, &["redis", "certificate"]);
    works(&env, certificates.path(), &[("THUMBD_PARTITIONS", "6")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_spoken_to_over_tls_and_with_their_password() {
    let certificates = certificates();
    let (_own, port) = redis(certificates.path());
    let lines = settings(certificates.path()).map(|(name, value)| format!("{name} {value}\n"));
    let lines = lines.concat();
    let lines =
        format!("port 0\ntls-port PORT\ntls-replication yes\nrequirepass watch/er\n{lines}");
    let sentinel = Sentinel::start(port, 1, &lines);
    let at = format!("rediss+sentinel://127.0.0.1:{}/main", sentinel.port());
    let on = async |redis_url: String| TestEnv {
        redis_url,
        ..env().await
    };
    let open = on(format!("{at}?sentinel_password=watch%2Fer")).await;
    works(&open, certificates.path(), &[]).await;
    let authority = certificates.path().join("ca.pem");
    let trusted = [("SSL_CERT_FILE", authority.to_str().unwrap())];
    for wrong in [at.clone(), format!("{at}?sentinel_password=other")] {
        let said = refused_with(&on(wrong).await, &trusted).await;
        says(&said, &["redis", "no sentinel names a primary"]);
    }
}
