//! GET: one object, a list, a watch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{NO_PAD, URL_SAFE_NO_PAD};
use kubewright_schema::go::TypeMismatch;
use kubewright_schema::{budget, decode};
use serde_json::{Value, json};

use super::convert::is_current;
use super::lists::{Item, List};
use super::options::{Match, parse_version, version_match};
use super::respond::{Content, Reply};
use super::watch::{Encoder, Form, Selection, WatchStream};
use super::{Call, Inner};
use crate::body::WatchBody;
use crate::model::form;
use crate::model::status::{Details, Status};
use crate::shares::NoShare;
use crate::storage::{Entry, ListRequest, StorageError, StoredObject};
use crate::table;
use crate::wire::negotiate::{Format, Transform};

/// How long a read waits for a version that is not reached, and how often it looks.
const FUTURE_WAIT: Duration = Duration::from_secs(3);
const FUTURE_STEP: Duration = Duration::from_millis(50);
/// A watch that names no time ends after half an hour to an hour (`--min-request-timeout`).
const MIN_WATCH: u64 = 1800;

/// How many objects of a list are opened at once to see whether a selector chooses them.
const LOOK_AT: usize = 1_000;

const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
    without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with \
    the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk \
    was returned and now may show up in the list.";

/// Where a list goes on: the revision of its first page and the last key that was shown.
struct Continue {
    /// `None`: the present revision (an inconsistent continuation).
    revision: Option<u64>,
    after: String,
}

impl Continue {
    fn encode(revision: Option<u64>, prefix: &str, last: &str) -> String {
        let relative = last.strip_prefix(prefix).unwrap_or(last);
        let revision = revision.map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("/{relative}\u{0}")});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(token: &str, prefix: &str) -> Result<Continue, Status> {
        let invalid =
            |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        // Go does not mind bits that are left over.
        const LENIENT: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));
        let bytes = LENIENT.decode(token).map_err(|error| {
            // Where Go's decoder stops.
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(length) => length - length % 4,
                base64::DecodeError::InvalidPadding => token.len(),
            };
            invalid(&format!("illegal base64 data at input byte {at}"))
        })?;
        let value = decode::json(&bytes).map_err(|error| invalid(&error.to_string()))?.value;
        // Null is an empty token.
        if !value.is_object() && !value.is_null() {
            let why = TypeMismatch::new(&value, "storage.continueToken");
            return Err(invalid(&why.to_string()));
        }
        let version = value.get("v").and_then(Value::as_str).unwrap_or("");
        if version != "meta.k8s.io/v1" {
            return Err(invalid(&format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        let revision = match value.get("rv").and_then(Value::as_i64) {
            None | Some(0) => {
                return Err(invalid(
                    "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
                ));
            }
            Some(revision) => u64::try_from(revision).ok(),
        };
        let start = value.get("start").and_then(Value::as_str).unwrap_or("");
        if start.is_empty() {
            return Err(invalid("encoded start key empty (version meta.k8s.io/v1)"));
        }
        // A continue token must not leave the keys that the path covers.
        let relative = start.strip_prefix('/').unwrap_or(start);
        let clean = relative.split('/').all(|part| !["", ".", ".."].contains(&part));
        if !clean {
            return Err(invalid(start));
        }
        Ok(Continue {
            revision,
            after: format!("{prefix}{}", relative.trim_end_matches('\u{0}')),
        })
    }
}

impl Inner {
    /// Waits a little for a revision that is not reached yet (store-R2); the 504 when it does not come.
    async fn wait_for(&self, revision: u64) -> Result<(), Status> {
        let mut waited = Duration::ZERO;
        while self.storage.revision() < revision {
            if waited >= FUTURE_WAIT {
                return Err(Status::too_large_version(revision, self.storage.revision()));
            }
            self.env.sleep(FUTURE_STEP).await;
            waited = waited.saturating_add(FUTURE_STEP);
        }
        Ok(())
    }
}

impl Call<'_> {
    pub(crate) async fn get(&mut self) -> Result<Reply, Status> {
        let stored = self.get_stored().await?;
        Ok(Reply::new(200, Content::Stored(self.resource.clone(), stored)))
    }

    /// The object that the path names, at the version that the query asks for or later.
    pub(crate) async fn get_stored(&self) -> Result<Arc<StoredObject>, Status> {
        let stored = self.get_unshown().await?;
        self.server.show_one(&self.resource, stored).await
    }

    /// The same as it is stored.
    pub(crate) async fn get_unshown(&self) -> Result<Arc<StoredObject>, Status> {
        let version = self.query.get("resourceVersion");
        if !version.is_empty() {
            let version = parse_version(version).map_err(|why| {
                let what = format!("resourceVersion: Invalid value: {version:?}: {why}");
                // A watch cache asks in another place.
                if self.resource.strategy.is_never_cached {
                    Status::bad_request(format!("invalid resource version: {what}"))
                } else {
                    Status::untyped(what)
                }
            })?;
            self.server.wait_for(version).await?;
        }
        let stored = self.server.storage.get(&self.resource.store, &self.key());
        stored.ok_or_else(|| Status::not_found(&self.resource, self.name()))
    }

    /// The selection that the query's selectors make.
    pub(crate) fn selection(&self) -> Result<Selection, Status> {
        let name = if self.path.legacy_watch {
            self.path.name.as_deref()
        } else {
            None
        };
        Selection::parse(
            &self.resource,
            self.query.get("labelSelector"),
            self.query.get("fieldSelector"),
            name,
        )
    }

    /// How the versions of a list or watch go together. Selectors that cannot be read are told first.
    pub(crate) fn version_match(&self, watch: bool) -> Result<Match, Status> {
        version_match(self.query, watch).map_err(|why| {
            let (labels, fields) = (self.query.get("labelSelector"), self.query.get("fieldSelector"));
            Selection::read(labels, fields).err().unwrap_or(why)
        })
    }

    /// The keys that the path covers: those of a namespace, or all.
    fn prefix(&self) -> String {
        form::key(self.namespace(), "")
    }

    /// The objects that the selection matches now.
    pub(crate) async fn present(&self, selection: &Selection) -> Result<(u64, Vec<Arc<StoredObject>>), Status> {
        let request = ListRequest {
            prefix: self.prefix(),
            ..ListRequest::default()
        };
        let listed = self
            .server
            .storage
            .list(&self.resource.store, &request)
            .map_err(|error| Status::untyped(error.to_string()))?;
        let items = listed.items.into_iter().map(|(_, item)| item).collect();
        let items = self.server.show(&self.resource, items).await?;
        let chosen = items.into_iter().filter(|item| selection.shows(item));
        Ok((listed.revision, chosen.collect()))
    }

    pub(crate) async fn list(&mut self) -> Result<Reply, Status> {
        let list = self.listed(None).await?.0;
        Ok(Reply::new(200, Content::List(self.resource.clone(), list)))
    }

    /// The list that the query asks for; pages of `page` objects unless it says otherwise. Also whether it said so.
    pub(crate) async fn listed(&mut self, page: Option<usize>) -> Result<(List, bool), Status> {
        // The numbers are decoded before anything is validated (`Convert_url_Values_To_v1_ListOptions`).
        self.query.number("timeoutSeconds")?;
        let asked = self
            .query
            .number("limit")?
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| *limit > 0);
        let matching = self.version_match(false)?;
        let selection = self.selection()?;
        let limit = asked.or(page);
        let prefix = self.prefix();
        let (at, after, limit) = self.moment(matching, limit, &prefix).await?;
        let request = ListRequest {
            // The rest of a list is never one object (`SelectionPredicate.MatchesSingle` of apiserver): a token may
            // begin behind the only name that is asked for.
            prefix: match &after {
                Some(_) => prefix.clone(),
                None => selection.key_prefix(&prefix, self.resource.namespaced),
            },
            after: after.clone(),
            at,
            // With a selector it is not known how many objects fill the page.
            limit: limit.filter(|_| selection.is_everything()),
        };
        let listed = match self.server.storage.entries(&self.resource.store, &request) {
            Ok(listed) => listed,
            Err(StorageError::Compacted { .. }) => {
                return Err(expired(after.as_deref(), &prefix));
            }
            Err(StorageError::Future { asked, current }) => return Err(Status::too_large_version(asked, current)),
            Err(error) => return Err(Status::untyped(error.to_string())),
        };
        let total = listed.items.len().saturating_add(listed.rest);
        let limit = limit.unwrap_or(usize::MAX);
        // A page ends with the object that fills it; whether anything behind it would be chosen is not looked at.
        let (mut page, mut seen, mut last) = (Vec::new(), 0_usize, None);
        let mut entries = listed.items.into_iter();
        while page.len() < limit && !entries.as_slice().is_empty() {
            let (keys, some): (Vec<_>, Vec<_>) = entries.by_ref().take(LOOK_AT.min(limit)).unzip();
            some.iter()
                .for_each(|entry| budget::allow_stored(entry.encoded().len()));
            for (key, item) in keys.into_iter().zip(self.items(some, &selection).await?) {
                if page.len() >= limit {
                    break;
                }
                seen = seen.saturating_add(1);
                if item.is_chosen(&selection) {
                    last = Some(key);
                    page.push(item);
                }
            }
        }
        let remaining = if page.len() >= limit {
            total.saturating_sub(seen)
        } else {
            0
        };
        let last = last.filter(|_| remaining > 0);
        let list = List {
            resource_version: listed.revision.to_string(),
            continue_token: last.map_or_else(String::new, |last| {
                Continue::encode(Some(listed.revision), &prefix, &last)
            }),
            // With a selector upstream does not know how many are left, and clients know that it may be absent.
            remaining: (remaining > 0 && selection.is_everything()).then_some(remaining),
            items: page,
        };
        Ok((list, asked.is_some()))
    }

    /// These objects as the version of the path shows them. An entry that is sent as it is stored and not selected by
    /// its content is not decoded.
    async fn items(&self, entries: Vec<Arc<Entry>>, selection: &Selection) -> Result<Vec<Item>, Status> {
        let is_everything = selection.is_everything();
        let is_kept =
            |entry: &Arc<Entry>| is_everything && is_current(&self.resource, entry.revision(), entry.encoded());
        let read = entries
            .iter()
            .filter(|entry| !is_kept(entry))
            .map(|entry| entry.object());
        let mut shown = self.server.show(&self.resource, read.collect()).await?.into_iter();
        let items = entries.into_iter().map(|entry| match is_kept(&entry) {
            true => Some(Item::Kept(entry)),
            false => shown.next().map(Item::Read),
        });
        Ok(items.flatten().collect())
    }

    /// At which revision to list, after which key, and how many (store-R1 to store-R5).
    async fn moment(
        &self,
        matching: Match,
        limit: Option<usize>,
        prefix: &str,
    ) -> Result<(Option<u64>, Option<String>, Option<usize>), Status> {
        let (version, token) = (self.query.get("resourceVersion"), self.query.get("continue"));
        if !token.is_empty() {
            let from = Continue::decode(token, prefix)?;
            if !version.is_empty() && version != "0" {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            return Ok((from.revision, Some(from.after), limit));
        }
        if version.is_empty() {
            return Ok((None, None, limit));
        }
        let wanted = parse_version(version).map_err(|why| {
            Status::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {version:?}: {why}"
            ))
        })?;
        self.server.wait_for(wanted).await?;
        Ok(match (wanted, matching) {
            // "Any version" is answered from the cache upstream, which knows no pages.
            (0, _) => (None, None, limit.filter(|_| self.resource.strategy.is_never_cached)),
            (_, Match::Exact) => (Some(wanted), None, limit),
            (_, Match::Unset) if limit.is_some() => (Some(wanted), None, limit),
            _ => (None, None, limit),
        })
    }

    pub(crate) async fn watch(&mut self) -> Result<Reply, Status> {
        let seconds = self.query.number("timeoutSeconds")?;
        self.query.number("limit")?;
        self.version_match(true)?;
        let selection = self.selection()?;
        let form = self.form()?;
        let version = self.query.get("resourceVersion");
        let wanted = match version {
            "" => 0,
            text => parse_version(text)
                .map_err(|why| Status::untyped(format!("resourceVersion: Invalid value: {text:?}: {why}")))?,
        };
        let is_over = seconds.is_some_and(|seconds| seconds < 0);
        let seconds = seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0);
        let timeout = seconds.unwrap_or_else(|| MIN_WATCH + self.server.env.random() % MIN_WATCH);
        let bookmarks = self.query.flag("allowWatchBookmarks");
        let initial_events = self.query.optional_flag("sendInitialEvents");
        let share =
            (self.server.watches.take(self.principal, 1)).map_err(|full| too_many_watches(self.principal, full))?;
        let prefix = selection.key_prefix(&self.prefix(), self.resource.namespaced);
        let store = &self.resource.store;
        let from_state = initial_events.unwrap_or(wanted == 0);
        let encoder = Encoder {
            resource: self.resource.clone(),
            form,
            protobuf: self.output.format == Format::Protobuf,
            env: self.server.env.clone(),
        };
        // A client that waits for a version learns in the stream that it does not come.
        let late = match initial_events {
            Some(true) => self.server.wait_for(wanted).await.err(),
            _ => None,
        };
        let mut stream = if is_over {
            WatchStream::refused(encoder, None)
        } else if let Some(status) = late {
            WatchStream::refused(encoder, Some(&status))
        } else if from_state {
            let (listed, changes) = self.server.storage.list_and_watch(store, &prefix);
            // A watch that begins with the present objects has asked for a bookmark at their end as well
            // (`SetListOptionsDefaults` of apimachinery).
            let end = bookmarks;
            let items = listed.items.into_iter().map(|(_, item)| item).collect();
            let items = self.server.show(&self.resource, items).await?;
            let initial: VecDeque<_> = items.into_iter().filter(|item| selection.shows(item)).collect();
            let held = (self.server.beginnings.take(self.principal, initial.len()))
                .map_err(|full| too_many_beginnings(self.principal, full))?;
            let end = end.then_some(listed.revision);
            WatchStream::new(encoder, selection, changes).with_initial(initial, held, end)
        } else {
            let after = if wanted == 0 {
                self.server.storage.revision()
            } else {
                wanted
            };
            match self.server.storage.watch(store, &prefix, after) {
                Ok(changes) => WatchStream::new(encoder, selection, changes),
                Err(error) => {
                    let oldest = if let StorageError::Compacted { oldest, .. } = error {
                        oldest
                    } else {
                        after
                    };
                    let status = Status::expired(format!("too old resource version: {after} ({oldest})"));
                    WatchStream::refused(encoder, Some(&status))
                }
            }
        };
        if self.resource.custom.is_some() {
            stream = stream.with_conversion(self.server.converter());
        }
        if bookmarks {
            stream = stream.with_bookmarks(self.server.config.bookmark_interval);
        }
        Ok(Reply::new(
            200,
            Content::Watch(WatchBody::new(stream.with_end(Duration::from_secs(timeout), share))),
        ))
    }

    /// The form of watch events.
    fn form(&self) -> Result<Form, Status> {
        if self.output.format == Format::Yaml {
            let accepted = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
            let message = format!("only the following media types are accepted: {accepted}");
            return Err(Status::failure(406, "NotAcceptable", message));
        }
        Ok(match self.output.transform {
            Transform::None => Form::Plain,
            Transform::Partial(version) => Form::Partial(version),
            Transform::PartialList(_) => Form::Lists,
            Transform::Table(version) => {
                let include =
                    table::IncludeObject::parse(self.query.get("includeObject")).map_err(Status::bad_request)?;
                Form::Table {
                    version,
                    include,
                    headers: true,
                }
            }
        })
    }
}

fn too_many_watches(principal: &str, full: NoShare) -> Status {
    let message = format!("too many watches of user {principal:?} are open on this server; close some and try again");
    too_many(message, full)
}

fn too_many_beginnings(principal: &str, full: NoShare) -> Status {
    let message = format!("too many watches of user {principal:?} wait to send the objects that they begin with");
    too_many(message, full)
}

fn too_many(message: String, full: NoShare) -> Status {
    let details = Details {
        retry_after_seconds: full.retry_after_seconds,
        ..Details::default()
    };
    Status::failure(429, "TooManyRequests", message).with_details(details)
}

/// The 410 of a list whose revision is no longer known; with a token that goes on with the present objects.
fn expired(after: Option<&str>, prefix: &str) -> Status {
    match after {
        None => Status::expired("The resourceVersion for the provided list is too old."),
        Some(after) => {
            let mut status = Status::expired(INCONSISTENT);
            let token = Continue::encode(None, prefix, after);
            status.metadata.insert("continue".to_owned(), token.into());
            status
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        for (revision, prefix, last) in [(Some(289), "ns/", "ns/c1"), (None, "", "ns/c1"), (Some(1), "", "x")] {
            let token = Continue::encode(revision, prefix, last);
            let back = Continue::decode(&token, prefix).expect("our own token");
            assert_eq!((back.revision, back.after.as_str()), (revision, last));
        }
        let token = Continue::encode(Some(289), "ns/", "ns/c1");
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).expect("base64")).expect("text");
        assert_eq!(text, "{\"rv\":289,\"start\":\"/c1\\u0000\",\"v\":\"meta.k8s.io/v1\"}");
    }

    #[test]
    fn broken_tokens_are_refused() {
        for token in ["zzz", "e30", "", "=", "IiI", "eyJ2IjoieCJ9"] {
            assert_eq!(
                Continue::decode(token, "").err().map(|status| status.code),
                Some(400),
                "{token}"
            );
        }
    }
}
