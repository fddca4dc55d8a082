//! A sorted set in either form.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use stratakv_base::Expiry;
use stratakv_structures::SortedSet;
use stratakv_structures::tree::{BY_MEMBER, MAIN, TreeEntry, TreeError, TreeRoot, score_key, score_of, scored};

use super::super::arguments::RequestRefusal;
use super::super::nodes::{KeyNodes, put_tree, refused, tree_of};
use super::super::records::{Call, Records, StoredRecord, refused_by_damage, store};
use super::{Drawn, ElementBytes, at_places, found, nodes, owned, range, remove_all, scan};

/// Something between members in the order of scores and members.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScoreEdge<'a> {
    /// Before all of them.
    Start,
    /// Behind all of them.
    End,
    /// Before those with a score, or behind them.
    Score { score: f64, is_behind: bool },
    /// Before a member, or behind it, where all have one score.
    Member { member: &'a [u8], is_behind: bool },
}

/// What becomes of the score of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewScore<'a> {
    pub(crate) member: &'a [u8],
    /// What it has here; `None`: it is not here yet.
    pub(crate) old: Option<f64>,
    pub(crate) score: f64,
}

/// A member and its score.
pub(crate) type ScoredMember<'a> = (ElementBytes<'a>, f64);

/// See the module.
pub(crate) enum SortedSetForm<'a> {
    Packed(SortedSet<'a>),
    Tree(TreeRoot),
}

impl<'a> SortedSetForm<'a> {
    /// The sorted set in a record, or an empty one.
    pub(crate) fn of(record: Option<&'a StoredRecord>) -> Result<SortedSetForm<'a>, RequestRefusal> {
        let Some(record) = record else { return Ok(SortedSetForm::Packed(SortedSet::default())) };
        match tree_of(record)? {
            Some(root) => Ok(SortedSetForm::Tree(root)),
            None => SortedSet::parse(&record.value).map(SortedSetForm::Packed).map_err(refused_by_damage),
        }
    }

    /// The score of one member of the sorted set in a record, which is not looked at further.
    pub(crate) fn lookup(
        at: (&dyn Records, &[u8]),
        record: Option<&StoredRecord>,
        member: &[u8],
    ) -> Result<Option<f64>, RequestRefusal> {
        let Some(record) = record else { return Ok(None) };
        match tree_of(record)? {
            Some(root) => {
                let scores = SortedSetForm::Tree(root).scores_of(at, &[member])?;
                Ok(scores.get(member).copied().flatten())
            }
            None => SortedSet::lookup(&record.value, member).map_err(refused_by_damage),
        }
    }

    /// How many members there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            SortedSetForm::Packed(set) => set.len(),
            SortedSetForm::Tree(root) => root.len() as usize,
        }
    }

    /// These members with the scores that they have here.
    pub(crate) fn scores_of<'b>(
        &self,
        (records, key): (&dyn Records, &[u8]),
        members: &[&'b [u8]],
    ) -> Result<BTreeMap<&'b [u8], Option<f64>>, RequestRefusal> {
        let root = match self {
            SortedSetForm::Packed(set) => return Ok(set.scores_of(members.iter().copied())),
            SortedSetForm::Tree(root) => root,
        };
        let (nodes, refuse) = (nodes(records, key, root), |error| refused(error, root.kind()));
        let found = found(root, &nodes, BY_MEMBER, members.iter().copied()).map_err(refuse)?;
        let scores = found.into_iter().map(|(member, found)| {
            let score = found.map(|found| score_of(&found)).transpose().map_err(refused_by_damage)?;
            Ok((member, score))
        });
        scores.collect()
    }

    /// Gives members, in their order and each once, their scores.
    pub(crate) fn insert_all(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        given: &[NewScore<'a>],
    ) -> Result<(), RequestRefusal> {
        let root = match self {
            SortedSetForm::Packed(set) => {
                set.insert_all(given.iter().map(|new| (new.member, new.score)));
                return Ok(());
            }
            SortedSetForm::Tree(root) => root,
        };
        let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
        let mut all = || {
            let olds = given.iter().filter_map(|new| Some(scored(new.member, new.old?)));
            let olds: BTreeSet<Vec<u8>> = olds.collect();
            let news: Vec<Vec<u8>> = given.iter().map(|new| scored(new.member, new.score)).collect();
            root.need_keys(&nodes, MAIN, olds.iter().chain(&news).map(Vec::as_slice))?;
            let gone: Vec<&[u8]> = olds.iter().map(Vec::as_slice).collect();
            root.remove_all(&mut nodes, MAIN, &gone)?;
            let by_score: BTreeSet<&[u8]> = news.iter().map(Vec::as_slice).collect();
            let by_score: Vec<(&[u8], &[u8])> = by_score.into_iter().map(|key| (key, &b""[..])).collect();
            root.insert_all(&mut nodes, MAIN, &by_score)?;
            let scores: Vec<[u8; 8]> = given.iter().map(|new| score_key(new.score)).collect();
            let by_member: Vec<(&[u8], &[u8])> =
                given.iter().zip(&scores).map(|(new, score)| (new.member, &score[..])).collect();
            root.insert_all(&mut nodes, BY_MEMBER, &by_member).map(|_| ())
        };
        all().map_err(|error| refused(error, kind))
    }

    /// Removes members; how many were there.
    pub(crate) fn remove_all(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        members: &[&[u8]],
    ) -> Result<usize, RequestRefusal> {
        let root = match self {
            SortedSetForm::Packed(set) => return Ok(set.remove_all(members.iter().copied())),
            SortedSetForm::Tree(root) => root,
        };
        let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
        let mut all = || {
            let olds = old_keys(root, &nodes, members.iter().copied())?;
            let gone: Vec<&[u8]> = olds.iter().flatten().map(Vec::as_slice).collect();
            root.need_keys(&nodes, MAIN, gone.iter().copied())?;
            remove_all(root, &mut nodes, BY_MEMBER, members)?;
            remove_all(root, &mut nodes, MAIN, &gone)
        };
        all().map_err(|error| refused(error, kind))
    }

    /// The place of a member in the order.
    pub(crate) fn rank(&self, at: (&dyn Records, &[u8]), member: &[u8]) -> Result<Option<usize>, RequestRefusal> {
        let root = match self {
            SortedSetForm::Packed(set) => return Ok(set.rank(member)),
            SortedSetForm::Tree(root) => root,
        };
        let Some(score) = self.scores_of(at, &[member])?.get(member).copied().flatten() else { return Ok(None) };
        let place = root.place_of(&nodes(at.0, at.1, root), MAIN, &scored(member, score));
        let (place, is_there) = place.map_err(|error| refused(error, root.kind()))?;
        Ok(is_there.then_some(place as usize))
    }

    /// How many members come before an edge.
    pub(crate) fn count_before(
        &self,
        (records, key): (&dyn Records, &[u8]),
        edge: ScoreEdge<'_>,
    ) -> Result<usize, RequestRefusal> {
        let root = match (self, edge) {
            (_, ScoreEdge::Start) => return Ok(0),
            (_, ScoreEdge::End) => return Ok(self.len()),
            (SortedSetForm::Packed(set), ScoreEdge::Score { score: edge, is_behind }) => {
                return Ok(set.count_while(|_, score| score < edge || (is_behind && score == edge)));
            }
            (SortedSetForm::Packed(set), ScoreEdge::Member { member: edge, is_behind }) => {
                return Ok(set.count_while(|member, _| member < edge || (is_behind && member == edge)));
            }
            (SortedSetForm::Tree(root), _) => root,
        };
        let nodes = nodes(records, key, root);
        let before = || {
            let edge = match edge {
                ScoreEdge::Score { score, is_behind } => {
                    let key = u64::from_be_bytes(score_key(score));
                    key.saturating_add(u64::from(is_behind)).to_be_bytes().to_vec()
                }
                ScoreEdge::Member { member, is_behind } => {
                    let first = root.get_at(&nodes, MAIN, 0)?;
                    let score = first.as_ref().and_then(|entry| entry.key.get(..8)).unwrap_or_default();
                    [score, member, if is_behind { b"\0" } else { b"" }].concat()
                }
                ScoreEdge::Start | ScoreEdge::End => Vec::new(),
            };
            root.place_of(&nodes, MAIN, &edge)
        };
        before().map(|(place, _)| place as usize).map_err(|error| refused(error, root.kind()))
    }

    /// The members at these places, with their scores.
    pub(crate) fn range(
        &self,
        at: (&dyn Records, &[u8]),
        places: Range<usize>,
    ) -> Result<Vec<ScoredMember<'a>>, RequestRefusal> {
        match self {
            SortedSetForm::Packed(set) => Ok(places.filter_map(|place| set.get_at(place)).map(borrowed).collect()),
            SortedSetForm::Tree(root) => range(at, (root, MAIN), places)?.iter().map(read).collect(),
        }
    }

    /// Members at places in any order, with their scores.
    pub(crate) fn at_places(
        &self,
        at: (&dyn Records, &[u8]),
        places: &[usize],
    ) -> Result<Drawn<ScoredMember<'a>>, RequestRefusal> {
        Drawn::read(places, |places| match self {
            SortedSetForm::Packed(set) => {
                Ok(places.iter().filter_map(|place| set.get_at(*place)).map(borrowed).collect())
            }
            SortedSetForm::Tree(root) => at_places(at, root, places)?.iter().map(read).collect(),
        })
    }

    /// Removes the members at these places, and gives them in their order.
    pub(crate) fn remove_range(
        &mut self,
        (records, key): (&mut dyn Records, &[u8]),
        places: Range<usize>,
    ) -> Result<Vec<ScoredMember<'a>>, RequestRefusal> {
        let removed = self.range((records, key), places.clone())?;
        match self {
            SortedSetForm::Packed(set) => _ = set.remove_places(places),
            SortedSetForm::Tree(root) => {
                let (kind, mut nodes) = (root.kind(), KeyNodes::new(records, key, root.id()));
                let mut all = || {
                    let members: Vec<&[u8]> = removed.iter().map(|(member, _)| &member[..]).collect();
                    remove_all(root, &mut nodes, BY_MEMBER, &members)?;
                    root.remove_places(&mut nodes, MAIN, places.start as u64..places.end as u64)
                };
                all().map_err(|error| refused(error, kind))?;
            }
        }
        Ok(removed)
    }

    /// About so many elements from a cursor on, and the next cursor; of a packed one all.
    pub(crate) fn scan(
        &self,
        at: (&dyn Records, &[u8]),
        page: (u64, u64),
    ) -> Result<(Vec<ScoredMember<'a>>, u64), RequestRefusal> {
        match self {
            SortedSetForm::Packed(set) => Ok((set.iter().map(borrowed).collect(), 0)),
            SortedSetForm::Tree(root) => {
                // By member: scores may change between two pages.
                let (entries, next) = scan(at, (root, BY_MEMBER), page)?;
                let read =
                    |entry: &TreeEntry| Ok((owned(&entry.key), score_of(&entry.value).map_err(refused_by_damage)?));
                Ok((entries.iter().map(read).collect::<Result<_, RequestRefusal>>()?, next))
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
            SortedSetForm::Packed(set) => store(call, records, key, (set.encode(usize::MAX), expiry)),
            SortedSetForm::Tree(root) => put_tree(records, key, root, expiry),
        }
    }
}

/// The keys in order of scores that these members have.
fn old_keys<'m>(
    root: &TreeRoot,
    nodes: &KeyNodes<'_>,
    members: impl Iterator<Item = &'m [u8]> + Clone,
) -> Result<Vec<Option<Vec<u8>>>, TreeError> {
    let found = found(root, nodes, BY_MEMBER, members.clone())?;
    let old = |member: &[u8]| found.get(member)?.as_ref().map(|score| [&score[..], member].concat());
    Ok(members.map(old).collect())
}

fn borrowed<'a>((member, score): (&'a [u8], f64)) -> ScoredMember<'a> {
    (ElementBytes::Borrowed(member), score)
}

fn read<'a>(entry: &TreeEntry) -> Result<ScoredMember<'a>, RequestRefusal> {
    let score = score_of(&entry.key).map_err(refused_by_damage)?;
    Ok((owned(&entry.key.slice(8.min(entry.key.len())..)), score))
}
