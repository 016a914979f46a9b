//! Which shard a key belongs to, and which member a shard.
//!
//! Rendezvous hashing (highest random weight): each member has a weight for each shard, and the heaviest gets it,
//! unless it has its share already. Then a member that comes or goes moves few shards, and no member has more than one
//! more than another. The hash is part of the contract between replicas, also of different builds: it must never change
//! (a test holds its values).

/// The shard of a key, of so many. `cluster` is empty for the home cluster.
pub fn shard_of(cluster: &str, namespace: Option<&str>, name: &str, shards: usize) -> usize {
    let parts = [namespace.unwrap_or_default(), name, cluster];
    let hash = hash(if cluster.is_empty() { &parts[..2] } else { &parts });
    below(hash, shards)
}

/// The member that each shard is assigned to; `None` when there is none. The order of `members` does not matter, and no
/// two are the same.
pub fn assign<'a>(shards: usize, members: &[&'a str]) -> Vec<Option<&'a str>> {
    let mut members: Vec<(&str, usize)> = members.iter().map(|name| (*name, 0)).collect();
    members.sort_unstable();
    members.dedup();
    let Some(share) = shards.checked_div(members.len()) else {
        return vec![None; shards];
    };
    // So many members have one more than the others.
    let mut more = shards.saturating_sub(share.saturating_mul(members.len()));
    let mut owners = Vec::with_capacity(shards);
    for shard in 0..shards {
        let number = shard.to_string();
        let free = members
            .iter_mut()
            .filter(|(_, has)| *has < share || (*has == share && more > 0));
        let heaviest = free.max_by_key(|(name, _)| hash(&[name, &number]));
        owners.push(heaviest.map(|(name, has)| {
            more = more.saturating_sub(usize::from(*has == share));
            *has = has.saturating_add(1);
            *name
        }));
    }
    owners
}

/// FNV-1a with 64 bits: the same number for the same bytes in every build.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// FNV-1a over the parts with a byte between them that no name has, then the last steps of MurmurHash3, because FNV's
/// high bits are weak.
fn hash(parts: &[&str]) -> u64 {
    let mut hash = fnv1a(parts.iter().flat_map(|part| part.bytes().chain([0xff])));
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// A hash as a number below `bound`, evenly.
fn below(hash: u64, bound: usize) -> usize {
    let wide = u128::from(hash).wrapping_mul(bound as u128) >> 64;
    usize::try_from(wide).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("shop-member-{at:04x}")).collect()
    }

    fn assigned(shards: usize, members: &[String]) -> Vec<Option<&str>> {
        assign(shards, &members.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Replicas of different builds share keys: these values are for ever.
    #[test]
    fn the_hash_never_changes() {
        let check = |namespace: Option<&str>, name: &str, shard: usize| {
            assert_eq!(shard_of("", namespace, name, 256), shard, "{namespace:?} {name}");
        };
        check(None, "", 9);
        check(None, "node-1", 26);
        check(Some("default"), "guestbook", 243);
        check(Some("a"), "b-c", 69);
        check(Some("a-b"), "c", 46);
        let members = names(3);
        let owners = assigned(6, &members).into_iter().flatten();
        let owners: Vec<&str> = owners.filter_map(|name| name.get(12..)).collect();
        assert_eq!(owners, ["0002", "0001", "0000", "0002", "0000", "0001"]);
    }

    #[test]
    fn every_shard_has_an_owner_and_shares_differ_by_one() {
        for shards in [1, 2, 7, 16, 64, 256] {
            assert_eq!(assigned(shards, &[]), vec![None; shards]);
            for count in 1..20 {
                let members = names(count);
                let owners = assigned(shards, &members);
                let load = |name: &String| owners.iter().filter(|owner| **owner == Some(name)).count();
                let loads: Vec<usize> = members.iter().map(load).collect();
                assert_eq!(loads.iter().sum::<usize>(), shards, "{shards} over {count}");
                let (least, most) = (loads.iter().min(), loads.iter().max());
                assert!(
                    most.zip(least).is_some_and(|(most, least)| most - least <= 1),
                    "{loads:?}"
                );
                let mut turned = members.clone();
                turned.reverse();
                assert_eq!(
                    assigned(shards, &turned),
                    owners,
                    "the order of members does not matter"
                );
            }
        }
    }

    /// The least move when one of n members comes or goes is a share, `shards / n`. Counted over many members, less
    /// than twice as much moves.
    #[test]
    fn few_shards_move() {
        for (shards, count) in [(64, 4), (64, 10), (256, 20)] {
            let members = names(count);
            let before = assigned(shards, &members);
            let mut moved = 0;
            for gone in 0..count {
                let mut left = members.clone();
                left.remove(gone);
                let after = assigned(shards, &left);
                moved += before
                    .iter()
                    .zip(&after)
                    .filter(|(before, after)| before != after)
                    .count();
            }
            assert!(
                moved <= 2 * shards,
                "{shards} over {count}: {moved} moves for {count} members"
            );
        }
    }

    #[test]
    fn keys_are_spread_evenly() {
        let mut counts = [0_usize; 16];
        for at in 0..16_000 {
            counts[shard_of("", Some("default"), &format!("shop-{at}"), 16)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
