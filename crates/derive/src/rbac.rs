//! `#[rbac(…)]`: rules for a role, written beside the code that needs them.
//!
//! The first attribute on an `impl` takes all others with it and writes one method, `fn rbac(&self)`, into the `impl`.
//! A mistake is an error at its word, with the right spelling, since a rule that is silently missing is found out in
//! production.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Error, Expr, ExprArray, ExprLit, Ident, ItemImpl, Lit, LitStr, Meta, Path, Result, Token};

/// The words, as kubebuilder spells them, and in Rust's spelling.
const WORDS: &[(&str, &str)] = &[
    ("groups", "groups"),
    ("resources", "resources"),
    ("resourceNames", "resource_names"),
    ("verbs", "verbs"),
    ("urls", "urls"),
    ("namespace", "namespace"),
    ("roleName", "role_name"),
    ("subresource", "subresource"),
];

pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match try_expand(arguments, item.clone()) {
        Ok(tokens) => tokens,
        // The item stays, so that the compiler does not add errors about missing items.
        Err(error) => {
            let error = error.to_compile_error();
            quote!(#error #item)
        }
    }
}

fn try_expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    const PLACE: &str = "#[rbac] stands on an `impl Reconciler for …`";
    let mut item: ItemImpl = syn::parse2(item).map_err(|error| Error::new(error.span(), PLACE))?;
    if item.trait_.is_none() {
        return Err(Error::new_spanned(&item.self_ty, PLACE));
    }
    let mut rules = vec![Rule::parse.parse2(arguments)?];
    let mut kept = Vec::new();
    for attribute in std::mem::take(&mut item.attrs) {
        match &attribute.meta {
            Meta::List(list) if list.path.segments.last().is_some_and(|last| last.ident == "rbac") => {
                rules.push(Rule::parse.parse2(list.tokens.clone())?);
            }
            _ => kept.push(attribute),
        }
    }
    item.attrs = kept;
    item.items.push(syn::parse_quote! {
        fn rbac(&self) -> ::std::vec::Vec<::kubewright::Rule> {
            ::std::vec![#(#rules),*]
        }
    });
    Ok(item.into_token_stream())
}

/// One attribute.
struct Rule {
    /// The type whose group and resource are meant.
    of: Option<Path>,
    words: Vec<(&'static str, Vec<LitStr>)>,
}

impl Parse for Rule {
    fn parse(input: ParseStream<'_>) -> Result<Rule> {
        let mut rule = Rule {
            of: None,
            words: Vec::new(),
        };
        let start = input.span();
        if !input.is_empty() && !input.peek2(Token![=]) {
            rule.of = Some(input.parse()?);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            let written = name.to_string();
            let word = WORDS
                .iter()
                .find(|(kubebuilder, rust)| written == *kubebuilder || written == *rust)
                .ok_or_else(|| Error::new(name.span(), unknown(&written)))?
                .1;
            if rule.words.iter().any(|(other, _)| *other == word) {
                return Err(Error::new(
                    name.span(),
                    format!("`{written}` stands twice; divide several values by `;`"),
                ));
            }
            input.parse::<Token![=]>()?;
            let values = values(&input.parse()?)?;
            for value in &values {
                check(word, value)?;
            }
            rule.words.push((word, values));
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        rule.complete(start)?;
        Ok(rule)
    }
}

impl Rule {
    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|(name, _)| *name == word)
    }

    /// Whether the words together say something.
    fn complete(&self, at: Span) -> Result<()> {
        let wrong = |why: &str| Err(Error::new(at, why));
        if !self.has("verbs") {
            return wrong("`verbs` is missing: say what may be done, such as `verbs = \"get;list;watch\"`");
        }
        let resources = self.of.is_some() || self.has("resources");
        if self.of.is_some() && (self.has("groups") || self.has("resources")) {
            return wrong("the type says which group and resource are meant: leave `groups` and `resources` out");
        }
        if self.of.is_none() && self.has("subresource") {
            return wrong("`subresource` belongs to a type; otherwise write `resources = \"deployments/scale\"`");
        }
        if resources && self.has("urls") {
            return wrong("a rule is about resources or about `urls`, not both: write two attributes");
        }
        if !resources && !self.has("urls") {
            return wrong("nothing is allowed by this: name `resources` (with `groups`), or `urls`");
        }
        if self.has("resources") && !self.has("groups") {
            return wrong(
                "`groups` is missing: name the API group of the resources; `groups = \"\"` is the core group",
            );
        }
        if self.has("urls") && self.has("namespace") {
            return wrong("`urls` belong to no namespace: only a ClusterRole can allow them");
        }
        Ok(())
    }
}

fn unknown(written: &str) -> String {
    let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    let near = words
        .iter()
        .find(|word| word.starts_with(written) || written.starts_with(**word) || word.eq_ignore_ascii_case(written));
    let meant = near.map_or(String::new(), |word| format!("; did you mean `{word}`?"));
    format!(
        "#[rbac] has no word `{written}`{meant} (it has a type, {})",
        words.join(", ")
    )
}

/// `"a;b"` or `["a", "b"]`.
fn values(expression: &Expr) -> Result<Vec<LitStr>> {
    let text = |expression: &Expr| match expression {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text), ..
        }) => Ok(text.clone()),
        other => Err(Error::new_spanned(
            other,
            "a text is expected, such as `\"get;list;watch\"`",
        )),
    };
    match expression {
        Expr::Array(ExprArray { elems, .. }) => elems.iter().map(text).collect(),
        one => {
            let all = text(one)?;
            Ok(all
                .value()
                .split(';')
                .map(|part| LitStr::new(part.trim(), all.span()))
                .collect())
        }
    }
}

fn check(word: &str, value: &LitStr) -> Result<()> {
    let text = value.value();
    let wrong = |why: String| Err(Error::new(value.span(), why));
    if text.contains(',') {
        return wrong(format!("`{text}`: several values are divided by `;`, not by `,`"));
    }
    if text.is_empty() && word != "groups" {
        return wrong(format!("a value of `{word}` is empty"));
    }
    if text.contains(char::is_whitespace) {
        return wrong(format!("`{text}`: there is no space in such a name"));
    }
    if word == "verbs" && text.chars().any(char::is_uppercase) {
        return wrong(format!("`{text}`: verbs are in lower case"));
    }
    if word == "resources" && text.chars().any(char::is_uppercase) {
        return wrong(format!(
            "`{text}`: a resource is the plural in lower case, such as `deployments`, not a kind"
        ));
    }
    if word == "urls" && !text.starts_with('/') && text != "*" {
        return wrong(format!("`{text}`: a URL path starts with `/`"));
    }
    Ok(())
}

impl ToTokens for Rule {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        // The rule remembers where it is made: at its verbs, which only `kubewright manifests` can say are wrong.
        let verbs = self.words.iter().find(|(word, _)| *word == "verbs");
        let at = verbs
            .and_then(|(_, values)| values.first())
            .map_or_else(Span::call_site, LitStr::span);
        let start = match &self.of {
            Some(path) => quote_spanned!(at=> ::kubewright::Rule::of::<#path>()),
            None => quote_spanned!(at=> ::kubewright::Rule::new()),
        };
        let calls = self.words.iter().map(|(word, values)| {
            let method = Ident::new(word, Span::call_site());
            match *word {
                "namespace" | "role_name" | "subresource" => quote!(.#method(#(#values)*)),
                _ => quote!(.#method([#(#values),*])),
            }
        });
        tokens.extend(quote!(#start #(#calls)*));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &str, expected: &str) {
        let item = "impl Reconciler for R { type Object = Pod; }";
        let tokens = try_expand(arguments.parse().expect("tokens"), item.parse().expect("tokens"));
        let said = match tokens {
            Ok(tokens) => tokens.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert!(said.contains(expected), "{arguments}\n  says {said}\n  not  {expected}");
    }

    #[test]
    fn what_is_written_is_what_is_declared() {
        check(
            r#"groups = "apps", resources = "deployments;statefulsets", verbs = "get;list""#,
            r#":: kubewright :: Rule :: new () . groups (["apps"]) . resources (["deployments" , "statefulsets"]) . verbs (["get" , "list"])"#,
        );
        check(
            r#"urls = "/metrics", verbs = ["get"]"#,
            r#". urls (["/metrics"]) . verbs (["get"])"#,
        );
        check(
            r#"k8s::Deployment, subresource = "scale", verbs = "patch", namespace = "a", roleName = "b""#,
            r#"Rule :: of :: < k8s :: Deployment > () . subresource ("scale") . verbs (["patch"]) . namespace ("a") . role_name ("b")"#,
        );
    }

    #[test]
    fn mistakes_are_told() {
        for (arguments, expected) in [
            (
                r#"groups = "apps", resources = "deployments""#,
                "error: `verbs` is missing",
            ),
            (
                r#"groups = "apps", resources = "deployments", verb = "get""#,
                "error: #[rbac] has no word `verb`; did you mean `verbs`?",
            ),
            (
                r#"groups = "apps", resources = "deployments", verbs = "get,list""#,
                "error: `get,list`: several values are divided by `;`",
            ),
            (r#"resources = "pods", verbs = "get""#, "error: `groups` is missing"),
            (
                r#"groups = "", resources = "Pod", verbs = "get""#,
                "error: `Pod`: a resource is the plural",
            ),
            (
                r#"groups = "", resources = "pods", verbs = "Get""#,
                "error: `Get`: verbs are in lower case",
            ),
            (r#"verbs = "get""#, "error: nothing is allowed by this"),
            (
                r#"urls = "metrics", verbs = "get""#,
                "error: `metrics`: a URL path starts with `/`",
            ),
            (
                r#"urls = "/a", verbs = "get", namespace = "x""#,
                "error: `urls` belong to no namespace",
            ),
            (r#"Pod, groups = "", verbs = "get""#, "error: the type says which group"),
            (r#"verbs = 3"#, "error: a text is expected"),
            (
                r#"groups = "", resources = "pods", verbs = "get", verbs = "list""#,
                "error: `verbs` stands twice",
            ),
        ] {
            check(arguments, expected);
        }
    }

    #[test]
    fn several_attributes_are_one_method_and_the_place_is_checked() {
        let item = r#"#[rbac(urls = "/b", verbs = "get")] #[allow(x)] impl Reconciler for R {}"#;
        let tokens = try_expand(
            r#"urls = "/a", verbs = "get""#.parse().expect("tokens"),
            item.parse().expect("tokens"),
        )
        .expect("fits")
        .to_string();
        assert_eq!(tokens.matches("fn rbac").count(), 1, "{tokens}");
        assert!(
            tokens.contains("/a") && tokens.contains("/b") && !tokens.contains("# [rbac"),
            "{tokens}"
        );
        for item in ["struct R;", "impl R {}"] {
            let error = try_expand(
                r#"urls = "/a", verbs = "get""#.parse().expect("tokens"),
                item.parse().expect("tokens"),
            );
            let said = error.expect_err("not an impl of a trait").to_string();
            assert!(said.contains("stands on an `impl Reconciler"), "{said}");
        }
    }
}
