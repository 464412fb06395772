//! House rules that no other tool checks: direction of imports, sizes of files and functions, width of lines,
//! licences, words, numbers of invariants, tables that a test finds out, messages and their page.
//!
//! A violation names the file, the line where it has one, and what to do. Warnings do not fail.

mod answers;
mod functions;
mod imports;
mod invariants;
mod licences;
mod messages;
mod text;
mod width;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::Workspace;

#[derive(Default)]
pub struct Findings {
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
}

/// A text file of the project, with its path from the root.
pub struct Source {
    pub path: String,
    pub text: String,
}

impl Source {
    /// Whether a program wrote it, so that it has no author who could mend it.
    fn is_generated(&self) -> bool {
        self.text
            .lines()
            .take(5)
            .any(|line| line.contains("do not edit"))
    }
}

pub fn run(workspace: &Workspace) -> Result<ExitCode> {
    Ok(if report(workspace)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints what is wrong and returns whether nothing is.
pub fn report(workspace: &Workspace) -> Result<bool> {
    let findings = check(workspace)?;
    for warning in &findings.warnings {
        println!("warning: {warning}");
    }
    for error in &findings.errors {
        println!("error: {error}");
    }
    println!(
        "tidy: {} errors, {} warnings",
        findings.errors.len(),
        findings.warnings.len()
    );
    Ok(findings.errors.is_empty())
}

fn check(workspace: &Workspace) -> Result<Findings> {
    let sources = sources(workspace)?;
    let mut findings = Findings::default();
    for source in &sources {
        imports::check(source, &mut findings);
        text::check(source, &mut findings);
        functions::check(source, &mut findings);
        width::check(source, &mut findings);
    }
    invariants::check(&sources, &mut findings);
    answers::check(&sources, &mut findings);
    messages::check(&sources, &mut findings);
    licences::check(&workspace.metadata()?, &mut findings)?;
    Ok(findings)
}

/// Everything that git tracks or would track, as far as it is text.
fn sources(workspace: &Workspace) -> Result<Vec<Source>> {
    let list = command::output(
        Cmd::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .dir(&workspace.root),
    )?;
    let mut paths: Vec<&str> = list.lines().collect();
    paths.sort_unstable();
    paths.dedup();
    let mut sources = Vec::new();
    for path in paths {
        let file: PathBuf = workspace.root.join(path);
        // A file that was removed and not yet committed is still listed.
        if file.is_file()
            && let Ok(text) = String::from_utf8(fs::read(file)?)
        {
            sources.push(Source {
                path: path.to_string(),
                text,
            });
        }
    }
    Ok(sources)
}

/// What a check says of a file with this text.
#[cfg(test)]
fn findings(check: fn(&Source, &mut Findings), path: &str, text: &str) -> Findings {
    let mut findings = Findings::default();
    let source = Source {
        path: path.into(),
        text: text.into(),
    };
    check(&source, &mut findings);
    findings
}
