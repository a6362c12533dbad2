//! Signatures of deliveries, as Standard Webhooks has them: HMAC-SHA256 over id, time and body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::config::WebhookSecrets;

/// The value of `webhook-signature`: one signature for each secret. `id` holds no full stop, so that nothing can be shifted from one
/// part to the next; `timestamp` is Unix seconds.
pub(super) fn header(secrets: &WebhookSecrets, id: &str, timestamp: u64, body: &str) -> String {
    let sign = |key: &[u8]| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes every key");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    };
    secrets.expose().map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &str = r#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_signature_is_that_of_the_known_vector() {
        let secrets = WebhookSecrets::parse(SECRET).unwrap();
        assert_eq!(header(&secrets, ID, 1_614_265_330, BODY), SIGNATURE);
    }

    #[test]
    fn each_secret_signs() {
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let both = WebhookSecrets::parse(&format!("{other} {SECRET}")).unwrap();
        let alone = WebhookSecrets::parse(other).unwrap();
        let [both, alone] = [both, alone].map(|one| header(&one, ID, 1_614_265_330, BODY));
        assert_eq!(both, format!("{alone} {SIGNATURE}"));
    }
}
