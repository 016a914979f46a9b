//! The table: ours, kube-runtime's, controller-runtime's, the goal, and whether ours meets it.

use crate::measure::Figures;

/// The goal of a figure of ours.
enum Goal {
    Most(f64),
    Least(f64),
    /// It is only told.
    None,
}

const ROWS: [(&str, Goal); 28] = [
    ("memory without managedFields, KB", Goal::Most(4.0)),
    ("memory of an object as received, KB", Goal::Most(7.0)),
    ("memory of its metadata, KB", Goal::Most(1.5)),
    ("first sync, CPU of an object, µs", Goal::Most(25.0)),
    ("watch, CPU of an event, µs", Goal::Most(20.0)),
    ("typed handler, CPU of an event, µs", Goal::Most(40.0)),
    ("typed handler, memory of an object, KB", Goal::Most(5.0)),
    ("handler of a projection, CPU, µs", Goal::Most(40.0)),
    ("its memory of an object, KB", Goal::Most(5.0)),
    ("reading, of an object, µs", Goal::None),
    ("reading again, of an object, µs", Goal::None),
    ("relist as a stream, peak ×", Goal::Most(1.1)),
    ("relist in pages, peak ×", Goal::Most(1.1)),
    ("relist without limit, peak ×", Goal::Most(1.1)),
    ("reconciles a second, from events", Goal::Least(60_000.0)),
    ("event with its reconcile, CPU, µs", Goal::None),
    ("reconciles a second, of a projection", Goal::Least(60_000.0)),
    ("the same of a projection, CPU, µs", Goal::None),
    ("reconciles a second, of metadata", Goal::Least(100_000.0)),
    ("the same of metadata, CPU, µs", Goal::None),
    ("queue of 500,000: keys a second", Goal::Least(500_000.0)),
    ("queue: add, get and done, µs", Goal::Most(0.2)),
    ("event to reconcile p50, ms", Goal::Most(0.15)),
    ("event to reconcile p99, ms", Goal::Most(0.6)),
    ("idle: private, MB", Goal::None),
    ("idle: its share (PSS), MB", Goal::None),
    ("idle: resident, MB", Goal::Most(8.0)),
    ("idle: wake-ups in 10 s", Goal::Most(0.0)),
];

/// Prints the figures.
pub(crate) fn print(columns: &[Option<Figures>; 3]) {
    println!(
        "{:<38}{:>12}{:>14}{:>20}",
        "", "kubewright", "kube-runtime", "controller-runtime"
    );
    for (name, goal) in ROWS {
        let figures = columns
            .each_ref()
            .map(|column| column.as_ref().and_then(|column| column.get(name)));
        if figures.iter().all(Option::is_none) {
            continue;
        }
        let [ours, kube, go] = figures.map(|figure| figure.map_or_else(|| "–".to_owned(), |figure| shown(*figure)));
        let verdict = figures[0].map_or_else(String::new, |ours| goal.verdict(*ours));
        println!("{name:<38}{ours:>12}{kube:>14}{go:>20}   {verdict}");
    }
}

impl Goal {
    fn verdict(&self, figure: f64) -> String {
        let (sign, wanted, met) = match *self {
            Goal::Most(most) => ('≤', most, figure <= most),
            Goal::Least(least) => ('≥', least, figure >= least),
            Goal::None => return String::new(),
        };
        format!("({sign} {wanted}) {}", if met { "met" } else { "MISSED" })
    }
}

/// Three digits that say something.
fn shown(figure: f64) -> String {
    match figure {
        figure if figure >= 100.0 => format!("{figure:.0}"),
        figure if figure >= 10.0 => format!("{figure:.1}"),
        figure => format!("{figure:.2}"),
    }
}
