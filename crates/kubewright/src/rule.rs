//! A rule of a role: a permission of an operator.

use std::fmt;
use std::panic::Location;

use kube::core::ApiResource;
use serde::{Serialize, Serializer};

/// Something that the operator is allowed to do: a rule of a Role or ClusterRole (kubebuilder's `+kubebuilder:rbac`).
///
/// The rights for a controller's declared kinds are derived; this is for the rest. [`macro@crate::rbac`] writes one
/// beside a reconciler.
///
/// ```
/// use kubewright::Rule;
/// use kubewright::k8s_openapi::api::core::v1::Secret;
///
/// let read_one = Rule::of::<Secret>().resource_names(["db-password"]).verbs(["get"]);
/// let scale = Rule::new().groups(["apps"]).resources(["deployments/scale"]).verbs(["patch"]);
/// let metrics = Rule::new().urls(["/metrics"]).verbs(["get"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Rule {
    groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
    verbs: Vec<String>,
    urls: Vec<String>,
    namespace: String,
    role_name: String,
    #[serde(skip_serializing_if = "Origin::is_unknown")]
    at: Origin,
}

/// Where in the operator's source a rule stands, for errors about it. It is no part of the right: rules that stand in
/// different places may be equal.
#[derive(Clone, Copy, Debug, Default)]
struct Origin(Option<&'static Location<'static>>);

impl Origin {
    fn is_unknown(&self) -> bool {
        self.0.is_none()
    }
}

impl PartialEq for Origin {
    fn eq(&self, _: &Origin) -> bool {
        true
    }
}

impl Eq for Origin {}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = self.0.map(|at| (at.file(), at.line(), at.column()));
        place.serialize(serializer)
    }
}

fn texts(texts: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    texts.into_iter().map(Into::into).collect()
}

impl fmt::Display for Rule {
    /// As `#[rbac]` is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("groups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("verbs", &self.verbs),
            ("urls", &self.urls),
        ];
        let mut parts = Vec::new();
        for (name, list) in lists {
            match list.as_slice() {
                [] => {}
                [one] => parts.push(format!("{name} = {one:?}")),
                many => parts.push(format!("{name} = {many:?}")),
            }
        }
        for (name, text) in [("namespace", &self.namespace), ("roleName", &self.role_name)] {
            if !text.is_empty() {
                parts.push(format!("{name} = {text:?}"));
            }
        }
        write!(f, "#[rbac({})]", parts.join(", "))
    }
}

impl Rule {
    /// A rule that allows nothing yet.
    #[track_caller]
    pub fn new() -> Rule {
        Rule {
            at: Origin(Some(Location::caller())),
            ..Rule::default()
        }
    }

    /// A rule about the objects of a kind.
    #[track_caller]
    pub fn of<K: kube::Resource<DynamicType = ()>>() -> Rule {
        let resource = ApiResource::erase::<K>(&());
        Rule::new().groups([resource.group]).resources([resource.plural])
    }

    /// The rule whose absence a refusal of the API server is about: its texts name the verb, the resource and the
    /// group. It displays as the attribute that adds it.
    ///
    /// ```
    /// use kubewright::Rule;
    ///
    /// let text = r#"secrets is forbidden: User "robot" cannot list resource "secrets" in API group "" at the cluster scope"#;
    /// let missing = Rule::missing_in(text).expect("it is about a right");
    /// assert_eq!(missing.to_string(), r#"#[rbac(groups = "", resources = "secrets", verbs = "list")]"#);
    /// ```
    pub fn missing_in(text: &str) -> Option<Rule> {
        let (_, rest) = text.split_once(" cannot ")?;
        let (verb, rest) = rest.split_once(" resource \"")?;
        let (resource, rest) = rest.split_once('"')?;
        let (_, rest) = rest.split_once("in API group \"")?;
        let (group, _) = rest.split_once('"')?;
        let plain = |word: &str| {
            word.chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "-./*".contains(letter))
        };
        let words = [verb, resource];
        let fits = words.iter().all(|word| !word.is_empty() && plain(word)) && plain(group);
        fits.then(|| Rule::default().groups([group]).resources([resource]).verbs([verb]))
    }

    /// What to write so that the operator gets this right: a controller declares the kinds that it makes and reads, and
    /// their rights follow; `#[rbac]` is for others. `kubewright dev` and tests print it.
    ///
    /// ```
    /// use kubewright::Rule;
    ///
    /// let missing = Rule::new().groups([""]).resources(["secrets"]).verbs(["list"]);
    /// assert!(missing.advice().contains(".reads::<"), "{}", missing.advice());
    /// ```
    pub fn advice(&self) -> String {
        let is_one_of = |verbs: &[&str]| self.verbs.iter().all(|verb| verbs.contains(&verb.as_str()));
        let (reads, writes) = (["get", "list", "watch"], ["create", "patch"]);
        let is_part = self.resources.iter().any(|resource| resource.contains('/'));
        let attribute = |rule: &Rule| format!("above the impl of the reconciler: {rule}, then kubewright manifests");
        if is_part || !self.urls.is_empty() {
            return attribute(self);
        }
        let Some(resource) = self.resources.first() else {
            return attribute(self);
        };
        if is_one_of(&reads) {
            let all = self.clone().verbs(reads);
            return format!(
                "declare {resource} at the controller: .owns::<…>() when it makes them, .watches::<…>(…) or \
                 .reads::<…>(Scope::all()) when it looks at them; or {}",
                attribute(&all)
            );
        }
        if is_one_of(&writes) {
            return format!(
                "declare {resource} at the controller when it makes them: .owns::<…>(); or {}",
                attribute(self)
            );
        }
        attribute(self)
    }

    /// Whether it allows everything that another rule does.
    ///
    /// ```
    /// use kubewright::Rule;
    ///
    /// let pods = || Rule::new().groups([""]).resources(["pods"]);
    /// assert!(pods().verbs(["get", "list"]).covers(&pods().verbs(["list"])));
    /// assert!(pods().verbs(["*"]).covers(&pods().resource_names(["web"]).verbs(["list"])));
    /// assert!(!pods().resource_names(["web"]).verbs(["list"]).covers(&pods().verbs(["list"])));
    /// ```
    pub fn covers(&self, other: &Rule) -> bool {
        let all = |given: &[String], wanted: &[String]| {
            wanted
                .iter()
                .all(|word| given.iter().any(|given| given == "*" || given == word))
        };
        let names = self.resource_names.is_empty()
            || !other.resource_names.is_empty() && all(&self.resource_names, &other.resource_names);
        let place = self.namespace.is_empty() || self.namespace == other.namespace;
        all(&self.groups, &other.groups)
            && all(&self.resources, &other.resources)
            && all(&self.urls, &other.urls)
            && all(&self.verbs, &other.verbs)
            && names
            && place
    }

    /// API groups; `""` is the core group, `*` all.
    pub fn groups(mut self, groups: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.groups = texts(groups);
        self
    }

    /// Resources by their plural, also parts of them (`deployments/scale`).
    pub fn resources(mut self, resources: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.resources = texts(resources);
        self
    }

    /// A part of the resources named so far, such as `status` or `scale`.
    pub fn subresource(mut self, part: &str) -> Rule {
        for resource in &mut self.resources {
            *resource = format!("{resource}/{part}");
        }
        self
    }

    /// Only the objects of these names.
    pub fn resource_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.resource_names = texts(names);
        self
    }

    /// The verbs: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …, or `*`.
    pub fn verbs(mut self, verbs: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.verbs = texts(verbs);
        self
    }

    /// Paths that are no resources, such as `/metrics`.
    pub fn urls(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.urls = texts(urls);
        self
    }

    /// The rule goes into a Role in this namespace.
    pub fn namespace(mut self, namespace: &str) -> Rule {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// The rule goes into a role of this name instead of `manager-role`.
    pub fn role_name(mut self, name: &str) -> Rule {
        name.clone_into(&mut self.role_name);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_knows_its_line_and_is_equal_wherever_it_stands() {
        let (rule, line) = (Rule::new().groups(["apps"]), line!());
        let written = serde_json::to_value(&rule).expect("it is data");
        assert_eq!(written["at"][0], file!());
        assert_eq!(written["at"][1], line);
        assert_eq!(rule, Rule::new().groups(["apps"]));
        let unplaced = serde_json::to_value(Rule::default()).expect("it is data");
        assert!(unplaced.get("at").is_none(), "{unplaced}");
    }
}
