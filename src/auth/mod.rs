//! Who a caller is: keys by their digest, tokens of users by their signature. What a caller may do is decided in `http`.

mod key;
mod token;

pub use key::{NamedKey, Right, digest};
pub use token::{TokenKeys, TokenRules};
