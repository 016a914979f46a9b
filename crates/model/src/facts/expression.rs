//! The variables that expressions of policies and match conditions may name, and the types they must return.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use kubewright_cel::types::{Decl, Field, ObjectType, Type};
use kubewright_cel::{Environment, Program, compile};
use kubewright_schema::{Minor, budget};

/// The type to which an expression must evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// A validation or a condition.
    Bool,
    /// A message. It may not ask the authorizer: a message must not depend on more than the decision does.
    Text,
    /// An audit annotation.
    TextOrNull,
    /// A variable.
    Anything,
    /// `Object{…}` of a mutation.
    Configuration,
    /// `[JSONPatch{…}]` of a mutation.
    Patches,
}

impl Returns {
    fn names(self) -> &'static [&'static str] {
        match self {
            Returns::Bool => &["bool"],
            Returns::Text => &["string"],
            Returns::TextOrNull => &["string", "null_type"],
            Returns::Anything => &[],
            Returns::Configuration => &["Object"],
            Returns::Patches => &["list(JSONPatch)"],
        }
    }

    /// Errors when the type of the expression is another one; `dyn` is.
    fn check(self, found: &Type) -> Result<(), String> {
        let (wanted, found) = (self.names(), shown(found));
        match wanted {
            [] => Ok(()),
            _ if wanted.contains(&found.as_str()) => Ok(()),
            [one] => Err(format!("must evaluate to {one} but got {found}")),
            many => Err(format!("must evaluate to one of [{}] but got {found}", many.join(" "))),
        }
    }
}

/// The name of a type by itself, which for some types is not the one in messages of the checker.
fn shown(ty: &Type) -> String {
    match ty {
        Type::List(element) => format!("list({})", shown(element)),
        Type::Map(key, value) => format!("map({}, {})", shown(key), shown(value)),
        Type::Optional(value) => format!("optional_type({})", shown(value)),
        Type::Type(Some(named)) => format!("type({})", shown(named)),
        other => other.name().to_owned(),
    }
}

/// Compiles the expressions of one policy or webhook.
#[derive(Clone, Debug)]
pub struct Compiler {
    params: bool,
    /// Shared with the expression that is being compiled and with none that is: of many variables, each adds itself and
    /// copies none.
    variables: Option<Arc<ObjectType>>,
    /// The types of `object` (and `oldObject`) and of `params`, where they are checked; else all that is known of them
    /// is known at run time.
    types: Option<[Decl; 2]>,
    /// The version whose syntax they have. What is stored was checked.
    minor: Minor,
}

impl Compiler {
    /// Without `variables`; `params`: whether there are parameters.
    pub fn stateless(params: bool) -> Compiler {
        Compiler {
            params,
            variables: None,
            types: None,
            minor: Minor::NEWEST,
        }
    }

    /// The same for objects and parameters of these types, to check expressions against them; `None`: one that is not
    /// known. `params` without a type are declared all the same, unless there are none.
    #[must_use]
    pub fn of_types(mut self, object: Option<Decl>, params: Option<Decl>) -> Compiler {
        self.types = Some([object, params].map(|decl| decl.unwrap_or(Decl::new(Type::Dyn))));
        self
    }

    /// The same for expressions that are new, in the syntax of a version.
    #[must_use]
    pub fn of_minor(self, minor: Minor) -> Compiler {
        Compiler { minor, ..self }
    }

    /// Why an expression does not fit the types of its variables (`typeCheckingCompiler`), in the words of upstream,
    /// where the type of its value does not matter; none when it does.
    pub fn mistake(&self, source: &str) -> Option<String> {
        compile(source, &self.environment(Returns::Anything))
            .err()
            .map(|issues| issues.to_string())
    }

    /// With `variables`, to be declared one after the other.
    pub fn with_variables(params: bool) -> Compiler {
        Compiler {
            params,
            variables: Some(Arc::new(ObjectType {
                name: "kubernetes.variables".into(),
                fields: BTreeMap::new(),
            })),
            types: None,
            minor: Minor::NEWEST,
        }
    }

    /// Compiles a variable; expressions that follow may name it, even when it does not compile.
    ///
    /// # Errors
    /// The compile error, in the words of upstream.
    pub fn declare(&mut self, name: &str, source: &str) -> Result<Program, String> {
        let checked = self.check(source, Returns::Anything);
        let ty = checked
            .as_ref()
            .map_or(Type::Dyn, |program| kept(program.result_type(), KEPT_LEVELS));
        let compiled = checked.map(Program::to_be_evaluated);
        if let Some(variables) = &mut self.variables {
            let fields = &mut Arc::make_mut(variables).fields;
            fields.insert(name.into(), field(name, Decl::new(ty)));
        }
        compiled
    }

    /// Compiles an expression.
    ///
    /// # Errors
    /// The compile error, in the words of upstream: `compilation failed: ERROR: …`, `must evaluate to bool but got
    /// int`.
    pub fn compile(&self, source: &str, returns: Returns) -> Result<Program, String> {
        self.check(source, returns).map(Program::to_be_evaluated)
    }

    fn check(&self, source: &str, returns: Returns) -> Result<Program, String> {
        let program =
            compile(source, &self.environment(returns)).map_err(|issues| format!("compilation failed: {issues}"))?;
        returns.check(program.result_type())?;
        kubewright_cel::eval::instantiate(&program)
            .map_err(|error| format!("program instantiation failed: {error}"))?;
        Ok(program)
    }

    fn environment(&self, returns: Returns) -> Environment {
        let any = || Decl::new(Type::Dyn);
        let [object, params] = self.types.clone().unwrap_or_else(|| [any(), any()]);
        let mut environment = Environment::new()
            .of_minor(self.minor)
            .variable("object", object.clone())
            .variable("oldObject", object)
            .variable("namespaceObject", NAMESPACE.clone())
            .variable("request", REQUEST.clone());
        if self.params {
            environment = environment.variable("params", params);
        }
        if returns != Returns::Text {
            environment = environment.variable(
                "authorizer",
                Decl::new(Type::opaque("kubernetes.authorization.Authorizer")),
            );
        }
        // The check of types does not know it (`buildEnvSet`).
        if returns != Returns::Text && self.types.is_none() {
            environment = environment.variable(
                "authorizer.requestResource",
                Decl::new(Type::opaque("kubernetes.authorization.ResourceCheck")),
            );
        }
        if let Some(variables) = &self.variables {
            environment = environment.variable("variables", Decl::new(Type::Object(variables.clone())));
        }
        match returns {
            Returns::Configuration | Returns::Patches => environment.constructing_objects(),
            _ => environment,
        }
    }
}

fn field(name: &str, decl: Decl) -> Field {
    Field {
        json_name: name.into(),
        decl,
        required: true,
    }
}

/// A variable's type is kept to so many levels: each variable may wrap the type of the one before it, and all of them
/// are held.
const KEPT_LEVELS: u32 = 32;

/// The type of a variable as others see it: scalars, lists and maps keep theirs, everything else is known at run time
/// only.
fn kept(ty: &Type, levels: u32) -> Type {
    let Some(below) = levels.checked_sub(1) else {
        return Type::Dyn;
    };
    match ty {
        Type::List(element) => Type::list(kept(element, below)),
        Type::Map(key, value) => Type::map(kept(key, below), kept(value, below)),
        Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Null
        | Type::Duration
        | Type::Timestamp => ty.clone(),
        _ => Type::Dyn,
    }
}

fn texts() -> Decl {
    Decl::new(Type::list(Type::String))
}

fn labels() -> Decl {
    Decl::new(Type::map(Type::String, Type::String))
}

fn object(name: &str, fields: &[(&'static str, Decl)]) -> Decl {
    Decl::object(name, fields.iter().cloned())
}

static REQUEST: LazyLock<Decl> = LazyLock::new(|| {
    budget::unlimited(|| {
        let text = || Decl::new(Type::String);
        let versioned =
            |name: &str, last: &'static str| object(name, &[("group", text()), ("version", text()), (last, text())]);
        let kind = versioned("kubernetes.GroupVersionKind", "kind");
        let resource = versioned("kubernetes.GroupVersionResource", "resource");
        let extra = Decl::new(Type::map(Type::String, Type::list(Type::String)));
        let user = [
            ("username", text()),
            ("uid", text()),
            ("groups", texts()),
            ("extra", extra),
        ];
        let fields = [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", object("kubernetes.UserInfo", &user)),
            ("dryRun", Decl::new(Type::Bool)),
            ("options", Decl::new(Type::Dyn)),
        ];
        object("kubernetes.AdmissionRequest", &fields)
    })
});

static NAMESPACE: LazyLock<Decl> = LazyLock::new(|| {
    budget::unlimited(|| {
        let (text, time, int) = (
            || Decl::new(Type::String),
            || Decl::new(Type::Timestamp),
            || Decl::new(Type::Int),
        );
        let condition = [
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ];
        let conditions = Type::list(object("kubernetes.NamespaceCondition", &condition).ty);
        let metadata = [
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", labels()),
            ("annotations", labels()),
            // Upstream spells the field so, and no object has a field of this name: an expression cannot read it.
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", int()),
            ("deletionTimestamp", time()),
            ("generation", int()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ];
        let status = [("conditions", Decl::new(conditions)), ("phase", text())];
        let fields = [
            ("metadata", object("kubernetes.NamespaceMetadata", &metadata)),
            ("spec", object("kubernetes.NamespaceSpec", &[("finalizers", texts())])),
            ("status", object("kubernetes.NamespaceStatus", &status)),
        ];
        object("kubernetes.Namespace", &fields)
    })
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_add_themselves_to_those_before_and_copy_none() {
        let mut compiler = Compiler::with_variables(false);
        compiler.declare("a", "1").expect("it compiles");
        let address = |compiler: &Compiler| compiler.variables.as_ref().map(Arc::as_ptr);
        let before = address(&compiler);
        // The type of this one is all of them.
        let all = compiler.declare("b", "variables");
        let failed = compiler.declare("c", "variables.none");
        let sum = compiler.compile("variables.a + variables.c == 2", Returns::Bool);
        assert!(all.is_ok() && failed.is_err() && sum.is_ok(), "{failed:?} {sum:?}");
        assert_eq!(address(&compiler), before);
    }

    /// As kube-apiserver 1.36 answers them.
    #[test]
    fn values_without_fields() {
        let compiler = Compiler::with_variables(false);
        for (source, expected) in [
            (
                "authorizer.nope",
                "1:11: unexpected failed resolution of 'kubernetes.authorization.Authorizer'",
            ),
            (
                "url('https://a').nope",
                "1:17: unexpected failed resolution of 'kubernetes.URL'",
            ),
            (
                "quantity('1').nope",
                "1:14: unexpected failed resolution of 'kubernetes.Quantity'",
            ),
            (
                "ip('1.2.3.4').nope",
                "1:14: type 'net.IP' does not support field selection",
            ),
            ("request.nope", "1:8: undefined field 'nope'"),
        ] {
            let mistake = compiler.mistake(source).unwrap_or_default();
            let first = mistake.lines().next().unwrap_or_default();
            assert_eq!(first, format!("ERROR: <input>:{expected}"));
        }
    }
}
