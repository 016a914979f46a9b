//! What a store holds, and what a view of it needs: how much of each object, and of which objects.
//!
//! Several views share one store, so it holds the union of what they need. The server selects as far as all of them
//! want the same; where they differ, each view selects by itself.
//!
//! Invariants: [`Coverage::join`] covers both; a view whose needs are covered can be answered from the objects of the
//! store alone, selectors included, so that a scope that cannot be judged here ([`Scope::is_judged_here`]) is joined
//! with none but itself.

use std::any::TypeId;

use super::Scope;

/// How much of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The metadata. The server is asked for no more.
    Metadata,
    /// What the transform of a type leaves of it.
    Transformed(TypeId),
    /// All.
    Whole,
}

/// What a store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) content: Content,
    pub(crate) scope: Scope,
}

impl Coverage {
    /// The least that covers both.
    pub(crate) fn join(&self, other: &Coverage) -> Coverage {
        let (a, b) = (&self.scope, &other.scope);
        let scope = Scope {
            namespace: a.namespace.clone().filter(|_| a.namespace == b.namespace),
            labels: if a.labels.to_string() == b.labels.to_string() {
                a.labels.clone()
            } else {
                Default::default()
            },
            fields: a.fields.clone().filter(|_| a.fields == b.fields),
        };
        let selects_here = |one: &Coverage| one.scope != scope && !one.is_judged_by_what_it_holds();
        let content = match self.content == other.content && !selects_here(self) && !selects_here(other) {
            true => self.content,
            false => Content::Whole,
        };
        Coverage { content, scope }
    }

    /// Whether nothing is missing for one who needs `other`.
    pub(crate) fn covers(&self, other: &Coverage) -> bool {
        self == other || self.join(other) == *self
    }

    /// Whether the objects, as they are held, say which of them are inside the scope.
    fn is_judged_by_what_it_holds(&self) -> bool {
        match self.content {
            Content::Whole => true,
            Content::Metadata => self.scope.is_judged_by_metadata(),
            // A transform may take away what the selector asks for.
            Content::Transformed(_) => !self.scope.is_selective(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_covers_its_parts_and_no_more_than_it_must() {
        let transformed = Content::Transformed(TypeId::of::<u8>());
        let other = Content::Transformed(TypeId::of::<u16>());
        let of = |content, scope| Coverage { content, scope };
        let web = || Scope::all().labels([("app", "web")].into_iter().collect());
        let db = || Scope::all().labels([("app", "db")].into_iter().collect());
        let check = |a: Coverage, b: Coverage, expected: Coverage| {
            let joined = a.join(&b);
            assert_eq!(joined, expected, "{a:?} and {b:?}");
            assert_eq!(b.join(&a), expected, "{b:?} and {a:?}");
            assert!(joined.covers(&a) && joined.covers(&b));
            assert_eq!(a.covers(&b), a == expected);
        };
        let (meta, whole) = (Content::Metadata, Content::Whole);
        check(of(meta, web()), of(meta, web()), of(meta, web()));
        check(of(whole, web()), of(whole, db()), of(whole, Scope::all()));
        check(of(meta, web()), of(meta, db()), of(meta, Scope::all()));
        check(of(meta, web()), of(whole, web()), of(whole, web()));
        check(
            of(whole, Scope::namespace("a")),
            of(whole, Scope::namespace("a").fields("spec.x=1")),
            of(whole, Scope::namespace("a")),
        );
        // A field that the metadata do not have can only be judged when all of the object is there.
        let node = || Scope::all().fields("spec.nodeName=n");
        check(of(meta, node()), of(meta, node()), of(meta, node()));
        check(of(meta, node()), of(meta, Scope::all()), of(whole, Scope::all()));
        check(
            of(meta, Scope::all().fields("metadata.name=n")),
            of(meta, Scope::all()),
            of(meta, Scope::all()),
        );
        check(
            of(transformed, Scope::all()),
            of(transformed, Scope::all()),
            of(transformed, Scope::all()),
        );
        check(
            of(transformed, Scope::all()),
            of(meta, Scope::all()),
            of(whole, Scope::all()),
        );
        check(
            of(transformed, Scope::all()),
            of(other, Scope::all()),
            of(whole, Scope::all()),
        );
        check(
            of(transformed, web()),
            of(transformed, Scope::all()),
            of(whole, Scope::all()),
        );
        check(
            of(transformed, Scope::namespace("a")),
            of(transformed, Scope::all()),
            of(transformed, Scope::all()),
        );
    }
}
