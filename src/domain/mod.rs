//! What thumbd talks about: ids, operations, slices and their entries. Pure values; no I/O, no async, and time is always an argument.

mod entry;
mod ids;
mod slice;

pub use entry::{Entry, EntryError};
pub use ids::{
    ID_BYTES_MAX, IdError, KIND_BYTES_MAX, Kind, Target, UserId, partition_of, partition_of_stored,
};
pub use slice::{SliceId, Version};

/// What a user wants a target's state to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The user likes the target.
    Thumb,
    /// The user no longer likes the target.
    Unthumb,
}

impl Action {
    /// Whether the target is thumbed after this action.
    pub const fn thumbed(self) -> bool {
        matches!(self, Self::Thumb)
    }
}

/// One user's operation on one target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Who.
    pub user: UserId,
    /// What.
    pub target: Target,
    /// Like or unlike.
    pub action: Action,
}
