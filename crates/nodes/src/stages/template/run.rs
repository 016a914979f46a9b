//! Running nodes for an object: `text/template`'s `exec.go`.

use serde_json::Value;

use super::Template;
use super::functions::{self, Surroundings};
use super::parse::{Argument, Node, Pipe};
use super::print::plain;

/// The most bytes that a run writes.
pub(super) const MOST: usize = 1 << 20;
/// The most nodes that a run walks.
const STEPS: usize = 1_000_000;
/// How deeply templates may call each other.
const DEEPEST: usize = 100;

/// Why the rest of a body is left out.
enum Flow {
    Next,
    Break,
    Continue,
}

struct Run<'t> {
    template: &'t Template,
    around: &'t Surroundings<'t>,
    variables: Vec<(String, Value)>,
    written: String,
    steps: usize,
    depth: usize,
}

pub(super) fn run(template: &Template, object: &Value, around: &Surroundings<'_>) -> Result<String, String> {
    let mut run = Run {
        template,
        around,
        variables: vec![(String::new(), object.clone())],
        written: String::new(),
        steps: 0,
        depth: 0,
    };
    run.nodes(&template.main, object)?;
    Ok(run.written)
}

/// Go's truth: not null, false, 0, or empty.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(it) => *it,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

impl Run<'_> {
    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<Flow, String> {
        let scope = self.variables.len();
        let mut flow = Flow::Next;
        for node in nodes {
            self.steps += 1;
            if self.steps > STEPS || self.written.len() > MOST {
                return Err(format!(
                    "it writes more than {MOST} bytes, or takes more than {STEPS} steps"
                ));
            }
            flow = self.node(node, dot)?;
            if !matches!(flow, Flow::Next) {
                break;
            }
        }
        self.variables.truncate(scope);
        Ok(flow)
    }

    fn node(&mut self, node: &Node, dot: &Value) -> Result<Flow, String> {
        match node {
            Node::Text(text) => self.written.push_str(text),
            Node::Action(pipe) => {
                let value = self.pipe(pipe, dot)?;
                if pipe.variables.is_empty() {
                    self.written.push_str(&plain(&value));
                } else {
                    self.set(pipe, [value]);
                }
            }
            Node::If(branches, otherwise) => {
                let scope = self.variables.len();
                let mut chosen = otherwise;
                for (condition, body) in branches {
                    let value = self.pipe(condition, dot)?;
                    let holds = is_true(&value);
                    self.set(condition, [value]);
                    if holds {
                        chosen = body;
                        break;
                    }
                }
                let flow = self.nodes(chosen, dot);
                self.variables.truncate(scope);
                return flow;
            }
            Node::With(pipe, body, otherwise) => {
                let scope = self.variables.len();
                let value = self.pipe(pipe, dot)?;
                self.set(pipe, [value.clone()]);
                let flow = match is_true(&value) {
                    true => self.nodes(body, &value),
                    false => self.nodes(otherwise, dot),
                };
                self.variables.truncate(scope);
                return flow;
            }
            Node::Range(pipe, body, otherwise) => return self.range(pipe, body, otherwise, dot),
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
            Node::Template(name, pipe) => {
                let dot = pipe
                    .as_ref()
                    .map(|pipe| self.pipe(pipe, dot))
                    .transpose()?
                    .unwrap_or(Value::Null);
                let Some(body) = self.template.named.get(name) else {
                    return Err(format!("the template {name:?} is not defined"));
                };
                self.depth += 1;
                if self.depth > DEEPEST {
                    return Err(format!("templates call each other more than {DEEPEST} deep"));
                }
                let outer = std::mem::replace(&mut self.variables, vec![(String::new(), dot.clone())]);
                self.nodes(body, &dot)?;
                self.variables = outer;
                self.depth -= 1;
            }
        }
        Ok(Flow::Next)
    }

    fn range(&mut self, pipe: &Pipe, body: &[Node], otherwise: &[Node], dot: &Value) -> Result<Flow, String> {
        let items: Vec<(Value, Value)> = match self.pipe(pipe, dot)? {
            Value::Null => Vec::new(),
            Value::Array(items) => items
                .into_iter()
                .enumerate()
                .map(|(at, item)| (Value::from(at), item))
                .collect(),
            Value::Object(map) => map.into_iter().map(|(key, item)| (Value::String(key), item)).collect(),
            Value::Number(number) => {
                let count = number
                    .as_i64()
                    .ok_or_else(|| format!("range can't iterate over {number}"))?;
                // More would not end within the limit of steps.
                let count = count.min(i64::try_from(STEPS).unwrap_or(i64::MAX));
                (0..count).map(|at| (Value::from(at), Value::from(at))).collect()
            }
            other => return Err(format!("range can't iterate over {}", plain(&other))),
        };
        if items.is_empty() {
            return self.nodes(otherwise, dot);
        }
        let scope = self.variables.len();
        for (key, item) in items {
            match pipe.variables.len() {
                0 => {}
                1 => self.set(pipe, [item.clone()]),
                _ => self.set(pipe, [key, item.clone()]),
            }
            let flow = self.nodes(body, &item)?;
            if !pipe.assigns {
                self.variables.truncate(scope);
            }
            if matches!(flow, Flow::Break) {
                break;
            }
        }
        Ok(Flow::Next)
    }

    fn set<const N: usize>(&mut self, pipe: &Pipe, values: [Value; N]) {
        for (name, value) in pipe.variables.iter().zip(values) {
            let there = self
                .variables
                .iter_mut()
                .rfind(|(other, _)| pipe.assigns && other == name);
            match there {
                Some(there) => there.1 = value,
                None => self.variables.push((name.clone(), value)),
            }
        }
    }

    fn pipe(&mut self, pipe: &Pipe, dot: &Value) -> Result<Value, String> {
        let mut last = None;
        for command in &pipe.commands {
            last = Some(self.command(command, last, dot)?);
        }
        Ok(last.unwrap_or(Value::Null))
    }

    fn command(&mut self, command: &[Argument], last: Option<Value>, dot: &Value) -> Result<Value, String> {
        match command {
            [Argument::Function(name), arguments @ ..] => self.call(name, arguments, last, dot),
            [argument, ..] => self.argument(argument, dot),
            [] => Ok(Value::Null),
        }
    }

    fn call(&mut self, name: &str, given: &[Argument], last: Option<Value>, dot: &Value) -> Result<Value, String> {
        // These two stop at the first that decides.
        if matches!(name, "and" | "or") {
            let mut value = Value::Null;
            for argument in given {
                value = self.argument(argument, dot)?;
                if is_true(&value) == (name == "or") {
                    return Ok(value);
                }
            }
            return match (last, given.is_empty()) {
                (Some(last), _) => Ok(last),
                (None, true) => Err(format!("wrong number of args for {name}: want at least 1 got 0")),
                (None, false) => Ok(value),
            };
        }
        let mut arguments = given
            .iter()
            .map(|one| self.argument(one, dot))
            .collect::<Result<Vec<_>, _>>()?;
        arguments.extend(last);
        functions::call(name, &arguments, self.around).map_err(|why| format!("error calling {name}: {why}"))
    }

    fn argument(&mut self, argument: &Argument, dot: &Value) -> Result<Value, String> {
        match argument {
            Argument::Dot => Ok(dot.clone()),
            Argument::Literal(value) => Ok(value.clone()),
            Argument::Field(path) => field(dot, path).cloned(),
            Argument::Variable(name, path) => {
                let found = self.variables.iter().rfind(|(other, _)| other == name);
                let value = found.map_or(&Value::Null, |(_, value)| value);
                field(value, path).cloned()
            }
            Argument::Function(name) => self.call(name, &[], None, dot),
            Argument::Pipe(pipe, path) => {
                let value = self.pipe(pipe, dot)?;
                field(&value, path).cloned()
            }
        }
    }
}

/// The value at a path; null where nothing is.
fn field<'v>(value: &'v Value, path: &[String]) -> Result<&'v Value, String> {
    let mut found = value;
    for name in path {
        found = match found {
            Value::Null => &Value::Null,
            Value::Object(map) => map.get(name).unwrap_or(&Value::Null),
            other => return Err(format!("can't evaluate field {name} in {}", plain(other))),
        };
    }
    Ok(found)
}
