//! A Database with its defaults: names, versions, ports.

use database_api::v1alpha1::{Database, DatabaseType};
use kubewright::kube::ResourceExt as _;

/// The label value of the operator's objects.
pub const MANAGER: &str = "database-operator";

/// A Database with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The name of the object, and of most children.
    pub name: String,
    /// The kind of server.
    pub kind: DatabaseType,
    /// The tag of its image.
    pub version: String,
    /// The user of applications.
    pub user: String,
    /// The database.
    pub database: String,
}

impl Shape {
    /// That of an object.
    pub fn of(object: &Database) -> Shape {
        let name = object.name_any();
        let spec = &object.spec;
        Shape {
            kind: spec.type_,
            version: spec
                .version
                .clone()
                .unwrap_or_else(|| default_version(spec.type_).to_owned()),
            user: spec.user.clone().unwrap_or_else(|| "app".to_owned()),
            database: spec.database.clone().unwrap_or_else(|| name.replace(['-', '.'], "_")),
            name,
        }
    }

    /// The image.
    pub fn image(&self) -> String {
        let repository = match self.kind {
            DatabaseType::Postgres => "postgres",
            DatabaseType::Mysql => "mysql",
            DatabaseType::Mariadb => "mariadb",
        };
        format!("{repository}:{}", self.version)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        match self.kind {
            DatabaseType::Postgres => 5432,
            DatabaseType::Mysql | DatabaseType::Mariadb => 3306,
        }
    }

    /// Whether it is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        self.kind == DatabaseType::Postgres
    }

    /// The name of the Secret for applications, unless the object names one.
    pub fn credentials(&self) -> String {
        format!("{}-credentials", self.name)
    }

    /// The name of the Secret with the operator's own password.
    pub fn operator(&self) -> String {
        format!("{}-operator", self.name)
    }

    /// The name of the claim, as the StatefulSet makes it.
    pub fn claim(&self) -> String {
        format!("data-{}-0", self.name)
    }

    /// The name of the pod.
    pub fn pod(&self) -> String {
        format!("{}-0", self.name)
    }

    /// The name of the CronJob that copies the data.
    pub fn backup(&self) -> String {
        format!("{}-backup", self.name)
    }

    /// The name of the claim with the copies.
    pub fn backups(&self) -> String {
        backups_of(&self.name)
    }

    /// The name of the Job that reads a copy.
    pub fn restore(&self) -> String {
        format!("{}-restore", self.name)
    }

    /// The name of the headless Service.
    pub fn headless(&self) -> String {
        format!("{}-headless", self.name)
    }
}

/// The name of the claim with the copies of a Database.
pub fn backups_of(database: &str) -> String {
    format!("{database}-backups")
}

/// The version of a server that is not given one.
pub fn default_version(kind: DatabaseType) -> &'static str {
    match kind {
        DatabaseType::Postgres => "17",
        DatabaseType::Mysql => "8.4",
        DatabaseType::Mariadb => "11.4",
    }
}

/// A version as numbers, which compare.
pub fn numbers(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map(|part| part.parse().unwrap_or(u32::MAX))
        .collect()
}
