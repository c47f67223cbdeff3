//! `gradscale window` as people call it.

use serde_json::Value;
use std::process::Command;

fn window(arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output = command.arg("window").args(arguments.split_whitespace()).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const NETWORK: &str = "--network mlp --width 1 --batch 16 --threads 1";

#[test]
fn a_window_in_text_and_as_json() {
    let (code, text, error) = window(&format!("{NETWORK} --steps 3 --method dynamic:init=2^14"));
    assert_eq!((code, error.as_str()), (Some(0), ""), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("\n3 steps of dynamic:init=2^14, seed 0, 6 parameters\n"), "{text}");
    for weights in ["f32", "half"] {
        assert!(text.contains(&format!("\nweight gradients in {weights}: 2^")), "{text}");
    }
    // Both windows list the position of every scale, including the trained one.
    for (scale, times) in
        [("  tiny-cuda-nn     2^7 ", 2), ("  torch.amp       2^16 ", 2), ("  this training   2^14 ", 2)]
    {
        assert_eq!(text.matches(scale).count(), times, "{scale}: {text}");
    }
    assert_eq!(text.matches("  DeepSpeed       2^32 too large by ").count(), 2, "{text}");

    let (code, json, error) = window(&format!("{NETWORK} --steps 3 --method dynamic:init=2^14 --json"));
    assert_eq!((code, error.as_str()), (Some(0), ""), "{json}");
    let json: Value = serde_json::from_str(&json).expect("JSON alone");
    assert_eq!((&json["steps"], &json["parameters"]), (&3.into(), &6.into()), "{json}");
    assert_eq!(json["scales"].as_array().map(Vec::len), Some(4));
    for (one, weights) in json["windows"].as_array().expect("windows").iter().zip(["f32", "half"]) {
        let [least, overflow] = ["least", "overflow"].map(|key| one[key].as_i64().expect("an exponent"));
        assert_eq!((&one["weight_gradients"], &one["binades"]), (&weights.into(), &(overflow - least).into()), "{one}");
        let line =
            format!("weight gradients in {weights}: 2^{least} to 2^{}, {} binades", overflow - 1, overflow - least);
        assert!(text.contains(&line), "{line}: {text}");
        assert!(least < 14 && 14 < overflow, "an ordinary network trains at 2^14: {one}");
    }
}

/// The loss of a larger divisor needs a scale that is as much larger.
#[test]
fn the_window_moves_with_the_loss() {
    let of = |pixels: &str| {
        let (code, json, error) = window(&format!("{NETWORK} --pixels {pixels} --method gs --json"));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{json}");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        // Gradient scaling has no loss scale to list.
        assert_eq!(json["scales"].as_array().map(Vec::len), Some(3));
        ["least", "overflow"].map(|key| json["windows"][0][key].as_i64().expect("an exponent"))
    };
    let [least, overflow] = of("16");
    assert_eq!(of("16384"), [least + 10, overflow + 10]);
}

#[test]
fn what_cannot_be_measured_is_said_in_one_line() {
    for (arguments, named) in [
        ("--network mlp --method fp32", "--method fp32: stores no gradient in half"),
        ("--network mlp --method fast", "--method: method fast: unknown"),
        ("--network mlp --steps many", "--steps"),
        ("--network mlp --data nowhere", "nowhere"),
        ("--network mlp --task segnet", "--network mlp: is for --task classify"),
        ("--network none", "--network"),
    ] {
        let (code, out, error) = window(arguments);
        assert_eq!((code, out.as_str(), error.lines().count()), (Some(2), "", 1), "{arguments}: {error}");
        assert!(error.starts_with("gradscale: ") && error.contains(named), "{arguments}: {error}");
    }
}
