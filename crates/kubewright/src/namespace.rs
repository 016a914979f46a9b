//! The namespace in a read or a write, as callers have it: a name, the field of an object, all, or none.
//!
//! Invariant: the empty name is none, as in every field of Kubernetes.

/// What says in which namespace something is read or written: a name, what
/// [`Request::namespace`](crate::Request::namespace) or the field `metadata.namespace` of an object says,
/// [`AllNamespaces`], or [`NoNamespace`].
///
/// ```
/// use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
/// use kubewright::{AllNamespaces, Context, NoNamespace, Result};
///
/// # async fn reconcile(config: ConfigMap, ctx: Context) -> Result<()> {
/// let client = ctx.client();
/// client.get::<Secret>("default", "password").await?;
/// client.get::<Secret>(ctx.request().namespace(), "password").await?;
/// client.get::<Secret>(&config.metadata.namespace, "password").await?;
/// client.get::<Node>(NoNamespace, "node-1").await?;
/// client.list::<Secret>(AllNamespaces).await?;
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` says no namespace",
    label = "write a name, `ctx.request().namespace()`, `&object.metadata.namespace`, `AllNamespaces` or `NoNamespace`"
)]
pub trait InNamespace: Send + Sync {
    /// The name; `None` for all namespaces and for none.
    fn namespace(&self) -> Option<&str>;
}

/// All namespaces, for a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllNamespaces;

/// None, for an object of a kind without namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoNamespace;

impl InNamespace for Option<&str> {
    fn namespace(&self) -> Option<&str> {
        self.filter(|name| !name.is_empty())
    }
}

impl InNamespace for &str {
    fn namespace(&self) -> Option<&str> {
        Some(*self).filter(|name| !name.is_empty())
    }
}

impl InNamespace for &String {
    fn namespace(&self) -> Option<&str> {
        Some(self.as_str()).filter(|name| !name.is_empty())
    }
}

impl InNamespace for &Option<String> {
    fn namespace(&self) -> Option<&str> {
        self.as_deref().filter(|name| !name.is_empty())
    }
}

impl InNamespace for AllNamespaces {
    fn namespace(&self) -> Option<&str> {
        None
    }
}

impl InNamespace for NoNamespace {
    fn namespace(&self) -> Option<&str> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_what_callers_have() {
        fn check(namespace: impl InNamespace, expected: Option<&str>) {
            assert_eq!(namespace.namespace(), expected);
        }
        let (name, none) = ("shop".to_owned(), None);
        check("shop", Some("shop"));
        check(&name, Some("shop"));
        check(&Some(name.clone()), Some("shop"));
        check(Some("shop"), Some("shop"));
        check("", None);
        check(&String::new(), None);
        check(&Some(String::new()), None);
        check(Some(""), None);
        check(&none, None);
        check(None, None);
        check(AllNamespaces, None);
        check(NoNamespace, None);
    }
}
