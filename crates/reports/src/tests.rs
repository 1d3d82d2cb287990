//! The schema in docs derives from the types.

extern crate std;

use crate::history::HistoryReport;
use alloc::format;
use schemars::generate::SchemaSettings;

#[test]
fn the_schema_of_the_history_is_that_of_its_type() {
    let settings = SchemaSettings::default().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<HistoryReport>();
    let schema = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
    let path = format!("{}/../../docs/reference/history.schema.json", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &schema).expect("write the schema");
    }
    let committed = std::fs::read_to_string(&path).expect("the schema in docs");
    assert!(committed == schema, "UPDATE=1 cargo test -p poolcounter-reports the_schema");
}
