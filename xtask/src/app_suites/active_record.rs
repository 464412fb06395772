//! Active Record, the object-relational mapper of the web framework Rails, in Ruby: all from Debian's
//! packages, whose versions Debian 12 decides.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::Result;
use varve_testbed::command::{self, Cmd};
use varve_testbed::prefix::Prefix;
use varve_testbed::server::Engine;

use super::application::{Application, Run, Tests};

pub struct ActiveRecord;

/// Fetches everything.
const GET: &str = concat!(
    include_str!("../../../mariadb/tools/debian.sh"),
    include_str!("ruby/get-active-record.sh")
);
/// The parts of Rails that its object-relational mapper consists of.
const PARTS: [&str; 3] = ["activesupport", "activemodel", "activerecord"];
/// Where Debian's packages have Ruby's modules, below `lib` and below that of the machine's kind.
const MODULES: [&str; 2] = ["ruby/vendor_ruby", "ruby/3.1.0"];
const MACHINE_MODULES: [&str; 2] = ["ruby/vendor_ruby/3.1.0", "ruby/3.1.0"];

impl Application for ActiveRecord {
    fn name(&self) -> &'static str {
        "active-record"
    }

    fn title(&self) -> &'static str {
        "Active Record"
    }

    fn versions(&self) -> String {
        GET.into()
    }

    fn make(&self, dir: &Path, _prefix: &Prefix) -> Result<()> {
        let program = dir.join("get-active-record.sh");
        fs::write(&program, GET)?;
        command::run(Cmd::new("bash").arg(program).arg(dir))
    }

    /// Two for each process; the first has the names that some tests know.
    fn prepare(&self, run: &Run) -> Result<()> {
        let mut client = run.server.connect()?;
        for database in ["activerecord_unittest", "activerecord_unittest2"] {
            client.query(&format!("CREATE DATABASE {database}"))?;
            for part in 1..run.parallel {
                client.query(&format!("CREATE DATABASE {database}_{part}"))?;
            }
        }
        Ok(())
    }

    fn command(&self, run: &Run, tests: Tests) -> Result<Cmd> {
        let dir = &run.environment.dir;
        let (usr, rails) = (dir.join("root/usr"), dir.join("sources"));
        let lib = usr.join("lib");
        let triplet = run.prefix.library_path().file_name();
        let machine_lib = lib.join(triplet.expect("it ends in a name"));
        let mut modules: Vec<_> = PARTS.map(|part| rails.join(part).join("lib")).into();
        modules.extend(MACHINE_MODULES.map(|modules| machine_lib.join(modules)));
        modules.extend(MODULES.map(|modules| lib.join(modules)));
        let libraries = [machine_lib.as_path(), run.prefix.library_path()];
        let gems = "rubygems-integration";
        let gems = [
            usr.join("share").join(gems).join("all"),
            usr.join("share").join(gems).join("3.1.0"),
            machine_lib.join(gems).join("3.1.0"),
        ];
        let own = run.environment.own.join("ruby");
        let labels = match tests {
            Tests::All => &[],
            Tests::Labels(labels) | Tests::Named(labels) => labels,
        };
        let ruby = usr.join("bin/ruby3.1").display().to_string();
        let mut tests = run
            .prefix
            .program(&ruby)
            .arg(own.join("run_active_record.rb"))
            .arg(rails.join("activerecord"))
            .arg(run.parallel.to_string())
            .args(labels)
            .env("LD_LIBRARY_PATH", env::join_paths(libraries)?)
            .env("RUBYLIB", env::join_paths(modules)?)
            .env("GEM_HOME", dir.join("gems"))
            .env("GEM_PATH", env::join_paths(gems)?)
            .env("ARCONFIG", own.join("active_record.yml"))
            .env("VARVE_APP_SOCKET", run.server.datadir.socket())
            // It writes a log beside.
            .dir(run.dir);
        if run.engine == Engine::Varve {
            tests = tests.env("VARVE_APP_ENGINE", run.engine.name());
        }
        Ok(tests)
    }
}
