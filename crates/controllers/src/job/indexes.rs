//! Sets of completion indexes, as `completedIndexes` writes them: `0,1`, `0-2`, `1,3-5`.
//!
//! Pure. Kept as intervals, so that the cost of a Job of a hundred thousand completions is that of its text
//! (`k8s.io/kubernetes/pkg/controller/job/indexed_job_utils.go`).

use std::fmt;

/// Intervals, both ends included, in order and neither touching nor overlapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// The indexes of a status, below `completions`. Parts that are no numbers are passed over, as upstream does.
    pub(super) fn parse(text: &str, completions: i32) -> Indexes {
        let mut indexes = Indexes::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) else {
                continue;
            };
            let last = last.min(completions.saturating_sub(1));
            if first >= 0 && first <= last {
                indexes.insert_range(first, last);
            }
        }
        indexes
    }

    pub(super) fn insert(&mut self, index: i32) {
        self.insert_range(index, index);
    }

    fn insert_range(&mut self, first: i32, last: i32) {
        let from = self.0.partition_point(|(_, end)| end.saturating_add(1) < first);
        let to = self.0.partition_point(|(start, _)| *start <= last.saturating_add(1));
        let joined = self.0[from..to]
            .iter()
            .fold((first, last), |(start, end), (a, b)| (start.min(*a), end.max(*b)));
        self.0.splice(from..to, [joined]);
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, end)| *end < index);
        self.0.get(at).is_some_and(|(start, _)| *start <= index)
    }

    /// How many there are.
    pub(super) fn total(&self) -> i32 {
        let size = |(first, last): &(i32, i32)| last.saturating_sub(*first).saturating_add(1);
        self.0.iter().map(size).fold(0, i32::saturating_add)
    }

    /// How many of them are in `others`, too.
    pub(super) fn common(&self, others: &Indexes) -> i32 {
        let mut total = 0_i32;
        let (mut left, mut right) = (self.0.iter().peekable(), others.0.iter().peekable());
        while let (Some((a, b)), Some((c, d))) = (left.peek(), right.peek()) {
            let (first, last) = (a.max(c), b.min(d));
            if first <= last {
                total = total.saturating_add(last - first + 1);
            }
            match b < d {
                true => drop(left.next()),
                false => drop(right.next()),
            }
        }
        total
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                // Two neighbours are written apart.
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_as_upstream_writes_them() {
        let check = |text: &str, completions: i32, expected: &str, total: i32| {
            let parsed = Indexes::parse(text, completions);
            assert_eq!(
                (parsed.to_string().as_str(), parsed.total()),
                (expected, total),
                "{text:?}"
            );
        };
        check("", 5, "", 0);
        check("1", 5, "1", 1);
        check("0,1", 5, "0,1", 2);
        check("0,1,2", 5, "0-2", 3);
        check("0-2,4", 5, "0-2,4", 4);
        check("4,0-2,3", 5, "0-4", 5);
        check("0-9", 3, "0-2", 3);
        check("x,-1,3-1,2", 5, "2", 1);
    }

    #[test]
    fn every_order_of_insertion_gives_the_same_set() {
        for mask in 0_u32..256 {
            let mut up = Indexes::default();
            let mut down = Indexes::default();
            for index in 0..8 {
                for (set, index) in [(&mut up, index), (&mut down, 7 - index)] {
                    if mask & (1 << index) != 0 {
                        set.insert(index);
                    }
                }
            }
            assert_eq!(up, down);
            let total: i32 = (0..8).map(|index| i32::from(up.contains(index))).sum();
            assert_eq!((up.total(), total), (mask.count_ones() as i32, up.total()), "{up}");
            assert_eq!(Indexes::parse(&up.to_string(), 8), up);
            for other in 0_u32..256 {
                let mut others = Indexes::default();
                (0..8)
                    .filter(|index| other & (1 << index) != 0)
                    .for_each(|index| others.insert(index));
                assert_eq!(up.common(&others), (mask & other).count_ones() as i32);
            }
        }
    }
}
