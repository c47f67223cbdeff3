//! Determines the commit from which the program is built.

use std::process::Command;

fn main() {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    // Files that were changed and not committed.
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    println!("cargo::rustc-env=GRADSCALE_COMMIT={commit}{}", if changed { "+changes" } else { "" });
    if let Some(directory) = git(&["rev-parse", "--git-dir"]) {
        println!("cargo::rerun-if-changed={directory}/HEAD");
        println!("cargo::rerun-if-changed={directory}/index");
    }
    println!("cargo::rerun-if-changed=src");
}
