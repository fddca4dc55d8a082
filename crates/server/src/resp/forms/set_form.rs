//! A set in either form.

use stratakv_base::Expiry;
use stratakv_structures::Set;
use stratakv_structures::tree::{MAIN, TreeRoot};

use super::super::arguments::RequestRefusal;
use super::super::nodes::{KeyNodes, put_tree, refused, tree_of};
use super::super::records::{Call, Records, StoredRecord, refused_by_damage, store};
use super::{Drawn, ElementBytes, all, at_places, found, nodes, owned, remove_all, scan};

/// See the module.
pub(crate) enum SetForm<'a> {
    Packed(Set<'a>),
    Tree(TreeRoot),
}

impl<'a> SetForm<'a> {
    /// The set in a record, or an empty one.
    pub(crate) fn of(record: Option<&'a StoredRecord>) -> Result<SetForm<'a>, RequestRefusal> {
        let Some(record) = record else { return Ok(SetForm::Packed(Set::default())) };
        match tree_of(record)? {
            Some(root) => Ok(SetForm::Tree(root)),
            None => Set::parse(&record.value).map(SetForm::Packed).map_err(refused_by_damage),
        }
    }

    /// Whether a member is in the set of a record, which is not looked at further than there.
    pub(crate) fn lookup(
        at: (&dyn Records, &[u8]),
        record: Option<&StoredRecord>,
        member: &[u8],
    ) -> Result<bool, RequestRefusal> {
        let Some(record) = record else { return Ok(false) };
        match tree_of(record)? {
            Some(root) => Ok(SetForm::Tree(root).contain(at, &[member])?.contains(&true)),
            None => Set::lookup(&record.value, member).map_err(refused_by_damage),
        }
    }

    /// How many members there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            SetForm::Packed(set) => set.len(),
            SetForm::Tree(root) => root.len() as usize,
        }
    }

    /// Which of these are members.
    pub(crate) fn contain(
        &self,
        (records, key): (&dyn Records, &[u8]),
        members: &[&[u8]],
    ) -> Result<Vec<bool>, RequestRefusal> {
        match self {
            SetForm::Packed(set) => Ok(members.iter().map(|member| set.contains(member)).collect()),
            SetForm::Tree(root) => {
                let found = found(root, &nodes(records, key, root), MAIN, members.iter().copied());
                let found = found.map_err(|error| refused(error, root.kind()))?;
                Ok(members.iter().map(|member| found.get(member).is_some_and(Option::is_some)).collect())
            }
        }
    }

    /// Adds members; how many are new.
    pub(crate) fn insert_all(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        members: &[&'a [u8]],
    ) -> Result<usize, RequestRefusal> {
        match self {
            SetForm::Packed(set) => Ok(set.insert_all(members.iter().copied())),
            SetForm::Tree(root) => {
                let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
                let refuse = |error| refused(error, kind);
                let found = found(root, &nodes, MAIN, members.iter().copied()).map_err(refuse)?;
                let new = found.into_iter().filter(|(_, found)| found.is_none());
                let sorted: Vec<(&[u8], &[u8])> = new.map(|(member, _)| (member, &b""[..])).collect();
                root.insert_all(&mut nodes, MAIN, &sorted).map(|new| new as usize).map_err(refuse)
            }
        }
    }

    /// Removes members; how many were there.
    pub(crate) fn remove_all(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        members: &[&[u8]],
    ) -> Result<usize, RequestRefusal> {
        match self {
            SetForm::Packed(set) => Ok(set.remove_all(members.iter().copied())),
            SetForm::Tree(root) => {
                let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
                remove_all(root, &mut nodes, MAIN, members).map_err(|error| refused(error, kind))
            }
        }
    }

    /// All members in their order.
    pub(crate) fn members(
        &self,
        (records, key): (&dyn Records, &[u8]),
    ) -> Result<Vec<ElementBytes<'a>>, RequestRefusal> {
        match self {
            SetForm::Packed(set) => Ok(set.iter().map(ElementBytes::Borrowed).collect()),
            SetForm::Tree(root) => Ok(all(records, key, root)?.iter().map(|entry| owned(&entry.key)).collect()),
        }
    }

    /// Members at places in any order.
    pub(crate) fn at_places(
        &self,
        at: (&dyn Records, &[u8]),
        places: &[usize],
    ) -> Result<Drawn<ElementBytes<'a>>, RequestRefusal> {
        Drawn::read(places, |places| match self {
            SetForm::Packed(set) => {
                Ok(places.iter().filter_map(|place| set.get_at(*place)).map(ElementBytes::Borrowed).collect())
            }
            SetForm::Tree(root) => Ok(at_places(at, root, places)?.iter().map(|entry| owned(&entry.key)).collect()),
        })
    }

    /// About so many elements from a cursor on, and the next cursor; of a packed one all.
    pub(crate) fn scan(
        &self,
        at: (&dyn Records, &[u8]),
        page: (u64, u64),
    ) -> Result<(Vec<ElementBytes<'a>>, u64), RequestRefusal> {
        match self {
            SetForm::Packed(_) => Ok((self.members(at)?, 0)),
            SetForm::Tree(root) => {
                let (entries, next) = scan(at, (root, MAIN), page)?;
                Ok((entries.iter().map(|entry| owned(&entry.key)).collect(), next))
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
            SetForm::Packed(set) => store(call, records, key, (set.encode(usize::MAX), expiry)),
            SetForm::Tree(root) => put_tree(records, key, root, expiry),
        }
    }
}
