//! Calls of `held.lua`.

use super::reply::Reply;
use super::scripts::HELD;
use super::{Hot, HotError};
use crate::domain::{Kind, Target, UserId, Version};

/// Which of a user's targets are of interest.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    /// This one.
    One(&'a Target),
    /// All, or all of a kind; of a user whose likes are all there those up to a version only.
    All {
        /// The kind.
        kind: Option<&'a Kind>,
        /// The newest version.
        newest: Option<Version>,
    },
}

/// A state that a user holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldThumb {
    /// What.
    pub target: Target,
    /// Liked, or taken back.
    pub thumbed: bool,
    /// When.
    pub version: Version,
}

/// What a user holds that MySQL may not have yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Nothing: MySQL has it all.
    Nothing,
    /// These are all likes of interest, whatever MySQL has.
    All(Vec<HeldThumb>),
    /// Of these, what has the higher version is right; of all others MySQL knows.
    Some(Vec<HeldThumb>),
    /// MySQL does not have it all yet, and what Redis has is not to be trusted.
    Recovering,
    /// The partition is empty.
    Uninitialised,
}

impl Hot {
    /// Reads what a user holds that MySQL may not have yet.
    pub async fn held(&self, partition: u16, user: &UserId, of: Of<'_>) -> Result<Held, HotError> {
        let keys = self.keys(partition);
        let mut call = HELD.call(2);
        call.arg(keys.meta())
            .arg(keys.user(user))
            .arg(self.layout());
        match of {
            Of::One(target) => call.arg(target.as_str()).arg("").arg(""),
            Of::All { kind, newest } => {
                let prefix = kind.map_or(String::new(), |kind| format!("{kind}:"));
                let newest = newest.map_or(String::new(), |version| version.to_string());
                call.arg("").arg(prefix).arg(newest)
            }
        };
        let mut reply = Reply::new(self.request(&HELD, &call).await?)?;
        match reply.int()? {
            0 => {}
            2 => return Ok(Held::Uninitialised),
            _ => {
                return Err(HotError::Layout {
                    found: reply.text()?,
                    wanted: self.layout(),
                });
            }
        }
        if reply.int()? == 1 {
            return Ok(Held::Recovering);
        }
        let state = reply.int()?;
        let thumbs = thumbs(&mut reply)?;
        Ok(match state {
            0 => Held::Nothing,
            1 => Held::All(thumbs),
            _ => Held::Some(thumbs),
        })
    }
}

/// A field that no script wrote is nobody's like.
fn thumbs(reply: &mut Reply) -> Result<Vec<HeldThumb>, HotError> {
    let mut thumbs = Vec::with_capacity(reply.left() / 2);
    while reply.left() > 0 {
        let (target, value) = (reply.text()?, reply.text()?);
        if let (Ok(target), Ok(value)) = (Target::parse(&target), value.parse::<i64>()) {
            thumbs.push(HeldThumb {
                target,
                thumbed: value > 0,
                version: Version(value.unsigned_abs()),
            });
        }
    }
    Ok(thumbs)
}
