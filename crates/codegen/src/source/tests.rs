//! Edits as tables: the old file, the edit, the new file, and that the second time nothing changes.

use super::*;

const LIB: &str = r#"//! The shop operator.

use kubewright::Operator;

/// The operator.
pub fn operator() -> Operator {
    Operator::new("shop")
}
"#;

fn check(before: &str, edit: impl Fn(&mut Source), after: &str) {
    let mut source = Source::parse("src/lib.rs", before).unwrap();
    edit(&mut source);
    assert_eq!(source.text(), after);
    let once = source.text().to_owned();
    edit(&mut source);
    assert_eq!(source.text(), once, "the second time nothing changes");
}

#[test]
fn modules_stand_in_order() {
    check(
        LIB,
        |lib| {
            for name in ["webhook", "v10", "controller", "v2"] {
                lib.add_module(name);
            }
        },
        &LIB.replace(
            "Operator;\n\n",
            "Operator;\n\npub mod controller;\npub mod v2;\npub mod v10;\npub mod webhook;\n\n",
        ),
    );
    check(
        "//! Only words.\n",
        |lib| lib.add_module("v1"),
        "//! Only words.\n\npub mod v1;\n",
    );
    check("", |lib| lib.add_module("v1"), "pub mod v1;\n");
    check(
        "//! W.\n\nmod a;\nmod c;\n\npub mod b;\n",
        |main| main.add_private_module("b_test"),
        "//! W.\n\nmod a;\nmod b_test;\nmod c;\n\npub mod b;\n",
    );
    check("mod v1 {}\n", |lib| lib.add_module("v1"), "mod v1 {}\n");
    check(
        "//! W.\r\n\r\npub mod b;\r\n",
        |lib| lib.add_module("a"),
        "//! W.\r\n\r\npub mod a;\r\npub mod b;\r\n",
    );
    check(
        "//! W.\n\n// of all\npub mod a;\n/// b\npub mod b; // why\n\nfn x() {}\n",
        |lib| lib.add_module("c"),
        "//! W.\n\n// of all\npub mod a;\n/// b\npub mod b;\npub mod c; // why\n\nfn x() {}\n",
    );
}

#[test]
fn modules_and_names_leave_without_a_trace() {
    let mut lib = Source::parse("src/lib.rs", LIB).unwrap();
    lib.add_module("controller");
    assert!(lib.remove_module("controller") && !lib.remove_module("controller"));
    assert_eq!(lib.text(), LIB);
    let version = "//! v1.\n\npub mod a_types;\n\npub use a_types::A;\n";
    check(
        version,
        |v1| {
            v1.add_module("b_types");
            v1.add_reexport("b_types", "pub use b_types::{B, BSpec};");
        },
        "//! v1.\n\npub mod a_types;\npub mod b_types;\n\npub use a_types::A;\npub use b_types::{B, BSpec};\n",
    );
    check(
        version,
        |v1| {
            v1.remove_module("a_types");
            v1.remove_reexport("a_types");
        },
        "//! v1.\n",
    );
}

#[test]
fn calls_are_laid_out_as_rustfmt_does() {
    let call = "crd::<shop_api::v1::Cart>()";
    let one = LIB.replace("(\"shop\")", "(\"shop\").crd::<shop_api::v1::Cart>()");
    check(LIB, |lib| lib.append_call("operator", call).unwrap(), &one);
    let other = "controller(controller::cart_controller::controller())";
    let two = LIB.replace(
        "(\"shop\")",
        &format!("(\"shop\")\n        .crd::<shop_api::v1::Cart>()\n        .{other}"),
    );
    check(&one, |lib| lib.append_call("operator", other).unwrap(), &two);
    check(&two, |lib| assert!(lib.remove_call("operator", other)), &one);
    check(&one, |lib| assert!(lib.remove_call("operator", call)), LIB);
    let commented = two.replace("        .controller", "        // by hand\n        .controller");
    check(
        &commented,
        |lib| lib.append_call("operator", "observe(o)").unwrap(),
        &commented.replace("::controller())", "::controller())\n        .observe(o)"),
    );
    let variable = "fn operator() -> O {\n    let o = O::new();\n    o\n}\n";
    check(
        variable,
        |lib| lib.append_call("operator", "x()").unwrap(),
        &variable.replace("    o\n", "    o.x()\n"),
    );
}

#[test]
fn a_place_that_was_rewritten_is_refused_with_the_line_to_add() {
    let call = "controller(a())";
    let cases = [
        "fn other() {}\n",
        "fn operator() -> O {\n    if x { a } else { b }\n}\n",
        "fn operator() -> O {\n    return O::new();\n}\n",
        "fn operator() -> O {\n    let o = O::new().controller( a( ), );\n    if x { o } else { b }\n}\n",
        "fn operator() -> O {\n",
    ];
    let told: Vec<String> = cases
        .iter()
        .map(|text| {
            let told = Source::parse("src/lib.rs", text).and_then(|mut lib| {
                lib.append_call("operator", call)?;
                Ok(lib.into_text())
            });
            match told {
                Ok(after) => format!("{text}=> {}", if after == *text { "has it" } else { &after }),
                Err(wrong) => format!("{text}=> {wrong}"),
            }
        })
        .collect();
    insta::assert_snapshot!(told.join("\n\n"));
}

#[test]
fn paths_follow_what_moved() {
    check(
        "use shop_api::v1::Cart;\nuse shop_api::{v1, v2 as two};\nuse a::shop_api::v1;\nfn f() { m!(shop_api::v1::X); let v1 = 1; }\n",
        |lib| lib.rename_paths(&["shop_api", "v1"], &["shop_api", "web", "v1"], true),
        "use shop_api::web::v1::Cart;\nuse shop_api::web::{v1, v2 as two};\nuse a::shop_api::v1;\nfn f() { m!(shop_api::web::v1::X); let v1 = 1; }\n",
    );
    let mut moved = Source::parse(
        "x.rs",
        "use super::help;\nmod tests {\n    use super::*;\n    use super::super::other;\n}\n",
    )
    .unwrap();
    moved.shift_super(1);
    let deeper = "use super::super::help;\nmod tests {\n    use super::*;\n    use super::super::super::other;\n}\n";
    assert_eq!(moved.text(), deeper);
}

#[test]
fn the_stored_version_is_marked_in_the_attribute() {
    let many = "#[kube(\n    group = \"g\",\n    kind = \"A\",\n    namespaced\n)]\nstruct ASpec {}\n";
    let not =
        "#[kube(\n    group = \"g\",\n    kind = \"A\",\n    namespaced,\n    storage = false\n)]\nstruct ASpec {}\n";
    check(many, |types| assert!(types.set_storage("A", false)), not);
    check(not, |types| assert!(types.set_storage("A", true)), many);
    check(
        "#[kube(group = \"g\", kind = \"A\")]\nstruct ASpec {}\n",
        |types| assert!(types.set_storage("A", false)),
        "#[kube(group = \"g\", kind = \"A\", storage = false)]\nstruct ASpec {}\n",
    );
}

#[test]
fn items_come_and_go_whole() {
    let before =
        "//! W.\n\n/// D.\npub struct D;\n\nimpl X for D {}\n\n/// F.\npub fn webhook() -> W {\n    W::of().d(D)\n}\n";
    let mut source = Source::parse("w.rs", before).unwrap();
    source.insert_before("webhook", "/// V.\npub struct V;\n\nimpl Y for V {}\n");
    assert!(
        source
            .text()
            .contains("impl X for D {}\n\n/// V.\npub struct V;\n\nimpl Y for V {}\n\n/// F.")
    );
    source.remove_type("V");
    assert_eq!(source.text(), before);
    assert!(source.remove_function("webhook"));
    assert_eq!(source.text(), "//! W.\n\n/// D.\npub struct D;\n\nimpl X for D {}\n");
}
