//! A project's settings for its manifests: the table `[manifests]` of `kubewright.toml`, beside PROJECT.
//!
//! kubebuilder's projects say this with the options of controller-gen in their Makefile. Here a file says it, so that
//! `manifests`, `dev`, `run` and `doctor` all make the same objects. Invariant: a word that is not known is an error,
//! never passed over: a setting that says nothing is found out in production. Not here: the table `[images]`, which
//! the command reads.

use toml_edit::{Document, Item, Key};

use super::Options;
use crate::codes::project as codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::names::near;
use crate::plan::Files;

/// The file.
pub const SETTINGS: &str = "kubewright.toml";

/// The tables that the file may have.
pub const TABLES: [&str; 2] = ["images", "manifests"];

const EMBEDDED: &str = "generate-embedded-object-meta";
const DESCRIPTIONS: &str = "max-desc-len";
const FLOATS: &str = "allow-dangerous-types";

impl Options {
    /// The project's settings: its `kubewright.toml`, and the namespace of an operator that works in one only.
    ///
    /// # Errors
    /// KWR0114 when the settings cannot be used; when PROJECT cannot be read.
    pub fn of_project(files: &dyn Files) -> Result<Options, Diagnostic> {
        let mut options = Options {
            namespace: namespace(files)?,
            ..Options::default()
        };
        if let Some(text) = files.read(SETTINGS)? {
            apply(&text, &mut options)?;
        }
        Ok(options)
    }
}

/// The settings of `[manifests]` as the file writes them, for projects that are made.
pub(crate) fn written(embedded: bool, descriptions: Option<usize>) -> Option<String> {
    let embedded = (!embedded).then(|| format!("{EMBEDDED} = false\n"));
    let descriptions = descriptions.map(|bytes| format!("{DESCRIPTIONS} = {bytes}\n"));
    let lines: String = embedded.into_iter().chain(descriptions).collect();
    (!lines.is_empty()).then(|| format!("[manifests]\n{lines}"))
}

fn apply(text: &str, options: &mut Options) -> Result<(), Diagnostic> {
    let document = Document::parse(text).map_err(|why| wrong(why.span(), text, why.message().trim()))?;
    tables(&document, text)?;
    let Some(item) = document.get("manifests") else {
        return Ok(());
    };
    let table = item.as_table_like().ok_or_else(|| {
        wrong(
            item.span(),
            text,
            "`manifests` is no table: begin it with a line `[manifests]`",
        )
    })?;
    for (name, item) in table.iter() {
        let place = || table.key(name).and_then(Key::span);
        let truth = |item: &Item| {
            item.as_bool()
                .ok_or_else(|| wrong(place(), text, format!("`{name}` is `true` or `false`")))
        };
        match name {
            EMBEDDED => options.embedded_object_meta = truth(item)?,
            FLOATS => options.allow_dangerous_types = truth(item)?,
            DESCRIPTIONS => {
                let bytes = item.as_integer().and_then(|bytes| usize::try_from(bytes).ok());
                let why = || {
                    wrong(
                        place(),
                        text,
                        format!("`{name}` is a number of bytes, such as 0 or 200"),
                    )
                };
                options.max_description = Some(bytes.ok_or_else(why)?);
            }
            _ => {
                let known = [EMBEDDED, DESCRIPTIONS, FLOATS];
                return Err(wrong(
                    place(),
                    text,
                    unknown("[manifests] has no setting", name, &known),
                ));
            }
        }
    }
    Ok(())
}

/// An unknown table is a misspelt one.
fn tables(document: &Document<&str>, text: &str) -> Result<(), Diagnostic> {
    let table = document.as_table();
    let Some((name, _)) = table.iter().find(|(name, _)| !TABLES.contains(name)) else {
        return Ok(());
    };
    let span = table.key(name).and_then(Key::span);
    Err(wrong(span, text, unknown("there is no table", name, &TABLES)))
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let meant = near(name, known).map_or_else(
        || format!("it may be one of {}", known.join(", ")),
        |other| format!("did you mean `{other}`?"),
    );
    format!("{what} `{name}`; {meant}")
}

fn wrong(span: Option<std::ops::Range<usize>>, text: &str, why: impl Into<String>) -> Diagnostic {
    let mut place = Place::file(SETTINGS);
    if let Some(before) = span.and_then(|span| text.get(..span.start)) {
        let line = before.rsplit('\n').next().unwrap_or_default();
        place = place
            .line(before.matches('\n').count() + 1)
            .column(line.chars().count() + 1);
    }
    Diagnostic::new(codes::SETTINGS, "cannot read what the project has decided")
        .at(place)
        .because(why.into())
        .fix("correct it; nothing was written")
}

/// The namespace of a project whose manager works in one namespace only.
fn namespace(files: &dyn Files) -> Result<Option<String>, Diagnostic> {
    let Some(text) = files.read(crate::project::FILE)? else {
        return Ok(None);
    };
    let read = crate::yaml::parse(&text).map_err(|why| {
        Diagnostic::new(codes::BROKEN, "cannot read the project")
            .at(Place::file(crate::project::FILE))
            .because(why)
            .fix("correct it; `git diff PROJECT` shows what changed last")
    })?;
    let name = read["projectName"].as_str().unwrap_or("system");
    Ok((read["namespaced"] == true).then(|| format!("{name}-system")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MemoryFiles;

    fn check(text: &str, expected: &str) {
        let files = MemoryFiles::from([("PROJECT", "projectName: a\nnamespaced: true\n"), (SETTINGS, text)]);
        let said = match Options::of_project(&files) {
            Ok(options) => format!("{options:?}"),
            Err(why) => why.to_string(),
        };
        assert!(said.contains(expected), "{text}\n  says {said}\n  not  {expected}");
    }

    #[test]
    fn a_project_decides_about_its_manifests() {
        let usual = "max_description: None, embedded_object_meta: true, allow_dangerous_types: false";
        check("", &format!("{usual}, namespace: Some(\"a-system\")"));
        check("[images]\na = \"b\"\n", usual);
        check("[manifests]\n", usual);
        check(
            "[manifests]\ngenerate-embedded-object-meta = false\nmax-desc-len = 0\nallow-dangerous-types = true\n",
            "max_description: Some(0), embedded_object_meta: false, allow_dangerous_types: true",
        );
        let made = written(false, Some(7)).expect("something was decided");
        check(&made, "max_description: Some(7), embedded_object_meta: false");
        assert_eq!(written(true, None), None);
    }

    #[test]
    fn what_says_nothing_is_told_with_its_line() {
        for (text, expected) in [
            ("[manifests]\nmax-desc-len = -1\n", "kubewright.toml:2:1"),
            ("[manifests]\nmax-desc-len = \"0\"\n", "is a number of bytes"),
            ("\n[manifests]\nallow-dangerous-types = 1\n", "kubewright.toml:3:1"),
            ("[manifests]\nmax-desk-len = 0\n", "did you mean `max-desc-len`?"),
            (
                "[manifests]\ncolor = 0\n",
                "it may be one of generate-embedded-object-meta",
            ),
            (
                "[manifest]\nmax-desc-len = 0\n",
                "no table `manifest`; did you mean `manifests`?",
            ),
            ("manifests = 1\n", "`manifests` is no table"),
            ("[manifests\n", "kubewright.toml:1:"),
        ] {
            check(text, expected);
            check(text, "cannot read what the project has decided [KWR0114]");
        }
    }
}
