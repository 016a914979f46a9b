//! Folders into objects: the recursion over `resources` and `components`, and the order of the steps within one folder.

use kubewright_schema::decode;
use serde_json::Value;

use super::fields::FieldSpec;
use super::kustomization::{self, Configuration, Entry, Kustomization, broken, unsupported};
use super::object::Object;
use super::references::{self, Reference};
use super::{patch, replacement, transform};
use crate::codes;
use crate::conflict;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::Files;

/// The objects and references so far.
pub(super) struct Accumulator {
    pub(super) objects: Vec<Object>,
    /// Where names of other objects stand.
    pub(super) references: Vec<Reference>,
    /// Where namespaces stand, besides `metadata.namespace`.
    pub(super) namespaces: Vec<FieldSpec>,
}

impl Accumulator {
    fn new() -> Accumulator {
        Accumulator {
            objects: Vec::new(),
            references: references::known(),
            namespaces: transform::namespace_fields(),
        }
    }

    /// Adds an object that nothing here is called like.
    fn add(&mut self, object: Object) -> Result<(), Diagnostic> {
        let id = object.id();
        match self.objects.iter().find(|other| other.id().is_same(&id)) {
            None => {
                self.objects.push(object);
                Ok(())
            }
            Some(other) => Err(
                Diagnostic::new(codes::config::AMBIGUOUS, format!("cannot have {} twice", id.title()))
                    .at(other.place.clone())
                    .at(object.place)
                    .because("both are rendered, and a cluster has one object of a name")
                    .fix("rename one of them, or take one out of the list that brings it in"),
            ),
        }
    }

    fn absorb(&mut self, inner: Accumulator) -> Result<(), Diagnostic> {
        for reference in inner.references {
            if !self.references.contains(&reference) {
                self.references.push(reference);
            }
        }
        for field in inner.namespaces {
            if !self.namespaces.contains(&field) {
                self.namespaces.push(field);
            }
        }
        inner.objects.into_iter().try_for_each(|object| self.add(object))
    }
}

/// Renders a folder and all that it is made of, up to the mending of references.
pub(super) fn folder(dir: &str, files: &dyn Files) -> Result<Accumulator, Diagnostic> {
    let loader = Loader {
        files,
        open: Vec::new(),
    };
    let mut accumulator = Accumulator::new();
    let from = Place::file(dir);
    loader.folder(dir, None, &from, &mut accumulator)?;
    Ok(accumulator)
}

/// Reads files for one folder.
pub(super) struct Loader<'a> {
    files: &'a dyn Files,
    /// The folders that this one is part of, outermost first, with itself.
    open: Vec<String>,
}

impl Loader<'_> {
    /// The folder that is being rendered.
    fn dir(&self) -> &str {
        self.open.last().map_or("", String::as_str)
    }

    /// The text of a file that a list names.
    pub(super) fn text(&self, path: &str, place: &Place) -> Result<(String, String), Diagnostic> {
        let file = self.resolve(path, place)?;
        if !is_below(&file, self.dir()) {
            return Err(broken(
                place.clone(),
                format!(
                    "{path} is not in or below {}, where kustomize looks for files",
                    self.dir()
                ),
            ));
        }
        match self.files.read(&file)? {
            Some(text) => Ok((file, text)),
            None => Err(missing(&file, place)),
        }
    }

    /// A path of a list, relative to the project.
    fn resolve(&self, path: &str, place: &Place) -> Result<String, Diagnostic> {
        if path.contains("://") || path.contains("?ref=") || path.starts_with("github.com/") || path.contains(".git") {
            return Err(unsupported(place.clone(), format!("{path} is not in the project")));
        }
        if path.starts_with('/') {
            return Err(broken(place.clone(), format!("{path} is an absolute path")));
        }
        let mut steps: Vec<&str> = self.dir().split('/').filter(|step| !step.is_empty()).collect();
        for step in path.split('/') {
            match step {
                "" | "." => {}
                ".." if steps.is_empty() => {
                    return Err(unsupported(place.clone(), format!("{path} is outside of the project")));
                }
                ".." => {
                    steps.pop();
                }
                step => steps.push(step),
            }
        }
        Ok(steps.join("/"))
    }

    fn kustomization(&self, dir: &str) -> Result<Option<(String, String)>, Diagnostic> {
        for name in kustomization::FILES {
            let file = if dir.is_empty() {
                name.to_owned()
            } else {
                format!("{dir}/{name}")
            };
            if let Some(text) = self.files.read(&file)? {
                return Ok(Some((file, text)));
            }
        }
        Ok(None)
    }

    /// Renders a folder into `target`. `component`: whether it must be one; `None` at the outermost, which may be
    /// either.
    fn folder(
        &self,
        dir: &str,
        component: Option<bool>,
        from: &Place,
        target: &mut Accumulator,
    ) -> Result<(), Diagnostic> {
        if self.open.iter().any(|open| open == dir) {
            return Err(
                broken(from.clone(), format!("{dir} is a part of itself")).fix("take it out of one of the two lists")
            );
        }
        let Some((file, text)) = self.kustomization(dir)? else {
            return Err(broken(from.clone(), format!("there is no kustomization.yaml in {dir}"))
                .fix("take the folder back from version control, or out of the list that names it"));
        };
        let kustomization = Kustomization::parse(&file, &text)?;
        match component {
            Some(true) if !kustomization.is_component => {
                return Err(broken(
                    from.clone(),
                    format!("{dir} is not a component: it belongs under resources"),
                ));
            }
            Some(false) if kustomization.is_component => {
                return Err(broken(
                    from.clone(),
                    format!("{dir} is a component: it belongs under components"),
                ));
            }
            _ => {}
        }
        let mut open = self.open.clone();
        open.push(dir.to_owned());
        let inner = Loader {
            files: self.files,
            open,
        };
        inner.accumulate(&kustomization, target)
    }

    /// The steps of one folder, in kustomize's order.
    fn accumulate(&self, kustomization: &Kustomization, target: &mut Accumulator) -> Result<(), Diagnostic> {
        for entry in &kustomization.resources {
            self.resource(entry, target)?;
        }
        for entry in &kustomization.components {
            let dir = self.resolve(&entry.value, &entry.place)?;
            self.folder(&dir, Some(true), &entry.place, target)?;
        }
        for entry in &kustomization.configurations {
            let (file, text) = self.text(&entry.value, &entry.place)?;
            let configuration: Configuration = kustomization::read(&file, &text)?;
            references::configure(configuration.name_reference, &mut target.references);
            let fields = configuration.namespace.into_iter().map(references::field);
            target.namespaces.extend(fields);
        }
        for entry in &kustomization.patches {
            patch::apply(entry, self, &mut target.objects)?;
        }
        if !kustomization.namespace.is_empty() {
            transform::namespace(&kustomization.namespace, &target.namespaces, &mut target.objects)?;
        }
        if !kustomization.name_prefix.is_empty() {
            transform::prefix(&kustomization.name_prefix, &mut target.objects);
        }
        for entry in &kustomization.labels {
            transform::labels(entry, &mut target.objects)?;
        }
        for entry in &kustomization.images {
            transform::image(&entry.value, &mut target.objects);
        }
        for entry in &kustomization.replacements {
            replacement::apply(entry, self, &mut target.objects)?;
        }
        Ok(())
    }

    fn resource(&self, entry: &Entry<String>, target: &mut Accumulator) -> Result<(), Diagnostic> {
        let path = self.resolve(&entry.value, &entry.place)?;
        // Reading a folder may fail in other ways than that of a file that is not there.
        let read = self.files.read(&path);
        if matches!(read, Ok(Some(_))) {
            let (file, text) = self.text(&entry.value, &entry.place)?;
            for (value, line) in documents(&file, &text)? {
                self.object(value, Place::file(&file).line(line), target)?;
            }
            return Ok(());
        }
        if self.kustomization(&path)?.is_none() {
            read?;
            return Err(missing(&path, &entry.place));
        }
        let mut inner = Accumulator::new();
        self.folder(&path, Some(false), &entry.place, &mut inner)?;
        target.absorb(inner)
    }

    /// One object of a file; a list of objects is taken apart.
    fn object(&self, value: Value, place: Place, target: &mut Accumulator) -> Result<(), Diagnostic> {
        let kind = value["kind"].as_str().unwrap_or_default();
        if kind.ends_with("List") && value["items"].is_array() {
            let Value::Array(items) = value["items"].clone() else {
                return Ok(());
            };
            return items
                .into_iter()
                .try_for_each(|item| self.object(item, place.clone(), target));
        }
        let named = !kind.is_empty() && value["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty());
        if !named || value["apiVersion"].as_str().is_none() {
            return Err(broken(place, "an object needs apiVersion, kind and metadata.name")
                .fix("write the object whole, or take the file out of the list that names it"));
        }
        target.add(Object::new(value, place))
    }
}

/// The documents of a file, with the lines on which they begin.
pub(super) fn documents(file: &str, text: &str) -> Result<Vec<(Value, usize)>, Diagnostic> {
    let mut parts: Vec<(usize, String)> = vec![(1, String::new())];
    for (at, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") {
            // The text behind the dashes belongs to the document.
            parts.push((at + 1, format!("{}\n", line[3..].trim_start())));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    let mut documents = Vec::new();
    for (line, part) in parts {
        let unread = |why| conflict::instead(broken(Place::file(file).line(line), why), file, text);
        let decoded = decode::yaml(part.as_bytes()).map_err(unread)?;
        if let Some(twice) = decoded.duplicates.first() {
            return Err(broken(Place::file(file).line(line), twice));
        }
        if !decoded.value.is_null() {
            documents.push((decoded.value, line));
        }
    }
    Ok(documents)
}

fn is_below(file: &str, dir: &str) -> bool {
    dir.is_empty() || file.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// A file that a list names is not there.
fn missing(file: &str, place: &Place) -> Diagnostic {
    let generated =
        file.contains("/crd/bases/") || file.ends_with("/rbac/role.yaml") || file.ends_with("/webhook/manifests.yaml");
    if generated {
        return Diagnostic::new(codes::config::NOT_GENERATED, "cannot render the kustomization")
            .at(place.clone())
            .because(format!("there is no {file}, which is written from the code"))
            .fix("kubewright manifests");
    }
    broken(place.clone(), format!("there is no {file}")).fix("create it, or take it out of the list")
}
