//! Full disks and directories that cannot be written to: one line with file and cause, exit code 2, and the last good
//! checkpoint can be resumed.
//!
//! A small disk is a tmpfs in its own mount namespace, which disappears when its holder process ends.

mod checkpoint;
mod command;

use command::without_progress;
use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io::{BufRead, BufReader, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
};

const GRADSCALE: &str = env!("CARGO_BIN_EXE_gradscale");
const SMALL: [&str; 9] = ["--batch", "2", "--width", "2", "--threads", "1", "--checkpoint-every", "2", "--iters"];

/// A tmpfs, and the shell that holds it.
struct Disk {
    holder: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    directory: tempfile::TempDir,
}

impl Disk {
    /// Returns `None` and prints that if the system does not allow mounts.
    fn new(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let script =
            r#"mount -t tmpfs -o size="$1" tmpfs "$0"; echo $?; while read -r line; do eval "$line"; echo $?; done"#;
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--mount", "bash", "-c", script]).arg(directory.path()).arg(size);
        let spawned = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let disk = spawned.ok().and_then(|mut holder| {
            let (commands, answers) = (holder.stdin.take()?, BufReader::new(holder.stdout.take()?));
            let mut disk = Self { holder, commands, answers, directory };
            disk.answer().then_some(disk)
        });
        if disk.is_none() {
            println!("SKIPPED: no disk of {size} can be mounted here; run as root, or allow user namespaces");
        }
        disk
    }

    fn answer(&mut self) -> bool {
        let mut line = String::new();
        self.answers.read_line(&mut line).is_ok() && line.trim() == "0"
    }

    fn run(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("a shell");
        assert!(self.answer(), "{command}");
    }

    /// Returns the path of the disk as this process sees it.
    fn path(&self) -> PathBuf {
        let inside = self.directory.path().strip_prefix("/").expect("an absolute path").to_owned();
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(inside)
    }

    /// Fills the disk except for `free` bytes.
    fn fill(&self, free: u64) {
        let path = self.path().join("filler");
        let mut file = File::create(&path).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
        let size = file.metadata().expect("a file").len();
        file.set_len(size - free).expect("a shorter file");
    }

    fn free(&self) {
        fs::remove_file(self.path().join("filler")).expect("a file");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

fn gradscale(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(GRADSCALE).args(arguments).current_dir(directory).output().expect("the program starts")
}

fn good(directory: &Path, arguments: &[&str]) {
    let output = gradscale(directory, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

/// One line that names file and cause, and exit code 2.
fn refused(output: &Output, file: &str, cause: &str) {
    let error = without_progress(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(file) && error.contains(cause), "{file}, {cause}: {error}");
    println!("{}", error.trim());
}

/// Returns the files of a directory with their content, without the lock. Event files for TensorBoard are in a
/// directory of their own.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    entries.filter(|path| path.is_file()).map(|path| (name(&path), fs::read(&path).expect("a file"))).collect()
}

fn checkpoints(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let all = files(directory).into_iter();
    all.filter(|(name, _)| name.starts_with("checkpoint-")).collect()
}

/// Weights and all else that a training is.
fn last(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let (name, _) = checkpoints(directory).pop_last().expect("a checkpoint");
    checkpoint::state(&directory.join(name))
}

fn iterations(directory: &Path) -> Vec<u64> {
    let text = fs::read_to_string(directory.join("log.jsonl")).expect("a log");
    let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["iteration"].as_u64();
    text.lines().map(|text| line(text).expect("a number")).collect()
}

const FULL: &str = "No space left";

#[test]
fn a_full_disk_leaves_the_last_checkpoint_good() {
    let Some(disk) = Disk::new("8m") else { return };
    let at = disk.path();
    let whole = tempfile::tempdir().expect("a directory");
    good(whole.path(), &[&["train", "--out", "t"], &SMALL[..], &["250"]].concat());
    good(&at, &[&["train", "--out", "t"], &SMALL[..], &["4"]].concat());
    let before = files(&at.join("t"));
    let resume = |iters: &str, every: &str| {
        let more = ["--resume", "t", "--threads", "1", "--checkpoint-every", every, "--iters", iters];
        gradscale(&at, &[&["train"], &more[..]].concat())
    };

    // No space at all: not one line of the log.
    disk.fill(0);
    refused(&resume("8", "2"), "t/log.jsonl", FULL);
    let unchanged = |after: &BTreeMap<String, Vec<u8>>| {
        // A line of the log may have begun.
        after.keys().eq(before.keys())
            && before.iter().all(|(name, bytes)| name == "log.jsonl" || after[name] == *bytes)
    };
    assert!(unchanged(&files(&at.join("t"))), "a checkpoint changed");
    refused(
        &gradscale(&at, &[&["train", "--out", "new"], &SMALL[..], &["4"]].concat()),
        "new/checkpoint-000000.safetensors",
        FULL,
    );
    let small = ["--batch", "2", "--width", "2", "--threads", "1", "--iters", "2", "--methods", "fp32"];
    refused(&gradscale(&at, &[&["compare", "--out", "c"], &small[..]].concat()), "c/runs.jsonl", FULL);
    assert!(files(&at.join("c")).keys().eq(["lock"]), "half of a result");
    refused(&gradscale(&at, &["train", "--trace", "trace", "--out", "traced", "--iters", "2"]), "trace", FULL);

    // Enough space for lines of the log, but not for a checkpoint: existing checkpoints stay, and no partial file
    // remains.
    disk.free();
    disk.fill(49_152);
    refused(&resume("8", "2"), "t/checkpoint-000006.safetensors", FULL);
    assert!(unchanged(&files(&at.join("t"))), "a checkpoint changed");

    // Space for some lines of the log, or of TensorBoard's events.
    disk.free();
    disk.fill(400_000);
    refused(&resume("250", "0"), "t/", FULL);
    let lines = iterations_before_the_last(&at.join("t"));
    assert!(lines > 20, "{lines}");

    // Results need more than that; no half of them is left.
    disk.free();
    disk.fill(16384);
    refused(&gradscale(&at, &[&["compare", "--out", "d"], &small[..]].concat()), "d/", FULL);
    let left = files(&at.join("d"));
    assert!(!left.keys().any(|name| name.ends_with(".part") || name == "report.html"), "{:?}", left.keys());

    // With free space the training continues, with the results of an uninterrupted one.
    disk.free();
    assert_eq!(resume("250", "100").status.code(), Some(0));
    assert!(last(&at.join("t")) == last(&whole.path().join("t")), "another training");
    assert!(iterations(&at.join("t")).into_iter().eq(1..=250));
}

/// For any amount of space, the directory that a full disk leaves can be resumed, or a new training begun in it.
#[test]
fn a_disk_that_fills_at_any_write_leaves_a_directory_that_can_be_used() {
    let Some(disk) = Disk::new("2m") else { return };
    let at = disk.path();
    let settings = ["--task", "classify", "--net", "mlp", "--width", "1", "--batch", "2", "--threads", "1"];
    let arguments = [&["train", "--out", "t"], &settings[..], &["--iters", "2"]].concat();
    let whole = tempfile::tempdir().expect("a directory");
    good(whole.path(), &arguments);
    let expected = last(&whole.path().join("t"));
    // Runs a training with that much space, and then completes it. Returns the name of the file that did not fit.
    let attempt = |free: u64| -> Option<String> {
        disk.fill(free);
        let output = gradscale(&at, &arguments);
        disk.free();
        if output.status.success() {
            return None;
        }
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        refused(&output, ": ", FULL);
        if checkpoints(&at.join("t")).is_empty() {
            good(&at, &arguments);
        } else {
            assert!(error.contains("resume with: ") && error.contains("train --resume t"), "{error}");
            good(&at, &["train", "--resume", "t"]);
        }
        assert!(last(&at.join("t")) == expected, "another training");
        assert_eq!(iterations(&at.join("t")), [1, 2]);
        fs::remove_dir_all(at.join("t")).expect("a directory");
        let file = error.split(": ").nth(1).expect("a file");
        Some(file.split("/events").next().unwrap_or_default().to_owned())
    };
    const PAGE: u64 = 4096;
    let mut named: Vec<String> = Vec::new();
    // In steps of two pages, and of one page where one file ends and another begins.
    for free in (0..).map(|pairs| 2 * PAGE * pairs) {
        let Some(file) = attempt(free) else { break };
        if named.last() != Some(&file) {
            named.extend(free.checked_sub(PAGE).and_then(attempt));
            named.push(file);
        }
    }
    println!("{named:?}");
    for file in
        ["checkpoint-000000.safetensors", "log.jsonl", "tensorboard", "checkpoint-000002.safetensors", "report.html"]
    {
        assert!(named.contains(&format!("t/{file}")), "{file} was never too large: {named:?}");
    }
}

/// Whole lines of a log whose last may be cut off.
fn iterations_before_the_last(directory: &Path) -> usize {
    let text = fs::read(directory.join("log.jsonl")).expect("a log");
    text.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")).count()
}

/// Checks the error of every command if nothing can be written.
fn read_only(run: impl Fn(&[&str]) -> Output, cause: &str) {
    let new = [&["train", "--out", "new"], &SMALL[..], &["4"]].concat();
    refused(&run(&new), "new", cause);
    refused(&run(&["train", "--iters", "2", "--batch", "2", "--width", "2"]), "train-1", cause);
    refused(&run(&["train", "--resume", "t", "--iters", "8"]), "t/lock", cause);
    refused(&run(&["train", "--trace", "trace", "--out", "t2", "--iters", "2"]), "t2", cause);
    refused(&run(&["compare", "--iters", "1", "--batch", "2", "--width", "2"]), "compare-1", cause);
    refused(&run(&["compare", "--iters", "1", "--batch", "2", "--out", "c"]), "c", cause);
    refused(&run(&["predict", "t/checkpoint-000004.safetensors", "images", "--out", "p"]), "p", cause);
    refused(&run(&["replay", "rows", "--out", "out"]), "out", cause);
}

/// A training, a trace and an image.
fn prepare(at: &Path) {
    good(at, &[&["train", "--out", "t", "--trace", "rows"], &SMALL[..], &["4"]].concat());
    fs::create_dir(at.join("images")).expect("a directory");
    let pixels = image::RgbImage::from_fn(16, 16, |x, y| image::Rgb(if x < y { [90, 120, 200] } else { [60, 60, 60] }));
    pixels.save(at.join("images/a.png")).expect("an image");
    good(at, &["predict", "t/checkpoint-000004.safetensors", "images", "--out", "fine"]);
}

#[test]
fn a_read_only_disk_is_named() {
    let Some(mut disk) = Disk::new("4m") else { return };
    let at = disk.path();
    prepare(&at);
    let before = files(&at.join("t"));
    let mount = disk.directory.path().display().to_string();
    disk.run(&format!("mount -o remount,ro '{mount}'"));
    read_only(|arguments| gradscale(&at, arguments), "Read-only file system");
    assert!(files(&at.join("t")) == before);
    disk.run(&format!("mount -o remount,rw '{mount}'"));
    good(&at, &["train", "--resume", "t", "--iters", "6"]);
}

#[test]
fn a_directory_without_permission_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    prepare(at);
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
    for path in [at.to_owned(), at.join("t"), at.join("images")] {
        mode(&path, 0o555);
    }
    for entry in fs::read_dir(at.join("t")).expect("a directory") {
        mode(&entry.expect("an entry").path(), 0o444);
    }
    // Root may write anywhere, so another user runs the program, from a place that this user can access.
    let root = fs::metadata("/proc/self").expect("a process").uid() == 0;
    let elsewhere = tempfile::tempdir().expect("a directory");
    mode(elsewhere.path(), 0o755);
    let program = elsewhere.path().join("gradscale");
    fs::copy(GRADSCALE, &program).expect("a copy");
    mode(&program, 0o755);
    let run = |arguments: &[&str]| {
        let mut command = if root { Command::new("setpriv") } else { Command::new(&program) };
        if root {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        }
        command.args(arguments).current_dir(at).output()
    };
    if !run(&["--version"]).is_ok_and(|output| output.status.success()) {
        println!(
            "SKIPPED: root may write anywhere, and cannot be somebody else here; run as a user, or install setpriv"
        );
        return;
    }
    let before = files(&at.join("t"));
    read_only(|arguments| run(arguments).expect("the program starts"), "Permission denied");
    assert!(files(&at.join("t")) == before);
    mode(at, 0o755);
}
