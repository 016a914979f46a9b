//! `kubewright edit`: the settings of the whole project.

use clap::Args;
use kubewright_codegen::scaffold::{self, Edit};

use crate::external::{Chain, or_where};
use crate::files::Disk;
use crate::output::{Failure, Format};
use crate::scaffolding::{Terms, Writing};

/// Change settings of the whole project
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Move the files into a folder for each group; =false moves them back, if there is only one group
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    multigroup: Option<bool>,

    /// Watch only the namespaces of WATCH_NAMESPACE, with Roles instead of ClusterRoles
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    namespaced: Option<bool>,

    #[command(flatten)]
    terms: Terms,

    /// Plugins to run: helm/v2-alpha (a chart from config/), grafana/v1-alpha (dashboards), autoupdate/v1-alpha (a
    /// workflow that upgrades), external ones by NAME/VERSION
    #[arg(long, value_delimiter = ',', value_name = "KEYS")]
    plugins: Vec<String>,

    /// For the plugin helm: the folder in which `chart` is created [default: that of the last run, else dist]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<String>,

    /// Overwrite files that are in the way
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    force: bool,

    #[command(flatten)]
    writing: Writing,
}

const ATTEMPTED: &str = "cannot edit the project";

impl Arguments {
    pub(crate) fn run(self, output: Format, plugins: &Chain) -> Result<(), Failure> {
        let disk = Disk::here()?;
        let asked = Edit {
            multigroup: self.multigroup,
            namespaced: self.namespaced,
            license: self.terms.license(ATTEMPTED)?,
            owner: self.terms.owner(),
            boilerplate: self.terms.boilerplate(ATTEMPTED)?,
            plugins: plugins.own_keys(self.plugins),
            output: self.output_dir,
            force: self.force,
        };
        let mut plan = scaffold::edit(&disk, &asked).map_err(|wrong| or_where(wrong, &asked.plugins))?;
        plugins.run(disk.root(), &mut plan)?;
        self.writing.finish(&disk, &plan, output)
    }
}
