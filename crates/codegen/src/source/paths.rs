//! Paths to modules that moved.

use std::ops::Range;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Source;

/// One token of interest, flat: an identifier, `::`, an opening or a closing delimiter, or anything else.
enum Token {
    Name(String, Range<usize>),
    Colons,
    Open(Delimiter),
    Close,
    Other,
}

impl Source {
    /// Renames the beginning of paths: `["crate", "v1"]` to `["crate", "crew", "v1"]`, wherever the first stands as
    /// written, also in macros. A path that is only the last part of a longer one (`other::crate::v1`) is another one
    /// and stays.
    ///
    /// Lists in braces (`use shop_api::{v1, v2}`) are renamed when the first names agree and `braces` is set:
    /// everything in the braces moved.
    pub fn rename_paths(&mut self, from: &[&str], to: &[&str], braces: bool) {
        let mut tokens = Vec::new();
        if let Ok(stream) = self.text.parse::<TokenStream>() {
            flatten(stream, &mut tokens);
        }
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        for at in 0..tokens.len() {
            let continued = at > 0
                && matches!(tokens[at - 1], Token::Colons)
                && at > 1
                && matches!(tokens[at - 2], Token::Name(..));
            if continued {
                continue;
            }
            if let Some(range) = path_at(&tokens[at..], from) {
                edits.push((range, to.join("::")));
            } else if braces
                && let Some((_, first)) = from.split_last()
                && let Some(range) = path_at(&tokens[at..], first)
                && matches!(tokens.get(at + 2 * first.len() - 1), Some(Token::Colons))
                && matches!(tokens.get(at + 2 * first.len()), Some(Token::Open(Delimiter::Brace)))
                && let Some((_, new)) = to.split_last()
            {
                edits.push((range, new.join("::")));
            }
        }
        for (range, with) in edits.into_iter().rev() {
            if self.text[range.clone()] != with {
                self.replace(range, &with);
            }
        }
    }

    /// Mends `super::` in a file that moved one module deeper (`levels` 1) or back (-1), outside of modules written in
    /// the file.
    pub fn shift_super(&mut self, levels: i32) {
        let mut tokens = Vec::new();
        if let Ok(stream) = self.text.parse::<TokenStream>() {
            flatten(stream, &mut tokens);
        }
        let (mut depth, mut modules): (usize, Vec<usize>) = (0, Vec::new());
        let mut edits: Vec<Range<usize>> = Vec::new();
        for at in 0..tokens.len() {
            match &tokens[at] {
                Token::Open(_) => {
                    depth += 1;
                    let is_module = at > 1
                        && matches!(&tokens[at - 1], Token::Name(..))
                        && matches!(&tokens[at - 2], Token::Name(word, _) if word == "mod");
                    if is_module {
                        modules.push(depth);
                    }
                }
                Token::Close => {
                    if modules.last() == Some(&depth) {
                        modules.pop();
                    }
                    depth = depth.saturating_sub(1);
                }
                Token::Name(word, range) if word == "super" => {
                    let first = at == 0 || !matches!(tokens[at - 1], Token::Colons);
                    let leads = path_len(&tokens[at..], "super") > modules.len();
                    if first && leads {
                        edits.push(range.clone());
                    }
                }
                _ => {}
            }
        }
        for range in edits.into_iter().rev() {
            if levels > 0 {
                self.replace(range.start..range.start, "super::");
            } else if self.text[range.end..].starts_with("::super") {
                self.replace(range.start..range.end + 2, "");
            }
        }
    }
}

/// How often a name stands at the beginning of a path.
fn path_len(tokens: &[Token], name: &str) -> usize {
    tokens
        .chunks(2)
        .take_while(|pair| matches!(&pair[0], Token::Name(word, _) if word == name))
        .count()
}

/// The range of `a::b::c`, when the tokens begin with it.
fn path_at(tokens: &[Token], path: &[&str]) -> Option<Range<usize>> {
    let mut range: Option<Range<usize>> = None;
    for (at, wanted) in path.iter().enumerate() {
        if at > 0 && !matches!(tokens.get(2 * at - 1), Some(Token::Colons)) {
            return None;
        }
        match tokens.get(2 * at) {
            Some(Token::Name(word, place)) if word == wanted => {
                let start = range.map_or(place.start, |range| range.start);
                range = Some(start..place.end);
            }
            _ => return None,
        }
    }
    range
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    let mut colon = false;
    for token in stream {
        let half = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ':');
        if half && colon {
            into.pop();
            into.push(Token::Colons);
            colon = false;
            continue;
        }
        colon = half;
        match token {
            TokenTree::Ident(ident) => into.push(Token::Name(ident.to_string(), ident.span().byte_range())),
            TokenTree::Group(group) => {
                into.push(Token::Open(group.delimiter()));
                flatten(group.stream(), into);
                into.push(Token::Close);
            }
            _ => into.push(Token::Other),
        }
    }
}
