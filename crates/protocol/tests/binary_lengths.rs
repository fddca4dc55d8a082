//! Every binary command with every combination of lengths: what is read, what is refused.

use stratakv_protocol::memcache::binary::Status;
use stratakv_protocol::memcache::{BinaryParsed, BinaryParser, KEY_BYTES_MAX};

const HEADER_BYTES: usize = 24;
const ITEM_BYTES_MAX: usize = 5000;

/// What a part of a request may be.
#[derive(Clone, Copy, Debug)]
enum Part {
    Absent,
    Present,
    Either,
}

impl Part {
    fn takes(self, bytes: usize) -> bool {
        match self {
            Part::Absent => bytes == 0,
            Part::Present => bytes > 0,
            Part::Either => true,
        }
    }
}

/// The commands of the protocol's description: opcodes, key, lengths of extras, value.
const COMMANDS: [(&[u8], Part, &[usize], Part); 10] = [
    // get, getq, getk, getkq, delete, deleteq
    (&[0x00, 0x09, 0x0C, 0x0D, 0x04, 0x14], Part::Present, &[0], Part::Absent),
    // set, add, replace, quiet too
    (&[0x01, 0x02, 0x03, 0x11, 0x12, 0x13], Part::Present, &[8], Part::Either),
    // increment, decrement, quiet too
    (&[0x05, 0x06, 0x15, 0x16], Part::Present, &[20], Part::Absent),
    // append, prepend, quiet too
    (&[0x0E, 0x0F, 0x19, 0x1A], Part::Present, &[0], Part::Either),
    // quit, quitq, noop, version, SASL's list
    (&[0x07, 0x17, 0x0A, 0x0B, 0x20], Part::Absent, &[0], Part::Absent),
    // flush, flushq
    (&[0x08, 0x18], Part::Absent, &[0, 4], Part::Absent),
    // stat
    (&[0x10], Part::Either, &[0], Part::Absent),
    // verbosity
    (&[0x1B], Part::Absent, &[4], Part::Absent),
    // touch, gat, gatq, gatk, gatkq
    (&[0x1C, 0x1D, 0x1E, 0x23, 0x24], Part::Present, &[4], Part::Absent),
    // SASL's beginning and step
    (&[0x21, 0x22], Part::Present, &[0], Part::Either),
];

fn request(opcode: u8, key: usize, extras: u8, value: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    (bytes[0], bytes[1], bytes[4]) = (0x80, opcode, extras);
    bytes[2..4].copy_from_slice(&(key as u16).to_be_bytes());
    let body = key + usize::from(extras) + value;
    bytes[8..12].copy_from_slice(&(body as u32).to_be_bytes());
    bytes.resize(HEADER_BYTES + body, b'1');
    bytes
}

#[test]
fn a_request_is_read_if_and_only_if_its_lengths_are_those_of_its_command() {
    for opcode in 0..=255 {
        let known = COMMANDS.iter().find(|(opcodes, ..)| opcodes.contains(&opcode));
        for key in [0, 1, 2, KEY_BYTES_MAX, KEY_BYTES_MAX + 1] {
            for extras in 0..=28 {
                for value in [0, 1, 4, 30] {
                    let bytes = request(opcode, key, extras, value);
                    let parsed = BinaryParser::new(ITEM_BYTES_MAX).parse(&bytes);
                    let is_right = |(_, keys, lengths, values): &(&[u8], Part, &[usize], Part)| {
                        keys.takes(key) && lengths.contains(&usize::from(extras)) && values.takes(value)
                    };
                    let is_due = match (&parsed, known) {
                        (BinaryParsed::Request { .. }, Some(command)) => key <= KEY_BYTES_MAX && is_right(command),
                        (BinaryParsed::Error { status: Status::Invalid, close, .. }, command) => {
                            *close && (key > KEY_BYTES_MAX || command.is_some_and(|command| !is_right(command)))
                        }
                        (BinaryParsed::Error { status: Status::UnknownCommand, close, .. }, None) => !close,
                        _ => false,
                    };
                    assert!(is_due, "{opcode:#x}: key {key}, extras {extras}, value {value}: {parsed:?}");
                }
            }
        }
    }
}
