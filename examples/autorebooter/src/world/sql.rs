//! The SQL that reads a value. Names are quoted; conditions and queries are their author's own, and run in a session
//! that cannot write.
//!
//! Invariant: what is sent is one statement. It is prepared, and both databases prepare no more than one.

use super::What;

/// How many rows of a column are read.
pub(super) const MOST_ROWS: usize = 1000;

/// How a database quotes names, and how it turns any value into text.
pub(super) struct Dialect {
    quote: char,
    text: fn(&str) -> String,
}

pub(super) const POSTGRES: Dialect = Dialect {
    quote: '"',
    text: |what| format!("{what}::text"),
};

pub(super) const MYSQL: Dialect = Dialect {
    quote: '`',
    text: |what| format!("CAST({what} AS CHAR)"),
};

impl Dialect {
    fn name(&self, name: &str) -> String {
        let quote = self.quote.to_string();
        format!("{quote}{}{quote}", name.replace(self.quote, &quote.repeat(2)))
    }

    /// The statement that reads a value.
    pub(super) fn statement(&self, what: &What) -> String {
        match what {
            What::Query(query) => trimmed(query).to_owned(),
            What::Column {
                schema,
                table,
                column,
                condition,
            } => {
                let schema = schema
                    .as_ref()
                    .map(|schema| self.name(schema) + ".")
                    .unwrap_or_default();
                let column = (self.text)(&self.name(column));
                // A comment in the condition must not swallow what follows.
                let rows = condition
                    .as_ref()
                    .map(|sql| format!(" WHERE (\n{sql}\n)"))
                    .unwrap_or_default();
                let table = self.name(table);
                format!(
                    "SELECT {column} FROM {schema}{table}{rows} ORDER BY 1 LIMIT {}",
                    MOST_ROWS + 1
                )
            }
        }
    }
}

/// A query without the semicolon at its end.
pub(super) fn trimmed(query: &str) -> &str {
    query.trim().trim_end_matches([';', ' ', '\n', '\t'])
}

/// Whether so many rows are a value.
pub(super) fn check_rows(what: &What, rows: usize) -> Result<(), String> {
    match what {
        What::Query(_) if rows > 1 => Err("the query returns more than one row".to_owned()),
        What::Column { .. } if rows > MOST_ROWS => Err(format!(
            "the column has more than {MOST_ROWS} rows: choose some with `where`"
        )),
        _ => Ok(()),
    }
}

/// Whether so many columns are a value.
pub(super) fn check_columns(columns: usize) -> Result<(), String> {
    match columns {
        1 => Ok(()),
        0 => Err("the query returns no column".to_owned()),
        many => Err(format!("the query returns {many} columns instead of one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements() {
        let check = |dialect: &Dialect, schema: Option<&str>, condition: Option<&str>, expected: &str| {
            let what = What::Column {
                schema: schema.map(str::to_owned),
                table: "set\"t`ings".to_owned(),
                column: "version".to_owned(),
                condition: condition.map(str::to_owned),
            };
            assert_eq!(dialect.statement(&what), expected);
        };
        check(
            &POSTGRES,
            Some("public"),
            Some("key = 'a' -- b"),
            "SELECT \"version\"::text FROM \"public\".\"set\"\"t`ings\" WHERE (\nkey = 'a' -- b\n) ORDER BY 1 LIMIT 1001",
        );
        check(
            &MYSQL,
            None,
            None,
            "SELECT CAST(`version` AS CHAR) FROM `set\"t``ings` ORDER BY 1 LIMIT 1001",
        );
        assert_eq!(POSTGRES.statement(&What::Query(" SELECT 1 ;\n".to_owned())), "SELECT 1");
    }
}
