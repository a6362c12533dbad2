//! Likes in bulk: into thumbd from a site that counted them itself, out again, and counts beside the site's own.
//!
//! Nothing here parses a command line or prints; a line of a file arrives as its fields.

mod compare;
mod export;
mod import;
mod line;

pub use compare::{Comparison, Difference};
pub use export::{export, time_text};
pub use import::{ImportError, Importer, Options, Summary};
pub use line::{Like, Line, LineReader};
