//! The data that travels with an item: the causes of its run.

/// Something that can take in a later one of its kind.
pub trait Merge {
    /// Adds the causes of a later request.
    fn merge(&mut self, later: Self);
}

impl Merge for () {
    fn merge(&mut self, (): ()) {}
}

/// The causes of a run, in order, bounded: the first ones and the last one are kept, those dropped between are counted.
///
/// ```
/// use kubewright_engine::queue::{Causes, Merge};
/// let mut causes = Causes::one(0);
/// for later in 1..20 {
///     causes.merge(Causes::one(later));
/// }
/// assert_eq!(causes.as_slice(), [0, 1, 2, 3, 4, 5, 6, 19]);
/// assert_eq!(causes.dropped(), 12);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Causes<C> {
    kept: Vec<C>,
    dropped: u64,
}

impl<C> Causes<C> {
    /// How many causes are kept.
    pub const MAX: usize = 8;

    /// No cause.
    pub fn none() -> Causes<C> {
        Causes {
            kept: Vec::new(),
            dropped: 0,
        }
    }

    /// A single cause.
    pub fn one(cause: C) -> Causes<C> {
        Causes {
            kept: vec![cause],
            dropped: 0,
        }
    }

    /// The causes that were kept, oldest first.
    pub fn as_slice(&self) -> &[C] {
        &self.kept
    }

    /// How many more there were.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The causes that were kept, oldest first.
    pub fn into_vec(self) -> Vec<C> {
        self.kept
    }
}

impl<C> Default for Causes<C> {
    fn default() -> Causes<C> {
        Causes::none()
    }
}

impl<C> Merge for Causes<C> {
    fn merge(&mut self, later: Causes<C>) {
        self.dropped += later.dropped;
        for cause in later.kept {
            if self.kept.len() == Causes::<C>::MAX {
                // The first cause began it, the last is the present one; those between say the least.
                self.kept.pop();
                self.dropped += 1;
            }
            self.kept.push(cause);
        }
    }
}
