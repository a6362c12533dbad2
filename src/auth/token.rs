//! Tokens of users: JWT with HS256, RS256, ES256 or EdDSA. Each key takes tokens of one algorithm only, whatever they say of themselves.

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;

use crate::domain::UserId;

/// More keys than any rotation needs: each one without an id is tried.
const KEYS_MAX: usize = 32;
/// Longest token: what fits into the headers of a browser.
const TOKEN_BYTES_MAX: usize = 8192;
/// A shorter secret than the digest can be guessed (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;
/// The modulus of 2048 bits: shorter ones are broken (RFC 7518, 3.3).
const MODULUS_BYTES_MIN: usize = 256;

/// Keys that sign tokens.
#[derive(Clone)]
pub struct TokenKeys(Vec<Key>);

#[derive(Clone)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// What a token must say beside its signature.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenRules {
    /// `iss`, if it is to be checked.
    pub issuer: Option<String>,
    /// `aud` must be or hold this, if it is to be checked. A token for somebody is refused otherwise.
    pub audience: Option<String>,
    /// By how many seconds clocks may differ.
    pub leeway_seconds: u64,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
}

impl TokenKeys {
    /// Reads a JWK set in JSON, or one public key in PEM.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('{') {
            return Self::parse_set(text);
        }
        let bytes = text.as_bytes();
        let pem = if !text.contains("-----BEGIN ") {
            Err("is neither a JWK set in JSON nor a key in PEM")
        } else if text.contains("PRIVATE KEY") {
            Err("holds a private key; thumbd needs the public one")
        } else if text.matches("-----BEGIN ").count() > 1 {
            Err("holds more than one PEM block; several keys go into a JWK set")
        } else {
            Ok(())
        };
        pem.map_err(str::to_owned)?;
        let rsa = DecodingKey::from_rsa_pem(bytes);
        // The key is its modulus and a few bytes more.
        let length = |key: &DecodingKey| key.try_get_as_bytes().map_or(0, <[u8]>::len);
        if rsa
            .as_ref()
            .is_ok_and(|key| length(key) < MODULUS_BYTES_MIN)
        {
            return Err("is an RSA key of less than 2048 bits".to_owned());
        }
        let ways = [
            (Algorithm::RS256, rsa),
            (Algorithm::ES256, DecodingKey::from_ec_pem(bytes)),
            (Algorithm::EdDSA, DecodingKey::from_ed_pem(bytes)),
        ];
        let key = ways.into_iter().find_map(|(algorithm, key)| {
            Some(Key {
                id: None,
                algorithm,
                key: key.ok()?,
            })
        });
        let wrong = "is no public key of RSA, P-256 or Ed25519 in PEM";
        Ok(Self(vec![key.ok_or(wrong)?]))
    }

    fn parse_set(text: &str) -> Result<Self, String> {
        let set: JwkSet = serde_json::from_str(text)
            .map_err(|error| format!("is no JWK set: line {}", error.line()))?;
        let signs = |jwk: &&Jwk| {
            let wanted = jwk.common.public_key_use.as_ref();
            wanted.is_none_or(|wanted| *wanted == PublicKeyUse::Signature)
        };
        let keys: Vec<_> = set.keys.iter().filter(signs).collect();
        if keys.is_empty() || keys.len() > KEYS_MAX {
            return Err(format!(
                "has {} keys that sign, not 1 to {KEYS_MAX}",
                keys.len()
            ));
        }
        let keys = keys.into_iter().enumerate();
        let keys: Result<Vec<Key>, String> = keys
            .map(|(at, jwk)| key(jwk).map_err(|problem| format!("key {at} {problem}")))
            .collect();
        let keys = keys?;
        for (at, key) in keys.iter().enumerate() {
            if key.id.is_some() && keys[..at].iter().any(|other| other.id == key.id) {
                return Err(format!("key {at} has the kid of another"));
            }
        }
        Ok(Self(keys))
    }

    /// One shared secret, for HS256.
    pub fn secret(secret: &str) -> Result<Self, String> {
        let key = hs256(secret.len(), || DecodingKey::from_secret(secret.as_bytes()))?;
        Ok(Self(vec![Key {
            id: None,
            algorithm: Algorithm::HS256,
            key,
        }]))
    }

    /// These keys and those.
    pub fn join(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The user of a token that holds now; nothing tells what is wrong with one that does not.
    pub fn user(&self, rules: &TokenRules, token: &str) -> Option<UserId> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let header = decode_header(token).ok()?;
        let fits = |key: &&Key| {
            let named = header.kid.is_none() || header.kid == key.id;
            key.algorithm == header.alg && named
        };
        self.0.iter().filter(fits).find_map(|key| {
            let mut validation = Validation::new(key.algorithm);
            validation.leeway = rules.leeway_seconds;
            validation.validate_nbf = true;
            let mut required = vec!["exp", "sub"];
            if let Some(issuer) = &rules.issuer {
                validation.set_issuer(&[issuer]);
                required.push("iss");
            }
            if let Some(audience) = &rules.audience {
                validation.set_audience(&[audience]);
                required.push("aud");
            }
            validation.set_required_spec_claims(&required);
            let claims = decode::<Claims>(token, &key.key, &validation).ok()?;
            UserId::parse(&claims.claims.sub).ok()
        })
    }
}

impl std::fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = self.0.iter().map(|key| (&key.id, key.algorithm));
        f.debug_list().entries(keys).finish()
    }
}

fn hs256(
    bytes: usize,
    make: impl FnOnce() -> jsonwebtoken::errors::Result<DecodingKey>,
) -> Result<DecodingKey, String> {
    if bytes < SECRET_BYTES_MIN {
        return Err(format!("has {bytes} bytes, fewer than {SECRET_BYTES_MIN}"));
    }
    make().map_err(|_| "is no secret".to_owned())
}

fn key(jwk: &Jwk) -> Result<Key, String> {
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::OctetKey(octets) => {
            hs256(octets.value.len() * 3 / 4, || DecodingKey::from_jwk(jwk))?;
            (Algorithm::HS256, KeyAlgorithm::HS256)
        }
        // Four characters of base64url are three bytes.
        AlgorithmParameters::RSA(rsa) if rsa.n.len() * 3 / 4 < MODULUS_BYTES_MIN => {
            return Err("is an RSA key of less than 2048 bits".to_owned());
        }
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => {
            return Err("is of a type that is not taken (oct, RSA, P-256, Ed25519 are)".to_owned());
        }
    };
    let said = jwk.common.key_algorithm;
    if said.is_some_and(|said| said != named) {
        return Err(format!("has another alg than {named}"));
    }
    let key = DecodingKey::from_jwk(jwk).map_err(|_| "cannot be read")?;
    Ok(Key {
        id: jwk.common.key_id.clone(),
        algorithm,
        key,
    })
}

#[cfg(test)]
mod tests;
