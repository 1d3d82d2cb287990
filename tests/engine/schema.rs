//! Checks JSON against a JSON schema, as far as ours go: `type`, `enum`, `minimum`,
//! `pattern` of times, `required`, `properties`, `additionalProperties`, `items` and
//! `$ref`. A keyword that is not known here, or a member that the schema does not
//! describe, fails: a wrong schema must not pass.

use serde_json::Value;
use std::path::Path;

pub(crate) struct Schema(Value);

pub(crate) fn read(path: &str) -> Schema {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(path).expect("the schema");
    Schema(serde_json::from_str(&text).expect("JSON"))
}

impl Schema {
    #[track_caller]
    pub(crate) fn check(&self, value: &Value) {
        let mut problems = Vec::new();
        self.check_at("", &self.0, value, &mut problems);
        assert!(problems.is_empty(), "{problems:#?}");
    }

    fn check_at(&self, at: &str, schema: &Value, value: &Value, problems: &mut Vec<String>) {
        let mut fail = |what: String| problems.push(format!("{at}: {what}"));
        for (keyword, expected) in schema.as_object().expect("a schema is an object") {
            let is_met = match keyword.as_str() {
                "$schema"
                | "$defs"
                | "title"
                | "description"
                | "properties"
                | "items"
                | "additionalProperties"
                | "$ref" => true,
                "type" => has_type(value, expected),
                "enum" => expected.as_array().expect("an array").contains(value),
                "minimum" => value.as_f64().is_none_or(|number| Some(number) >= expected.as_f64()),
                "pattern" => is_time(value),
                "required" => {
                    let names = expected.as_array().expect("an array").iter();
                    names.map(|name| name.as_str().expect("a name")).all(|n| value.get(n).is_some())
                }
                _ => false,
            };
            if !is_met {
                fail(format!("{value} is not as {keyword} says: {expected}"));
            }
        }
        if let Some(reference) = schema.get("$ref") {
            let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
            let other = self.0.pointer(pointer.expect("a place in this schema"));
            self.check_at(at, other.expect("what $ref names"), value, problems);
        }
        for (n, item) in value.as_array().into_iter().flatten().enumerate() {
            self.check_at(&format!("{at}/{n}"), &schema["items"], item, problems);
        }
        let is_reference = schema.get("$ref").is_some();
        for (name, member) in value.as_object().into_iter().flatten().filter(|_| !is_reference) {
            let described = schema["properties"].get(name).or(schema.get("additionalProperties"));
            match described {
                Some(described) => {
                    self.check_at(&format!("{at}/{name}"), described, member, problems);
                }
                None => problems.push(format!("{at}: {name} is not described")),
            }
        }
    }
}

fn has_type(value: &Value, expected: &Value) -> bool {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    };
    match expected {
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        name => name.as_str().is_some_and(is),
    }
}

/// `2026-11-21T18:00:00.000Z`.
fn is_time(value: &Value) -> bool {
    let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
    let text = value.as_str().unwrap_or_default();
    text.chars().map(shape).collect::<String>() == "0000-00-00T00:00:00.000Z"
}

#[test]
fn what_a_schema_forbids_is_found() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"],
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"type": "array", "items": {"enum": [1]}}},
        "$defs": {"n": {"type": "integer", "minimum": 2}},
    });
    let problems = |schema: &Value, value: Value| {
        let mut problems = Vec::new();
        Schema(schema.clone()).check_at("", schema, &value, &mut problems);
        problems.len()
    };
    assert_eq!(problems(&schema, serde_json::json!({"a": 2, "b": [1, 1]})), 0);
    for bad in [
        serde_json::json!([]),
        serde_json::json!({}),
        serde_json::json!({"a": 1}),
        serde_json::json!({"a": -2}),
        serde_json::json!({"a": "2"}),
        serde_json::json!({"a": 2, "b": [2]}),
        serde_json::json!({"a": 2, "c": 1}),
    ] {
        assert_ne!(problems(&schema, bad.clone()), 0, "{bad}");
    }
    assert_ne!(problems(&serde_json::json!({"unknown": 1}), serde_json::json!(1)), 0);
}
