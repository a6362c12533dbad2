//! What commands say on standard output, to whoever still listens.

use std::io::{self, ErrorKind, Write as _};

/// A line. `println!` panics behind `| head`: what a command has begun, and the lease that it holds, must not hang on its reader.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cli::say::say_text(&format!("{}\n", format_args!($($text)*)))
    };
}
pub(super) use say;

/// Lines that end where they shall.
pub(super) fn say_text(text: &str) {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("thumbd: standard output: {error}");
        }
        _ => {}
    }
}
