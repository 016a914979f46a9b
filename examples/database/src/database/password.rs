//! Passwords: made, and remembered without being known.

use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

/// How long a password is that is made.
const LENGTH: usize = 32;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A new password: 192 bits, in letters without a meaning in an address or a shell.
///
/// # Errors
/// When the machine has no entropy.
pub fn random() -> Result<String, String> {
    let mut bytes = [0_u8; LENGTH];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| "the machine gives no random numbers".to_owned())?;
    // 64 letters: each is as likely as any other.
    Ok(bytes
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 64)]))
        .collect())
}

/// Which password it is: a hash with the uid of the object, cut so short that many passwords have it.
pub fn hash(uid: &str, password: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(uid.as_bytes());
    hash.update([0]);
    hash.update(password.as_bytes());
    hash.finalize()
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_long_and_differ() {
        let (one, other) = (random(), random());
        assert_ne!(one, other);
        assert!(one.is_ok_and(|one| one.len() >= 24));
        assert_ne!(hash("a", "secret"), hash("b", "secret"));
        assert_eq!(hash("a", "secret").len(), 8);
    }
}
