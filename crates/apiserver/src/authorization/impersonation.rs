//! Impersonation: the headers `Impersonate-User`, `-Group`, `-Uid` and `-Extra-…`.
//!
//! There are several modes of being allowed it, tried one after the other. In the constrained ones (`associated-node`,
//! `arbitrary-node`, `serviceaccount`, `user-info`) a user needs the verb `impersonate-on:MODE:VERB` on the requested
//! resource and `impersonate:MODE` on each part of the impersonated user; in the last one, the only one there was for
//! years, `impersonate` on each part is enough. The mode that last helped a user is tried first for him, and the first
//! refusal is the one that he sees.
//!
//! Invariants: a user impersonates another only with a yes to every part; every impersonated user but
//! `system:anonymous` is in `system:authenticated`, unless the headers ask for `system:unauthenticated`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use kubewright_schema::error::{aggregate, quote};
use kubewright_schema::names;
use kubewright_schema::path::FieldPath;

use super::{Attributes, Authorizer, Inquiry, refused};
use crate::model::status::Status;
use crate::model::user::{
    NODE_PREFIX, SYSTEM_ANONYMOUS, SYSTEM_AUTHENTICATED, SYSTEM_MASTERS, SYSTEM_NODES, SYSTEM_UNAUTHENTICATED,
    UserInfo, service_account_groups, split_service_account,
};
use crate::wire::query::{decode, first_broken_escape};

/// The prefix of all these headers.
const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
/// Where a service account's token says on which node its pod runs.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// The API group of a user's parts, except for the old verb.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// From so many groups or extra values on, a yes to `*` is asked for first.
const MANY: usize = 4;
/// How many users' last modes are remembered.
const REMEMBERED: usize = 10_000;

/// The user that the headers name; `None` without such headers.
///
/// # Errors
/// The 400 when there are parts of a user, but no name.
pub(crate) fn requested(headers: &HeaderMap) -> Result<Option<UserInfo>, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut wanted = UserInfo {
        name: first(USER),
        uid: first(UID),
        groups: headers.get_all(GROUP).iter().map(text).collect(),
        extra: BTreeMap::new(),
    };
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            wanted.extra.entry(unescape(key)).or_default().push(text(value));
        }
    }
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty() {
        return Ok(None);
    }
    let message = format!("requested {} without impersonating a user name", in_go(&wanted));
    Err(Status::bad_request(message))
}

/// Percent-decoded; a key with a broken escape stays as it is.
fn unescape(key: &str) -> String {
    if first_broken_escape(key).is_some() {
        key.to_owned()
    } else {
        decode(key, false)
    }
}

/// A user as Go prints it with `%#v`.
fn in_go(user: &UserInfo) -> String {
    let list = |list: &[String]| {
        let texts: Vec<String> = list.iter().map(|text| quote(text)).collect();
        format!("[]string{{{}}}", texts.join(", "))
    };
    let groups = if user.groups.is_empty() {
        "[]string(nil)".to_owned()
    } else {
        list(&user.groups)
    };
    let mut extra = "map[string][]string".to_owned();
    if user.extra.is_empty() {
        extra.push_str("(nil)");
    } else {
        let entries: Vec<String> = user
            .extra
            .iter()
            .map(|(key, values)| format!("{}:{}", quote(key), list(values)))
            .collect();
        let _ = write!(extra, "{{{}}}", entries.join(", "));
    }
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}",
        quote(&user.name),
        quote(&user.uid)
    )
}

/// One way in which impersonation may be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A service account becomes the node that its pod runs on.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    ServiceAccount,
    /// A user who is neither node nor service account.
    UserInfo,
    /// The verb `impersonate` alone.
    Legacy,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

impl Mode {
    /// Its name in verbs; empty for the old one.
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    fn is_constrained(self) -> bool {
        self != Mode::Legacy
    }

    /// The verb for the parts of a user in a constrained mode; empty for the old one.
    fn constraint(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "impersonate:associated-node",
            Mode::ArbitraryNode => "impersonate:arbitrary-node",
            Mode::ServiceAccount => "impersonate:serviceaccount",
            Mode::UserInfo => "impersonate:user-info",
            Mode::Legacy => "",
        }
    }

    fn verb(self) -> String {
        match self.constraint() {
            "" => "impersonate".to_owned(),
            constraint => constraint.to_owned(),
        }
    }

    /// Whether it can be used to become `wanted` at all.
    fn fits(self, requestor: &UserInfo, wanted: &UserInfo) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        let account = split_service_account(&wanted.name);
        match self {
            Mode::AssociatedNode => {
                let own = requestor.extra.get(NODE_NAME).filter(|names| names.len() == 1);
                only_name
                    && node.is_some()
                    && split_service_account(&requestor.name).is_some()
                    && own.map(|names| names[0].as_str()) == node
            }
            Mode::ArbitraryNode => only_name && node.is_some(),
            Mode::ServiceAccount => only_name && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Legacy => true,
        }
    }
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_PREFIX)
        .filter(|name| names::dns1123_subdomain(name).is_empty())
}

/// The mode in which each user was last allowed to impersonate, the oldest first.
#[derive(Default)]
struct Remembered {
    modes: BTreeMap<String, Mode>,
    order: VecDeque<String>,
}

/// Decides which users may impersonate which others.
#[derive(Default)]
pub(crate) struct Impersonation {
    remembered: Mutex<Remembered>,
}

impl Impersonation {
    fn last(&self, user: &str) -> Option<Mode> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.modes.get(user).copied()
    }

    fn remember(&self, user: &str, mode: Mode) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.modes.insert(user.to_owned(), mode).is_none() {
            remembered.order.push_back(user.to_owned());
        }
        if remembered.order.len() > REMEMBERED
            && let Some(oldest) = remembered.order.pop_front()
        {
            remembered.modes.remove(&oldest);
        }
    }

    /// The user that `requestor` becomes for this request, and the verb of the constrained mode that allows it, or
    /// nothing.
    ///
    /// # Errors
    /// The 403 of the first mode that fits.
    pub(crate) async fn become_user(
        &self,
        authorizer: &dyn Authorizer,
        requestor: &UserInfo,
        wanted: &UserInfo,
        attributes: &Attributes,
    ) -> Result<(UserInfo, &'static str), Status> {
        let last = self.last(&requestor.name);
        let inquiry = Inquiry::new(authorizer);
        let tried = inquiry.settled(|| try_modes(last, &inquiry, requestor, wanted, attributes));
        let (mode, user) = tried.await?;
        if last != Some(mode) {
            self.remember(&requestor.name, mode);
        }
        Ok((user, mode.constraint()))
    }
}

/// The first mode that allows it, `last` before the others, and the user that the requestor is then.
fn try_modes(
    last: Option<Mode>,
    inquiry: &Inquiry<'_>,
    requestor: &UserInfo,
    wanted: &UserInfo,
    attributes: &Attributes,
) -> Result<(Mode, UserInfo), Status> {
    let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
    let mut first_refusal = None;
    for mode in last.into_iter().chain(others) {
        if !mode.fits(requestor, wanted) {
            continue;
        }
        let check = Check {
            inquiry,
            requestor,
            mode,
        };
        match check.all(wanted, attributes) {
            Ok(user) => return Ok((mode, user)),
            Err(refusal) => {
                first_refusal.get_or_insert(refusal);
            }
        }
    }
    let refusal = first_refusal.map(|refusal| *refusal);
    Err(refusal.unwrap_or_else(|| Status::untyped("all impersonation modes failed")))
}

/// The questions of one mode.
struct Check<'a> {
    inquiry: &'a Inquiry<'a>,
    requestor: &'a UserInfo,
    mode: Mode,
}

/// Refusals are kept while other modes are tried.
type Checked = Result<(), Box<Status>>;

impl Check<'_> {
    fn ask(&self, attributes: &Attributes) -> Checked {
        self.inquiry
            .authorize(self.requestor, attributes)
            .map_err(|reason| self.refuse(attributes, &reason))
    }

    fn refuse(&self, attributes: &Attributes, reason: &str) -> Box<Status> {
        Box::new(refused(self.requestor, attributes, reason))
    }

    fn part(&self, group: &str, resource: &str, name: &str) -> Attributes {
        Attributes {
            verb: self.mode.verb(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }

    /// The group of users and their groups, which the old verb takes for core ones.
    fn group(&self) -> &'static str {
        if self.mode.is_constrained() { AUTHENTICATION } else { "" }
    }

    fn all(&self, wanted: &UserInfo, attributes: &Attributes) -> Result<UserInfo, Box<Status>> {
        if self.mode.is_constrained() {
            self.ask(&Attributes {
                verb: format!("impersonate-on:{}:{}", self.mode.name(), attributes.verb),
                ..attributes.clone()
            })?;
        }
        let mut user = wanted.clone();
        self.name(wanted, &mut user)?;
        if !wanted.uid.is_empty() {
            self.ask(&self.part(AUTHENTICATION, "uids", &wanted.uid))?;
        }
        self.groups(&wanted.groups)?;
        self.extra(&wanted.extra)?;
        let group = if user.name == SYSTEM_ANONYMOUS {
            SYSTEM_UNAUTHENTICATED
        } else {
            SYSTEM_AUTHENTICATED
        };
        if !user.in_group(group) && !user.in_group(SYSTEM_UNAUTHENTICATED) {
            user.groups.push(group.to_owned());
        }
        Ok(user)
    }

    fn name(&self, wanted: &UserInfo, user: &mut UserInfo) -> Checked {
        let mut attributes = self.part(self.group(), "users", &wanted.name);
        if let (true, Some(node)) = (self.mode.is_constrained(), node_name(&wanted.name)) {
            "nodes".clone_into(&mut attributes.resource);
            // A yes must be a yes to every node, because only this server knows which one it is.
            let any = self.mode == Mode::AssociatedNode;
            attributes.name = if any { "*".to_owned() } else { node.to_owned() };
            user.groups = vec![SYSTEM_NODES.to_owned()];
        }
        if let Some((namespace, name)) = split_service_account(&wanted.name) {
            "serviceaccounts".clone_into(&mut attributes.resource);
            namespace.clone_into(&mut attributes.namespace);
            name.clone_into(&mut attributes.name);
            if wanted.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
        }
        self.ask(&attributes)
    }

    fn groups(&self, groups: &[String]) -> Checked {
        let mut attributes = self.part(self.group(), "groups", "");
        if self.mode.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return Err(self.refuse(&attributes, "impersonating the empty string group is not allowed"));
            }
            if groups.iter().any(|group| group == SYSTEM_MASTERS) {
                SYSTEM_MASTERS.clone_into(&mut attributes.name);
                return Err(self.refuse(&attributes, "impersonating the system:masters group is not allowed"));
            }
            if groups.len() >= MANY {
                "*".clone_into(&mut attributes.name);
                if self.ask(&attributes).is_ok() {
                    return Ok(());
                }
            }
        }
        for group in groups {
            attributes.name.clone_from(group);
            self.ask(&attributes)?;
        }
        Ok(())
    }

    fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Checked {
        let mut attributes = self.part(AUTHENTICATION, "userextras", "");
        if self.mode.is_constrained() {
            check_extra(extra).map_err(|why| self.refuse(&attributes, &why))?;
            let values: usize = extra.values().map(Vec::len).sum();
            if extra.len() >= MANY || values >= MANY {
                "*".clone_into(&mut attributes.subresource);
                "*".clone_into(&mut attributes.name);
                if self.ask(&attributes).is_ok() {
                    return Ok(());
                }
            }
        }
        for (key, values) in extra {
            attributes.subresource.clone_from(key);
            for value in values {
                attributes.name.clone_from(value);
                self.ask(&attributes)?;
            }
        }
        Ok(())
    }
}

/// The checks that only the legacy mode skips.
fn check_extra(extra: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
    for (key, values) in extra {
        if key.is_empty() {
            return Err("impersonating the empty string key in extra is not allowed".to_owned());
        }
        let wrong = names::domain_prefixed_path(&FieldPath::new("extra.key"), key);
        if !wrong.is_empty() {
            let why = aggregate(&wrong);
            return Err(format!("impersonating an invalid key in extra is not allowed: {why}"));
        }
        if *key != key.to_lowercase() {
            let key = quote(key);
            return Err(format!(
                "impersonating a non-lowercase key in extra is not allowed: {key}"
            ));
        }
        if values.iter().any(String::is_empty) {
            return Err("impersonating the empty string value in extra is not allowed".to_owned());
        }
    }
    Ok(())
}
