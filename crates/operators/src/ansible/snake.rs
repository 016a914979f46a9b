//! Names of a spec as Ansible's variables: `replicaCount` becomes `replica_count`.
//!
//! The rules are those of ansible-operator (`paramconv.ToSnake`), down to the corners, because roles use the names. Where
//! several of the special words are in one name, it treats them in any order; here they have one.

use serde_json::{Map, Value};

/// Words that are taken as a whole, also in the plural: `podIPs` becomes `pod_ips`.
const SPECIAL: &[&str] = &["HTTP", "URL", "IP"];

/// A name in snake case.
///
/// ```
/// use kubewright_operators::ansible::snake::name;
/// assert_eq!(name("replicaCount"), "replica_count");
/// assert_eq!(name("sizeK8sBuckets"), "size_k8s_buckets");
/// ```
#[must_use]
pub fn name(text: &str) -> String {
    let text = spaced_numbers(text);
    let text = text.trim_matches(' ');
    let capital = text.starts_with(|c: char| c.is_ascii_uppercase());
    let letters: Vec<char> = isolated(text.to_owned()).chars().collect();
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    for (at, letter) in letters.iter().copied().enumerate() {
        let next = letters.get(at + 1).copied().unwrap_or_default();
        let turns = letter.is_ascii_uppercase() && next.is_ascii_lowercase()
            || letter.is_ascii_lowercase() && next.is_ascii_uppercase();
        if !word.is_empty() && turns {
            if letter.is_ascii_uppercase() {
                words.push(std::mem::take(&mut word));
                word.push(letter);
            } else {
                word.push(letter);
                words.push(std::mem::take(&mut word));
            }
        } else if " _-".contains(letter) {
            words.push(std::mem::take(&mut word));
        } else {
            word.push(letter);
        }
    }
    words.push(word);
    let joined = words.join("_").to_lowercase();
    let special = words
        .first()
        .is_some_and(|first| SPECIAL.iter().any(|special| special.eq_ignore_ascii_case(first)));
    match capital && !special {
        true => format!("_{joined}"),
        false => joined,
    }
}

/// All names of a map, at every depth.
#[must_use]
pub fn names(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter().map(|(key, value)| (name(key), below(value))).collect()
}

fn below(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(names(map)),
        Value::Array(list) => Value::Array(list.iter().map(below).collect()),
        scalar => scalar.clone(),
    }
}

/// `a1b2` as `a 1 b2`: a letter, digits, a letter, digits.
fn spaced_numbers(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let run = |from: usize| letters[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    let is_letter = |at: usize| letters.get(at).is_some_and(char::is_ascii_alphabetic);
    let (mut out, mut at) = (String::new(), 0);
    while at < letters.len() {
        let digits = if is_letter(at) { run(at + 1) } else { 0 };
        let second = at + 1 + digits;
        let more = if digits > 0 && is_letter(second) {
            run(second + 1)
        } else {
            0
        };
        if more == 0 {
            out.push(letters[at]);
            at += 1;
            continue;
        }
        out.push(letters[at]);
        out.push(' ');
        out.extend(&letters[at + 1..second]);
        out.push(' ');
        out.extend(&letters[second..=second + more]);
        at = second + more + 1;
    }
    out
}

/// The name with underscores around its special words.
fn isolated(mut text: String) -> String {
    for word in SPECIAL {
        let Some(at) = text.find(word) else { continue };
        let (before, behind) = (&text[..at], &text[at + word.len()..]);
        text = match (behind, behind.strip_prefix('s')) {
            ("", _) => format!("{before}_{word}"),
            (_, Some("")) => format!("{before}_{word}S"),
            (_, Some(rest)) if at == 0 => format!("{word}S_{rest}"),
            (_, Some(rest)) => format!("{before}_{word}S_{rest}"),
            (rest, None) if at == 0 => format!("{word}_{rest}"),
            (rest, None) => format!("{before}_{word}_{rest}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_those_of_ansible_operator() {
        for (given, expected) in [
            ("", ""),
            ("var", "var"),
            ("888", "888"),
            ("k8s_var", "k8s_var"),
            ("_k8s_var", "_k8s_var"),
            ("k8s var", "k8s_var"),
            ("replicaCount", "replica_count"),
            ("ThisIsIt", "_this_is_it"),
            ("sizeK8sBuckets", "size_k8s_buckets"),
            ("_CanYou_Handle_mixedVars", "_can_you_handle_mixed_vars"),
            ("already_snake_case", "already_snake_case"),
            ("egressIPs", "egress_ips"),
            ("podIPsPool", "pod_ips_pool"),
            ("IPsPool", "_ips_pool"),
            ("IP", "__ip"),
            ("HTTPServer", "http_server"),
            ("httpIP", "http_ip"),
            ("ABC", "_abc"),
            ("aB", "ab"),
            ("aBc", "a_bc"),
            ("aBCd", "ab_cd"),
            ("serviceIP", "service_ip"),
            ("loadBalancerIP", "load_balancer_ip"),
            ("IPAddress", "ip_address"),
            ("externalURL", "external_url"),
            ("baseURLPath", "base_url_path"),
            ("JSONData", "_json_data"),
            ("userID", "user_id"),
            ("a1b2", "a_1_b2"),
            ("some-name", "some_name"),
            ("ünderScore", "ünder_score"),
        ] {
            assert_eq!(name(given), expected, "{given:?}");
        }
    }

    #[test]
    fn every_depth_is_converted_and_values_are_not() {
        let spec = json!({"newParameter": {"moreOfIt": [{"andMore": "keptAsItIs"}, 1]}});
        let converted = names(spec.as_object().expect("a map"));
        assert_eq!(
            Value::Object(converted),
            json!({"new_parameter": {"more_of_it": [{"and_more": "keptAsItIs"}, 1]}})
        );
    }
}
