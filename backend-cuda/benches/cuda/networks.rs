//! Training steps of nine networks at the sizes of their papers, compared with `networks.py`, which measures the same
//! networks in PyTorch. The method is `gs`; batches are random and prefetched.
//!
//! `networks.csv` has sizes and counts of parameters. Both sides check theirs before they measure.

use crate::measure::{Bench, median};
use gradscale::{
    Input, Inputs, Method, MultiBox, Parameters, Pass, StepOutcome, Trainer, TrainerOptions, Var,
    data::{Candidates, LogUniform, Random},
    models::{
        BigLstm, BigLstmSize, Dcgan, Decoder, DecoderSize, DeepSpeech, GanSize, InceptionV3, ResNetDepth, Scale,
        Seq2Seq, Ssd, SsdSize, TorchResNet, Vgg16, Vision,
    },
    nn::Candidate,
    optim::{Adam, AdamW, Optimizer, Sgd},
};
use gradscale_cuda::{Cuda, Error};
use std::{fmt::Write, thread, time::Instant};

/// Steps before those that count: the first two decide at once, compile and are recorded; in small sizes the third repeats
/// the recording, and that is all there is to see.
const WARMUP_STEPS: [usize; 2] = [4, 2];
/// Steps that count: as many as take MAX_SECONDS, between these. Deep Speech 2 takes about 0.6 s for one.
const MIN_STEPS: usize = 3;
const MAX_STEPS: usize = 21;
const MAX_SECONDS: f64 = 2.5;
/// Learning rate, so small that random labels teach nothing and no loss explodes.
const RATE: f64 = 1e-4;
/// Number of channels of images.
const CHANNELS: usize = 3;
/// Classes that bigLSTM's loss is taken over instead of all (Jozefowicz et al. 2016), and in small sizes.
const SAMPLED_CLASSES: [usize; 2] = [8192, 10];
/// Number of default boxes of which one is matched, about as in a picture of PASCAL VOC.
const MATCHED_BOXES: usize = 100;
/// Background boxes that count for each matched one (Liu et al. 2016).
const NEGATIVES: usize = 3;
/// Number of Deep Speech 2's time steps for each letter of a transcript.
const STEPS_OF_LETTER: usize = 4;

/// Network whose training speed is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    ResNet50,
    Vgg16,
    InceptionV3,
    Ssd300,
    Decoder,
    Seq2Seq,
    BigLstm,
    Dcgan,
    DeepSpeech2,
}

impl Network {
    /// All networks in the order of measurement: those that take longest to build or to record come last.
    pub const ALL: [Self; 9] = [
        Self::ResNet50,
        Self::Vgg16,
        Self::InceptionV3,
        Self::Ssd300,
        Self::Decoder,
        Self::Seq2Seq,
        Self::Dcgan,
        Self::BigLstm,
        Self::DeepSpeech2,
    ];

    /// Returns the network's name in `networks.csv`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ResNet50 => "resnet-50",
            Self::Vgg16 => "vgg-16",
            Self::InceptionV3 => "inception-v3",
            Self::Ssd300 => "ssd-300",
            Self::Decoder => "decoder",
            Self::Seq2Seq => "seq2seq",
            Self::BigLstm => "biglstm",
            Self::Dcgan => "dcgan",
            Self::DeepSpeech2 => "deep-speech-2",
        }
    }
}

/// Row of `networks.csv`: batch and size of a network, here and in PyTorch.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Unit of the network's speed, for example images.
    pub unit: &'static str,
    pub batch: usize,
    /// Rows and columns of images, tokens of a sequence, frames of a recording.
    pub length: usize,
    /// Number of classes, words or characters that the network predicts.
    pub vocabulary: usize,
    /// Number of trainable values here; `pytorch` has that of the network in PyTorch.
    pub parameters: usize,
    pub pytorch: usize,
    /// Reason why the two numbers of trainable values differ.
    pub why: &'static str,
}

impl Row {
    /// Reads the row of a network in the small or the published size.
    ///
    /// # Panics
    /// If the file has none, or not in its form, which a test sees.
    pub fn new(network: Network, small: bool) -> Self {
        let size = if small { "small" } else { "paper" };
        let fields = include_str!("../networks.csv").lines().skip(1).find_map(|row| {
            let fields: Vec<_> = row.split(',').collect();
            (fields[..2] == [size, network.name()]).then_some(fields)
        });
        let fields = fields.unwrap_or_else(|| panic!("no row of {}", network.name()));
        let [_, _, unit, numbers @ .., why] = &fields[..] else { panic!("{fields:?}: nine fields") };
        let numbers: Vec<usize> =
            numbers.iter().map(|number| number.parse().unwrap_or_else(|_| panic!("{number}: a number"))).collect();
        let [batch, length, vocabulary, parameters, pytorch] = numbers[..] else { panic!("{fields:?}: nine fields") };
        Self { unit, batch, length, vocabulary, parameters, pytorch, why }
    }

    /// Reports if a network with this number of parameters is the one that PyTorch is measured with.
    ///
    /// # Errors
    /// The number differs from that of the file.
    pub fn check(&self, count: usize) -> Result<(), Error> {
        let differs = || failed(format!("{count} parameters, but networks.csv has {} parameters", self.parameters));
        if count == self.parameters { Ok(()) } else { Err(differs()) }
    }

    /// Returns how many units of speed (images, tokens or frames) a step processes.
    const fn units(&self, network: Network) -> usize {
        match network {
            Network::ResNet50 | Network::Vgg16 | Network::InceptionV3 | Network::Ssd300 | Network::Dcgan => self.batch,
            Network::Decoder | Network::Seq2Seq | Network::BigLstm | Network::DeepSpeech2 => self.batch * self.length,
        }
    }
}

/// Network with its parameters on the host.
pub struct Built {
    pub parameters: Parameters,
    net: Net,
}

enum Net {
    ResNet50(TorchResNet),
    Vgg16(Vgg16),
    InceptionV3(Box<InceptionV3>),
    Ssd300(Ssd),
    Decoder(Decoder),
    Seq2Seq(Seq2Seq),
    BigLstm(BigLstm),
    Dcgan(Dcgan),
    DeepSpeech2(DeepSpeech),
}

/// Returns the scale of a paper's network with `width` 64ths of its channels.
const fn narrow(width: usize) -> Scale {
    Scale { width, small: false, dropout: true }
}

/// Returns the size of the bigLSTM network.
const fn biglstm_size(small: bool) -> BigLstmSize {
    if small {
        BigLstmSize { width: 16, hidden: 32, projection: 16, layers: 2, dropout: 0.25 }
    } else {
        BigLstmSize::PAPER
    }
}

const fn gan_size(small: bool) -> GanSize {
    if small { GanSize { noise: 8, width: 2, levels: 4 } } else { GanSize::PAPER }
}

/// Returns the number of frequencies in Deep Speech 2's spectra.
const fn frequencies(small: bool) -> usize {
    if small { 33 } else { 161 }
}

impl Built {
    /// Builds a network. `row` has its batch and vocabulary.
    pub fn new(network: Network, row: &Row, small: bool) -> Self {
        let mut parameters = Parameters::seeded(1);
        let words = row.vocabulary;
        let scope = &mut parameters.at("net");
        let net = match network {
            Network::ResNet50 => {
                let scale = if small { narrow(4) } else { Scale::PAPER };
                Net::ResNet50(TorchResNet::new(scope, ResNetDepth::Fifty, CHANNELS, scale, words))
            }
            Network::Vgg16 => {
                let scale = if small { narrow(2) } else { Scale::PAPER };
                Net::Vgg16(Vgg16::new(scope, CHANNELS, scale, words))
            }
            Network::InceptionV3 => {
                // The small one is that for images of 32 pixels, without an auxiliary head.
                let scale = if small { Scale::small(2) } else { Scale::PAPER };
                Net::InceptionV3(Box::new(InceptionV3::new(scope, CHANNELS, scale, words)))
            }
            Network::Ssd300 => {
                // The small one is another network, with batch norm and fewer maps: 300 × 300 pixels would be none.
                let scale = if small { Scale::small(1) } else { Scale::PAPER };
                Net::Ssd300(Ssd::new(scope, SsdSize::Ssd300, scale, words - 1))
            }
            Network::Decoder => {
                let small_size = DecoderSize { context: 16, width: 32, heads: 4, layers: 2, dropout: 0.1 };
                Net::Decoder(Decoder::new(scope, words, if small { small_size } else { DecoderSize::PAPER }))
            }
            Network::Seq2Seq => {
                let (units, layers) = if small { (16, 2) } else { (1024, 4) };
                Net::Seq2Seq(Seq2Seq::new(scope, [words; 2], units, layers).dropout(0.8))
            }
            Network::BigLstm => Net::BigLstm(BigLstm::new(scope, words, biglstm_size(small))),
            Network::Dcgan => Net::Dcgan(Dcgan::new(&mut parameters, CHANNELS, gan_size(small))),
            Network::DeepSpeech2 => {
                let size = if small { [4, 16, 2] } else { [32, 800, 5] };
                Net::DeepSpeech2(DeepSpeech::new(scope, frequencies(small), size, words))
            }
        };
        Self { parameters, net }
    }
}

/// Measured speed and memory of a network's training.
struct Measured {
    seconds: f64,
    /// Bytes of memory that the engine has allocated.
    memory: u64,
    /// Batches that were run again in the steps that count, and steps that were skipped.
    repeated: usize,
    skipped: usize,
}

fn failed(error: impl core::fmt::Display) -> Error {
    Error::Driver { doing: "train", name: error.to_string(), lost: false }
}

/// Measures all networks, if `networks` is requested; with their names among the words, these alone. A network that
/// cannot be trained does not stop the next.
///
/// # Errors
/// That of the last network that could not be trained.
pub fn measure_all(bench: &mut Bench<'_>, open: &dyn Fn() -> Result<Cuda, Error>) -> Result<(), Error> {
    if !bench.wants_group("networks") {
        return Ok(());
    }
    let small = bench.size(false, true);
    let named: Vec<_> = Network::ALL.into_iter().filter(|network| bench.names(network.name())).collect();
    let chosen = if named.is_empty() { Network::ALL.to_vec() } else { named };
    // First values of bigLSTM's 1.8 · 10⁹ parameters take 20 s: networks are built while others are measured.
    let building: Vec<_> = chosen
        .into_iter()
        .map(|network| {
            let row = Row::new(network, small);
            (network, row, thread::spawn(move || Built::new(network, &row, small)))
        })
        .collect();
    let mut result = Ok(());
    for (network, row, built) in building {
        let name = format!("network {}", network.name());
        let built = built.join().map_err(|_| failed("a network could not be built"))?;
        let count = built.parameters.count();
        println!("{name}: {count} parameters here, {} in PyTorch {}", row.pytorch, row.why);
        let measured = row
            .check(count)
            .and_then(|()| open())
            .and_then(|device| measure(device, "gs", network, &row, built, small));
        match measured {
            Ok(measured) => add_line(bench, &format!("{name} step: with scaling"), network, &row, &measured),
            Err(error) => {
                println!("{name}: failed: {error}");
                result = Err(error);
            }
        }
    }
    result
}

/// Adds the line of a network's training step.
fn add_line(bench: &mut Bench<'_>, name: &str, network: Network, row: &Row, measured: &Measured) {
    let Measured { seconds, memory, repeated, skipped } = measured;
    let speed = format!("{:.1} {}/s", row.units(network) as f64 / seconds, row.unit);
    let (milliseconds, gigabytes, count) = (1e3 * seconds, *memory as f64 / 1e9, row.parameters);
    let mut beside =
        format!("{milliseconds:.2} ms for {} × {}, {gigabytes:.1} GB, {count} parameters", row.batch, row.length);
    if repeated + skipped > 0 {
        write!(beside, ", {repeated} batches repeated, {skipped} steps skipped").ok();
    }
    bench.line(name, speed, beside, None);
}

/// Measures the decoder's training step by a method.
///
/// # Errors
/// The device's.
pub fn decoder_step(
    bench: &mut Bench<'_>, name: &str, method: &str, open: &dyn Fn() -> Result<Cuda, Error>,
) -> Result<(), Error> {
    let small = bench.size(false, true);
    let row = Row::new(Network::Decoder, small);
    let built = Built::new(Network::Decoder, &row, small);
    let measured = measure(open()?, method, Network::Decoder, &row, built, small)?;
    add_line(bench, name, Network::Decoder, &row, &measured);
    Ok(())
}

/// Generator of random batches for a network.
struct Made {
    random: Random,
    row: Row,
    small: bool,
}

impl Made {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.random.word().to_le_bytes()[0]).collect()
    }

    fn below(&mut self, end: usize, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.random.below(end) as u32).collect()
    }

    /// Returns random words distributed as in a text, frequent ones first: log-uniform, which is near Zipf's law.
    fn words(&mut self, count: usize) -> Vec<u32> {
        let range = (self.row.vocabulary as f64 + 1.0).ln();
        let most = self.row.vocabulary - 1;
        #[expect(clippy::cast_sign_loss, reason = "at least 0")]
        let mut word = || (((self.random.uniform() * range).exp() - 1.0) as usize).min(most) as u32;
        (0..count).map(|_| word()).collect()
    }

    fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.random.uniform() as f32 * 2.0 - 1.0).collect()
    }

    /// Returns lengths near the longest, which is the first: sentences and recordings are put together by length.
    fn lengths(&self, longest: usize) -> Vec<u32> {
        (0..self.row.batch).map(|i| (longest - i % 8 * longest / 50) as u32).collect()
    }
}

/// Scales pixels from bytes to −1 … 1.
fn normalised(x: Var<'_>) -> Var<'_> {
    x.affine(1.0 / 127.5, -1.0)
}

fn measure(
    device: Cuda, method: &str, network: Network, row: &Row, built: Built, small: bool,
) -> Result<Measured, Error> {
    let Built { parameters, net } = built;
    let momentum = || Optimizer::from(Sgd { momentum: 0.9, ..Sgd::new(RATE) });
    let optimizer = match network {
        Network::ResNet50
        | Network::Vgg16
        | Network::InceptionV3
        | Network::Ssd300
        | Network::BigLstm
        | Network::DeepSpeech2 => momentum(),
        Network::Decoder | Network::Seq2Seq => Optimizer::from(AdamW::new(RATE)),
        Network::Dcgan => {
            let adam = Optimizer::from(Adam { betas: [0.5, 0.999], ..Adam::new(RATE) });
            Dcgan::NAMES.into_iter().fold(adam, |adam, name| adam.group(name, RATE, 0.0))
        }
    };
    let method: Method = method.parse().map_err(failed)?;
    let mut trainer = Trainer::new(device, parameters, optimizer, method)
        .map_err(failed)?
        .with_options(TrainerOptions::new().with_skip_limit(0));
    let mut made = Made { random: Random::from_key(&[1]), row: *row, small };
    let Row { batch: n, length, vocabulary, .. } = *row;
    match net {
        Net::ResNet50(net) => classified(trainer, &mut made, &net),
        Net::Vgg16(net) => classified(trainer, &mut made, &net),
        Net::InceptionV3(net) => classified(trainer, &mut made, &*net),
        Net::Ssd300(net) => {
            let boxes = SsdSize::Ssd300.default_boxes(small).len();
            let mut labels = vec![0u32; n * boxes];
            labels.iter_mut().step_by(MATCHED_BOXES).for_each(|label| *label = 1 + made.below(vocabulary - 1, 1)[0]);
            let matched = |image: usize| labels[image * boxes..][..boxes].iter().filter(|&&label| label > 0).count();
            let negatives: Vec<f32> = (0..n).map(|image| (NEGATIVES * matched(image)) as f32).collect();
            let share = [1.0 / (0..n).map(matched).sum::<usize>() as f32];
            let (pixels, codes) = (made.bytes(n * length * length * CHANNELS), made.numbers(n * boxes * 4));
            let batch = || {
                [
                    Input::u8([n, length, length, CHANNELS], &pixels),
                    Input::u32([n, boxes], &labels),
                    Input::f32([n, 1, boxes, 4], &codes),
                    Input::f32([n], &negatives),
                    Input::f32([1], &share),
                ]
            };
            steps(&mut trainer, small, &batch, |[x, labels, codes, negatives, share]| {
                let [logits, offsets] = net.answers(normalised(x));
                logits.multibox_loss(offsets, &MultiBox { labels, codes, negatives, share })
            })
        }
        Net::Decoder(net) => {
            let (tokens, targets) = (made.words(n * length), made.words(n * length));
            let batch = || [Input::u32([n, length], &tokens), Input::u32([n, length], &targets)];
            steps(&mut trainer, small, &batch, |[tokens, targets]| net.logits(tokens).cross_entropy(targets))
        }
        Net::Seq2Seq(net) => {
            let [source, target, labels] = [(); 3].map(|()| made.words(n * length));
            let lengths = made.lengths(length);
            let batch = || {
                let words = |words| Input::u32([n, length], words);
                [words(&source), Input::u32([n], &lengths), words(&target), words(&labels)]
            };
            steps(&mut trainer, small, &batch, |[source, lengths, target, labels]| {
                net.logits(source, lengths, target).cross_entropy(labels)
            })
        }
        Net::BigLstm(net) => {
            let (tokens, targets) = (made.words(n * length), made.words(n * length));
            let classes = SAMPLED_CLASSES[usize::from(small)];
            let drawn: Candidates = LogUniform::new(vocabulary).draw(&mut made.random, classes, &targets);
            let (count, zeros) = (drawn.classes.len(), vec![0u8; n * length]);
            let batch = || {
                [
                    Input::u32([n, length], &tokens),
                    Input::u32([n * length], &targets),
                    Input::f32([n * length], &drawn.of_labels),
                    Input::u32([count], &drawn.classes),
                    Input::f32([count], &drawn.of_classes),
                    Input::u32([n * length], &drawn.hits),
                    Input::u8([n * length], &zeros),
                ]
            };
            steps(&mut trainer, small, &batch, |[tokens, labels, of_labels, classes, of_classes, hits, first]| {
                let of = Candidate { labels, of_labels, classes, of_classes, hits, first };
                net.sampled_loss(net.features(tokens, None).0, &of)
            })
        }
        Net::Dcgan(net) => alternating(
            trainer.with_options(TrainerOptions::new().with_statistics_of_each_call()),
            &mut made,
            &net,
            gan_size(small).noise,
        ),
        Net::DeepSpeech2(net) => {
            let frames = made.lengths(length);
            let steps_of: Vec<u32> = frames.iter().map(|&frames| DeepSpeech::steps(frames)).collect();
            let room = (length / STEPS_OF_LETTER / 2).max(1);
            let letters: Vec<u32> = steps_of.iter().map(|&steps| steps / STEPS_OF_LETTER as u32).collect();
            let targets: Vec<u32> = made.below(vocabulary - 1, n * room).into_iter().map(|letter| letter + 1).collect();
            let spectra = made.numbers(n * length * frequencies(small));
            let batch = || {
                [
                    Input::f32([n, length, frequencies(small), 1], &spectra),
                    Input::u32([n], &frames),
                    Input::u32([n], &steps_of),
                    Input::u32([n, room], &targets),
                    Input::u32([n], &letters),
                ]
            };
            steps(&mut trainer, small, &batch, |[x, frames, steps, targets, letters]| {
                net.logits(x, frames, steps).ctc_loss(targets, steps, letters, 0, true)
            })
        }
    }
}

fn classified(mut trainer: Trainer<Cuda>, made: &mut Made, net: &dyn Vision) -> Result<Measured, Error> {
    let Row { batch: n, length, vocabulary, .. } = made.row;
    let (pixels, labels) = (made.bytes(n * length * length * CHANNELS), made.below(vocabulary, n));
    let batch = || [Input::u8([n, length, length, CHANNELS], &pixels), Input::u32([n], &labels)];
    steps(&mut trainer, made.small, &batch, |[x, labels]| {
        let losses = net.heads(normalised(x)).into_iter().map(|(answer, weight)| {
            let loss = answer.cross_entropy(labels);
            // A weight of 1 is no node.
            if weight == 1.0 { loss } else { loss.scale(weight) }
        });
        losses.reduce(|sum, loss| sum + loss).unwrap_or(x)
    })
}

/// Timer of training steps, which ignores the first ones.
struct Clock {
    small: bool,
    times: Vec<f64>,
    taken: usize,
    start: Instant,
    repeated: usize,
    skipped: usize,
}

impl Clock {
    fn start(small: bool) -> Self {
        Self { small, times: vec![], taken: 0, start: Instant::now(), repeated: 0, skipped: 0 }
    }

    const fn is_warm(&self) -> bool {
        self.taken >= WARMUP_STEPS[self.small as usize]
    }

    /// Counts the repeats and skips of a step.
    fn note(&mut self, outcome: &StepOutcome) {
        if self.is_warm() {
            self.repeated += outcome.repeated.len();
            self.skipped += usize::from(outcome.skipped.is_some());
        }
    }

    /// Counts a step, and returns true if another one is to be run.
    fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        if self.is_warm() {
            self.times.push((now - self.start).as_secs_f64());
        }
        self.taken += 1;
        self.start = now;
        if self.small {
            return self.times.is_empty();
        }
        let seconds: f64 = self.times.iter().sum();
        self.times.len() < MIN_STEPS || (self.times.len() < MAX_STEPS && seconds < MAX_SECONDS)
    }

    fn measured(mut self, trainer: &Trainer<Cuda>) -> Measured {
        let memory = trainer.memory();
        let memory = memory.activations + memory.ahead + memory.parameters + memory.constants;
        Measured { seconds: median(&mut self.times), memory, repeated: self.repeated, skipped: self.skipped }
    }
}

/// Measures whole steps, the wait for the read-back included, while the next batch is being copied.
fn steps<'a, const N: usize>(
    trainer: &mut Trainer<Cuda>, small: bool, batch: &dyn Fn() -> [Input<'a>; N],
    loss: impl for<'t> Fn([Var<'t>; N]) -> Var<'t>,
) -> Result<Measured, Error> {
    let (mut clock, mut ahead) = (Clock::start(small), None);
    loop {
        let inputs = ahead.take().map_or_else(|| batch().into(), Inputs::from);
        let gradients = trainer.backward(inputs, &loss).map_err(failed)?;
        ahead = Some(trainer.prefetch(batch()).map_err(failed)?);
        clock.note(&trainer.step(gradients).map_err(failed)?);
        if !clock.goes_on() {
            return Ok(clock.measured(trainer));
        }
    }
}

/// Measures DCGAN: a step of the discriminator, then one of the generator from the same noise.
fn alternating(mut trainer: Trainer<Cuda>, made: &mut Made, net: &Dcgan, noise: usize) -> Result<Measured, Error> {
    let (Row { batch: n, length, .. }, small) = (made.row, made.small);
    let (pixels, noises) = (made.bytes(n * length * length * CHANNELS), made.numbers(n * noise));
    let of_noise = || Input::f32([n, 1, 1, noise], &noises);
    let batch = || [Input::u8([n, length, length, CHANNELS], &pixels), of_noise()];
    let (mut clock, mut ahead) = (Clock::start(small), None);
    loop {
        let inputs = ahead.take().map_or_else(|| batch().into(), Inputs::from);
        let gradients =
            trainer.backward(Pass::new(inputs).with_loss("D"), |[x, z]| net.discriminator_loss(normalised(x), z));
        clock.note(&trainer.step(gradients.map_err(failed)?).map_err(failed)?);
        let gradients =
            trainer.backward(Pass::new([of_noise()]).with_loss("G"), |[z]| net.generator_loss(z)).map_err(failed)?;
        ahead = Some(trainer.prefetch(batch()).map_err(failed)?);
        clock.note(&trainer.step(gradients).map_err(failed)?);
        if !clock.goes_on() {
            return Ok(clock.measured(&trainer));
        }
    }
}
