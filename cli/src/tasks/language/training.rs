//! A training of a language model: batches, loss, the state between batches, scores.

use super::{
    REPORT_SAMPLES,
    network::{Batch, Model, Windows, candidate, features, network},
    writing::{Choice, continued, empty},
};
use crate::{
    Failure,
    data::{Corpus, Sample, Tokens},
    metrics::{Metrics, Perplexity},
    tasks::{Classes, LossDivisor, On, Predictions, Settings, TextInput, Transcript, run, samples},
};
use gradscale::{
    CrossEntropy, Error, Gradients, Input, Parameters, Tensor, Trainer, Var, gradscale_core::backend::Backend,
    optim::Optimizer,
};

/// Approximate number of logits that are evaluated at once.
const LOGITS: usize = 1 << 23;
/// Maximum number of windows that are evaluated at once.
const ROWS: usize = 32;
/// Sampling settings of the texts in a report.
const CHOICE: Choice = Choice { temperature: 0.8, top_k: 0, seed: 0 };

#[derive(Debug)]
pub struct LanguageTraining<'a> {
    data: &'a Corpus,
    settings: Settings,
    model: Model,
    windows: Windows,
    /// State of the bigLSTM, h and c, with which the next batch begins; `None` to begin with zeros.
    state: Option<[Tensor; 2]>,
}

impl<'a> LanguageTraining<'a> {
    pub fn new(data: &'a Corpus, settings: Settings, seed: u64) -> Result<(Self, Parameters, Optimizer), Failure> {
        let (parameters, model) = network(seed, settings.network, data.vocabulary.len(), data.window);
        let optimizer = settings.recipe.optimizer(settings.pixels.ratio(settings.batch * data.window))?;
        let windows = Windows::new(data, &model, settings.batch, seed);
        Ok((Self { data, settings, model, windows, state: None }, parameters, optimizer))
    }

    /// Converts the mean cross-entropy to the loss that training minimises.
    fn loss<'t>(&self, mean: Var<'t>) -> Var<'t> {
        match self.settings.pixels {
            LossDivisor::Batch => mean,
            LossDivisor::Fixed(divisor) => mean * ((self.settings.batch * self.data.window) as f32 / divisor as f32),
        }
    }

    /// Returns the number and length of the rows into which a text for scores is divided, which are read in parallel;
    /// each row starts with its first token.
    fn rows(&self, text: &[u32]) -> (usize, usize) {
        let room = LOGITS / (self.data.window * self.data.vocabulary.len()).max(1);
        let rows = room.clamp(1, ROWS).min(self.data.windows(text).max(1));
        (rows, text.len().saturating_sub(1).div_ceil(rows))
    }
}

impl run::SampleLosses for LanguageTraining<'_> {
    /// Draws the windows of a decoder; the loss of a bigLSTM's window depends on those before it.
    fn draw_samples(&mut self) -> Vec<Sample> {
        match self.model {
            Model::Decoder(_) => self.windows.draw(),
            Model::BigLstm(..) => Vec::new(),
        }
    }

    fn sample_loss<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, sample: Sample,
    ) -> Result<f32, Failure> {
        let Model::Decoder(net) = &self.model else { return Ok(0.0) };
        let window = Batch::new(&self.data.train, &[sample.index * self.data.window], self.data.window);
        run::loss_of(trainer, window.inputs(), |[tokens, targets]| self.loss(net.logits(tokens).cross_entropy(targets)))
    }

    fn sample_source(&self, index: usize) -> Option<String> {
        let first = index * self.data.window;
        Some(format!("tokens {first} to {} of the training text", first + self.data.window))
    }
}

impl run::TrainingTask for LanguageTraining<'_> {
    type Batch = Batch;

    /// Returns the next batch without prefetching, because its state is known only after the last step.
    fn prefetch<B: Backend<Error: 'static>>(&mut self, _: &mut Trainer<B>) -> Result<Batch, Failure> {
        Ok(self.windows.next(self.data, &self.model))
    }

    fn backward<B: Backend>(&self, trainer: &mut Trainer<B>, batch: Batch) -> Result<Gradients, Error<B::Error>> {
        let [tokens, targets] = batch.inputs();
        match &self.model {
            Model::Decoder(net) => trainer
                .backward([tokens, targets], |[tokens, targets]| self.loss(net.logits(tokens).cross_entropy(targets))),
            Model::BigLstm(net, _) => {
                let zeros = empty(net, batch.size[0]);
                let state = self.state.as_ref().filter(|_| !batch.fresh).unwrap_or(&zeros);
                let [h, c] = state.each_ref().map(|one| Input::f32(one.shape, &one.data));
                match &batch.candidates {
                    None => trainer.backward([tokens, h, c, targets], |[tokens, h, c, targets]| {
                        self.loss(net.logits(features(net, [tokens, h, c])).cross_entropy(targets))
                    }),
                    Some(drawn) => {
                        let [labels, of_labels, classes, of_classes, hits, first] = batch.sampled(drawn);
                        let all = [tokens, h, c, labels, of_labels, classes, of_classes, hits, first];
                        trainer.backward(all, |[tokens, h, c, labels, of_labels, classes, of_classes, hits, first]| {
                            let of = candidate([labels, of_labels, classes, of_classes, hits, first]);
                            self.loss(net.sampled_loss(features(net, [tokens, h, c]), &of))
                        })
                    }
                }
            }
        }
    }

    /// Reads the recurrent state after a step; a state that is not finite is not kept.
    fn after_step<B: Backend<Error: 'static>>(&mut self, trainer: &Trainer<B>) -> Result<(), Failure> {
        if let Model::BigLstm(..) = self.model {
            let state = [trainer.output("h")?, trainer.output("c")?];
            let finite = state.iter().flat_map(|one| &one.data).all(|value| value.is_finite());
            self.state = finite.then_some(state);
        }
        Ok(())
    }

    fn ratio(&self) -> f64 {
        self.settings.pixels.ratio(self.settings.batch * self.data.window)
    }

    /// Evaluates all tokens but the first of each row, starting each row with an empty state. Logits beyond the end of
    /// a row are ignored.
    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, on: On) -> Result<Metrics, Failure> {
        let text = match (on, &self.data.validation) {
            (On::Validation, Some(validation)) => validation,
            (On::Validation | On::Test, _) => &self.data.test,
        };
        let (window, ignored) = (self.data.window, self.data.vocabulary.names().len());
        let ignored = u32::try_from(ignored).unwrap_or(u32::MAX);
        let (rows, each) = self.rows(text);
        let (mut perplexity, mut right) = (Perplexity::default(), 0usize);
        let mut state = match &self.model {
            Model::BigLstm(net, _) => Some(empty(net, rows)),
            Model::Decoder(_) => None,
        };
        for start in (0..each).step_by(window) {
            let mut batch = Batch { size: [rows, window], ..Batch::default() };
            for place in (0..rows).flat_map(|row| (start..start + window).map(move |at| (row * each + at, at))) {
                let (at, inside) = (place.0, place.1 < each);
                let target = text.get(at + 1).filter(|_| inside).copied();
                batch.tokens.push(text.get(at).filter(|_| inside).copied().unwrap_or(0));
                batch.targets.push(target.unwrap_or(ignored));
            }
            let counted = batch.targets.iter().filter(|&&target| target != ignored).count();
            let options = CrossEntropy { ignore: Some(ignored), ..CrossEntropy::default() };
            let [tokens, targets] = batch.inputs();
            let scored = |logits: Var<'_>| {
                let _ = logits.argmax().output("best");
            };
            let loss = match (&self.model, &state) {
                (Model::BigLstm(net, _), Some(state)) => {
                    let [h, c] = state.each_ref().map(|one| Input::f32(one.shape, &one.data));
                    trainer.evaluate([tokens, h, c, targets], |[tokens, h, c, targets]| {
                        let logits = net.logits(features(net, [tokens, h, c]));
                        scored(logits);
                        logits.cross_entropy_with(targets, &options)
                    })?
                }
                (Model::BigLstm(..), None) => break,
                (Model::Decoder(net), _) => trainer.evaluate([tokens, targets], |[tokens, targets]| {
                    let logits = net.logits(tokens);
                    scored(logits);
                    logits.cross_entropy_with(targets, &options)
                })?,
            };
            let best = trainer.output_integers("best")?.data;
            right += best.iter().zip(&batch.targets).filter(|(best, target)| best == target).count();
            if let Some(state) = &mut state {
                *state = [trainer.output("h")?, trainer.output("c")?];
            }
            // The sum, over all rows; the mean of those that count.
            let sum = loss.data.first().map_or(f64::NAN, |&loss| f64::from(loss)) * batch.targets.len() as f64;
            perplexity.add(sum / counted.max(1) as f64, counted as u64);
        }
        let all = text.len().saturating_sub(1).max(1) as f64;
        Ok(Metrics::of_tokens(
            &perplexity,
            unigram_perplexity(self.data, text),
            has_characters(self.data),
            right as f64 / all,
        ))
    }

    fn samples<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Predictions, Failure> {
        let prompts: Vec<Vec<u32>> = report_texts(self.data).map(|[prompt, _]| prompt.to_vec()).collect();
        let length = report_texts(self.data).next().map_or(0, |[_, truth]| truth.len());
        let texts = continued(trainer, &self.model, &prompts, length, CHOICE)?;
        let text = |tokens: &Vec<u32>| {
            let text = self.data.vocabulary.text(tokens);
            Transcript { greedy: text.clone(), text }
        };
        Ok(Predictions::Texts(texts.iter().map(text).collect()))
    }

    /// Returns true for decoders; a bigLSTM continues from the state of the last batch.
    fn supports_micro_batches(&self) -> bool {
        matches!(self.model, Model::Decoder(_))
    }

    fn position(&self) -> u64 {
        self.windows.position()
    }

    fn seek(&mut self, position: u64) {
        self.windows.seek(position);
    }

    fn recurrent_state(&self) -> Option<String> {
        let numbers = |one: &Tensor| one.data.iter().map(|x| format!("{:08x}", x.to_bits())).collect::<String>();
        self.state.as_ref().map(|state| state.each_ref().map(numbers).concat())
    }

    fn restore_state(&mut self, text: Option<&str>) -> Result<(), Failure> {
        let wrong = || Failure::at("checkpoint", "another state between batches");
        self.state = match (&self.model, text) {
            (Model::Decoder(_), _) | (_, None) => None,
            (Model::BigLstm(net, _), Some(text)) => {
                let mut state = empty(net, self.settings.batch);
                let places = state.iter_mut().flat_map(|one| &mut one.data);
                let count = text.len() / 8;
                let mut words = text.as_bytes().chunks(8);
                let mut filled = 0;
                for (place, word) in places.zip(&mut words) {
                    let word = str::from_utf8(word).ok().and_then(|word| u32::from_str_radix(word, 16).ok());
                    *place = f32::from_bits(word.ok_or_else(wrong)?);
                    filled += 1;
                }
                if filled != count || filled != state.iter().map(|one| one.data.len()).sum::<usize>() {
                    return Err(wrong());
                }
                Some(state)
            }
        };
        Ok(())
    }

    fn classes(&self) -> Classes {
        Classes {
            names: self.data.vocabulary.names().to_vec(),
            text: Some(TextInput { tokens: self.data.vocabulary.tokens(), window: self.data.window }),
            ..Classes::default()
        }
    }
}

/// Returns the test texts that a report shows: beginnings, and how they go on.
pub(super) fn report_texts(corpus: &Corpus) -> impl Iterator<Item = [&[u32]; 2]> {
    let [known, then] = if has_characters(corpus) { [48, 96] } else { [12, 24] };
    let (known, then) = (known.min(corpus.test.len() / 2), then.min(corpus.test.len() / 2));
    let last = corpus.test.len() - known - then;
    samples(last + 1, REPORT_SAMPLES).map(move |start| {
        let text = &corpus.test[start..start + known + then];
        [&text[..known], &text[known..]]
    })
}

/// Returns true if the vocabulary's tokens are characters, false for words.
fn has_characters(corpus: &Corpus) -> bool {
    corpus.vocabulary.tokens() == Tokens::Characters
}

/// Returns the perplexity of a text by how often training has each token, each counted once more, so that none is
/// impossible.
fn unigram_perplexity(corpus: &Corpus, text: &[u32]) -> f64 {
    let all = corpus.counts.iter().sum::<u64>() as f64 + corpus.counts.len() as f64;
    let behind = &text[1.min(text.len())..];
    let log = |&token: &u32| ((corpus.counts.get(token as usize).copied().unwrap_or(0) as f64 + 1.0) / all).ln();
    (-behind.iter().map(log).sum::<f64>() / behind.len().max(1) as f64).exp()
}
