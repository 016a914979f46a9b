//! Types of expressions.
//!
//! Walks the tree once, gives each node a type, and rewrites the parts that only types can tell: qualified names of
//! variables, functions and types. One mistake is reported once: its type is [`Type::Error`], which fits everywhere.

mod literals;
mod unify;

use std::sync::Arc;

use super::ast::{Call, Comprehension, Entry, Expr, ExprId, ExprKind, Literal, op};
use super::decls::{self, Function, Overload};
use super::types::Type;
use super::{Environment, Issue};
use kubewright_values::budget;
use unify::{Mapping, instantiate, most_general};

/// Checks a parsed expression: the tree with names resolved and overloads entered, and the type of each node by id.
///
/// # Errors
/// Everything that does not fit, with cel-go's words.
pub fn check(mut expr: Expr, environment: &Environment) -> Result<(Expr, Vec<Type>), Vec<Issue>> {
    let mut checker = Checker {
        environment,
        scopes: Vec::new(),
        mapping: Mapping::default(),
        types: Vec::new(),
        issues: Vec::new(),
        next_param: 0,
    };
    checker.check(&mut expr);
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let types: Vec<Type> = checker
        .types
        .iter()
        .map(|ty| ty.as_ref().map_or(Type::Dyn, |ty| checker.mapping.substitute(ty, true)))
        .collect();
    let issues = literals::validate(&expr, &types);
    if issues.is_empty() {
        Ok((expr, types))
    } else {
        Err(issues)
    }
}

struct Checker<'a> {
    environment: &'a Environment,
    /// Variables of comprehensions, innermost last.
    scopes: Vec<(Arc<str>, Type)>,
    mapping: Mapping,
    types: Vec<Option<Type>>,
    issues: Vec<Issue>,
    next_param: u32,
}

/// The meaning of a name.
enum Named {
    Variable(Type),
    TypeName(Type),
}

impl Checker<'_> {
    fn issue(&mut self, offset: u32, message: String) {
        self.issues.push(Issue { offset, message });
    }

    fn mismatch(&mut self, offset: u32, expected: &Type, found: &Type) {
        self.issue(offset, format!("expected type '{expected}' but found '{found}'"));
    }

    fn undeclared(&mut self, offset: u32, name: &str) {
        self.issue(offset, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn set(&mut self, id: ExprId, ty: Type) -> Type {
        let at = id as usize;
        if self.types.len() <= at {
            self.types.resize(at + 1, None);
        }
        self.types[at] = Some(ty.clone());
        ty
    }

    fn new_param(&mut self) -> Type {
        self.next_param += 1;
        Type::Param(format!("_var{}", self.next_param - 1).into())
    }

    fn look_up(&self, name: &str) -> Option<Named> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some((_, ty)) = self.scopes.iter().rev().find(|(scoped, _)| &**scoped == name) {
            return Some(Named::Variable(ty.clone()));
        }
        if let Some(decl) = self.environment.get(name) {
            return Some(Named::Variable(decl.ty.clone()));
        }
        named_type(name).map(Named::TypeName)
    }

    fn check(&mut self, expr: &mut Expr) -> Type {
        budget::spend(16);
        let ty = match &mut expr.kind {
            ExprKind::Literal(literal) => literal_type(literal),
            ExprKind::TypeName(named) => Type::type_of(named.clone()),
            ExprKind::Ident(_) => return self.check_ident(expr),
            ExprKind::Select { .. } => return self.check_select(expr),
            ExprKind::Call(_) => return self.check_call(expr),
            ExprKind::List { elements, optional } => self.check_list(elements, optional),
            ExprKind::Map(entries) => self.check_map(entries),
            ExprKind::Struct { type_name, entries } => {
                let type_name = type_name.clone();
                self.check_struct(expr.offset, &type_name, entries)
            }
            ExprKind::Comprehension(comprehension) => self.check_comprehension(comprehension),
        };
        self.set(expr.id, ty)
    }

    fn check_ident(&mut self, expr: &mut Expr) -> Type {
        let ExprKind::Ident(name) = &expr.kind else {
            return Type::Error;
        };
        let name = name.clone();
        match self.look_up(&name) {
            Some(named) => self.resolve(expr, &name, named),
            None => {
                self.undeclared(expr.offset, &name);
                self.set(expr.id, Type::Error)
            }
        }
    }

    /// Makes the expression the variable or the type that a name stands for.
    fn resolve(&mut self, expr: &mut Expr, name: &str, named: Named) -> Type {
        match named {
            Named::Variable(ty) => {
                expr.kind = ExprKind::Ident(name.strip_prefix('.').unwrap_or(name).into());
                self.set(expr.id, ty)
            }
            Named::TypeName(ty) => {
                expr.kind = ExprKind::TypeName(ty.clone());
                self.set(expr.id, Type::type_of(ty))
            }
        }
    }

    fn check_select(&mut self, expr: &mut Expr) -> Type {
        if let Some(name) = qualified_name(expr)
            && let Some(named) = self.look_up(&name)
        {
            return self.resolve(expr, &name, named);
        }
        let ExprKind::Select {
            operand,
            field,
            test_only,
        } = &mut expr.kind
        else {
            return Type::Error;
        };
        let (test_only, field) = (*test_only, field.clone());
        let ty = self.check_field(expr.offset, operand, &field, false);
        let ty = if test_only { Type::Bool } else { ty };
        let ty = self.mapping.substitute(&ty, false);
        self.set(expr.id, ty)
    }

    /// The type of `operand.field`, or of `operand.?field` when `optional`.
    fn check_field(&mut self, offset: u32, operand: &mut Expr, field: &str, optional: bool) -> Type {
        let operand = self.check(operand);
        let operand = self.mapping.substitute(&operand, false);
        let (target, was_optional) = match operand {
            Type::Optional(inner) => ((*inner).clone(), true),
            other => (other, false),
        };
        let ty = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(_) | Type::Opaque(_) => match self.field_type(&target, field) {
                Some(ty) => ty,
                None => {
                    self.issue(offset, no_field(&target, field));
                    Type::Error
                }
            },
            Type::Param(_) => {
                self.mapping.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.issue(offset, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if was_optional || optional {
            Type::optional(ty)
        } else {
            ty
        }
    }

    fn field_type(&self, object: &Type, field: &str) -> Option<Type> {
        match object {
            Type::Object(object) => object.field(field).map(|field| field.decl.ty.clone()),
            Type::Opaque(name) if self.environment.constructs_objects() => constructed_type(name)?.field(field),
            _ => None,
        }
    }

    fn check_call(&mut self, expr: &mut Expr) -> Type {
        let (id, offset) = (expr.id, expr.offset);
        let ExprKind::Call(call) = &mut expr.kind else {
            return Type::Error;
        };
        if &*call.function == op::OPT_SELECT {
            let ty = self.check_optional_select(offset, call);
            return self.set(id, ty);
        }
        let mut args: Vec<Type> = call.args.iter_mut().map(|arg| self.check(arg)).collect();
        if let Some(target) = &call.target
            && let Some(prefix) = qualified_name(target)
        {
            let name = format!("{}.{}", prefix.strip_prefix('.').unwrap_or(&prefix), call.function);
            if let Some(function) = self.function(&name) {
                call.function = function.name.into();
                call.target = None;
                let ty = self.resolve_overload(offset, function, call, args);
                return self.set(id, ty);
            }
        }
        if let Some(target) = &mut call.target {
            args.insert(0, self.check(target));
        }
        let name = call.function.strip_prefix('.').unwrap_or(&call.function).to_owned();
        let ty = match self.function(&name) {
            Some(function) => {
                call.function = function.name.into();
                self.resolve_overload(offset, function, call, args)
            }
            None => {
                self.undeclared(offset, &call.function.clone());
                Type::Error
            }
        };
        self.set(id, ty)
    }

    fn function(&self, name: &str) -> Option<&'static Function> {
        if name.starts_with("jsonpatch.") && !self.environment.constructs_objects() {
            return None;
        }
        decls::function(name)
    }

    fn check_optional_select(&mut self, offset: u32, call: &mut Call) -> Type {
        let [operand, field] = call.args.as_mut_slice() else {
            return Type::Error;
        };
        let Some(name) = field.as_str().cloned() else {
            self.issue(field.offset, "unsupported optional field selection".to_owned());
            return Type::Error;
        };
        self.set(field.id, Type::String);
        let ty = self.check_field(offset, operand, &name, true);
        self.mapping.substitute(&ty, false)
    }

    fn resolve_overload(&mut self, offset: u32, function: &'static Function, call: &mut Call, args: Vec<Type>) -> Type {
        let member = call.target.is_some();
        if matches!(function.name, op::AND | op::OR) {
            return self.resolve_logic(function, call, &args);
        }
        let mut result: Option<Type> = None;
        let mut fitting: Vec<&'static Overload> = Vec::new();
        for overload in &function.overloads {
            if overload.member != member {
                continue;
            }
            let fresh: Vec<(Arc<str>, Type)> = overload
                .params
                .iter()
                .map(|param| (param.clone(), self.new_param()))
                .collect();
            let wanted: Vec<Type> = overload.args.iter().map(|arg| instantiate(arg, &fresh)).collect();
            if !self.mapping.assign_all(&args, &wanted) {
                continue;
            }
            fitting.push(overload);
            let ty = self.mapping.substitute(&instantiate(&overload.result, &fresh), false);
            result = Some(match result {
                None => ty,
                Some(before) if before != Type::Dyn && ty != before => Type::Dyn,
                Some(before) => before,
            });
        }
        let Some(result) = result else {
            let args: Vec<Type> = args.iter().map(|arg| self.mapping.substitute(arg, true)).collect();
            let signature = signature(&args, member);
            self.issue(
                offset,
                format!(
                    "found no matching overload for '{}' applied to '{signature}'",
                    function.name
                ),
            );
            return Type::Error;
        };
        call.overloads = fitting;
        result
    }

    fn resolve_logic(&mut self, function: &'static Function, call: &mut Call, args: &[Type]) -> Type {
        let mut result = Type::Bool;
        for (arg, ty) in call.args.iter().zip(args) {
            if !self.mapping.assign(ty, &Type::Bool) {
                self.mismatch(arg.offset, &Type::Bool, ty);
                result = Type::Error;
            }
        }
        call.overloads.clone_from(&function.overloads);
        result
    }

    fn check_list(&mut self, elements: &mut [Expr], optional: &[usize]) -> Type {
        let mut joined = None;
        for (at, element) in elements.iter_mut().enumerate() {
            let mut ty = self.check(element);
            if optional.binary_search(&at).is_ok() {
                ty = self.unwrap_optional(element.offset, ty);
            }
            joined = Some(self.join(joined, ty));
        }
        Type::list(joined.unwrap_or_else(|| self.new_param()))
    }

    fn check_map(&mut self, entries: &mut [Entry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let key = self.check(&mut entry.key);
            keys = Some(self.join(keys, key));
            let mut value = self.check(&mut entry.value);
            if entry.optional {
                value = self.unwrap_optional(entry.value.offset, value);
            }
            values = Some(self.join(values, value));
        }
        match (keys, values) {
            (Some(keys), Some(values)) => Type::map(keys, values),
            _ => Type::map(self.new_param(), self.new_param()),
        }
    }

    fn unwrap_optional(&mut self, offset: u32, ty: Type) -> Type {
        match ty {
            Type::Optional(inner) => (*inner).clone(),
            Type::Dyn => ty,
            _ => {
                self.mismatch(offset, &Type::optional(ty.clone()), &ty);
                ty
            }
        }
    }

    /// The type of elements, of which `before` were seen. That all have one type is looked at when all types are known.
    fn join(&mut self, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        if self.mapping.assign(&before, &ty) {
            return most_general(&before, &ty);
        }
        Type::Dyn
    }

    fn check_struct(&mut self, offset: u32, type_name: &str, entries: &mut [Entry]) -> Type {
        let name = type_name.strip_prefix('.').unwrap_or(type_name);
        let constructed = self
            .environment
            .constructs_objects()
            .then(|| constructed_type(name))
            .flatten();
        if constructed.is_none() {
            match self.look_up(name) {
                None => {
                    self.undeclared(offset, type_name);
                    return Type::Error;
                }
                Some(Named::Variable(ty)) => {
                    self.issue(offset, format!("'{}' is not a type", ty.name()));
                }
                Some(Named::TypeName(ty)) => {
                    self.issue(offset, format!("'{}' is not a message type", ty.name()));
                }
            }
        }
        for entry in entries {
            self.set(entry.key.id, Type::String);
            let mut value = self.check(&mut entry.value);
            if entry.optional {
                value = self.unwrap_optional(entry.value.offset, value);
            }
            let field = entry.key.as_str().cloned().unwrap_or_default();
            let Some(owner) = &constructed else { continue };
            match owner.field(&field) {
                Some(wanted) => {
                    if !self.mapping.assign(&wanted, &value) {
                        self.issue(
                            entry.offset,
                            format!("expected type of field '{field}' is '{wanted}' but provided type is '{value}'"),
                        );
                    }
                }
                // cel-go knows of the field, but of no type for it.
                None => self.issue(
                    entry.offset,
                    format!("expected type of field '{field}' is '' but provided type is '{value}'"),
                ),
            }
        }
        constructed.map_or(Type::Error, |owner| Type::opaque(&owner.name))
    }

    fn check_comprehension(&mut self, loop_: &mut Comprehension) -> Type {
        let range = self.check(&mut loop_.range);
        let accumulator = self.check(&mut loop_.accu_init);
        let range = self.mapping.substitute(&range, false);
        let outside = self.scopes.len();
        self.scopes.push((loop_.accu_var.clone(), accumulator.clone()));
        let two = loop_.iter_var2.is_some();
        let (first, second) = match &range {
            Type::List(element) if two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.mapping.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                self.issue(
                    loop_.range.offset,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        let inside = self.scopes.len();
        self.scopes.push((loop_.iter_var.clone(), first));
        if let Some(variable) = &loop_.iter_var2 {
            self.scopes.push((variable.clone(), second));
        }
        let condition = self.check(&mut loop_.condition);
        self.assert(loop_.condition.offset, &Type::Bool, &condition);
        let step = self.check(&mut loop_.step);
        self.assert(loop_.step.offset, &accumulator, &step);
        self.scopes.truncate(inside);
        let result = self.check(&mut loop_.result);
        self.scopes.truncate(outside);
        self.mapping.substitute(&result, false)
    }

    fn assert(&mut self, offset: u32, wanted: &Type, found: &Type) {
        if !self.mapping.assign(wanted, found) {
            self.mismatch(offset, wanted, found);
        }
    }
}

/// `a.b.c` as one name, when the expression is nothing but names.
fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Ident(name) => Some(name.to_string()),
        ExprKind::Select {
            operand,
            field,
            test_only: false,
        } => Some(format!("{}.{field}", qualified_name(operand)?)),
        _ => None,
    }
}

/// The types that can be named in expressions.
fn named_type(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" | "net.CIDR" => Type::opaque(name),
        _ => return None,
    })
}

/// A type that mutating policies construct.
struct Constructed {
    name: String,
}

impl Constructed {
    /// The type of the values of a field.
    fn field(&self, field: &str) -> Option<Type> {
        if self.name != "JSONPatch" {
            return Some(Type::Dyn);
        }
        match field {
            "op" | "path" | "from" => Some(Type::String),
            "value" => Some(Type::Dyn),
            _ => None,
        }
    }
}

fn constructed_type(name: &str) -> Option<Constructed> {
    let known = name == "JSONPatch" || name == "Object" || name.starts_with("Object.");
    known.then(|| Constructed { name: name.to_owned() })
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// `(int, string)`, or `list(int).(string)` for a call with a receiver.
fn signature(args: &[Type], member: bool) -> String {
    let names: Vec<String> = args.iter().map(Type::to_string).collect();
    match names.split_first() {
        Some((receiver, rest)) if member => format!("{receiver}.({})", rest.join(", ")),
        _ => format!("({})", names.join(", ")),
    }
}

/// Why a value has no such field. Of the types of functions those of Kubernetes are objects that cel-go's provider does
/// not know; those of addresses are no objects.
fn no_field(of: &Type, field: &str) -> String {
    match of {
        Type::Opaque(name) if name.starts_with("kubernetes.") => format!("unexpected failed resolution of '{name}'"),
        Type::Opaque(name) if name.starts_with("net.") => format!("type '{name}' does not support field selection"),
        _ => format!("undefined field '{field}'"),
    }
}
