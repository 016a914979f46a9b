//! A document under the operations of a patch: containers that no path leads through stay as they are, lists that one
//! does lead through are kept in blocks, so that an item is put anywhere into a long list without moving all that
//! follow.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::index;
use crate::{budget, measure};

/// How many items a block has when a list is opened; one of twice as many is parted.
const BLOCK: usize = 512;

/// A value, opened as far as paths led into it.
#[derive(Debug)]
pub(super) enum Tree {
    Whole(Value),
    Fields(BTreeMap<String, Tree>),
    Items(Items),
}

impl From<Value> for Tree {
    fn from(value: Value) -> Tree {
        Tree::Whole(value)
    }
}

/// An opened container.
pub(super) enum Holder<'a> {
    Fields(&'a mut BTreeMap<String, Tree>),
    Items(&'a mut Items),
}

impl<'a> Holder<'a> {
    /// The value at a part of a path, if there is one.
    pub(super) fn get(self, part: &str) -> Option<&'a mut Tree> {
        self.find(part).ok().flatten()
    }

    /// The same, with what is wrong with an index.
    pub(super) fn find(self, part: &str) -> Result<Option<&'a mut Tree>, String> {
        match self {
            Holder::Fields(fields) => Ok(fields.get_mut(part)),
            Holder::Items(items) => index(part, items.len()).map(|index| items.get(index)),
        }
    }
}

impl Tree {
    /// The container that this is.
    pub(super) fn open(&mut self) -> Option<Holder<'_>> {
        if let Tree::Whole(value) = self {
            *self = match std::mem::take(value) {
                Value::Object(fields) => {
                    budget::spend(fields.len());
                    Tree::Fields(fields.into_iter().map(|(key, value)| (key, value.into())).collect())
                }
                Value::Array(items) => {
                    budget::spend(items.len());
                    Tree::Items(Items::new(items))
                }
                scalar => Tree::Whole(scalar),
            };
        }
        match self {
            Tree::Whole(_) => None,
            Tree::Fields(fields) => Some(Holder::Fields(fields)),
            Tree::Items(items) => Some(Holder::Items(items)),
        }
    }

    /// The value.
    pub(super) fn close(self) -> Value {
        match self {
            Tree::Whole(value) => value,
            Tree::Fields(fields) => Value::Object(fields.into_iter().map(|(key, tree)| (key, tree.close())).collect()),
            Tree::Items(items) => {
                // Room for all at once: a list that grows takes twice as much.
                let mut list = Vec::with_capacity(items.len());
                list.extend(items.blocks.into_iter().flatten().map(Tree::close));
                Value::Array(list)
            }
        }
    }

    /// A copy of the value.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Tree::Whole(value) => value.clone(),
            Tree::Fields(fields) => {
                let entries = fields.iter().map(|(key, tree)| (key.clone(), tree.to_value()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
            Tree::Items(items) => Value::Array(items.iter().map(Tree::to_value).collect()),
        }
    }

    /// Whether it is this value.
    pub(super) fn is(&self, expected: &Value) -> bool {
        budget::spend(1);
        match (self, expected) {
            (Tree::Whole(value), expected) => measure::same(value, expected),
            (Tree::Fields(fields), Value::Object(expected)) => {
                fields.len() == expected.len()
                    && fields
                        .iter()
                        .zip(expected)
                        .all(|((key, tree), (other, expected))| key == other && tree.is(expected))
            }
            (Tree::Items(items), Value::Array(expected)) => {
                items.len() == expected.len() && items.iter().zip(expected).all(|(tree, expected)| tree.is(expected))
            }
            _ => false,
        }
    }

    /// How deep containers nest in it.
    pub(super) fn depth(&self) -> usize {
        match self {
            Tree::Whole(value) => depth(value),
            Tree::Fields(fields) => 1 + fields.values().map(Tree::depth).max().unwrap_or(0),
            Tree::Items(items) => 1 + items.iter().map(Tree::depth).max().unwrap_or(0),
        }
    }

    /// How many values are in it, with itself.
    pub(super) fn count(&self) -> usize {
        match self {
            Tree::Whole(value) => count(value),
            Tree::Fields(fields) => 1 + fields.values().map(Tree::count).sum::<usize>(),
            Tree::Items(items) => 1 + items.iter().map(Tree::count).sum::<usize>(),
        }
    }

    /// About how many bytes it has as JSON.
    pub(super) fn size(&self) -> usize {
        match self {
            Tree::Whole(value) => size(value),
            Tree::Fields(fields) => {
                let entries = fields.iter().map(|(key, tree)| key.len() + tree.size() + 4);
                2 + entries.sum::<usize>()
            }
            Tree::Items(items) => 2 + items.iter().map(|item| item.size() + 1).sum::<usize>(),
        }
    }
}

/// The items of a list in blocks, none of which is empty.
#[derive(Debug)]
pub(super) struct Items {
    blocks: Vec<Vec<Tree>>,
    len: usize,
}

impl Items {
    fn new(mut items: Vec<Value>) -> Items {
        /// So many blocks are taken before their room in the list is given back.
        const TAKEN: usize = 128;
        let len = items.len();
        let mut blocks: Vec<Vec<Tree>> = Vec::with_capacity(len.div_ceil(BLOCK));
        // From the end, and what is in blocks is given back: otherwise a long list is there twice.
        while let Some(last) = items.len().checked_sub(1) {
            let block = items.split_off(last / BLOCK * BLOCK);
            blocks.push(block.into_iter().map(Tree::from).collect());
            if blocks.len().is_multiple_of(TAKEN) {
                items.shrink_to_fit();
            }
        }
        blocks.reverse();
        Items { blocks, len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn iter(&self) -> impl Iterator<Item = &Tree> {
        self.blocks.iter().flatten()
    }

    /// The block that an item is in, and its place there; past the last item, the end of the last block.
    fn place(&self, index: usize) -> (usize, usize) {
        let (mut block, mut rest) = (0, index);
        while let Some(items) = self.blocks.get(block) {
            if rest < items.len() || (block + 1 == self.blocks.len()) {
                break;
            }
            rest -= items.len();
            block += 1;
        }
        budget::spend(1 + block / 8);
        (block, rest)
    }

    /// The item at an index.
    pub(super) fn get(&mut self, index: usize) -> Option<&mut Tree> {
        let (block, place) = self.place(index);
        self.blocks.get_mut(block)?.get_mut(place)
    }

    /// Puts an item before the one at `index`, which is at most the number of items.
    pub(super) fn insert(&mut self, index: usize, item: Tree) {
        let (at, place) = self.place(index);
        self.len += 1;
        let Some(block) = self.blocks.get_mut(at) else {
            return self.blocks.push(vec![item]);
        };
        block.insert(place.min(block.len()), item);
        if block.len() > 2 * BLOCK {
            let rest = block.split_off(BLOCK);
            self.blocks.insert(at + 1, rest);
        }
    }

    /// Takes the item at an index out.
    pub(super) fn remove(&mut self, index: usize) -> Option<Tree> {
        let (at, place) = self.place(index);
        let block = self.blocks.get_mut(at).filter(|block| place < block.len())?;
        let item = block.remove(place);
        if block.is_empty() {
            self.blocks.remove(at);
        }
        self.len -= 1;
        Some(item)
    }
}

pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// About how many bytes the value has as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 2 + items.iter().map(|item| size(item) + 1).sum::<usize>(),
        Value::Object(fields) => {
            let entries = fields.iter().map(|(key, value)| key.len() + size(value) + 4);
            2 + entries.sum::<usize>()
        }
        Value::String(text) => text.len() + 2,
        Value::Number(_) | Value::Bool(_) | Value::Null => 4,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A list in blocks is the list: inserting, removing, reading at any place.
        #[test]
        fn blocks_are_a_list(
            count in prop_oneof![0..4_usize, 510..515_usize, 1022..1030_usize],
            turns in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..40),
        ) {
            let mut plain: Vec<Value> = (0..count).map(Value::from).collect();
            let mut items = Items::new(plain.clone());
            for (at, (adds, place)) in turns.into_iter().enumerate() {
                if adds {
                    let place = place.index(plain.len() + 1);
                    plain.insert(place, at.into());
                    items.insert(place, Value::from(at).into());
                } else if !plain.is_empty() {
                    let place = place.index(plain.len());
                    prop_assert!(items.get(place).is_some_and(|item| item.is(&plain[place])));
                    let taken = items.remove(place).map(Tree::close);
                    prop_assert_eq!(taken, Some(plain.remove(place)));
                }
                prop_assert_eq!(items.len(), plain.len());
                prop_assert!(items.get(plain.len()).is_none());
            }
            prop_assert!(Tree::Items(items).is(&Value::from(plain)));
        }
    }
}
