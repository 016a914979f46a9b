//! Names of properties as expressions can write them.
//!
//! A property such as `my-field` or `namespace` is no identifier; Kubernetes escapes it: `my__dash__field`,
//! `__namespace__`. A property that cannot be escaped is not visible to expressions.

/// Words of the language, and words that it keeps for itself.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether the word is one of the language's own.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// The identifier for a property, or none when it has none.
///
/// ```
/// use kubewright_cel::names::escape;
///
/// assert_eq!(escape("replicas").as_deref(), Some("replicas"));
/// assert_eq!(escape("my-field.x/y__z").as_deref(), Some("my__dash__field__dot__x__slash__y__underscores__z"));
/// assert_eq!(escape("namespace").as_deref(), Some("__namespace__"));
/// assert_eq!(escape("1st"), None);
/// ```
pub fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let (put, taken) = match c {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => (&rest[..1], 1),
            _ => return None,
        };
        escaped.push_str(put);
        rest = &rest[taken..];
    }
    Some(escaped)
}

/// The property for an identifier: the reverse of [`escape`]; none when the identifier is no result of it.
pub fn unescape(escaped: &str) -> Option<String> {
    if let Some(word) = escaped.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && RESERVED.contains(&word)
    {
        return Some(word.to_owned());
    }
    let (mut name, mut rest) = (String::with_capacity(escaped.len()), escaped);
    while let Some(c) = rest.chars().next() {
        let code = rest.strip_prefix("__").and_then(|after| {
            let end = after.find('_').filter(|end| *end > 0)?;
            after[end..].starts_with("__").then(|| &after[..end])
        });
        let Some(code) = code else {
            name.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        name.push_str(match code {
            "underscores" => "__",
            "dot" => ".",
            "dash" => "-",
            "slash" => "/",
            _ => return None,
        });
        rest = &rest[code.len() + 4..];
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescape_reverses_escape() {
        for name in [
            "a", "in", "a__b", "a-b", "a.b/c", "_a", "a_", "__x", "x__", "if-then", "_.a", "a___",
        ] {
            let escaped = escape(name).expect("it can be escaped");
            assert_eq!(unescape(&escaped).as_deref(), Some(name), "{escaped}");
        }
        assert_eq!(unescape("a__oops__b"), None);
    }
}
