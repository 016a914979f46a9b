//! The Scale: the kind that `/scale` of every kind shows, with its schema and its columns.

use std::sync::Arc;

use kubewright_schema::budget;
use kubewright_schema::catalog;
use serde_json::Value;

use kubewright_model::values::get;
use kubewright_model::{Cell, Column, Minor, NAME_DESCRIPTION, PerMinor, Resource};

const REPLICAS: &str = "replicas is the desired number of instances for the scaled object.";
const OBSERVED: &str = "replicas is the actual number of observed instances of the scaled object.";

fn number(object: &Value, part: &str) -> Value {
    get(object, &[part, "replicas"]).as_i64().unwrap_or(0).into()
}

/// The row of the Scale of a custom kind: it shows the same columns in other words.
pub(crate) fn row_of_custom(minor: Minor) -> Arc<Resource> {
    static CUSTOM: PerMinor<Arc<Resource>> = PerMinor::new();
    let make = || {
        budget::unlimited(|| {
            let mut row = (*row(minor)).clone();
            let words = [
                ("Desired", "Number of desired replicas"),
                ("Available", "Number of actual replicas"),
            ];
            for column in &mut row.columns {
                if let Some((_, description)) = words.iter().find(|(name, _)| *name == column.name) {
                    column.description = (*description).into();
                }
                if column.name == "Age" {
                    column.type_ = "date".into();
                }
            }
            Arc::new(row)
        })
    };
    Arc::clone(CUSTOM.get_or_init(minor, make))
}

/// The row of `autoscaling/v1` Scale, which no path of its own serves.
pub(crate) fn row(minor: Minor) -> Arc<Resource> {
    static ROW: PerMinor<Arc<Resource>> = PerMinor::new();
    let make = || {
        budget::unlimited(|| {
            let is_autoscaler = |row: &Arc<Resource>| row.group == "autoscaling" && row.version == "v1";
            let autoscaler = super::rows(minor).into_iter().find(is_autoscaler);
            let mut row = (*autoscaler.expect("the group has a kind")).clone();
            row.kind = "Scale".into();
            row.list_kind = "ScaleList".into();
            row.plural = "scales".into();
            row.singular = "scale".into();
            row.conversion = None;
            row.subresources = Vec::new();
            row.schema = catalog::of(minor)
                .for_kind("autoscaling", "v1", "Scale")
                .expect("the catalog has the kind Scale");
            let age = row.columns.pop().expect("an autoscaler shows its age");
            let column = |name: &'static str, type_: &'static str, description: &'static str, cell: Cell| Column {
                name: name.into(),
                type_: type_.into(),
                format: "".into(),
                description: description.into(),
                priority: 0,
                cell,
            };
            row.columns = vec![
                column("Name", "string", NAME_DESCRIPTION, Cell::Name),
                column(
                    "Desired",
                    "integer",
                    REPLICAS,
                    Cell::With(|object, _| number(object, "spec")),
                ),
                column(
                    "Available",
                    "integer",
                    OBSERVED,
                    Cell::With(|object, _| number(object, "status")),
                ),
                age,
            ];
            Arc::new(row)
        })
    };
    Arc::clone(ROW.get_or_init(minor, make))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_columns() {
        let names: Vec<String> = row(Minor::default())
            .columns
            .iter()
            .map(|column| column.name.to_string())
            .collect();
        assert_eq!(names, ["Name", "Desired", "Available", "Age"]);
    }
}
