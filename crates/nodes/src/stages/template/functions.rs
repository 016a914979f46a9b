//! What templates may call: Go's own functions, kwok's (`gotpl`), and of sprig's those that work on values.
//!
//! A function is a line of [`FUNCTIONS`]: its name, how many arguments it takes, and what it does. sprig has the object
//! that a function works on last, so that it can come through a pipe.

use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubewright::k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::print::{decimal, kind, printf, spelled, whole};
use super::run::{MOST, is_true};

/// What templates are told beside their object.
pub(crate) struct Surroundings<'a> {
    /// The time of the cluster.
    pub(crate) now: Timestamp,
    /// When it started.
    pub(crate) started: Timestamp,
    /// The node that the object is, or on which it is.
    pub(crate) node: Option<&'a str>,
    /// The address of a node, by its name.
    pub(crate) node_ip: &'a (dyn Fn(&str) -> String + Sync),
    /// The address of the pod that the object is.
    pub(crate) pod_ip: &'a (dyn Fn() -> String + Sync),
}

type Done = Result<Value, String>;
type Function = fn(&[Value], &Surroundings<'_>) -> Done;

/// As many arguments as one likes.
const ANY: usize = usize::MAX;

pub(super) fn is_known(name: &str) -> bool {
    matches!(name, "and" | "or") || FUNCTIONS.iter().any(|(known, ..)| *known == name)
}

pub(super) fn call(name: &str, arguments: &[Value], around: &Surroundings<'_>) -> Done {
    let Some((_, least, most, function)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
        return Err(format!("function {name:?} not defined"));
    };
    let count = arguments.len();
    if count < *least || count > *most {
        let wanted = match (least, most) {
            (least, most) if least == most => least.to_string(),
            (least, &ANY) => format!("at least {least}"),
            (least, most) => format!("{least} to {most}"),
        };
        return Err(format!("wrong number of args for {name}: want {wanted} got {count}"));
    }
    let result = function(arguments, around)?;
    match &result {
        Value::String(text) if text.len() > MOST => Err(too_long()),
        _ => Ok(result),
    }
}

const FUNCTIONS: &[(&str, usize, usize, Function)] = &[
    // Go's own.
    ("not", 1, 1, |a, _| Ok(Value::Bool(!is_true(&a[0])))),
    ("eq", 2, ANY, |a, _| {
        let mut same = false;
        for other in &a[1..] {
            same |= equal(&a[0], other)?;
        }
        Ok(Value::Bool(same))
    }),
    ("ne", 2, 2, |a, _| equal(&a[0], &a[1]).map(|same| Value::Bool(!same))),
    ("lt", 2, 2, |a, _| compared(a, Ordering::is_lt)),
    ("le", 2, 2, |a, _| compared(a, Ordering::is_le)),
    ("gt", 2, 2, |a, _| compared(a, Ordering::is_gt)),
    ("ge", 2, 2, |a, _| compared(a, Ordering::is_ge)),
    ("index", 1, ANY, |a, _| {
        a[1..].iter().try_fold(a[0].clone(), |value, key| index(&value, key))
    }),
    ("slice", 1, 3, |a, _| slice(a)),
    ("len", 1, 1, |a, _| match &a[0] {
        Value::String(text) => Ok(text.len().into()),
        Value::Array(items) => Ok(items.len().into()),
        Value::Object(map) => Ok(map.len().into()),
        other => Err(format!("len of type {}", kind(other))),
    }),
    ("print", 0, ANY, |a, _| Ok(joined(a, "").into())),
    ("println", 0, ANY, |a, _| Ok(format!("{}\n", joined(a, " ")).into())),
    ("printf", 1, ANY, |a, _| Ok(printf(text(&a[0])?, &a[1..]).into())),
    // kwok's.
    ("Quote", 1, 1, |a, _| Ok(quoted(&a[0]).into())),
    ("Now", 0, 0, |_, around| Ok(around.now.to_string().into())),
    ("StartTime", 0, 0, |_, around| Ok(around.started.to_string().into())),
    ("Version", 0, 0, |_, _| Ok(env!("CARGO_PKG_VERSION").into())),
    ("YAML", 1, 2, |a, _| yaml(&a[0], a.get(1))),
    ("NodeConditions", 0, 0, |_, _| Ok(node_conditions())),
    ("NodeName", 0, 0, |_, around| Ok(around.node.into())),
    ("NodePort", 0, 0, |_, _| Ok(Value::from(0))), // no simulated kubelet listens
    ("NodeIP", 0, 0, |_, around| {
        node(around).map(|name| (around.node_ip)(name).into())
    }),
    ("NodeIPs", 0, 0, |_, around| {
        node(around).map(|name| json!([(around.node_ip)(name)]))
    }),
    (
        "NodeIPWith",
        1,
        1,
        |a, around| Ok((around.node_ip)(text(&a[0])?).into()),
    ),
    ("NodeIPsWith", 1, 1, |a, around| {
        Ok(json!([(around.node_ip)(text(&a[0])?)]))
    }),
    ("PodIPWith", 5, 5, |a, around| pod_ip(a, around).map(Value::from)),
    ("PodIPsWith", 5, 5, |a, around| pod_ip(a, around).map(|ip| json!([ip]))),
    // sprig's: values.
    ("default", 1, 2, |a, _| {
        Ok(a.get(1).filter(|value| is_true(value)).unwrap_or(&a[0]).clone())
    }),
    ("empty", 1, 1, |a, _| Ok(Value::Bool(!is_true(&a[0])))),
    ("coalesce", 0, ANY, |a, _| {
        Ok(a.iter().find(|value| is_true(value)).cloned().into())
    }),
    ("ternary", 3, 3, |a, _| {
        Ok(if is_true(&a[2]) { a[0].clone() } else { a[1].clone() })
    }),
    ("fail", 1, 1, |a, _| Err(spelled(&a[0]))),
    ("kindOf", 1, 1, |a, _| Ok(kind_of(&a[0]).into())),
    ("typeOf", 1, 1, |a, _| Ok(kind(&a[0]).into())),
    ("kindIs", 2, 2, |a, _| Ok(Value::Bool(text(&a[0])? == kind_of(&a[1])))),
    ("toString", 1, 1, |a, _| Ok(spelled(&a[0]).into())),
    ("int", 1, 1, |a, _| Ok(integer(&a[0]).into())),
    ("int64", 1, 1, |a, _| Ok(integer(&a[0]).into())),
    ("float64", 1, 1, |a, _| Ok(float(&a[0]).into())),
    ("toJson", 1, 1, |a, _| Ok(a[0].to_string().into())),
    ("toRawJson", 1, 1, |a, _| Ok(a[0].to_string().into())),
    ("toPrettyJson", 1, 1, |a, _| Ok(format!("{:#}", a[0]).into())),
    ("fromJson", 1, 1, |a, _| {
        serde_json::from_str(text(&a[0])?).map_err(|why| why.to_string())
    }),
    // Texts.
    ("trim", 1, 1, |a, _| Ok(text(&a[0])?.trim().into())),
    ("trimAll", 2, 2, |a, _| {
        Ok(text(&a[1])?.trim_matches(of(text(&a[0])?)).into())
    }),
    ("trimPrefix", 2, 2, |a, _| {
        Ok(text(&a[1])?.strip_prefix(text(&a[0])?).unwrap_or(text(&a[1])?).into())
    }),
    ("trimSuffix", 2, 2, |a, _| {
        Ok(text(&a[1])?.strip_suffix(text(&a[0])?).unwrap_or(text(&a[1])?).into())
    }),
    ("upper", 1, 1, |a, _| Ok(text(&a[0])?.to_uppercase().into())),
    ("lower", 1, 1, |a, _| Ok(text(&a[0])?.to_lowercase().into())),
    ("title", 1, 1, |a, _| Ok(title(text(&a[0])?).into())),
    ("repeat", 2, 2, |a, _| repeat(&a[0], text(&a[1])?)),
    ("substr", 3, 3, |a, _| {
        Ok(substr(integer(&a[0]), integer(&a[1]), text(&a[2])?).into())
    }),
    ("trunc", 2, 2, |a, _| Ok(trunc(integer(&a[0]), text(&a[1])?).into())),
    ("contains", 2, 2, |a, _| {
        Ok(Value::Bool(text(&a[1])?.contains(text(&a[0])?)))
    }),
    ("hasPrefix", 2, 2, |a, _| {
        Ok(Value::Bool(text(&a[1])?.starts_with(text(&a[0])?)))
    }),
    ("hasSuffix", 2, 2, |a, _| {
        Ok(Value::Bool(text(&a[1])?.ends_with(text(&a[0])?)))
    }),
    ("quote", 0, ANY, |a, _| {
        Ok(each(a, |value| Value::from(spelled(value)).to_string()).into())
    }),
    ("squote", 0, ANY, |a, _| {
        Ok(each(a, |value| format!("'{}'", spelled(value))).into())
    }),
    ("cat", 0, ANY, |a, _| Ok(each(a, spelled).into())),
    ("indent", 2, 2, |a, _| indent(&a[0], text(&a[1])?).map(Value::from)),
    ("nindent", 2, 2, |a, _| {
        indent(&a[0], text(&a[1])?).map(|text| format!("\n{text}").into())
    }),
    ("replace", 3, 3, |a, _| {
        replace(text(&a[0])?, text(&a[1])?, text(&a[2])?)
    }),
    ("split", 2, 2, |a, _| {
        let parts = text(&a[1])?.split(text(&a[0])?).enumerate();
        Ok(parts
            .map(|(at, part)| (format!("_{at}"), Value::from(part)))
            .collect::<Map<_, _>>()
            .into())
    }),
    ("splitList", 2, 2, |a, _| {
        Ok(text(&a[1])?.split(text(&a[0])?).map(Value::from).collect())
    }),
    ("join", 2, 2, |a, _| {
        Ok(items(&a[1])?
            .iter()
            .map(spelled)
            .collect::<Vec<_>>()
            .join(text(&a[0])?)
            .into())
    }),
    ("b64enc", 1, 1, |a, _| Ok(STANDARD.encode(text(&a[0])?).into())),
    ("b64dec", 1, 1, |a, _| {
        let bytes = STANDARD.decode(text(&a[0])?).map_err(|why| why.to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into())
    }),
    // Lists.
    ("list", 0, ANY, |a, _| Ok(a.to_vec().into())),
    ("tuple", 0, ANY, |a, _| Ok(a.to_vec().into())),
    ("first", 1, 1, |a, _| Ok(items(&a[0])?.first().cloned().into())),
    ("last", 1, 1, |a, _| Ok(items(&a[0])?.last().cloned().into())),
    ("rest", 1, 1, |a, _| Ok(items(&a[0])?.iter().skip(1).cloned().collect())),
    ("initial", 1, 1, |a, _| {
        Ok(items(&a[0])?.iter().rev().skip(1).rev().cloned().collect())
    }),
    ("append", 2, 2, |a, _| {
        Ok(items(&a[0])?.iter().chain([&a[1]]).cloned().collect())
    }),
    ("prepend", 2, 2, |a, _| {
        Ok([&a[1]].into_iter().chain(items(&a[0])?).cloned().collect())
    }),
    ("concat", 0, ANY, |a, _| {
        Ok(a.iter().map(items).collect::<Result<Vec<_>, _>>()?.concat().into())
    }),
    ("reverse", 1, 1, |a, _| {
        Ok(items(&a[0])?.iter().rev().cloned().collect())
    }),
    ("uniq", 1, 1, |a, _| {
        let mut seen: Vec<Value> = Vec::new();
        items(&a[0])?.iter().for_each(|item| {
            if !seen.contains(item) {
                seen.push(item.clone());
            }
        });
        Ok(seen.into())
    }),
    ("has", 2, 2, |a, _| Ok(Value::Bool(items(&a[1])?.contains(&a[0])))),
    ("without", 1, ANY, |a, _| {
        Ok(items(&a[0])?
            .iter()
            .filter(|item| !a[1..].contains(item))
            .cloned()
            .collect())
    }),
    ("sortAlpha", 1, 1, |a, _| {
        let mut texts: Vec<String> = items(&a[0])?.iter().map(spelled).collect();
        texts.sort();
        Ok(texts.into())
    }),
    ("until", 1, 1, |a, _| Ok((0..integer(&a[0]).min(10_000)).collect())),
    // Maps.
    ("dict", 0, ANY, |a, _| {
        let pair = |pair: &[Value]| (spelled(&pair[0]), pair.get(1).cloned().unwrap_or_else(|| "".into()));
        Ok(a.chunks(2).map(pair).collect::<Map<_, _>>().into())
    }),
    ("get", 2, 2, |a, _| {
        Ok(map(&a[0])?.get(text(&a[1])?).cloned().unwrap_or_else(|| "".into()))
    }),
    ("hasKey", 2, 2, |a, _| {
        Ok(Value::Bool(map(&a[0])?.contains_key(text(&a[1])?)))
    }),
    ("keys", 1, ANY, |a, _| {
        let maps = a.iter().map(map).collect::<Result<Vec<_>, _>>()?;
        Ok(maps
            .into_iter()
            .flat_map(Map::keys)
            .map(|key| Value::from(key.as_str()))
            .collect())
    }),
    ("values", 1, 1, |a, _| Ok(map(&a[0])?.values().cloned().collect())),
    ("pick", 1, ANY, |a, _| picked(a, true)),
    ("omit", 1, ANY, |a, _| picked(a, false)),
    ("merge", 1, ANY, |a, _| {
        let mut merged = map(&a[0])?.clone();
        for other in &a[1..] {
            map(other)?.iter().for_each(|(key, value)| {
                merged.entry(key.clone()).or_insert_with(|| value.clone());
            });
        }
        Ok(merged.into())
    }),
    // Numbers.
    ("add", 1, ANY, |a, _| {
        Ok(a.iter().map(integer).fold(0, i64::wrapping_add).into())
    }),
    ("add1", 1, 1, |a, _| Ok(integer(&a[0]).wrapping_add(1).into())),
    ("sub", 2, 2, |a, _| {
        Ok(integer(&a[0]).wrapping_sub(integer(&a[1])).into())
    }),
    ("mul", 2, ANY, |a, _| {
        Ok(a.iter().map(integer).fold(1, i64::wrapping_mul).into())
    }),
    ("div", 2, 2, |a, _| {
        integer(&a[0])
            .checked_div(integer(&a[1]))
            .map(Value::from)
            .ok_or("division by zero".into())
    }),
    ("mod", 2, 2, |a, _| {
        integer(&a[0])
            .checked_rem(integer(&a[1]))
            .map(Value::from)
            .ok_or("division by zero".into())
    }),
    ("max", 1, ANY, |a, _| Ok(a.iter().map(integer).max().into())),
    ("min", 1, ANY, |a, _| Ok(a.iter().map(integer).min().into())),
    // Time.
    ("now", 0, 0, |_, around| Ok(around.now.to_string().into())),
    ("unixEpoch", 1, 1, |a, _| {
        let time: Timestamp = text(&a[0])?.parse().map_err(|why| format!("{why}"))?;
        Ok(time.as_second().to_string().into())
    }),
];

fn text(value: &Value) -> Result<&str, String> {
    match value {
        Value::String(text) => Ok(text),
        // As through Go's untyped nil, which no text is; what is not there is empty to nearly all of these.
        Value::Null => Ok(""),
        other => Err(format!("wrong type for value; expected string; got {}", kind(other))),
    }
}

fn items(value: &Value) -> Result<&[Value], String> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Null => Ok(&[]),
        other => Err(format!("{} is no list", kind(other))),
    }
}

fn map(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{} is no map", kind(value)))
}

/// The letters of a set.
fn of(set: &str) -> impl Fn(char) -> bool + '_ {
    |letter| set.contains(letter)
}

/// Values one behind the other; what is not there is left out.
fn each(values: &[Value], show: impl Fn(&Value) -> String) -> String {
    let shown: Vec<String> = values.iter().filter(|value| !value.is_null()).map(show).collect();
    shown.join(" ")
}

fn joined(values: &[Value], between: &str) -> String {
    values.iter().map(spelled).collect::<Vec<_>>().join(between)
}

/// `reflect.Kind` as sprig names it.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => kind(other),
    }
}

/// sprig's `toInt64`: what is no number is 0.
fn integer(value: &Value) -> i64 {
    match value {
        Value::String(text) => text.trim().parse().unwrap_or(0),
        Value::Bool(it) => i64::from(*it),
        #[allow(clippy::cast_possible_truncation)] // as Go converts
        other => whole(other)
            .or_else(|| decimal(other).map(|number| number as i64))
            .unwrap_or(0),
    }
}

fn float(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.trim().parse().unwrap_or(0.0),
        other => decimal(other).unwrap_or(0.0),
    }
}

/// Go's `eq` of basic values; a number equals the text of it, because kwok hands numbers over as such.
fn equal(one: &Value, other: &Value) -> Result<bool, String> {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => Ok(decimal(one) == decimal(other)),
        (Value::Number(number), Value::String(text)) | (Value::String(text), Value::Number(number)) => {
            Ok(number.to_string() == *text)
        }
        (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => {
            Err("non-comparable type".to_owned())
        }
        (Value::Null, _) | (_, Value::Null) => Ok(one == other),
        (one, other) if kind(one) != kind(other) => Err("incompatible types for comparison".to_owned()),
        (one, other) => Ok(one == other),
    }
}

fn compared(arguments: &[Value], holds: fn(Ordering) -> bool) -> Done {
    let order = match (&arguments[0], &arguments[1]) {
        (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
        (one, other) => decimal(one)
            .zip(decimal(other))
            .and_then(|(one, other)| one.partial_cmp(&other)),
    };
    order
        .map(|order| Value::Bool(holds(order)))
        .ok_or_else(|| "incompatible types for comparison".to_owned())
}

fn index(value: &Value, key: &Value) -> Done {
    match value {
        Value::Null => Err("index of untyped nil".to_owned()),
        Value::Object(map) => Ok(map.get(text(key)?).cloned().unwrap_or(Value::Null)),
        Value::Array(items) => {
            let at = whole(key).ok_or_else(|| format!("cannot index slice/array with type {}", kind(key)))?;
            let item = usize::try_from(at).ok().and_then(|at| items.get(at));
            item.cloned().ok_or_else(|| format!("index out of range: {at}"))
        }
        other => Err(format!("can't index item of type {}", kind(other))),
    }
}

fn slice(arguments: &[Value]) -> Done {
    let length = match &arguments[0] {
        Value::String(text) => text.len(),
        other => items(other)?.len(),
    };
    let bound = |at: usize, usual: usize| match arguments.get(at) {
        None => Ok(usual),
        Some(value) => usize::try_from(integer(value))
            .ok()
            .filter(|bound| *bound <= length)
            .ok_or_else(|| format!("index out of range: {}", integer(value))),
    };
    let (from, to) = (bound(1, 0)?, bound(2, length)?);
    if from > to {
        return Err(format!("invalid slice index: {from} > {to}"));
    }
    match &arguments[0] {
        Value::String(text) => Ok(text.get(from..to).ok_or("it cuts through a letter")?.into()),
        other => Ok(items(other)?[from..to].to_vec().into()),
    }
}

/// kwok's `Quote`: a text as JSON, and the JSON of everything else as a text.
fn quoted(value: &Value) -> String {
    match value {
        Value::String(_) => value.to_string(),
        other => Value::from(other.to_string()).to_string(),
    }
}

/// kwok's `YAML`: with an indent, on lines of its own.
fn yaml(value: &Value, depth: Option<&Value>) -> Done {
    let text = serde_saphyr::to_string(value).map_err(|why| why.to_string())?;
    let depth = usize::try_from(depth.map_or(0, integer)).unwrap_or(0).min(64);
    Ok(match depth {
        0 => text.into(),
        depth => format!("\n{text}")
            .replace('\n', &format!("\n{}", "  ".repeat(depth)))
            .into(),
    })
}

fn indent(width: &Value, text: &str) -> Result<String, String> {
    let pad = " ".repeat(usize::try_from(integer(width)).unwrap_or(0).min(1 << 10));
    let text = format!("{pad}{}", text.replace('\n', &format!("\n{pad}")));
    if text.len() > MOST { Err(too_long()) } else { Ok(text) }
}

fn too_long() -> String {
    format!("a text is longer than {MOST} bytes")
}

fn repeat(count: &Value, text: &str) -> Done {
    let count = usize::try_from(integer(count)).unwrap_or(0);
    match count.checked_mul(text.len()) {
        Some(length) if length <= MOST => Ok(text.repeat(count).into()),
        _ => Err(too_long()),
    }
}

fn replace(old: &str, new: &str, text: &str) -> Done {
    let longest = text.len().saturating_add(1).saturating_mul(new.len().saturating_add(1));
    let replaced = match longest > MOST * 16 {
        true => return Err(too_long()),
        false => text.replace(old, new),
    };
    if replaced.len() > MOST {
        Err(too_long())
    } else {
        Ok(replaced.into())
    }
}

fn title(text: &str) -> String {
    let mut begins = true;
    let mut titled = String::new();
    for letter in text.chars() {
        match begins {
            true => titled.extend(letter.to_uppercase()),
            false => titled.push(letter),
        }
        begins = letter.is_whitespace();
    }
    titled
}

fn substr(from: i64, to: i64, text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let from = usize::try_from(from).unwrap_or(0).min(letters.len());
    let to = usize::try_from(to).unwrap_or(letters.len()).min(letters.len());
    letters[from..to.max(from)].iter().collect()
}

/// sprig's `trunc`: from the front, or with a negative number from the back.
fn trunc(length: i64, text: &str) -> String {
    let count = text.chars().count();
    let kept = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX).min(count);
    match length < 0 {
        true => text.chars().skip(count - kept).collect(),
        false => text.chars().take(kept).collect(),
    }
}

fn picked(arguments: &[Value], kept: bool) -> Done {
    let names = arguments[1..].iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let all = map(&arguments[0])?
        .iter()
        .filter(|(key, _)| names.contains(&key.as_str()) == kept);
    Ok(all
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect::<Map<_, _>>()
        .into())
}

fn node<'a>(around: &Surroundings<'a>) -> Result<&'a str, String> {
    around
        .node
        .ok_or_else(|| "the object is neither a node nor on one".to_owned())
}

/// kwok's `PodIPWith`: node, whether it has the host's network, uid, name, namespace. The last three are those of the
/// object, whose address this cluster has given out.
fn pod_ip(arguments: &[Value], around: &Surroundings<'_>) -> Result<String, String> {
    match is_true(&arguments[1]) {
        true => Ok((around.node_ip)(text(&arguments[0])?)),
        false => Ok((around.pod_ip)()),
    }
}

/// The conditions of a node that is well, as its kubelet says them.
fn node_conditions() -> Value {
    let all = [
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        (
            "NetworkUnavailable",
            "False",
            "RouteCreated",
            "RouteController created a route",
        ),
    ];
    let condition =
        |(kind, status, reason, message)| json!({"type": kind, "status": status, "reason": reason, "message": message});
    all.map(condition).to_vec().into()
}
