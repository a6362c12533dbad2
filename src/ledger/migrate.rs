//! Runs the embedded migrations, one process at a time.

use sqlx::migrate::Migrate;

use super::{Ledger, LedgerError, lock};
use crate::steps;

impl Ledger {
    /// Brings the tables to the state that this program knows. Newer migrations, of a newer program, are left as they are.
    pub async fn migrate(&self) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        lock::take(&mut session).await?;
        steps::holding("migrate.locked").await;
        let mut migrator = sqlx::migrate!();
        migrator.set_ignore_missing(true).set_locking(false);
        let connection = session.spend();
        // One that was cut off is run again: all of them can be repeated.
        connection
            .ensure_migrations_table(&migrator.table_name)
            .await?;
        steps::holding("migrate.table").await;
        sqlx::query("DELETE FROM _sqlx_migrations WHERE success = FALSE")
            .execute(&mut *connection)
            .await?;
        migrator.run(&mut *connection).await?;
        steps::holding("migrate.done").await;
        Ok(())
    }
}
