//! Versions of formats: what is said of one that this program does not know.

/// The bit of a format's version that is kept for stores whose data are encrypted. No program
/// writes it yet, and no other version will ever have it.
pub const ENCRYPTED_FORMAT: u32 = 1 << 31;

/// What is said of something, such as `the volume`, with a format beyond the `known` ones.
pub fn unknown_format(what: &str, found: u32, known: u32) -> String {
    if found & ENCRYPTED_FORMAT == 0 {
        format!("{what} has format {found}, this program knows up to {known}: use a newer stratakv")
    } else {
        format!("{what} is encrypted, and this program cannot decrypt: use the stratakv that wrote it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_store_is_told_from_a_newer_one() {
        assert!(unknown_format("it", 7, 2).contains("format 7, this program knows up to 2"));
        for found in [ENCRYPTED_FORMAT, ENCRYPTED_FORMAT | 2, u32::MAX] {
            let told = unknown_format("the volume", found, 2);
            assert!(told.contains("the volume is encrypted") && !told.contains("format"), "{told}");
        }
    }
}
