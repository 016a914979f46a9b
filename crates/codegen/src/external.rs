//! External plug-ins, by kubebuilder's protocol: the request to such a program, and the effect of its answer.
//!
//! A program is given the project as JSON (`PluginRequest` of kubebuilder's pkg/plugin/external, version v1alpha1): the
//! command, its arguments, and the universe, which is every file by its path. It answers with a universe of its own;
//! files in it are written, files missing in it stay. Invariants: an answer is taken whole or not at all; no path of it
//! leads out of the project or into reserved folders; the project is still one of ours afterwards. Not here: where
//! programs are found, and how they are run (the command).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::{Files, Plan};
use crate::project::{self, Project};

/// The version of the protocol.
const API_VERSION: &str = "v1alpha1";

/// The universe is sent whole: a project that is larger has something in it that is no source.
const UNIVERSE: usize = 32 << 20;
/// An answer names at most so many files.
const MAX_FILES: usize = 10_000;
/// Folders that no plug-in writes into.
const CLOSED: [&str; 3] = [".git", ".kubewright", "target"];

/// The key of an external plug-in: `NAME/VERSION`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The name of the folder and of the program.
    pub name: String,
    /// The folder below it.
    pub version: String,
}

impl Key {
    /// Reads `sampleexternalplugin/v1`; none when it cannot be the key of a program, such as one that leads elsewhere.
    ///
    /// ```
    /// use kubewright_codegen::external::Key;
    /// assert_eq!(Key::parse("foo.acme.io/v2").unwrap().version, "v2");
    /// assert_eq!(Key::parse("../bin/v1"), None);
    /// assert_eq!(Key::parse("helm"), None);
    /// ```
    #[must_use]
    pub fn parse(key: &str) -> Option<Key> {
        let (name, version) = key.split_once('/')?;
        let letters = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let fits = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(letters);
        (fits(name) && fits(version)).then(|| Key {
            name: name.to_owned(),
            version: version.to_owned(),
        })
    }

    /// The key as it is typed.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}/{}", self.name, self.version)
    }
}

/// The request to a program.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    api_version: &'static str,
    args: Vec<String>,
    command: String,
    universe: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    plugin_chain: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Value>,
}

impl Request {
    /// The request of a command: with all files as they are to be.
    ///
    /// # Errors
    /// When the files cannot be read, or are too much.
    pub fn of(command: &str, args: &[String], chain: &[String], files: &dyn Files) -> Result<Request, Diagnostic> {
        let mut universe = BTreeMap::new();
        let mut size = 0;
        for path in files.list("")? {
            // A file that is not text has no place in JSON, and the program does not need it.
            let Ok(Some(text)) = files.read(&path) else { continue };
            size += text.len();
            if size > UNIVERSE {
                return Err(
                    Diagnostic::new(codes::project::EXTERNAL, "cannot ask the external plug-in")
                        .at(Place::file(path))
                        .because(format!(
                            "a plug-in is given all files of the project, and they are more than {} MiB",
                            UNIVERSE >> 20
                        ))
                        .fix("move files that are not sources out of the project's folder"),
                );
            }
            universe.insert(path, text);
        }
        let config = universe
            .get(project::FILE)
            .and_then(|text| crate::yaml::parse(text).ok());
        Ok(Request {
            api_version: API_VERSION,
            args: args.to_vec(),
            command: command.to_owned(),
            universe,
            plugin_chain: chain.to_vec(),
            config,
        })
    }

    /// `flags` or `metadata`, about a command: its flags, or its description.
    #[must_use]
    pub fn about(command: &str, what: &str) -> Request {
        // kubebuilder's words: --init, --edit, --api, --webhook.
        let short = command.rsplit(' ').next().unwrap_or(command);
        Request {
            api_version: API_VERSION,
            args: vec![format!("--{short}")],
            command: what.to_owned(),
            universe: BTreeMap::new(),
            plugin_chain: Vec::new(),
            config: None,
        }
    }

    /// The text that the program reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts, lists and maps are JSON")
    }
}

/// A flag of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Flag {
    /// Its name, without the dashes.
    #[serde(alias = "Name")]
    pub name: String,
    /// `string`, `bool`, `int` or `float`.
    #[serde(rename = "type", alias = "Type")]
    pub kind: String,
    /// Its default.
    #[serde(alias = "Default")]
    pub default: String,
    /// Its purpose.
    #[serde(alias = "Usage")]
    pub usage: String,
}

/// A program's description of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// The effect of the command.
    pub description: String,
    /// How it is typed.
    pub examples: String,
}

/// The answer of a program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Response {
    api_version: String,
    metadata: Option<Metadata>,
    universe: Option<BTreeMap<String, String>>,
    error: bool,
    error_msgs: Option<Vec<String>>,
    flags: Option<Vec<Flag>>,
}

impl Response {
    /// Reads the output of a program.
    ///
    /// # Errors
    /// When it is no answer of the protocol, or the program says that it failed.
    pub fn parse(key: &Key, text: &str) -> Result<Response, Diagnostic> {
        let wrong = || Diagnostic::new(codes::project::EXTERNAL, format!("the plug-in {} failed", key.title()));
        if text.trim().is_empty() {
            return Err(wrong()
                .because("it printed nothing")
                .fix("a plug-in prints one JSON object, the answer, to standard output"));
        }
        let response: Response = serde_json::from_str(text).map_err(|why| {
            wrong()
                .because(format!("what it printed is not a response: {why}"))
                .fix("a plug-in prints one JSON object and nothing else to standard output; messages for people go to standard error")
        })?;
        if response.error {
            let told = response.error_msgs.unwrap_or_default();
            let told = told.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
            let wrong = told.fold(wrong(), Diagnostic::because);
            return Err(if wrong.causes.is_empty() {
                wrong.because("it gives no reason")
            } else {
                wrong
            });
        }
        if response.api_version != API_VERSION {
            return Err(wrong()
                .because(format!(
                    "its answer has the version {:?}; the one that is spoken here is {API_VERSION}",
                    response.api_version
                ))
                .fix("install another version of the plug-in"));
        }
        Ok(response)
    }

    /// The flags that the program takes; none when it does not say.
    #[must_use]
    pub fn flags(&self) -> Option<&[Flag]> {
        self.flags.as_deref()
    }

    /// The program's description of the command.
    #[must_use]
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// Writes the files of the answer into the plan.
    ///
    /// # Errors
    /// When a path leads out of the project, there are too many, or PROJECT would be none any more. The plan is not to
    /// be carried out then.
    pub fn apply(self, key: &Key, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
        let wrong = |path: &str, why: String| {
            Diagnostic::new(
                codes::project::EXTERNAL,
                format!("cannot take what the plug-in {} answered", key.title()),
            )
            .at(Place::file(path))
            .because(why)
            .fix("this is a fault of the plug-in: tell its authors; nothing was written")
        };
        let universe = self.universe.unwrap_or_default();
        if universe.len() > MAX_FILES {
            return Err(wrong(
                "",
                format!("it names {} files; the most is {MAX_FILES}", universe.len()),
            ));
        }
        for (named, text) in universe {
            let path = named.strip_prefix("./").unwrap_or(&named);
            if let Some(why) = unsafe_path(path) {
                return Err(wrong(&named, why));
            }
            plan.write(path, text)?;
        }
        let ours = plan.read(project::FILE)?;
        match ours.as_deref().map(Project::parse) {
            Some(Err(why)) => Err(wrong(
                project::FILE,
                format!("the project could not be worked on any more: {why}"),
            )),
            _ => Ok(()),
        }
    }
}

/// Why a path cannot be that of a file of the project.
fn unsafe_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    if path.is_empty()
        || parts
            .iter()
            .any(|part| part.is_empty() || *part == "." || *part == "..")
    {
        return Some("the path leads out of the project, or is none".to_owned());
    }
    if path.contains(['\\', '\0', ':']) || path.chars().any(char::is_control) {
        return Some("the path has letters that no file of a project has".to_owned());
    }
    // Also `.kubewright-write`, in which writes are prepared.
    let first = parts[0].to_ascii_lowercase();
    let closed = CLOSED.iter().any(|closed| first == *closed) || first.starts_with(".kubewright");
    closed.then(|| format!("{} is not a folder of the project's own files", parts[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFiles;

    const PROJECT: &str =
        "domain: my.domain\nlayout:\n- rust.kubewright.dev/v1-alpha\nprojectName: shop\nversion: \"3\"\n";

    fn key() -> Key {
        Key::parse("sample/v1").unwrap()
    }

    /// The effect of an answer: the changes, or the error.
    fn taken(answer: &str) -> String {
        let files = MemoryFiles::from([("PROJECT", PROJECT), ("a.txt", "a\n")]);
        let mut plan = Plan::new(&files);
        match Response::parse(&key(), answer).and_then(|response| response.apply(&key(), &mut plan)) {
            Ok(()) => plan
                .changes()
                .map(|(path, change)| format!("{} {path}\n", change.verb()))
                .collect(),
            Err(wrong) => wrong.to_string(),
        }
    }

    #[test]
    fn a_program_is_given_the_project() {
        let files = MemoryFiles::from([("PROJECT", PROJECT), ("a.txt", "a\n")]);
        let chain = ["rust.kubewright.dev/v1-alpha".to_owned(), "sample/v1".to_owned()];
        let request = Request::of("edit", &["--namespace".to_owned(), "x".to_owned()], &chain, &files).unwrap();
        let read: Value = serde_json::from_str(&request.to_text()).unwrap();
        assert_eq!(read["apiVersion"], "v1alpha1");
        assert_eq!(read["command"], "edit");
        assert_eq!(read["args"], serde_json::json!(["--namespace", "x"]));
        assert_eq!(read["pluginChain"], serde_json::json!(chain));
        assert_eq!(read["universe"]["a.txt"], "a\n");
        assert_eq!(read["config"]["projectName"], "shop");
        let flags: Value = serde_json::from_str(&Request::about("create api", "flags").to_text()).unwrap();
        assert_eq!(flags["args"], serde_json::json!(["--api"]));
        assert_eq!(flags.get("config"), None);
    }

    #[test]
    fn answers_are_taken_or_refused_in_words() {
        let of = |universe: Value| {
            serde_json::json!({"apiVersion": "v1alpha1", "command": "edit", "universe": universe, "error": false, "errorMsgs": null}).to_string()
        };
        let answers = [
            of(serde_json::json!({"a.txt": "a\n", "./b/c.txt": "c\n"})),
            of(serde_json::json!({"a.txt": "other\n"})),
            of(Value::Null),
            of(serde_json::json!({"../a.txt": ""})),
            of(serde_json::json!({"/etc/passwd": ""})),
            of(serde_json::json!({"b/../../a.txt": ""})),
            of(serde_json::json!({".git/hooks/post-checkout": ""})),
            of(serde_json::json!({"Target/debug/x": ""})),
            of(serde_json::json!({"C:\\a.txt": ""})),
            of(serde_json::json!({"PROJECT": "version: \"3\"\nlayout: [go.kubebuilder.io/v4]\n"})),
            of(serde_json::json!({"a.txt": 7})),
            r#"{"apiVersion": "v1alpha1", "error": true, "errorMsgs": ["no such namespace", ""]}"#.to_owned(),
            r#"{"apiVersion": "v1alpha1", "error": true}"#.to_owned(),
            r#"{"apiVersion": "v1", "universe": {}}"#.to_owned(),
            "done!\n{}".to_owned(),
            String::new(),
        ];
        let told: String = answers
            .iter()
            .map(|answer| format!("{answer}\n{}\n\n", taken(answer).trim_end()))
            .collect();
        insta::assert_snapshot!(told);
    }

    #[test]
    fn flags_are_read_as_go_writes_them() {
        let answer = r#"{"apiVersion": "v1alpha1", "flags": [{"Name": "namespace", "Type": "string", "Default": "x", "Usage": "where"}, {"name": "fast", "type": "bool"}]}"#;
        let response = Response::parse(&key(), answer).unwrap();
        let flags: Vec<(&str, &str)> = response
            .flags()
            .unwrap()
            .iter()
            .map(|flag| (flag.name.as_str(), flag.kind.as_str()))
            .collect();
        assert_eq!(flags, [("namespace", "string"), ("fast", "bool")]);
    }
}
