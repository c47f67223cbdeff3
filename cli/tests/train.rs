//! Trainings that are killed, resumed, short of space, or started with unusable arguments.
#![cfg(unix)]

mod checkpoint;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

const GRADSCALE: &str = env!("CARGO_BIN_EXE_gradscale");

fn gradscale(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(GRADSCALE).args(arguments).current_dir(directory).output().expect("the program starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn start(directory: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(GRADSCALE);
    command.args(arguments).current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

fn checkpoints(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|one| one == "safetensors")).collect();
    found.sort();
    found
}

/// The last checkpoint.
fn last(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    checkpoint::content(&checkpoints(directory).pop().expect("a checkpoint"))
}

/// Iteration and loss of each line of the log.
fn log(directory: &Path) -> Vec<(u64, String)> {
    let text = fs::read_to_string(directory.join("log.jsonl")).expect("a log");
    let line = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        (json["iteration"].as_u64().expect("a number"), format!("{} {}", json["loss"], json["skipped"]))
    };
    text.lines().map(line).collect()
}

const ITERS: &str = "90";
const SETTINGS: [&str; 11] =
    ["train", "--batch", "2", "--width", "2", "--iters", ITERS, "--checkpoint-every", "4", "--threads", "1"];

#[test]
fn killed_20_times_and_resumed_it_is_the_same_training() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut kills = 0;
    let mut state = 12345u64;
    // The second skips a step every few, so that checkpoints follow skipped steps too.
    for (name, method, pixels) in
        [("gs", "gs:exact,interval=3,history=1", "2073600"), ("chainer", "dynamic:1", "batch")]
    {
        let whole = format!("{name}-whole");
        let more = ["--method", method, "--pixels", pixels];
        let (code, error) = gradscale(directory.path(), &[&SETTINGS[..], &more, &["--out", &whole]].concat());
        assert_eq!(code, Some(0), "{error}");
        let expected = (last(&directory.path().join(&whole)), log(&directory.path().join(&whole)));
        if name == "chainer" {
            assert!(expected.1.iter().any(|line| !line.1.ends_with("null")), "no step was skipped");
        }
        for round in 0.. {
            let broken = format!("{name}-{round}");
            let path = directory.path().join(&broken);
            let mut child = start(directory.path(), &[&SETTINGS[..], &more, &["--out", &broken]].concat());
            // The delay grows, so that the test also ends on a slow machine.
            for patience in (400..).step_by(40) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                sleep(Duration::from_millis(30 + (state >> 33) % patience));
                if child.try_wait().expect("a child").is_some() {
                    break;
                }
                child.kill().expect("SIGKILL");
                child.wait().expect("a child");
                kills += 1;
                if path.exists() && !checkpoints(&path).is_empty() {
                    let resume =
                        ["train", "--iters", ITERS, "--checkpoint-every", "4", "--threads", "1", "--resume", &broken];
                    child = start(directory.path(), &resume);
                } else {
                    // No checkpoint was written yet, so the training starts again.
                    fs::remove_dir_all(&path).ok();
                    child = start(directory.path(), &[&SETTINGS[..], &more, &["--out", &broken]].concat());
                }
            }
            assert!(checkpoints(&path).len() <= 2);
            let got = (last(&path), log(&path));
            assert!(got == expected, "{broken} differs from the unbroken training");
            if kills >= if name == "gs" { 10 } else { 20 } {
                break;
            }
        }
    }
    println!("killed {kills} times");
}

#[test]
fn what_cannot_go_on_says_why_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let small = ["train", "--batch", "2", "--width", "2", "--iters", "4", "--checkpoint-every", "2", "--threads", "1"];
    let refused = |arguments: &[&str], named: &str| {
        let (code, error) = gradscale(at, arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.contains(named), "{arguments:?}: {error}");
    };
    assert_eq!(gradscale(at, &[&small[..], &["--out", "good"]].concat()).0, Some(0));
    let good = checkpoints(&at.join("good"));
    assert_eq!(good.len(), 2);
    let before: Vec<Vec<u8>> = good.iter().map(|path| fs::read(path).expect("a file")).collect();

    refused(&[&small[..], &["--out", "good"]].concat(), "log.jsonl");
    refused(&["train", "--resume", "nowhere"], "nowhere");
    fs::create_dir(at.join("empty")).expect("a directory");
    refused(&["train", "--resume", "empty"], "no checkpoint");
    refused(&["train", "--method", "gs:best"], "gs:best");
    refused(&["train", "--resume", "good", "--batch", "3"], "--batch");

    // Checkpoints cut off, corrupt, and of another kind: the name of the file, and the cause.
    for (name, bytes) in [
        ("cut", before[1][..before[1].len() - 9].to_vec()),
        ("short", before[1][..5].to_vec()),
        ("foreign", b"\x08\0\0\0\0\0\0\0{\"a\":1} ".to_vec()),
        ("nothing", Vec::new()),
    ] {
        fs::create_dir(at.join(name)).expect("a directory");
        fs::write(at.join(name).join("checkpoint-000004.safetensors"), bytes).expect("a file");
        refused(&["train", "--iters", "6", "--resume", name], "checkpoint-000004.safetensors");
    }

    // Two trainings in one directory.
    let mut first = start(at, &["train", "--batch", "2", "--width", "2", "--iters", "100000", "--out", "busy"]);
    while !at.join("busy/log.jsonl").exists() {
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(200));
    refused(&["train", "--resume", "busy"], "another gradscale is writing to this directory");
    first.kill().expect("SIGKILL");
    first.wait().expect("a child");

    // Without space for the log or for a checkpoint, existing checkpoints do not change.
    let without_space = |kilobytes: usize, arguments: &str, named: &str| {
        let script = format!("trap '' XFSZ; ulimit -f {kilobytes}; exec '{GRADSCALE}' train {arguments}");
        let output = Command::new("bash").args(["-c", &script]).current_dir(at).output().expect("bash");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.lines().count() == 1 && error.contains(named) && error.contains("too large"), "{error}");
    };
    without_space(1, "--iters 9 --checkpoint-every 1 --resume good", "good/log");
    let checkpoint = before[0].len() / 2048;
    without_space(checkpoint, "--batch 2 --width 2 --iters 9 --checkpoint-every 1 --out tight", "tight/checkpoint-");
    assert!(checkpoints(&at.join("tight")).is_empty());
    let after: Vec<Vec<u8>> = good.iter().map(|path| fs::read(path).expect("a file")).collect();
    assert!(before == after, "a checkpoint was damaged");
    assert_eq!(checkpoints(&at.join("good")), good);
    // The training can continue once there is space.
    assert_eq!(gradscale(at, &["train", "--iters", "6", "--resume", "good"]).0, Some(0));
}
