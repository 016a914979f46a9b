//! A stable hash for ETags and document addresses (FNV-1a, 128 bits). It guards caches, not secrets.

/// The hash of these bytes in capital hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let digest = bytes
        .iter()
        .fold(OFFSET, |digest, byte| (digest ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{digest:032X}")
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn known_values() {
        assert_eq!(hash(b""), "6C62272E07BB014262B821756295C58D");
        assert_eq!(hash(b"a"), "D228CB696F1A8CAF78912B704E4A8964");
    }
}
