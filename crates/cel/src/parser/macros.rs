//! Macros: calls that the parser replaces by comprehensions and tests.
//!
//! A macro is known by its name, the number of its arguments and whether it has a receiver; any other call of that name
//! is an ordinary call.

use std::sync::Arc;

use super::super::ast::{ACCUMULATOR, Call, Comprehension, Entry, Expr, ExprKind, Literal, op};
use super::{Parser, global, name};

/// The expansion of a macro call, or the error in its arguments and its place.
type Expanded = Result<Expr, (u32, String)>;
/// Receiver and arguments of a call that is no macro.
type NoMacro = (Option<Expr>, Vec<Expr>);

/// The name that cel-go's accumulator once had; still refused for variables.
const OLD_ACCUMULATOR: &str = "__result__";

/// The parts of a comprehension that a macro decides.
struct Loop {
    vars: (Arc<str>, Option<Arc<str>>),
    init: ExprKind,
    condition: Expr,
    step: Expr,
    result: Expr,
}

impl Parser {
    /// Expands the call when it is one of a macro.
    pub(super) fn expand(
        &mut self,
        offset: u32,
        function: &str,
        target: Option<Expr>,
        mut args: Vec<Expr>,
    ) -> Result<Expanded, NoMacro> {
        let Some(target) = target else {
            if function == "has" && args.len() == 1 {
                return Ok(self.has(offset, args.remove(0)));
            }
            return Err((None, args));
        };
        let expanded = match (function, args.len()) {
            ("all" | "exists" | "exists_one" | "existsOne" | "filter", 2) | ("map", 2 | 3) => {
                self.one_variable(offset, function, target, args)
            }
            ("all" | "exists" | "exists_one" | "existsOne", 3)
            | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
                self.two_variables(offset, function, target, args)
            }
            ("optMap" | "optFlatMap", 2) => self.optional(offset, function, target, args),
            ("sortBy", 2) => self.sort_by(offset, target, args),
            _ => return Err((Some(target), args)),
        };
        Ok(expanded)
    }

    fn has(&mut self, offset: u32, arg: Expr) -> Expanded {
        match arg.kind {
            ExprKind::Select { operand, field, .. } => Ok(self.new_expr(
                offset,
                ExprKind::Select {
                    operand,
                    field,
                    test_only: true,
                },
            )),
            _ => Err((arg.offset, "invalid argument to has() macro".to_owned())),
        }
    }

    fn one_variable(&mut self, offset: u32, function: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let wanted = if matches!(function, "map" | "filter") {
            "argument is not an identifier"
        } else {
            "argument must be a simple name"
        };
        let variable = variable(&args[0], wanted)?;
        not_accumulator(&args[0], &variable)?;
        let element = args.remove(0);
        let body = args.pop().expect("a macro has two arguments at least");
        let (mut parts, filter) = match function {
            "map" => (self.collect(offset, body), args.pop()),
            "filter" => (self.collect(offset, element), Some(body)),
            _ => (self.quantify(offset, function, body), None),
        };
        parts.vars = (variable, None);
        Ok(self.finish(offset, target, parts, filter))
    }

    fn two_variables(&mut self, offset: u32, function: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let wanted = "argument must be a simple name";
        let (first, second) = (variable(&args[0], wanted)?, variable(&args[1], wanted)?);
        if first == second {
            return Err((args[1].offset, format!("duplicate variable name: {first}")));
        }
        not_accumulator(&args[0], &first)?;
        not_accumulator(&args[1], &second)?;
        let body = args.pop().expect("a macro has three arguments at least");
        let filter = (args.len() == 3).then(|| args.remove(2));
        let mut parts = match function {
            "transformList" => self.collect(offset, body),
            "transformMap" => {
                let key = self.new_expr(offset, ExprKind::Ident(first.clone()));
                self.insert(offset, vec![key, body])
            }
            "transformMapEntry" => self.insert(offset, vec![body]),
            _ => self.quantify(offset, function, body),
        };
        parts.vars = (first, Some(second));
        Ok(self.finish(offset, target, parts, filter))
    }

    /// `all`, `exists`, `exists_one`.
    fn quantify(&mut self, offset: u32, function: &str, body: Expr) -> Loop {
        let accumulator = self.accumulator(offset);
        let (init, condition, step, result) = match function {
            "all" => {
                let tested = self.accumulator(offset);
                let condition = self.make(offset, op::NOT_STRICTLY_FALSE, vec![tested]);
                let step = self.make(offset, op::AND, vec![accumulator, body]);
                let result = self.accumulator(offset);
                (Literal::Bool(true), condition, step, result)
            }
            "exists" => {
                let tested = self.accumulator(offset);
                let not = self.make(offset, op::NOT, vec![tested]);
                let condition = self.make(offset, op::NOT_STRICTLY_FALSE, vec![not]);
                let step = self.make(offset, op::OR, vec![accumulator, body]);
                let result = self.accumulator(offset);
                (Literal::Bool(false), condition, step, result)
            }
            _ => {
                let condition = self.new_expr(offset, ExprKind::Literal(Literal::Bool(true)));
                let one = self.new_expr(offset, ExprKind::Literal(Literal::Int(1)));
                let more = self.make(offset, op::ADD, vec![accumulator, one]);
                let same = self.accumulator(offset);
                let step = self.make(offset, op::CONDITIONAL, vec![body, more, same]);
                let count = self.accumulator(offset);
                let one = self.new_expr(offset, ExprKind::Literal(Literal::Int(1)));
                let result = self.make(offset, op::EQUALS, vec![count, one]);
                (Literal::Int(0), condition, step, result)
            }
        };
        Loop {
            vars: (name(""), None),
            init: ExprKind::Literal(init),
            condition,
            step,
            result,
        }
    }

    /// `map`, `filter`, `transformList`: adds `element` to a list.
    fn collect(&mut self, offset: u32, element: Expr) -> Loop {
        let accumulator = self.accumulator(offset);
        let elements = ExprKind::List {
            elements: vec![element],
            optional: Vec::new(),
        };
        let list = self.new_expr(offset, elements);
        let step = self.make(offset, op::ADD, vec![accumulator, list]);
        let empty = ExprKind::List {
            elements: Vec::new(),
            optional: Vec::new(),
        };
        self.gather(offset, empty, step)
    }

    /// `transformMap`, `transformMapEntry`: adds an entry to a map.
    fn insert(&mut self, offset: u32, mut entry: Vec<Expr>) -> Loop {
        entry.insert(0, self.accumulator(offset));
        let step = self.make(offset, op::MAP_INSERT, entry);
        self.gather(offset, ExprKind::Map(Vec::new()), step)
    }

    fn gather(&mut self, offset: u32, init: ExprKind, step: Expr) -> Loop {
        Loop {
            vars: (name(""), None),
            init,
            condition: self.new_expr(offset, ExprKind::Literal(Literal::Bool(true))),
            step,
            result: self.accumulator(offset),
        }
    }

    fn finish(&mut self, offset: u32, range: Expr, parts: Loop, filter: Option<Expr>) -> Expr {
        let step = match filter {
            Some(filter) => {
                let same = self.accumulator(offset);
                self.make(offset, op::CONDITIONAL, vec![filter, parts.step, same])
            }
            None => parts.step,
        };
        let accu_init = self.new_expr(offset, parts.init);
        self.new_expr(
            offset,
            ExprKind::Comprehension(Box::new(Comprehension {
                iter_var: parts.vars.0,
                iter_var2: parts.vars.1,
                range,
                accu_var: name(ACCUMULATOR),
                accu_init,
                condition: parts.condition,
                step,
                result: parts.result,
            })),
        )
    }

    /// `x.optMap(v, body)`: `x.hasValue() ? optional.of(body with v bound to x.value()) : optional.none()`.
    fn optional(&mut self, offset: u32, function: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let wanted = format!("{function}() variable name must be a simple identifier");
        let variable = variable(&args[0], &wanted)?;
        let body = args.pop().expect("the macro has two arguments");
        let again = self.copy(&target);
        let condition = self.method(offset, "hasValue", target, Vec::new());
        let value = self.method(offset, "value", again, Vec::new());
        let bound = self.bind(offset, variable, value, body);
        let yes = if function == "optMap" {
            self.make(offset, "optional.of", vec![bound])
        } else {
            bound
        };
        let no = self.make(offset, "optional.none", Vec::new());
        Ok(self.make(offset, op::CONDITIONAL, vec![condition, yes, no]))
    }

    /// `x.sortBy(v, key)`: x is bound to a variable, and sorted by the list of its keys.
    fn sort_by(&mut self, offset: u32, target: Expr, args: Vec<Expr>) -> Expanded {
        if matches!(
            target.kind,
            ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. }
        ) {
            let why = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((target.offset, why.to_owned()));
        }
        let input = name("@__sortBy_input__");
        let again = self.new_expr(offset, ExprKind::Ident(input.clone()));
        let keys = self.one_variable(offset, "map", again, args)?;
        let sorted = self.new_expr(offset, ExprKind::Ident(input.clone()));
        let sorted = self.method(offset, "@sortByAssociatedKeys", sorted, vec![keys]);
        Ok(self.bind(offset, input, target, sorted))
    }

    /// `body` with a variable, as a comprehension that loops over nothing.
    fn bind(&mut self, offset: u32, variable: Arc<str>, value: Expr, body: Expr) -> Expr {
        let nothing = ExprKind::List {
            elements: Vec::new(),
            optional: Vec::new(),
        };
        let bind = Comprehension {
            iter_var: name("#unused"),
            iter_var2: None,
            range: self.new_expr(offset, nothing),
            accu_var: variable.clone(),
            accu_init: value,
            condition: self.new_expr(offset, ExprKind::Literal(Literal::Bool(false))),
            step: self.new_expr(offset, ExprKind::Ident(variable)),
            result: body,
        };
        self.new_expr(offset, ExprKind::Comprehension(Box::new(bind)))
    }

    fn accumulator(&mut self, offset: u32) -> Expr {
        self.new_expr(offset, ExprKind::Ident(name(ACCUMULATOR)))
    }

    fn make(&mut self, offset: u32, function: &str, args: Vec<Expr>) -> Expr {
        let id = self.new_id();
        self.measured(global(id, offset, function, args), 0)
    }

    fn method(&mut self, offset: u32, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        let call = Call {
            function: name(function),
            target: Some(Box::new(target)),
            args,
            overloads: Vec::new(),
        };
        self.new_expr(offset, ExprKind::Call(call))
    }

    /// The same expression with ids of its own.
    fn copy(&mut self, expr: &Expr) -> Expr {
        let kind = match &expr.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) | ExprKind::TypeName(_) => expr.kind.clone(),
            ExprKind::Select {
                operand,
                field,
                test_only,
            } => ExprKind::Select {
                operand: Box::new(self.copy(operand)),
                field: field.clone(),
                test_only: *test_only,
            },
            ExprKind::Call(call) => ExprKind::Call(Call {
                function: call.function.clone(),
                target: call.target.as_ref().map(|target| Box::new(self.copy(target))),
                args: call.args.iter().map(|arg| self.copy(arg)).collect(),
                overloads: Vec::new(),
            }),
            ExprKind::List { elements, optional } => ExprKind::List {
                elements: elements.iter().map(|element| self.copy(element)).collect(),
                optional: optional.clone(),
            },
            ExprKind::Map(entries) => ExprKind::Map(self.copy_entries(entries)),
            ExprKind::Struct { type_name, entries } => ExprKind::Struct {
                type_name: type_name.clone(),
                entries: self.copy_entries(entries),
            },
            ExprKind::Comprehension(inner) => ExprKind::Comprehension(Box::new(Comprehension {
                iter_var: inner.iter_var.clone(),
                iter_var2: inner.iter_var2.clone(),
                range: self.copy(&inner.range),
                accu_var: inner.accu_var.clone(),
                accu_init: self.copy(&inner.accu_init),
                condition: self.copy(&inner.condition),
                step: self.copy(&inner.step),
                result: self.copy(&inner.result),
            })),
        };
        self.new_expr(expr.offset, kind)
    }

    fn copy_entries(&mut self, entries: &[Entry]) -> Vec<Entry> {
        entries
            .iter()
            .map(|entry| Entry {
                id: self.new_id(),
                offset: entry.offset,
                key: self.copy(&entry.key),
                value: self.copy(&entry.value),
                optional: entry.optional,
            })
            .collect()
    }
}

/// The name that an argument is.
fn variable(arg: &Expr, wanted: &str) -> Result<Arc<str>, (u32, String)> {
    match &arg.kind {
        ExprKind::Ident(name) if !name.starts_with('.') => Ok(name.clone()),
        _ => Err((arg.offset, wanted.to_owned())),
    }
}

fn not_accumulator(arg: &Expr, name: &str) -> Result<(), (u32, String)> {
    if name == ACCUMULATOR || name == OLD_ACCUMULATOR {
        return Err((
            arg.offset,
            "iteration variable overwrites accumulator variable".to_owned(),
        ));
    }
    Ok(())
}
