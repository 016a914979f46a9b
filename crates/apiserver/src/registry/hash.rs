//! SHA-256 (FIPS 180-4): what discovery hashes storage versions with, and a stable hash for ETags and document addresses.
//!
//! Written out because it is the only digest that the crate needs; nothing here guards a secret.

use std::sync::LazyLock;

/// The hash of these bytes in capital hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    digest(bytes).iter().map(|byte| format!("{byte:02X}")).collect()
}

/// The first 32 bits of the fractional parts of `root` of the first primes: the constants of the algorithm, computed instead of copied.
fn constants(count: usize, root: fn(u128) -> u128) -> Vec<u32> {
    let is_prime = |n: &u128| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (2_u128..)
        .filter(is_prime)
        .take(count)
        .map(|prime| (root(prime) & 0xffff_ffff) as u32)
        .collect()
}

/// The largest number whose power is not above the target, found bit by bit.
fn integer_root(target: u128, power: u32) -> u128 {
    (0..42).rev().fold(0, |root, bit| {
        let next: u128 = root | 1 << bit;
        if next.checked_pow(power).is_some_and(|value| value <= target) {
            next
        } else {
            root
        }
    })
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    // The square root of a prime with 32 bits after the point is the root of the prime times 2^64; the cube root of it times 2^96.
    static STATE: LazyLock<Vec<u32>> = LazyLock::new(|| constants(8, |prime| integer_root(prime << 64, 2)));
    static ROUNDS: LazyLock<Vec<u32>> = LazyLock::new(|| constants(64, |prime| integer_root(prime << 96, 3)));
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend((bytes.len() as u64 * 8).to_be_bytes());
    let mut state: [u32; 8] = [0; 8];
    state.copy_from_slice(&STATE);
    for block in message.chunks_exact(64) {
        compress(&mut state, block, &ROUNDS);
    }
    let mut out = [0; 32];
    for (bytes, word) in out.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out
}

fn compress(state: &mut [u32; 8], block: &[u8], rounds: &[u32]) {
    let mut words = [0_u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    for t in 16..64 {
        let (a, b) = (words[t - 15], words[t - 2]);
        let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        words[t] = words[t - 16]
            .wrapping_add(s0)
            .wrapping_add(words[t - 7])
            .wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (constant, word) in rounds.iter().zip(words) {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = h
            .wrapping_add(s1)
            .wrapping_add(choice)
            .wrapping_add(*constant)
            .wrapping_add(word);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e, d, c, b, a) = (
            g,
            f,
            e,
            d.wrapping_add(first),
            c,
            b,
            a,
            first.wrapping_add(s0.wrapping_add(majority)),
        );
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *old = old.wrapping_add(new);
    }
}

/// The first eight bytes of the digest, as discovery encodes them.
pub(crate) fn short(bytes: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&digest(bytes)[..8]);
    first
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn known_values() {
        assert_eq!(
            hash(b""),
            "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"
        );
        assert_eq!(
            hash(b"abc"),
            "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"
        );
        assert_eq!(
            hash(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248D6A61D20638B8E5C026930C3E6039A33CE45964FF2167F6ECEDD419DB06C1"
        );
    }
}
