//! A hash in either form.

use std::collections::BTreeMap;

use stratakv_base::Expiry;
use stratakv_structures::Hash;
use stratakv_structures::tree::{MAIN, TreeRoot};

use super::super::arguments::RequestRefusal;
use super::super::nodes::{KeyNodes, put_tree, refused, tree_of};
use super::super::records::{Call, Records, StoredRecord, refused_by_damage, store};
use super::{Drawn, ElementBytes, all, at_places, found, nodes, owned, remove_all, scan};

/// See the module.
pub(crate) enum HashForm<'a> {
    Packed(Hash<'a>),
    Tree(TreeRoot),
}

impl<'a> HashForm<'a> {
    /// The hash in a record, or an empty one.
    pub(crate) fn of(record: Option<&'a StoredRecord>) -> Result<HashForm<'a>, RequestRefusal> {
        let Some(record) = record else { return Ok(HashForm::Packed(Hash::default())) };
        match tree_of(record)? {
            Some(root) => Ok(HashForm::Tree(root)),
            None => Hash::parse(&record.value).map(HashForm::Packed).map_err(refused_by_damage),
        }
    }

    /// The value of one field of the hash in a record, which is not looked at further than there.
    pub(crate) fn lookup(
        (records, key): (&dyn Records, &[u8]),
        record: Option<&'a StoredRecord>,
        field: &[u8],
    ) -> Result<Option<ElementBytes<'a>>, RequestRefusal> {
        let Some(record) = record else { return Ok(None) };
        if let Some(root) = tree_of(record)? {
            let found = root.get(&nodes(records, key, &root), MAIN, field);
            return found.map(|found| found.as_ref().map(owned)).map_err(|error| refused(error, root.kind()));
        }
        Hash::lookup(&record.value, field).map(|found| found.map(ElementBytes::Borrowed)).map_err(refused_by_damage)
    }

    /// How many fields there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            HashForm::Packed(hash) => hash.len(),
            HashForm::Tree(root) => root.len() as usize,
        }
    }

    /// The values of these fields.
    pub(crate) fn values(
        &self,
        (records, key): (&dyn Records, &[u8]),
        fields: &[&[u8]],
    ) -> Result<Vec<Option<ElementBytes<'a>>>, RequestRefusal> {
        match self {
            HashForm::Packed(hash) => {
                Ok(fields.iter().map(|field| hash.get(field).map(ElementBytes::Borrowed)).collect())
            }
            HashForm::Tree(root) => {
                let found = found(root, &nodes(records, key, root), MAIN, fields.iter().copied());
                let found = found.map_err(|error| refused(error, root.kind()))?;
                Ok(fields.iter().map(|field| found.get(field)?.as_ref().map(owned)).collect())
            }
        }
    }

    /// Gives fields their values, the last one of a field counts; how many fields are new.
    pub(crate) fn insert_all(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        pairs: &[(&'a [u8], &'a [u8])],
    ) -> Result<usize, RequestRefusal> {
        match (self, pairs) {
            (HashForm::Packed(hash), [(field, value)]) => Ok(usize::from(hash.insert(field, value))),
            (HashForm::Packed(hash), pairs) => Ok(hash.insert_all(pairs.iter().copied())),
            (HashForm::Tree(root), pairs) => {
                let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
                let refuse = |error| refused(error, kind);
                root.need_keys(&nodes, MAIN, pairs.iter().map(|pair| pair.0)).map_err(refuse)?;
                let last: BTreeMap<&[u8], &[u8]> = pairs.iter().copied().collect();
                let sorted: Vec<(&[u8], &[u8])> = last.into_iter().collect();
                root.insert_all(&mut nodes, MAIN, &sorted).map(|new| new as usize).map_err(refuse)
            }
        }
    }

    /// Removes fields; how many were there.
    pub(crate) fn remove_all(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        fields: &[&[u8]],
    ) -> Result<usize, RequestRefusal> {
        match self {
            HashForm::Packed(hash) => Ok(hash.remove_all(fields.iter().copied())),
            HashForm::Tree(root) => {
                let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
                remove_all(root, &mut nodes, MAIN, fields).map_err(|error| refused(error, kind))
            }
        }
    }

    /// All fields and their values, in the order of fields.
    pub(crate) fn entries(
        &self,
        (records, key): (&dyn Records, &[u8]),
    ) -> Result<Vec<(ElementBytes<'a>, ElementBytes<'a>)>, RequestRefusal> {
        match self {
            HashForm::Packed(hash) => Ok(hash.iter().map(borrowed).collect()),
            HashForm::Tree(root) => {
                let all = all(records, key, root)?;
                Ok(all.iter().map(|entry| (owned(&entry.key), owned(&entry.value))).collect())
            }
        }
    }

    /// Fields at places in any order, and their values.
    pub(crate) fn at_places(
        &self,
        at: (&dyn Records, &[u8]),
        places: &[usize],
    ) -> Result<Drawn<(ElementBytes<'a>, ElementBytes<'a>)>, RequestRefusal> {
        Drawn::read(places, |places| match self {
            HashForm::Packed(hash) => Ok(places.iter().filter_map(|place| hash.get_at(*place)).map(borrowed).collect()),
            HashForm::Tree(root) => {
                let found = at_places(at, root, places)?;
                Ok(found.iter().map(|entry| (owned(&entry.key), owned(&entry.value))).collect())
            }
        })
    }

    /// About so many elements from a cursor on, and the next cursor; of a packed one all.
    pub(crate) fn scan(
        &self,
        at: (&dyn Records, &[u8]),
        page: (u64, u64),
    ) -> Result<(Vec<(ElementBytes<'a>, ElementBytes<'a>)>, u64), RequestRefusal> {
        match self {
            HashForm::Packed(_) => Ok((self.entries(at)?, 0)),
            HashForm::Tree(root) => {
                let (entries, next) = scan(at, (root, MAIN), page)?;
                Ok((entries.iter().map(|entry| (owned(&entry.key), owned(&entry.value))).collect(), next))
            }
        }
    }

    /// Stores what it has become.
    pub(crate) fn store(
        self,
        call: &Call<'_>,
        (records, key): (&mut dyn Records, &[u8]),
        expiry: Expiry,
    ) -> Result<(), RequestRefusal> {
        match self {
            HashForm::Packed(hash) => store(call, records, key, (hash.encode(usize::MAX), expiry)),
            HashForm::Tree(root) => put_tree(records, key, root, expiry),
        }
    }
}

fn borrowed<'a>((field, value): (&'a [u8], &'a [u8])) -> (ElementBytes<'a>, ElementBytes<'a>) {
    (ElementBytes::Borrowed(field), ElementBytes::Borrowed(value))
}
