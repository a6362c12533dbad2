//! A stand-in for the flush: replaced when merged.
#![allow(missing_docs)]
use serde::Serialize;

#[derive(Serialize, Clone, Debug, Default)]
pub struct FlushReport {
    pub sealed_upto: u64,
    pub slices: u64,
    pub entries: u64,
    pub rows_changed: u64,
    pub rows_stale: u64,
    pub duration_ms: u64,
}
#[derive(Serialize, Clone, Debug, Default)]
pub struct CompensationReport {
    pub duration_ms: u64,
}
#[derive(Serialize, Clone, Debug)]
pub struct SliceInfo {
    pub partition: u16,
    pub id: u64,
    pub age_ms: u64,
    pub entries: u64,
    pub state: &'static str,
}
