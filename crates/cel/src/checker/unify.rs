//! Which type fits where, and the types of type parameters.
//!
//! The rules of cel-go: dynamic values and errors fit everywhere; `null` fits objects, opaque types, durations and
//! timestamps; a parameter takes the more general of the types that it meets.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::types::Type;
use kubewright_values::budget;

/// The types that parameters stand for.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    bound: BTreeMap<Arc<str>, Type>,
    /// The parameters bound since the last attempt began, with their earlier types.
    tried: Vec<(Arc<str>, Option<Type>)>,
}

impl Mapping {
    /// Whether `from` may be used where `to` is wanted; if so, parameters are bound, else nothing changes.
    pub(super) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// The same for lists of arguments.
    pub(super) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.tried.clear();
        let fits = from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to));
        if !fits {
            while let Some((name, before)) = self.tried.pop() {
                match before {
                    Some(ty) => self.bound.insert(name, ty),
                    None => self.bound.remove(&name),
                };
            }
        }
        fits
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Param(name) => self.bound.get(name),
            _ => None,
        }
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        // A type may hold another one twice, which holds another one twice.
        budget::spend(2);
        if let Type::Param(_) = to {
            match self.bind(from, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(_) = from {
            return self.bind(to, from).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, Type::Null) => true,
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Opaque(_) | Type::Optional(_) | Type::Object(_) | Type::Duration | Type::Timestamp
            ),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(k1, v1), Type::Map(k2, v2)) => self.fits(k1, k2) && self.fits(v1, v2),
            _ => from == to,
        }
    }

    /// Lets the parameter `param` stand for `ty`. Answers whether it may, and whether it stood for something before.
    fn bind(&mut self, ty: &Type, param: &Type) -> (bool, bool) {
        if ty == param {
            return (true, true);
        }
        if let Some(bound) = self.find(param).cloned() {
            if *ty == bound {
                return (true, true);
            }
            if !self.fits(ty, &bound) {
                return (false, true);
            }
            let general = most_general(ty, &bound);
            if !self.occurs(param, &general) {
                self.insert(param, general);
            }
            return (true, true);
        }
        if self.occurs(param, ty) {
            return (false, false);
        }
        self.insert(param, ty.clone());
        (true, false)
    }

    fn insert(&mut self, param: &Type, ty: Type) {
        if let Type::Param(name) = param {
            let before = self.bound.insert(name.clone(), ty);
            self.tried.push((name.clone(), before));
        }
    }

    /// Whether the parameter occurs within the type: then it cannot stand for it.
    fn occurs(&self, param: &Type, within: &Type) -> bool {
        budget::spend(1);
        if param == within {
            return true;
        }
        match within {
            Type::Param(_) => self.find(within).is_some_and(|bound| self.occurs(param, bound)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => self.occurs(param, inner),
            Type::Map(key, value) => self.occurs(param, key) || self.occurs(param, value),
            _ => false,
        }
    }

    /// The type with its bound parameters replaced; the others become dynamic when `open_to_dyn`.
    pub(super) fn substitute(&self, ty: &Type, open_to_dyn: bool) -> Type {
        budget::spend(4);
        if let Some(bound) = self.find(ty) {
            return self.substitute(bound, open_to_dyn);
        }
        let inner = |ty: &Type| self.substitute(ty, open_to_dyn);
        match ty {
            Type::Param(_) if open_to_dyn => Type::Dyn,
            Type::List(element) => Type::list(inner(element)),
            Type::Optional(value) => Type::optional(inner(value)),
            Type::Map(key, value) => Type::map(inner(key), inner(value)),
            Type::Type(Some(named)) => Type::type_of(inner(named)),
            other => other.clone(),
        }
    }
}

/// The more general of two types of which one fits the other.
pub(super) fn most_general(a: &Type, b: &Type) -> Type {
    if less_specific(a, b) { a.clone() } else { b.clone() }
}

fn less_specific(a: &Type, b: &Type) -> bool {
    budget::spend(1);
    match (a, b) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => less_specific(a, b),
        (Type::Map(k1, v1), Type::Map(k2, v2)) => less_specific(k1, k2) && less_specific(v1, v2),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}

/// A type with the parameters of an overload replaced by fresh ones.
pub(super) fn instantiate(ty: &Type, fresh: &[(Arc<str>, Type)]) -> Type {
    budget::spend(4);
    let inner = |ty: &Type| instantiate(ty, fresh);
    match ty {
        Type::Param(name) => fresh
            .iter()
            .find_map(|(param, fresh)| (param == name).then(|| fresh.clone()))
            .unwrap_or_else(|| ty.clone()),
        Type::List(element) => Type::list(inner(element)),
        Type::Optional(value) => Type::optional(inner(value)),
        Type::Map(key, value) => Type::map(inner(key), inner(value)),
        Type::Type(Some(named)) => Type::type_of(inner(named)),
        other => other.clone(),
    }
}
