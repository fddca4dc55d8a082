//! What holds for any page that a controller gives for Identify: run by the fuzzer
//! (docs/fuzzing.md), and over its corpus by a test.

use super::{ControllerIdentity, IDENTIFY_BYTES, NamespaceIdentity};

/// A page of a controller and of a namespace, from the same bytes: what is read is possible.
///
/// # Panics
/// It is not.
pub fn identify(input: &[u8]) {
    let mut page = [0; IDENTIFY_BYTES];
    page.iter_mut().zip(input).for_each(|(place, byte)| *place = *byte);
    let controller = ControllerIdentity::parse(&page, 4096);
    assert!(controller.mdts_bytes.is_none_or(|bytes| bytes > 4096), "MDTS counts from two pages on");
    assert!((1..=65_536).contains(&controller.awupf_blocks));
    let texts = [&controller.serial_number, &controller.model_number, &controller.firmware_revision];
    assert!(texts.iter().all(|text| text.bytes().all(|byte| (0x20..0x7F).contains(&byte))), "it goes to terminals");
    if let Some(namespace) = NamespaceIdentity::parse(&page) {
        assert!(namespace.lba_bytes.is_power_of_two() && namespace.lba_bytes >= 512);
        let len = namespace.len_bytes();
        assert!(len.is_none_or(|len| len / u64::from(namespace.lba_bytes) == namespace.nsze_blocks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/identify");
        let inputs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{folder} has no input");
        inputs.iter().for_each(|input| identify(&std::fs::read(input).unwrap()));
    }
}
