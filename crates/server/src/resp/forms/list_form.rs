//! A list in either form.

use std::ops::Range;

use stratakv_base::Expiry;
use stratakv_structures::List;
use stratakv_structures::list::from_front;
use stratakv_structures::tree::{MAIN, TreeRoot};

use super::super::arguments::RequestRefusal;
use super::super::nodes::{KeyNodes, put_tree, refused, tree_of};
use super::super::records::{Call, Records, StoredRecord, refused_by_damage, store};
use super::{ElementBytes, nodes, owned, range};

/// Elements that a search looks at first; then as many as it has looked at.
const SEARCHED_FIRST: usize = 256;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListEnd {
    Left,
    Right,
}

/// See the module.
pub(crate) enum ListForm<'a> {
    Packed(List<'a>),
    Tree(TreeRoot),
}

impl<'a> ListForm<'a> {
    /// The list in a record, or an empty one.
    pub(crate) fn of(record: Option<&'a StoredRecord>) -> Result<ListForm<'a>, RequestRefusal> {
        let Some(record) = record else { return Ok(ListForm::Packed(List::default())) };
        match tree_of(record)? {
            Some(root) => Ok(ListForm::Tree(root)),
            None => List::parse(&record.value).map(ListForm::Packed).map_err(refused_by_damage),
        }
    }

    /// The element at a place of the list in a record, from the front, or below zero from the end.
    pub(crate) fn lookup(
        (records, key): (&dyn Records, &[u8]),
        record: &'a StoredRecord,
        place: i64,
    ) -> Result<Option<ElementBytes<'a>>, RequestRefusal> {
        if let Some(root) = tree_of(record)? {
            let Some(place) = from_front(place, root.len() as usize) else { return Ok(None) };
            let found = root.get_at(&nodes(records, key, &root), MAIN, place as u64);
            let found = found.map_err(|error| refused(error, root.kind()))?;
            return Ok(found.map(|entry| owned(&entry.value)));
        }
        List::lookup(&record.value, place).map(|found| found.map(ElementBytes::Borrowed)).map_err(refused_by_damage)
    }

    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            ListForm::Packed(list) => list.elements.len(),
            ListForm::Tree(root) => root.len() as usize,
        }
    }

    /// Adds elements at an end, one after the other.
    pub(crate) fn push_all(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        end: ListEnd,
        elements: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), RequestRefusal> {
        match (self, end) {
            (ListForm::Packed(list), ListEnd::Left) => elements.for_each(|element| list.elements.push_front(element)),
            (ListForm::Packed(list), ListEnd::Right) => list.elements.extend(elements),
            (ListForm::Tree(root), end) => {
                let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
                for element in elements {
                    let place = if end == ListEnd::Left { 0 } else { root.len() };
                    root.insert_at(&mut nodes, place, element).map_err(|error| refused(error, kind))?;
                }
            }
        }
        Ok(())
    }

    /// The elements at these places.
    pub(crate) fn range(
        &self,
        at: (&dyn Records, &[u8]),
        places: Range<usize>,
    ) -> Result<Vec<ElementBytes<'a>>, RequestRefusal> {
        match self {
            ListForm::Packed(list) => {
                let places = places.start.min(list.elements.len())..places.end.min(list.elements.len());
                Ok(list.elements.range(places).map(|element| ElementBytes::Borrowed(element)).collect())
            }
            ListForm::Tree(root) => {
                let entries = range(at, (root, MAIN), places)?;
                Ok(entries.iter().map(|entry| owned(&entry.value)).collect())
            }
        }
    }

    /// Removes the elements at these places.
    pub(crate) fn remove_range(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        places: Range<usize>,
    ) -> Result<(), RequestRefusal> {
        match self {
            ListForm::Packed(list) => {
                let places = places.start.min(list.elements.len())..places.end.min(list.elements.len());
                list.elements.drain(places);
                Ok(())
            }
            ListForm::Tree(root) => {
                let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
                let places = places.start as u64..places.end as u64;
                root.remove_places(&mut nodes, MAIN, places).map_err(|error| refused(error, kind))
            }
        }
    }

    /// Takes up to so many elements off an end, the outermost first.
    pub(crate) fn take(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        (end, count): (ListEnd, usize),
    ) -> Result<Vec<ElementBytes<'a>>, RequestRefusal> {
        let count = count.min(self.len());
        let places = if end == ListEnd::Left { 0..count } else { self.len() - count..self.len() };
        let mut taken = self.range((records, key), places.clone())?;
        if end == ListEnd::Right {
            taken.reverse();
        }
        self.remove_range((records, key), places)?;
        Ok(taken)
    }

    /// Gives the element at a place, which there is, other bytes.
    pub(crate) fn set(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        place: usize,
        element: &'a [u8],
    ) -> Result<(), RequestRefusal> {
        match self {
            ListForm::Packed(list) => {
                if let Some(found) = list.elements.get_mut(place) {
                    *found = element;
                }
                Ok(())
            }
            ListForm::Tree(root) => {
                let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
                root.set_at(&mut nodes, place as u64, element).map_err(|error| refused(error, kind))
            }
        }
    }

    /// Puts an element at a place.
    pub(crate) fn insert(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        place: usize,
        element: &'a [u8],
    ) -> Result<(), RequestRefusal> {
        match self {
            ListForm::Packed(list) => {
                list.elements.insert(place.min(list.elements.len()), element);
                Ok(())
            }
            ListForm::Tree(root) => {
                let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
                root.insert_at(&mut nodes, place as u64, element).map_err(|error| refused(error, kind))
            }
        }
    }

    /// The places of elements with these bytes among the first `compared_max`, or the last if
    /// `is_reverse`: so many of them, in the order in which they are met.
    pub(crate) fn places_of(
        &self,
        at: (&dyn Records, &[u8]),
        wanted: &[u8],
        (is_reverse, compared_max, places_max): (bool, usize, usize),
    ) -> Result<Vec<usize>, RequestRefusal> {
        let (len, mut places, mut seen) = (self.len(), Vec::new(), 0);
        let compared = compared_max.min(len);
        while seen < compared && places.len() < places_max {
            let next = match self {
                ListForm::Packed(_) => compared,
                ListForm::Tree(_) => compared.min(seen + seen.max(SEARCHED_FIRST)),
            };
            let part = if is_reverse { len - next..len - seen } else { seen..next };
            let elements = self.range(at, part.clone())?;
            let found = elements.iter().enumerate().filter(|(_, element)| element[..] == *wanted);
            let found = found.map(|(place, _)| part.start + place);
            let missing = places_max - places.len();
            match is_reverse {
                true => places.extend(found.collect::<Vec<_>>().into_iter().rev().take(missing)),
                false => places.extend(found.take(missing)),
            }
            seen = next;
        }
        Ok(places)
    }

    /// Stores what it has become.
    pub(crate) fn store(
        self,
        call: &Call<'_>,
        (records, key): (&mut dyn Records, &[u8]),
        expiry: Expiry,
    ) -> Result<(), RequestRefusal> {
        match self {
            ListForm::Packed(list) => store(call, records, key, (list.encode(usize::MAX), expiry)),
            ListForm::Tree(root) => put_tree(records, key, root, expiry),
        }
    }
}
