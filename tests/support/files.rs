//! Finds the files of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the workspace.
pub(crate) fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The file itself, or every file in the folder and below it.
pub(crate) fn files_in(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    // Cargo writes what it builds into `target`.
    let sources = paths.filter(|path| !path.is_symlink() && !path.ends_with("target"));
    sources.flat_map(|path| files_in(&path)).collect()
}

/// Every .rs file in the folder and below it.
pub(crate) fn source_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = files_in(folder);
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files
}
