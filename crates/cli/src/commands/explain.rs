//! `kubewright explain`: the explanation of an error code.

use clap::Args;
use kubewright_codegen::codes::{self, Explanation};
use serde_json::json;

use crate::output::{Failure, Format, STRONG, paint};

/// Explain an error code such as KWR0703, or list all codes
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The code, as in the error message: KWR0703, kwr0703 or 703
    #[arg(value_name = "CODE", add = clap_complete::ArgValueCandidates::new(crate::complete::codes))]
    code: Option<String>,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let Some(typed) = self.code else {
            for Explanation { code, title, .. } in codes::all() {
                let text = format!("{}  {title}", paint(STRONG, code));
                output.say(&text, &json!({"event": "code", "code": code, "title": title}));
            }
            return Ok(());
        };
        let Some(Explanation { code, title, story }) = codes::find(&typed) else {
            return Err(unknown(&typed));
        };
        let text = format!(
            "{}: {}\n\n{}",
            paint(STRONG, code),
            paint(STRONG, title),
            wrap(story, 100)
        );
        output.say(
            &text,
            &json!({"event": "explanation", "code": code, "title": title, "story": story}),
        );
        Ok(())
    }
}

fn unknown(typed: &str) -> Failure {
    let failure = Failure::new(format!("there is no error code {typed}"));
    let digits: String = typed.chars().filter(char::is_ascii_digit).collect();
    let nearest = digits.parse::<u16>().ok().and_then(|number| {
        let near = |explanation: &&Explanation| {
            (
                mistyped(number, explanation.code.0),
                explanation.code.0.abs_diff(number),
            )
        };
        codes::all().min_by_key(near)
    });
    match nearest {
        Some(nearest) => failure.fix(format!(
            "is it {} ({})? `kubewright explain` lists all codes",
            nearest.code, nearest.title
        )),
        None => failure
            .because("a code is KWR and four digits, as in [KWR0703]".to_owned())
            .fix("`kubewright explain` lists all codes"),
    }
}

/// How many of the four digits differ.
fn mistyped(typed: u16, code: u16) -> usize {
    let (typed, code) = (format!("{typed:04}"), format!("{code:04}"));
    typed.chars().zip(code.chars()).filter(|(a, b)| a != b).count() + typed.len().abs_diff(code.len())
}

/// Breaks paragraphs into lines of at most so many letters; lines that are indented stay as they are.
fn wrap(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with(' ') {
            lines.push(line.to_owned());
            continue;
        }
        let mut now = String::new();
        for word in line.split(' ') {
            if !now.is_empty() && now.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::take(&mut now));
            }
            if !now.is_empty() {
                now.push(' ');
            }
            now.push_str(word);
        }
        lines.push(now);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_code_gets_the_nearest_one() {
        let check = |typed: &str, expected: &str| {
            let said = unknown(typed).to_string();
            assert!(said.contains(expected), "{said}");
        };
        check("KWR0009", "is it KWR0003");
        check("KWR8703", "is it KWR0703");
        check("KW0802", "`kubewright explain` lists all codes");
        check("oops", "a code is KWR and four digits");
        check("99999999", "a code is KWR and four digits");
    }

    #[test]
    fn stories_are_broken_into_lines() {
        assert_eq!(
            wrap("one two three\n\n  kept as it is here", 8),
            "one two\nthree\n\n  kept as it is here"
        );
        for explanation in codes::all() {
            assert!(
                wrap(explanation.story, 100)
                    .lines()
                    .all(|line| line.chars().count() <= 100 || !line.contains(' '))
            );
        }
    }
}
