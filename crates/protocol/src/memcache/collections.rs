//! `collections`, our own: lists, makes and drops collections. What came of it is told by
//! `stats collections`, under the word that the client gave its request.

use super::line::{Tokens, is_backup_name, words};
use super::parser::LineError;
use super::reply;

/// A request about collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionsRequest<'a> {
    /// By which `stats collections` names it: such a word as names a backup.
    pub token: &'a str,
    /// What to do.
    pub action: CollectionsAction<'a>,
}

/// What to do with collections. Names are base64, as they may have spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionsAction<'a> {
    /// `list`: their names.
    List,
    /// `describe`: their names, kinds, counts, expiries and orders.
    Describe,
    /// `create NAME [ORDER]`.
    Create {
        /// In base64.
        name: &'a str,
        /// Of a new one; that of bytes if it is left out.
        order: Option<&'a str>,
    },
    /// `drop NAME`.
    Drop {
        /// In base64.
        name: &'a str,
    },
}

/// `collections <token> list|describe`, `collections <token> create <name> [<order>]`,
/// `collections <token> drop <name>`.
pub(super) fn parse(tokens: Tokens<'_>) -> Result<CollectionsRequest<'_>, LineError> {
    let usage = || reply::BAD_COLLECTIONS.into();
    let Some((all, count)) = words::<4>(tokens) else { return Err(usage()) };
    let [token, verb, name, order] = all.map(|word| std::str::from_utf8(word).unwrap_or_default());
    let action = match (verb, count) {
        ("list", 2) => CollectionsAction::List,
        ("describe", 2) => CollectionsAction::Describe,
        ("create", 3) => CollectionsAction::Create { name, order: None },
        ("create", 4) => CollectionsAction::Create { name, order: Some(order) },
        ("drop", 3) => CollectionsAction::Drop { name },
        _ => return Err(usage()),
    };
    match is_backup_name(token) {
        true => Ok(CollectionsRequest { token, action }),
        false => Err(usage()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_and_others_refused() {
        let parsed = |line: &'static str| parse(Tokens::new(line.as_bytes())).ok().map(|request| request.action);
        assert_eq!(parsed("t list"), Some(CollectionsAction::List));
        assert_eq!(parsed("t describe"), Some(CollectionsAction::Describe));
        assert_eq!(parsed("t create YQ=="), Some(CollectionsAction::Create { name: "YQ==", order: None }));
        let ordered = CollectionsAction::Create { name: "YQ==", order: Some("stratakv.numeric") };
        assert_eq!(parsed("t create YQ== stratakv.numeric"), Some(ordered));
        assert_eq!(parsed("t drop YQ=="), Some(CollectionsAction::Drop { name: "YQ==" }));
        for bad in ["", "t", "list", "t list x", "t drop", "t drop a b", "../t list", "t create a b c", "t rename a"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
