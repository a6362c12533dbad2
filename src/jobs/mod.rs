//! A stand-in for the jobs: replaced when merged.
#![allow(missing_docs)]
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::flush::{CompensationReport, FlushReport, SliceInfo};
use crate::service::Service;

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("failed")]
    Failed,
}
impl JobError {
    pub fn code(&self) -> &'static str {
        "job_failed"
    }
}
#[derive(Serialize, Clone, Debug)]
pub struct JobsStatus {
    pub slices: Vec<SliceInfo>,
    pub last_flush: Option<FlushReport>,
    pub last_compensation: Option<CompensationReport>,
}
#[derive(Debug, Clone)]
pub struct Jobs;
impl Jobs {
    pub async fn start(_: &Settings, _: &Service, _: CancellationToken) -> anyhow::Result<Jobs> {
        Ok(Self)
    }
    pub async fn flush_now(&self) -> Result<FlushReport, JobError> {
        Ok(FlushReport::default())
    }
    pub async fn compensate_now(&self) -> Result<CompensationReport, JobError> {
        Ok(CompensationReport::default())
    }
    pub async fn status(&self) -> Result<JobsStatus, JobError> {
        Ok(JobsStatus {
            slices: Vec::new(),
            last_flush: None,
            last_compensation: None,
        })
    }
    pub async fn failed(&self) -> anyhow::Error {
        std::future::pending().await
    }
    pub async fn stop(&self) -> Result<FlushReport, JobError> {
        Ok(FlushReport::default())
    }
}
