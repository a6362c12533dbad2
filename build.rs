//! Builds again when a migration is added: the macro that embeds them does not see new files by itself.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
