//! The page at `/ui` for operators: files within the program, so that it works without any other host. It holds no data: those it
//! fetches from admin calls, with the token that whoever opens it types in.

use axum::extract::Path;
use axum::http::HeaderValue;
use axum::response::Response;

use super::asset::{self, PAGE, SCRIPT, STYLE};
use super::problem::Problem;

/// What the page may load: its own files and this server. There is nothing inline.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Name, type and text of each file.
pub(super) const FILES: &[(&str, &str, &str)] = &[
    ("main.js", SCRIPT, include_str!("ui/main.js")),
    ("api.js", SCRIPT, include_str!("ui/api.js")),
    ("view.js", SCRIPT, include_str!("ui/view.js")),
    ("slices.js", SCRIPT, include_str!("ui/slices.js")),
    ("charts.js", SCRIPT, include_str!("ui/charts.js")),
    ("actions.js", SCRIPT, include_str!("ui/actions.js")),
    ("dom.js", SCRIPT, include_str!("ui/dom.js")),
    ("ui.css", STYLE, include_str!("ui/ui.css")),
    ("uplot.js", SCRIPT, include_str!("ui/vendor/uPlot.esm.js")),
    ("uplot.css", STYLE, include_str!("ui/vendor/uPlot.min.css")),
    ("icon.svg", "image/svg+xml", include_str!("ui/icon.svg")),
];

/// `GET /ui`.
pub(super) async fn page() -> Response {
    asset::answer(POLICY, PAGE, include_str!("ui/page.html"))
}

/// `GET /ui/{file}`.
pub(super) async fn file(Path(name): Path<String>) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(file, ..)| *file == name);
    let (_, content_type, text) = found.ok_or_else(Problem::not_found)?;
    Ok(asset::answer(POLICY, content_type, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest as _, Sha256};

    /// The library is as it was published: docs/decisions.md names its version, and where to find another one.
    #[test]
    fn the_chart_library_is_as_it_was_published() {
        let decisions = include_str!("../../docs/decisions.md");
        for name in ["uplot.js", "uplot.css"] {
            let (_, _, text) = FILES.iter().find(|(file, ..)| *file == name).unwrap();
            let hex: String = Sha256::digest(text.as_bytes())
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert!(decisions.contains(&hex), "{name} is {hex}");
        }
    }

    /// Each file that the page or a module names is there, and each file is named.
    #[test]
    fn the_page_names_its_files_and_no_others() {
        let own = FILES.iter().filter(|(name, ..)| !name.starts_with("uplot"));
        let own = own.map(|(_, _, text)| *text);
        let all: String = own.chain([include_str!("ui/page.html")]).collect();
        for (name, ..) in FILES {
            let named = [format!("\"./{name}\""), format!("\"/ui/{name}\"")];
            assert!(named.iter().any(|named| all.contains(named)), "{name}");
        }
        for part in all.split("\"./").skip(1).chain(all.split("\"/ui/").skip(1)) {
            let name = part.split('"').next().unwrap();
            assert!(FILES.iter().any(|(file, ..)| *file == name), "{name}");
        }
        for foreign in ["http://", "https://", "style=", "onclick", "innerHTML"] {
            let all = all.replace("http://www.w3.org/2000/svg", "");
            assert!(!all.contains(foreign), "{foreign}");
        }
    }
}
