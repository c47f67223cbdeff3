//! What lines of the bench are to reach: `targets.csv`, which documentation and `scripts/gpu_bundle/page.py` read too.

/// One row of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Name of a line; a star stands for anything.
    pub line: &'static str,
    /// What it is measured beside.
    pub beside: &'static str,
    /// Whether more is better.
    pub at_least: bool,
    /// What must hold, and what is wished for.
    pub limits: [f64; 2],
}

/// All rows.
///
/// # Panics
/// Where the file does not have its own form, which a test sees.
pub fn read_targets() -> impl Iterator<Item = Target> {
    include_str!("../targets.csv").lines().skip(1).map(|row| {
        let [line, beside, relation, target, goal] =
            row.split(',').collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("{row}: five fields"));
        let at_least = match relation {
            "at least" => true,
            "at most" => false,
            other => panic!("{row}: {other}"),
        };
        let limits = [target, goal].map(|limit: &str| limit.parse().unwrap_or_else(|_| panic!("{row}: {limit}")));
        Target { line, beside, at_least, limits }
    })
}

/// The target of a line, if it has one.
pub fn find_target(name: &str) -> Option<Target> {
    read_targets().find(|target| matches(target.line, name))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((before, after)) => {
            name.strip_prefix(before).is_some_and(|rest| rest.strip_suffix(after).is_some_and(|some| !some.is_empty()))
        }
        None => pattern == name,
    }
}

impl Target {
    /// As a table says it: must hold, and goal.
    pub fn words(&self) -> String {
        let sign = if self.at_least { "≥" } else { "≤" };
        let [target, goal] = self.limits;
        format!("{sign} {target:.2}, goal {goal:.2}")
    }
}
