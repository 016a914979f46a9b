//! Discovery documents that were made of one snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// Documents made so far for one snapshot.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) answers: Mutex<BTreeMap<(DiscoveryPath, Form), Option<Answer>>>,
    pub(crate) merged: Mutex<Merged>,
}

/// The documents with the versions of other servers, made so far for one state of the APIServices.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// Which state that is; none before the first.
    pub(crate) state: Option<u64>,
    pub(crate) ranked: Arc<[Ranked]>,
    pub(crate) answers: BTreeMap<(DiscoveryPath, Form), Answer>,
}

/// A version of a group, as its APIService ranks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranked {
    pub(crate) group: String,
    pub(crate) version: String,
    /// `groupPriorityMinimum`: groups with more come first.
    pub(crate) of_group: i64,
    /// `versionPriority`: versions with more come first.
    pub(crate) of_version: i64,
    /// What is known of it, if another server serves it.
    pub(crate) remote: Option<RemoteResources>,
}

/// The resources of a version that another server serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteResources {
    /// In the aggregated form, as of its last answer; null before the first.
    pub(crate) list: Arc<Value>,
    /// Whether it has answered the last time that it was asked.
    pub(crate) is_current: bool,
}

/// Which discovery document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiscoveryPath {
    /// `/api`: the versions of the core group.
    Core,
    /// `/api/v1`: the resources of one of them.
    CoreVersion(String),
    /// `/apis`: the groups.
    Groups,
    /// `/apis/apps`: a group.
    Group(String),
    /// `/apis/apps/v1`: the resources of one of its versions.
    Version(String, String),
}

impl DiscoveryPath {
    /// The document at a path; a slash at its end says nothing. None for any other path.
    ///
    /// ```
    /// use kubewright_apiserver::discovery::DiscoveryPath;
    /// assert_eq!(DiscoveryPath::at("/apis/apps/"), Some(DiscoveryPath::Group("apps".to_owned())));
    /// assert_eq!(DiscoveryPath::at("/version"), None);
    /// ```
    pub fn at(path: &str) -> Option<DiscoveryPath> {
        let segments: Vec<&str> = path.trim_end_matches('/').split('/').collect();
        Some(match segments.as_slice() {
            ["", "api"] => DiscoveryPath::Core,
            ["", "api", version] => DiscoveryPath::CoreVersion((*version).to_owned()),
            ["", "apis"] => DiscoveryPath::Groups,
            ["", "apis", group] => DiscoveryPath::Group((*group).to_owned()),
            ["", "apis", group, version] => DiscoveryPath::Version((*group).to_owned(), (*version).to_owned()),
            _ => return None,
        })
    }

    /// The group that it is about; none for `/apis`.
    pub(crate) fn group(&self) -> Option<&str> {
        match self {
            DiscoveryPath::Core | DiscoveryPath::CoreVersion(_) => Some(""),
            DiscoveryPath::Groups => None,
            DiscoveryPath::Group(group) | DiscoveryPath::Version(group, _) => Some(group),
        }
    }
}

/// A discovery document.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The document.
    pub body: Arc<Value>,
    /// Set for the aggregated form, which is JSON or protobuf and has an ETag. The legacy form is negotiated like any
    /// other answer (406 for other types, such as the aggregated form of `/apis/apps`).
    pub aggregated: Option<Aggregated>,
}

/// How an aggregated document is sent.
#[derive(Clone, Debug)]
pub struct Aggregated {
    /// `application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList`, or the same as protobuf; the document is
    /// to be encoded as it says.
    pub content_type: &'static str,
    /// The ETag, with its quotes; compare it with `If-None-Match` and answer 304.
    pub etag: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    Legacy,
    V2,
    V2Protobuf,
}

impl Form {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Form::Legacy => "application/json",
            Form::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Form::V2Protobuf => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
        }
    }

    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Form::Legacy => "v1",
            Form::V2 | Form::V2Protobuf => "apidiscovery.k8s.io/v2",
        }
    }
}
