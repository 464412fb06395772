//! The one MariaDB that the plugin fits.
//!
//! - The *prefix* in the cache holds the unpacked server, clients, test runner and headers. Checkouts
//!   share it and never write to it; `mariadb/tools/get-mariadb.sh` makes it whole or not at all.
//! - The *base* under `target/mariadb` is this checkout's view of it: the same tree made of symbolic links,
//!   but with our plugin in its plugin directory and our suites in the test runner's. So several checkouts,
//!   each with its own plugin, can run at once. What the test runner writes beside lies there as a copy.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{self, Cmd};
use crate::workspace::{Workspace, cache_dir};

pub struct Prefix {
    /// Where the script put it.
    pub dir: PathBuf,
    /// The exact package version.
    pub version: String,
    /// This checkout's `--basedir`.
    pub base: PathBuf,
    library_path: PathBuf,
}

/// Directories that are real in the base; everything else in it is a link into the prefix.
const OWN_DIRS: [&str; 10] = [
    "",
    "lib",
    "lib/mysql",
    "lib/mysql/plugin",
    "share",
    "share/mysql",
    "share/mysql/mysql-test",
    OWN_SUITES,
    "share/mysql/mysql-test/plugin/innobase",
    "share/mysql/mysql-test/suite",
];
const OWN_SUITES: &str = "share/mysql/mysql-test/plugin";
/// Directories that the base has copies of: the test runner makes results from their files and writes those
/// beside them, and patch(1) refuses links.
const COPIED_DIRS: [&str; 2] = [
    "share/mysql/mysql-test/plugin/innobase/storage_engine",
    "share/mysql/mysql-test/suite/storage_engine",
];

impl Prefix {
    /// Unpacks the prefix if it is missing, and brings the base up to date.
    pub fn ensure(workspace: &Workspace) -> Result<Self> {
        let dir = cache_dir()?.join("mariadb");
        let has = |file: &str| dir.join(file).is_file();
        if !has("VERSION") || !has("root/usr/bin/mariadb-backup") {
            eprintln!("Fetching MariaDB into {} (once)", dir.display());
            command::run(Cmd::new(workspace.root.join("mariadb/tools/get-mariadb.sh")).arg(&dir))
                .context("MariaDB could not be set up")?;
        }
        let version = fs::read_to_string(dir.join("VERSION"))?.trim().to_string();
        let library_path = fs::read_dir(dir.join("root/usr/lib"))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.to_string_lossy().ends_with("-linux-gnu"))
            .with_context(|| {
                format!(
                    "{} has no library directory; remove it and try again",
                    dir.display()
                )
            })?;
        let prefix = Self {
            dir,
            version,
            base: workspace.target.join("mariadb"),
            library_path,
        };
        prefix.refresh_base(workspace)?;
        Ok(prefix)
    }

    /// The unpacked `usr`.
    pub fn usr(&self) -> PathBuf {
        self.dir.join("root/usr")
    }

    /// Directory of the libraries that came with the server.
    pub fn library_path(&self) -> &Path {
        &self.library_path
    }

    pub fn plugin_dir(&self) -> PathBuf {
        self.base.join("lib/mysql/plugin")
    }

    /// Our plugin, once it is built.
    pub fn plugin(&self) -> PathBuf {
        self.plugin_dir().join("ha_varve.so")
    }

    pub fn mysql_test_dir(&self) -> PathBuf {
        self.base.join("share/mysql/mysql-test")
    }

    /// A program of the prefix, with what it needs in its environment.
    pub fn program(&self, name: &str) -> Cmd {
        let usr = self.usr();
        let file = [usr.join("bin").join(name), usr.join("sbin").join(name)];
        let file = file
            .into_iter()
            .find(|file| file.exists())
            .unwrap_or_else(|| name.into());
        let mut path = OsString::from(usr.join("bin"));
        path.push(":");
        path.push(usr.join("sbin"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Cmd::new(file)
            .env("LD_LIBRARY_PATH", &self.library_path)
            .env("PATH", path)
            .env(
                "LUA_PATH",
                format!("{}/share/sysbench/?.lua;;", usr.display()),
            )
    }

    /// A program of ours that runs those of the prefix.
    pub fn own_program(&self, file: &Path) -> Cmd {
        let programs = self.program("mariadb").into_inner();
        let mut own = Cmd::new(file);
        for (name, value) in programs.get_envs() {
            if let (Some(name), Some(value)) = (name.to_str(), value) {
                own = own.env(name, value);
            }
        }
        own
    }

    /// Makes a suite of the test runner this checkout's own: it writes beside the results that it compares
    /// with. Returns where it is.
    pub fn copy_suite(&self, suite: &str) -> Result<PathBuf> {
        let dir = match suite {
            "main" => PathBuf::from("share/mysql/mysql-test/main"),
            _ => Path::new("share/mysql/mysql-test/suite").join(suite),
        };
        let top = dir.iter().take(5).collect::<PathBuf>();
        let from = self.usr().join(&top);
        if !self.usr().join(&dir).is_dir() {
            bail!("MariaDB {} has no suite {suite}", self.version);
        }
        copy_dir(&from, &self.base.join(&top))?;
        Ok(self.base.join(&dir))
    }

    fn refresh_base(&self, workspace: &Workspace) -> Result<()> {
        for dir in OWN_DIRS {
            let own = self.base.join(dir);
            remove_link(&own)?;
            fs::create_dir_all(&own).with_context(|| format!("cannot create {}", own.display()))?;
            for entry in fs::read_dir(self.usr().join(dir))? {
                let entry = entry?;
                let path = Path::new(dir).join(entry.file_name());
                let is_own = OWN_DIRS
                    .into_iter()
                    .chain(COPIED_DIRS)
                    .any(|dir| Path::new(dir) == path);
                // One that is a directory here is a copy that somebody has asked for.
                let is_copy = || {
                    self.base
                        .join(&path)
                        .symlink_metadata()
                        .is_ok_and(|m| m.is_dir())
                };
                if !is_own && !is_copy() {
                    link(&entry.path(), &self.base.join(path))?;
                }
            }
        }
        for dir in COPIED_DIRS {
            copy_dir(&self.usr().join(dir), &self.base.join(dir))?;
        }
        let suites = workspace.root.join("mariadb/mysql-test");
        if suites.is_dir() {
            link(&suites, &self.base.join(OWN_SUITES).join("varve"))?;
        }
        Ok(())
    }
}

/// Removes what is a link where a directory of our own belongs: the base once had fewer of those.
fn remove_link(path: &Path) -> Result<()> {
    let is_link = path.symlink_metadata().is_ok_and(|m| m.is_symlink());
    if is_link {
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Copies the files that are missing in `to` or have another length there.
fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    remove_link(to)?;
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
            continue;
        }
        let length = fs::metadata(entry.path())?.len();
        if !fs::metadata(&target).is_ok_and(|copied| copied.len() == length) {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("cannot write {}", target.display()))?;
        }
    }
    Ok(())
}

/// Makes `link` a symbolic link to `target`, replacing another link.
pub(crate) fn link(target: &Path, link: &Path) -> Result<()> {
    match fs::read_link(link) {
        Ok(old) if old == target => return Ok(()),
        Ok(_) => fs::remove_file(link)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(_) => bail!("{} is in the way; remove it", link.display()),
    }
    match symlink(target, link) {
        // Another process of this checkout made it between the two calls.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        result => result.with_context(|| format!("cannot link {}", link.display())),
    }
}
