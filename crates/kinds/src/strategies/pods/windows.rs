//! The Windows options of a pod: the credentials and the user of its containers, and whether they run as processes of
//! the host.

use kubewright_schema::names;

use crate::strategies::check::{At, Errors};
use kubewright_model::facts::pods::CONTAINER_LISTS;

const MAX_CREDENTIALS: usize = 64 * 1024;
const MAX_DOMAIN: usize = 256;
const MAX_USER: usize = 104;

/// `windowsOptions` of a pod or of a container.
pub(super) fn options(errors: &mut Errors, at: &At<'_>) {
    let name = at.key("gmsaCredentialSpecName");
    if name.present() {
        errors.messages(&name, names::dns1123_subdomain(name.text()));
    }
    let credentials = at.key("gmsaCredentialSpec");
    if credentials.present() && credentials.text().is_empty() {
        errors.invalid(&credentials, "gmsaCredentialSpec cannot be an empty string");
    }
    if credentials.text().len() > MAX_CREDENTIALS {
        errors.invalid(&credentials, "gmsaCredentialSpec size must be under 64 KiB");
    }
    let user = at.key("runAsUserName");
    if user.present() {
        for why in wrong_user(user.text()) {
            errors.invalid(&user, format!("runAsUserName{why}"));
        }
    }
}

/// The errors in a user name, which may have a domain before a backslash.
fn wrong_user(text: &str) -> Vec<String> {
    let one = |why: &str| vec![why.to_owned()];
    if text.is_empty() {
        return one(" cannot be an empty string");
    }
    if text.chars().any(|c| c.is_ascii_control()) {
        return one(" cannot contain control characters");
    }
    let (domain, user) = match text.split_once('\\') {
        Some((_, rest)) if rest.contains('\\') => return one(" cannot contain more than one backslash"),
        Some((domain, user)) => (Some(domain), user),
        None => (None, text),
    };
    let mut wrong = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= MAX_DOMAIN) {
        wrong.push(format!("'s Domain length must be under {MAX_DOMAIN} characters"));
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns(domain)) {
        wrong.push("'s Domain doesn't match the NetBios nor the DNS format".to_owned());
    }
    if user.is_empty() {
        wrong.push("'s User cannot be empty".to_owned());
    } else if user.len() > MAX_USER {
        wrong.push(format!("'s User length must not be longer than {MAX_USER} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        wrong.push("'s User cannot contain only periods or spaces".to_owned());
    }
    if user.contains([
        '"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']',
    ]) {
        wrong.push("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]".to_owned());
    }
    wrong
}

fn is_net_bios(domain: &str) -> bool {
    (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

fn is_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

/// Containers that are processes of the host: all or none, and only with the network of the host.
/// `validateWindowsHostProcessPod`.
pub(super) fn host_processes(errors: &mut Errors, spec: &At<'_>) {
    const WHERE: [&str; 3] = ["securityContext", "windowsOptions", "hostProcess"];
    let of_pod = spec.keys(&WHERE);
    let lists = CONTAINER_LISTS.map(|list| spec.key(list));
    let all: usize = lists.iter().map(At::len).sum();
    // Containers without the field inherit that of the pod.
    let mut of_host = if of_pod.is_true() { all } else { 0 };
    for container in lists.iter().flat_map(|list| list.items_with("securityContext")) {
        let own = container.keys(&WHERE);
        if !own.present() {
            continue;
        }
        if of_pod.present() && of_pod.is_true() != own.is_true() {
            let said = of_pod.is_true();
            errors.invalid(
                &own,
                format!("pod hostProcess value must be identical if both are specified, was {said}"),
            );
        }
        match (of_pod.is_true(), own.is_true()) {
            (true, false) => of_host -= 1,
            (false, true) => of_host += 1,
            _ => {}
        }
    }
    if of_host == 0 {
        return;
    }
    if of_host != all {
        errors.invalid_value(
            spec,
            "",
            "If pod contains any hostProcess containers then all containers must be HostProcess containers",
        );
    }
    if !spec.key("hostNetwork").is_true() {
        errors.invalid_value(
            &spec.key("hostNetwork"),
            false,
            "hostNetwork must be true if pod contains any hostProcess containers",
        );
    }
}
