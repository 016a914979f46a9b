//! Where the value of a policy is: out of a Secret, or out of a Database and what belongs to it.

use kubewright::k8s_openapi::api::core::v1::Secret;
use kubewright::k8s_openapi::api::discovery::v1::EndpointSlice;
use kubewright::kube::api::DynamicObject;
use kubewright::kube::core::{ApiResource, GroupVersionKind, Selector};
use kubewright::prelude::*;
use percent_encoding::percent_decode_str;
use url::Url;

use autorebooter_api::v1alpha1::{self, DatabaseType, SecretKey};

use crate::world::Source;

/// Why there is no source: a reason of a condition, and words.
pub(super) struct Missing(pub(super) &'static str, pub(super) String);

/// The source of a policy.
pub(super) async fn find(policy: &v1alpha1::RebootPolicy, ctx: &Context) -> Result<Result<Source, Missing>> {
    let source = &policy.spec.source;
    match (&source.connection_secret_ref, &source.database_ref) {
        (Some(key), _) => of_secret(source.type_, key, ctx).await,
        (None, Some(database)) => of_database(source.type_, &database.name, ctx).await,
        (None, None) => Ok(Err(Missing("SourceMissing", "the policy names no source".to_owned()))),
    }
}

async fn of_secret(kind: DatabaseType, at: &SecretKey, ctx: &Context) -> Result<Result<Source, Missing>> {
    let SecretKey { name, key } = at;
    let Some(secret) = ctx.client().get::<Secret>(ctx.request().namespace(), name).await? else {
        return Ok(Err(Missing("SecretNotFound", format!("there is no Secret {name}"))));
    };
    let Some(address) = text(&secret, key) else {
        let why = format!("the Secret {name} has no text under the key {key}");
        return Ok(Err(Missing("SecretIncomplete", why)));
    };
    // The address holds a password, so an error says what is wrong and does not show it.
    Ok(parse(kind, &address).map_err(|why| Missing("AddressInvalid", format!("{key} of the Secret {name}: {why}"))))
}

/// Reads `postgres://user:password@host:port/database`.
fn parse(kind: DatabaseType, address: &str) -> Result<Source, String> {
    let url = Url::parse(address.trim()).map_err(|error| format!("it is no address: {error}"))?;
    let (schemes, port) = match kind {
        DatabaseType::Postgres => (["postgres", "postgresql"], 5432),
        DatabaseType::Mysql => (["mysql", "mariadb"], 3306),
    };
    if !schemes.contains(&url.scheme()) {
        return Err(format!(
            "it begins with {}:// instead of {}://",
            url.scheme(),
            schemes[0]
        ));
    }
    if let Some((key, value)) = url.query_pairs().find(|(key, value)| wants_tls(key, value)) {
        return Err(format!("{key}={value} asks for TLS, which this example does not speak"));
    }
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let given = |text: String, what: &str| match text.is_empty() {
        true => Err(format!("it names no {what}")),
        false => Ok(text),
    };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    Ok(Source {
        kind,
        host: given(host, "host")?,
        port: url.port().unwrap_or(port),
        user: given(decoded(url.username()), "user")?,
        password: decoded(url.password().unwrap_or_default()),
        database: given(decoded(url.path().trim_start_matches('/')), "database")?,
    })
}

/// Whether a setting of an address asks for TLS, in the words of PostgreSQL's and of MySQL's clients. To one that can
/// do without it is spoken without.
fn wants_tls(key: &str, value: &str) -> bool {
    let key = key.to_lowercase().replace(['-', '_'], "");
    let value = value.to_lowercase();
    match key.as_str() {
        "sslmode" => !["disable", "disabled", "prefer", "preferred", "allow"].contains(&value.as_str()),
        "ssl" | "tls" | "usessl" | "requiressl" => {
            !["false", "0", "no", "preferred", "disabled"].contains(&value.as_str())
        }
        "sslnegotiation" => value == "direct",
        "channelbinding" => value == "require",
        "sslrootcert" | "sslcert" | "sslkey" | "sslca" | "verifyca" | "verifyidentity" => true,
        _ => false,
    }
}

/// Of a Database: the user of its Secret, at the address of its pod, which is right inside of the cluster and outside.
async fn of_database(kind: DatabaseType, name: &str, ctx: &Context) -> Result<Result<Source, Missing>> {
    let namespace = ctx.request().namespace();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("db.example.com", "v1alpha1", "Database"));
    // Read when it is needed: the operator works in clusters that have no Databases, where there is nothing to watch.
    let missing = |reason, why: String| Ok(Err(Missing(reason, why)));
    let database = match ctx.client().live_of::<DynamicObject>(&resource, namespace, name).await {
        Ok(Some(database)) => database,
        Ok(None) => return missing("DatabaseNotFound", format!("there is no Database {name}")),
        Err(error) if error.is_not_found() => {
            return missing(
                "DatabaseNotFound",
                "the cluster has no Databases: install that operator".to_owned(),
            );
        }
        Err(error) => return Err(error),
    };
    let secret = database.data["status"]["secretRef"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let Some(secret) = ctx.client().get::<Secret>(namespace, &secret).await? else {
        return missing("DatabaseNotReady", format!("the Database {name} has no Secret yet"));
    };
    let part = |key: &str| text(&secret, key);
    let (Some(user), Some(password), Some(database)) = (part("username"), part("password"), part("database")) else {
        return missing(
            "SecretIncomplete",
            format!("the Secret of the Database {name} lacks username, password or database"),
        );
    };
    let service = Selector::from_iter([("kubernetes.io/service-name".to_owned(), name.to_owned())]);
    let slices = ctx.client().list_matching::<EndpointSlice>(namespace, &service).await?;
    let Some((host, port)) = slices.iter().find_map(|slice| address(slice)) else {
        return missing(
            "DatabaseNotReady",
            format!("the Database {name} has no pod that is ready"),
        );
    };
    Ok(Ok(Source {
        kind,
        host,
        port,
        user,
        password,
        database,
    }))
}

/// The first ready address of a slice.
fn address(slice: &EndpointSlice) -> Option<(String, u16)> {
    let port = slice.ports.iter().flatten().find_map(|port| port.port)?;
    let is_ready = |ready: &Option<bool>| ready.unwrap_or(true);
    let mut ready = slice.endpoints.iter().flatten().filter(|endpoint| {
        endpoint
            .conditions
            .as_ref()
            .is_none_or(|conditions| is_ready(&conditions.ready))
    });
    Some((
        ready.find_map(|endpoint| endpoint.addresses.first().cloned())?,
        u16::try_from(port).ok()?,
    ))
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    String::from_utf8(bytes.clone()).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let check = |kind, address: &str, expected: &str| {
            let said = match parse(kind, address) {
                Ok(source) => format!("{source:?} {}", source.password),
                Err(why) => why,
            };
            assert_eq!(said, expected, "{address}");
        };
        let (postgres, mysql) = (DatabaseType::Postgres, DatabaseType::Mysql);
        check(
            postgres,
            "postgres://app:p%40ss@db:5433/shop\n",
            "Postgres app@db:5433/shop p@ss",
        );
        check(
            postgres,
            "postgresql://app:x@[::1]/shop",
            "Postgres app@::1:5432/shop x",
        );
        check(mysql, "mysql://app:x@db/shop", "Mysql app@db:3306/shop x");
        check(
            mysql,
            "postgres://app:x@db/shop",
            "it begins with postgres:// instead of mysql://",
        );
        check(postgres, "postgres://db/shop", "it names no user");
        check(postgres, "postgres://app:x@db", "it names no database");
        check(
            postgres,
            "postgres://a:x@db/s?sslmode=require",
            "sslmode=require asks for TLS, which this example does not speak",
        );
        for (kind, asked) in [
            (postgres, "sslmode=verify-full"),
            (postgres, "sslrootcert=/ca.crt"),
            (postgres, "channel_binding=require"),
            (mysql, "ssl-mode=REQUIRED"),
            (mysql, "sslMode=VERIFY_CA"),
            (mysql, "require_ssl=true"),
            (mysql, "useSSL=true"),
            (mysql, "tls=skip-verify"),
        ] {
            let scheme = if kind == postgres { "postgres" } else { "mysql" };
            let said = format!("{asked} asks for TLS, which this example does not speak");
            check(kind, &format!("{scheme}://a:x@db/s?{asked}"), &said);
        }
        for without in ["sslmode=prefer", "ssl=false", "connect_timeout=3"] {
            check(
                postgres,
                &format!("postgres://a:x@db/s?{without}"),
                "Postgres a@db:5432/s x",
            );
        }
        check(postgres, "secret", "it is no address: relative URL without a base");
    }
}
