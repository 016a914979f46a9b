//! The words of `#[kube(…)]` that a command changes.

use proc_macro2::{TokenStream, TokenTree};
use syn::{Item, Meta};

use super::Source;

impl Source {
    /// Says in `#[kube(kind = "…")]` whether this version of the kind is the stored one. A version is, unless it says
    /// otherwise. Answers whether the attribute is there.
    pub fn set_storage(&mut self, kind: &str, stored: bool) -> bool {
        let Some((tokens, close)) = self.kube_attribute(kind) else {
            return false;
        };
        let word = word_range(tokens.clone(), "storage");
        match (word, stored) {
            (Some(mut range), true) => {
                // With the comma that divides it from the next argument; when there is none, from the one before.
                let after = &self.text[range.end..close];
                let comma = after.len() - after.trim_start_matches([' ', ',']).len();
                if after.trim_matches([' ', ',', '\n', '\r', '\t']).is_empty() {
                    range.start = self.text[..range.start].trim_end().trim_end_matches(',').len();
                    range.end += after.trim_end().len();
                    self.replace(range, "");
                } else {
                    range.end += comma;
                    let range = self.whole_lines(range);
                    self.replace(range, "");
                }
            }
            (Some(range), false) => self.replace(range, "storage = false"),
            (None, true) => {}
            (None, false) => {
                let before = self.text[..close].trim_end();
                let at = before.len();
                let many_lines = self.text[at..close].contains('\n');
                let comma = if before.ends_with(',') { "" } else { "," };
                let gap = if many_lines {
                    format!("\n{}", self.indent_at(at))
                } else {
                    " ".to_owned()
                };
                self.replace(at..at, &format!("{comma}{gap}storage = false"));
            }
        }
        true
    }

    /// The words of the `kube` attribute that names this kind, and where it closes.
    fn kube_attribute(&self, kind: &str) -> Option<(TokenStream, usize)> {
        let structs = self.file.items.iter().filter_map(|item| match item {
            Item::Struct(found) => Some(&found.attrs),
            _ => None,
        });
        structs.flatten().find_map(|attribute| match &attribute.meta {
            Meta::List(list) if list.path.is_ident("kube") => {
                let range = word_range(list.tokens.clone(), "kind")?;
                let close = list.delimiter.span().close().byte_range().start;
                self.text[range]
                    .contains(&format!("{kind:?}"))
                    .then(|| (list.tokens.clone(), close))
            }
            _ => None,
        })
    }
}

/// Where `word` or `word = value` stands among the words of an attribute.
fn word_range(tokens: TokenStream, word: &str) -> Option<std::ops::Range<usize>> {
    let mut tokens = tokens.into_iter().peekable();
    let mut first = true;
    while let Some(token) = tokens.next() {
        let begins = first;
        first = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',');
        if !begins || !matches!(&token, TokenTree::Ident(ident) if ident == word) {
            continue;
        }
        let mut range = token.span().byte_range();
        while let Some(part) = tokens.next_if(|next| !matches!(next, TokenTree::Punct(punct) if punct.as_char() == ','))
        {
            range.end = part.span().byte_range().end;
        }
        return Some(range);
    }
    None
}
