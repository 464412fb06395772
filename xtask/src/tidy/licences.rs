//! Every dependency of the plugin may be linked into a program under GPL-2.0, and every one of our own
//! programs may be given away as they are.
//!
//! Crates that only tests and build scripts use are not linked and may have other licences (cbindgen has).
//! Apache-2.0 alone fits no plugin (its patent clause is a restriction that GPL-2.0 forbids), but a program
//! of its own; as a choice beside MIT it fits both. Licence expressions are evaluated: OR needs one good
//! side, AND both.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Findings;

/// The crate that the plugin is made of.
const PLUGIN: &str = "varve-capi";
const ALLOWED: [&str; 10] = [
    "MIT",
    "MIT-0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "BSL-1.0",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unicode-DFS-2016",
];
/// Beside these in a program that is not the plugin.
const IN_PROGRAMS: &str = "Apache-2.0";
const OURS: &str = "MIT OR Apache-2.0";

pub fn check(metadata: &Value, findings: &mut Findings) -> Result<()> {
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    let members = members(metadata)?;
    let named = |id: &&str| {
        let own = |package: &&Value| package["id"] == **id && package["name"] == PLUGIN;
        packages.iter().any(|package| own(&package))
    };
    let plugin = linked(
        metadata,
        members.iter().copied().filter(|id| named(id)).collect(),
    )?;
    let programs = linked(metadata, members)?;
    for package in packages {
        let name = package["name"].as_str().unwrap_or("?");
        let licence = package["license"].as_str().unwrap_or("");
        let is_ours = package["source"].is_null();
        let id = package["id"].as_str().unwrap_or_default();
        if is_ours && licence != OURS {
            findings.errors.push(format!(
                "crate {name}: its licence is {OURS}, not `{licence}`"
            ));
        } else if !is_ours && plugin.contains(id) && !is_allowed(licence, &ALLOWED) {
            findings.errors.push(format!(
                "dependency {name}: licence `{licence}` does not fit a GPL-2.0 plugin"
            ));
        } else if !is_ours && programs.contains(id) {
            let allowed = [&ALLOWED[..], &[IN_PROGRAMS]].concat();
            if !is_allowed(licence, &allowed) {
                findings.errors.push(format!(
                    "dependency {name}: licence `{licence}` does not fit a program under {OURS}"
                ));
            }
        }
    }
    Ok(())
}

/// Ids of the workspace's crates.
fn members(metadata: &Value) -> Result<Vec<&str>> {
    let members = metadata["workspace_members"]
        .as_array()
        .context("a workspace without members")?;
    Ok(members.iter().filter_map(Value::as_str).collect())
}

/// Ids of these crates and of everything that they reach by normal dependencies.
fn linked<'a>(metadata: &'a Value, mut open: Vec<&'a str>) -> Result<HashSet<&'a str>> {
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .context("cargo metadata resolved nothing")?;
    let nodes: HashMap<&str, &Value> = nodes
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let packages = metadata["packages"].as_array();
    let packages: HashMap<&str, &Value> = packages
        .into_iter()
        .flatten()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let mut linked = HashSet::new();
    while let Some(id) = open.pop() {
        if !linked.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array());
        for dependency in dependencies.into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array();
            // A normal dependency has no kind; others are "dev" and "build".
            let is_normal =
                kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()));
            let is_there = is_normal && is_on(packages.get(id), nodes.get(id), dependency);
            open.extend(dependency["pkg"].as_str().filter(|_| is_there));
        }
    }
    Ok(linked)
}

/// Whether a package has this dependency: one that is optional only if a feature says so. Cargo lists it also
/// if a feature says what it is to have in case another one says so (`ring?/alloc`).
fn is_on(package: Option<&&Value>, node: Option<&&Value>, dependency: &Value) -> bool {
    let (Some(package), Some(node)) = (package, node) else {
        return true;
    };
    let name = dependency["name"].as_str().unwrap_or_default();
    let declared = package["dependencies"].as_array().into_iter().flatten();
    let declared: Vec<(&str, bool)> = declared
        .filter(|declared| declared["kind"].is_null())
        .filter_map(|declared| {
            let name = declared["rename"].as_str().or(declared["name"].as_str());
            Some((name?, declared["optional"] == true))
        })
        .filter(|(declared, _)| declared.replace('-', "_") == name)
        .collect();
    // It may be declared for several targets.
    let is_optional = declared.iter().all(|(_, is_optional)| *is_optional);
    let Some((name, _)) = declared.first().filter(|_| is_optional) else {
        return true;
    };
    let features = node["features"].as_array().into_iter().flatten();
    let mut said = features
        .filter_map(Value::as_str)
        .filter_map(|feature| package["features"][feature].as_array())
        .flatten()
        .filter_map(Value::as_str);
    said.any(|said| {
        said.strip_prefix("dep:") == Some(*name)
            || said.split_once('/').is_some_and(|(of, _)| of == *name)
    })
}

fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    // Old crates write `MIT/Apache-2.0`.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        tokens: &tokens,
        allowed,
    };
    parser.alternatives() && parser.tokens.is_empty()
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    allowed: &'a [&'a str],
}

impl Parser<'_> {
    fn alternatives(&mut self) -> bool {
        let mut good = self.conjunction();
        while self.accept("OR") {
            good |= self.conjunction();
        }
        good
    }

    fn conjunction(&mut self) -> bool {
        let mut good = self.single();
        while self.accept("AND") {
            good &= self.single();
        }
        good
    }

    fn single(&mut self) -> bool {
        if self.accept("(") {
            let good = self.alternatives();
            return self.accept(")") && good;
        }
        let Some((name, rest)) = self.tokens.split_first() else {
            return false;
        };
        self.tokens = rest;
        if self.accept("WITH") {
            self.tokens = self.tokens.get(1..).unwrap_or_default();
            return false;
        }
        self.allowed.contains(name)
    }

    fn accept(&mut self, token: &str) -> bool {
        let found = self.tokens.first() == Some(&token);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_linked_crates_need_a_fitting_licence() {
        let package = |id: &str, licence: &str| json!({"id": id, "name": id, "license": licence, "source": "registry"});
        let edge = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                {"id": "ours", "name": PLUGIN, "license": OURS, "source": null},
                {"id": "program", "name": "program", "license": OURS, "source": null},
                package("tool", "MPL-2.0"), package("linked", "MIT"), package("below", "Apache-2.0"),
                package("shown", "Apache-2.0"), package("odd", "GPL-3.0"),
            ],
            "workspace_members": ["ours", "program"],
            "resolve": {"nodes": [
                {"id": "ours", "deps": [edge("tool", "dev".into()), edge("linked", Value::Null)]},
                {"id": "program", "deps": [edge("shown", Value::Null), edge("odd", Value::Null)]},
                {"id": "linked", "deps": [edge("below", Value::Null)]},
                {"id": "tool", "deps": []}, {"id": "below", "deps": []},
                {"id": "shown", "deps": []}, {"id": "odd", "deps": []},
            ]},
        });
        let mut findings = Findings::default();
        check(&metadata, &mut findings).unwrap();
        let [below, odd] = &findings.errors[..] else {
            panic!("{:?}", findings.errors)
        };
        assert!(below.contains("below: licence `Apache-2.0` does not fit a GPL-2.0 plugin"));
        assert!(odd.contains("odd: licence `GPL-3.0` does not fit a program"));
    }

    /// As rustls-webpki lists ring.
    #[test]
    fn what_no_feature_asks_for_is_not_linked() {
        let package = json!({
            "dependencies": [
                {"name": "some-ring", "optional": true}, {"name": "always", "optional": false},
                {"name": "twice", "optional": true}, {"name": "twice", "optional": false},
            ],
            "features": {"std": ["some-ring?/std"], "ring": ["dep:some-ring"], "more": ["some-ring/more"]},
        });
        let asks = |name: &str, features: &[&str]| {
            let node = json!({ "features": features });
            is_on(Some(&&package), Some(&&node), &json!({ "name": name }))
        };
        assert!(!asks("some_ring", &["std"]) && !asks("some_ring", &[]));
        assert!(asks("some_ring", &["std", "ring"]) && asks("some_ring", &["more"]));
        assert!(asks("always", &[]) && asks("twice", &[]));
    }

    #[test]
    fn expressions_are_evaluated() {
        let rows = [
            ("MIT", true),
            ("Apache-2.0", false),
            ("MIT/Apache-2.0", true),
            ("Apache-2.0 OR MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("MIT AND Apache-2.0", false),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("(MIT", false),
            ("", false),
        ];
        for (expression, expected) in rows {
            assert_eq!(is_allowed(expression, &ALLOWED), expected, "{expression}");
        }
    }
}
