//! Recurrent cells: gradients of several steps against central differences, and sites that the steps share.

use crate::{
    f64::{Tensor, linear},
    graph::values,
};
use gradscale::{
    Cpu, Input, Method, Parameters, Trainer,
    gradscale_core::amp::{AmpPolicy, Level},
    nn::{GruCell, LstmCell},
    optim::Sgd,
};
use std::collections::{BTreeMap, BTreeSet};

const BATCH: usize = 3;
const INPUTS: usize = 4;
const HIDDEN: usize = 5;
const STEPS: usize = 4;

type Named = BTreeMap<String, Tensor>;

enum Cell {
    Lstm(LstmCell),
    Gru(GruCell),
}

impl Cell {
    fn new(lstm: bool, parameters: &mut Parameters) -> Self {
        let mut scope = parameters.at("cell");
        if lstm {
            Self::Lstm(LstmCell::new(&mut scope, INPUTS, HIDDEN))
        } else {
            Self::Gru(GruCell::new(&mut scope, INPUTS, HIDDEN))
        }
    }

    /// Σ h·t over all steps, in f64.
    fn oracle(&self, all: &Named, x: &[f32], t: &[f32]) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let gates = |x: &Tensor, part: &str| {
            linear(x, &all[&format!("cell.{part}.weight")], Some(&all[&format!("cell.{part}.bias")]))
        };
        let (mut h, mut c) = (Tensor::fill([BATCH, 1, 1, HIDDEN], |_| 0.0), vec![0.0; BATCH * HIDDEN]);
        let mut loss = 0.0;
        for step in 0..STEPS {
            let x = Tensor::new([BATCH, 1, 1, INPUTS], &x[step * BATCH * INPUTS..][..BATCH * INPUTS]);
            let (a, b) = (gates(&x, "ih"), gates(&h, "hh"));
            let next = h.clone();
            h = Tensor::fill(next.shape, |[n, _, _, k]| {
                let at = |of: &Tensor, gate: usize| of.at([n, 0, 0, gate * HIDDEN + k]);
                let both = |gate: usize| at(&a, gate) + at(&b, gate);
                match self {
                    Self::Lstm(_) => {
                        let c = &mut c[n * HIDDEN + k];
                        *c = sigmoid(both(1)) * *c + sigmoid(both(0)) * both(2).tanh();
                        sigmoid(both(3)) * c.tanh()
                    }
                    Self::Gru(_) => {
                        let (reset, update) = (sigmoid(both(0)), sigmoid(both(1)));
                        let new = (at(&a, 2) + reset * at(&b, 2)).tanh();
                        (1.0 - update) * new + update * next.at([n, 0, 0, k])
                    }
                }
            });
            loss += h.data.iter().zip(t).map(|(h, &t)| h * f64::from(t)).sum::<f64>();
        }
        loss
    }

    /// `steps` steps of training at learning rate 0; the gradients of the last, and the names of all sites.
    fn engine(&self, parameters: Parameters, method: Method, steps: usize, x: &[f32], t: &[f32]) -> Ran {
        let device = Cpu::new(1).expect("a CPU");
        let mut trainer = Trainer::new(device, parameters, Sgd::new(0.0), method).expect("a trainer");
        let zero = [0.0; BATCH * HIDDEN];
        let mut found = BTreeMap::new();
        for _ in 0..steps {
            let [x, zero, t] = [
                Input::f32([STEPS, 1, BATCH, INPUTS], x),
                Input::f32([BATCH, HIDDEN], &zero),
                Input::f32([BATCH, HIDDEN], t),
            ];
            let gradients = trainer.backward([x, zero, t], |[x, zero, t]| {
                let (mut state, mut loss) = ([zero; 2], None);
                for step in 0..STEPS {
                    let x = x.slice(0, step, 1).reshape([BATCH, INPUTS]);
                    state = match self {
                        Self::Lstm(cell) => cell.forward(x, state),
                        Self::Gru(cell) => [cell.forward(x, state[0]); 2],
                    };
                    let one = (state[0] * t).sum();
                    loss = Some(loss.map_or(one, |loss: gradscale::Var<'_>| loss + one));
                }
                loss.expect("some steps")
            });
            let gradients = gradients.expect("it fits");
            for part in ["ih.weight", "ih.bias", "hh.weight", "hh.bias"] {
                let name = format!("cell.{part}");
                let gradient = trainer.gradient(&gradients, &name).expect("a parameter").expect("its gradient");
                found.insert(name, gradient.data);
            }
            assert_eq!(trainer.step(gradients).expect("a step").skipped, None);
        }
        let all = trainer.parameters().expect("parameters");
        let sites = trainer.sites().map(|site| {
            assert!(site.overflows == 0 && site.gamma_measured <= 1e-3, "{}", site.name);
            (site.name.to_owned(), site.row.counts().count as usize)
        });
        Ran {
            found,
            sites: sites.collect(),
            parameters: all.into_iter().map(|(name, t)| (name, Tensor::new(t.shape.sizes(), &t.data))).collect(),
        }
    }
}

struct Ran {
    found: BTreeMap<String, Vec<f32>>,
    /// Number of values that each site observed in the last step.
    sites: BTreeMap<String, usize>,
    parameters: Named,
}

fn check(lstm: bool, method: &str, level: Level, steps: usize, bound: f64) -> BTreeMap<String, usize> {
    let (x, t) = (values(1, STEPS * BATCH * INPUTS), values(2, BATCH * HIDDEN));
    let mut parameters = Parameters::seeded(3);
    let cell = Cell::new(lstm, &mut parameters);
    let parsed: Method = method.parse().expect("a method");
    let parsed = if method == "fp32" { parsed } else { parsed.with_amp(AmpPolicy::new(level)) };
    let ran = cell.engine(parameters, parsed, steps, &x, &t);
    for (name, found) in &ran.found {
        let (mut worst, mut largest) = (0f64, 0f64);
        for (i, &found) in found.iter().enumerate() {
            let at = |to: f64| {
                let mut all = ran.parameters.clone();
                all.get_mut(name).expect("a parameter").data[i] += to;
                cell.oracle(&all, &x, &t)
            };
            let right = (at(1e-5) - at(-1e-5)) / 2e-5;
            worst = worst.max((f64::from(found) - right).abs());
            largest = largest.max(right.abs());
        }
        println!("{} {method}, {name}: {:.1e}", if lstm { "LSTM" } else { "GRU" }, worst / largest);
        assert!(worst / largest < bound, "{name}: {:e}", worst / largest);
    }
    ran.sites
}

/// Four steps of some ten operators: measured 1.8e-7 in f32. In mixed precision some ten stores of 2^-11 a step, whose
/// errors cancel in part: measured 1.1e-3.
#[test]
fn gradients_through_time() {
    for lstm in [true, false] {
        check(lstm, "fp32", Level::O0, 1, 1e-6);
        for method in ["gs:exact", "gs:paper"] {
            for steps in [1, 12] {
                check(lstm, method, Level::O1, steps, 4e-3);
            }
        }
    }
}

/// All calls share their sites (spec 6): there are as many names as one call has, and each counts the values of all
/// calls.
#[test]
fn calls_share_their_sites() {
    // Under O2 the state is half too, and every operator has sites.
    for (lstm, level) in [(true, Level::O1), (true, Level::O2), (false, Level::O1), (false, Level::O2)] {
        let sites = check(lstm, "gs:exact", level, 12, 4e-3);
        let of_cell: BTreeSet<&str> =
            sites.keys().map(String::as_str).filter(|name| name.starts_with("cell")).collect();
        // Outside the cell there are products with t and their sums. They are named by number, like an unnamed operator
        // inside the cell.
        let others: Vec<&String> = sites.keys().filter(|name| !name.starts_with("cell")).collect();
        assert!(others.iter().all(|name| name.starts_with("mul") || name.starts_with("sum")), "{others:?}");
        // A step of a cell is one operator. In an LSTM both products have one gradient, and c is half under O2; in a GRU the
        // gradient of the products with x is another cast.
        let mut named = BTreeSet::from(["cell.h/dgrad", "cell.h/sum", "cell.hh/dgrad"]);
        match (lstm, level) {
            (false, _) => named.insert("cell.h/cast.1"),
            (true, Level::O2) => named.insert("cell.h/cast.2"),
            (true, _) => false,
        };
        assert_eq!(of_cell, named);
        // The first step's product with h = 0 hands nothing back.
        let hidden = sites["cell.hh/dgrad"];
        assert_eq!(hidden, (STEPS - 1) * BATCH * HIDDEN, "{sites:?}");
        println!("{sites:?}");
    }
}

/// With `calls=each` every call has its own sites instead of shared ones, counted from the loss.
#[test]
fn calls_have_sites_of_their_own_by_choice() {
    let merged = check(true, "gs:exact", Level::O2, 12, 4e-3);
    let each = check(true, "gs:calls=each", Level::O2, 12, 4e-3);
    // The first step's product with h = 0 hands nothing back.
    let hidden = ["", "@2", "@3"].map(|call| each[&format!("cell.hh/dgrad{call}")]);
    assert_eq!(hidden, [BATCH * HIDDEN; STEPS - 1]);
    assert!(!each.contains_key("cell.hh/dgrad@4"));
    for (name, &seen) in &merged {
        let calls = each.iter().filter(|(call, _)| call.split('@').next() == Some(name));
        assert_eq!(calls.map(|(_, seen)| seen).sum::<usize>(), seen, "{name}");
    }
}
