//! One frame of connectionist temporal classification.

use super::{kernels, math};

kernels! {
    /// Computes for each state the log-sum-exp of its predecessors, plus its log-probability. Predecessors are the
    /// state itself, the state before and, where `jump` is 0, the one before that. `before` has two more states in
    /// front; no result is below `log_zero`.
    fn advance_frame[](before: &[f32], jump: &[f32], log_prob: &[f32], log_zero: f32, after: &mut [f32]) {
        let three = before.iter().zip(&before[1..]).zip(&before[2..]);
        for (((after, ((&far, &near), &same)), &jump), &log_prob) in after.iter_mut().zip(three).zip(jump).zip(log_prob) {
            let far = far + jump;
            let max = if near > same { near } else { same };
            let max = if far > max { far } else { max };
            let sum = math::exp(same - max) + math::exp(near - max) + math::exp(far - max);
            let total = max + if sum <= f32::MAX { math::ln(sum) } else { sum } + log_prob;
            *after = if total < log_zero { log_zero } else { total };
        }
    }
}
