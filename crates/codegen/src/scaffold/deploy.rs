//! The plugin deploy-image of `create api`: a kind whose controller runs an image in a Deployment.
//!
//! The options are checked here and remembered in PROJECT ([`crate::project::DeployedImage`]); the texts of the
//! controller and of its test follow from them. All versions of such a kind have the same fields, so that conversions
//! between them are whole. Not here: the types and the sample, which are those of every kind with other fields.

use minijinja::context;

use crate::codes;
use crate::config::is_reference;
use crate::diagnostic::Diagnostic;
use crate::project::{self, DeployedImage, Project, Resource};
use crate::source::layout_chain;

use super::contents::{Contents, ControllerFile};
use super::create_api::CreateApi;
use super::plugins::{self, Optional};
use super::render::{article, constant, render, signature};

/// A port's name has at most so many letters (`IsValidPortName` of k8s.io/apimachinery).
const PORT_NAME: usize = 15;
/// A container's name is a DNS-1123 label.
const LABEL: usize = 63;

/// The options of the plugin, checked; none when it was not used.
///
/// # Errors
/// When a plugin is not known, a flag of the plugin is said without it, or its value cannot be.
pub(super) fn options(options: &CreateApi, attempted: &str) -> Result<Option<DeployedImage>, Diagnostic> {
    let wrong = |why: String, fix: &str| Err(Diagnostic::new(codes::project::FLAGS, attempted).because(why).fix(fix));
    let is_requested = plugins::requested(&options.plugins, "create api", attempted)?.contains(&Optional::DeployImage);
    let told = &options.image;
    if !is_requested {
        let flags = [
            ("--image", !told.image.is_empty()),
            ("--image-container-command", told.container_command.is_some()),
            ("--image-container-port", told.container_port.is_some()),
            ("--run-as-user", told.run_as_user.is_some()),
        ];
        return match flags.into_iter().find(|(_, said)| *said) {
            Some((flag, _)) => wrong(
                format!("{flag} is a flag of the plugin deploy-image/v1-alpha"),
                "add --plugins deploy-image/v1-alpha, or leave it out",
            ),
            None => Ok(None),
        };
    }
    if !options.resource || !options.controller {
        return wrong(
            "the plugin deploy-image makes a type and its controller".to_owned(),
            "leave --resource and --controller out, or --plugins",
        );
    }
    if !options.namespaced {
        return wrong(
            "a Deployment lives in a namespace, and an object outside of namespaces has none to put it in".to_owned(),
            "leave --namespaced=false out",
        );
    }
    if options.controller_name.is_some() {
        return wrong(
            "the controller of the plugin deploy-image is named after its kind".to_owned(),
            "leave --controller-name out",
        );
    }
    values(told, attempted)?;
    Ok(Some(told.clone()))
}

/// Whether the values can be those of a container.
fn values(told: &DeployedImage, attempted: &str) -> Result<(), Diagnostic> {
    let wrong = |why: String, fix: &str| Err(Diagnostic::new(codes::project::FLAGS, attempted).because(why).fix(fix));
    if told.image.is_empty() {
        return Err(Diagnostic::new(codes::project::MISSING, attempted)
            .because("the plugin deploy-image needs to know which image")
            .fix("add --image IMAGE, such as --image=memcached:1.6.26-alpine3.19"));
    }
    if !is_reference(&told.image) {
        return wrong(
            format!("--image {:?} is not the name of an image", told.image),
            "write it as the registry does: registry.example.com/memcached:1.6.26",
        );
    }
    if let Some(command) = &told.container_command
        && (command.split(',').any(str::is_empty) || command.chars().any(char::is_control))
    {
        return wrong(
            format!("--image-container-command {command:?} has an empty word"),
            "separate the words by single commas: memcached,--memory-limit=64,-v",
        );
    }
    if let Some(port) = &told.container_port
        && !port.parse::<u16>().is_ok_and(|number| number > 0)
    {
        return wrong(
            format!("--image-container-port {port:?} is not a port"),
            "pass a number from 1 to 65535",
        );
    }
    // The API server takes no greater number than this.
    if let Some(user) = &told.run_as_user
        && !user.parse::<i32>().is_ok_and(|number| number > 0)
    {
        return wrong(
            format!("--run-as-user {user:?} is not the number of a user other than root"),
            "pass a number from 1 to 2147483647: the container must not run as root",
        );
    }
    Ok(())
}

/// No two kinds are told their image in the same variable.
///
/// # Errors
/// When a kind of the same name in another group has one.
pub(super) fn variable_is_free(project: &Project, resource: &Resource, attempted: &str) -> Result<(), Diagnostic> {
    let variable = project::variable(&resource.kind);
    let mut others = project.apis().filter(|other| !other.same_kind(resource));
    let taken =
        others.find(|other| project.deployed_image(other).is_some() && project::variable(&other.kind) == variable);
    match taken {
        Some(other) => Err(Diagnostic::new(codes::project::TAKEN, attempted)
            .because(format!(
                "{variable} is the variable with the image of {}",
                other.title()
            ))
            .fix("choose another kind")),
        None => Ok(()),
    }
}

impl Contents<'_> {
    /// The plugin's options for the kind.
    pub(super) fn image(&self) -> Option<DeployedImage> {
        self.project.deployed_image(self.resource)
    }

    /// The fields of the spec, in Rust's spelling.
    pub(super) fn spec_fields(&self) -> Vec<&'static str> {
        match self.image() {
            None => vec!["foo"],
            Some(image) if image.container_port.is_some() => vec!["size", "container_port"],
            Some(_) => vec!["size"],
        }
    }

    /// Whether a controller is the one that runs the image.
    pub(super) fn runs_image(&self, controller: &ControllerFile) -> Option<DeployedImage> {
        let image = self.project.made_with_image(self.resource);
        image.filter(|_| controller.file_name.is_none())
    }

    pub(super) fn image_controller_text(&self, controller: &ControllerFile, image: &DeployedImage) -> String {
        let kind = &self.resource.kind;
        let reconciler = self.reconciler(controller);
        let named = (controller.name != kind.to_lowercase()).then(|| format!(".named({:?})", controller.name));
        let calls: Vec<String> = named
            .into_iter()
            .chain([".finalizer(FINALIZER)".to_owned(), ".owns::<Deployment>()".to_owned()])
            .collect();
        let object = format!("object: Arc<{}>", self.types.path);
        let of_it = ["&self".to_owned(), object, "ctx: Context".to_owned()];
        let shared = format!("object: &{}", self.types.path);
        let tell = [
            "&self".to_owned(),
            shared.clone(),
            "ctx: &Context".to_owned(),
            "seen: Condition".to_owned(),
        ];
        let name = kind.to_lowercase();
        let cut = |length: usize| name.chars().take(length).collect::<String>();
        render(
            "rust/image_controller.rs",
            context! {
                header => self.header,
                name => controller.name,
                kind,
                article => article(kind),
                use => self.types.import,
                path => self.types.path,
                variable => constant("VARIABLE", "&str", &format!("{:?}", project::variable(kind))),
                image => constant("IMAGE", "&str", &format!("{:?}", image.image)),
                container => constant("NAME", "&str", &format!("{:?}", cut(LABEL))),
                port => image.container_port,
                port_name => format!("{:?}", cut(PORT_NAME)),
                command => image.container_command.as_ref().map(|words| constant("COMMAND", "&str", &format!("{words:?}"))),
                user => image.run_as_user,
                finalizer => constant("FINALIZER", "&str", &format!("\"{}/finalizer\"", self.resource.full_group())),
                reconcile => signature("async fn reconcile", &of_it, "Result<Action>"),
                cleanup => signature("async fn cleanup", &of_it, "Result<Cleanup>"),
                deployment => signature("fn deployment", &["&self".to_owned(), shared], "Deployment"),
                tell => signature("async fn tell", &tell, "Result<()>"),
                chain => layout_chain(&format!("Controller::of({reconciler} {{ image }})"), &calls, "    "),
                reconciler,
            },
        )
    }

    pub(super) fn image_controller_test(&self, controller: &ControllerFile, image: &DeployedImage) -> String {
        render(
            "rust/image_controller_test.rs",
            context! {
                header => self.header,
                name => controller.name,
                use => self.types.import,
                crate => self.project.crate_name(),
                path => self.types.path,
                image => constant("IMAGE", "&str", &format!("{:?}", image.image)),
                user => image.run_as_user,
            },
        )
    }
}
