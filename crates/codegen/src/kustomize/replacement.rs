//! `replacements`: a value of one object copied into others.

use serde_json::{Map, Value};

use super::kustomization::{self, Entry, Options, Replacement, Source, Target, broken};
use super::load::Loader;
use super::object::Object;
use super::patch::Matcher;
use crate::codes;
use crate::diagnostic::{Diagnostic, Place};

/// Applies one item of the list: a replacement, or a file of some.
pub(super) fn apply(entry: &Entry<Replacement>, loader: &Loader<'_>, objects: &mut [Object]) -> Result<(), Diagnostic> {
    let Some(path) = &entry.value.path else {
        return one(&entry.value, &entry.place, objects);
    };
    if entry.value.source.is_some() || !entry.value.targets.is_empty() {
        return Err(broken(
            entry.place.clone(),
            "a replacement has either `path` or a source and targets",
        ));
    }
    let (file, text) = loader.text(path, &entry.place)?;
    let several: Value = kustomization::read(&file, &text)?;
    let all: Vec<Replacement> = if several.is_array() {
        kustomization::read(&file, &text)?
    } else {
        vec![kustomization::read(&file, &text)?]
    };
    for (at, replacement) in all.iter().enumerate() {
        let outline = crate::outline::Outline::of(&text);
        let mut place = Place::file(&file);
        place.line = outline.map(|outline| outline.line_of(&[&at.to_string()]));
        one(replacement, &place, objects)?;
    }
    Ok(())
}

fn fails(place: &Place, why: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new(codes::config::REPLACEMENT, "cannot carry out a replacement")
        .at(place.clone())
        .because(why)
}

fn one(replacement: &Replacement, place: &Place, objects: &mut [Object]) -> Result<(), Diagnostic> {
    let Some(source) = &replacement.source else {
        return Err(broken(place.clone(), "a replacement needs a source"));
    };
    let value = value_of(source, place, objects)?;
    for target in &replacement.targets {
        let select = Matcher::new(&target.select, place)?;
        let reject = target
            .reject
            .iter()
            .map(|selector| Matcher::new(selector, place))
            .collect::<Result<Vec<_>, _>>()?;
        for object in objects.iter_mut() {
            let ids = object.ids();
            let chosen = select.fits_words(&object.value) && ids.iter().any(|id| select.fits_id(id));
            let rejected = reject
                .iter()
                .any(|matcher| matcher.fits_words(&object.value) && ids.iter().any(|id| matcher.fits_id(id)));
            if chosen && !rejected {
                put(&value, target, object, place)?;
            }
        }
    }
    Ok(())
}

/// The value that is copied.
fn value_of(source: &Source, place: &Place, objects: &[Object]) -> Result<Value, Diagnostic> {
    let asked = [&source.kind, &source.namespace, &source.name]
        .map(String::as_str)
        .join(" ");
    let is_source = |object: &&Object| {
        object.ids().iter().any(|id| {
            id.is_kind(&source.group, &source.version, &source.kind)
                && (source.name.is_empty() || source.name == id.name)
                && (source.namespace.is_empty() || source.namespace == id.namespace)
        })
    };
    let mut found = objects.iter().filter(is_source);
    let (Some(object), None) = (found.next(), found.next()) else {
        let several = objects.iter().filter(is_source).count() > 1;
        let how_many = if several { "several objects are" } else { "no object is" };
        return Err(fails(place, format!("{how_many} the source: {asked}")));
    };
    let mut value = None;
    walk(
        &mut object.value.clone(),
        &split(&source.field_path),
        false,
        &mut |found| {
            value.get_or_insert_with(|| found.clone());
        },
    );
    let value = value.filter(|value| !value.is_null()).ok_or_else(|| {
        fails(
            place,
            format!("the source {} has no field {}", object.id().title(), source.field_path),
        )
    })?;
    let Some(options) = source.options.as_ref().filter(|options| !options.delimiter.is_empty()) else {
        return Ok(value);
    };
    let text = text_of(&value).ok_or_else(|| fails(place, "a delimiter needs a text to take apart"))?;
    let part = usize::try_from(options.index)
        .ok()
        .and_then(|at| text.split(options.delimiter.as_str()).nth(at));
    match part {
        Some(part) => Ok(part.into()),
        None => Err(fails(place, format!("{text} has no part {}", options.index))),
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

fn put(value: &Value, target: &Target, object: &mut Object, place: &Place) -> Result<(), Diagnostic> {
    let default = ["metadata.name".to_owned()];
    let paths = if target.field_paths.is_empty() {
        &default[..]
    } else {
        &target.field_paths
    };
    let options = target.options.clone().unwrap_or_default();
    for path in paths {
        let mut failed = None;
        let mut count = 0;
        let steps = split(path);
        walk(&mut object.value, &steps, options.create, &mut |found| {
            count += 1;
            if let Err(why) = write(found, value, &options) {
                failed = Some(why);
            }
        });
        let title = object.id().title();
        if let Some(why) = failed {
            return Err(fails(place, format!("{title}: {path}: {why}")));
        }
        if count == 0 {
            return Err(fails(place, format!("{title} has no field {path}")));
        }
    }
    Ok(())
}

fn write(found: &mut Value, value: &Value, options: &Options) -> Result<(), String> {
    if options.delimiter.is_empty() {
        *found = value.clone();
        return Ok(());
    }
    let old = match &*found {
        Value::Null => String::new(),
        other => text_of(other).ok_or("a delimiter needs a text to take apart")?,
    };
    let new = text_of(value).ok_or("only a text can become a part of a text")?;
    let mut parts: Vec<&str> = old.split(options.delimiter.as_str()).collect();
    match usize::try_from(options.index) {
        Err(_) => parts.insert(0, &new),
        Ok(at) if at >= parts.len() => parts.push(&new),
        Ok(at) => parts[at] = &new,
    }
    *found = parts.join(&options.delimiter).into();
    Ok(())
}

/// The steps of `spec.containers.[name=manager].image`; dots between brackets, or behind a backslash, do not part.
fn split(path: &str) -> Vec<String> {
    let mut steps = vec![String::new()];
    let (mut inside, mut escaped) = (false, false);
    for letter in path.chars() {
        let step = steps.last_mut().expect("it begins with one");
        match letter {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            '.' if !inside && !escaped => steps.push(String::new()),
            letter => {
                match letter {
                    '[' if step.is_empty() => inside = true,
                    ']' => inside = false,
                    _ => {}
                }
                step.push(letter);
            }
        }
        escaped = false;
    }
    let plain = |step: String| match step.strip_prefix('[').and_then(|step| step.strip_suffix(']')) {
        // `[cert-manager.io/inject-ca-from]` is a name; `[name=manager]` chooses an item.
        Some(name) if !name.contains('=') => name.to_owned(),
        _ => step,
    };
    steps.into_iter().map(plain).filter(|step| !step.is_empty()).collect()
}

fn walk(value: &mut Value, path: &[String], create: bool, change: &mut dyn FnMut(&mut Value)) {
    let Some((step, rest)) = path.split_first() else {
        return change(value);
    };
    if value.is_null() && create {
        *value = Value::Object(Map::new());
    }
    let choice = step
        .strip_prefix('[')
        .and_then(|step| step.strip_suffix(']'))
        .and_then(|step| step.split_once('='));
    match (value, choice) {
        (Value::Array(items), Some((field, wanted))) => {
            for item in items {
                if item.get(field).and_then(text_of).is_some_and(|text| text == wanted) {
                    walk(item, rest, create, change);
                }
            }
        }
        (Value::Array(items), None) if step == "*" => {
            for item in items {
                walk(item, rest, create, change);
            }
        }
        (Value::Array(items), None) => {
            if let Some(item) = step.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                walk(item, rest, create, change);
            }
        }
        (Value::Object(fields), None) if step == "*" => {
            for inner in fields.values_mut() {
                walk(inner, rest, create, change);
            }
        }
        (Value::Object(fields), _) => {
            if create {
                walk(fields.entry(step.clone()).or_insert(Value::Null), rest, create, change);
            } else if let Some(inner) = fields.get_mut(step) {
                walk(inner, rest, create, change);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_apart_at_dots_outside_of_brackets() {
        assert_eq!(
            split("metadata.annotations.[cert-manager.io/inject-ca-from]"),
            ["metadata", "annotations", "cert-manager.io/inject-ca-from"]
        );
        assert_eq!(split(r"a.b\.c.[name=x.y].image"), ["a", "b.c", "[name=x.y]", "image"]);
    }
}
