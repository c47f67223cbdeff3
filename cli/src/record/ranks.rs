//! Traffic between ranks.

use gradscale::distributed::{Group, Traffic};
use serde::{Deserialize, Serialize};

/// Communication of gradients between ranks in a training step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradientTraffic {
    /// Number of ranks of the group.
    pub ranks: usize,
    /// Bytes that rank 0 sent to other ranks.
    pub sent: u64,
    /// Bytes that rank 0 received from other ranks.
    pub received: u64,
    /// Seconds spent in communication, waiting for slower ranks included.
    pub seconds: f64,
    /// Seconds of the communication that overlapped with the backward pass.
    #[serde(default)]
    pub hidden: f64,
}

impl GradientTraffic {
    /// Returns the traffic between two counts; `None` for a single rank.
    pub fn between(group: &Group, before: Traffic, after: Traffic) -> Option<Self> {
        (group.size() > 1).then(|| Self {
            ranks: group.size(),
            sent: after.sent_bytes - before.sent_bytes,
            received: after.received_bytes - before.received_bytes,
            seconds: (after.comm_time - before.comm_time).as_secs_f64(),
            hidden: (after.overlapped_time().saturating_sub(before.overlapped_time())).as_secs_f64(),
        })
    }
}

/// Consecutive steps with the same number of ranks, which changes at most where a training was resumed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// First step of the stretch, and its number of steps.
    pub first: u64,
    pub steps: u64,
    /// Total duration of these steps in seconds.
    pub whole: f64,
    /// Communication of gradients in all these steps.
    #[serde(flatten)]
    pub travelled: GradientTraffic,
}

/// Adds a training step to the stretches of steps by several ranks.
pub(super) fn add(all: &mut Vec<Stretch>, iteration: u64, seconds: f64, travelled: GradientTraffic) {
    match all.last_mut() {
        Some(Stretch { first, steps, whole, travelled: sum })
            if sum.ranks == travelled.ranks && *first + *steps == iteration =>
        {
            *steps += 1;
            *whole += seconds;
            sum.sent += travelled.sent;
            sum.received += travelled.received;
            sum.seconds += travelled.seconds;
            sum.hidden += travelled.hidden;
        }
        Some(_) | None => all.push(Stretch { first: iteration, steps: 1, whole: seconds, travelled }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resume_with_other_ranks_begins_another_stretch() {
        let mut all = Vec::new();
        for (iteration, ranks) in [(1, 4), (2, 4), (3, 2), (5, 2), (6, 2)] {
            let travelled = GradientTraffic { ranks, sent: iteration, received: 1, seconds: 0.25, hidden: 0.125 };
            add(&mut all, iteration, 0.5, travelled);
        }
        let seen: Vec<_> =
            all.iter().map(|one| (one.first, one.steps, one.travelled.ranks, one.travelled.sent)).collect();
        assert_eq!(seen, [(1, 2, 4, 3), (3, 1, 2, 3), (5, 2, 2, 11)]);
        assert_eq!((all[2].whole, all[2].travelled.seconds, all[2].travelled.hidden), (1.0, 0.5, 0.25));
        // Written by a version that hid nothing.
        let before: GradientTraffic =
            serde_json::from_str(r#"{"ranks":2,"sent":1,"received":1,"seconds":0.5}"#).expect("a log");
        assert_eq!(before.hidden, 0.0);
    }
}
