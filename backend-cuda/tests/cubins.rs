//! Machine code is compiled once and stored as a whole or not at all; unusable files are ignored and reported.

mod emulated;

use emulated::Emulated;
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::Unary,
};
use gradscale_cuda::{CubinReport, Cubins};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// An empty folder of a test's own.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Uses one kernel on a new context of a device.
fn run(emulated: &Emulated, folder: &Path) -> CubinReport {
    let device = emulated.open_with(Cubins::at(folder)).expect("a device");
    let table = device.table(2, 0).expect("a table");
    let (x, mut y) = (device.alloc(DType::F32, 9).expect("memory"), device.alloc(DType::F32, 9).expect("memory"));
    let y = Store::keep(Slot::ONE, &table, &mut y);
    device.launch(Launch::Unary { op: Unary::Id, len: 9, x: &x, y }).expect("a launch");
    device.gpu().cubins()
}

/// The only file of a folder.
fn only(folder: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn what_was_compiled_is_found() {
    let Ok(emulated) = Emulated::new(80, 1) else {
        println!("SKIPPED: no C++ compiler");
        return;
    };
    let folder = folder("found");
    let first = run(&emulated, &folder);
    assert_eq!((first.compiled, first.found.len(), first.ignored.len()), (1, 0, 0), "{first:?}");
    let name = only(&folder).file_name().expect("a name").to_string_lossy().into_owned();
    assert!(name.starts_with("unary-sm_80-"), "{name}");
    let second = run(&emulated, &folder);
    assert_eq!((second.compiled, second.found.get(&folder), second.ignored.len()), (0, Some(&1), 0), "{second:?}");
    // Another architecture has its own.
    let other = run(&Emulated::new(75, 1).expect("as before"), &folder);
    assert_eq!(other.compiled, 1, "{other:?}");
}

#[test]
fn what_is_damaged_is_said_and_made_anew() {
    let Ok(emulated) = Emulated::new(80, 1) else {
        println!("SKIPPED: no C++ compiler");
        return;
    };
    let folder = folder("damaged");
    run(&emulated, &folder);
    let file = only(&folder);
    let whole = fs::read(&file).expect("readable");
    let mut other = whole.clone();
    other[whole.len() - 2] ^= 1;
    for damaged in [&[][..], &whole[..20], &whole[..whole.len() - 1], &other, b"something else"] {
        fs::write(&file, damaged).expect("writable");
        let report = run(&emulated, &folder);
        assert_eq!(report.compiled, 1, "{report:?}");
        assert!(report.ignored.len() == 1 && report.ignored[0].ends_with(".cubin: damaged"), "{report:?}");
        assert_eq!(fs::read(&file).expect("readable"), whole);
    }
    // A complete file that this driver cannot load: machine code under the name of another module.
    emulated.fail("unloadable=unary");
    let device = emulated.open_with(Cubins::at(&folder)).expect("a device");
    let table = device.table(2, 0).expect("a table");
    let (x, mut y) = (device.alloc(DType::F32, 9).expect("memory"), device.alloc(DType::F32, 9).expect("memory"));
    let y = Store::keep(Slot::ONE, &table, &mut y);
    device.launch(Launch::Unary { op: Unary::Id, len: 9, x: &x, y }).expect_err("nothing loads");
    assert!(device.gpu().cubins().ignored[0].contains("CUDA_ERROR_INVALID_IMAGE"), "{:?}", device.gpu().cubins());
    assert_eq!(fs::read(&file).expect("readable"), whole);
}

/// A place where nothing can be kept costs time, not the training.
#[test]
fn a_folder_that_is_none() {
    let Ok(emulated) = Emulated::new(80, 1) else {
        println!("SKIPPED: no C++ compiler");
        return;
    };
    let file = folder("none").join("file");
    fs::write(&file, "").expect("writable");
    let report = run(&emulated, &file);
    assert_eq!((report.compiled, report.ignored.len()), (1, 2), "{report:?}");
}

/// Several processes of one node write at the same time.
#[test]
fn several_at_once() {
    if Emulated::new(80, 1).is_err() {
        println!("SKIPPED: no C++ compiler");
        return;
    }
    let folder = folder("several");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let report = run(&Emulated::new(80, 1).expect("as before"), &folder);
                assert!(report.ignored.is_empty(), "{report:?}");
            });
        }
    });
    only(&folder);
}
