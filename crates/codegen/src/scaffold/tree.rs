//! The modules and registrations of a resource, with their places, so that `create` writes them and `delete` finds them
//! again.

use minijinja::context;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::Files;
use crate::project::Resource;
use crate::source::Source;

use super::Change;
use super::contents::{Contents, ControllerFile, path};
use super::render::render;

/// The file with `fn operator()`.
pub(super) const LIB: &str = "src/lib.rs";
/// The file of the crate with the types.
pub(super) const API_LIB: &str = "api/src/lib.rs";
/// The program of the tests, which declares the files beside it.
pub(crate) const TESTS: &str = "tests/it/main.rs";

/// The test that plays the operator through faults, with the samples of the project's own kinds.
pub(super) const FAULTS: &str = "tests/it/faults.rs";

/// The module of a file of the test program; none for a test that is a program of its own.
pub(crate) fn test_module(path: &str) -> Option<&str> {
    path.strip_prefix("tests/it/")?.strip_suffix(".rs")
}

/// Where a scaffolded test was when each was a program of its own.
pub(crate) fn earlier_test(path: &str) -> String {
    path.replacen("tests/it/", "tests/", 1)
}

/// Where a scaffolded test is: in the test program, unless it was made earlier and is still there.
pub(super) fn test_at(files: &dyn Files, path: &str) -> Result<String, Diagnostic> {
    let earlier = earlier_test(path);
    let is_earlier = files.read(path)?.is_none() && files.read(&earlier)?.is_some();
    Ok(if is_earlier { earlier } else { path.to_owned() })
}

/// The description in a line of a new `mod.rs`.
pub(super) enum About<'w> {
    /// A folder of controllers, webhooks, groups: its description.
    Text(String),
    /// A version of the API.
    Version(&'w Contents<'w>),
}

impl Change<'_> {
    /// A Rust file to be edited.
    pub(super) fn source(&self, path: &str) -> Result<Source, Diagnostic> {
        match self.plan.read(path)? {
            Some(text) => Source::parse(path, &text),
            None => Err(Diagnostic::new(codes::files::EDITED, format!("cannot edit {path}"))
                .at(Place::file(path))
                .because("the file is not there")
                .fix("restore it (git checkout), or put what it held back; nothing was written")),
        }
    }

    /// Edits a Rust file.
    pub(super) fn edit(
        &mut self,
        path: &str,
        edit: impl FnOnce(&mut Source) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        let mut source = self.source(path)?;
        edit(&mut source)?;
        self.plan.write(path, source.into_text())
    }

    /// Makes the modules below a file exist, each with a `mod.rs`, and declares `last` in the innermost. `root` is
    /// `src/lib.rs` or `api/src/lib.rs`; `modules` begins at its folder.
    pub(super) fn declare(
        &mut self,
        root: &str,
        modules: &[(String, About<'_>)],
        last: &str,
    ) -> Result<(), Diagnostic> {
        let mut file = root.to_owned();
        let mut folder = root.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        for (module, about) in modules {
            self.edit(&file, |source| {
                source.add_module(module);
                Ok(())
            })?;
            folder = format!("{folder}/{module}");
            file = format!("{folder}/mod.rs");
            let text = match about {
                About::Text(about) => render("rust/mod.rs", context! { header => self.header, about }),
                About::Version(contents) => contents.version_text(),
            };
            self.create_if_missing(&file, text)?;
        }
        self.edit(&file, |source| {
            source.add_module(last);
            Ok(())
        })
    }

    /// The same for modules that move: a new folder below the first is one of a group.
    pub(super) fn declare_words(&mut self, root: &str, modules: &[String], last: &str) -> Result<(), Diagnostic> {
        let groups: Vec<(String, String)> = self
            .project
            .resources
            .iter()
            .flat_map(|resource| {
                let modules = self.project.layout(resource).controller_modules;
                modules.into_iter().map(|module| (module, group_title(resource)))
            })
            .collect();
        let about = |module: &String| {
            let group = groups.iter().find(|(known, _)| known == module);
            match group {
                // What `create` says of the same folder.
                Some((_, title)) if root == LIB && modules[0] == "webhook" => {
                    format!("Webhooks for the group `{title}`.")
                }
                Some((_, title)) if root == LIB => format!("Controllers for the group `{title}`."),
                Some((_, title)) => format!("The group `{title}`."),
                None if root == LIB && modules.len() > 1 => format!("Webhooks for kinds of version `{module}`."),
                None => format!("Kinds of version `{module}`."),
            }
        };
        let modules: Vec<(String, About<'_>)> = modules
            .iter()
            .map(|module| (module.clone(), About::Text(about(module))))
            .collect();
        self.declare(root, &modules, last)
    }

    /// Takes the declaration of a module out of the innermost `mod.rs`, and every `mod.rs` that declares nothing any
    /// more with it.
    pub(super) fn undeclare(&mut self, root: &str, modules: &[String], last: &str) -> Result<(), Diagnostic> {
        let base = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut gone = last.to_owned();
        for depth in (0..=modules.len()).rev() {
            let folder = modules[..depth]
                .iter()
                .fold(base.to_owned(), |folder, module| folder + "/" + module);
            let file = if depth == 0 {
                root.to_owned()
            } else {
                format!("{folder}/mod.rs")
            };
            if self.plan.read(&file)?.is_none() {
                return Ok(());
            }
            let mut source = self.source(&file)?;
            source.remove_module(&gone);
            source.remove_reexport(&gone);
            let others = self.plan.list(&folder)?.into_iter().any(|path| path != file);
            let empty = source.modules().next().is_none() && !others;
            if depth > 0 && empty {
                self.plan.remove(&file)?;
                gone.clone_from(&modules[depth - 1]);
                continue;
            }
            return self.plan.write(&file, source.into_text());
        }
        Ok(())
    }

    /// Writes a test where it is or belongs, and declares it in the test program.
    pub(super) fn create_test(&mut self, path: &str, text: String) -> Result<(), Diagnostic> {
        let path = test_at(&self.plan, path)?;
        self.create(&path, text)?;
        let Some(module) = test_module(&path) else {
            return Ok(());
        };
        let program = render("rust/tests.rs", context! { header => self.header });
        self.create_if_missing(TESTS, program)?;
        self.edit(TESTS, |source| {
            source.add_private_module(module);
            Ok(())
        })
    }

    /// Takes the declaration of a removed test out, and the test program with its last one.
    pub(super) fn undeclare_test(&mut self, path: &str) -> Result<(), Diagnostic> {
        let Some(module) = test_module(path) else {
            return Ok(());
        };
        self.undeclare(TESTS, &[], module)?;
        let empty = render("rust/tests.rs", context! { header => self.header });
        match self.plan.read(TESTS)? {
            Some(text) if text == empty => self.plan.remove(TESTS),
            _ => Ok(()),
        }
    }

    /// Writes the types of a resource and registers them.
    pub(super) fn write_types(&mut self, resource: &Resource, storage: bool) -> Result<(), Diagnostic> {
        let (project, header) = (self.project.clone(), self.header.clone());
        let contents = Contents::of(&project, resource, &header);
        let layout = project.layout(resource);
        self.create(&layout.types_file(), contents.types_text(storage))?;
        let last = layout.api_modules.len() - 1;
        let modules: Vec<(String, About<'_>)> = layout
            .api_modules
            .iter()
            .enumerate()
            .map(|(at, module)| {
                let about = if at == last {
                    About::Version(&contents)
                } else if module == "external" && at == 0 {
                    About::Text("Kinds of other projects, as far as this one needs them.".to_owned())
                } else {
                    About::Text(format!("The group `{}`.", resource.full_group()))
                };
                (module.clone(), about)
            })
            .collect();
        let stem = format!("{}_types", layout.stem);
        self.declare(API_LIB, &modules, &stem)?;
        let line = contents.types_line();
        self.edit(&format!("{}/mod.rs", layout.api_folder()), |source| {
            source.add_reexport(&stem, &line);
            Ok(())
        })?;
        if resource.api.is_some() {
            let call = format!("crd::<{}>()", contents.types.whole);
            self.edit(LIB, |source| source.append_call("operator", &call))?;
        }
        Ok(())
    }

    /// Writes a controller with its test and registers it.
    pub(super) fn write_controller(
        &mut self,
        resource: &Resource,
        controller: &ControllerFile,
    ) -> Result<(), Diagnostic> {
        let (project, header) = (self.project.clone(), self.header.clone());
        let contents = Contents::of(&project, resource, &header);
        let layout = project.layout(resource);
        let file_name = controller.file_name.as_deref();
        self.create(&layout.controller_file(file_name), contents.controller_text(controller))?;
        let (test, text) = contents.controller_test(controller);
        self.create_test(&test, text)?;
        let faults = test_at(&self.plan, FAULTS)?;
        if resource.api.is_some() && self.plan.read(&faults)?.is_none() {
            self.create_test(FAULTS, self.faults_test())?;
        }
        let mut modules = vec![(
            "controller".to_owned(),
            About::Text("The controllers: what happens to objects.".to_owned()),
        )];
        modules.extend(layout.controller_modules.iter().map(|group| {
            let about = format!("Controllers for the group `{}`.", group_title(resource));
            (group.clone(), About::Text(about))
        }));
        let module = layout.controller_module(file_name);
        self.declare(LIB, &modules, &module)?;
        let call = format!(
            "controller({}::controller())",
            path("controller", &layout.controller_modules, &module)
        );
        self.edit(LIB, |source| source.append_call("operator", &call))
    }

    pub(super) fn faults_test(&self) -> String {
        let context = context! { header => self.header, crate => self.project.crate_name() };
        render("rust/faults_test.rs", context)
    }

    /// The registrations of webhooks in `fn operator()`.
    pub(super) fn webhook_call(&self, resource: &Resource, function: &str) -> String {
        let layout = self.project.layout(resource);
        let module = path("webhook", &layout.webhook_modules, &layout.webhook_module());
        format!("{function}({module}::{function}())")
    }

    /// Declares the module of a resource's webhooks.
    pub(super) fn declare_webhook(&mut self, resource: &Resource) -> Result<(), Diagnostic> {
        let layout = self.project.layout(resource);
        let mut modules = vec![(
            "webhook".to_owned(),
            About::Text("The webhooks: what is filled in, refused and converted.".to_owned()),
        )];
        let last = layout.webhook_modules.len() - 1;
        modules.extend(layout.webhook_modules.iter().enumerate().map(|(at, module)| {
            let about = if at == last {
                format!("Webhooks for kinds of version `{}`.", resource.version)
            } else {
                format!("Webhooks for the group `{}`.", group_title(resource))
            };
            (module.clone(), About::Text(about))
        }));
        self.declare(LIB, &modules, &layout.webhook_module())
    }
}

fn group_title(resource: &Resource) -> String {
    match resource.full_group() {
        core if core.is_empty() => "core".to_owned(),
        group => group,
    }
}
