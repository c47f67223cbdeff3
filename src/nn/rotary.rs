//! Rotary position embedding.

use crate::{Parameter, Scope, Var};

/// Base of the wavelengths of a head's pairs, their limit in positions / 2π (Su et al. 2021, section 3.2.2).
const BASE: f64 = 10_000.0;

/// Rotary position embedding (Su et al. 2021): queries and keys are rotated by angles proportional to their positions,
/// so that their products depend on the distance. Nothing is learned. Pair i of a head of width d is its channels i and
/// i + d / 2, as in Llama's public code. It rotates by 10 000^(−2 i / d) per position.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Rotary, SelfAttention}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let attention = SelfAttention::new(&mut parameters.at("attention"), 8, 2).causal();
/// let rotary = Rotary::new(&mut parameters.at("rotary"), 5, 4);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([3, 5, 8], &[0.5; 120])], |[x]| attention.turned(x, &rotary.first(x, 5)))?;
/// assert_eq!(y.shape.sizes(), [3, 1, 5, 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "RoPE")]
pub struct Rotary {
    name: String,
    /// Tables of cosines and sines by position, `[positions, width]` each.
    tables: [Parameter; 2],
    places: usize,
    width: usize,
}

/// Rotation of the positions of a sequence: see [`Rotary::first`].
#[derive(Clone, Copy, Debug)]
pub struct Turn<'t> {
    /// Cosines and sines of the rotation angles, `[1, 1, t, width]` each.
    tables: [Var<'t>; 2],
}

impl Rotary {
    /// Creates the tables of rotation angles for `places` positions and heads of this width, an even number.
    pub fn new(scope: &mut Scope<'_>, places: usize, width: usize) -> Self {
        let table = |of: fn(f64) -> f64| -> Vec<f32> {
            let place = |place: usize| (0..width).map(move |channel| of(place as f64 * angle(channel, width)));
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            (0..places).flat_map(place).map(|x| x as f32).collect()
        };
        let tables = [("cos", table(f64::cos)), ("sin", table(f64::sin))]
            .map(|(name, values)| scope.constant(name, [places, width], &values));
        Self { name: scope.path().to_owned(), tables, places, width }
    }

    /// Returns the rotation at the first t positions, on the tape of x.
    pub fn first<'t>(&self, x: Var<'t>, t: usize) -> Turn<'t> {
        let whole = |table: &Parameter| x.tape().parameter(table).reshape([1, 1, self.places, self.width]);
        Turn { tables: self.tables.each_ref().map(|table| whole(table).slice(2, 0, t)) }
    }

    /// Returns the rotation at one position, an integer `[1]`.
    pub fn at<'t>(&self, place: Var<'t>) -> Turn<'t> {
        let row = |table: &Parameter| {
            let row = place.tape().parameter(table).embedding(&format!("{}.place", self.name), place);
            row.reshape([1, 1, 1, self.width])
        };
        Turn { tables: self.tables.each_ref().map(row) }
    }
}

/// Returns the angle by which a channel rotates per position.
fn angle(channel: usize, width: usize) -> f64 {
    let pair = channel % (width / 2).max(1);
    BASE.powf(-2.0 * pair as f64 / width as f64)
}

impl<'t> Turn<'t> {
    /// Applies the rotation to queries or keys, `[n, heads, t, width]`.
    pub(super) fn rotate(&self, x: Var<'t>, name: &str) -> Var<'t> {
        let half = x.shape().channels() / 2;
        if !x.shape().channels().is_multiple_of(2) {
            let words = format!("rotary positions need heads of an even width, not of {}", x.shape().channels());
            return x.bail(name, words);
        }
        let [cos, sin] = self.tables;
        let [first, second] = [0, half].map(|from| x.slice(3, from, half));
        let crossed = (-second).concat(&[first], 3);
        (x * cos + crossed * sin).named(&format!("{name}.turned"))
    }
}
