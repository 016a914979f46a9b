//! Where the absolute paths of a container lead.
//!
//! A process sees the files of this machine. The folders that its pod gives it, the mount paths of its volumes, lie
//! below its own root folder, so its command, its arguments and its environment are rewritten: each of these paths
//! becomes the path of the folder.
//!
//! Pure. Not here: the contents of the folders (`volumes`). Paths in a program's own files are not rewritten; nothing
//! could do that.

use std::path::Path;

/// The paths that are rewritten, and the folder below which they are found.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Paths below this are in their place already.
    home: String,
    root: String,
    /// Without a slash at the end, longest first.
    owned: Vec<String>,
}

impl Paths {
    pub(super) fn new(home: &Path, root: &Path, owned: impl IntoIterator<Item = String>) -> Paths {
        let owned = owned.into_iter().map(|path| path.trim_end_matches('/').to_owned());
        let mut owned: Vec<String> = owned.filter(|path| path.starts_with('/')).collect();
        owned.sort_by(|one, other| other.len().cmp(&one.len()).then(one.cmp(other)));
        owned.dedup();
        let text = |path: &Path| path.display().to_string();
        let (home, root) = (text(home), text(root));
        Paths { home, root, owned }
    }

    /// A text with each owned path, or a path below one, replaced.
    pub(crate) fn rewrite(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            if rest.starts_with(&self.home) {
                out.push_str(&self.home);
                at += self.home.len();
                continue;
            }
            let begins = !out.ends_with(|c: char| is_of_path(c) || c == '/');
            let found = self.owned.iter().find(|path| {
                let after = rest.strip_prefix(path.as_str());
                begins && after.is_some_and(|after| !after.starts_with(is_of_path))
            });
            match found {
                Some(path) => {
                    out.push_str(&self.root);
                    out.push_str(path);
                    at += path.len();
                }
                None => {
                    let next = rest.chars().next().unwrap_or_default();
                    out.push(next);
                    at += next.len_utf8().max(1);
                }
            }
        }
        out
    }

    /// The same of each text.
    pub(crate) fn rewrite_all(&self, texts: &[String]) -> Vec<String> {
        texts.iter().map(|text| self.rewrite(text)).collect()
    }
}

/// Whether a character continues a name in a path.
fn is_of_path(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '%' | '~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rewritten() {
        let owned = ["/data", "/data/deep/", "/etc/app", "relative"];
        let paths = Paths::new(Path::new("/data/home"), Path::new("/r"), owned.map(str::to_owned));
        let check = |text: &str, expected: &str| assert_eq!(paths.rewrite(text), expected, "{text}");
        check("/data", "/r/data");
        check("/data/x y", "/r/data/x y");
        check("/data/deep/x", "/r/data/deep/x");
        check("--dir=/data --other=/datas", "--dir=/r/data --other=/datas");
        check("a:/etc/app/b;/etc/application", "a:/r/etc/app/b;/etc/application");
        check("/mnt/data /r/data", "/mnt/data /r/data");
        check("http://host/data", "http://host/data");
        check("'/data' \"/etc/app\"", "'/r/data' \"/r/etc/app\"");
        check("ü/data", "ü/data");
        check("/data/home/data/x", "/data/home/data/x");
        check("relative", "relative");
        check("", "");
    }
}
