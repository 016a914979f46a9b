//! Items in the order of their texts.
//!
//! The elements of a long list begin alike (`k:{"name":"c…`) and lie all over the memory, so that each comparison of two
//! texts waits for both of them. Eight bytes behind the common beginning, as a number beside the item, tell nearly all
//! of them apart.

/// Fewer are sorted at once as they are.
const FEW: usize = 16;

/// Sorts by the texts; items of the same text stay in their order.
pub(crate) fn sort_by_text<S: AsRef<str>, T>(items: &mut Vec<(S, T)>) {
    // Mostly they are in order already.
    if items.is_sorted_by(|(one, _), (other, _)| one.as_ref() <= other.as_ref()) {
        return;
    }
    let by_text = |(one, _): &(S, T), (other, _): &(S, T)| one.as_ref().cmp(other.as_ref());
    if items.len() < FEW {
        return items.sort_by(by_text);
    }
    let shared = shared(items);
    let marked = std::mem::take(items)
        .into_iter()
        .map(|item| (mark(item.0.as_ref(), shared), item));
    let mut marked: Vec<(u64, (S, T))> = marked.collect();
    marked.sort_by(|(mark, one), (other_mark, other)| mark.cmp(other_mark).then_with(|| by_text(one, other)));
    items.extend(marked.into_iter().map(|(_, item)| item));
}

/// How many bytes all of the texts begin with.
fn shared<S: AsRef<str>, T>(items: &[(S, T)]) -> usize {
    let Some((first, rest)) = items.split_first() else {
        return 0;
    };
    let first = first.0.as_ref().as_bytes();
    rest.iter().fold(first.len(), |shared, (text, _)| {
        let both = first[..shared].iter().zip(text.as_ref().as_bytes());
        both.take_while(|(one, other)| one == other).count()
    })
}

/// The eight bytes from here on as a number that is ordered as they are; a text that ends has zeros.
fn mark(text: &str, from: usize) -> u64 {
    let mut bytes = [0; 8];
    let rest = &text.as_bytes()[from..];
    let count = rest.len().min(bytes.len());
    bytes[..count].copy_from_slice(&rest[..count]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_order_is_that_of_the_texts(
            texts in prop::collection::vec("[ab\0é]{0,12}", 0..60),
            prefix in "[a-c]{0,3}",
        ) {
            let items: Vec<(String, usize)> =
                texts.iter().enumerate().map(|(at, text)| (format!("{prefix}{text}"), at)).collect();
            let mut sorted = items.clone();
            sort_by_text(&mut sorted);
            let mut wanted = items;
            wanted.sort();
            prop_assert_eq!(sorted, wanted);
        }
    }
}
