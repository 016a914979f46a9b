//! A terminal as a picture: the lines of a program, with their colours, as SVG.
//!
//! Values that change from run to run (times, ports, process ids) are in the picture as it was recorded, and are left
//! out of the comparison.

/// The height of a line, and the width of a character, in pixels.
const LINE: usize = 19;
const CHARACTER: usize = 8;

/// The colour of text after an escape sequence `ESC [ code m`.
fn style(code: &str) -> &'static str {
    match code {
        "1" => "font-weight:bold",
        "2" => "fill:#8b949e",
        "31" => "fill:#ff7b72",
        "32" => "fill:#7ee787",
        "33" => "fill:#e3b341",
        "36" => "fill:#79c0ff",
        _ => "",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The line without its colours.
pub(crate) fn text(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once('m').map_or("", |(_, after)| after));
    first + &rest.collect::<String>()
}

/// The picture of these lines, as wide as the longest of them.
pub(crate) fn svg(title: &str, lines: &[String]) -> String {
    let columns = lines.iter().map(|line| text(line).chars().count()).max().unwrap_or(0);
    let (width, height) = (columns * CHARACTER + 32, lines.len() * LINE + 32);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#0d1117\"/>\n\
         <g font-family=\"ui-monospace,Menlo,Consolas,monospace\" font-size=\"13\" fill=\"#e6edf3\" xml:space=\"preserve\">\n",
        escaped(title)
    );
    for (row, line) in lines.iter().enumerate() {
        svg.push_str(&format!("<text x=\"16\" y=\"{}\">", (row + 1) * LINE + 8));
        for (at, part) in line.split('\u{1b}').enumerate() {
            let (code, words) = match part.strip_prefix('[').and_then(|part| part.split_once('m')) {
                Some(coloured) if at > 0 => coloured,
                _ => ("", part),
            };
            match style(code) {
                _ if words.is_empty() => {}
                "" => svg.push_str(&escaped(words)),
                style => svg.push_str(&format!("<tspan style=\"{style}\">{}</tspan>", escaped(words))),
            }
        }
        svg.push_str("</text>\n");
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// The picture with one digit for every number: the compared form.
pub(crate) fn without_numbers(svg: &str) -> String {
    let body = svg.split_once("<g ").map_or(svg, |(_, body)| body);
    let mut plain = String::new();
    for c in body.chars() {
        match c {
            '0'..='9' if plain.ends_with('0') => {}
            '0'..='9' => plain.push('0'),
            // A number that is padded, or has a fraction.
            ' ' if plain.ends_with(' ') => {}
            '.' if plain.ends_with('0') => plain.push('0'),
            c => plain.push(c),
        }
    }
    plain.replace("00", "0")
}
