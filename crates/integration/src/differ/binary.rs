//! Requests of the binary protocol: every opcode, quiet ones too, with parts that belong to it and
//! some that do not.

use super::classic::{TOO_LARGE_BYTES, UNUSED};
use super::command::{Command, CommandPiece, Shape};
use super::draw::Draw;

/// A request in its parts.
#[derive(Debug, Default)]
struct Request {
    opcode: u8,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// A request.
pub fn command(draw: &mut Draw) -> Command {
    let key = if draw.once_in(4) { draw.binary_key() } else { draw.key() };
    let time = time(draw);
    let quiet = draw.once_in(3);
    let (request, touches) = match draw.below(100) {
        0..=24 => {
            (Request { opcode: opcode(draw, quiet, &[0x00, 0x0C], &[0x09, 0x0D]), key, ..Request::default() }, false)
        }
        25..=49 => {
            let opcode = opcode(draw, quiet, &[1, 1, 2, 3], &[0x11, 0x11, 0x12, 0x13]);
            let flags = [0, 7, 65535, u32::MAX][draw.below(4) as usize];
            let extras = [flags.to_be_bytes(), time].concat();
            (Request { opcode, extras, key, value: draw.value() }, false)
        }
        50..=57 => (Request { opcode: opcode(draw, quiet, &[4], &[0x14]), key, ..Request::default() }, false),
        58..=73 => {
            let opcode = opcode(draw, quiet, &[5, 6], &[0x15, 0x16]);
            let time = if draw.once_in(4) { [0xFF; 4] } else { time };
            let number = |draw: &mut Draw| [0, 1, 5, 100, u64::MAX, 1 << 63][draw.below(6) as usize].to_be_bytes();
            let extras = [&number(draw)[..], &number(draw), &time].concat();
            (Request { opcode, extras, key, ..Request::default() }, false)
        }
        74..=80 => {
            let opcode = opcode(draw, quiet, &[0x0E, 0x0F], &[0x19, 0x1A]);
            (Request { opcode, key, value: draw.value(), ..Request::default() }, false)
        }
        81..=90 => {
            let opcode = opcode(draw, quiet, &[0x1C, 0x1D, 0x23], &[0x1E, 0x24]);
            (Request { opcode, extras: time.to_vec(), key, ..Request::default() }, true)
        }
        91 => {
            let extras = if draw.once_in(2) {
                Vec::new()
            } else {
                [0_u32, 10_000][draw.below(2) as usize].to_be_bytes().to_vec()
            };
            (Request { opcode: opcode(draw, quiet, &[8], &[0x18]), extras, ..Request::default() }, false)
        }
        92..=94 => (Request { opcode: draw.one(&[&[0x0A_u8], &[0x0B], &[0x0A]])[0], ..Request::default() }, false),
        95..=97 => return statistics(draw),
        _ => (
            Request {
                opcode: draw.one(&[&[0x20_u8], &[0x30], &[0x50], &[0xFF], &[0x1F], &[0x25]])[0],
                ..Request::default()
            },
            false,
        ),
    };
    let key = request.key.clone();
    let shape = if request.opcode == 0x0B { Shape::BinaryServerVersion } else { Shape::Binary };
    let compares = matches!(request.opcode, 0x01..=0x06 | 0x0E | 0x0F | 0x11..=0x16 | 0x19 | 0x1A);
    let version = match draw.below(5) {
        0 if compares => CommandPiece::Version(draw.which()),
        _ => CommandPiece::Bytes(vec![0; 8]),
    };
    let command = frame(draw, &request, version).shape(shape).key(&key);
    if touches { command.touching(&[&key]) } else { command }
}

fn opcode(draw: &mut Draw, quiet: bool, plain: &[u8], quiets: &[u8]) -> u8 {
    let from = if quiet { quiets } else { plain };
    from[draw.below(from.len() as u64) as usize]
}

/// Never, past, far away.
fn time(draw: &mut Draw) -> [u8; 4] {
    match draw.below(12) {
        0 => 2_592_001_u32.to_be_bytes(),
        1 => 2_000_000_000_u32.to_be_bytes(),
        2 => 100_u32.to_be_bytes(),
        3 => 2_592_000_u32.to_be_bytes(),
        _ => [0; 4],
    }
}

/// The bytes of a request, its version apart.
fn frame(draw: &mut Draw, request: &Request, version: CommandPiece) -> Command {
    let body = request.extras.len() + request.key.len() + request.value.len();
    let mut head = vec![0x80, request.opcode];
    head.extend((request.key.len() as u16).to_be_bytes());
    // The data type and the virtual bucket mean nothing.
    head.extend([request.extras.len() as u8, 0]);
    head.extend(if draw.once_in(20) { [0, 5] } else { [0, 0] });
    head.extend((body as u32).to_be_bytes());
    head.extend((draw.below(1000) as u32).to_be_bytes());
    let rest = [&request.extras[..], &request.key, &request.value].concat();
    Command::of(vec![CommandPiece::Bytes(head), version, CommandPiece::Bytes(rest)], true)
}

fn statistics(draw: &mut Draw) -> Command {
    let key =
        draw.one(&["", "settings", "items", "slabs", "sizes", "conns", "reset", "foo", "extstore"]).as_bytes().to_vec();
    let request = Request { opcode: 0x10, key, ..Request::default() };
    frame(draw, &request, CommandPiece::Bytes(vec![0; 8])).shape(Shape::BinaryStatistics)
}

/// A value that is too long, whatever the server.
pub fn too_large(draw: &mut Draw) -> Command {
    let (opcode, key) = (opcode(draw, false, &[1, 2, 0x11], &[]), draw.key());
    let key = if opcode == 2 { key } else { UNUSED.to_vec() };
    let request = Request { opcode, extras: vec![0; 8], key: key.clone(), value: vec![b'l'; TOO_LARGE_BYTES] };
    frame(draw, &request, CommandPiece::Bytes(vec![0; 8])).shape(Shape::Binary).key(&key)
}

/// What ends a connection: it is asked to, or the request is not well formed.
pub fn last(draw: &mut Draw) -> Command {
    let bytes = |bytes: &[u8]| bytes.to_vec();
    let (opcode, extras, key, value) = match draw.below(14) {
        0 => (0x00, bytes(b""), bytes(b""), bytes(b"")),
        1 => (0x00, bytes(b"1234"), bytes(b"a"), bytes(b"")),
        2 => (0x00, bytes(b""), bytes(b"a"), bytes(b"v")),
        3 => (0x00, bytes(b""), vec![b'k'; 251], bytes(b"")),
        4 => (0x01, bytes(b""), bytes(b"a"), bytes(b"v")),
        5 => (0x05, bytes(b"1234"), bytes(b"a"), bytes(b"")),
        6 => (0x0A, bytes(b""), bytes(b"a"), bytes(b"")),
        7 => (0x1C, bytes(b""), bytes(b"a"), bytes(b"")),
        8 => (0x08, bytes(b""), bytes(b"a"), bytes(b"")),
        9 => (0x0B, bytes(b""), bytes(b""), bytes(b"v")),
        10 | 11 => (0x17, bytes(b""), bytes(b""), bytes(b"")),
        // As long as a head: memcached looks at nothing shorter.
        12 => {
            return Command::of(vec![CommandPiece::Bytes(b"get a b c d e f g h i j k\r\n".to_vec())], true)
                .shape(Shape::Binary)
                .closing();
        }
        _ => (0x07, bytes(b""), bytes(b""), bytes(b"")),
    };
    let request = Request { opcode, extras, key, value };
    frame(draw, &request, CommandPiece::Bytes(vec![0; 8])).shape(Shape::Binary).closing()
}
