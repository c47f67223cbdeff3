//! A network that is applied without a trainer computes the bits of one that is trained, in less memory.

use super::files::{device, network, steps};
use gradscale::{CheckpointFile, Error, Input, InputType, Method, Model, Parameters, Trainer, nn::Module, optim::Adam};
use std::collections::BTreeMap;

const X: [f32; 4] = [0.5, -1.0, 2.0, 0.25];

#[test]
fn results_are_those_of_the_training() {
    for method in ["fp32", "gs", "dynamic"] {
        let method: Method = method.parse().expect("a method");
        let (parameters, trained) = network(2);
        let mut trainer = Trainer::new(device(), parameters, Adam::new(0.1), method.clone()).expect("a trainer");
        steps(3, &mut trainer, &trained);
        let path = std::env::temp_dir().join(format!("gradscale-model-{}.safetensors", std::process::id()));
        let file = CheckpointFile::new(path);
        file.save(&trainer, &BTreeMap::new()).expect("a file");

        let (mut parameters, net) = network(2);
        assert!(file.load_parameters(&mut parameters).expect("the same network").is_complete());
        std::fs::remove_file(file.path()).expect("the file");
        let mut model = Model::new(device(), parameters, method).expect("a model");
        let x = [Input::f32([2, 2], &X)];
        let expected = trainer.evaluate(x, |[x]| trained.forward(x)).expect("an answer");
        assert_eq!(model.evaluate(x, |[x]| net.forward(x).output("scores")).expect("an answer"), expected);
        assert_eq!(model.output("scores").expect("a value"), expected);
        let program = model.compile([InputType::f32([2, 2])], |[x]| net.forward(x)).expect("a program");
        assert_eq!(model.evaluate_compiled(&program, x).expect("an answer"), expected);
        let best = model.evaluate_integers(x, |[x]| net.forward(x).argmax()).expect("classes");
        assert_eq!(best, trainer.evaluate_integers(x, |[x]| trained.forward(x).argmax()).expect("classes"));
        let (own, training) = (model.memory().parameters, trainer.memory().parameters);
        assert!(2 * own <= training, "{own} bytes, {training} in training");
    }
}

#[test]
fn wrong_input_is_named() {
    let (parameters, net) = network(2);
    let mut model = Model::new(device(), parameters, Method::fp32()).expect("a model");
    let error = model.evaluate([Input::f32([1, 3], &[0.5; 3])], |[x]| net.forward(x)).expect_err("3 inputs");
    assert_eq!(error.to_string(), "Linear one: input [1, 3], expected [_, 2]");
    let error = model.evaluate([Input::f32([2, 2], &X)], |[x]| net.forward(x).argmax()).expect_err("integers");
    assert!(error.to_string().starts_with("argmax"), "{error}");
    assert!(model.output("scores").is_err());
    // A program belongs to the model that compiled it, and a network to the parameters of its model.
    let mut other = Model::new(device(), Parameters::seeded(0), Method::fp32()).expect("no parameters");
    let program = model.compile([InputType::f32([2, 2])], |[x]| net.forward(x)).expect("a program");
    assert!(matches!(other.evaluate_compiled(&program, [Input::f32([2, 2], &X)]), Err(Error::Program(_))));
    assert!(matches!(other.evaluate([Input::f32([2, 2], &X)], |[x]| net.forward(x)), Err(Error::Trace(_))));
}
