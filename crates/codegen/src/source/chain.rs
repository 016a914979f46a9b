//! Calls at the end of a function: `Operator::new("shop").crd::<…>().controller(…)`.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Expr, Item, ItemFn, Stmt};

use super::{Source, contains, flat_text};

/// rustfmt's `chain_width` and `max_width`.
const CHAIN: usize = 60;
const LINE: usize = 100;

/// The last expression of a function, taken apart.
struct Chain {
    /// The receiver of the calls.
    root: std::ops::Range<usize>,
    /// From each dot to the end of its call.
    calls: Vec<std::ops::Range<usize>>,
}

impl Source {
    /// Continues the chain of calls that a function ends in, unless the function makes this call already. `call` is
    /// written without the dot.
    ///
    /// # Errors
    /// When there is no such function, or it does not end in something that can be continued.
    pub fn append_call(&mut self, function: &str, call: &str) -> Result<(), crate::Diagnostic> {
        self.insert_call(function, call, None)
    }

    /// The same, before the first call of the method `before`, if there is one.
    ///
    /// # Errors
    /// As [`Source::append_call`].
    pub fn insert_call(&mut self, function: &str, call: &str, before: Option<&str>) -> Result<(), crate::Diagnostic> {
        let call = format!(".{call}");
        let attempted = format!("cannot add `{call}` to fn {function}() in {}", self.path);
        let Some(item) = self.function(function) else {
            let last = self.text.lines().count().max(1);
            return Err(self.rewritten(
                &attempted,
                last,
                &format!("the file has no function `{function}`"),
                &call,
            ));
        };
        if contains(&self.text[body(item)], &call) {
            return Ok(());
        }
        let Some(chain) = tail(item).and_then(Chain::of) else {
            let line = item.block.span().end().line;
            return Err(self.rewritten(
                &attempted,
                line,
                &format!("`{function}` does not end in a chain of calls that could be continued"),
                &call,
            ));
        };
        let calls = chain.texts(&self.text);
        let begins = before.map(|method| format!(".{method}("));
        let at = begins
            .and_then(|begins| calls.iter().position(|call| call.starts_with(&begins)))
            .unwrap_or(calls.len());
        self.insert_into(&chain, calls, at, call);
        Ok(())
    }

    /// Takes a call out of the chain that a function ends in. Answers whether it is gone: also when it was not there.
    pub fn remove_call(&mut self, function: &str, call: &str) -> bool {
        let call = format!(".{call}");
        let Some(item) = self.function(function) else {
            return !contains(&self.text, &call);
        };
        let wanted = flat_text(&call);
        let chain = tail(item).and_then(Chain::of);
        if let Some(chain) = chain {
            let calls = chain.texts(&self.text);
            if let Some(at) = calls.iter().position(|text| flat_text(text) == wanted) {
                self.remove_from(&chain, calls, at);
            }
        }
        self.function(function)
            .is_none_or(|item| !contains(&self.text[body(item)], &call))
    }

    /// Whether the function is there.
    #[must_use]
    pub fn has_function(&self, function: &str) -> bool {
        self.function(function).is_some()
    }

    /// The number of calls in the chain that a function ends in; `None` when it does not end in one.
    #[must_use]
    pub fn calls(&self, function: &str) -> Option<usize> {
        Some(self.function(function).and_then(tail).and_then(Chain::of)?.calls.len())
    }

    /// Puts an item with its comments before a function, with a blank line between; at the end when there is no such
    /// function.
    pub fn insert_before(&mut self, function: &str, item: &str) {
        match self.function(function).map(|found| found.span().byte_range().start) {
            Some(at) => self.replace(at..at, &format!("{}\n\n", item.trim())),
            None => self.append_item(item),
        }
    }

    /// Puts an item with its comments before a type, with a blank line between; at the end when there is no such type.
    pub fn insert_before_type(&mut self, name: &str, item: &str) {
        let found = self
            .file
            .items
            .iter()
            .find(|item| matches!(item, Item::Struct(found) if found.ident == name));
        let Some(at) = found.map(|item| item.span().byte_range().start) else {
            return self.append_item(item);
        };
        self.replace(at..at, &format!("{}\n\n", item.trim()));
    }

    /// Puts an item with its comments at the end.
    pub fn append_item(&mut self, item: &str) {
        let range = self.text.trim_end().len()..self.text.len();
        self.replace(range, &format!("\n\n{}\n", item.trim()));
    }

    /// Takes a function out, with its comments. Answers whether there was one.
    pub fn remove_function(&mut self, function: &str) -> bool {
        self.remove_block(|item| matches!(item, Item::Fn(found) if found.sig.ident == function))
    }

    /// Takes a type and its implementations out, with their comments.
    pub fn remove_type(&mut self, name: &str) {
        while self.remove_block(|item| match item {
            Item::Struct(found) => found.ident == name,
            Item::Impl(found) => matches!(&*found.self_ty, syn::Type::Path(path) if path.path.is_ident(name)),
            _ => false,
        }) {}
    }

    /// Whether the file has a type of this name.
    #[must_use]
    pub fn has_type(&self, name: &str) -> bool {
        self.file.items.iter().any(|item| match item {
            Item::Struct(found) => found.ident == name,
            Item::Enum(found) => found.ident == name,
            Item::Type(found) => found.ident == name,
            _ => false,
        })
    }

    fn remove_block(&mut self, is_it: impl Fn(&Item) -> bool) -> bool {
        let Some(item) = self.file.items.iter().find(|item| is_it(item)) else {
            return false;
        };
        let mut range = self.whole_lines(item.span().byte_range());
        if self.text[range.end..].starts_with('\n') {
            range.end += 1;
        } else if self.text[..range.start].ends_with("\n\n") {
            range.start -= 1;
        }
        self.replace(range, "");
        true
    }

    fn function(&self, name: &str) -> Option<&ItemFn> {
        self.file.items.iter().find_map(|item| match item {
            Item::Fn(function) if function.sig.ident == name => Some(function),
            _ => None,
        })
    }

    fn insert_into(&mut self, chain: &Chain, mut calls: Vec<String>, at: usize, call: String) {
        if self.is_plain(chain) {
            calls.insert(at, call);
            return self.write_chain(chain, &calls);
        }
        let indent = self.indent_at(chain.root.start).to_owned();
        match chain.calls.get(at) {
            Some(next) => self.replace(next.start..next.start, &format!("{call}\n{indent}    ")),
            None => {
                let end = chain.end();
                self.replace(end..end, &format!("\n{indent}    {call}"));
            }
        }
    }

    fn remove_from(&mut self, chain: &Chain, mut calls: Vec<String>, at: usize) {
        if self.is_plain(chain) {
            calls.remove(at);
            return self.write_chain(chain, &calls);
        }
        let range = self.whole_lines(chain.calls[at].clone());
        self.replace(range, "");
    }

    /// Whether nothing but white space stands between the calls: then the whole chain may be laid out anew.
    fn is_plain(&self, chain: &Chain) -> bool {
        let ends = std::iter::once(chain.root.end).chain(chain.calls.iter().map(|call| call.end));
        ends.zip(&chain.calls)
            .all(|(end, call)| self.text[end..call.start].trim().is_empty())
    }

    fn write_chain(&mut self, chain: &Chain, calls: &[String]) {
        let indent = self.indent_at(chain.root.start).to_owned();
        let root = self.text[chain.root.clone()].to_owned();
        self.replace(chain.root.start..chain.end(), &layout_chain(&root, calls, &indent));
    }
}

/// A chain of calls as rustfmt lays it out: on one line when it is short, else each call on a line of its own.
#[must_use]
pub fn layout_chain(root: &str, calls: &[String], indent: &str) -> String {
    let line = root.to_owned() + &calls.concat();
    let budget = if calls.len() <= 1 { LINE - indent.len() } else { CHAIN };
    if !line.contains('\n') && line.chars().count() <= budget {
        return line;
    }
    let mut text = root.to_owned();
    // A root that is no wider than the indentation takes the first call along.
    let (joined, rest) = calls.split_at(usize::from(root.len() <= 4 && !calls.is_empty()));
    text.push_str(&joined.concat());
    for call in rest {
        text.push_str(&format!("\n{indent}    {call}"));
    }
    text
}

/// The text between the braces of a function.
fn body(item: &ItemFn) -> std::ops::Range<usize> {
    item.block.span().byte_range()
}

fn tail(item: &ItemFn) -> Option<&Expr> {
    match item.block.stmts.last()? {
        Stmt::Expr(expression, None) => Some(expression),
        _ => None,
    }
}

impl Chain {
    fn of(expression: &Expr) -> Option<Chain> {
        let mut calls = Vec::new();
        let mut at = expression;
        while let Expr::MethodCall(call) = at {
            let span: Span = call.paren_token.span.close();
            calls.push(call.dot_token.span().byte_range().start..span.byte_range().end);
            at = &call.receiver;
        }
        calls.reverse();
        match at {
            Expr::Call(_) | Expr::Path(_) | Expr::Paren(_) | Expr::Field(_) | Expr::Struct(_) | Expr::Try(_) => {
                Some(Chain {
                    root: at.span().byte_range(),
                    calls,
                })
            }
            _ => None,
        }
    }

    fn end(&self) -> usize {
        self.calls.last().map_or(self.root.end, |last| last.end)
    }

    fn texts(&self, text: &str) -> Vec<String> {
        self.calls.iter().map(|call| text[call.clone()].to_owned()).collect()
    }
}
