//! Each function of expressions with long texts and long lists, again and again.
//!
//! `variables.text` is 1 MB and `variables.list` has 1,000,000 items (`macros.rs`); with a number behind it the one of
//! so many doublings.

use super::macros::judged;
use crate::hostile::input::{Input, input};

/// A long input may be refused; some cost little.
const ANSWERS: &[u16] = &[201, 413, 422];

/// For each of 1,000 fields.
const EACH: &[(&str, &str)] = &[
    ("compares maps of 1,000 fields", "object.data == object.data"),
    ("compares objects", "object == object && request == request"),
    (
        "compares the namespace with itself",
        "namespaceObject == namespaceObject",
    ),
    (
        "makes maps of 1,000 fields and compares them",
        "{a: object.data} == {a: object.data}",
    ),
    ("takes the largest of 65,536 texts", "variables.list16.max() != ''"),
    ("takes the least of 65,536 texts", "variables.list16.min() != ''"),
    ("asks whether 1,000,000 texts are in order", "variables.list.isSorted()"),
    ("adds up 1,000,000 numbers", "variables.list.map(x, 1).sum() > 0"),
    (
        "looks for the last of 1,000,000 texts",
        "variables.list.lastIndexOf('none') < 0",
    ),
    (
        "takes 1,000,000 texts out of a list",
        "variables.list.slice(1, 1000000).size() > 0",
    ),
    ("looks for a text in 1,000,000", "!('none' in variables.list)"),
    ("looks for a list in a list", "variables.list18 in [variables.list18]"),
    (
        "reads the query of a URL with 16,384 parameters",
        "url('https://a/?' + variables.text14.replace('x', 'a=b&')).getQuery().size() > 0",
    ),
    (
        "reads a path of 16,384 escapes",
        "url('https://a/' + variables.text14.replace('x', '%20')).getEscapedPath() != ''",
    ),
    (
        "reads a host of 16,384 letters",
        "url('https://' + variables.text14 + '/').getHost() != ''",
    ),
    (
        "asks whether one network holds an address",
        "object.data.all(b, cidr('::/0').containsIP(ip('::1')))",
    ),
    (
        "asks whether 65,536 colons are an address",
        "!isIP(variables.text16.replace('x', ':'))",
    ),
    (
        "asks whether a network has a mask of 65,536 digits",
        "!isCIDR('10.0.0.0/' + variables.text16.replace('x', '0'))",
    ),
    (
        "compares versions of 16,384 parts",
        "semver('1.2.3-' + variables.text14.replace('x', 'a.') + 'a').isLessThan(semver('1.2.3'))",
    ),
    (
        "compares quantities of 4,096 digits",
        "quantity(variables.text12.replace('x', '9')).isGreaterThan(quantity('1'))",
    ),
    (
        "adds the largest quantity and the least",
        "quantity('1e999999').add(quantity('1e-999999')).isGreaterThan(quantity('1'))",
    ),
    (
        "reads a duration of 65,536 parts",
        "duration(variables.text16.replace('x', '1ns')) > duration('0s')",
    ),
    (
        "reads an hour in a time zone of 65,536 letters",
        "timestamp('2020-01-01T00:00:00Z').getHours(variables.text16) >= 0",
    ),
    (
        "reads a number of 1,000,000 digits",
        "int(variables.text.replace('x', '0')) == 0",
    ),
    (
        "reads a fraction of 65,536 digits",
        "double(variables.text16.replace('x', '9')) > 0.0",
    ),
    (
        "writes the largest fraction 1,000 times",
        "object.data.all(b, string(1.7976931348623157e308) != '')",
    ),
    ("writes a number in base 2", "'%b'.format([9223372036854775807]) != ''"),
    ("writes 100,000 digits", "'%.100000e'.format([1.5]) != ''"),
    (
        "looks at the last letter of 1 MB",
        "object.data.all(b, variables.text.charAt(1000000) == '')",
    ),
    (
        "counts the letters of 1 MB",
        "object.data.all(b, variables.text.size() > 0)",
    ),
    (
        "compares 1 MB with 1 MB",
        "object.data.all(b, variables.text <= variables.text)",
    ),
    (
        "looks for a letter in 1 MB from behind",
        "variables.text.lastIndexOf('y') < 0",
    ),
    ("trims 1 MB", "variables.text.trim() != ''"),
    (
        "holds 1 MB against a pattern of 1,000 choices",
        "!variables.text.matches('(x?){1000}(x+)+y')",
    ),
    (
        "makes a pattern of its own for each",
        "'xxxx'.matches('[\\\\\\\\p{L}]{1,100}' + a)",
    ),
    (
        "holds 16,384 labels against the form of names",
        "format.dns1123Subdomain().validate(variables.text14.replace('x', 'a.')).hasValue()",
    ),
    (
        "asks who may do what by 16,384 fields",
        "authorizer.group('').resource('pods').fieldSelector(variables.text14.replace('x', 'a=b,')).check('list').allowed()",
    ),
    (
        "makes a list of 1,000 numbers",
        "[1, 2, 3, 4, 5, 6, 7, 8].map(x, object.data.map(k, x)).size() > 0",
    ),
    (
        "makes maps within maps",
        "object.data.transformMap(b, c, {b: a}).size() > 0",
    ),
];

/// Once.
const ONCE: &[(&str, &str)] = &[
    (
        "looks for half of 1 MB in it",
        "variables.text.indexOf(variables.text18 + 'y') < 0 && variables.text.lastIndexOf(variables.text18 + 'y') < 0",
    ),
    (
        "splits 1 MB by an eighth of it",
        "variables.text.split(variables.text17 + 'y').size() > 0",
    ),
    ("takes 1 MB for a pattern", "'x'.matches(variables.text)"),
    (
        "reads a duration of 1,000,000 hours",
        "duration(variables.text.replace('x', '1h')) > duration('0s')",
    ),
    (
        "reads a quantity of 1,000,000 digits",
        "quantity(variables.text.replace('x', '9')).isInteger()",
    ),
    ("reads a time of 1 MB", "timestamp(variables.text) > timestamp(0)"),
    ("reads a version of 1 MB", "isSemver('1.2.3-' + variables.text)"),
    (
        "writes a fraction with 999,999 digits",
        "'%.999999f'.format([1.5]) != ''",
    ),
    ("writes 1 MB in base 16", "'%x'.format([variables.text]) != ''"),
    (
        "writes a list of 1,000,000 texts",
        "'%s'.format([variables.list]) != ''",
    ),
    ("quotes 1 MB", "strings.quote(variables.text) != ''"),
    ("sorts 1,000,000 texts", "variables.list.sort().size() > 0"),
    (
        "flattens lists of 1,000,000 texts",
        "[variables.list, variables.list].flatten().size() > 0",
    ),
    (
        "sorts by what it counts each time",
        "object.data.map(k, k).sortBy(x, object.data.map(j, j).size()).size() > 0",
    ),
    (
        "holds 1,000 names against 1,000 others",
        "!sets.intersects(object.data.map(k, k), object.data.map(k, k + 'z'))",
    ),
];

pub(crate) fn inputs() -> Vec<Input> {
    let each = EACH.iter().map(|(what, expression)| {
        let name = format!("a policy that for each field {what}");
        (name, format!("object.data.all(a, {expression})"))
    });
    let once = ONCE
        .iter()
        .map(|(what, expression)| (format!("a policy that {what}"), (*expression).to_owned()));
    each.chain(once)
        .map(|(name, expression)| input(name, ANSWERS, move || judged(&expression)))
        .collect()
}
