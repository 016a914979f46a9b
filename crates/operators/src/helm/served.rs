//! The kinds that the server has, as a number: charts ask for them, and render differently when one is new.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kubewright::Client;
use tokio::time::Instant;

/// How long an answer is good.
const GOOD: Duration = Duration::from_secs(60);

/// Asks for the groups that the server has, once in a while.
#[derive(Debug, Default)]
pub(super) struct ServedKinds(Mutex<Option<(Instant, u64)>>);

impl ServedKinds {
    /// A number that differs when the server has other groups and versions. None when it does not answer.
    pub(super) async fn stamp(&self, client: &Client) -> Option<u64> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, stamp)) = known
            && asked.elapsed() < GOOD
        {
            return Some(stamp);
        }
        let groups = client.kube().list_api_groups().await.ok()?;
        let mut versions: Vec<String> = groups
            .groups
            .into_iter()
            .flat_map(|group| group.versions)
            .map(|version| version.group_version)
            .collect();
        versions.sort();
        let mut hasher = DefaultHasher::new();
        versions.hash(&mut hasher);
        let stamp = hasher.finish();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), stamp));
        Some(stamp)
    }
}
