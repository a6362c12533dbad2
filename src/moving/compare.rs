//! The site's own counts beside thumbd's, page by page. Reads only.

use crate::domain::{Kind, Target};
use crate::ledger::{CountCursor, Ledger, LedgerError, MirrorColumn};
use crate::limits::PAGE_ROWS_MAX;

/// A target with two counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The target's id.
    pub id: String,
    /// What stands in the site's column.
    pub site: i64,
    /// What thumbd has, as of the last flush.
    pub thumbd: i64,
}

/// A walk through the site's table. Then [`Comparison::without_row`] looks for what is only in thumbd.
pub struct Comparison<'a> {
    ledger: &'a Ledger,
    kind: Kind,
    column: MirrorColumn,
    after: Option<String>,
    ended: bool,
    /// Rows of the site that were looked at.
    pub rows: u64,
}

impl<'a> Comparison<'a> {
    /// Begins a walk.
    pub fn new(ledger: &'a Ledger, kind: Kind, column: MirrorColumn) -> Self {
        Self {
            ledger,
            kind,
            column,
            after: None,
            ended: false,
            rows: 0,
        }
    }

    /// What differs on the next page; `None` behind the last.
    pub async fn next(&mut self) -> Result<Option<Vec<Difference>>, LedgerError> {
        if self.ended {
            return Ok(None);
        }
        let after = self.after.as_deref();
        let page = self.ledger.mirror_page(&self.column, after, PAGE_ROWS_MAX);
        let page = page.await?;
        self.rows += page.len() as u64;
        self.ended = (page.len() as u64) < PAGE_ROWS_MAX;
        self.after = page.last().map(|(id, _)| id.clone());
        // What cannot be a target has no likes.
        let targets: Vec<Option<Target>> = page
            .iter()
            .map(|(id, _)| Target::new(&self.kind, id).ok())
            .collect();
        let asked: Vec<Target> = targets.iter().flatten().cloned().collect();
        let mut counts = self.ledger.count_parts(0, 1, &asked).await?.into_iter();
        let mut differences = Vec::new();
        for ((id, site), target) in page.into_iter().zip(targets) {
            let thumbd = target.and_then(|_| counts.next()).unwrap_or(0);
            if site != thumbd {
                differences.push(Difference { id, site, thumbd });
            }
        }
        Ok(Some(differences))
    }

    /// How many targets have likes here and no row there.
    pub async fn without_row(&self) -> Result<u64, LedgerError> {
        let (mut after, mut count): (Option<CountCursor>, u64) = (None, 0);
        loop {
            let page = self
                .ledger
                .counts_page(after.as_ref(), PAGE_ROWS_MAX)
                .await?;
            let liked = page.rows.iter().filter(|row| row.count != 0);
            let ids: Vec<&str> = liked
                .filter(|row| row.target.kind() == self.kind.as_str())
                .map(|row| row.target.id())
                .collect();
            let there = self.ledger.mirror_counts(&self.column, &ids).await?;
            count += ids.iter().filter(|id| !there.contains_key(**id)).count() as u64;
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(count),
            }
        }
    }
}
