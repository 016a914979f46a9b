//! Templates, and the few places where rustfmt's layout depends on the length of a name.

use minijinja::{Environment, UndefinedBehavior, Value};

use crate::source::layout_chain;

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../templates/", $name, ".jinja")))),*]
    };
}

const TEMPLATES: &[(&str, &str)] = templates![
    "project/Cargo.toml",
    "project/api.Cargo.toml",
    "project/cargo.config.toml",
    "project/deny.toml",
    "project/rust-toolchain.toml",
    "project/devcontainer.json",
    "project/github/dependabot.yml",
    "project/Makefile",
    "project/Dockerfile",
    "project/dockerignore",
    "project/gitignore",
    "project/README.md",
    "project/AGENTS.md",
    "project/github/lint.yml",
    "project/github/test.yml",
    "project/github/test-e2e.yml",
    "project/github/auto_update.yml",
    "rust/main.rs",
    "rust/lib.rs",
    "rust/api_lib.rs",
    "rust/mod.rs",
    "rust/version.rs",
    "rust/types.rs",
    "rust/external_types.rs",
    "rust/conversion.rs",
    "rust/controller.rs",
    "rust/image_controller.rs",
    "rust/image_controller_test.rs",
    "rust/webhook.rs",
    "rust/defaulter.rs",
    "rust/validator.rs",
    "rust/tests.rs",
    "rust/operator_test.rs",
    "rust/faults_test.rs",
    "rust/e2e_test.rs",
    "rust/controller_test.rs",
    "rust/registered_test.rs",
    "rust/webhook_test.rs",
    "rust/sample_fn.rs",
    "rust/defaulter_test.rs",
    "rust/validator_test.rs",
    "rust/webhook_registered_test.rs",
    "rust/conversion_test.rs",
];

/// The text of a template. Ends in one line break.
pub(super) fn render(name: &str, context: Value) -> String {
    let (_, template) = TEMPLATES
        .iter()
        .find(|(known, _)| *known == name)
        .expect("templates are named as in the list above");
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    environment.add_function("chain", |root: &str, calls: Vec<String>, indent: Option<&str>| {
        layout_chain(root, &calls, indent.unwrap_or("    "))
    });
    environment.add_function("assign", |name: &str, value: &str| assign(name, value));
    let text = environment
        .render_str(template, context)
        .unwrap_or_else(|wrong| panic!("the template {name} fits what it is given: {wrong}"));
    text.trim_end().to_owned() + "\n"
}

/// rustfmt's `max_width`.
const LINE: usize = 100;

/// `let name = value;`, indented by four from the second line on: the value on a line of its own when it is long.
fn assign(name: &str, value: &str) -> String {
    let line = format!("let {name} = {value};");
    if line.chars().count() + 4 <= LINE {
        line
    } else {
        format!("let {name} =\n        {value};")
    }
}

/// `const NAME: type = value;`: the value on a line of its own when it is long.
pub(super) fn constant(name: &str, ty: &str, value: &str) -> String {
    let line = format!("const {name}: {ty} = {value};");
    if line.chars().count() <= LINE {
        line
    } else {
        format!("const {name}: {ty} =\n    {value};")
    }
}

/// A function's signature with the brace that opens it, indented by four: on one line, or with an argument on each.
pub(super) fn signature(name: &str, arguments: &[String], answer: &str) -> String {
    let line = format!("    {name}({}) -> {answer} {{", arguments.join(", "));
    if line.chars().count() <= LINE {
        return line;
    }
    let arguments: String = arguments
        .iter()
        .map(|argument| format!("        {argument},\n"))
        .collect();
    format!("    {name}(\n{arguments}    ) -> {answer} {{")
}

/// `pub use module::{A, B};`, over several lines when it is long.
pub(super) fn reexport(module: &str, names: &[String]) -> String {
    let line = format!("pub use {module}::{{{}}};", names.join(", "));
    if line.chars().count() <= LINE {
        return line;
    }
    let mut lines = vec![String::from("   ")];
    for name in names {
        let last = lines.last_mut().expect("there is a line");
        if last.len() + 2 + name.len() > LINE && last.len() > 3 {
            lines.push(format!("    {name},"));
        } else {
            last.push_str(&format!(" {name},"));
        }
    }
    format!("pub use {module}::{{\n{}\n}};", lines.join("\n"))
}

/// `a` or `an`, by the first letter; names that are read letter by letter (`HTTPRoute`) by its sound.
pub(super) fn article(kind: &str) -> &'static str {
    let mut letters = kind.chars();
    let (first, second) = (letters.next().unwrap_or('x'), letters.next().unwrap_or('x'));
    let vowel = if second.is_ascii_uppercase() {
        "AEFHILMNORSX".contains(first)
    } else {
        "AEIO".contains(first)
    };
    if vowel { "an" } else { "a" }
}
