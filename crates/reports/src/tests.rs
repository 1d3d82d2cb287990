//! The schemas in docs derive from the types.

extern crate std;

use crate::history::HistoryReport;
use crate::json::Report;
use crate::json_lists::ListReport;
use alloc::format;

fn compare(schema: &schemars::Schema, name: &str) {
    let schema = serde_json::to_string_pretty(schema).expect("JSON") + "\n";
    let path = format!("{}/../../docs/reference/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &schema).expect("write the schema");
    }
    let committed = std::fs::read_to_string(&path).expect("the schema in docs");
    assert!(committed == schema, "{name}: UPDATE=1 cargo test -p poolcounter-reports the_schema");
}

#[test]
fn the_schemas_are_those_of_the_types() {
    compare(&schemars::schema_for!(Report), "stats.schema.json");
    compare(&schemars::schema_for!(HistoryReport), "history.schema.json");
    compare(&schemars::schema_for!(ListReport), "lists.schema.json");
}
