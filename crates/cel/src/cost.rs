//! The most work that an evaluation may cause, estimated before it happens.
//!
//! Kubernetes refuses a rule of a definition when a resource could be written for which the rule is too expensive. The
//! estimate follows cel-go's: each node has a range of costs and, for strings and containers, a range of sizes; sizes
//! come from the declarations of the root variables along the path of fields that a value was reached by, and are
//! unbounded where no path is known.
//!
//! Invariant: arithmetic saturates; a number that does not fit is the largest one.

mod functions;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Program;
use super::ast::{ACCUMULATOR, Call, Comprehension, Expr, ExprId, ExprKind, Literal, op};
use super::types::{Decl, Type};
use kubewright_values::budget;

/// A range of costs or sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

/// The cost of a traversal per character.
pub(super) const TRAVERSAL: f64 = 0.1;
/// The cost of matching a regular expression per character of it.
pub(super) const REGEX: f64 = 0.25;
const CREATE_LIST: u64 = 10;
const CREATE_MAP: u64 = 30;
const CREATE_STRUCT: u64 = 40;

impl Range {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    /// Exactly this.
    pub const fn exactly(value: u64) -> Self {
        Self { min: value, max: value }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// Scaled and rounded up.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the estimate is made in floating point, and the cast saturates"
    )]
    pub(super) fn scaled(self, factor: f64) -> Self {
        let scale = |value: u64| (value as f64 * factor).ceil() as u64;
        Self {
            min: scale(self.min),
            max: scale(self.max),
        }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// Estimates the cost of a program whose root variables all have the declaration `root` (`self`, `oldSelf`).
///
/// ```
/// use kubewright_cel::{Environment, compile, cost};
/// use kubewright_cel::types::{Decl, Type};
///
/// let names = Decl::list(Decl { max_elements: Some(40), ..Decl::new(Type::String) }, 100);
/// let environment = Environment::new().variable("self", names.clone());
/// let program = compile("self.all(name, name.startsWith('a'))", &environment).expect("it is well typed");
/// assert_eq!(cost::estimate(&program, &names).max, 502);
/// ```
pub fn estimate(program: &Program, root: &Decl) -> Range {
    let mut estimator = Estimator {
        program,
        root,
        paths: BTreeMap::new(),
        sizes: BTreeMap::new(),
        entries: BTreeMap::new(),
        locals: Vec::new(),
    };
    estimator.cost(program.expr())
}

/// How a value was reached from a root variable: fields, `@items`, `@keys`, `@values`; empty when that is not known.
type Path = Vec<Arc<str>>;

/// The sizes of the keys and values of a container that the expression itself builds.
#[derive(Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self {
            is_list: self.is_list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

/// A variable of a comprehension.
struct Local {
    name: Arc<str>,
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// The cost of a call, and the size of its result.
struct CallCost {
    cost: Range,
    result: Option<Range>,
}

/// An argument, as the costs of functions see it.
struct Arg<'a> {
    expr: &'a Expr,
    ty: &'a Type,
    path: Path,
    size: Option<Range>,
}

struct Estimator<'a> {
    program: &'a Program,
    root: &'a Decl,
    paths: BTreeMap<ExprId, Path>,
    sizes: BTreeMap<ExprId, Range>,
    entries: BTreeMap<ExprId, Entries>,
    locals: Vec<Local>,
}

impl<'a> Estimator<'a> {
    fn cost(&mut self, expr: &'a Expr) -> Range {
        budget::spend(8);
        match &expr.kind {
            ExprKind::Literal(_) => Range::default(),
            ExprKind::Ident(name) => {
                let path = self
                    .local(name)
                    .map_or_else(|| vec![name.clone()], |local| local.path.clone());
                self.paths.insert(expr.id, path);
                Range::exactly(1)
            }
            ExprKind::TypeName(ty) => {
                self.paths.insert(expr.id, vec![ty.name().into()]);
                Range::exactly(1)
            }
            ExprKind::Select {
                operand,
                field,
                test_only,
            } => self.select(expr, operand, field, *test_only),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List { elements, .. } => self.list(expr, elements),
            ExprKind::Map(entries) => {
                let least = if entries.is_empty() { 0 } else { u64::MAX };
                let (mut sum, mut key, mut value) = (
                    Range::default(),
                    Range { min: least, max: 0 },
                    Range { min: least, max: 0 },
                );
                for entry in entries {
                    sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                let sizes = Entries {
                    is_list: false,
                    key,
                    value,
                };
                self.entries.insert(expr.id, sizes);
                sum.plus(Range::exactly(CREATE_MAP))
            }
            ExprKind::Struct { entries, .. } => entries.iter().fold(Range::exactly(CREATE_STRUCT), |sum, entry| {
                sum.plus(self.cost(&entry.value))
            }),
            ExprKind::Comprehension(loop_) if is_binding(loop_) => self.binding(expr, loop_),
            ExprKind::Comprehension(loop_) => self.comprehension(expr, loop_),
        }
    }

    fn select(&mut self, expr: &'a Expr, operand: &'a Expr, field: &Arc<str>, test_only: bool) -> Range {
        let mut sum = self.cost(operand);
        if test_only {
            return sum;
        }
        if matches!(self.program.type_of(operand.id), Type::Map(..) | Type::Object(_)) {
            sum = sum.plus(Range::exactly(1));
        }
        self.extend_path(expr, operand, field);
        sum
    }

    fn list(&mut self, expr: &'a Expr, elements: &'a [Expr]) -> Range {
        let mut sum = Range::default();
        let mut item = Range {
            min: if elements.is_empty() { 0 } else { u64::MAX },
            max: 0,
        };
        for element in elements {
            sum = sum.plus(self.cost(element));
            item = item.union(self.size_or_unknown(element));
        }
        let sizes = Entries {
            is_list: true,
            key: Range::exactly(1),
            value: item,
        };
        self.entries.insert(expr.id, sizes);
        sum.plus(Range::exactly(CREATE_LIST))
    }

    fn call(&mut self, expr: &'a Expr, call: &'a Call) -> Range {
        if &*call.function == "dyn"
            && let [arg] = call.args.as_slice()
        {
            let cost = self.cost(arg);
            self.copy_sizes(expr, arg);
            return Range::exactly(1).plus(cost);
        }
        let (mut costs, mut args) = (Vec::new(), Vec::new());
        for arg in &call.args {
            costs.push(self.cost(arg));
            args.push(self.arg(arg));
        }
        if &*call.function == op::OPT_SELECT {
            return costs.iter().fold(Range::exactly(1), |sum, cost| sum.plus(*cost));
        }
        if call.overloads.is_empty() {
            return Range::default();
        }
        let mut sum = Range::default();
        let target = call.target.as_deref().map(|target| {
            sum = self.cost(target);
            self.arg(target)
        });
        let mut function = Range { min: u64::MAX, max: 0 };
        let mut result: Option<Range> = None;
        for overload in &call.overloads {
            let estimate = self.function_cost(expr, overload, target.as_ref(), &args, &costs);
            function = function.union(estimate.cost);
            if let Some(size) = estimate.result {
                result = Some(result.map_or(size, |before| before.union(size)));
            }
            let step = match overload.id {
                "index_list" => "@items",
                "index_map" => "@values",
                _ => "",
            };
            if let (false, [container, ..]) = (step.is_empty(), call.args.as_slice()) {
                result = self.entries_of(container).map(|entries| entries.value);
                self.extend_path(expr, container, &step.into());
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        if let Some(size) = result {
            self.sizes.insert(expr.id, size);
        }
        sum.plus(function)
    }

    fn comprehension(&mut self, expr: &'a Expr, loop_: &'a Comprehension) -> Range {
        let mut sum = self.cost(&loop_.range).plus(self.cost(&loop_.accu_init));
        self.push_local(&loop_.accu_var, &loop_.accu_init);
        let outside = self.locals.len();
        let entries = self.entries_of(&loop_.range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.program.type_of(loop_.range.id), Type::List(_)),
        };
        let (key, value) = (entries.map(|entries| entries.key), entries.map(|entries| entries.value));
        match &loop_.iter_var2 {
            Some(second) => {
                self.push_element(
                    &loop_.iter_var,
                    &loop_.range,
                    if is_list { "@indices" } else { "@keys" },
                    key,
                );
                self.push_element(second, &loop_.range, if is_list { "@items" } else { "@values" }, value);
            }
            None if is_list => self.push_element(&loop_.iter_var, &loop_.range, "@items", value),
            None => self.push_element(&loop_.iter_var, &loop_.range, "@keys", key),
        }
        let condition = self.cost(&loop_.condition);
        let step = self.cost(&loop_.step);
        let step_entries = self.entries_of(&loop_.step);
        self.locals.truncate(outside);
        sum = sum.plus(self.cost(&loop_.result));
        self.locals.truncate(outside - 1);
        let count = self.size_or_unknown(&loop_.range);
        match &loop_.accu_init.kind {
            ExprKind::Literal(_) => {
                if let Some(size) = self.size(&loop_.accu_init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            ExprKind::List { .. } | ExprKind::Map(_) => {
                self.sizes.insert(expr.id, count);
                if let Some(entries) = step_entries {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        sum.plus(count.times(step.plus(condition)))
    }

    /// A comprehension that only binds a variable.
    fn binding(&mut self, expr: &'a Expr, loop_: &'a Comprehension) -> Range {
        let sum = self.cost(&loop_.range).plus(self.cost(&loop_.accu_init));
        self.push_local(&loop_.accu_var, &loop_.accu_init);
        let sum = sum.plus(self.cost(&loop_.result));
        self.copy_sizes(expr, &loop_.result);
        self.locals.pop();
        sum
    }

    // ---- paths, variables and sizes ----

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| &*local.name == name)
    }

    fn push_local(&mut self, name: &Arc<str>, value: &'a Expr) {
        let local = Local {
            name: name.clone(),
            path: self.path(value),
            size: self.size(value),
            entries: self.entries_of(value),
        };
        self.locals.push(local);
    }

    fn push_element(&mut self, name: &Arc<str>, range: &'a Expr, step: &str, size: Option<Range>) {
        let mut path = self.path(range);
        path.push(step.into());
        self.locals.push(Local {
            name: name.clone(),
            path,
            size,
            entries: None,
        });
    }

    fn path(&self, expr: &Expr) -> Path {
        if let ExprKind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn extend_path(&mut self, expr: &Expr, parent: &Expr, step: &Arc<str>) {
        let mut path = self.path(parent);
        budget::spend(path.len());
        path.push(step.clone());
        self.paths.insert(expr.id, path);
    }

    fn arg(&mut self, expr: &'a Expr) -> Arg<'a> {
        let mut path = self.path(expr);
        budget::spend(4 * path.len());
        if path.first().is_some_and(|root| &**root == ACCUMULATOR) {
            path.clear();
        }
        Arg {
            expr,
            ty: self.program.type_of(expr.id),
            path,
            size: self.size(expr),
        }
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name)?.entries,
            _ => None,
        }
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(Range::exactly(size));
        }
        if let Some(size) = self.declared_size(&self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.program.type_of(expr.id)) {
            return Some(Range::exactly(1));
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(to.id, entries);
        }
    }

    /// The size of the value at a path, as the schema bounds it.
    fn declared_size(&self, path: &[Arc<str>]) -> Option<Range> {
        let (_, steps) = path.split_first()?;
        let (mut decl, mut key) = (self.root, false);
        for step in steps {
            if key {
                return None;
            }
            match &**step {
                "@items" | "@values" => decl = decl.items.as_deref()?,
                "@keys" if matches!(decl.ty, Type::Map(..)) => key = true,
                name => decl = &decl.as_object()?.fields.get(name)?.decl,
            }
        }
        // Nothing bounds the keys of a map, and the real estimator takes that for no size at all.
        let max = if key { 0 } else { decl.max_elements.unwrap_or(0) };
        Some(Range { min: 0, max })
    }
}

/// `cel.bind`, and the expansion of `optMap`: a loop over nothing.
fn is_binding(loop_: &Comprehension) -> bool {
    let empty = matches!(&loop_.range.kind, ExprKind::List { elements, .. } if elements.is_empty());
    let never = matches!(loop_.condition.kind, ExprKind::Literal(Literal::Bool(false)));
    empty && never && &*loop_.accu_var != "__result__"
}

fn literal_size(expr: &Expr) -> Option<u64> {
    let length = match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => text.chars().count(),
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len(),
        ExprKind::Literal(_) => 1,
        ExprKind::List { elements, .. } => elements.len(),
        ExprKind::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(length as u64)
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}
