//! Options of the loss-scaling baselines: weight gradients in half, schedules with all their numbers, levels of mixed
//! precision, a scale proposed from a trace, and the sweep.

mod checkpoint;

use serde_json::Value;
use std::{fs, path::Path, process::Command};

fn gradscale(directory: &Path, arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output =
        command.args(arguments.split_whitespace()).current_dir(directory).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn done(directory: &Path, arguments: &str) -> String {
    let (code, out, error) = gradscale(directory, arguments);
    assert_eq!(code, Some(0), "{arguments}: {error}");
    out
}

fn refused(directory: &Path, arguments: &str, line: &str) {
    let (code, _, error) = gradscale(directory, arguments);
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{arguments}: {error}");
    assert!(error.contains(line), "{arguments}: {error}");
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a file");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn sites(step: &Value) -> impl Iterator<Item = (&str, i64)> {
    let all = step["sites"].as_array().expect("sites").iter();
    all.map(|site| (site["name"].as_str().expect("a name"), site["exponent"].as_i64().expect("a number")))
}

const SMALL: &str = "--task classify --net mlp --width 2 --batch 8 --threads 1";

/// A training that is stopped after 5 of 9 steps and resumed, and one that is not.
fn resumed(at: &Path, options: &str, name: &str) -> Vec<Value> {
    let begin = format!("train {SMALL} {options}");
    done(at, &format!("{begin} --iters 9 --out {name}-whole --trace {name}.jsonl"));
    done(at, &format!("{begin} --iters 5 --out {name}"));
    done(at, &format!("train --resume {name} --iters 9"));
    let saved = |name: &str| checkpoint::state(&at.join(name).join("checkpoint-000009.safetensors"));
    assert!(saved(name) == saved(&format!("{name}-whole")), "{options}: resumed it is another training");
    lines(&at.join(format!("{name}.jsonl")))
}

#[test]
fn weight_gradients_in_half_are_sites_that_are_recorded() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let steps = resumed(at, "--method dynamic:init=16,wgrad=half", "half");
    assert_eq!(steps[0]["method"], "dynamic:init=16,wgrad=half");
    let names: Vec<&str> = sites(&steps[0]).map(|(name, _)| name).collect();
    for name in ["mlp.linear1/wgrad", "mlp.linear2/bgrad", "mlp.linear3/wgrad", "mlp.linear3/dgrad"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(steps.iter().flat_map(sites).all(|(_, exponent)| exponent == 4));
    // Under a rule that keeps them in f32 there are no such sites.
    let table = done(at, "replay half.jsonl --method gs");
    assert!(table.contains("mlp.linear3/dgrad") && !table.contains("wgrad"), "{table}");
    let table = done(at, "replay half.jsonl --method fixed:8,wgrad=half");
    let row = ["mlp.linear1/wgrad", "2^3"];
    assert!(table.lines().any(|line| line.split_whitespace().take(2).eq(row)), "{table}");
    let plain = resumed(at, "--method dynamic:init=16", "single");
    assert!(plain.iter().flat_map(sites).all(|(name, _)| !name.contains("wgrad") && !name.contains("bgrad")));
    refused(at, "replay single.jsonl --method dynamic:wgrad=half", "single.jsonl: has no f16 weight gradients");
    refused(at, "train --method gs:wgrad=half", "wgrad needs a loss scale");
}

#[test]
fn a_schedule_by_its_numbers() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let steps = resumed(at, "--method dynamic:init=2^3,interval=3,growth=4,max=2^6,floor=8:2^6", "named");
    let exponents: Vec<i64> = steps.iter().map(|step| sites(step).next().expect("a site").1).collect();
    assert_eq!(exponents, [3, 3, 3, 5, 5, 5, 6, 6, 6]);
    // In a list of methods each takes the options that follow it.
    done(
        at,
        &format!("compare {SMALL} --iters 2 --methods fp32,dynamic:init=8,interval=5,fixed:2^4,wgrad=half --out c"),
    );
    let table = fs::read_to_string(at.join("c/table.md")).expect("a table");
    for row in ["| fp32 |", "| dynamic:init=8,interval=5 |", "| fixed:2^4,wgrad=half |"] {
        assert!(table.contains(row), "{table}");
    }
    refused(at, "train --method dynamic:init=5", "init must be a power of two, as 65536, 0.5 or 2^16, not 5");
    refused(at, "compare --methods fp32,dynamic:hysteresis=two", "cumulative:N or consecutive:N");
}

#[test]
fn levels_and_layers_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let plain = resumed(at, "--method fixed:8", "plain");
    let kept = resumed(at, "--method fixed:8 --amp o2 --keep-f32 mlp.linear2", "kept");
    let names = |steps: &[Value]| sites(&steps[0]).map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert!(names(&plain).contains(&"mlp.linear2/dgrad".to_owned()), "{:?}", names(&plain));
    assert_ne!(names(&plain), names(&kept));
    assert!(resumed(at, "--amp O0", "single").iter().all(|step| sites(step).next().is_none()));
    resumed(at, "--method fp16:wgrad=half --amp O3", "all");
    // The plan has the same layers; its option has an older name too.
    let of = |plan: &str, layer: &str| {
        let line = plan.lines().find(|line| line.starts_with(&format!("{layer} "))).expect("a layer").to_owned();
        line.split_whitespace().nth(2).expect("a precision").to_owned()
    };
    let plan = done(at, "plan --task classify --net mlp --amp O2 --keep-f32 mlp.linear2");
    assert_eq!([of(&plan, "mlp.linear1"), of(&plan, "mlp.linear2"), of(&plan, "mlp.linear3")], ["half", "f32", "half"]);
    assert_eq!(
        done(at, "plan --level o2 --keep-f32 segnet.encoder"),
        done(at, "plan --amp O2 --keep-f32 segnet.encoder")
    );
    let plan = done(at, "plan --task classify --net towers --half towers.first");
    assert!(plan.contains("towers.first") && plan.contains("towers.second"), "{plan}");
    // Errors are reported before any file is created.
    let before = fs::read_dir(at).expect("a directory").count();
    let train = format!("train {SMALL}");
    refused(
        at,
        &format!("{train} --keep-f32 mlp.linear9"),
        "--keep-f32 mlp.linear9: mlp.linear9 is not a layer of this network; the layers are",
    );
    // A method's own layers are checked, too.
    refused(at, &format!("{train} --method gs:f32=mlp.linear9"), "gs:f32=mlp.linear9: mlp.linear9 is not a layer");
    refused(at, &format!("compare {SMALL} --methods fp32,gs:half=mlp.x"), "gs:half=mlp.x: mlp.x is not a layer");
    refused(at, &format!("{train} --method gs:f32=mlp.linear1 --amp O3"), "is for O1 and O2");
    refused(at, &format!("{train} --half linear1"), "mlp.linear1, ");
    refused(at, &format!("compare {SMALL} --half mlp.x"), "--half mlp.x: mlp.x is not a layer of this network");
    refused(at, &format!("{train} --half mlp.linear1 --keep-f32 mlp.linear1"), "is given twice");
    refused(at, &format!("{train} --amp O3 --keep-f32 mlp.linear1"), "is for O1 and O2");
    refused(at, &format!("{train} --method fp32 --amp O1"), "fp32 means all f32 (O0)");
    refused(at, &format!("{train} --amp O4"), "[possible values: O0, O1, O2, O3]");
    refused(at, "train --resume plain --amp O2", "--amp");
    assert_eq!(fs::read_dir(at).expect("a directory").count(), before);
    let json = |name: &str| {
        let text = fs::read_to_string(at.join(name).join("results.json")).expect("results");
        serde_json::from_str::<Value>(&text).expect("JSON")
    };
    done(at, &format!("compare {SMALL} --iters 2 --methods fp32,gs --amp O2 --half mlp.linear1 --out c"));
    let out = fs::read_to_string(at.join("c/table.md")).expect("a table");
    assert!(out.contains("Mixed precision O2, mlp.linear1 in half."), "{out}");
    let results = json("c");
    assert_eq!((&results["arguments"]["amp"], &results["arguments"]["half"][0]), (&"O2".into(), &"mlp.linear1".into()));
    assert_eq!(results["runs"][0]["sites"].as_array().map(Vec::len), Some(0), "fp32 stays f32");
}

#[test]
fn a_fixed_scale_is_proposed() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    done(at, &format!("train {SMALL} --iters 20 --trace rows.jsonl --out run"));
    let out = done(at, "propose rows.jsonl");
    let scale = |out: &str| {
        let line = out.lines().find_map(|line| line.strip_prefix("fixed:2^")).expect("a method");
        let (scale, _) = line.split_once(':').expect("a reason");
        scale.parse::<i32>().expect("an exponent")
    };
    let has_row = |out: &str, row: &str| {
        let row: Vec<&str> = row.split_whitespace().collect();
        out.lines().any(|line| line.split_whitespace().take(row.len()).eq(row.iter().copied()))
    };
    let proposed = scale(&out);
    assert!(has_row(&out, &format!("100 2^{proposed} 0 of 20")), "{out}");
    assert!(!out.contains('|') && out.lines().all(|line| line.chars().count() <= 80), "{out}");
    // The proposed scale fits, and the next one does not.
    let fits = done(at, &format!("replay rows.jsonl --method fixed:2^{proposed}"));
    assert!(fits.starts_with(&format!("fixed:2^{proposed}: 0 of 20 steps skipped")), "{fits}");
    let larger = done(at, &format!("replay rows.jsonl --method fixed:2^{}", proposed + 1));
    assert!(!larger.contains(": 0 of 20 steps skipped"), "{larger}");
    // A lower percentile of steps allows a larger scale, and the output reports the skips.
    let half = done(at, "propose rows.jsonl --percentile 50");
    assert!(scale(&half) >= proposed, "{half}");
    let skipped = done(at, &format!("replay rows.jsonl --method fixed:2^{}", scale(&half)));
    let count = skipped.split(' ').nth(1).expect("a number");
    assert!(has_row(&half, &format!("50 2^{} {count} of 20", scale(&half))), "{half}\n{skipped}");
    for wrong in ["0", "101", "x", "nan"] {
        refused(
            at,
            &format!("propose rows.jsonl --percentile {wrong}"),
            "must be a percentage above 0 and at most \
            100",
        );
    }
    refused(at, "propose none.jsonl", "none.jsonl: ");
    refused(at, "propose run/log.jsonl", "log.jsonl: the log of a training, not a trace; record one with ");
    fs::write(at.join("zeros.jsonl"), "{\"iteration\":1,\"skipped\":false,\"sites\":[]}\n").expect("a file");
    refused(at, "propose zeros.jsonl", "zeros.jsonl: all of its gradients are zero");
}

#[test]
fn the_sweep_is_a_comparison() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    done(at, &format!("compare {SMALL} --iters 2 --sweep --out swept"));
    let table = fs::read_to_string(at.join("swept/table.md")).expect("a table");
    let text = fs::read_to_string(at.join("swept/results.json")).expect("results");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let methods: Vec<&str> =
        json["runs"].as_array().expect("runs").iter().filter_map(|run| run["method"].as_str()).collect();
    let fixed: Vec<String> = (3..=15).map(|exponent| format!("fixed:{}", 1 << exponent)).collect();
    assert_eq!(methods[0], "fp32");
    assert_eq!(methods[1..], fixed);
    assert!(json["beside"].is_null() && table.contains("| fixed:32768 |"), "{table}");
    refused(at, "compare --sweep --methods gs", "cannot be used with");
}

#[test]
fn scales_from_largest_magnitudes() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    // Delayed scaling starts at 2^0, and then follows the history. A replay of the trace has the same exponents.
    let steps = resumed(at, "--method amax:history=4", "delayed");
    assert!(sites(&steps[0]).all(|(_, exponent)| exponent == 0));
    assert!(steps[1..].iter().flat_map(sites).all(|(_, exponent)| exponent > 0));
    done(at, "replay delayed.jsonl --method amax:history=4 --out played.jsonl");
    let played = lines(&at.join("played.jsonl"));
    assert_eq!(played.len(), steps.len());
    for (step, played) in steps.iter().zip(&played) {
        let replayed = played["sites"].as_array().expect("sites").iter().map(|site| site["alpha"].as_i64());
        assert!(sites(step).map(|(_, exponent)| Some(exponent)).eq(replayed), "{played}");
    }
    // Current scaling: each tensor by its own maximum, in the first step too, so that no step is skipped.
    let steps = resumed(at, "--method amax", "current");
    assert!(steps.iter().flat_map(sites).all(|(_, exponent)| exponent > 0));
    let log = lines(&at.join("current/log.jsonl"));
    assert!(log.iter().all(|step| step["skipped"].is_null()), "{log:?}");
    refused(at, "train --method amax:history=20", "an amax history must hold at most 16 rows, not 20");
}

#[test]
fn loss_scales_by_the_names_of_those_who_have_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let help = done(at, "compare --help");
    for named in ["torch-20th       dynamic:interval=steps/20,wgrad=half", "megatron", "deepspeed", "zhao", "apex"] {
        assert!(help.contains(named), "{help}");
    }
    assert!(!help.contains("{baselines}"));
    done(
        at,
        &format!("compare {SMALL} --iters 40 --methods torch,dynamic:interval=steps/20,amax:history=16 --out compared"),
    );
    let said = fs::read_to_string(at.join("compared/table.md")).expect("a table");
    for line in [
        "- torch: stands for dynamic:wgrad=half.",
        "- torch: never grows in this run: it needs 2000 clean steps, and the run has 40.",
        "- dynamic:interval=steps/20: stands for dynamic:interval=2.",
    ] {
        assert!(said.contains(line), "{said}");
    }
    assert!(!said.contains("steps/20: never grows"), "{said}");
    // An interval that is a fraction of the run does not change if the training is extended.
    let begin = format!("train {SMALL} --method torch-20th --iters 40 --out part");
    let error = gradscale(at, &begin).2;
    assert!(!error.contains("never grows"), "{error}");
    done(at, "train --resume part --iters 60 ");
    let log = lines(&at.join("part/log.jsonl"));
    let exponents: Vec<i64> =
        log.iter().filter_map(|step| step["sites"].as_array()?.first()?["alpha"].as_i64()).collect();
    assert_eq!(exponents[..6], [16, 17, 17, 18, 18, 19], "a twentieth of 40 steps");
    // It grows after two clean steps in the last third too, where a twentieth of 60 steps would be three.
    let growths: Vec<usize> = (40..59).filter(|&step| exponents[step + 1] > exponents[step]).collect();
    assert!(growths.windows(2).any(|pair| pair[1] - pair[0] == 2), "{exponents:?}");
    let error = gradscale(at, &format!("train {SMALL} --method torch --iters 3 --out short")).2;
    assert!(error.contains("--method torch: never grows in this run: it needs 2000 clean steps, and the run has 3."));
}

/// The program trains, resumes, compares and replays with stores in 8 bits, and its page names their format.
#[test]
fn stores_in_eight_bits_are_trained_compared_and_replayed() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let steps = resumed(at, "--method gs:grad=e5m2,act=e4m3,weight=e4m3", "eight");
    let method = steps[0]["method"].as_str().expect("a method");
    assert!(method.starts_with("gs:grad=e5m2,act=e4m3,weight=e4m3"), "{method}");
    let all = steps[0]["sites"].as_array().expect("sites");
    assert!(!all.is_empty() && all.iter().all(|site| site["format"] == "e5m2"), "{all:?}");
    done(at, "replay eight.jsonl --method gs:grad=e4m3 --out replayed.jsonl");
    let methods = "fp32,gs:grad=e4m3,amax:history=16,format=e5m2";
    done(at, &format!("compare {SMALL} --iters 6 --seeds 0 --methods {methods} --out compared"));
    let page = fs::read_to_string(at.join("compared/report.html")).expect("a report");
    assert!(page.contains("how E4M3 stores them") && !page.contains("how FP16 stores them"));
    refused(at, &format!("train {SMALL} --method torch:format=e5m2"), "formats of 8 bits need gs, amax or block");
    refused(at, &format!("train {SMALL} --method block:size=32"), "blocks need 8 bits for all values");
    refused(at, &format!("train {SMALL} --method block:format=e4m3,size=33"), "a power of two from 16 to 1024, not 33");
}
