//! An input: its name, the request, and the codes that a server may answer.

/// One row of the table.
pub(crate) struct Input {
    /// Its name, for the page of the book.
    pub(crate) name: String,
    /// The codes that are right.
    pub(crate) answers: &'static [u16],
    /// Made when it is needed: some are large.
    pub(crate) request: Box<dyn Fn() -> Request + Send + Sync>,
}

/// A row.
pub(crate) fn input(
    name: impl Into<String>,
    answers: &'static [u16],
    request: impl Fn() -> Request + Send + Sync + 'static,
) -> Input {
    Input {
        name: name.into(),
        answers,
        request: Box::new(request),
    }
}

/// A request, and those that must come before it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) before: Vec<Request>,
    /// The name of the object that it makes, if it makes one.
    pub(crate) name: Option<String>,
    /// So many clients send it at once.
    pub(crate) clients: usize,
    /// The deletes of the objects before it, where they are large.
    pub(crate) afterwards: Vec<Request>,
}

/// Where this stands in a request, each of its clients says its number.
pub(crate) const NUMBER: &str = "@@";

impl Request {
    fn new(method: &'static str, path: &str) -> Request {
        Request {
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            before: Vec::new(),
            name: None,
            clients: 1,
            afterwards: Vec::new(),
        }
    }

    /// The request at the end.
    pub(crate) fn then(mut self, request: Request) -> Request {
        self.afterwards.push(request);
        self
    }

    /// As each of the clients sends it.
    pub(crate) fn each(&self) -> Vec<Request> {
        let numbered = |text: &str, index: usize| text.replace(NUMBER, &index.to_string());
        let one = |index: usize| Request {
            method: self.method,
            path: numbered(&self.path, index),
            headers: self.headers.clone(),
            body: match std::str::from_utf8(&self.body) {
                Ok(body) if body.contains(NUMBER) => numbered(body, index).into_bytes(),
                _ => self.body.clone(),
            },
            before: Vec::new(),
            name: self.name.as_deref().map(|name| numbered(name, index)),
            clients: 1,
            afterwards: Vec::new(),
        };
        (0..self.clients).map(one).collect()
    }

    fn with_body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self.header("Content-Type", content_type)
    }

    /// One more header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// More of a query.
    pub(crate) fn query(mut self, query: &str) -> Request {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path += query;
        self
    }

    /// The object that has to be there first.
    pub(crate) fn after(mut self, before: Request) -> Request {
        self.before.extend(before.before.iter().cloned());
        self.before.push(Request {
            before: Vec::new(),
            ..before
        });
        self
    }

    /// The path without its query.
    pub(crate) fn plain_path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

pub(crate) fn get(path: &str) -> Request {
    Request::new("GET", path)
}

pub(crate) fn delete(path: &str, options: impl ToString) -> Request {
    Request::new("DELETE", path).with_body("application/json", options.to_string())
}

/// Any method.
pub(crate) fn any(method: &'static str, path: &str, content_type: &str, body: impl Into<Vec<u8>>) -> Request {
    Request::new(method, path).with_body(content_type, body)
}

/// Any body of any type.
pub(crate) fn post(path: &str, content_type: &str, body: impl Into<Vec<u8>>) -> Request {
    Request::new("POST", path).with_body(content_type, body)
}

/// A create of an object of this name.
pub(crate) fn create_as(collection: &str, name: &str, content_type: &str, body: impl Into<Vec<u8>>) -> Request {
    Request {
        name: Some(name.to_owned()),
        ..post(collection, content_type, body)
    }
}

/// The same in JSON.
pub(crate) fn create(collection: &str, name: &str, body: impl ToString) -> Request {
    create_as(collection, name, "application/json", body.to_string())
}

pub(crate) fn merge_patch(path: &str, body: impl ToString) -> Request {
    Request::new("PATCH", path).with_body("application/merge-patch+json", body.to_string())
}

pub(crate) fn json_patch(path: &str, body: impl ToString) -> Request {
    Request::new("PATCH", path).with_body("application/json-patch+json", body.to_string())
}
