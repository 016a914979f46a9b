//! A document under the operations of a patch. A part that no path leads through is only referred to, and copied once,
//! into the result. Lists that a path leads through are kept in blocks, so that an item is put anywhere into a long
//! list without moving all that follow; a block that nothing is put into or taken out of is only pointed at as well.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::index;
use crate::{budget, measure};

/// How many items a block has when a list is opened; one of twice as many is parted.
const BLOCK: usize = 512;

/// A value of the document or the patch (`'v`), opened as far as paths led into it.
#[derive(Debug)]
pub(super) enum Tree<'v> {
    /// As it stands there.
    Shown(&'v Value),
    /// A copy.
    Whole(Value),
    Fields(BTreeMap<String, Tree<'v>>),
    Items(Items<'v>),
}

impl From<Value> for Tree<'_> {
    fn from(value: Value) -> Self {
        Tree::Whole(value)
    }
}

impl<'v> From<&'v Value> for Tree<'v> {
    fn from(value: &'v Value) -> Self {
        Tree::Shown(value)
    }
}

/// An opened container.
pub(super) enum Holder<'a, 'v> {
    Fields(&'a mut BTreeMap<String, Tree<'v>>),
    Items(&'a mut Items<'v>),
}

impl<'a, 'v> Holder<'a, 'v> {
    /// The value at a part of a path, if there is one.
    pub(super) fn get(self, part: &str) -> Option<&'a mut Tree<'v>> {
        self.find(part).ok().flatten()
    }

    /// The same, with the error about an index.
    pub(super) fn find(self, part: &str) -> Result<Option<&'a mut Tree<'v>>, String> {
        match self {
            Holder::Fields(fields) => Ok(fields.get_mut(part)),
            Holder::Items(items) => Ok(items.get(index(part, items.len())?)),
        }
    }
}

impl<'v> Tree<'v> {
    /// The container that this is.
    pub(super) fn open(&mut self) -> Option<Holder<'_, 'v>> {
        let opened = match self {
            Tree::Shown(value) => opened(value),
            Tree::Whole(value) => opened_copy(value),
            Tree::Fields(_) | Tree::Items(_) => None,
        };
        if let Some(opened) = opened {
            *self = opened;
        }
        match self {
            Tree::Shown(_) | Tree::Whole(_) => None,
            Tree::Fields(fields) => Some(Holder::Fields(fields)),
            Tree::Items(items) => Some(Holder::Items(items)),
        }
    }

    /// The value.
    pub(super) fn close(self) -> Value {
        match self {
            Tree::Shown(value) => value.clone(),
            Tree::Whole(value) => value,
            Tree::Fields(fields) => Value::Object(fields.into_iter().map(|(key, tree)| (key, tree.close())).collect()),
            Tree::Items(items) => items.close(),
        }
    }

    /// A copy of the value.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Tree::Shown(value) => Value::clone(value),
            Tree::Whole(value) => value.clone(),
            Tree::Fields(fields) => {
                let entries = fields.iter().map(|(key, tree)| (key.clone(), tree.to_value()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
            Tree::Items(items) => {
                Value::Array(items.iter().map(|item| item.of(Value::clone, Tree::to_value)).collect())
            }
        }
    }

    /// Whether it is this value.
    pub(super) fn is(&self, expected: &Value) -> bool {
        budget::spend(1);
        match (self, expected) {
            (Tree::Shown(value), expected) => measure::same(value, expected),
            (Tree::Whole(value), expected) => measure::same(value, expected),
            (Tree::Fields(fields), Value::Object(expected)) => {
                fields.len() == expected.len()
                    && fields
                        .iter()
                        .zip(expected)
                        .all(|((key, tree), (other, expected))| key == other && tree.is(expected))
            }
            (Tree::Items(items), Value::Array(expected)) => items.len() == expected.len() && items.are(expected),
            _ => false,
        }
    }

    /// How deep containers nest in it.
    pub(super) fn depth(&self) -> usize {
        match self {
            Tree::Shown(value) => depth(value),
            Tree::Whole(value) => depth(value),
            Tree::Fields(fields) => 1 + fields.values().map(Tree::depth).max().unwrap_or(0),
            Tree::Items(items) => 1 + items.iter().map(|item| item.of(depth, Tree::depth)).max().unwrap_or(0),
        }
    }

    /// How many values are in it, with itself.
    pub(super) fn count(&self) -> usize {
        match self {
            Tree::Shown(value) => count(value),
            Tree::Whole(value) => count(value),
            Tree::Fields(fields) => 1 + fields.values().map(Tree::count).sum::<usize>(),
            Tree::Items(items) => 1 + items.iter().map(|item| item.of(count, Tree::count)).sum::<usize>(),
        }
    }

    /// About how many bytes it has as JSON.
    pub(super) fn size(&self) -> usize {
        match self {
            Tree::Shown(value) => size(value),
            Tree::Whole(value) => size(value),
            Tree::Fields(fields) => {
                let entries = fields.iter().map(|(key, tree)| key.len() + tree.size() + 4);
                2 + entries.sum::<usize>()
            }
            Tree::Items(items) => 2 + items.len() + items.iter().map(|item| item.of(size, Tree::size)).sum::<usize>(),
        }
    }
}

/// The container of the document or the patch, with references to its parts.
fn opened(value: &Value) -> Option<Tree<'_>> {
    match value {
        Value::Object(fields) => {
            budget::spend(fields.len());
            let fields = fields.iter().map(|(key, value)| (key.clone(), value.into()));
            Some(Tree::Fields(fields.collect()))
        }
        Value::Array(items) => {
            budget::spend(items.len());
            let blocks = items.chunks(BLOCK).map(Block::Shown).collect();
            Some(Tree::Items(Items::new(blocks, items.len())))
        }
        _ => None,
    }
}

/// The container that a copy is; its parts are moved. Copies are never larger than the limit of `copy`.
fn opened_copy<'v>(value: &mut Value) -> Option<Tree<'v>> {
    match value {
        Value::Object(fields) => {
            budget::spend(fields.len());
            let fields = std::mem::take(fields).into_iter();
            Some(Tree::Fields(fields.map(|(key, value)| (key, value.into())).collect()))
        }
        Value::Array(items) => {
            budget::spend(items.len());
            let count = items.len();
            let mut items = std::mem::take(items).into_iter().map(Tree::from).peekable();
            let mut blocks = Vec::with_capacity(count.div_ceil(BLOCK));
            while items.peek().is_some() {
                blocks.push(Block::Own(items.by_ref().take(BLOCK).collect()));
            }
            Some(Tree::Items(Items::new(blocks, count)))
        }
        _ => None,
    }
}

/// Some items of a list.
#[derive(Debug)]
enum Block<'v> {
    /// As they stand in the document or the patch.
    Shown(&'v [Value]),
    Own(Vec<Tree<'v>>),
}

impl<'v> Block<'v> {
    fn len(&self) -> usize {
        match self {
            Block::Shown(items) => items.len(),
            Block::Own(items) => items.len(),
        }
    }

    /// The items, to be changed.
    fn open(&mut self) -> &mut Vec<Tree<'v>> {
        if let Block::Shown(items) = self {
            *self = Block::Own(items.iter().map(Tree::from).collect());
        }
        let Block::Own(items) = self else {
            unreachable!("it was opened above");
        };
        items
    }
}

/// An item of a list.
enum Item<'a, 'v> {
    Shown(&'a Value),
    Own(&'a Tree<'v>),
}

impl<'v> Item<'_, 'v> {
    /// The result of one of two functions about it.
    fn of<T>(&self, shown: impl Fn(&Value) -> T, own: impl Fn(&Tree<'v>) -> T) -> T {
        match self {
            Item::Shown(value) => shown(value),
            Item::Own(tree) => own(tree),
        }
    }
}

/// The items of a list in blocks, none of which is empty.
#[derive(Debug)]
pub(super) struct Items<'v> {
    blocks: Vec<Block<'v>>,
    len: usize,
}

impl<'v> Items<'v> {
    fn new(blocks: Vec<Block<'v>>, len: usize) -> Self {
        Items { blocks, len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn iter(&self) -> impl Iterator<Item = Item<'_, 'v>> {
        self.blocks.iter().flat_map(|block| {
            let (values, trees): (&[Value], &[Tree<'v>]) = match block {
                Block::Shown(items) => (items, &[]),
                Block::Own(items) => (&[], items),
            };
            values.iter().map(Item::Shown).chain(trees.iter().map(Item::Own))
        })
    }

    /// Whether they are these, of which there are as many.
    fn are(&self, expected: &[Value]) -> bool {
        let mut rest = expected;
        self.blocks.iter().all(|block| {
            let (these, others) = rest.split_at(block.len().min(rest.len()));
            rest = others;
            match block {
                Block::Shown(items) => {
                    budget::spend(items.len());
                    items
                        .iter()
                        .zip(these)
                        .all(|(item, expected)| measure::same(item, expected))
                }
                Block::Own(items) => items.iter().zip(these).all(|(item, expected)| item.is(expected)),
            }
        })
    }

    fn close(self) -> Value {
        // Room for all at once: a list that grows takes twice as much.
        let mut list = Vec::with_capacity(self.len);
        for block in self.blocks {
            match block {
                Block::Shown(items) => list.extend_from_slice(items),
                Block::Own(items) => list.extend(items.into_iter().map(Tree::close)),
            }
        }
        Value::Array(list)
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
    pub(super) fn get(&mut self, index: usize) -> Option<&mut Tree<'v>> {
        let (block, place) = self.place(index);
        self.blocks.get_mut(block)?.open().get_mut(place)
    }

    /// Puts an item before the one at `index`, which is at most the number of items.
    pub(super) fn insert(&mut self, index: usize, item: Tree<'v>) {
        let (at, place) = self.place(index);
        self.len += 1;
        let Some(block) = self.blocks.get_mut(at) else {
            return self.blocks.push(Block::Own(vec![item]));
        };
        let items = block.open();
        items.insert(place.min(items.len()), item);
        if items.len() > 2 * BLOCK {
            let rest = items.split_off(BLOCK);
            self.blocks.insert(at + 1, Block::Own(rest));
        }
    }

    /// Takes the item at an index out.
    pub(super) fn remove(&mut self, index: usize) -> Option<Tree<'v>> {
        let (at, place) = self.place(index);
        let block = self.blocks.get_mut(at).filter(|block| place < block.len())?;
        let items = block.open();
        let item = items.remove(place);
        if items.is_empty() {
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
            length in prop_oneof![0..4_usize, 510..515_usize, 1022..1030_usize],
            turns in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..40),
        ) {
            let mut plain: Vec<Value> = (0..length).map(Value::from).collect();
            // As a list of the document, and as one that was copied.
            let shown = Value::from(plain.clone());
            let (mut items, mut copy) = match (opened(&shown), opened_copy(&mut shown.clone())) {
                (Some(Tree::Items(items)), Some(Tree::Items(copy))) => (items, copy),
                other => panic!("{other:?}"),
            };
            for (at, (adds, place)) in turns.into_iter().enumerate() {
                if adds {
                    let place = place.index(plain.len() + 1);
                    plain.insert(place, at.into());
                    items.insert(place, Value::from(at).into());
                    copy.insert(place, Value::from(at).into());
                } else if !plain.is_empty() {
                    let place = place.index(plain.len());
                    prop_assert!(items.get(place).is_some_and(|item| item.is(&plain[place])));
                    let taken = items.remove(place).map(Tree::close);
                    prop_assert_eq!(&taken, &Some(plain.remove(place)));
                    prop_assert_eq!(copy.remove(place).map(Tree::close), taken);
                }
                prop_assert_eq!(items.len(), plain.len());
                prop_assert!(items.get(plain.len()).is_none());
            }
            let whole = Value::from(plain);
            let items = Tree::Items(items);
            prop_assert!(items.is(&whole));
            prop_assert_eq!((items.count(), items.depth(), items.size()), (count(&whole), depth(&whole), size(&whole)));
            prop_assert_eq!(items.to_value(), whole.clone());
            prop_assert_eq!(items.close(), whole.clone());
            prop_assert_eq!(Tree::Items(copy).close(), whole);
        }
    }
}
