//! Lists in kustomization files, edited as a person would: one item more or less, and everything else stays as it is.
//!
//! The file is read as YAML to know the items of the list, and its lines are edited, so that comments, order and
//! additions of the user survive. Invariants: an item that is there is not added again, in any notation; a list that
//! cannot be edited safely (between brackets, or none at all) is left alone and answered with the lines to write by
//! hand. The edited text is read again and must have the intended items.

use kubewright_schema::decode;
use serde_json::Value;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::outline::Outline;

/// One item of a list that is a field of a kustomization.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    /// The file, relative to the project.
    pub(super) file: String,
    /// The field: `resources`, `components`, `patches`.
    pub(super) list: &'static str,
    /// The item as YAML, without its dash: `../crd`, or a mapping over several lines.
    pub(super) yaml: String,
    /// Lines of comment that come before it.
    pub(super) comment: &'static str,
    /// Lines that come after it: items that are switched off.
    pub(super) trailer: &'static str,
}

impl Item {
    pub(super) fn new(file: &str, list: &'static str, yaml: impl Into<String>) -> Item {
        Item {
            file: file.to_owned(),
            list,
            yaml: yaml.into(),
            comment: "",
            trailer: "",
        }
    }

    /// The lines that say it, indented.
    fn lines(&self, indent: &str) -> Vec<String> {
        let item = self
            .yaml
            .lines()
            .enumerate()
            .map(|(at, line)| format!("{indent}{} {line}", if at == 0 { "-" } else { " " }));
        let plain = |text: &'static str| text.lines().map(move |line| format!("{indent}{line}"));
        plain(self.comment).chain(item).chain(plain(self.trailer)).collect()
    }

    fn value(&self) -> Value {
        normal(&self.yaml).unwrap_or_default()
    }

    /// Why the file cannot be edited, and the lines to write by hand.
    fn cannot(&self, verb: &str, line: Option<usize>, why: &str) -> Diagnostic {
        let mut place = Place::file(&self.file).field(self.list);
        place.line = line;
        let preposition = if verb == "add" { "to" } else { "from" };
        Diagnostic::new(
            codes::files::EDITED,
            format!(
                "cannot {verb} `{}` {preposition} the list {}",
                one_line(&self.yaml),
                self.list
            ),
        )
        .at(place)
        .because(why)
        .fix(format!(
            "{verb} it by hand, then run the command again:\n{}:\n{}",
            self.list,
            self.lines("").join("\n")
        ))
    }
}

fn one_line(yaml: &str) -> String {
    yaml.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the item is in the list.
///
/// # Errors
/// When the file is no YAML, or the field no list.
pub(super) fn contains(text: &str, item: &Item) -> Result<bool, Diagnostic> {
    Ok(position(&read(text, item, "find")?, item).is_some())
}

/// The text with the item at the end of its list; the same text when it is there.
///
/// # Errors
/// When the list is written in a way that cannot be edited.
pub(super) fn add(text: &str, item: &Item) -> Result<String, Diagnostic> {
    let list = read(text, item, "add")?;
    if position(&list, item).is_some() {
        return Ok(text.to_owned());
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let outline = Outline::of(text);
    match outline.as_ref().and_then(|outline| outline.entry(item.list)) {
        None => {
            if lines.last().is_some_and(|line| !line.trim().is_empty()) {
                lines.push(String::new());
            }
            lines.push(format!("{}:", item.list));
            lines.extend(item.lines(""));
        }
        Some((line, value)) if list.is_empty() => {
            // `resources:` or `resources: the text behind the colon goes, but not a comment.
            let head = &mut lines[line - 1];
            if value.flow && value.last == line {
                *head = head.replacen("[]", "", 1).trim_end().to_owned();
            }
            if head.contains('[') || value.flow && value.last != line {
                return Err(item.cannot("add", Some(line), "the list is written between brackets"));
            }
            lines.splice(line..line, item.lines(""));
        }
        Some((line, value)) => {
            if value.flow {
                return Err(item.cannot("add", Some(line), "the list is written between brackets"));
            }
            let indent = dash_indent(&lines, value)
                .ok_or_else(|| item.cannot("add", Some(value.first), "its items do not begin with a dash"))?;
            let at = end_of_list(&lines, value.last);
            lines.splice(at..at, item.lines(&indent));
        }
    }
    finish(lines, item, "add", |after| position(after, item).is_some())
}

/// The text without the item; the same text when it is not there.
///
/// # Errors
/// When the list is written in a way that cannot be edited.
pub(super) fn remove(text: &str, item: &Item) -> Result<String, Diagnostic> {
    let list = read(text, item, "remove")?;
    let Some(index) = position(&list, item) else {
        return Ok(text.to_owned());
    };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let outline = Outline::of(text);
    let entry = outline.as_ref().and_then(|outline| outline.entry(item.list));
    let found = entry.and_then(|(line, list)| Some((line, list, list.items()?.get(index)?)));
    let Some((head, value, node)) = found.filter(|(_, list, _)| !list.flow) else {
        let line = entry.map(|(line, _)| line);
        return Err(item.cannot("remove", line, "the list is written between brackets"));
    };
    let indent = dash_indent(&lines, value)
        .ok_or_else(|| item.cannot("remove", Some(value.first), "its items do not begin with a dash"))?;
    let (mut from, mut to) = (node.first - 1, node.last);
    // Comments that the command wrote go with the item; others are the user's.
    let comment: Vec<String> = item.comment.lines().map(|line| format!("{indent}{line}")).collect();
    if !comment.is_empty() && lines[..from].ends_with(&comment) {
        from -= comment.len();
    }
    let trailer: Vec<String> = item.trailer.lines().map(|line| format!("{indent}{line}")).collect();
    if !trailer.is_empty() && lines[to..].starts_with(&trailer) {
        to += trailer.len();
    }
    lines.drain(from..to);
    if list.len() == 1 && item.list != "resources" && head == from {
        // A field without items says nothing.
        lines.remove(head - 1);
        if head >= 2 && lines[head - 2].trim().is_empty() {
            lines.remove(head - 2);
        }
    }
    finish(lines, item, "remove", |after| {
        after.len() + 1 == list.len() && position(after, item).is_none()
    })
}

/// The present items of the list.
fn read(text: &str, item: &Item, verb: &str) -> Result<Vec<Value>, Diagnostic> {
    let decoded = decode::yaml(text.as_bytes()).map_err(|why| item.cannot(verb, None, &why.to_string()))?;
    match decoded.value.get(item.list) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items.clone()),
        Some(_) => Err(item.cannot(verb, None, "the field is not a list")),
    }
}

/// Where in the list the item is, however it is written.
fn position(list: &[Value], item: &Item) -> Option<usize> {
    let wanted = item.value();
    list.iter().position(|value| same(value, &wanted))
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => plain_path(a) == plain_path(b),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        (a, b) => a == b,
    }
}

/// `./a/` and `a` are the same path.
fn plain_path(path: &str) -> &str {
    path.trim_start_matches("./").trim_end_matches('/')
}

fn normal(yaml: &str) -> Option<Value> {
    decode::yaml(yaml.as_bytes()).ok().map(|decoded| decoded.value)
}

/// The white space before the dashes of a block list.
fn dash_indent(lines: &[String], list: &Outline) -> Option<String> {
    let line = lines.get(list.items()?.first()?.first.checked_sub(1)?)?;
    let item = line.trim_start();
    item.starts_with('-')
        .then(|| line[..line.len() - item.len()].to_owned())
}

/// The line after the list, with the comments that belong to it: those that follow without a gap, unless another field
/// comes next, which they then speak of.
fn end_of_list(lines: &[String], last: usize) -> usize {
    let comments = lines[last..]
        .iter()
        .take_while(|line| line.trim_start().starts_with('#'))
        .count();
    let after = last + comments;
    match lines.get(after) {
        Some(next) if !next.trim().is_empty() => last,
        _ => after,
    }
}

fn finish(
    lines: Vec<String>,
    item: &Item,
    verb: &str,
    meant: impl FnOnce(&[Value]) -> bool,
) -> Result<String, Diagnostic> {
    let mut text = lines.join("\n");
    text.push('\n');
    match read(&text, item, verb) {
        Ok(after) if meant(&after) => Ok(text),
        _ => Err(item.cannot(
            verb,
            None,
            "the file is laid out in a way that the command does not understand",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(yaml: &str) -> Item {
        Item {
            comment: "# Ours.",
            ..Item::new("k.yaml", "resources", yaml)
        }
    }

    #[test]
    fn an_item_comes_and_goes_and_leaves_the_rest_alone() {
        let two_lines = "path: p.yaml\ntarget: {kind: A}";
        // before, item, after
        let table: &[(&str, &str, &str)] = &[
            ("", "a", "resources:\n# Ours.\n- a\n"),
            ("kind: C\n", "a", "kind: C\n\nresources:\n# Ours.\n- a\n"),
            ("resources:\n", "a", "resources:\n# Ours.\n- a\n"),
            ("resources: [] # none\n", "a", "resources:  # none\n# Ours.\n- a\n"),
            (
                "resources:\n- b # mine\n#- off\n",
                "a",
                "resources:\n- b # mine\n#- off\n# Ours.\n- a\n",
            ),
            (
                "resources:\n  - b\n# about c\nc: d\n",
                "a",
                "resources:\n  - b\n  # Ours.\n  - a\n# about c\nc: d\n",
            ),
            (
                "resources:\n- b\n\nc: d\n",
                two_lines,
                "resources:\n- b\n# Ours.\n- path: p.yaml\n  target: {kind: A}\n\nc: d\n",
            ),
        ];
        for (before, yaml, after) in table {
            let item = item(yaml);
            assert_eq!(add(before, &item).unwrap(), *after, "add to {before:?}");
            assert_eq!(add(after, &item).unwrap(), *after, "add again to {after:?}");
            assert!(contains(after, &item).unwrap());
            let removed = remove(after, &item).unwrap();
            assert!(!contains(&removed, &item).unwrap(), "{removed}");
            if before.contains("- ") {
                assert_eq!(removed, *before, "remove from {after:?}");
            }
        }
    }

    #[test]
    fn what_stands_there_already_is_found_however_it_is_written() {
        for text in ["resources: [./a/, b]\n", "resources:\n- \"a\"\n", "{resources: [a]}\n"] {
            assert_eq!(add(text, &item("a")).unwrap(), text);
        }
    }

    #[test]
    fn what_cannot_be_edited_is_answered_with_the_lines_to_write() {
        let refused = |text: &str| add(text, &item("a")).unwrap_err().to_string();
        insta::assert_snapshot!(refused("resources: [b]\n"), @"
        cannot add `a` to the list resources [KWR0002]
          at: k.yaml:1 (resources)
          because: the list is written between brackets
          fix: add it by hand, then run the command again:
        resources:
        # Ours.
        - a
        ");
        assert!(refused("resources: b\n").contains("the field is not a list"));
        assert!(refused("resources: [\n").contains("yaml: "));
    }
}
