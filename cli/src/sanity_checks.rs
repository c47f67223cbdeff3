//! Warnings about implausible results with the likely cause, printed at once and stored in the record.

use crate::{
    Failure,
    metrics::{Metric, Metrics},
    output::{self, Progress},
    tasks::{SampleTest, UnusableSamples},
};
use gradscale::sites::LossScaleWarning;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of recent steps that the checks consider.
const WINDOW: usize = 100;
/// Maximum number of skips in the window without a warning.
const SKIPS: usize = WINDOW / 10;
/// Maximum number of names in one line.
const MAX_NAMES: usize = 4;
/// GAN loss below which one network has won and the other receives no gradient.
const GAN_LOSS_FLOOR: f32 = 1e-6;
/// Minimum variance of generated images, as a share of that of real ones. Below it they are all alike.
const MIN_VARIANCE_RATIO: f64 = 0.05;

/// Number of steps below which useless predictions are no surprise.
const FEW_STEPS: u64 = 100;
/// Part of the names of layers that learn from matched boxes only.
const REGRESSION_HEAD: &str = "regression_head";

/// Perplexity below which the test text must have leaked into training.
const LEAKED_PERPLEXITY: f64 = 1.05;

/// Warnings about implausible results of a run. A later score withdraws the warning of an earlier one.
#[derive(Debug, Default)]
pub struct SanityChecks {
    classes: Vec<String>,
    /// Steps so far, and those of them that were skipped.
    steps: u64,
    skipped: u64,
    recent: VecDeque<bool>,
    skips: Option<String>,
    scale: Option<String>,
    zeros: Option<Zeros>,
    one_class: Option<String>,
    one_image: Option<String>,
    won: Option<String>,
    /// Sites, each with true if every step flushed all of its non-zero values.
    flushed: BTreeMap<String, bool>,
    certain: Option<String>,
    unchanged: Option<String>,
    unusable: Option<Unusable>,
    unprinted: Vec<String>,
}

/// Range of consecutive steps whose loss was exactly 0.
#[derive(Clone, Copy, Debug)]
struct Zeros {
    first: u64,
    steps: u64,
}

/// Samples whose losses are infinite or NaN.
#[derive(Debug)]
struct Unusable {
    /// Sentence about the first of them.
    said: String,
    indices: BTreeSet<u64>,
}

impl SanityChecks {
    /// Creates the checks for a run with these classes.
    pub fn new(classes: &[String]) -> Self {
        Self { classes: classes.to_vec(), ..Self::default() }
    }

    /// Checks a finished step, with its loss or why it was skipped.
    pub fn step(&mut self, iteration: u64, loss: f32, skipped: Option<&str>) {
        self.steps += 1;
        self.skipped += u64::from(skipped.is_some());
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(skipped.is_some());
        let skips = self.recent.iter().filter(|skipped| **skipped).count();
        if let (Some(last), true, None) = (skipped, skips > SKIPS, &self.skips) {
            let cause = if last.contains("the loss of this batch is infinite") {
                "look for samples whose loss is infinite, for example recordings that are too short for their \
                 transcript, or lower the learning rate"
            } else if last.contains("NaN") || last.contains("the loss of this batch is") {
                "values became NaN or infinite: look for infinite or missing values in the data, or lower the learning \
                 rate"
            } else {
                "the loss scale is too large, or grows too fast"
            };
            let of = self.recent.len();
            self.skips =
                Some(format!("at step {iteration}, {skips} of the last {of} steps were skipped ({last}): {cause}"));
            self.unprinted.extend(self.skips.clone());
        }
        if loss == 0.0 && skipped.is_none() {
            match &mut self.zeros {
                Some(zeros) => zeros.steps += 1,
                None => {
                    self.zeros = Some(Zeros { first: iteration, steps: 1 });
                    self.unprinted.extend(self.zeros());
                }
            }
        }
    }

    /// Sets whether a site has flushed all of its non-zero values in every step so far.
    pub fn set_flushed(&mut self, site: &str, all: bool) {
        match self.flushed.get_mut(site) {
            Some(known) => *known = all,
            None => drop(self.flushed.insert(site.to_owned(), all)),
        }
    }

    /// Returns the site that flushed all its values in every step; if several did, one of the layer `near`.
    fn flushed_site(&self, near: &str) -> Option<&str> {
        let layer = near.rsplit_once('.').map_or(near, |(layer, _)| layer);
        let mut all = self.flushed.iter().filter(|(_, all)| **all).map(|(name, _)| name.as_str());
        let first = all.clone().next();
        all.find(|name| name.starts_with(layer)).or(first)
    }

    /// Returns the one cause of useless predictions that the counts of the run show.
    fn cause(&self, iteration: u64, labels: &str) -> String {
        if let Some(site) = self.flushed_site("") {
            return format!("all gradients at {site} were flushed to zero");
        }
        if 2 * self.skipped > self.steps {
            return format!("{} of {} steps were skipped", self.skipped, self.steps);
        }
        if iteration < FEW_STEPS {
            return "these are few steps; if it stays so, lower the learning rate".to_owned();
        }
        format!("the learning rate is too high, or {labels}")
    }

    /// Warns about a dynamic loss scale that has become too small, the first time that it has.
    pub fn loss_scale(&mut self, iteration: u64, warning: LossScaleWarning) {
        if self.scale.is_none() {
            self.scale = Some(format!("at step {iteration} {warning}"));
            self.unprinted.extend(self.scale.clone());
        }
    }

    /// Checks the losses of networks that train in turn.
    pub fn losses(&mut self, iteration: u64, skipped: bool, losses: &BTreeMap<String, Option<f32>>) {
        let nothing = losses.iter().find(|(_, loss)| loss.is_some_and(|loss| loss.abs() < GAN_LOSS_FLOOR));
        if let (Some((name, _)), false, None) = (nothing, skipped, &self.won) {
            self.won = Some(format!(
                "at step {iteration} the loss of {name} is 0, so the other network receives no gradient: lower the \
                 learning rate, or look for flushed gradients"
            ));
            self.unprinted.extend(self.won.clone());
        }
    }

    /// Checks the scores on the test images.
    pub fn score(&mut self, iteration: u64, metrics: &Metrics) {
        self.variety(iteration, metrics);
        let known = self.certain.take();
        let perplexity = metrics.get(Metric::Perplexity).filter(|perplexity| *perplexity < LEAKED_PERPLEXITY);
        self.certain = perplexity.map(|perplexity| {
            format!(
                "after {iteration} steps the perplexity is {perplexity:.3}, close to 1: the test text repeats itself \
                 or is part of the training text"
            )
        });
        if known.is_none() {
            self.unprinted.extend(self.certain.clone());
        }
        let before = self.one_class.take();
        let (said, labels) = match metrics.only {
            _ if metrics.found == Some(0) => {
                ("no box is found in any image".to_owned(), "boxes do not belong to their images")
            }
            Some(class) => {
                let name = self.classes.get(class as usize).map_or("?", String::as_str);
                (format!("every prediction is the class {name}"), "labels do not belong to their images")
            }
            None if metrics.same => {
                ("all texts are the same".to_owned(), "lines or transcripts are in the wrong order")
            }
            None => return,
        };
        self.one_class = Some(format!("after {iteration} steps {said}: {}", self.cause(iteration, labels)));
        if before.is_none() {
            self.unprinted.extend(self.one_class.clone());
        }
    }

    /// Warns if generated images are all alike.
    fn variety(&mut self, iteration: u64, metrics: &Metrics) {
        let before = self.one_image.take();
        let variety = metrics.get(Metric::Variety).filter(|share| share.is_nan() || *share < MIN_VARIANCE_RATIO);
        let Some(variety) = variety else { return };
        self.one_image = Some(format!(
            "after {iteration} steps all generated images are nearly the same ({:.1} % of the variance of real ones): \
             too few steps, or mode collapse, for which a lower learning rate is the first remedy",
            100.0 * variety
        ));
        if before.is_none() {
            self.unprinted.extend(self.one_image.clone());
        }
    }

    /// Checks for parameters that never changed, at the end of a run.
    pub fn weights(&mut self, unchanged: &[String]) {
        let before = self.unchanged.take();
        let Some(first) = unchanged.first() else { return };
        let mut names =
            unchanged.iter().skip(1).take(MAX_NAMES - 1).fold(first.clone(), |names, name| names + ", " + name);
        if unchanged.len() > MAX_NAMES {
            names += &format!(" and {} more", unchanged.len() - MAX_NAMES);
        }
        let cause = if self.steps > 0 && self.skipped == self.steps {
            "all steps were skipped".to_owned()
        } else if let Some(site) = self.flushed_site(first) {
            format!("all gradients at {site} were flushed to zero")
        } else if first.contains(REGRESSION_HEAD) {
            "no training box matched the default boxes of this level".to_owned()
        } else {
            "no sample leads from them to the loss: their gradients were exactly 0 without rounding".to_owned()
        };
        self.unchanged = Some(format!("{names} never changed, because {cause}"));
        if before.is_none() {
            self.unprinted.extend(self.unchanged.clone());
        }
    }

    /// Warns about the first sample because of which a step was skipped, and counts the others.
    pub fn samples(&mut self, iteration: u64, samples: &UnusableSamples) {
        if let Some(known) = &mut self.unusable {
            known.indices.extend(&samples.indices);
            return;
        }
        let source = samples.source.as_ref().map_or_else(String::new, |source| format!(" ({source})"));
        let remedy = match samples.test {
            SampleTest::Data => "repair or remove it",
            SampleTest::Evaluation => "check it, or lower the learning rate if there are many",
        };
        let said = format!(
            "at step {iteration} the loss of sample {}{source} is infinite or NaN, so its batch was skipped: {remedy}",
            samples.first()
        );
        self.unprinted.push(said.clone());
        self.unusable = Some(Unusable { said, indices: samples.indices.iter().copied().collect() });
    }

    fn unusable(&self) -> Option<String> {
        let Unusable { said, indices } = self.unusable.as_ref()?;
        let others = indices.len().saturating_sub(1);
        Some(if others == 0 { said.clone() } else { format!("{said}; {others} more such samples were found") })
    }

    fn zeros(&self) -> Option<String> {
        let Zeros { first, steps } = self.zeros?;
        let often = if steps > 1 { format!(", and in {steps} steps in all") } else { String::new() };
        Some(format!(
            "the loss of step {first} is exactly 0{often}: every label of the batch is ignored, all labels are the \
             same, or the images reveal them"
        ))
    }

    /// Returns all warnings so far as sentences.
    pub fn sentences(&self) -> Vec<String> {
        let all =
            [&self.skips, &self.scale, &self.won, &self.one_class, &self.certain, &self.one_image, &self.unchanged];
        let all = [self.zeros(), self.unusable()].into_iter().chain(all.map(Clone::clone));
        all.flatten().collect()
    }

    /// Takes the warnings that have not been printed yet.
    pub fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unprinted)
    }
}

/// Prints new warnings above the progress.
pub fn print_warnings(progress: &Progress, about: &str, news: &[String]) {
    if !news.is_empty() {
        let warning = |text: &String| output::warn(&Failure::at(format_args!("warning: {about}"), text));
        progress.suspend(|| news.iter().for_each(warning));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(variety: f64) -> Metrics {
        Metrics::of_made(1.0, 2.0, variety)
    }

    fn metrics(only: Option<u32>) -> Metrics {
        Metrics::default().always(only)
    }

    #[test]
    fn nothing_is_doubtful_in_a_plain_run() {
        let mut doubts = SanityChecks::new(&["a".into(), "b".into()]);
        for iteration in 1..=300 {
            // A tenth is not more than a tenth.
            doubts.step(iteration, 0.5, (iteration % 10 == 0).then_some("skipped: x overflowed at 2^3"));
            // A skipped step has no loss.
            doubts.step(iteration, 0.5, None);
        }
        doubts.score(300, &metrics(None));
        doubts.weights(&[]);
        assert_eq!((doubts.sentences(), doubts.news()), (Vec::new(), Vec::new()));
    }

    #[test]
    fn more_than_a_tenth_skipped() {
        let mut doubts = SanityChecks::new(&[]);
        for iteration in 1..=99 {
            doubts.step(iteration, 1.0, None);
        }
        for iteration in 100..=109 {
            doubts.step(iteration, 0.0, Some("skipped: x overflowed at 2^3"));
        }
        assert!(doubts.sentences().is_empty());
        doubts.step(110, 1.0, Some("skipped: x received NaN at 2^3, which is not a scaling problem"));
        doubts.step(111, 1.0, Some("skipped: x overflowed at 2^3"));
        let [one] = &doubts.news()[..] else { panic!("{:?}", doubts.sentences()) };
        assert!(
            one.starts_with("at step 110, 11 of the last 100 steps were skipped (skipped: x received NaN"),
            "{one}"
        );
        assert!(one.contains("look for infinite or missing values"), "{one}");
        assert_eq!((doubts.sentences(), doubts.news()), (vec![one.clone()], Vec::new()));
        // Skips that are not consecutive are not added up.
        let mut doubts = SanityChecks::new(&[]);
        for iteration in 1..=2000 {
            doubts.step(iteration, 1.0, (iteration % 11 == 0).then_some("skipped: x overflowed at 2^3"));
        }
        assert!(doubts.sentences().is_empty());
    }

    #[test]
    fn a_loss_scale_that_has_become_too_small() {
        let mut doubts = SanityChecks::new(&[]);
        doubts.loss_scale(30, LossScaleWarning::Collapsed { exponent: -11 });
        doubts.loss_scale(31, LossScaleWarning::Collapsed { exponent: -12 });
        let [one] = &doubts.news()[..] else { panic!("{:?}", doubts.sentences()) };
        assert!(
            one.starts_with("at step 30 the loss scale has fallen to 2^-11, because steps were not finite"),
            "{one}"
        );
        // Skips by an infinite loss are not the fault of a scale.
        for iteration in 1..=100 {
            doubts.step(
                iteration,
                1.0,
                Some("skipped: the loss of this batch is infinite: nothing was learned from it"),
            );
        }
        assert!(doubts.sentences()[0].contains("look for samples whose loss is infinite"), "{:?}", doubts.sentences());
    }

    #[test]
    fn samples_without_a_loss() {
        let samples = |indices: &[u64], source: Option<&str>, test| UnusableSamples {
            indices: indices.to_vec(),
            source: source.map(str::to_owned),
            batch: 8,
            test,
        };
        let mut doubts = SanityChecks::new(&[]);
        doubts.samples(31, &samples(&[7], Some("t.csv, line 9"), SampleTest::Data));
        let expected = "at step 31 the loss of sample 7 (t.csv, line 9) is infinite or NaN, so its batch was skipped: repair \
                        or remove it";
        assert_eq!(doubts.sentences(), [expected]);
        // The same sample in a later pass is no news; others are counted.
        doubts.samples(40, &samples(&[7], Some("t.csv, line 9"), SampleTest::Data));
        doubts.samples(41, &samples(&[7, 9, 12], None, SampleTest::Data));
        assert_eq!(doubts.sentences(), [format!("{expected}; 2 more such samples were found")]);
        assert_eq!((doubts.news(), doubts.news()), (vec![expected.to_owned()], Vec::new()));
        let mut doubts = SanityChecks::new(&[]);
        doubts.samples(3, &samples(&[5], None, SampleTest::Evaluation));
        assert!(
            doubts.sentences()[0].starts_with("at step 3 the loss of sample 5 is infinite or NaN")
                && doubts.sentences()[0].ends_with(": check it, or lower the learning rate if there are many"),
            "{:?}",
            doubts.sentences()
        );
    }

    #[test]
    fn a_text_that_was_known() {
        let of = |perplexity| Metrics::new([(Metric::Perplexity, perplexity)]);
        let mut doubts = SanityChecks::new(&[]);
        doubts.score(5, &of(1.2));
        assert!(doubts.sentences().is_empty());
        doubts.score(10, &of(1.01));
        let [one] = &doubts.news()[..] else { panic!("{:?}", doubts.sentences()) };
        assert!(one.starts_with("after 10 steps the perplexity is 1.010, close to 1: the test text"), "{one}");
        doubts.score(20, &of(3.0));
        assert!(doubts.sentences().is_empty());
    }

    #[test]
    fn a_loss_of_zero() {
        let mut doubts = SanityChecks::new(&[]);
        doubts.step(1, 1e-30, None);
        doubts.step(2, 0.0, None);
        doubts.step(3, 0.0, None);
        let [one] = &doubts.news()[..] else { panic!("{:?}", doubts.sentences()) };
        assert!(one.starts_with("the loss of step 2 is exactly 0: "), "{one}");
        assert!(doubts.sentences()[0].starts_with("the loss of step 2 is exactly 0, and in 2 steps in all: "));
    }

    #[test]
    fn no_box_is_found() {
        let of = |found: u64| {
            let mut scores = metrics(None);
            scores.found = Some(found);
            scores
        };
        let mut doubts = SanityChecks::new(&["cat".into()]);
        doubts.score(10, &of(0));
        let [one] = &doubts.news()[..] else { panic!("{:?}", doubts.sentences()) };
        assert_eq!(
            one,
            "after 10 steps no box is found in any image: these are few steps; if it stays so, lower the learning rate"
        );
        // The counts show another cause.
        for (site, all) in [("net.a/dgrad", true), ("net.b/dgrad", false)] {
            doubts.set_flushed(site, all);
        }
        doubts.score(15, &of(0));
        assert!(doubts.sentences()[0].ends_with(": all gradients at net.a/dgrad were flushed to zero"));
        doubts.set_flushed("net.a/dgrad", false);
        doubts.score(500, &of(0));
        assert!(
            doubts.sentences()[0].ends_with(": the learning rate is too high, or boxes do not belong to their images")
        );
        doubts.score(20, &of(3));
        assert!(doubts.sentences().is_empty());
    }

    #[test]
    fn a_later_score_takes_back() {
        let mut doubts = SanityChecks::new(&["cat".into(), "dog".into()]);
        doubts.score(10, &metrics(Some(1)));
        doubts.score(20, &metrics(Some(0)));
        doubts.weights(&["a".into(), "b".into(), "c".into(), "d".into(), "e".into()]);
        let news = doubts.news();
        assert_eq!(news.len(), 2);
        assert!(news[0].starts_with("after 10 steps every prediction is the class dog: "), "{}", news[0]);
        assert!(news[1].starts_with("a, b, c, d and 1 more never changed, because "), "{}", news[1]);
        assert!(doubts.sentences()[0].starts_with("after 20 steps every prediction is the class cat: "));
        doubts.score(25, &metrics(None).all_the_same(true));
        assert!(doubts.sentences()[0].starts_with("after 25 steps all texts are the same: "));
        doubts.score(30, &metrics(None));
        doubts.weights(&[]);
        assert!(doubts.sentences().is_empty());
    }

    /// Each kind of a parameter that never changed has its own cause.
    #[test]
    fn parameters_that_never_changed() {
        let with = |work: fn(&mut SanityChecks), name: &str| {
            let mut doubts = SanityChecks::new(&[]);
            doubts.step(1, 1.0, None);
            work(&mut doubts);
            doubts.weights(&[name.to_owned()]);
            doubts.sentences().pop().expect("a sentence")
        };
        let flushes = |doubts: &mut SanityChecks| doubts.set_flushed("a.one/dgrad", true);
        let stores = |doubts: &mut SanityChecks| doubts.set_flushed("a.one/dgrad", false);
        assert_eq!(
            with(flushes, "a.one.bias"),
            "a.one.bias never changed, because all gradients at a.one/dgrad were flushed to zero"
        );
        assert!(with(stores, "a.one.bias").contains("because no sample leads from them to the loss"));
        let level = "head.regression_head.module_list.0.bias";
        assert!(with(stores, level).ends_with("because no training box matched the default boxes of this level"));
    }

    #[test]
    fn made_images_that_are_all_the_same() {
        let mut doubts = SanityChecks::new(&[]);
        doubts.score(10, &made(0.3));
        assert!(doubts.sentences().is_empty());
        for variety in [0.01, f64::NAN] {
            doubts.score(20, &made(variety));
            assert!(doubts.sentences()[0].starts_with("after 20 steps all generated images are nearly the same ("));
        }
        assert_eq!(doubts.news().len(), 1);
        doubts.score(30, &made(0.3));
        assert!(doubts.sentences().is_empty());
    }

    #[test]
    fn a_network_that_has_won() {
        let losses = |d: f32| BTreeMap::from([("D".to_owned(), Some(d)), ("G".to_owned(), Some(9.0))]);
        let mut doubts = SanityChecks::new(&[]);
        doubts.losses(1, false, &losses(0.5));
        // A skipped step has no meaningful loss.
        doubts.losses(2, true, &losses(0.0));
        doubts.losses(3, false, &BTreeMap::from([("D".to_owned(), None)]));
        assert!(doubts.sentences().is_empty());
        doubts.losses(4, false, &losses(0.0));
        doubts.losses(5, false, &losses(0.0));
        let [one] = &doubts.news()[..] else { panic!("{:?}", doubts.sentences()) };
        assert!(one.starts_with("at step 4 the loss of D is 0, so the other network"), "{one}");
    }
}
