//! Text generation.

use super::network::{Model, features};
use crate::{Failure, data::Random};
use gradscale::{
    Input, Tensor, Trainer,
    gradscale_core::backend::Backend,
    models::{BigLstm, Cache, Cached, Decoder},
};

/// Settings of token sampling when a text is continued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Temperature: divisor of the logits; 0 takes the likeliest token.
    pub temperature: f64,
    /// Number of the likeliest tokens to sample from; 0 for all.
    pub top_k: usize,
    /// Seed of the random numbers that choose tokens.
    pub seed: u64,
}

impl Choice {
    /// Samples a token number from the logits of all tokens.
    fn sample(self, logits: &[f32], random: &mut Random) -> u32 {
        // NaN is never sampled.
        let value = |&x: &f32| if x.is_nan() { f64::NEG_INFINITY } else { f64::from(x) };
        let mut all: Vec<(u32, f64)> = (0..).zip(logits.iter().map(value)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let most = all.first().map_or(0.0, |&(_, x)| x);
        if self.temperature > 0.0 {
            let kept = if self.top_k == 0 { all.len() } else { self.top_k.min(all.len()) };
            let weight = |x: f64| ((x - most) / self.temperature).exp();
            let weights: Vec<f64> = all[..kept].iter().map(|&(_, x)| weight(x)).collect();
            let mut left = random.uniform() * weights.iter().sum::<f64>();
            for (&(token, _), weight) in all.iter().zip(weights) {
                left -= weight;
                if left < 0.0 {
                    return token;
                }
            }
        }
        all.first().map_or(0, |&(token, _)| token)
    }
}

/// State of text generation for a batch of texts.
enum Memory {
    State([Tensor; 2]),
    /// Attention cache, and the tokens read so far within the context.
    Cache(Cache, Vec<Vec<u32>>),
}

/// Network that reads one token of each text after another.
struct Reader<'a, B: Backend> {
    trainer: &'a mut Trainer<B>,
    model: &'a Model,
    count: usize,
    memory: Memory,
}

impl<'a, B: Backend<Error: 'static>> Reader<'a, B> {
    fn new(trainer: &'a mut Trainer<B>, model: &'a Model, count: usize) -> Self {
        let memory = match model {
            Model::BigLstm(net, _) => Memory::State(empty(net, count)),
            Model::Decoder(net) => Memory::Cache(net.cache(count), Vec::new()),
        };
        Self { trainer, model, count, memory }
    }

    /// Returns the logits after these tokens, one for each text.
    fn read(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Failure> {
        match (self.model, &mut self.memory) {
            (Model::BigLstm(net, _), Memory::State(state)) => {
                let [h, c] = state.each_ref().map(|one| Input::f32(one.shape, &one.data));
                let batch = [Input::u32([self.count, 1], tokens), h, c];
                let logits =
                    self.trainer.evaluate(batch, |[tokens, h, c]| net.logits(features(net, [tokens, h, c])))?;
                *state = [self.trainer.output("h")?, self.trainer.output("c")?];
                Ok(logits.data)
            }
            (Model::Decoder(net), Memory::Cache(cache, read)) => {
                if cache.places_left() == 0 {
                    // It continues from the later half of its context.
                    read.drain(..read.len().div_ceil(2));
                    *cache = net.cache(self.count);
                    for tokens in read.iter() {
                        step(self.trainer, net, cache, tokens)?;
                    }
                }
                read.push(tokens.to_vec());
                step(self.trainer, net, cache, tokens)
            }
            (Model::BigLstm(..), Memory::Cache(..)) | (Model::Decoder(_), Memory::State(_)) => Ok(Vec::new()),
        }
    }
}

/// Returns the recurrent state of zeros with which a text begins.
pub fn empty(net: &BigLstm, count: usize) -> [Tensor; 2] {
    net.state(count).map(|shape| Tensor { shape, data: vec![0.0; shape.len()] })
}

fn step<B: Backend<Error: 'static>>(
    trainer: &mut Trainer<B>, net: &Decoder, cache: &mut Cache, tokens: &[u32],
) -> Result<Vec<f32>, Failure> {
    let [past, mask, place] = cache.inputs();
    let batch = [Input::u32([tokens.len()], tokens), past, mask, place];
    let logits =
        trainer.evaluate(batch, |[tokens, past, mask, place]| net.next(tokens, &Cached { past, mask, place }))?;
    cache.push(&trainer.output(Cache::NEW)?);
    Ok(logits.data)
}

/// Continues each of several texts of equal length.
///
/// # Errors
/// The device's.
pub fn continued<B: Backend<Error: 'static>>(
    trainer: &mut Trainer<B>, model: &Model, texts: &[Vec<u32>], length: usize, choice: Choice,
) -> Result<Vec<Vec<u32>>, Failure> {
    let mut written = vec![Vec::new(); texts.len()];
    let known = texts.iter().map(Vec::len).min().unwrap_or(0);
    if known == 0 {
        return Ok(written);
    }
    let mut reader = Reader::new(trainer, model, texts.len());
    let mut randoms: Vec<Random> = (0..).take(texts.len()).map(|i| Random::from_key(&[choice.seed, i])).collect();
    let mut logits = Vec::new();
    for i in 0..known {
        let tokens: Vec<u32> = texts.iter().map(|text| text[i]).collect();
        logits = reader.read(&tokens)?;
    }
    for i in 0..length {
        let rows = logits.chunks_exact((logits.len() / texts.len()).max(1));
        let tokens: Vec<u32> = rows.zip(&mut randoms).map(|(row, random)| choice.sample(row, random)).collect();
        written.iter_mut().zip(&tokens).for_each(|(text, &token)| text.push(token));
        if i + 1 < length {
            logits = reader.read(&tokens)?;
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::{Net, Network, language::network::network};
    use gradscale::{Cpu, Method, optim::Sgd};

    #[test]
    fn tokens_are_drawn_by_their_probabilities() {
        let logits = [1.0, 3.0, f32::NAN, 2.0];
        let draw = |temperature: f64, top_k: usize| {
            let mut counts = [0; 4];
            for seed in 0..2000 {
                let choice = Choice { temperature, top_k, seed };
                counts[choice.sample(&logits, &mut Random::from_key(&[seed])) as usize] += 1;
            }
            counts
        };
        assert_eq!((draw(0.0, 0), draw(1.0, 1)), ([0, 2000, 0, 0], [0, 2000, 0, 0]));
        let counts = draw(1.0, 0);
        let sum = 1f64.exp() + 2f64.exp() + 3f64.exp();
        for (token, x) in [(0, 1f64), (1, 3.0), (2, f64::NEG_INFINITY), (3, 2.0)] {
            let expected = 2000.0 * x.exp() / sum;
            assert!((f64::from(counts[token]) - expected).abs() <= 5.0 * expected.sqrt(), "{token}: {counts:?}");
        }
        assert_eq!(draw(1.0, 2)[0], 0);
        assert!(draw(0.5, 0)[1] > counts[1]);
    }

    /// Past the end of the context; texts in one batch have the results of separate ones.
    #[test]
    fn both_networks_write() {
        for net in [Net::BigLstm, Net::Decoder, Net::DecoderRotary] {
            let (parameters, model) = network(3, Network::small(net, 2), 20, 6);
            let mut trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.0), Method::fp32())
                .expect("a trainer");
            let texts = [vec![1, 5, 7], vec![2, 0, 19]];
            let choice = Choice { temperature: 1.0, top_k: 0, seed: 4 };
            let mut write =
                |texts: &[Vec<u32>], length| continued(&mut trainer, &model, texts, length, choice).expect("written");
            let both = write(&texts, 12);
            assert!(both.iter().all(|text| text.len() == 12) && both[0] != both[1], "{both:?}");
            assert_eq!(write(&texts[..1], 12)[0], both[0]);
            assert_eq!(write(&texts[..1], 5)[0], both[0][..5]);
            assert_eq!(write(&[Vec::new()], 5), [Vec::<u32>::new()]);
        }
    }
}
