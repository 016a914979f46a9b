//! Tokens from a file (`--token-auth-file`): `token,user,uid,"group1,group2"` on each line.

use std::collections::BTreeMap;

use crate::model::user::UserInfo;

/// Why a token file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// A line has too few columns.
    #[error("line {line}: token file must have at least 3 columns (token, user name, user uid), found {found}")]
    Columns {
        /// The line, counted from 1.
        line: usize,
        /// How many columns it has.
        found: usize,
    },
    /// A line has nothing in its first column.
    #[error("line {line}: empty token found in token file")]
    Empty {
        /// The line, counted from 1.
        line: usize,
    },
    /// A token stands in two lines.
    #[error("line {line}: duplicate token found in token file, first on line {first}")]
    Duplicate {
        /// The line, counted from 1.
        line: usize,
        /// Where the token stands already.
        first: usize,
    },
    /// Quotation marks that are not CSV.
    #[error("line {line}: {why}")]
    Quotes {
        /// The line, counted from 1.
        line: usize,
        /// The error.
        why: &'static str,
    },
}

/// Users by their token. `Default` has no users.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StaticTokens {
    users: BTreeMap<String, (usize, UserInfo)>,
}

impl std::fmt::Debug for StaticTokens {
    /// Without the tokens: they must not get into a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StaticTokens({} users)", self.users.len())
    }
}

impl StaticTokens {
    /// Reads the text of a token file. Empty lines are skipped.
    ///
    /// ```
    /// use kubewright_apiserver::authentication::StaticTokens;
    ///
    /// let tokens = StaticTokens::parse("secret,jane,7,\"dev,ops\"\n")?;
    /// assert_eq!(tokens.user("secret").map(|user| user.name.as_str()), Some("jane"));
    /// assert!(StaticTokens::parse("secret,jane").is_err());
    /// # Ok::<(), kubewright_apiserver::authentication::TokenFileError>(())
    /// ```
    ///
    /// # Errors
    /// [`TokenFileError`] with the number of the line.
    pub fn parse(text: &str) -> Result<StaticTokens, TokenFileError> {
        let mut users: BTreeMap<String, (usize, UserInfo)> = BTreeMap::new();
        for (index, row) in text.lines().enumerate() {
            let line = index + 1;
            if row.is_empty() {
                continue;
            }
            let columns = columns(row).map_err(|why| TokenFileError::Quotes { line, why })?;
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                let found = columns.len();
                return Err(TokenFileError::Columns { line, found });
            };
            if token.is_empty() {
                return Err(TokenFileError::Empty { line });
            }
            let groups = rest.first().map_or("", String::as_str);
            let user = UserInfo {
                name: name.clone(),
                uid: uid.clone(),
                groups: groups
                    .split(',')
                    .filter(|_| !groups.is_empty())
                    .map(str::to_owned)
                    .collect(),
                ..UserInfo::default()
            };
            if let Some((first, _)) = users.insert(token.clone(), (line, user)) {
                return Err(TokenFileError::Duplicate { line, first });
            }
        }
        Ok(StaticTokens { users })
    }

    /// The user of this token.
    pub fn user(&self, token: &str) -> Option<&UserInfo> {
        self.users.get(token).map(|(_, user)| user)
    }
}

/// The columns of a line of CSV. White space before a column does not count.
fn columns(row: &str) -> Result<Vec<String>, &'static str> {
    let mut columns = Vec::new();
    let mut rest = row;
    loop {
        rest = rest.trim_start();
        let (column, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (column, after) = rest.split_at(end);
                if column.contains('"') {
                    return Err("bare \" in non-quoted-field");
                }
                (column.to_owned(), after)
            }
        };
        columns.push(column);
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None if after.trim().is_empty() => return Ok(columns),
            None => return Err("extraneous or missing \" in quoted-field"),
        }
    }
}

/// The text up to the closing quotation mark, and the rest behind it. A doubled mark is one of the text.
fn unquote(quoted: &str) -> Result<(String, &str), &'static str> {
    let mut text = String::new();
    let mut rest = quoted;
    loop {
        let Some((before, after)) = rest.split_once('"') else {
            return Err("extraneous or missing \" in quoted-field");
        };
        text.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                text.push('"');
                rest = after;
            }
            None => return Ok((text, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// token, name, uid, groups
    type Line<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

    #[track_caller]
    fn check(text: &str, want: Result<&[Line<'_>], &str>) {
        match (StaticTokens::parse(text), want) {
            (Ok(got), Ok(want)) => {
                assert_eq!(got.users.len(), want.len(), "{text:?}");
                for (token, name, uid, groups) in want {
                    let user = got.user(token).unwrap_or_else(|| panic!("{token} in {text:?}"));
                    assert_eq!((user.name.as_str(), user.uid.as_str()), (*name, *uid), "{text:?}");
                    assert_eq!(user.groups, *groups, "{text:?}");
                }
            }
            (Err(got), Err(want)) => assert_eq!(got.to_string(), want, "{text:?}"),
            (got, want) => panic!("{text:?}: {got:?}, not {want:?}"),
        }
    }

    #[test]
    fn token_files() {
        check("", Ok(&[]));
        check("t,jane,7", Ok(&[("t", "jane", "7", &[])]));
        check(
            "t,jane,7,dev\r\n\nu,bob,\n",
            Ok(&[("t", "jane", "7", &["dev"]), ("u", "bob", "", &[])]),
        );
        check("t, jane,7,\"a,b\",more", Ok(&[("t", "jane", "7", &["a", "b"])]));
        check("\"t\"\"x\",jane,7", Ok(&[("t\"x", "jane", "7", &[])]));
        let columns = "token file must have at least 3 columns (token, user name, user uid), found";
        check("t,jane", Err(&format!("line 1: {columns} 2")));
        check("t,jane,7\n\nu\n", Err(&format!("line 3: {columns} 1")));
        check(",jane,7", Err("line 1: empty token found in token file"));
        check(
            "t,a,1\nt,b,2",
            Err("line 2: duplicate token found in token file, first on line 1"),
        );
        check("t,a,1,\"x", Err("line 1: extraneous or missing \" in quoted-field"));
        check("t,a\"b,1", Err("line 1: bare \" in non-quoted-field"));
    }

    #[test]
    fn tokens_stay_out_of_logs() {
        let tokens = StaticTokens::parse("secret,jane,7").expect("a token file");
        assert_eq!(format!("{tokens:?}"), "StaticTokens(1 users)");
    }
}
