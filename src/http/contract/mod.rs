//! The interface described by itself: OpenAPI 3.1 at `/openapi.json`, and a page to try it at `/docs`.
//!
//! Schemas of answers come from the types that are sent; `calls` is the table of operations. What a call does is elsewhere.

mod calls;
mod page;
pub(crate) mod schemas;

use std::sync::OnceLock;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApiBuilder, PathItem, PathsBuilder,
};

use super::{answer, trace};

pub(super) use page::{page, script, style};

/// The security schemes, with what opens what. Each is a bearer token; they differ in what they may.
const SCHEMES: [(&str, &str); 4] = [
    (
        calls::SERVICE,
        "The service key: reads and writes as any user.",
    ),
    (
        calls::NAMED,
        "A named key: what its rights and kinds allow.",
    ),
    (
        calls::USER,
        "The token of a user, a JWT: reads and writes as the user in its sub.",
    ),
    (
        calls::ADMIN,
        "The admin token: admin calls, and nothing else.",
    ),
];

/// `GET /openapi.json`: open to all, for it is the same in every process of a version.
pub(super) async fn openapi() -> Response {
    answer::of(StatusCode::OK, document().as_bytes().to_vec())
}

/// The document as JSON. It is made once.
pub fn document() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| format!("{:#}\n", build()))
}

fn build() -> Value {
    let info = InfoBuilder::new()
        .title("thumbd")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(env!("CARGO_PKG_DESCRIPTION")))
        .license(Some(
            LicenseBuilder::new()
                .name("MIT OR Apache-2.0")
                .identifier(Some("MIT OR Apache-2.0"))
                .build(),
        ))
        .build();
    let components = SCHEMES
        .iter()
        .fold(ComponentsBuilder::new(), |all, (name, description)| {
            let scheme = HttpBuilder::new()
                .scheme(HttpAuthScheme::Bearer)
                .description(Some(*description))
                .build();
            all.security_scheme(*name, SecurityScheme::Http(scheme))
        });
    let paths = calls::calls()
        .into_iter()
        .fold(PathsBuilder::new(), |all, call| {
            let (path, method) = (call.path, call.method.clone());
            all.path(path, PathItem::new(method, call.operation()))
        });
    let document = OpenApiBuilder::new()
        .info(info)
        .paths(paths.build())
        .components(Some(schemas::add(components).build()))
        .build();
    let mut document = serde_json::to_value(document).unwrap_or_default();
    require_headers(&mut document);
    document
}

/// Every header that is described is always there, but for the one that only callers with a trace get; the library cannot say so.
fn require_headers(document: &mut Value) {
    let paths = document["paths"].as_object_mut().into_iter();
    let items = paths.flat_map(|paths| paths.values_mut());
    let calls = items
        .filter_map(Value::as_object_mut)
        .flat_map(|item| item.values_mut());
    for call in calls {
        let Some(responses) = call["responses"].as_object_mut() else {
            continue;
        };
        for response in responses.values_mut() {
            let Some(headers) = response.get_mut("headers") else {
                continue;
            };
            let all = headers.as_object_mut().into_iter().flatten();
            for (_, header) in all.filter(|(name, _)| *name != trace::ANSWER.as_str()) {
                header["required"] = true.into();
            }
        }
    }
}

#[cfg(test)]
mod tests;
