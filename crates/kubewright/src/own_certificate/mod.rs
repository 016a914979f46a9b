//! A certificate that the operator makes itself and keeps in a Secret, which its replicas share.
//!
//! One replica writes and the others read: the resourceVersion of the Secret decides who was first, so that it works
//! before there is a leader, which is when the first webhook may be called. A certificate is replaced in steps, and no
//! call fails in between:
//!
//! 1. a new pair is staged beside the one that is served (`next.crt`, `next.key`), and its authority joins `ca.crt`;
//! 2. the API server is told of both authorities (`bundles`), and given a while to pass it on;
//! 3. the staged pair becomes the one that is served; each replica takes it up at its next look.
//!
//! A certificate that is no good (expired, of another authority, for another namespace, swapped by hand) is replaced at
//! once. Invariants: a Secret without our label is not written; a failure is logged once for each reason, tried again,
//! and the served pair stays; the time of day is the manager's, and no look takes for ever: the first one, without which there is no
//! certificate, fails when the API server does not answer.

mod bundles;
mod issue;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use rustls::crypto::CryptoProvider;
use tokio::time::Instant;

use self::bundles::Bundles;
pub(crate) use self::bundles::Served;
use self::issue::Health;
use crate::certificate::{Current, parse};
use crate::client::Client;
use crate::clock::Clock;
use crate::error::Error;
use crate::stop::Stop;

/// How often the Secret and the bundles are looked at.
const LOOK: Duration = Duration::from_secs(10);
/// How long API servers get to learn of a new authority before it is relied on.
const SETTLE: Duration = Duration::from_secs(60);
/// How long the API server may take for one request of a look, its repetitions included.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);
/// How often the first certificate is tried for.
const TRIES: u32 = 10;
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "kubewright");

const AUTHORITIES: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";

/// The contents of the Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Stored {
    authorities: String,
    certificate: String,
    key: String,
    /// The certificate and key that are served next.
    next: Option<(String, String)>,
}

/// The step for the Secret.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Keep,
    /// Make a pair, to be served at once.
    Make(String),
    /// Make a pair, to be served later.
    Stage,
    /// Serve the staged pair.
    Promote,
}

/// Decides. `published`: since when the API server knows the authorities of the Secret.
fn step(kept: Option<&Stored>, judge: impl Fn(&Stored, &str) -> Health, published: Option<Duration>) -> Step {
    let Some(kept) = kept else {
        return Step::Make("there is none yet".to_owned());
    };
    let present = judge(kept, &kept.certificate);
    if let Health::Bad(why) = present {
        return Step::Make(why);
    }
    match &kept.next {
        Some((next, _)) if matches!(judge(kept, next), Health::Bad(_)) => Step::Stage,
        Some(_) if published.is_some_and(|published| published >= SETTLE) => Step::Promote,
        Some(_) => Step::Keep,
        None if present == Health::Ageing => Step::Stage,
        None => Step::Keep,
    }
}

impl Stored {
    fn of(secret: &Secret) -> Option<Stored> {
        let text = |key: &str| {
            let bytes = secret.data.as_ref()?.get(key)?;
            String::from_utf8(bytes.0.clone()).ok()
        };
        Some(Stored {
            authorities: text(AUTHORITIES)?,
            certificate: text(CERTIFICATE)?,
            key: text(KEY)?,
            next: text(NEXT_CERTIFICATE).zip(text(NEXT_KEY)),
        })
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let mut texts = vec![
            (AUTHORITIES, &self.authorities),
            (CERTIFICATE, &self.certificate),
            (KEY, &self.key),
        ];
        if let Some((certificate, key)) = &self.next {
            texts.extend([(NEXT_CERTIFICATE, certificate), (NEXT_KEY, key)]);
        }
        let bytes = |(key, text): (&str, &String)| (key.to_owned(), ByteString(text.clone().into_bytes()));
        texts.into_iter().map(bytes).collect()
    }

    /// The authority of the pair that is served: the first of a bundle that has one or two.
    fn staged(&self, issued: issue::Issued) -> Stored {
        let end = "-----END CERTIFICATE-----\n";
        let first = self
            .authorities
            .split_inclusive(end)
            .find(|part| part.ends_with(end))
            .unwrap_or_default();
        // While a pair is staged, the second is the one that is served.
        let served = match &self.next {
            Some(_) => self.authorities.split_inclusive(end).nth(1).unwrap_or(first),
            None => first,
        };
        Stored {
            authorities: format!("{}{served}", issued.authority),
            next: Some((issued.certificate, issued.key)),
            ..self.clone()
        }
    }
}

/// Keeps the certificate.
struct Rotator {
    client: Client,
    /// Judges what has expired.
    clock: Arc<dyn Clock>,
    name: String,
    namespace: String,
    bundles: Bundles,
    provider: Arc<CryptoProvider>,
    /// The authorities that the API server knows, and since when.
    published: Option<(String, Instant)>,
}

/// Why the certificate could not be looked after.
enum Failure {
    /// Another replica was faster.
    Raced,
    Other(String),
}

impl Rotator {
    /// Looks at the Secret, does the due step, and answers its contents then.
    async fn look(&mut self) -> Result<Stored, Failure> {
        let attempt = |what: &str, error: &dyn std::fmt::Display| {
            Failure::Other(format!(
                "cannot {what} the Secret {}/{}: {error}",
                self.namespace, self.name
            ))
        };
        let found = self.client.live::<Secret>(&self.namespace, &self.name).await;
        let found = found.map_err(|error| attempt("read", &error))?;
        let kept = found.as_ref().and_then(Stored::of);
        let published = self
            .published
            .as_ref()
            .filter(|(published, _)| Some(published) == kept.as_ref().map(|kept| &kept.authorities));
        let published = published.map(|(_, since)| since.elapsed());
        let now = self.clock.now().duration_since(jiff::Timestamp::UNIX_EPOCH);
        let now = Duration::try_from(now).unwrap_or_default();
        let judge = |kept: &Stored, certificate: &str| {
            issue::health(&kept.authorities, certificate, &self.namespace, now, &self.provider)
        };
        let issued = || {
            let issued = issue::issue(&self.namespace, now, issue::LIFETIME);
            issued.map_err(|error| Failure::Other(format!("cannot make a certificate: {error}")))
        };
        let wanted = match (step(kept.as_ref(), judge, published), kept) {
            (Step::Keep, Some(kept)) => return Ok(kept),
            (Step::Make(why), _) => {
                tracing::info!(secret = self.name, why, "a new certificate for webhooks is made");
                let issue::Issued {
                    authority,
                    certificate,
                    key,
                } = issued()?;
                Stored {
                    authorities: authority,
                    certificate,
                    key,
                    next: None,
                }
            }
            (Step::Stage, Some(kept)) => {
                tracing::info!(secret = self.name, "the next certificate for webhooks is made");
                kept.staged(issued()?)
            }
            (Step::Promote, Some(kept)) => {
                tracing::info!(secret = self.name, "the next certificate for webhooks is served");
                let (certificate, key) = kept.next.clone().unwrap_or_default();
                Stored {
                    certificate,
                    key,
                    next: None,
                    ..kept
                }
            }
            (_, None) => return Err(Failure::Raced),
        };
        self.write(found, wanted).await
    }

    async fn write(&self, found: Option<Secret>, wanted: Stored) -> Result<Stored, Failure> {
        let is_ours = |secret: &Secret| {
            secret
                .metadata
                .labels
                .as_ref()
                .and_then(|all| all.get(LABEL.0))
                .map(String::as_str)
                == Some(LABEL.1)
        };
        let written = match found {
            Some(secret) if !is_ours(&secret) => {
                return Err(Failure::Other(format!(
                    "the Secret {}/{} is not ours: it lacks the label {}={}, so it is not written. Delete it, or name another with --webhook-cert-secret",
                    self.namespace, self.name, LABEL.0, LABEL.1
                )));
            }
            Some(mut secret) => {
                secret.data = Some(wanted.data());
                self.client.update(&secret).await
            }
            None => {
                let secret = Secret {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        namespace: Some(self.namespace.clone()),
                        labels: Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into()),
                        ..ObjectMeta::default()
                    },
                    type_: Some("kubernetes.io/tls".to_owned()),
                    data: Some(wanted.data()),
                    ..Secret::default()
                };
                self.client.create(&secret).await
            }
        };
        match written {
            Ok(_) => Ok(wanted),
            Err(Error::Conflict(_)) => Err(Failure::Raced),
            Err(error) if error.is_already_exists() => Err(Failure::Raced),
            Err(error) => Err(Failure::Other(format!(
                "cannot write the Secret {}/{}: {error}",
                self.namespace, self.name
            ))),
        }
    }

    /// Tells the API server of the authorities.
    async fn publish(&mut self, kept: &Stored) -> Result<(), String> {
        self.bundles.write(&kept.authorities).await?;
        if self
            .published
            .as_ref()
            .is_none_or(|(published, _)| *published != kept.authorities)
        {
            self.published = Some((kept.authorities.clone(), Instant::now()));
        }
        Ok(())
    }
}

/// Gets the first certificate, from the Secret or into it. The future keeps it, and the API server's trust, up to date
/// until the stop.
pub(crate) async fn manage(
    client: &Client,
    clock: Arc<dyn Clock>,
    secret: String,
    served: Served,
    provider: Arc<CryptoProvider>,
    stop: Stop,
) -> Result<(Arc<Current>, impl Future<Output = ()> + Send + use<>), String> {
    let client = client.with_request_deadline(DEADLINE);
    let namespace = client.kube().default_namespace().to_owned();
    let mut rotator = Rotator {
        client: client.clone(),
        clock,
        name: secret,
        bundles: Bundles::new(client, &namespace, served),
        namespace,
        provider: provider.clone(),
        published: None,
    };
    let mut tries = 0;
    let kept = loop {
        match rotator.look().await {
            Ok(kept) => break kept,
            Err(Failure::Raced) if tries < TRIES => tries += 1,
            Err(Failure::Raced) => return Err(format!("other replicas keep changing the Secret {}", rotator.name)),
            Err(Failure::Other(why)) => return Err(why),
        }
    };
    let pair = parse_kept(&kept, &provider)?;
    let current = Arc::new(Current::new(pair));
    let resolver = current.clone();
    Ok((current, async move {
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = keep(rotator, kept, provider, resolver) => {}
        }
    }))
}

fn parse_kept(kept: &Stored, provider: &CryptoProvider) -> Result<rustls::sign::CertifiedKey, String> {
    parse(
        [CERTIFICATE, KEY],
        kept.certificate.as_bytes(),
        kept.key.as_bytes(),
        provider,
    )
}

async fn keep(mut rotator: Rotator, mut served: Stored, provider: Arc<CryptoProvider>, current: Arc<Current>) {
    let mut complained = None;
    let mut complain = |error: Option<String>| {
        if error.is_some() && error != complained {
            tracing::warn!(error, "the certificate for webhooks stays as it is");
        }
        complained = error;
    };
    loop {
        match rotator.publish(&served).await {
            Ok(()) => {}
            Err(error) => complain(Some(error)),
        }
        tokio::time::sleep(LOOK).await;
        let kept = match rotator.look().await {
            Ok(kept) => kept,
            Err(Failure::Raced) => continue,
            Err(Failure::Other(error)) => {
                complain(Some(error));
                continue;
            }
        };
        if (&kept.certificate, &kept.key) != (&served.certificate, &served.key) {
            match parse_kept(&kept, &provider) {
                Ok(pair) => {
                    // Clients that were not told of its authority yet must be, first.
                    if let Err(error) = rotator.publish(&kept).await {
                        complain(Some(error));
                    }
                    current.replace(pair);
                    tracing::info!(secret = rotator.name, "the webhook server has a new certificate");
                }
                Err(error) => {
                    complain(Some(error));
                    continue;
                }
            }
        }
        complain(None);
        served = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(next: bool) -> Stored {
        Stored {
            authorities: "a".to_owned(),
            certificate: "present".to_owned(),
            key: "key".to_owned(),
            next: next.then(|| ("next".to_owned(), "key".to_owned())),
        }
    }

    #[test]
    fn certificates_are_replaced_in_steps() {
        let check = |kept: Option<Stored>, present: Health, next: Health, published: Option<u64>, expected: Step| {
            let judge = |_: &Stored, certificate: &str| match certificate {
                "next" => next.clone(),
                _ => present.clone(),
            };
            let published = published.map(Duration::from_secs);
            assert_eq!(
                step(kept.as_ref(), judge, published),
                expected,
                "{kept:?} {present:?} {next:?} {published:?}"
            );
        };
        let bad = || Health::Bad("expired".to_owned());
        let made = |why: &str| Step::Make(why.to_owned());
        check(None, Health::Good, Health::Good, None, made("there is none yet"));
        check(Some(kept(false)), Health::Good, Health::Good, None, Step::Keep);
        check(Some(kept(false)), Health::Ageing, Health::Good, None, Step::Stage);
        check(Some(kept(false)), bad(), Health::Good, None, made("expired"));
        // Nothing is relied on that the API server may not know of.
        check(Some(kept(true)), Health::Ageing, Health::Good, None, Step::Keep);
        check(Some(kept(true)), Health::Ageing, Health::Good, Some(59), Step::Keep);
        check(Some(kept(true)), Health::Ageing, Health::Good, Some(60), Step::Promote);
        check(Some(kept(true)), Health::Ageing, bad(), Some(60), Step::Stage);
        check(Some(kept(true)), bad(), Health::Good, Some(60), made("expired"));
    }

    #[test]
    fn a_bundle_has_the_present_authority_and_the_next() {
        let now = Duration::from_secs(1_800_000_000);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let issued = || issue::issue("shop-system", now, issue::LIFETIME).expect("a certificate");
        let issue::Issued {
            authority,
            certificate,
            key,
        } = issued();
        let mut kept = Stored {
            authorities: authority,
            certificate,
            key,
            next: None,
        };
        let good = |kept: &Stored, certificate: &str| {
            issue::health(&kept.authorities, certificate, "shop-system", now, &provider) == Health::Good
        };
        // Staged twice, for the first attempt may have been in vain; then promoted; and all of it again.
        for _ in 0..2 {
            for _ in 0..2 {
                kept = kept.staged(issued());
                let next = kept.next.clone().map(|(next, _)| next).unwrap_or_default();
                assert!(good(&kept, &kept.certificate) && good(&kept, &next));
            }
            let (certificate, key) = kept.next.take().unwrap_or_default();
            kept = Stored {
                certificate,
                key,
                ..kept
            };
            assert!(good(&kept, &kept.certificate));
            assert_eq!(kept.authorities.matches("BEGIN").count(), 2);
        }
        let secret = Secret {
            data: Some(kept.data()),
            ..Secret::default()
        };
        assert_eq!(Stored::of(&secret), Some(kept));
    }
}
