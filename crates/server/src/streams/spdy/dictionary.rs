//! The initial dictionary of the compression of SPDY/3.1's headers (section 2.6.10.1 of its draft).
//!
//! Words with their lengths before them, then words without.

const WORDS: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|accept-ranges|age|allow\
    |authorization|cache-control|connection|content-base|content-encoding|content-language|content-length|content-lo\
    cation|content-md5|content-range|content-type|date|etag|expect|expires|from|host|if-match|if-modified-since|if-n\
    one-match|if-range|if-unmodified-since|last-modified|location|max-forwards|pragma|proxy-authenticate|proxy-autho\
    rization|range|referer|retry-after|server|te|trailer|transfer-encoding|upgrade|user-agent|vary|via|warning|www-a\
    uthenticate|method|get|status|200 OK|version|HTTP/1.1|url|public|set-cookie|keep-alive|origin";

const REST: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative \
    Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Inter\
    nal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00\
    :00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,applic\
    ation/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1\
    ,utf-,*,enq=0.";

/// The checksum (Adler-32) by which a stream says that it begins with this dictionary.
pub(super) const CHECKSUM: [u8; 4] = [0xe3, 0xc6, 0xa7, 0xc2];

/// The whole dictionary.
pub(super) fn dictionary() -> Vec<u8> {
    let mut all = Vec::new();
    for word in WORDS.split('|') {
        all.extend_from_slice(&u32::try_from(word.len()).unwrap_or_default().to_be_bytes());
        all.extend_from_slice(word.as_bytes());
    }
    all.extend_from_slice(REST.as_bytes());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_one_of_the_draft() {
        let (mut one, mut two) = (1u32, 0u32);
        for byte in dictionary() {
            one = (one + u32::from(byte)) % 65521;
            two = (two + one) % 65521;
        }
        assert_eq!((two << 16 | one).to_be_bytes(), CHECKSUM);
    }
}
