//! The grammar: from tokens to declarations.

use super::lexer::{Comment, Kind, Token, read};
use super::tags::{as_name, tag_of, twice};
use super::{Constant, DEPTH, Decl, Doc, Field, File, Function, Type};

/// Reads a file.
///
/// # Errors
/// The line, and the expected token there.
pub(in crate::migrate) fn parse(text: &str) -> Result<File, (usize, String)> {
    let (tokens, comments) = read(text)?;
    let markers = comments.iter().filter(|comment| !comment.trails);
    let markers = markers
        .flat_map(|comment| &comment.text)
        .filter_map(|line| line.trim().strip_prefix('+'));
    let mut file = File {
        markers: markers.map(|marker| marker.trim_end().to_owned()).collect(),
        ..File::default()
    };
    let mut parser = Parser {
        tokens,
        comments,
        at: 0,
        wrong_tags: Vec::new(),
    };
    parser.file(&mut file)?;
    file.wrong_tags = parser.wrong_tags;
    Ok(file)
}

struct Parser {
    tokens: Vec<Token>,
    comments: Vec<Comment>,
    at: usize,
    wrong_tags: Vec<(usize, String)>,
}

type Read<T> = Result<T, (usize, String)>;

impl Parser {
    fn line(&self) -> usize {
        self.tokens
            .get(self.at)
            .or(self.tokens.last())
            .map_or(1, |token| token.line)
    }

    fn peek(&self) -> Option<&Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    fn next(&mut self) -> Option<Kind> {
        let kind = self.peek().cloned();
        self.at += 1;
        kind
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Kind::Sign(there)) if *there == sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Kind::Word(there)) if there == word)
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is = self.is_sign(sign);
        self.at += usize::from(is);
        is
    }

    fn wanted<T>(&self, what: &str) -> Read<T> {
        let there = match self.peek() {
            Some(Kind::Word(word)) => word.clone(),
            Some(Kind::Text(_)) => "a string".to_owned(),
            Some(Kind::Literal(literal)) => literal.clone(),
            Some(Kind::Sign(sign)) => (*sign).to_owned(),
            Some(Kind::End) => "the end of the line".to_owned(),
            None => "the end of the file".to_owned(),
        };
        Err((self.line(), format!("{what} is expected, and there is {there}")))
    }

    fn sign(&mut self, sign: &str) -> Read<()> {
        if self.take_sign(sign) {
            Ok(())
        } else {
            self.wanted(sign)
        }
    }

    fn word(&mut self) -> Read<String> {
        match self.peek() {
            Some(Kind::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => self.wanted("a name"),
        }
    }

    fn ends(&mut self) {
        while matches!(self.peek(), Some(Kind::End)) {
            self.at += 1;
        }
    }

    fn file(&mut self, file: &mut File) -> Read<()> {
        self.ends();
        if !self.is_word("package") {
            return self.wanted("package");
        }
        file.line = self.line();
        file.doc = self.doc(file.line);
        self.at += 1;
        file.package = self.word()?;
        loop {
            self.ends();
            let line = self.line();
            match self.peek().cloned() {
                None => return Ok(()),
                Some(Kind::Word(word)) => match word.as_str() {
                    "import" => self.group(|parser, _| parser.import(file))?,
                    "type" => self.group(|parser, doc| parser.declare(file, doc))?,
                    "const" => {
                        let mut last = None;
                        self.group(|parser, _| parser.constant(file, &mut last))?;
                    }
                    "var" => self.group(|parser, _| parser.skip_line())?,
                    "func" => {
                        let doc = self.doc(line);
                        self.function(file, doc)?;
                    }
                    _ => return self.wanted("a declaration"),
                },
                Some(_) => return self.wanted("a declaration"),
            }
        }
    }

    /// `word X` or `word (X; X)`, each with the comment before it.
    fn group(&mut self, mut one: impl FnMut(&mut Parser, Doc) -> Read<()>) -> Read<()> {
        let line = self.line();
        self.at += 1;
        if !self.take_sign("(") {
            let doc = self.doc(line);
            return one(self, doc);
        }
        loop {
            self.ends();
            if self.take_sign(")") {
                return Ok(());
            }
            if self.peek().is_none() {
                return self.wanted(")");
            }
            let doc = self.doc(self.line());
            one(self, doc)?;
        }
    }

    fn import(&mut self, file: &mut File) -> Read<()> {
        let name = match self.peek() {
            Some(Kind::Word(word)) => Some(word.clone()),
            Some(Kind::Sign(".")) => Some(".".to_owned()),
            _ => None,
        };
        self.at += usize::from(name.is_some());
        let Some(Kind::Text(path)) = self.next() else {
            self.at -= 1;
            return self.wanted("the path of a package");
        };
        let name = name.unwrap_or_else(|| guessed(&path));
        file.imports.insert(name, path);
        Ok(())
    }

    fn declare(&mut self, file: &mut File, doc: Doc) -> Read<()> {
        let line = self.line();
        let name = self.word()?;
        let mut is_generic = false;
        // `type A[T any] …`, but not `type A []T` and `type A [3]T`.
        if self.is_sign("[")
            && matches!(
                self.tokens.get(self.at + 1).map(|token| &token.kind),
                Some(Kind::Word(_))
            )
        {
            is_generic = true;
            self.balanced()?;
        }
        self.take_sign("=");
        let of = self.kind(0)?;
        file.types.push(Decl {
            name,
            of,
            is_generic,
            doc,
            line,
        });
        Ok(())
    }

    fn constant(&mut self, file: &mut File, last: &mut Option<String>) -> Read<()> {
        let name = self.word()?;
        let mut of = None;
        if let Some(Kind::Word(word)) = self.peek().cloned() {
            of = Some(word);
            self.at += 1;
            if self.take_sign(".") {
                of = None;
                self.at += 1;
            }
        }
        if self.take_sign("=") {
            let mut text = None;
            if let Some(Kind::Text(value)) = self.peek() {
                text = Some(value.clone());
            } else if let Some(Kind::Word(word)) = self.peek().cloned()
                && let (Some(Kind::Sign("(")), Some(Kind::Text(value))) = (
                    self.tokens.get(self.at + 1).map(|token| &token.kind),
                    self.tokens.get(self.at + 2).map(|token| &token.kind),
                )
            {
                // `Low = Level("low")`.
                of = of.or(Some(word));
                text = Some(value.clone());
            }
            last.clone_from(&of);
            if let Some(of) = &of {
                *file.counted.entry(of.clone()).or_default() += 1;
            }
            if let Some(text) = text {
                file.constants.push(Constant { name, of, text });
            }
        } else if let Some(of) = last {
            // As the line before: `B` below `A Level = iota`.
            *file.counted.entry(of.clone()).or_default() += 1;
        }
        self.skip_line()
    }

    /// To the end of the statement, over the text in brackets.
    fn skip_line(&mut self) -> Read<()> {
        loop {
            match self.peek() {
                None | Some(Kind::End) => return Ok(()),
                Some(Kind::Sign(")")) => return Ok(()),
                Some(Kind::Sign("(" | "[" | "{")) => self.balanced()?,
                Some(_) => self.at += 1,
            }
        }
    }

    /// To the end of a type, behind which a field may have its tag.
    fn skip_type(&mut self) -> Read<()> {
        loop {
            match self.peek() {
                None | Some(Kind::End | Kind::Text(_) | Kind::Sign(")" | "]" | "}" | "," | "=")) => return Ok(()),
                Some(Kind::Sign("(" | "[" | "{")) => self.balanced()?,
                Some(_) => self.at += 1,
            }
        }
    }

    /// Over a bracket and all that it holds.
    fn balanced(&mut self) -> Read<()> {
        let begun = self.line();
        if !matches!(self.peek(), Some(Kind::Sign("(" | "[" | "{"))) {
            return self.wanted("a bracket");
        }
        let mut depth = 0usize;
        loop {
            match self.next() {
                Some(Kind::Sign("(" | "[" | "{")) => depth += 1,
                Some(Kind::Sign(")" | "]" | "}")) => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                Some(_) => {}
                None => return Err((begun, "a bracket is not closed".to_owned())),
            }
        }
    }

    fn function(&mut self, file: &mut File, doc: Doc) -> Read<()> {
        let start = self.tokens[self.at].span.start;
        self.at += 1;
        let mut receiver = None;
        if self.is_sign("(") {
            let open = self.at;
            self.balanced()?;
            // The last name that is no type parameter: `(r *Name[T])`.
            let inside = &self.tokens[open..self.at];
            let end = inside
                .iter()
                .position(|token| token.kind == Kind::Sign("["))
                .unwrap_or(inside.len());
            receiver = inside[..end].iter().rev().find_map(|token| match &token.kind {
                Kind::Word(word) => Some(word.clone()),
                _ => None,
            });
        }
        let name = self.word()?;
        // Parameters and results end where the body begins, or the line.
        loop {
            match self.peek() {
                None | Some(Kind::End) => break,
                Some(Kind::Sign("{")) => {
                    self.balanced()?;
                    break;
                }
                Some(Kind::Sign("(" | "[")) => self.balanced()?,
                Some(Kind::Word(word)) if word == "interface" || word == "struct" => {
                    self.at += 1;
                    self.balanced()?;
                }
                Some(_) => self.at += 1,
            }
        }
        let end = self.tokens[self.at.saturating_sub(1)].span.end;
        file.functions.push(Function {
            name,
            receiver,
            doc,
            span: start..end,
        });
        Ok(())
    }

    fn kind(&mut self, depth: usize) -> Read<Type> {
        if depth > DEPTH {
            return Err((self.line(), format!("types nest deeper than {DEPTH}")));
        }
        if self.take_sign("*") {
            return Ok(Type::Pointer(Box::new(self.kind(depth + 1)?)));
        }
        if self.take_sign("(") {
            let inner = self.kind(depth + 1)?;
            self.sign(")")?;
            return Ok(inner);
        }
        if self.is_sign("[") {
            let is_slice = matches!(
                self.tokens.get(self.at + 1).map(|token| &token.kind),
                Some(Kind::Sign("]"))
            );
            self.balanced()?;
            let item = self.kind(depth + 1)?;
            return Ok(match is_slice {
                true => Type::List(Box::new(item)),
                false => Type::Array(Box::new(item)),
            });
        }
        // `<-chan T`, from which is only read.
        self.take_sign("<-");
        let name = self.word()?;
        match name.as_str() {
            "map" => {
                self.sign("[")?;
                let key = self.kind(depth + 1)?;
                self.sign("]")?;
                Ok(Type::Map(Box::new(key), Box::new(self.kind(depth + 1)?)))
            }
            "struct" => self.fields(depth),
            "interface" => {
                self.balanced()?;
                Ok(Type::Other("an interface"))
            }
            "func" | "chan" => {
                self.skip_type()?;
                Ok(Type::Other("a function or channel"))
            }
            _ => {
                let mut named = (None, name);
                if self.take_sign(".") {
                    named = (Some(named.1), self.word()?);
                }
                if self.is_sign("[") {
                    self.balanced()?;
                    return Ok(Type::Other("a generic type"));
                }
                Ok(Type::Named {
                    package: named.0,
                    name: named.1,
                })
            }
        }
    }

    fn fields(&mut self, depth: usize) -> Read<Type> {
        self.sign("{")?;
        let mut fields = Vec::new();
        loop {
            self.ends();
            if self.take_sign("}") {
                self.wrong_tags.extend(twice(&fields));
                return Ok(Type::Struct(fields));
            }
            let line = self.line();
            let doc = self.doc(line);
            let mut names = Vec::new();
            let second = self.tokens.get(self.at + 1).map(|token| token.kind.clone());
            let embeds = self.is_sign("*")
                || matches!(second, Some(Kind::End | Kind::Text(_) | Kind::Sign("." | "}")))
                || self.is_generic_alone();
            if !embeds {
                names.push(Some(self.word()?));
                while self.take_sign(",") {
                    names.push(Some(self.word()?));
                }
            } else {
                names.push(None);
            }
            let of = self.kind(depth + 1)?;
            let mut json = None;
            if let Some(Kind::Text(tag)) = self.peek() {
                match tag_of(tag, "json").and_then(as_name) {
                    Ok(found) => json = found,
                    Err(why) => self.wrong_tags.push((self.line(), why)),
                }
                self.at += 1;
            }
            for name in names {
                let (of, json, doc) = (of.clone(), json.clone(), doc.clone());
                fields.push(Field {
                    name,
                    of,
                    json,
                    doc,
                    line,
                });
            }
            if !matches!(self.peek(), Some(Kind::End | Kind::Sign("}"))) {
                return self.wanted("the end of a field");
            }
        }
    }

    /// Whether `Name[T]` stands here and nothing behind it: an embedded type, where `Name []T` is a field.
    fn is_generic_alone(&self) -> bool {
        let mut depth = 0usize;
        for (at, token) in self.tokens.iter().enumerate().skip(self.at + 1) {
            match token.kind {
                Kind::Sign("[" | "(" | "{") => depth += 1,
                Kind::Sign("]" | ")" | "}") => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                let next = self.tokens.get(at + 1).map(|token| &token.kind);
                return token.kind == Kind::Sign("]")
                    && matches!(next, Some(Kind::End | Kind::Text(_) | Kind::Sign("}")));
            }
        }
        false
    }

    /// The comment that ends in the line before, and the markers of the block before that.
    fn doc(&self, line: usize) -> Doc {
        let mut doc = Doc::default();
        let before = |line: usize| {
            self.comments
                .iter()
                .position(|comment| comment.last + 1 == line && !comment.trails)
        };
        let mut top = line;
        let mut lines: Vec<&str> = Vec::new();
        while let Some(at) = before(top) {
            let text = self.comments[at].text.iter().map(String::as_str);
            lines.splice(0..0, text);
            top = self.comments[at].first;
        }
        // The block that stands apart by one empty line counts for its markers, unless code stands between.
        if top > 2
            && let Some(at) = before(top - 1)
            && !self
                .tokens
                .iter()
                .any(|token| token.line == top - 1 || token.line == top - 2)
        {
            let mut apart: Vec<&str> = Vec::new();
            let mut above = top - 1;
            let _ = at;
            while let Some(at) = before(above) {
                apart.splice(0..0, self.comments[at].text.iter().map(String::as_str));
                above = self.comments[at].first;
            }
            doc.markers.extend(
                apart
                    .iter()
                    .filter_map(|line| line.trim().strip_prefix('+'))
                    .map(|marker| marker.trim_end().to_owned()),
            );
        }
        for line in lines {
            match line.trim().strip_prefix('+') {
                Some(marker) => doc.markers.push(marker.trim_end().to_owned()),
                None => doc
                    .text
                    .push(line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()),
            }
        }
        while doc.text.last().is_some_and(String::is_empty) {
            doc.text.pop();
        }
        while doc.text.first().is_some_and(String::is_empty) {
            doc.text.remove(0);
        }
        doc
    }
}

/// The name that a package most likely has: the last part of its path.
fn guessed(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}
