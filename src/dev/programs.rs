//! Where the server programs are: on PATH, or where distributions put daemons and an ordinary user's PATH does not look.

use std::{
    env,
    path::{Path, PathBuf},
};

use super::DevError;

const DAEMON_DIRS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// The first of `names` that is installed.
pub(super) fn find(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    find_in(
        env::split_paths(&path).chain(DAEMON_DIRS.map(PathBuf::from)),
        names,
    )
}

/// The chosen program if there is one, otherwise the first of `names` that is installed.
pub(super) fn choose(
    chosen: Option<&Path>,
    names: &[&str],
    packages: &'static str,
) -> Result<PathBuf, DevError> {
    let (found, program) = match chosen {
        Some(program) => (
            program.is_file().then(|| program.to_owned()),
            program.display().to_string(),
        ),
        None => (find(names), names.join(" or ")),
    };
    found.ok_or(DevError::Missing { program, packages })
}

fn find_in(dirs: impl Iterator<Item = PathBuf>, names: &[&str]) -> Option<PathBuf> {
    let dirs: Vec<_> = dirs.collect();
    names
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_wins_over_the_first_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for (dir, name) in [(&a, "second"), (&b, "first"), (&b, "second")] {
            std::fs::create_dir_all(dir).unwrap();
            std::fs::write(dir.join(name), "").unwrap();
        }
        let dirs = || [a.clone(), b.clone()].into_iter();
        assert_eq!(find_in(dirs(), &["first", "second"]), Some(b.join("first")));
        assert_eq!(find_in(dirs(), &["third"]), None);
    }

    #[test]
    fn a_missing_program_names_itself_and_its_package() {
        let error = choose(None, &["no-such-redis", "no-such-valkey"], "redis-server").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no-such-redis or no-such-valkey not found: install it (Debian, Ubuntu: apt-get install redis-server)"
        );
    }
}
