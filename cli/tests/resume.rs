//! Trainings that are stopped by signals, or that find damaged files: messages name the cause and the remedy, and a
//! resumed training ends as an uninterrupted one.
#![cfg(unix)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

const GRADSCALE: &str = env!("CARGO_BIN_EXE_gradscale");

struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), error: text(&output.stderr) }
    }
}

fn gradscale(at: &Path, arguments: &[&str]) -> Said {
    Command::new(GRADSCALE).args(arguments).current_dir(at).output().expect("the program starts").into()
}

fn done(at: &Path, arguments: &[&str]) -> Said {
    let said = gradscale(at, arguments);
    assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.error);
    said
}

fn start(at: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(GRADSCALE);
    command.args(arguments).current_dir(at).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

fn send(signal: &str, child: &Child) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", child.id())]).status();
    assert!(sent.expect("a shell").success());
}

fn saved(directory: &Path, iteration: u64) -> PathBuf {
    directory.join(format!("checkpoint-{iteration:06}.safetensors"))
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Iteration, loss and skips of each line of the log.
fn log(directory: &Path) -> Vec<String> {
    let text = String::from_utf8(read(&directory.join("log.jsonl"))).expect("text");
    let line = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        format!("{} {} {}", json["iteration"], json["loss"], json["skipped"].is_null())
    };
    text.lines().map(line).collect()
}

const TINY: [&str; 11] =
    ["train", "--task", "classify", "--net", "mlp", "--width", "1", "--batch", "2", "--threads", "1"];

/// Starts a training, and sends it a signal as soon as it logs. If it ends before the signal, it is started again.
fn stopped(at: &Path, signal: &str, arguments: &[&str], directory: &str) -> Said {
    for attempt in 0..20 {
        let mut child = start(at, arguments);
        while !at.join(directory).join("log.jsonl").exists() && child.try_wait().expect("a child").is_none() {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(3 * attempt % 7));
        send(signal, &child);
        let said = Said::from(child.wait_with_output().expect("a child"));
        if said.code != Some(0) {
            return said;
        }
        for left in [directory, "rows.jsonl"] {
            let left = at.join(left);
            if left.is_dir() {
                fs::remove_dir_all(left).expect("removed")
            } else {
                fs::remove_file(left).ok().unwrap_or(())
            }
        }
    }
    panic!("no signal comes in time");
}

/// The printed command continues to the requested steps, with all settings and the same bytes.
#[test]
fn a_signal_saves_and_says_how_to_go_on() {
    let whole = tempfile::tempdir().expect("a directory");
    let iters = 400;
    let more = ["--iters", "400", "--checkpoint-every", "150", "--method", "gs:exact,interval=3", "--seed", "7"];
    let last = ["--out", "my run", "--trace", "rows.jsonl"];
    let arguments = [&TINY[..], &more, &["--eval-every", "170"], &last].concat();
    done(whole.path(), &arguments);
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let broken = tempfile::tempdir().expect("a directory");
        let (at, run) = (broken.path(), broken.path().join("my run"));
        let said = stopped(at, signal, &arguments, "my run");
        assert_eq!(said.code, Some(code), "{}", said.error);
        let line = said.error.lines().last().expect("a line");
        let (start, command) = line.split_once("; resume with: ").expect("what to do");
        let step: u64 =
            start.rsplit_once(" after step ").expect("a step").1.trim_end_matches(" of 400").parse().expect("a number");
        assert!(start.starts_with("gradscale: my run: stopped and saved") && step < iters, "{start}");
        assert_eq!(command, format!("{GRADSCALE} train --resume 'my run'"));
        assert!(saved(&run, step).exists() && log(&run).len() as u64 == step);
        // The command is passed to a shell, as if a user had pasted it.
        let output = Command::new("sh").args(["-c", command]).current_dir(at).output().expect("a shell");
        let resumed = Said::from(output);
        // So short a training may end with a doubt; there must be no other message.
        let complaint = resumed.error.lines().find(|line| !line.contains(": warning: "));
        assert_eq!((resumed.code, complaint), (Some(0), None));
        let first = format!("my run/checkpoint-{step:06}.safetensors: resuming from step {step} to step 400\n");
        assert!(resumed.out.starts_with(&first), "{}", resumed.out);
        // The trace's path is another, and part of the settings.
        let [one, two] = [at, whole.path()].map(|at| {
            let path = saved(&at.join("my run"), iters);
            let plan = checkpoint::content(&path).remove("metadata plan").expect("settings");
            let plan = String::from_utf8(plan).expect("text").replace(&at.display().to_string(), "");
            (checkpoint::state(&path), plan)
        });
        assert!(one.0 == two.0, "another training");
        assert_eq!(one.1, two.1);
        assert_eq!(log(&run), log(&whole.path().join("my run")));
        assert!(read(&at.join("rows.jsonl")) == read(&whole.path().join("rows.jsonl")), "another trace");
        // 300 and 400 are the checkpoints that the command requested.
        assert!(saved(&run, 300).exists() && !saved(&run, step).exists());

        let complete = done(at, &["train", "--resume", "my run"]);
        assert!(complete.out.contains("complete, 400 of 400 steps; --iters N"), "{}", complete.out);
        let more = done(at, &["train", "--resume", "my run", "--iters", "410"]);
        assert!(more.out.contains("resuming from step 400 to step 410"), "{}", more.out);
    }
}

mod checkpoint;

/// The first waits for the end of a step that takes long; the second does not.
#[test]
fn a_second_signal_ends_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let large = ["train", "--batch", "40", "--width", "128", "--threads", "1", "--method", "fp32", "--out", "t"];
    let mut child = start(at, &large);
    while !at.join("t/log.jsonl").exists() {
        assert!(child.try_wait().expect("a child").is_none(), "ended");
        sleep(Duration::from_millis(1));
    }
    send("INT", &child);
    // Two signals of one kind that arrive together would count as one.
    sleep(Duration::from_millis(50));
    send("INT", &child);
    let said = Said::from(child.wait_with_output().expect("a child"));
    assert_eq!(said.code, Some(130), "{}", said.error);
    assert!(read(&at.join("t/log.jsonl")).is_empty() && saved(&at.join("t"), 0).exists());
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_taken() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let arguments = [&TINY[..], &["--iters", "9", "--checkpoint-every", "4", "--out", "t"]].concat();
    done(at, &arguments);
    let (right, lines) = (read(&saved(&at.join("t"), 9)), log(&at.join("t")));
    let mut aside = 0;
    for damage in ["flip", "cut", "empty"] {
        let mut bytes = right.clone();
        match damage {
            "flip" => bytes[right.len() / 2] ^= 0x10,
            "cut" => bytes.truncate(right.len() / 2),
            _ => bytes.clear(),
        }
        fs::write(saved(&at.join("t"), 9), &bytes).expect("a file");
        let said = done(at, &["train", "--resume", "t"]);
        assert_eq!(said.error.lines().count(), 1, "{}", said.error);
        assert!(said.error.starts_with("gradscale: t/checkpoint-000009.safetensors: "), "{}", said.error);
        assert!(said.error.contains("t/checkpoint-000008.safetensors instead"), "{}", said.error);
        assert!(said.out.contains("resuming from step 8 to step 9"), "{}", said.out);
        assert!(read(&saved(&at.join("t"), 9)) == right, "{damage}: another training");
        assert_eq!(log(&at.join("t")), lines);
        aside += 1;
        assert!(read(&at.join(format!("t/checkpoint-000009.safetensors.damaged-{aside}"))) == bytes);
    }
}

/// The losses are in the checkpoint; losses that a damaged line hides are reported.
#[test]
fn a_lost_or_damaged_log_is_said_and_mended() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    done(at, &[&TINY[..], &["--iters", "9", "--checkpoint-every", "4", "--out", "t"]].concat());
    let lines = log(&at.join("t"));
    let path = at.join("t/log.jsonl");
    let text = String::from_utf8(read(&path)).expect("text");
    fs::remove_file(&path).expect("a file");
    let said = done(at, &["train", "--resume", "t"]);
    let expected = "gradscale: t/log.jsonl: not found; losses of steps 1–9 are taken from the checkpoint\n";
    assert_eq!(said.error, expected);
    assert_eq!(log(&at.join("t")), lines);
    let third = text.lines().nth(2).expect("a line");
    fs::write(&path, text.replace(third, "garbage")).expect("a file");
    let said = done(at, &["train", "--resume", "t"]);
    let kept = "only 8 of 9 steps can be read; the damaged file was renamed to t/log.jsonl.damaged-1";
    assert_eq!(said.error, format!("gradscale: t/log.jsonl: {kept}; losses of step 3 are taken from the checkpoint\n"));
    assert_eq!(log(&at.join("t")), lines);
    // An intact log is not changed.
    let said = done(at, &["train", "--resume", "t"]);
    assert_eq!(said.error, "");
}

/// A training of an earlier version continues unchanged, and settings that its checkpoint lacks are reported.
#[test]
fn checkpoints_of_earlier_versions_go_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::create_dir(at.join("old")).expect("a directory");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old/checkpoint-000002.safetensors");
    fs::copy(file, saved(&at.join("old"), 2)).expect("a copy");
    let said = done(at, &["train", "--resume", "old", "--iters", "3"]);
    let gone = "gradscale: old/log.jsonl: not found; losses of steps 1–2 are taken from the checkpoint where it has \
        them\n";
    assert_eq!(said.error, gone);
    assert!(said.out.contains("resuming from step 2 to step 3"), "{}", said.out);
    let lines = log(&at.join("old"));
    assert_eq!(lines, ["1 null true", "2 null true", "3 0.99308246 true"]);
}

/// Own checkpoints are first weights too.
#[test]
fn weights_come_from_checkpoints() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    done(at, &[&TINY[..], &["--iters", "3", "--out", "t"]].concat());
    let other = [&TINY[..], &["--iters", "1", "--method", "dynamic", "--out", "u"]].concat();
    let said = done(at, &[&other[..], &["--weights", "t/checkpoint-000003.safetensors"]].concat());
    assert!(said.out.starts_with("t/checkpoint-000003.safetensors: 6 parameters imported\n"), "{}", said.out);
    let [one, two] = [saved(&at.join("t"), 3), saved(&at.join("u"), 0)].map(|path| checkpoint::content(&path));
    assert_eq!(one["master.mlp.linear1.weight"], two["master.mlp.linear1.weight"]);
    let wider =
        ["train", "--task", "classify", "--net", "mlp", "--width", "2", "--weights", "t/checkpoint-000003.safetensors"];
    let refused = gradscale(at, &wider);
    let expected =
        "gradscale: t/checkpoint-000003.safetensors: mlp.linear1.weight is 8×784 in the checkpoint, but 16×784 here\n";
    assert_eq!((refused.code, refused.error.as_str()), (Some(2), expected));
}

/// A training does not start in a directory that has one, in whatever state that is.
#[test]
fn a_training_is_not_overwritten() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let arguments = [&TINY[..], &["--iters", "2", "--out", "t"]].concat();
    done(at, &arguments);
    fs::remove_file(at.join("t/log.jsonl")).expect("a file");
    let refused = gradscale(at, &arguments);
    assert_eq!(refused.code, Some(2));
    assert!(refused.error.contains("an earlier training is here; resume it with "), "{}", refused.error);
    assert_eq!(gradscale(at, &["train", "--resume", "nowhere"]).error, "gradscale: nowhere: no such directory\n");
    assert!(!at.join("nowhere").exists());
}
