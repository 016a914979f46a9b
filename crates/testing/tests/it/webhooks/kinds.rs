//! A kind in two versions.

pub(crate) mod v1 {
    use kubewright::kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// A guestbook, as it was first.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
    #[kube(group = "webapp.my.domain", version = "v1", kind = "Guestbook", namespaced)]
    #[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "kubewright::k8s_openapi"))]
    pub(crate) struct GuestbookSpec {
        /// How many pages it has.
        pub(crate) size: i32,
        /// What stands above them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) title: Option<String>,
    }
}

pub(crate) mod v2 {
    use kubewright::kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::v1;

    /// A guestbook, as it is now.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
    #[kube(group = "webapp.my.domain", version = "v2", kind = "Guestbook", namespaced)]
    #[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "kubewright::k8s_openapi"))]
    pub(crate) struct GuestbookSpec {
        /// Its pages.
        pub(crate) pages: Pages,
        /// What stands above them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) title: Option<String>,
    }

    /// Pages.
    #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
    pub(crate) struct Pages {
        /// How many.
        #[schemars(range(min = 0))]
        pub(crate) count: i32,
    }

    impl TryFrom<v1::Guestbook> for Guestbook {
        type Error = String;

        fn try_from(hub: v1::Guestbook) -> Result<Guestbook, String> {
            if hub.spec.size < 0 {
                return Err(format!("spec.size is {}, and v2 cannot count below 0", hub.spec.size));
            }
            let spec = GuestbookSpec {
                pages: Pages { count: hub.spec.size },
                title: hub.spec.title,
            };
            Ok(Guestbook {
                metadata: hub.metadata,
                spec,
            })
        }
    }

    impl From<Guestbook> for v1::Guestbook {
        fn from(spoke: Guestbook) -> v1::Guestbook {
            v1::Guestbook {
                metadata: spoke.metadata,
                spec: v1::GuestbookSpec {
                    size: spoke.spec.pages.count,
                    title: spoke.spec.title,
                },
            }
        }
    }
}
