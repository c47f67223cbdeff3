//! A device that is chosen at run time trains with the bits of its backend.

use gradscale::{
    AnyDevice, AnyDeviceError, Cpu, DeviceName, Error, Input, Method, Parameters, Trainer,
    gradscale_core::backend::{Backend, Error as _, ErrorKind},
    models::ResNet,
    nn::Module,
    optim::{Adam, Optimizer},
};
use std::collections::BTreeMap;

/// Branches, batch norm, clipping by the norm and an optimizer with states, so that each list of operands is converted.
fn checkpoint<B: Backend>(device: B, method: &str) -> Result<(Vec<u8>, usize), Error<B::Error>> {
    let mut parameters = Parameters::seeded(3);
    let net = ResNet::new(&mut parameters.at("net"), 3, 2, 1, 4);
    let method: Method = method.parse().expect("a method");
    let optimizer = Optimizer::from(Adam::new(1e-2)).clip_norm(0.5);
    let mut trainer = Trainer::new(device, parameters, optimizer, method)?;
    let images: Vec<u8> = (0..2 * 8 * 8 * 3).map(|k: u32| (k * 31 % 251) as u8).collect();
    for step in 0..5u8 {
        trainer.time_launches(step > 2)?;
        let labels = [step % 4, 1];
        let batch = [Input::u8([2, 8, 8, 3], &images), Input::u8([2], &labels)];
        let gradients = trainer
            .backward(batch, |[x, labels]| net.forward(x.scale(1.0 / 255.0)).dropout(0.1).cross_entropy(labels))?;
        assert!(trainer.step(gradients)?.skipped.is_none());
    }
    let timed = trainer.launch_times().len();
    Ok((trainer.save(&BTreeMap::new())?, timed))
}

#[test]
fn bits_are_those_of_the_backend() {
    for method in ["gs", "dynamic", "fp32"] {
        let expected = checkpoint(Cpu::new(1).expect("a thread"), method).expect("a training");
        let name: DeviceName = "cpu:1".parse().expect("a name");
        let device = AnyDevice::open(name).expect("a thread");
        assert!(expected.1 > 10, "{method}");
        assert!(checkpoint(device, method).expect("a training") == expected, "{method}");
    }
}

/// The error of the caller's work comes back, and not the one by which the backend was stopped.
#[test]
fn errors_of_work_come_back() {
    let device = AnyDevice::from(Cpu::new(1).expect("a thread"));
    let failing = || Err(AnyDeviceError::unsupported("the_work"));
    let error = device.record(failing).expect_err("an error");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Unsupported, "the device has no operator the_work")
    );
    let error = device.time(&mut [Default::default()], |_| failing()).expect_err("an error");
    assert_eq!(error.to_string(), "the device has no operator the_work");
    assert!(device.record(|| Ok(())).expect("nothing fails").is_none());
}

/// Errors of a network are those of every other device.
#[test]
fn errors_name_the_layer() {
    let mut parameters = Parameters::seeded(3);
    let net = ResNet::new(&mut parameters.at("net"), 3, 2, 1, 4);
    let device = AnyDevice::open(DeviceName::Cpu { threads: 1 }).expect("a thread");
    let mut trainer = Trainer::new(device, parameters, Adam::new(1e-2), Method::fp32()).expect("a trainer");
    let error =
        trainer.evaluate([Input::f32([1, 8, 8, 2], &[0.0; 128])], |[x]| net.forward(x)).expect_err("2 channels");
    assert!(error.to_string().starts_with("Conv2d net.conv: input [1, 8, 8, 2]"), "{error}");
    assert!(format!("{:?}", trainer.device()).starts_with("Cpu("));
}
