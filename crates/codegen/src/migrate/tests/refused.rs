//! Projects that cannot be read.

use super::*;

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    let refused = |path: &str, text: &str| {
        let mut files = project();
        files.0.insert(path.to_owned(), text.to_owned());
        carried(&files).unwrap_err().to_string()
    };
    assert!(refused("api/v1/more.go", "package v1\ntype A struct {\n").contains("api/v1/more.go:2"));
    assert!(refused("PROJECT", "version: \"1\"\n").contains("version"));
    assert!(refused("PROJECT", "- a\n").contains("PROJECT"));
    let ours = PROJECT.replace("go.kubebuilder.io/v4", "rust.kubewright.dev/v1-alpha");
    assert!(refused("PROJECT", &ours).contains("layout already"));
    let refused = carried(&MemoryFiles::default()).unwrap_err().to_string();
    assert!(refused.contains("no file named PROJECT"), "{refused}");
}
