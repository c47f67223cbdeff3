//! Results that cannot be right: questioned at once, and in what is kept of a run, with the likely cause.

use crate::metrics::Metrics;
use indicatif::ProgressBar;
use std::collections::VecDeque;

/// Steps that are looked back on.
const WINDOW: usize = 100;
/// Of these, how many may be skipped without a word.
const SKIPS: usize = WINDOW / 10;
/// Names in one line.
const SHOWN: usize = 4;

/// What is doubtful in a run so far. A later score takes back what an earlier one gave rise to.
#[derive(Debug, Default)]
pub struct Doubts {
    classes: Vec<String>,
    recent: VecDeque<bool>,
    skips: Option<String>,
    zeros: Option<Zeros>,
    one_class: Option<String>,
    unchanged: Option<String>,
    unsaid: Vec<String>,
}

/// Steps whose loss was exactly 0.
#[derive(Clone, Copy, Debug)]
struct Zeros {
    first: u64,
    steps: u64,
}

impl Doubts {
    /// About a run that tells these classes apart.
    pub fn new(classes: &[String]) -> Self {
        Self { classes: classes.to_vec(), ..Self::default() }
    }

    /// A step that has been done, with its loss or why it was skipped.
    pub fn step(&mut self, iteration: u64, loss: f32, skipped: Option<&str>) {
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(skipped.is_some());
        let skips = self.recent.iter().filter(|skipped| **skipped).count();
        if let (Some(last), true, None) = (skipped, skips > SKIPS, &self.skips) {
            let cause = if last.contains("NaN") {
                "values stopped being numbers: look for infinite or missing values in the data, or lower the learning rate"
            } else {
                "the loss scale is too large, or grows too fast"
            };
            let of = self.recent.len();
            self.skips =
                Some(format!("at step {iteration}, {skips} of the last {of} steps were skipped ({last}): {cause}"));
            self.unsaid.extend(self.skips.clone());
        }
        if loss == 0.0 && skipped.is_none() {
            match &mut self.zeros {
                Some(zeros) => zeros.steps += 1,
                None => {
                    self.zeros = Some(Zeros { first: iteration, steps: 1 });
                    self.unsaid.extend(self.zeros());
                }
            }
        }
    }

    /// Scores on the test images.
    pub fn score(&mut self, iteration: u64, metrics: &Metrics) {
        let before = self.one_class.take();
        let one = match (metrics.found, metrics.only) {
            (Some(0), _) => format!("after {iteration} steps no box is found in any picture"),
            (_, Some(class)) => {
                let name = self.classes.get(class as usize).map_or("?", String::as_str);
                format!("after {iteration} steps every prediction is the class {name}")
            }
            (_, None) => return,
        };
        self.one_class = Some(format!(
            "{one}: too few steps, gradients that are flushed to \
             zero, a learning rate that is too high, or labels that do not belong to their images"
        ));
        if before.is_none() {
            self.unsaid.extend(self.one_class.clone());
        }
    }

    /// At the end, parameters that are as they were at the beginning.
    pub fn weights(&mut self, unchanged: &[String]) {
        let before = self.unchanged.take();
        let Some(first) = unchanged.first() else { return };
        let mut names = unchanged.iter().skip(1).take(SHOWN - 1).fold(first.clone(), |names, name| names + ", " + name);
        if unchanged.len() > SHOWN {
            names += &format!(" and {} more", unchanged.len() - SHOWN);
        }
        self.unchanged = Some(format!(
            "no gradient has changed {names}: all steps were skipped, their gradients were flushed to zero, or nothing leads \
             from there to the loss"
        ));
        if before.is_none() {
            self.unsaid.extend(self.unchanged.clone());
        }
    }

    fn zeros(&self) -> Option<String> {
        let Zeros { first, steps } = self.zeros?;
        let often = if steps > 1 { format!(", and in {steps} steps in all") } else { String::new() };
        Some(format!(
            "the loss of step {first} is exactly 0{often}: nothing in the batch has a label that counts, all have the same, \
             or the network is certain of every label, as where images give theirs away"
        ))
    }

    /// All of them.
    pub fn all(&self) -> Vec<String> {
        let all = [self.zeros(), self.skips.clone(), self.one_class.clone(), self.unchanged.clone()];
        all.into_iter().flatten().collect()
    }

    /// Those that nobody has been told yet.
    pub fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unsaid)
    }
}

/// Tells them, beside a bar.
pub fn say(bar: &ProgressBar, about: &str, news: &[String]) {
    if !news.is_empty() {
        bar.suspend(|| news.iter().for_each(|line| eprintln!("gradscale: doubtful: {about}: {}", line.escape_debug())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Confusion;

    fn metrics(only: Option<u32>) -> Metrics {
        let half = 0.5;
        Metrics { class_accuracy: half, global_accuracy: half, only, ..Metrics::of_images(&Confusion::new(2)) }
    }

    #[test]
    fn nothing_is_doubtful_in_a_plain_run() {
        let mut doubts = Doubts::new(&["a".into(), "b".into()]);
        for iteration in 1..=300 {
            // A tenth is not more than a tenth.
            doubts.step(iteration, 0.5, (iteration % 10 == 0).then_some("skipped: x overflowed at 2^3"));
            // A skipped step has no loss.
            doubts.step(iteration, 0.5, None);
        }
        doubts.score(300, &metrics(None));
        doubts.weights(&[]);
        assert_eq!((doubts.all(), doubts.news()), (Vec::new(), Vec::new()));
    }

    #[test]
    fn more_than_a_tenth_skipped() {
        let mut doubts = Doubts::new(&[]);
        for iteration in 1..=99 {
            doubts.step(iteration, 1.0, None);
        }
        for iteration in 100..=109 {
            doubts.step(iteration, 0.0, Some("skipped: x overflowed at 2^3"));
        }
        assert!(doubts.all().is_empty());
        doubts.step(110, 1.0, Some("skipped: x received NaN at 2^3, which is not a scaling problem"));
        doubts.step(111, 1.0, Some("skipped: x overflowed at 2^3"));
        let [one] = &doubts.news()[..] else { panic!("{:?}", doubts.all()) };
        assert!(
            one.starts_with("at step 110, 11 of the last 100 steps were skipped (skipped: x received NaN"),
            "{one}"
        );
        assert!(one.contains("look for infinite or missing values"), "{one}");
        assert_eq!((doubts.all(), doubts.news()), (vec![one.clone()], Vec::new()));
        // Skips that lie apart do not add up.
        let mut doubts = Doubts::new(&[]);
        for iteration in 1..=2000 {
            doubts.step(iteration, 1.0, (iteration % 11 == 0).then_some("skipped: x overflowed at 2^3"));
        }
        assert!(doubts.all().is_empty());
    }

    #[test]
    fn a_loss_of_zero() {
        let mut doubts = Doubts::new(&[]);
        doubts.step(1, 1e-30, None);
        doubts.step(2, 0.0, None);
        doubts.step(3, 0.0, None);
        let [one] = &doubts.news()[..] else { panic!("{:?}", doubts.all()) };
        assert!(one.starts_with("the loss of step 2 is exactly 0: "), "{one}");
        assert!(doubts.all()[0].starts_with("the loss of step 2 is exactly 0, and in 2 steps in all: "));
    }

    #[test]
    fn no_box_is_found() {
        let mut doubts = Doubts::new(&["cat".into()]);
        doubts.score(10, &Metrics { found: Some(0), ..metrics(None) });
        let [one] = &doubts.news()[..] else { panic!("{:?}", doubts.all()) };
        assert!(one.starts_with("after 10 steps no box is found in any picture: too few steps"), "{one}");
        doubts.score(20, &Metrics { found: Some(3), ..metrics(None) });
        assert!(doubts.all().is_empty());
    }

    #[test]
    fn a_later_score_takes_back() {
        let mut doubts = Doubts::new(&["cat".into(), "dog".into()]);
        doubts.score(10, &metrics(Some(1)));
        doubts.score(20, &metrics(Some(0)));
        doubts.weights(&["a".into(), "b".into(), "c".into(), "d".into(), "e".into()]);
        let news = doubts.news();
        assert_eq!(news.len(), 2);
        assert!(news[0].starts_with("after 10 steps every prediction is the class dog: "), "{}", news[0]);
        assert!(news[1].starts_with("no gradient has changed a, b, c, d and 1 more: "), "{}", news[1]);
        assert!(doubts.all()[0].starts_with("after 20 steps every prediction is the class cat: "));
        doubts.score(30, &metrics(None));
        doubts.weights(&[]);
        assert!(doubts.all().is_empty());
    }
}
