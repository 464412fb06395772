//! How much memory the process's control groups let it have (cgroups(7)). Beyond that the system ends the
//! process, however much the machine has.
//!
//! Of version 2 each group says it in `memory.max`, of version 1 in `memory.limit_in_bytes`; that of every
//! group above counts, too. In a container the path may be one that is not seen there: the group at the top
//! is then the container's own.

use std::fs;
use std::path::{Path, PathBuf};

/// The least limit, and the directory of the group that has it.
pub struct MemoryLimit {
    bytes: u64,
    group: PathBuf,
}

/// Version 1 says that there is no limit by the greatest number of pages.
const NO_LIMIT: u64 = 1 << 62;

impl MemoryLimit {
    /// Of this process; `None`: there is none, or the system does not say.
    fn of_process() -> Option<MemoryLimit> {
        MemoryLimit::below(Path::new("/"))
    }

    /// What to say of something with this name that is to take so many bytes, if that is more than the
    /// process may have.
    pub fn exceeded_by(what: &str, bytes: u64) -> Option<String> {
        let MemoryLimit { bytes: most, group } = MemoryLimit::of_process()?;
        let group = group.display();
        let says = || {
            format!(
                "{what} {bytes} is above {most}, the memory limit of the process's control group {group}"
            )
        };
        (bytes > most).then(says)
    }

    /// Of a process of the system with this root directory.
    fn below(root: &Path) -> Option<MemoryLimit> {
        let limits = memory_groups(root);
        let limits = limits.iter().filter_map(MemoryGroup::least_limit);
        limits.min_by_key(|limit| limit.bytes)
    }
}

/// A control group of the process that may limit its memory.
pub struct MemoryGroup {
    /// Where the groups of its kind are.
    mount: PathBuf,
    pub directory: PathBuf,
    /// In that directory: the limit, in bytes.
    pub limit_file: &'static str,
}

/// Those of a process of the system with this root directory, one of each version of control groups at most.
pub fn memory_groups(root: &Path) -> Vec<MemoryGroup> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (mount, limit_file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|c| c == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let mount = root.join(mount);
        Some(MemoryGroup {
            directory: mount.join(path.trim_start_matches('/')),
            mount,
            limit_file,
        })
    };
    groups.lines().filter_map(of_line).collect()
}

impl MemoryGroup {
    /// The least limit of the group and those above it.
    fn least_limit(&self) -> Option<MemoryLimit> {
        let groups = self.directory.ancestors();
        let groups = groups.take_while(|group| group.starts_with(&self.mount));
        let limit = |group: &Path| {
            let text = fs::read_to_string(group.join(self.limit_file)).ok()?;
            let bytes = text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT)?;
            let group = group.to_path_buf();
            Some(MemoryLimit { bytes, group })
        };
        groups.filter_map(limit).min_by_key(|limit| limit.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system with these groups, in which the process is in those of `lines`.
    fn system(lines: &str, limits: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/self/cgroup", lines);
        limits.iter().for_each(|(path, text)| put(path, text));
        root
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let v2 = "0::/a/b\n";
        let v1 = "9:name=systemd:/x\n4:cpu,memory:/a\n0::/\n";
        let of = |lines, limits: &[(&str, &str)]| {
            let root = system(lines, limits);
            let limit = MemoryLimit::below(root.path());
            limit.map(|limit| {
                let group = limit.group.strip_prefix(root.path()).unwrap();
                (limit.bytes, group.to_str().unwrap().to_string())
            })
        };
        let is = |bytes: u64, group: &str| Some((bytes, group.to_string()));
        assert_eq!(of(v2, &[]), None);
        assert_eq!(of(v2, &[("sys/fs/cgroup/a/b/memory.max", "max\n")]), None);
        let both = [
            ("sys/fs/cgroup/a/b/memory.max", "900\n"),
            ("sys/fs/cgroup/a/memory.max", "800\n"),
        ];
        assert_eq!(of(v2, &both), is(800, "sys/fs/cgroup/a"));
        // A container sees its own group at the top.
        assert_eq!(
            of(v2, &[("sys/fs/cgroup/memory.max", "700\n")]),
            is(700, "sys/fs/cgroup")
        );
        let none = (
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(of(v1, &[none]), None);
        let some = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "600\n");
        assert_eq!(of(v1, &[none, some]), is(600, "sys/fs/cgroup/memory"));
        // Of a process that is in no group it says nothing.
        assert_eq!(of("", &both), None);
    }
}
