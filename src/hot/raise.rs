//! Calls of `raise.lua`.

use redis::Value;

use super::scripts::RAISE;
use super::{Hot, HotError, reply};
use crate::domain::Version;

impl Hot {
    /// Raises a partition's clock to now, or to `least` if that is later, and gives it: what was accepted so far is not newer, and
    /// whatever is accepted afterwards is. `None`: the partition is empty.
    pub async fn raise(&self, partition: u16, least: Version) -> Result<Option<Version>, HotError> {
        let mut call = RAISE.call(1);
        call.arg(self.keys(partition).meta()).arg(least.0);
        let value = self.job(&RAISE, &call).await?;
        if value == Value::Nil {
            return Ok(None);
        }
        let clock = reply::text(value)?.parse();
        let clock = clock.map_err(|_| HotError::Protocol("a clock is not a number".into()))?;
        Ok(Some(Version(clock)))
    }
}
