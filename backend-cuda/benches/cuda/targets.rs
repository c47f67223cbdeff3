//! Targets for lines of the bench: `targets.csv`, which documentation and `scripts/gpu_bundle/page.py` read too.

/// Row of `targets.csv`: a goal for one line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Name of the line that the target applies to; a star matches anything.
    pub line: &'static str,
    /// Peer or limit that the line is compared with.
    pub beside: &'static str,
    /// True if the ratio must be at least the target, false if at most.
    pub at_least: bool,
    /// Ratio that must be reached, and ratio that is the goal.
    pub limits: [f64; 2],
}

/// Reads all rows of `targets.csv`.
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

/// Returns the target of a line, if it has one.
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
    /// Formats the target for the table: required ratio and goal.
    pub fn words(&self) -> String {
        let sign = if self.at_least { "≥" } else { "≤" };
        let [target, goal] = self.limits;
        format!("{sign} {target:.2}, goal {goal:.2}")
    }
}
