//! The `thumbd` program: parse, call, exit code.

fn main() {}
