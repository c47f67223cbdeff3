//! Checkpoints in files: a file is written as a whole or not at all, and an error names it.

use super::files::{device, network};
use gradscale::{CheckpointError, CheckpointFile, Cpu, Error, LoadError, Method, Trainer, optim::Sgd, write_file};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Directory of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gradscale-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the directory");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn trainer(rate: f64) -> Trainer<Cpu> {
    Trainer::new(device(), network(2).0, Sgd::new(rate), Method::fp32()).expect("a trainer")
}

fn failure(path: &Path, result: Result<(), Error>) -> io::ErrorKind {
    match result {
        Err(Error::Checkpoint(CheckpointError::File { path: named, kind, .. })) if named == path => kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_training_goes_on_from_its_file() {
    let folder = Folder::new("goes-on");
    let file = CheckpointFile::new(folder.0.join("run.safetensors"));
    let mut first = trainer(0.1);
    let metadata = BTreeMap::from([("epoch".to_owned(), "3".to_owned())]);
    file.save(&first, &metadata).expect("a file");
    assert_eq!(file.load(&mut first).expect("its own"), metadata);
    first.set_lr(None, 0.5).expect("a rate");
    file.save(&first, &BTreeMap::new()).expect("the file again");
    assert_eq!(folder.names(), ["run.safetensors"]);
    let mut second = trainer(0.1);
    assert_eq!(second.lr(None).expect("the rate"), 0.1);
    assert!(file.load(&mut second).expect("the same training").is_empty());
    assert_eq!(second.lr(None).expect("the rate"), 0.5);
}

#[test]
fn a_failed_write_names_its_file_and_leaves_nothing() {
    let folder = Folder::new("keeps");
    let (path, trained) = (folder.0.join("run.safetensors"), trainer(0.1));
    CheckpointFile::new(&path).save(&trained, &BTreeMap::new()).expect("a file");
    let before = fs::read(&path).expect("the file");
    let missing = folder.0.join("none/run.safetensors");
    assert_eq!(
        failure(&missing, CheckpointFile::new(&missing).save(&trained, &BTreeMap::new())),
        io::ErrorKind::NotFound
    );
    let taken = folder.0.join("taken");
    fs::create_dir(&taken).expect("a directory");
    assert_eq!(
        failure(&taken, CheckpointFile::new(&taken).save(&trained, &BTreeMap::new())),
        io::ErrorKind::IsADirectory
    );
    assert_eq!(folder.names(), ["run.safetensors", "taken"]);
    assert!(fs::read(&path).expect("the file") == before);
    assert!(write_file("", b"x").is_err() && write_file("/", b"x").is_err());
}

#[test]
fn unreadable_files_are_named_and_change_nothing() {
    let folder = Folder::new("unreadable");
    let (mut trained, path) = (trainer(0.1), folder.0.join("run.safetensors"));
    let before = trained.save(&BTreeMap::new()).expect("a checkpoint");
    let file = CheckpointFile::new(&path);
    assert_eq!(failure(&path, file.load(&mut trained).map(drop)), io::ErrorKind::NotFound);
    let mut parameters = network(2).0;
    let error = file.load_parameters(&mut parameters).expect_err("no file");
    assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{error}");
    assert!(matches!(error, LoadError::Checkpoint(CheckpointError::File { kind: io::ErrorKind::NotFound, .. })));
    for bytes in [&before[..before.len() / 2], &[0; 3], &[]] {
        fs::write(&path, bytes).expect("a file");
        assert!(matches!(file.load(&mut trained), Err(Error::Checkpoint(CheckpointError::Unreadable(_)))));
        assert!(matches!(file.load_parameters(&mut parameters), Err(LoadError::Checkpoint(_))));
    }
    assert!(trained.save(&BTreeMap::new()).expect("a checkpoint") == before);
    file.save(&trained, &BTreeMap::new()).expect("a file");
    let error = file.load_parameters(&mut network(5).0).expect_err("another network");
    assert!(matches!(error, LoadError::Shape { .. }), "{error}");
}

/// Names at the limit of file systems, links, and permissions.
#[cfg(unix)]
#[test]
fn files_stay_what_they_are() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new("stay");
    for name in ["x".repeat(255), "é".repeat(127)] {
        let path = folder.0.join(name);
        write_file(&path, b"long").expect("a file");
        fs::remove_file(path).expect("the file");
    }
    let (target, link) = (folder.0.join("target"), folder.0.join("link"));
    write_file(&target, b"old").expect("a file");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("its owner");
    symlink(&target, &link).expect("a link");
    write_file(&link, b"new").expect("a file");
    assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
    assert_eq!(fs::read(&target).expect("the file"), b"new");
    assert_eq!(fs::metadata(&target).expect("the file").permissions().mode() & 0o777, 0o640);
    assert_eq!(folder.names(), ["link", "target"]);
}

/// Writers at the same time each write a whole file; the last one wins.
#[test]
fn writers_do_not_mix() {
    let folder = Folder::new("mix");
    let path = folder.0.join("shared");
    let contents: Vec<Vec<u8>> = (0..4u8).map(|i| vec![i; 200_000 + usize::from(i)]).collect();
    std::thread::scope(|scope| {
        for content in &contents {
            scope.spawn(|| (0..5).for_each(|_| write_file(&path, content).expect("a file")));
        }
    });
    assert!(contents.contains(&fs::read(&path).expect("the file")));
    assert_eq!(folder.names(), ["shared"]);
}
