//! Expressions that select devices (`cel.expression`): the variables they may name, and their errors.

use std::sync::LazyLock;

use kubewright_cel::types::{Decl, Type};
use kubewright_cel::{Environment, compile, cost, eval};
use kubewright_schema::check::{At, Errors};
use kubewright_schema::error::FieldError;
use kubewright_schema::{Minor, budget};

/// The longest expression in bytes, and its budget.
const MAX_LENGTH: usize = 10 * 1024;
const MAX_COST: u64 = 1_000_000;

/// `device`: its driver, and its attributes and capacities by the domain of their author.
static DEVICE: LazyLock<Decl> = LazyLock::new(|| {
    budget::unlimited(|| {
        let sized = |ty: Type, max: u64| Decl {
            max_elements: Some(max),
            ..Decl::new(ty)
        };
        let attributes = Decl::map(Decl::map(sized(Type::Dyn, 64), 32), 32);
        let quantity = Decl::new(Type::opaque("kubernetes.Quantity"));
        let capacity = Decl::map(Decl::map(quantity, 32), 32);
        let fields = [
            ("driver", sized(Type::String, 63)),
            ("allowMultipleAllocations", Decl::new(Type::Bool)),
            ("attributes", attributes),
            ("capacity", capacity),
        ];
        Decl::object("kubernetes.DRADevice", fields)
    })
});

/// Refuses an expression that does not compile, is no question, or may cost too much (`validateCELSelector`).
pub(super) fn check(errors: &mut Errors, at: &At<'_>) {
    let source = at.text();
    if source.len() > MAX_LENGTH {
        return errors.push(FieldError::too_long(at.path.to_string(), MAX_LENGTH));
    }
    let environment = Environment::new()
        .of_minor(Minor::OLDEST)
        .variable("device", DEVICE.clone());
    let program = match compile(source, &environment) {
        Ok(program) => program,
        Err(issues) => return errors.invalid_value(at, source, format!("compilation failed: {issues}")),
    };
    match program.result_type() {
        Type::Bool | Type::Dyn => {}
        other => {
            let why = format!("must evaluate to bool or the unknown type, not {other}");
            return errors.invalid_value(at, source, why);
        }
    }
    if let Err(error) = eval::instantiate(&program) {
        return errors.invalid_value(at, source, format!("program instantiation failed: {error}"));
    }
    if cost::estimate(&program, &DEVICE).max > MAX_COST {
        errors.forbidden(at, "too complex, exceeds cost limit");
    }
}
