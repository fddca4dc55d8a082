//! The header of a structure's value: which kind it is, and how many elements it has.

use stratakv_base::codec::Reader;

use crate::Damaged;

/// The memcache flags of a record that holds a structure.
pub const STRUCTURE_FLAGS: u32 = 0x534B_5601;
/// Bytes before the first element.
pub const HEADER_BYTES: usize = 12;

const MAGIC: [u8; 4] = [0xFF, b'S', b'K', b'V'];
/// The highest version of the layout that is read, and the only one that is written.
pub(crate) const LAYOUT_VERSION: u8 = 1;
/// Where elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All of them follow the header.
    Packed,
    /// In nodes: records of their own.
    Tree,
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Plain bytes.
    String,
    /// Fields with values.
    Hash,
    /// Elements in an order of the user's.
    List,
    /// Members, each once.
    Set,
    /// Members with scores.
    SortedSet,
    /// A structure whose header contradicts the layout.
    Damaged,
    /// A structure of a newer program.
    Newer,
}

impl Kind {
    /// The name that `TYPE` answers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Damaged => "damaged",
            Kind::Newer => "newer",
        }
    }

    fn code(self) -> u8 {
        match self {
            Kind::String | Kind::Damaged | Kind::Newer => 0,
            Kind::Hash => 1,
            Kind::List => 2,
            Kind::Set => 3,
            Kind::SortedSet => 4,
        }
    }
}

/// What a record with these flags and this value holds. The first [`HEADER_BYTES`] of the value are
/// enough; elements are not looked at.
pub fn kind_of(flags: u32, value: &[u8]) -> Kind {
    if flags != STRUCTURE_FLAGS || !value.starts_with(&MAGIC) {
        return Kind::String;
    }
    match read_form(value) {
        Ok((kind, _, _)) => kind,
        Err(why) if why.is_newer() => Kind::Newer,
        Err(_) => Kind::Damaged,
    }
}

/// How many elements the structure in this value has. The first [`HEADER_BYTES`] of the value are
/// enough.
///
/// # Errors
/// The header is damaged.
pub fn len(value: &[u8]) -> Result<usize, Damaged> {
    read_form(value).map(|(_, _, count)| count as usize)
}

/// Kind and count of the packed structure in `value`.
pub(crate) fn read(value: &[u8]) -> Result<(Kind, u32), Damaged> {
    match read_form(value)? {
        (kind, Form::Packed, count) => Ok((kind, count)),
        (_, Form::Tree, _) => Err(Damaged::new("its elements are in nodes")),
    }
}

/// Kind, form and count of the structure in `value`.
pub(crate) fn read_form(value: &[u8]) -> Result<(Kind, Form, u32), Damaged> {
    let mut reader = Reader::new(value);
    let short = |_| Damaged::new("its header is cut short");
    if reader.array().map_err(short)? != MAGIC {
        return Err(Damaged::new("its magic is missing"));
    }
    let [version, code, form, reserved] = reader.array().map_err(short)?;
    // Of what a newer layout has behind its version, nothing is known.
    match version {
        LAYOUT_VERSION => {}
        0 => return Err(Damaged::new("its layout has no version")),
        newer => return Err(Damaged::newer(newer)),
    }
    let count = reader.u32().map_err(short)?;
    let form = match (form, reserved) {
        (0, 0) => Form::Packed,
        (1, 0) => Form::Tree,
        _ => return Err(Damaged::new("its form is unknown")),
    };
    if count == 0 {
        return Err(Damaged::new("it has no elements"));
    }
    let kinds = [Kind::Hash, Kind::List, Kind::Set, Kind::SortedSet];
    let kind = kinds.into_iter().find(|kind| kind.code() == code).ok_or(Damaged::new("its type is unknown"))?;
    Ok((kind, form, count))
}

/// The header of a packed structure; `kind` is one of the four.
pub(crate) fn write(kind: Kind, count: u32, out: &mut Vec<u8>) {
    write_form(kind, Form::Packed, count, out);
}

/// The header of a structure; `kind` is one of the four.
pub(crate) fn write_form(kind: Kind, form: Form, count: u32, out: &mut Vec<u8>) {
    let form = u8::from(form == Form::Tree);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[LAYOUT_VERSION, kind.code(), form, 0]);
    out.extend_from_slice(&count.to_le_bytes());
}
