//! References to the environment in a text: `$NAME` and `${NAME}`, by the rules of Go's `os.Expand`.

/// The text with the values of variables. A reference to a variable that is not set stays, in the form `${NAME}`.
///
/// ```
/// use kubewright_operators::watches::expand;
///
/// let set = |name: &str| (name == "HOME").then(|| "/opt/ansible".to_owned());
/// assert_eq!(expand("${HOME}/roles $HOME $OTHER 5$", &set), "/opt/ansible/roles /opt/ansible ${OTHER} 5$");
/// ```
#[must_use]
pub fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (name, length) = reference(rest);
        match name {
            Some(name) => match variable(name) {
                Some(value) => out.push_str(&value),
                None => out.extend(["${", name, "}"]),
            },
            None if length == 0 => out.push('$'),
            None => {} // braces that name nothing are left out
        }
        rest = &rest[length..];
    }
    out.push_str(rest);
    out
}

/// The name behind a `$`, and how long its reference is.
fn reference(rest: &str) -> (Option<&str>, usize) {
    let special = |c: char| "*#$@!?-".contains(c) || c.is_ascii_digit();
    let word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let Some(first) = rest.chars().next() else {
        return (None, 0);
    };
    if first == '{' {
        let inner = &rest[1..];
        let mut letters = inner.chars();
        if let (Some(sign), Some('}')) = (letters.next(), letters.next())
            && special(sign)
        {
            return (Some(&inner[..1]), 3);
        }
        return match inner.find('}') {
            Some(0) => (None, 2),
            Some(end) => (Some(&inner[..end]), end + 2),
            None => (None, 1),
        };
    }
    if special(first) {
        return (Some(&rest[..1]), 1);
    }
    let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
    (Some(&rest[..end]).filter(|name| !name.is_empty()), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_those_of_go() {
        let set = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "A_B" => Some("2".to_owned()),
            "E" => Some(String::new()),
            _ => None,
        };
        let check = |text: &str, expected: &str| assert_eq!(expand(text, &set), expected, "{text}");
        check("", "");
        check("no", "no");
        check("$A", "1");
        check("x${A}y", "x1y");
        check("$A_B-$A.b", "2-1.b");
        check("[$E]", "[]");
        check("$NO ${NO}", "${NO} ${NO}");
        check("$", "$");
        check("a$ b", "a$ b");
        check("$$A", "${$}A");
        check("$1", "${1}");
        check("${}x", "x");
        check("${A", "A");
        check("ä$A ö", "ä1 ö");
    }
}
