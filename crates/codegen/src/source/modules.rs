//! `mod` and `use` items at the top of a file, in the order in which rustfmt keeps them.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::str::Chars;

use syn::spanned::Spanned;
use syn::{Item, UseTree, Visibility};

use super::Source;

impl Source {
    /// Declares a public module, unless the file has one of that name.
    pub fn add_module(&mut self, name: &str) {
        self.declare_module(name, true);
    }

    /// The same for a private module, as a program has it.
    pub fn add_private_module(&mut self, name: &str) {
        self.declare_module(name, false);
    }

    fn declare_module(&mut self, name: &str, public: bool) {
        if self.has_module(name) {
            return;
        }
        let line = format!("{}mod {name};", if public { "pub " } else { "" });
        self.add_item(&line, name, |item| match item {
            Item::Mod(module) if module.content.is_none() && is_public(&module.vis) == public => {
                Some(module.ident.to_string())
            }
            _ => None,
        });
    }

    /// Whether the file has a module of this name.
    #[must_use]
    pub fn has_module(&self, name: &str) -> bool {
        self.modules().any(|module| module == name)
    }

    /// The names of the file's modules.
    pub fn modules(&self) -> impl Iterator<Item = String> {
        self.file.items.iter().filter_map(|item| match item {
            Item::Mod(module) => Some(module.ident.to_string()),
            _ => None,
        })
    }

    /// Takes a module declaration out. Answers whether there was one.
    pub fn remove_module(&mut self, name: &str) -> bool {
        self.remove_item(|item| matches!(item, Item::Mod(module) if module.content.is_none() && module.ident == name))
    }

    /// Names the items of a module again (`pub use guestbook_types::{…};`), unless the file does so in some way.
    pub fn add_reexport(&mut self, module: &str, line: &str) {
        if self
            .file
            .items
            .iter()
            .any(|item| used_module(item).as_deref() == Some(module))
        {
            return;
        }
        self.add_item(line, module, |item| match item {
            Item::Use(used) if is_public(&used.vis) => used_module(item),
            _ => None,
        });
    }

    /// Takes `pub use module::…;` out. Answers whether there was one.
    pub fn remove_reexport(&mut self, module: &str) -> bool {
        self.remove_item(|item| used_module(item).as_deref() == Some(module))
    }

    /// Puts a line into the block of items that `name_of` knows, in order; without such a block, after the opening of
    /// the file.
    fn add_item(&mut self, line: &str, name: &str, name_of: impl Fn(&Item) -> Option<String>) {
        let named: Vec<(String, &Item)> = self
            .file
            .items
            .iter()
            .filter_map(|item| name_of(item).map(|name| (name, item)))
            .collect();
        let next = named
            .iter()
            .find(|(other, _)| name_order(name, other) == Ordering::Less);
        if let Some((_, item)) = next {
            let at = item.span().byte_range().start;
            return self.replace(at..at, &format!("{line}\n"));
        }
        if let Some((_, last)) = named.last() {
            let at = last.span().byte_range().end;
            return self.replace(at..at, &format!("\n{line}"));
        }
        let uses = self.file.items.iter().take_while(|item| {
            matches!(item, Item::Use(_)) || matches!(item, Item::Mod(module) if module.content.is_none())
        });
        let opening = uses
            .last()
            .map(syn::Item::span)
            .or_else(|| self.file.attrs.last().map(Spanned::span));
        match opening {
            Some(span) => {
                let at = span.byte_range().end;
                // The span of a `//!` line may or may not hold its line break.
                let at = self.text[..at].trim_end().len();
                let tail = if self.text[at..].starts_with(['\n', '\r']) {
                    ""
                } else {
                    "\n"
                };
                self.replace(at..at, &format!("\n\n{line}{tail}"));
            }
            None if self.text.trim().is_empty() => {
                let end = self.text.len();
                self.replace(0..end, &format!("{line}\n"));
            }
            None => self.replace(0..0, &format!("{line}\n\n")),
        }
    }

    fn remove_item(&mut self, is_it: impl Fn(&Item) -> bool) -> bool {
        let Some(item) = self.file.items.iter().find(|item| is_it(item)) else {
            return false;
        };
        let mut range = self.whole_lines(item.span().byte_range());
        // A block of one line takes the blank line above it along.
        let before = &self.text[..range.start];
        let after = &self.text[range.end..];
        let alone = before.ends_with("\n\n") && (after.is_empty() || after.starts_with('\n'));
        if alone {
            range.start -= 1;
        }
        self.replace(range, "");
        true
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The first segment of the path of a `use` item.
fn used_module(item: &Item) -> Option<String> {
    let Item::Use(used) = item else { return None };
    let mut tree = &used.tree;
    loop {
        match tree {
            UseTree::Path(path) if path.ident == "self" => tree = &path.tree,
            UseTree::Path(path) => return Some(path.ident.to_string()),
            _ => return None,
        }
    }
}

/// The order in which rustfmt (style edition 2024) sorts names: numbers by their value, `_` before letters and digits.
///
/// ```
/// use std::cmp::Ordering;
/// use kubewright_codegen::source::name_order;
/// assert_eq!(name_order("v2", "v10"), Ordering::Less);
/// assert_eq!(name_order("v1", "v1beta1"), Ordering::Less);
/// ```
#[must_use]
pub fn name_order(left: &str, right: &str) -> Ordering {
    let (mut a, mut b) = (left.chars().peekable(), right.chars().peekable());
    loop {
        let (Some(x), Some(y)) = (a.peek().copied(), b.peek().copied()) else {
            return a.count().cmp(&b.count()).then_with(|| left.cmp(right));
        };
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let (m, n) = (number(&mut a), number(&mut b));
            // Without leading zeros the longer number is the greater one.
            m.len().cmp(&n.len()).then_with(|| m.cmp(&n))
        } else {
            a.next();
            b.next();
            let rank = |c: char| if c == '_' { ' ' } else { c };
            rank(x).cmp(&rank(y))
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

fn number(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut digits = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    digits.trim_start_matches('0').to_owned()
}
