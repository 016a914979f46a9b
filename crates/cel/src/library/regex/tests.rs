use super::*;

fn check(pattern: &str, matching: &[&str], other: &[&str]) {
    let regex = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    for text in matching {
        assert!(regex.matches(text), "{pattern} matches {text:?}");
    }
    for text in other {
        assert!(!regex.matches(text), "{pattern} does not match {text:?}");
    }
}

#[test]
fn an_expression_is_shared_with_its_notes() {
    let patterns = Patterns::default();
    let compiled = |patterns: &Patterns| patterns.compile("^a$").expect("it compiles");
    assert!(Arc::ptr_eq(&compiled(&patterns), &compiled(&patterns)));
    let others = Patterns::default();
    assert!(
        !Arc::ptr_eq(&compiled(&patterns), &compiled(&others)),
        "each is its owner's"
    );
}

#[test]
fn a_bounded_number_is_kept() {
    let patterns = Patterns::default();
    let kept = |patterns: &Patterns| patterns.compiled.lock().expect("no test panics under the lock").len();
    for number in 0..3 * KEPT {
        patterns.compile(&format!("^a{number}$")).expect("it compiles");
        assert!(kept(&patterns) <= KEPT);
    }
    let before = kept(&patterns);
    patterns
        .compile("a{1000}b{1000}c{1000}")
        .expect("it compiles, and is too large to be kept");
    assert_eq!(kept(&patterns), before);
}

#[test]
fn means_what_it_means_to_go() {
    check("^\\d+$", &["12"], &["٣", ""]);
    check("^[\\w-]+$", &["a-b_1"], &["é"]);
    check("^\\W$", &["é", "-"], &["a"]);
    check("^[^\\s]$", &["a", "\u{a0}"], &[" "]);
    check("a{", &["a{"], &["a"]);
    check("^a{,2}$", &["a{,2}"], &["aa"]);
    check("^a{2}$", &["aa"], &["a{2}"]);
    check("^[[]$", &["["], &[]);
    check("^[]a]$", &["]", "a"], &["[]a]"]);
    check("^[a&&b]+$", &["a&b"], &["c"]);
    check("^[[:alpha:]]$", &["a"], &["1", ":"]);
    check("^\\Qa.b\\E$", &["a.b"], &["axb"]);
    check("(?i)^x(?:y)?$", &["X", "xY"], &["z"]);
    check("(?P<n>a)|*b?".trim_end_matches("|*b?"), &["a"], &["b"]);
    check("\\bfoo\\b", &["a foo"], &["afoo"]);
    check("^\\p{Greek}+$", &["αβ"], &["a"]);
    check("^\\P{Greek}\\x{e9}{2}$", &["aéé"], &["αéé", "aé"]);
    check("^[\\p{Greek}\\x{e9}]$", &["α", "é"], &["a", "{"]);
}

#[test]
fn go_refuses() {
    for (pattern, complaint) in [
        ("[", "missing closing ]: `[`"),
        ("a)", "unexpected ): `a)`"),
        ("(a", "missing closing ): `(a`"),
        ("+", "missing argument to repetition operator: `+`"),
        ("a+*", "invalid nested repetition operator: `+*`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
        ("(?i)a**", "invalid nested repetition operator: `**`"),
        ("(?P<n>a)(?:b)**", "invalid nested repetition operator: `**`"),
        ("(?i:+)", "missing argument to repetition operator: `+`"),
        ("(?i)((a)", "missing closing ): `(?i)((a)`"),
        ("(?:(a{30}){30}){2}", "invalid repeat count: `{2}`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
        (
            "((((((((a{30}){30}){30}){30}){30}){30}){30}){30})",
            "invalid repeat count: `{30}`",
        ),
    ] {
        let error = compile(pattern).expect_err(pattern);
        assert!(error.contains(complaint), "{pattern}: {error}");
    }
}

/// Both engines find the same.
#[test]
fn large_sets_are_walked_as_the_crate_finds_them() {
    let texts = [
        "",
        "a",
        "ab",
        "aab",
        "éa1",
        "a b\nab",
        "abab  abba",
        "Жaé٣",
        "b\n\nb",
        "xyxyxz",
        "aaaaaaa",
    ];
    for pattern in [
        "",
        "a",
        "a*",
        "a*?",
        "a+?b?",
        "(a|ab)(c|bab)?",
        "(ab|a)*",
        "(a*)*",
        "(a*)+",
        "(a*|b)*",
        "(?:a?){3}",
        "(?:a?){2,4}?b",
        "a{0}b",
        "a{2,}",
        "[^b]{1,3}",
        "(x(y|z)){1,2}",
        "\\b\\w+\\b",
        "\\B.",
        "^a|b$",
        "(?m)^b$",
        "(?s).b",
        "(?i)ж|É",
        "\\pL{2}",
        "[\\pL\\pN]+",
        "$",
        "(|a)b",
        "b||a",
    ] {
        let regex = Regex::new(&translate(pattern)).expect(pattern);
        let expression = regex_syntax::parse(&translate(pattern)).expect(pattern);
        let program = Program::new(&expression, Size::of(&expression).parts);
        for text in texts {
            let expected: Vec<_> = regex.find_iter(text).map(|found| found.as_str()).collect();
            assert_eq!(
                walk_all(&program, text).collect::<Vec<_>>(),
                expected,
                "{pattern:?} in {text:?}"
            );
            assert_eq!(
                program.matches(text),
                regex.is_match(text),
                "{pattern:?} matches {text:?}"
            );
        }
    }
}

/// Each of these was refused as too large, or took a tenth of a second to compile that was not counted.
#[test]
fn large_sets_may_be_repeated() {
    let steps = |pattern: &str| {
        let (mut least, mut most) = (0, 2_000_000);
        while most - least > 1000 {
            let limits = budget::Limits {
                steps: (least + most) / 2,
                ..budget::Limits::REQUEST
            };
            match budget::within(limits, || compile(pattern).map(|regex| regex.matches("é1"))) {
                Ok(matched) => {
                    assert_eq!(matched, Ok(true), "{pattern}");
                    most = limits.steps;
                }
                Err(_) => least = limits.steps,
            }
        }
        most
    };
    for pattern in [
        "^[\\pL\\pN]{1,253}$",
        "^\\pL[\\pL\\pN]{0,1000}$",
        "^(\\pL|\\pN|\\pZ){1,500}$",
        "(?i)^(\\pL|\\pN|\\p{Greek}|\\p{Cyrillic}){1,100}$",
    ] {
        let steps = steps(pattern);
        assert!(steps < 500_000, "{pattern} takes {steps} steps");
    }
    let many = || (0..1000).try_for_each(|number| compile(&format!("[\\p{{L}}\\p{{N}}]{{1,200}}{number}")).map(drop));
    assert_eq!(budget::within(budget::Limits::REQUEST, many), Ok(Ok(())));
    assert!(
        steps("[\\pL\\pN]$") > 10_000,
        "what the crate compiles is counted by its ranges"
    );
}

#[test]
fn folding_the_cases_of_all_characters_is_counted() {
    let pattern = format!("(?i){}", "[a-\u{10ffff}]".repeat(100));
    let outcome = budget::within(budget::Limits::REQUEST, || compile(&pattern));
    assert!(outcome.is_err(), "{outcome:?}");
}
