//! Trainings that are stopped by signals, or that find damaged files: messages name the cause and the remedy, and a
//! resumed training ends as an uninterrupted one.
#![cfg(unix)]

use command::without_progress;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, SystemTime},
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
        Self { code: output.status.code(), out: text(&output.stdout), error: without_progress(&output.stderr) }
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

/// Names, contents and times of all files of a directory, also in its folders.
fn files(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            let changed = fs::metadata(&path).and_then(|file| file.modified()).expect("a time");
            all.insert(path.clone(), (read(&path), changed));
        }
    }
    all
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

        // A complete training is not written to.
        let before = files(&run);
        let complete = done(at, &["train", "--resume", "my run"]);
        assert!(complete.out.contains("complete, 400 of 400 steps; --iters N"), "{}", complete.out);
        let fewer = gradscale(at, &["train", "--resume", "my run", "--iters", "300"]);
        let expected = "gradscale: my run has 400 steps already, more than the 300 asked for\n";
        assert_eq!((fewer.code, fewer.error.as_str()), (Some(2), expected));
        assert!(files(&run) == before, "a complete training has changed");
        let more = done(at, &["train", "--resume", "my run", "--iters", "410"]);
        assert!(more.out.contains("resuming from step 400 to step 410"), "{}", more.out);
    }
}

mod checkpoint;
mod command;

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

/// The network of this checkpoint had sites inside of its GRU cells, which are one operator now. One line names them.
#[test]
fn sites_that_the_network_lacks_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::create_dir(at.join("old")).expect("a directory");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old/speech-000002.safetensors");
    fs::copy(file, saved(&at.join("old"), 2)).expect("a copy");
    let said = done(at, &["train", "--resume", "old", "--iters", "3"]);
    let unused: Vec<&str> = said.error.lines().filter(|line| line.contains("sites")).collect();
    let cell = "deepspeech.recurrent2.gru.l0_reverse";
    let line = format!(
        "gradscale: old/checkpoint-000002.safetensors: the exponents of its sites {cell}.h/cast, {cell}.step/cast, \
         {cell}.difference/cast.1, {cell}.new/sum and 40 others are unused, because the network has no such sites any more"
    );
    assert_eq!(unused, [line]);
    // A training of this version has no such sites.
    done(at, &["train", "--task", "speech", "--width", "2", "--batch", "2", "--iters", "1", "--out", "own"]);
    assert_eq!(done(at, &["train", "--resume", "own", "--iters", "2"]).error, "");
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

/// Results of a comparison without times and without the description of the run.
fn results(directory: &Path) -> serde_json::Value {
    let mut json: serde_json::Value = serde_json::from_slice(&read(&directory.join("results.json"))).expect("JSON");
    json.as_object_mut().expect("an object").remove("arguments");
    for run in json["runs"].as_array_mut().expect("runs") {
        run["seconds"] = serde_json::Value::Null;
    }
    json
}

/// A table or page without times of steps.
fn page(directory: &Path, name: &str) -> String {
    let text = String::from_utf8(read(&directory.join(name))).expect("text");
    let header = text.lines().find(|line| line.contains("ms per step")).unwrap_or_default();
    let column = header.split('|').position(|head| head.contains("ms per step"));
    let line = |line: &str| match column {
        Some(column) if line.starts_with('|') => line
            .split('|')
            .enumerate()
            .filter(|(i, _)| *i != column)
            .map(|(_, cell)| cell)
            .collect::<Vec<_>>()
            .join("|"),
        _ => line.to_owned(),
    };
    let text = text.lines().map(line).collect::<Vec<_>>().join("\n");
    text.replace(" Up to 2 runs at a time, so that a step takes longer than alone.", "")
}

/// A comparison that a signal stops keeps its finished runs, says so on its page, and ends with the results of one
/// without interruption, also if two runs train at a time. Meanwhile no other process writes to its directory.
#[test]
fn a_comparison_is_resumed() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let compare = [&["compare"], &TINY[1..]].concat();
    // A scale of 2^30 overflows, so its runs end early.
    let more = ["--iters", "1500", "--seeds", "0,1", "--methods", "fp32,fixed:2^30,gs"];
    let arguments = [&compare[..], &more].concat();
    done(at, &[&arguments[..], &["--out", "whole"]].concat());
    let runs = |name: &str| fs::read_to_string(at.join(name).join("runs.jsonl")).map_or(0, |text| text.lines().count());
    for (signal, code, jobs) in [("INT", 130, "1"), ("TERM", 143, "2")] {
        let arguments = [&arguments[..], &["--jobs", jobs]].concat();
        let mut child = start(at, &[&arguments[..], &["--out", signal]].concat());
        // The first line is the command, and others are of finished runs.
        while runs(signal) < 3 {
            assert!(child.try_wait().expect("a child").is_none(), "ended before the signal");
            sleep(Duration::from_millis(1));
        }
        // A resume looks for the lock before it reads data, so the first process is still at work.
        let second = gradscale(at, &["compare", "--resume", signal]);
        assert_eq!(second.code, Some(2), "{}", second.error);
        assert!(second.error.contains("another gradscale is writing to this directory"), "{}", second.error);
        send(signal, &child);
        let said = Said::from(child.wait_with_output().expect("a child"));
        assert_eq!(said.code, Some(code), "{}", said.error);
        let line = said.error.lines().last().expect("a line");
        let (start, command) = line.split_once("; resume with: ").expect("what to do");
        assert!(start.starts_with(&format!("gradscale: {signal}: stopped at step ")), "{line}");
        assert_eq!(command, format!("{GRADSCALE} compare --resume {signal}"));
        let kept = runs(signal) - 1;
        assert!(start.ends_with(&format!("; {kept} of 6 runs are kept")), "{line}");
        let json = results(&at.join(signal));
        assert_eq!((&json["complete"], json["runs"].as_array().map(Vec::len)), (&false.into(), Some(kept)));
        for name in ["report.html", "table.md"] {
            let text = String::from_utf8(read(&at.join(signal).join(name))).expect("text");
            assert!(text.contains(&format!("{} of 6 runs are missing", 6 - kept)), "{name}");
            assert!(text.contains(&format!("compare --resume {signal}")), "{name}");
        }
        let again = gradscale(at, &[&arguments[..], &["--out", signal]].concat());
        assert!(again.code == Some(2) && again.error.contains("resume it with "), "{}", again.error);
        // A process that is killed may leave half a line.
        let file = at.join(signal).join("runs.jsonl");
        fs::write(&file, [&read(&file)[..], b"{\"part\":0,"].concat()).expect("a file");

        let resumed = done(at, &["compare", "--resume", signal]);
        let trained = resumed.out.lines().filter(|line| line.contains(" seed ")).count();
        assert!(trained >= 6, "{}", resumed.out);
        assert!(results(&at.join(signal)) == results(&at.join("whole")), "another comparison");
        assert_eq!(page(&at.join(signal), "table.md"), page(&at.join("whole"), "table.md"));
        let before = files(&at.join(signal));
        let complete = done(at, &["compare", "--resume", signal]);
        assert_eq!(complete.out, format!("{signal}: complete; {signal}/report.html\n"));
        let json: serde_json::Value =
            serde_json::from_str(&done(at, &["compare", "--resume", signal, "--json"]).out).expect("JSON");
        assert_eq!((&json["complete"], json["parts"][0]["runs"].as_array().map(Vec::len)), (&true.into(), Some(6)));
        assert!(json["parts"][0]["verdict"][0]["text"].is_string(), "{json}");
        assert!(files(&at.join(signal)) == before && !file.exists(), "a complete comparison has changed");
    }
    let missing = gradscale(at, &["compare", "--resume", "nowhere"]);
    assert_eq!(missing.error, "gradscale: nowhere: no such directory\n");

    // A signal in the last step of a run, here the only one, does not discard the run.
    let seeds: Vec<String> = (0..500).map(|seed: u32| seed.to_string()).collect();
    let write = |name: &str| image::GrayImage::new(4, 4).save(at.join("d").join(name)).expect("an image");
    for class in ["a", "b"] {
        fs::create_dir_all(at.join("d").join(class)).expect("a directory");
        (0..5).for_each(|i| write(&format!("{class}/{i}.png")));
    }
    let more = ["--iters", "1", "--methods", "fp32", "--seeds", &seeds.join(","), "--data", "d", "--out", "short"];
    let mut child = start(at, &[&compare[..], &more].concat());
    while runs("short") < 3 {
        assert!(child.try_wait().expect("a child").is_none(), "ended before the signal");
        sleep(Duration::from_millis(1));
    }
    send("INT", &child);
    let said = Said::from(child.wait_with_output().expect("a child"));
    let text = fs::read_to_string(at.join("short/runs.jsonl")).expect("runs");
    let last: serde_json::Value = serde_json::from_str(text.lines().last().expect("a run")).expect("JSON");
    let stopped = format!("gradscale: short: stopped at step 1 of fp32, seed {}; ", last["seed"]);
    assert!(said.code == Some(130) && said.error.contains(&stopped), "{}: {}", last["seed"], said.error);
    // Runs on other data cannot be compared with these.
    write("a/5.png");
    let refused = gradscale(at, &["compare", "--resume", "short"]);
    let cause =
        "changed since this comparison began (10 files then, 11 now); restore the files; or start a new comparison";
    assert!(refused.code == Some(2) && refused.error.ends_with(&format!("/d: {cause}\n")), "{}", refused.error);
}

/// Pages that somebody else wrote are not replaced, and neither is any file with the name of a temporary one.
#[test]
fn files_of_others_are_not_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    done(at, &[&TINY[..], &["--iters", "1", "--trace", "rows.jsonl", "--out", "t"]].concat());
    let compare = [&["compare"], &TINY[1..], &["--iters", "1", "--methods", "fp32", "--out", "o"]].concat();
    let train = [&TINY[..], &["--iters", "1", "--out", "o"]].concat();
    let regimes = ["regimes", "--only", "one-in-n", "--quick", "--out", "o"].to_vec();
    let report = ["report", "rows.jsonl", "--out", "o/report.html"].to_vec();
    fs::create_dir(at.join("o")).expect("a directory");
    for (name, commands) in
        [("report.html", vec![&compare, &train, &regimes, &report]), ("table.md", vec![&compare, &regimes])]
    {
        let mine = at.join("o").join(name);
        fs::write(&mine, "mine").expect("a file");
        for command in commands {
            let refused = gradscale(at, command);
            let expected = format!(
                "gradscale: o/{name}: exists already and is not a file of gradscale; choose another place with --out\n"
            );
            assert_eq!((refused.code, refused.error), (Some(2), expected), "{command:?}");
            assert_eq!(read(&mine), b"mine", "{command:?}");
        }
        fs::remove_file(mine).expect("a file");
    }
    for name in ["lock", "report.part", "table.part", "results.part"] {
        fs::write(at.join("o").join(name), "mine").expect("a file");
    }
    done(at, &compare);
    for name in ["lock", "report.part", "table.part", "results.part"] {
        assert_eq!(read(&at.join("o").join(name)), b"mine", "{name}");
    }
    // Outputs that are named by their command: somebody else's file stays, and an own one is replaced.
    let checkpoint = "t/checkpoint-000001.safetensors";
    image::GrayImage::from_pixel(28, 28, image::Luma([9])).save(at.join("a.png")).expect("an image");
    let replay = ["replay", "rows.jsonl", "--out", "o/played.jsonl"];
    let export = ["export", checkpoint, "--out", "o/model.onnx"];
    let predict = ["predict", checkpoint, "a.png", "--out", "o"];
    for (name, command) in [("played.jsonl", &replay[..]), ("model.onnx", &export), ("classes.tsv", &predict)] {
        let path = at.join("o").join(name);
        // A trace is no output of a replay, although it is similar.
        for content in [&b"mine"[..], &read(&at.join("rows.jsonl"))] {
            fs::write(&path, content).expect("a file");
            let refused = gradscale(at, command);
            let start = format!("gradscale: o/{name}: exists already and is not a file of gradscale; ");
            assert!(refused.code == Some(2) && refused.error.starts_with(&start), "{}", refused.error);
            assert_eq!(read(&path), content, "{name}");
        }
        fs::remove_file(&path).expect("a file");
        done(at, command);
        let written = read(&path);
        done(at, command);
        assert!(read(&path) == written && !written.is_empty(), "{name}");
    }
    // Own pages are replaced, also those of a resumed training.
    done(at, &report.iter().map(|&word| word.trim_start_matches("o/")).collect::<Vec<_>>());
    done(at, &["report", "rows.jsonl", "--out", "report.html"]);
    fs::write(at.join("t/report.html"), "mine").expect("a file");
    assert_eq!(gradscale(at, &["train", "--resume", "t", "--iters", "2"]).code, Some(2));
    assert_eq!(read(&at.join("t/report.html")), b"mine");
}
