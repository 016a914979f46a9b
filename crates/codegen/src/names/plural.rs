//! Plurals of English words, for the resource of a kind without `--plural`.
//!
//! The plural is part of every URL and of the CRD's name and cannot be changed later; so the guess is the one that
//! kubebuilder makes, including where English would leave a choice (`indices`). Words that end in `s` without a rule
//! are taken for plurals (`Endpoints`).

/// Words with a plural of their own, also at the end of a compound (`blobfish`, `database`). Later rows go first.
const WORDS: &[(&str, &str)] = &[
    ("aircraft", "aircraft"),
    ("bison", "bison"),
    ("blues", "blues"),
    ("chassis", "chassis"),
    ("deer", "deer"),
    ("fish", "fish"),
    ("moose", "moose"),
    ("police", "police"),
    ("salmon", "salmon"),
    ("series", "series"),
    ("sheep", "sheep"),
    ("shrimp", "shrimp"),
    ("species", "species"),
    ("swine", "swine"),
    ("trout", "trout"),
    ("tuna", "tuna"),
    ("child", "children"),
    ("foot", "feet"),
    ("goose", "geese"),
    ("man", "men"),
    ("human", "humans"),
    ("mouse", "mice"),
    ("tooth", "teeth"),
    ("woman", "women"),
    ("person", "people"),
    ("bureau", "bureaus"),
    ("criterion", "criteria"),
    ("lexicon", "lexica"),
    ("phenomenon", "phenomena"),
    ("taxon", "taxa"),
    ("media", "media"),
    ("medium", "media"),
    ("stadium", "stadiums"),
    ("aquarium", "aquaria"),
    ("auditorium", "auditoria"),
    ("symposium", "symposia"),
    ("curriculum", "curriculums"),
    ("quota", "quotas"),
    ("alumnus", "alumni"),
    ("bacillus", "bacilli"),
    ("cactus", "cacti"),
    ("focus", "foci"),
    ("locus", "loci"),
    ("nucleus", "nuclei"),
    ("radius", "radii"),
    ("syllabus", "syllabi"),
    ("corpus", "corpora"),
    ("genus", "genera"),
    ("vertebra", "vertebrae"),
    ("larva", "larvae"),
    ("apex", "apices"),
    ("codex", "codices"),
    ("index", "indices"),
    ("latex", "latices"),
    ("vertex", "vertices"),
    ("vortex", "vortices"),
    ("appendix", "appendices"),
    ("radix", "radices"),
    ("helix", "helices"),
    ("crisis", "crises"),
    ("ellipsis", "ellipses"),
    ("genesis", "geneses"),
    ("oasis", "oases"),
    ("thesis", "theses"),
    ("base", "bases"),
    ("basis", "bases"),
    ("abuse", "abuses"),
    ("cause", "causes"),
    ("clause", "clauses"),
    ("excuse", "excuses"),
    ("fuse", "fuses"),
    ("house", "houses"),
    ("misuse", "misuses"),
    ("muse", "muses"),
    ("pause", "pauses"),
    ("ache", "aches"),
    ("topaz", "topazes"),
    ("buffalo", "buffaloes"),
    ("potato", "potatoes"),
    ("tomato", "tomatoes"),
    ("equipment", "equipment"),
    ("information", "information"),
    ("jeans", "jeans"),
    ("money", "money"),
    ("news", "news"),
    ("rice", "rice"),
    ("dwarf", "dwarfs"),
    ("hoof", "hoofs"),
    ("thief", "thieves"),
    ("chive", "chives"),
    ("hive", "hives"),
    ("move", "moves"),
    ("movie", "movies"),
    ("cookie", "cookies"),
    ("agenda", "agendas"),
    ("formula", "formulas"),
    ("shoe", "shoes"),
    ("graffiti", "graffiti"),
];

/// Words with a plural of their own that say nothing about longer words ending in them (`fox` is no `ox`).
const WHOLE_WORDS: &[(&str, &str)] = &[
    ("alias", "aliases"),
    ("axis", "axes"),
    ("die", "dice"),
    ("louse", "lice"),
    ("ox", "oxen"),
    ("toe", "toes"),
    ("use", "uses"),
];

/// Endings and their plurals; the first that fits counts. A word that has the ending of a plural already stays as it
/// is.
const ENDINGS: &[(&str, &str)] = &[
    ("tive", "tives"),
    ("eaf", "eaves"),
    ("oaf", "oaves"),
    ("afe", "aves"),
    ("arf", "arves"),
    ("rfe", "rves"),
    ("rf", "rves"),
    ("lf", "lves"),
    ("fe", "ves"),
    ("ay", "ays"),
    ("ey", "eys"),
    ("oy", "oys"),
    ("quy", "quies"),
    ("uy", "uys"),
    ("y", "ies"),
    ("eau", "eaux"),
    ("hedron", "hedra"),
    ("ium", "ia"),
    ("seum", "seums"),
    ("eum", "ea"),
    ("dum", "da"),
    ("olum", "ola"),
    ("ulum", "ula"),
    ("llum", "lla"),
    ("imum", "ima"),
    ("brum", "bra"),
    ("terum", "tera"),
    ("serum", "sera"),
    ("trum", "tra"),
    ("antum", "anta"),
    ("atum", "ata"),
    ("entum", "enta"),
    ("etum", "eta"),
    ("itum", "ita"),
    ("otum", "ota"),
    ("ctum", "cta"),
    ("ovum", "ova"),
    ("trix", "trices"),
    ("iasis", "iases"),
    ("mesis", "meses"),
    ("resis", "reses"),
    ("gnosis", "gnoses"),
    ("opsis", "opses"),
    ("ysis", "yses"),
    ("ouse", "ouses"),
    ("us", "uses"),
    ("ch", "ches"),
    ("io", "ios"),
    ("sh", "shes"),
    ("ss", "sses"),
    ("ez", "ezzes"),
    ("iz", "izzes"),
    ("tz", "tzes"),
    ("zz", "zzes"),
    ("ano", "anos"),
    ("lo", "los"),
    ("to", "tos"),
    ("oo", "oos"),
    ("o", "oes"),
    ("x", "xes"),
];

/// The plural of a kind, in lower case: the name of its resource.
///
/// ```
/// use kubewright_codegen::names::plural;
/// assert_eq!(plural("Gateway"), "gateways");
/// assert_eq!(plural("NetworkPolicy"), "networkpolicies");
/// assert_eq!(plural("Endpoints"), "endpoints");
/// ```
#[must_use]
pub fn plural(kind: &str) -> String {
    let word = kind.to_lowercase();
    let whole = WORDS.iter().chain(WHOLE_WORDS);
    // A word that is a plural of the list stays one, but for singulars that look like another word's plural.
    if let Some((_, plural)) = whole.clone().find(|(singular, _)| *singular == word) {
        return (*plural).to_owned();
    }
    if whole.clone().any(|(_, plural)| *plural == word) {
        return word;
    }
    for (singular, plural) in WORDS.iter().rev().chain(ENDINGS) {
        if word.ends_with(plural) {
            return word;
        }
        if let Some(stem) = word.strip_suffix(singular) {
            return format!("{stem}{plural}");
        }
    }
    if word.ends_with('s') { word } else { word + "s" }
}

/// The plural that controller-gen gives a kind, of whose words it looks at the last one alone (`flect.Pluralize`), where
/// kubebuilder takes the kind for a single word: `EntityAlias` is `entityaliases`, and `entityalias` with kubebuilder.
pub(crate) fn generated_plural(kind: &str) -> String {
    let letters: Vec<(usize, char)> = kind.char_indices().collect();
    let begins = |window: &&[(usize, char)]| window[1].1.is_ascii_uppercase() && window[2].1.is_ascii_lowercase();
    let last = letters.windows(3).rfind(begins).map_or(0, |window| window[1].0);
    let (before, last) = kind.split_at(last);
    before.to_lowercase() + &plural(last)
}

#[cfg(test)]
mod tests {
    use super::{generated_plural, plural};

    #[test]
    fn the_last_word_has_the_plural_of_controller_gen() {
        for (kind, expected) in [
            ("EntityAlias", "entityaliases"),
            ("DNSAlias", "dnsaliases"),
            ("Alias", "aliases"),
            ("NetworkPolicy", "networkpolicies"),
            ("HTTPRoute", "httproutes"),
            ("VM", "vms"),
            ("Endpoints", "endpoints"),
        ] {
            assert_eq!(generated_plural(kind), expected);
        }
    }

    #[test]
    fn plurals_are_those_of_kubebuilder() {
        let kinds = "Guestbook Gateway HTTPRoute Endpoints Policy NetworkPolicy Ingress Status Index Fish Blobfish Database Proxy Cache \
                     Queue Box Redis Kubernetes Class Bus Series Mouse Child Person Key Repository Leaf Quota Data Metadata Media Matrix \
                     Analysis Repo Photo Fox Ox Alias DNSAlias Human Woman Shelf Knife Cronjob Admiral Sailor Berth Memstore Zone Torch \
                     Lens Type Use Cause Topaz Quiz Schema Criterion Axis Praxis Toe";
        let pairs: Vec<String> = kinds
            .split_whitespace()
            .map(|kind| format!("{kind}={}", plural(kind)))
            .collect();
        insta::assert_snapshot!(pairs.join(" "));
    }
}
