//! What OperatorHub.io requires of a bundle (operator-framework/api's `OperatorHubV2Validator`,
//! `StandardCapabilitiesValidator` and `StandardCategoriesValidator`).

use super::read::Bundle;
use super::types::tolerant;
use super::{Findings, Options, Place, csv, removed, text, values};

const CAPABILITIES: [&str; 5] = [
    "Basic Install",
    "Seamless Upgrades",
    "Full Lifecycle",
    "Deep Insights",
    "Auto Pilot",
];

const CATEGORIES: [&str; 16] = [
    "AI/Machine Learning",
    "Application Runtime",
    "Big Data",
    "Cloud Provider",
    "Database",
    "Developer Tools",
    "Integration & Delivery",
    "Logging & Tracing",
    "Modernization & Migration",
    "Monitoring",
    "Networking",
    "Observability",
    "OpenShift Optional",
    "Security",
    "Storage",
    "Streaming & Messaging",
];

const PICTURES: [&str; 4] = ["image/gif", "image/jpeg", "image/png", "image/svg+xml"];

/// The three validators in one, as the old one was.
pub(super) fn all(bundle: &Bundle, options: &Options, findings: &mut Findings) {
    listed(bundle, options, findings);
    capabilities(bundle, options, findings);
    categories(bundle, options, findings);
    findings.warning(
        Place::Value("operatorhub"),
        "the validator is deprecated: select operatorhubv2, capabilities and categories",
    );
}

/// The description of the operator.
pub(super) fn listed(bundle: &Bundle, options: &Options, findings: &mut Findings) {
    let csv = &bundle.csv;
    let name = Place::Value(bundle.name());
    if text(csv, "spec.provider.name").trim().is_empty() {
        findings.error(name, "spec.provider.name is missing");
    }
    for maintainer in values(csv, "spec.maintainers.*") {
        let (person, mail) = (text(maintainer, "name"), text(maintainer, "email"));
        if person.is_empty() || mail.is_empty() {
            findings.error(name, "each of spec.maintainers needs a name and an email");
        }
        if !mail.is_empty() && !is_mail(mail) {
            findings.error(name, format!("{mail:?} in spec.maintainers is no email address"));
        }
    }
    for link in values(csv, "spec.links.*") {
        let (label, url) = (text(link, "name"), text(link, "url"));
        if label.is_empty() || url.is_empty() {
            findings.error(name, "each of spec.links needs a name and a url");
        }
        if !url.is_empty() && !is_url(url) {
            findings.error(name, format!("{url:?} in spec.links is no URL"));
        }
    }
    let version = tolerant(text(csv, "spec.version"));
    if version
        .is_none_or(|version| (version.major, version.minor, version.patch) == (0, 0, 0) && version.pre.is_empty())
    {
        findings.error(name, "spec.version is missing");
    }
    icon(bundle, findings);
    csv::min_kube_version(csv, bundle.name(), findings);
    removed::apis(bundle, options, findings);
}

fn icon(bundle: &Bundle, findings: &mut Findings) {
    let name = Place::Value(bundle.name());
    let icons = values(&bundle.csv, "spec.icon.*");
    let Some(icon) = icons.first() else {
        return findings.warning(name, "spec.icon is missing");
    };
    if icons.len() > 1 {
        findings.error(name, "spec.icon has more than one icon");
    }
    let (kind, data) = (text(icon, "mediatype"), text(icon, "base64data"));
    if kind.is_empty() || data.is_empty() {
        findings.error(name, "spec.icon needs base64data and a mediatype");
    }
    if !kind.is_empty() && !PICTURES.contains(&kind) {
        findings.error(
            name,
            format!("the mediatype {kind:?} of spec.icon is none of {}", PICTURES.join(", ")),
        );
    }
}

/// The level of the operator.
pub(super) fn capabilities(bundle: &Bundle, _: &Options, findings: &mut Findings) {
    if let Some(level) = bundle.csv["metadata"]["annotations"]["capabilities"].as_str()
        && !CAPABILITIES.contains(&level)
    {
        let why = format!(
            "the annotation capabilities {level:?} is none of {}",
            CAPABILITIES.join(", ")
        );
        findings.error(Place::Value(bundle.name()), why);
    }
}

/// The shelves of a catalog.
pub(super) fn categories(bundle: &Bundle, options: &Options, findings: &mut Findings) {
    let Some(said) = bundle.csv["metadata"]["annotations"]["categories"].as_str() else {
        return;
    };
    for category in said.split(',').map(str::trim) {
        let is_known = match &options.categories {
            Some(own) => own.iter().any(|known| known == category),
            None => CATEGORIES.contains(&category),
        };
        if !is_known {
            let known = match &options.categories {
                Some(own) => own.join(", "),
                None => CATEGORIES.join(", "),
            };
            let why = format!("the category {category:?} of the annotation categories is none of {known}");
            findings.error(Place::Value(bundle.name()), why);
        }
    }
}

/// `ann@example.com`, perhaps as `Ann <ann@example.com>`.
fn is_mail(text: &str) -> bool {
    let address = match text.trim().strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
        Some((_, address)) => address,
        None => text.trim(),
    };
    let is_clean =
        |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || "<>()[]\\,;:".contains(c));
    address
        .rsplit_once('@')
        .is_some_and(|(local, domain)| is_clean(local) && is_clean(domain) && !local.contains('@'))
}

/// An absolute URL, or an absolute path.
fn is_url(text: &str) -> bool {
    let has_scheme = text.split_once(':').is_some_and(|(scheme, rest)| {
        let letters = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(letters) && !rest.is_empty()
    });
    (has_scheme || text.starts_with('/')) && !text.contains(|c: char| c.is_control() || c == ' ')
}
