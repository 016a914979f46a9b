//! Questions and answers of DNS as they are sent (RFC 1035).
//!
//! Pure. Invariants: each query gets an answer with its number, or is passed on; what is longer than the asker takes over
//! UDP is left out, and the answer says so (TC), so that it asks again over TCP.

use std::net::IpAddr;

use simple_dns::rdata::{CNAME, OPT, PTR, RData, SOA, SRV, TXT};
use simple_dns::{CLASS, Name, OPCODE, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};

use super::records::{self, Data, Found, Record};
use crate::processes::names::{Names, ZONE};

/// How long an answer may be kept, in seconds (the default of CoreDNS' plugin `kubernetes`).
const TTL: u32 = 5;
/// The most bytes of an answer over UDP: without EDNS, and with it (a size that no network fragments).
const LEAST: u16 = 512;
const MOST: u16 = 1232;
/// Number, flags and counts.
const HEADER: usize = 12;

/// How a message came: its answer may be as long as that allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Udp,
    Tcp,
}

/// What is to be done with a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Answer(Vec<u8>),
    /// Another name server knows.
    Forward,
    /// It is no query.
    Drop,
}

/// Answers a message.
pub(super) fn answer(names: &Names, message: &[u8], way: Way) -> Verdict {
    let Ok(query) = Packet::parse(message) else {
        return malformed(message);
    };
    if query.has_flags(PacketFlag::RESPONSE) {
        return Verdict::Drop;
    }
    let refused = |code| refuse(&query, code);
    if query.opcode() != OPCODE::StandardQuery {
        return refused(RCODE::NotImplemented);
    }
    let [question] = query.questions.as_slice() else {
        return refused(RCODE::FormatError);
    };
    if u16::from(question.qclass) != CLASS::IN as u16 {
        return refused(RCODE::Refused);
    }
    let asked = question.qname.to_string();
    match records::find(names, &asked.to_ascii_lowercase()) {
        Found::Outside => Verdict::Forward,
        Found::Unknown => reply(&query, RCODE::NameError, &[], &asked, way),
        Found::Records(found) => {
            let wanted: Vec<Record> = found
                .into_iter()
                .filter(|(_, data)| fits(data, question.qtype))
                .collect();
            reply(&query, RCODE::NoError, &wanted, &asked, way)
        }
    }
}

/// The answer when no other name server knows, or there are none.
pub(super) fn failed(message: &[u8]) -> Option<Vec<u8>> {
    let query = Packet::parse(message).ok()?;
    match refuse(&query, RCODE::ServerFailure) {
        Verdict::Answer(answer) => Some(answer),
        _ => None,
    }
}

/// An alias answers every question of its name (RFC 1034, 3.6.2).
fn fits(data: &Data, wanted: QTYPE) -> bool {
    let kind = match data {
        Data::Address(IpAddr::V4(_)) => TYPE::A,
        Data::Address(IpAddr::V6(_)) => TYPE::AAAA,
        Data::Service { .. } => TYPE::SRV,
        Data::Pointer(_) => TYPE::PTR,
        Data::Text(_) => TYPE::TXT,
        Data::Alias(_) => return true,
    };
    wanted == QTYPE::ANY || wanted == QTYPE::TYPE(kind)
}

/// What cannot be read is told so, if it is long enough to be a query.
fn malformed(message: &[u8]) -> Verdict {
    let Some((header, _)) = message.split_at_checked(HEADER) else {
        return Verdict::Drop;
    };
    if header[2] & 0x80 != 0 {
        return Verdict::Drop;
    }
    let mut reply = Packet::new_reply(u16::from_be_bytes([header[0], header[1]]));
    *reply.rcode_mut() = RCODE::FormatError;
    reply.build_bytes_vec().map_or(Verdict::Drop, Verdict::Answer)
}

fn refuse(query: &Packet<'_>, code: RCODE) -> Verdict {
    let mut reply = head(query);
    *reply.rcode_mut() = code;
    reply.build_bytes_vec().map_or(Verdict::Drop, Verdict::Answer)
}

/// The number and the questions of a query, as an answer.
fn head<'a>(query: &Packet<'a>) -> Packet<'a> {
    let mut reply = Packet::new_reply(query.id());
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    *reply.opcode_mut() = query.opcode();
    reply.questions = query.questions.clone();
    *reply.opt_mut() = query.opt().map(|_| OPT {
        opt_codes: Vec::new(),
        udp_packet_size: MOST,
        version: 0,
    });
    reply
}

fn reply(query: &Packet<'_>, code: RCODE, records: &[Record], asked: &str, way: Way) -> Verdict {
    let mut reply = head(query);
    reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
    *reply.rcode_mut() = code;
    reply.answers = records.iter().filter_map(|record| written(record, asked)).collect();
    if reply.answers.is_empty() {
        reply.name_servers = vec![authority()];
    }
    let Ok(text) = reply.build_bytes_vec_compressed() else {
        return refuse(query, RCODE::ServerFailure);
    };
    let room = query.opt().map_or(LEAST, |opt| opt.udp_packet_size.clamp(LEAST, MOST));
    if way == Way::Tcp && text.len() <= usize::from(u16::MAX) || text.len() <= usize::from(room) {
        return Verdict::Answer(text);
    }
    let mut short = head(query);
    short.set_flags(PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::TRUNCATION);
    short.build_bytes_vec().map_or(Verdict::Drop, Verdict::Answer)
}

/// A record on the wire. Its name is written as it was asked for: some askers compare letters (RFC draft `dns0x20`).
fn written<'a>((name, data): &'a Record, asked: &'a str) -> Option<ResourceRecord<'a>> {
    let name = if name.eq_ignore_ascii_case(asked) { asked } else { name };
    let data = match data {
        Data::Address(IpAddr::V4(ip)) => RData::A((*ip).into()),
        Data::Address(IpAddr::V6(ip)) => RData::AAAA((*ip).into()),
        Data::Service { port, target } => RData::SRV(SRV {
            priority: 0,
            weight: 100,
            port: *port,
            target: Name::new(target).ok()?,
        }),
        Data::Alias(of) => RData::CNAME(CNAME(Name::new(of).ok()?)),
        Data::Pointer(to) => RData::PTR(PTR(Name::new(to).ok()?)),
        Data::Text(text) => RData::TXT(TXT::new().with_string(text).ok()?),
    };
    Some(ResourceRecord::new(Name::new(name).ok()?, CLASS::IN, TTL, data))
}

/// Says for how long a name is not there.
fn authority() -> ResourceRecord<'static> {
    let soa = SOA {
        mname: Name::new_unchecked("ns.dns.cluster.local"),
        rname: Name::new_unchecked("hostmaster.cluster.local"),
        serial: 1,
        refresh: 7200,
        retry: 1800,
        expire: 86_400,
        minimum: TTL,
    };
    ResourceRecord::new(Name::new_unchecked(ZONE), CLASS::IN, TTL, RData::SOA(soa))
}

#[cfg(test)]
mod tests {
    use kubewright::Request;
    use simple_dns::Question;

    use super::*;
    use crate::processes::names::{Backend, Entry};

    fn query(name: &str, kind: TYPE, size: Option<u16>) -> Vec<u8> {
        let mut query = Packet::new_query(7);
        query.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new(name).expect("a name");
        query.questions = vec![Question::new(name, kind.into(), CLASS::IN.into(), false)];
        *query.opt_mut() = size.map(|udp_packet_size| OPT {
            opt_codes: vec![],
            udp_packet_size,
            version: 0,
        });
        query.build_bytes_vec().expect("a query")
    }

    /// A Service with one address, and a headless one with 100 endpoints.
    fn names() -> Names {
        let mut names = Names::default();
        let web = Entry::Address {
            ip: "127.9.128.7".parse().expect("an address"),
            ports: vec![],
        };
        names.set(&Request::new(Some("shop"), "web"), Some(web));
        let backend = |last: u8| Backend {
            ip: IpAddr::from([127, 9, 0, last]),
            hostname: None,
            ports: vec![],
        };
        names.set(
            &Request::new(Some("shop"), "many"),
            Some(Entry::Headless((0..100).map(backend).collect())),
        );
        names
    }

    #[test]
    fn answers() {
        let names = names();
        let check = |message: &[u8], way: Way, expected: &str| {
            let told = match answer(&names, message, way) {
                Verdict::Answer(text) => {
                    let reply = Packet::parse(&text).expect("it can be read");
                    assert!(reply.has_flags(PacketFlag::RESPONSE) && reply.id() == 7);
                    let short = if reply.has_flags(PacketFlag::TRUNCATION) {
                        " TC"
                    } else {
                        ""
                    };
                    let names = reply
                        .answers
                        .first()
                        .map(|first| format!(" {}", first.name))
                        .unwrap_or_default();
                    let (answers, authorities) = (reply.answers.len(), reply.name_servers.len());
                    format!("{:?} {answers} {authorities}{short}{names}", reply.rcode())
                }
                other => format!("{other:?}"),
            };
            assert_eq!(told, expected);
        };
        let (web, many) = ("Web.shop.svc.cluster.local", "many.shop.svc.cluster.local");
        check(
            &query(web, TYPE::A, None),
            Way::Udp,
            "NoError 1 0 Web.shop.svc.cluster.local",
        );
        check(&query(web, TYPE::AAAA, None), Way::Udp, "NoError 0 1");
        check(
            &query("gone.shop.svc.cluster.local", TYPE::A, None),
            Way::Udp,
            "NameError 0 1",
        );
        check(&query("example.com", TYPE::A, None), Way::Udp, "Forward");
        check(&query(many, TYPE::A, None), Way::Udp, "NoError 0 0 TC");
        check(&query(many, TYPE::A, Some(u16::MAX)), Way::Udp, "NoError 0 0 TC");
        check(
            &query(many, TYPE::A, None),
            Way::Tcp,
            "NoError 100 0 many.shop.svc.cluster.local",
        );
        let mut status = query(web, TYPE::A, None);
        status[2] |= 0x10;
        check(&status, Way::Udp, "NotImplemented 0 0");
        let mut reply = query(web, TYPE::A, None);
        reply[2] |= 0x80;
        check(&reply, Way::Udp, "Drop");
        let whole = query(web, TYPE::A, None);
        check(&whole[..whole.len() - 1], Way::Udp, "FormatError 0 0");
        check(&whole[..HEADER - 1], Way::Udp, "Drop");
        let failed = failed(&query("example.com", TYPE::A, None)).expect("an answer");
        assert_eq!(
            Packet::parse(&failed).expect("it can be read").rcode(),
            RCODE::ServerFailure
        );
    }

    proptest::proptest! {
        // More of them: PROPTEST_CASES.
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: proptest::prelude::ProptestConfig::default().cases.max(4096),
            ..Default::default()
        })]
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..1024)) {
            let _ = (answer(&names(), &bytes, Way::Udp), failed(&bytes));
        }
    }
}
