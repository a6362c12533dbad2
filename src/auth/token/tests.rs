//! Tokens that hold, and all the ways in which one does not. The keys in `tests/data/keys` are for tests alone.

use chrono::Utc;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::*;

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/data/keys/",
            $name
        ))
    };
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Each algorithm: the key that signs, and the file or secret that checks.
fn signers() -> [(Algorithm, EncodingKey, TokenKeys); 4] {
    let bytes = |text: &'static str| text.as_bytes();
    [
        (
            Algorithm::HS256,
            EncodingKey::from_secret(SECRET.as_bytes()).unwrap(),
            TokenKeys::secret(SECRET).unwrap(),
        ),
        (
            Algorithm::RS256,
            EncodingKey::from_rsa_pem(bytes(file!("rsa.pem"))).unwrap(),
            TokenKeys::parse(file!("rsa.pub.pem")).unwrap(),
        ),
        (
            Algorithm::ES256,
            EncodingKey::from_ec_pem(bytes(file!("p256.pem"))).unwrap(),
            TokenKeys::parse(file!("p256.pub.pem")).unwrap(),
        ),
        (
            Algorithm::EdDSA,
            EncodingKey::from_ed_pem(bytes(file!("ed25519.pem"))).unwrap(),
            TokenKeys::parse(file!("ed25519.pub.pem")).unwrap(),
        ),
    ]
}

fn in_seconds(seconds: i64) -> i64 {
    Utc::now().timestamp() + seconds
}

fn token(algorithm: Algorithm, kid: Option<&str>, claims: &Value, key: &EncodingKey) -> String {
    let mut header = Header::new(algorithm);
    header.kid = kid.map(str::to_owned);
    encode(&header, claims, key).unwrap()
}

fn user(keys: &TokenKeys, token: &str) -> Option<String> {
    let user = keys.user(&TokenRules::default(), token);
    user.map(|user| user.as_str().to_owned())
}

#[test]
fn each_algorithm_is_taken_by_its_own_key_and_by_no_other() {
    let signers = signers();
    let claims = json!({ "sub": "u1", "exp": in_seconds(60) });
    for (at, (algorithm, key, _)) in signers.iter().enumerate() {
        let token = token(*algorithm, None, &claims, key);
        for (other, (_, _, keys)) in signers.iter().enumerate() {
            let right = (at == other).then(|| "u1".to_owned());
            assert_eq!(user(keys, &token), right, "{algorithm:?}");
        }
        // One bit of the signature, and another payload under the same signature.
        let (front, signature) = token.rsplit_once('.').unwrap();
        let first = if signature.starts_with('A') { "B" } else { "A" };
        let bent = format!("{front}.{first}{}", &signature[1..]);
        assert_eq!(user(&signers[at].2, &bent), None);
        assert_eq!(user(&signers[at].2, &format!("{front}.")), None);
    }
}

#[test]
fn a_public_key_is_no_secret_and_none_is_no_algorithm() {
    // The classic confusion: a token signed with HS256 and the text of the public key.
    let text = file!("rsa.pub.pem");
    let claims = json!({ "sub": "root", "exp": in_seconds(60) });
    let forged = EncodingKey::from_secret(text.as_bytes()).unwrap();
    let forged = token(Algorithm::HS256, None, &claims, &forged);
    assert_eq!(user(&TokenKeys::parse(text).unwrap(), &forged), None);
    // {"alg":"none"} with the same claims, with and without the signature of another token.
    let (_, rest) = forged.split_once('.').unwrap();
    let (payload, signature) = rest.split_once('.').unwrap();
    for (_, _, keys) in signers() {
        for header in ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJOb05lIn0", "e30", ""] {
            assert_eq!(user(&keys, &format!("{header}.{payload}.")), None);
            assert_eq!(
                user(&keys, &format!("{header}.{payload}.{signature}")),
                None
            );
        }
    }
}

#[test]
fn claims_decide() {
    let (algorithm, key, keys) = signers().into_iter().next().unwrap();
    let rules = TokenRules {
        issuer: Some("https://site".to_owned()),
        audience: Some("thumbd".to_owned()),
        leeway_seconds: 30,
    };
    let good =
        json!({ "sub": "u1", "exp": in_seconds(60), "iss": "https://site", "aud": "thumbd" });
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        if claims[name].is_null() {
            claims.as_object_mut().unwrap().remove(name);
        }
        keys.user(&rules, &token(algorithm, None, &claims, &key))
            .is_some()
    };
    for (name, value, right) in [
        ("sub", json!("u1"), true),
        ("aud", json!(["other", "thumbd"]), true),
        ("exp", json!(in_seconds(-20)), true),
        ("nbf", json!(in_seconds(20)), true),
        ("exp", json!(in_seconds(-40)), false),
        ("exp", json!("soon"), false),
        ("exp", Value::Null, false),
        ("nbf", json!(in_seconds(40)), false),
        ("iss", json!("https://other"), false),
        ("iss", Value::Null, false),
        ("aud", json!("other"), false),
        ("aud", json!([]), false),
        ("aud", Value::Null, false),
        ("sub", Value::Null, false),
        ("sub", json!(7), false),
        ("sub", json!(""), false),
        ("sub", json!("a b"), false),
        ("sub", json!("x".repeat(129)), false),
    ] {
        assert_eq!(with(name, value.clone()), right, "{name} {value}");
    }
    // A token that is meant for somebody is not taken where nobody is named.
    assert_eq!(user(&keys, &token(algorithm, None, &good, &key)), None);
    let long = json!({ "sub": "u1", "exp": in_seconds(60), "x": "x".repeat(TOKEN_BYTES_MAX) });
    assert_eq!(user(&keys, &token(algorithm, None, &long, &key)), None);
}

#[test]
fn a_set_is_searched_by_kid() {
    let signers = signers();
    let mut set = Vec::new();
    for (algorithm, key, _) in &signers {
        let mut jwk = Jwk::from_encoding_key(key, *algorithm).unwrap();
        jwk.common.key_id = Some(format!("{algorithm:?}"));
        set.push(serde_json::to_value(jwk).unwrap());
    }
    let keys = TokenKeys::parse(&json!({ "keys": set }).to_string()).unwrap();
    assert!(!format!("{keys:?}").contains("MDEyMz"), "a secret is shown");
    let claims = json!({ "sub": "u1", "exp": in_seconds(60) });
    for (algorithm, key, _) in &signers {
        let own = format!("{algorithm:?}");
        for (kid, right) in [(Some(&*own), true), (None, true), (Some("other"), false)] {
            let token = token(*algorithm, kid, &claims, key);
            assert_eq!(user(&keys, &token).is_some(), right, "{kid:?}");
        }
        let elsewhere = if own == "HS256" { "RS256" } else { "HS256" };
        let token = token(*algorithm, Some(elsewhere), &claims, key);
        assert_eq!(user(&keys, &token), None);
    }
}

#[test]
fn keys_that_are_none_are_refused_and_named() {
    let rsa = |n: &str| json!({ "kty": "RSA", "n": n, "e": "AQAB" });
    let long = "x".repeat(400);
    let set = |keys: Value| json!({ "keys": keys }).to_string();
    for (text, part) in [
        (file!("rsa.pem").to_owned(), "private key"),
        (file!("rsa1024.pub.pem").to_owned(), "less than 2048"),
        ("hello".to_owned(), "neither"),
        ("{".to_owned(), "no JWK set"),
        (set(json!([])), "0 keys"),
        (set(json!([rsa("AQAB")])), "less than 2048"),
        (
            set(json!([{ "kty": "oct", "k": "c2hvcnQ" }])),
            "fewer than 32",
        ),
        (
            set(json!([{ "kty": "RSA", "n": long, "e": "AQAB", "alg": "RS512" }])),
            "another alg",
        ),
        (
            set(json!([{ "kty": "EC", "crv": "P-384", "x": "AA", "y": "AA" }])),
            "not taken",
        ),
        (
            set(json!([{ "kty": "oct", "k": long, "use": "enc" }])),
            "0 keys",
        ),
        (
            set(
                json!([{ "kty": "oct", "k": long, "kid": "a" }, { "kty": "oct", "k": long, "kid": "a" }]),
            ),
            "kid of another",
        ),
        (format!("{0}{0}", file!("rsa.pub.pem")), "more than one"),
        (
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n".to_owned(),
            "no public key",
        ),
    ] {
        let error = TokenKeys::parse(&text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert!(
        TokenKeys::secret(&SECRET[1..])
            .unwrap_err()
            .contains("31 bytes")
    );
}
