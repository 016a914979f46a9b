//! First data folders of databases: made once for each program of this machine, and copied for each pod.
//!
//! A template outlives its cluster, and the databases of later clusters are copies of it. So no pod makes one: the
//! cluster runs the image's own script for it, as a user that is no pod's, with nothing of the pod but the values that
//! its name is made of; then takes all of it, which everybody may read and nobody change.
//!
//! Invariants: a template is whole when it has its name; there are at most [`MOST`] of them, whatever values pods say.
//! Not here: what the scripts do (`programs`). Without root all programs have the cluster's user, and could change them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::Processes;
use super::beneath::{Below, Folder};
use super::images::Program;
use super::launch::Order;
use super::users::{NOBODY, User};

/// How many templates are kept; programs for which there is none make their first folder themselves.
const MOST: usize = 16;
/// How long making one may take.
const PATIENCE: Duration = Duration::from_secs(120);

impl Processes {
    /// The template of a program, which is made if it is missing; none where the program is to do without.
    pub(super) async fn template(&self, program: &Program, environment: &BTreeMap<String, String>) -> Option<PathBuf> {
        let names = program.template?;
        let values: BTreeMap<&str, &str> = names
            .iter()
            .filter_map(|name| Some((*name, environment.get(*name)?.as_str())))
            .collect();
        let name = name(program, &values).ok()?;
        let cache = self.0.home.cache()?;
        let path = cache.join(name.text());
        let _one_at_a_time = self.0.templates.lock().await;
        if path.is_dir() {
            return Some(path);
        }
        if fs::read_dir(cache).ok()?.count() >= MOST {
            return None;
        }
        let own = self.0.home.any_user().ok()?;
        let mut made = self.make_template(program, &values, &name, own).await;
        if made.is_err() && own.is_some() {
            // Some programs want to find the name of their user, whose file cannot be mounted everywhere.
            made = self.make_template(program, &values, &name, Some(NOBODY)).await;
        }
        if let Err(error) = made {
            tracing::warn!(program = program.about, %error, "no template was made: each pod makes its first folder itself");
        }
        path.is_dir().then_some(path)
    }

    async fn make_template(
        &self,
        program: &Program,
        values: &BTreeMap<&str, &str>,
        name: &Below,
        user: Option<User>,
    ) -> io::Result<()> {
        let home = &self.0.home;
        let new = home.path().join("new");
        // That of a failed try.
        let _ = fs::remove_dir_all(&new);
        home.make_passage(&new)?;
        let folder = Folder::open(&new)?.make(name, user)?;
        let users = home.write_users(folder.path(), user)?;
        let text = |path: &Path| path.display().to_string();
        let search = std::env::join_paths(&program.path).map_err(io::Error::other)?;
        let data = Below::own(&["data"]);
        let mut environment: BTreeMap<String, String> = [
            ("PATH", search.to_string_lossy().into_owned()),
            ("HOME", text(folder.path())),
            ("TMPDIR", text(folder.path())),
            ("KUBEWRIGHT_NEW_TEMPLATE", text(&folder.path().join(data.text()))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        environment.extend(
            values
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        for (name, value) in &program.environment {
            environment.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let order = Order {
            command: program.command.clone(),
            environment,
            folder: folder.path().to_owned(),
            memory: None,
            terminal: None,
            hosts: None,
            resolv: None,
            users,
            user,
        };
        let nothing = [Stdio::null(), Stdio::null(), Stdio::null()];
        let launched = self.0.launcher.launch(&order, nothing).await?;
        // Dropped, it ends its program.
        let code = tokio::time::timeout(PATIENCE, launched.ended()).await;
        match code.map_err(|_| io::Error::other("it takes too long"))? {
            0 => {}
            code => return Err(io::Error::other(format!("its script ended with {code}"))),
        }
        let cache = home
            .cache()
            .ok_or_else(|| io::Error::other("there is no folder of templates"))?;
        let to = cache.join(name.text());
        tokio::task::spawn_blocking(move || {
            let data = folder.folder(&data)?;
            if let Some(user) = user {
                data.take_all(user)?;
            }
            // Another cluster may have been first.
            let moved = fs::rename(data.path(), &to).or_else(|error| if to.is_dir() { Ok(()) } else { Err(error) });
            // The rest goes with the cluster.
            let _ = fs::remove_dir_all(folder.path());
            moved
        })
        .await
        .map_err(io::Error::other)?
    }
}

/// The name of a template: of the program's file as it is, its script, and the values.
fn name(program: &Program, values: &BTreeMap<&str, &str>) -> io::Result<Below> {
    let file = fs::metadata(&program.about)?;
    let parts = format!(
        "{:?}",
        (
            &program.about,
            file.len(),
            file.mtime(),
            &program.command,
            &program.environment,
            values
        )
    );
    let sum = ring::digest::digest(&ring::digest::SHA256, parts.as_bytes());
    let sum: String = sum.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Ok(Below::own(&[&sum]))
}
