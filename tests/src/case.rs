//! Test case for one property of one operator, and its outcome.

use gradscale_core::backend::{Error, ErrorKind};
use std::fmt;

/// One property that a backend must have.
pub struct Case<B> {
    /// Name of the tested operator and property, for example `gemm::transposed_b`.
    pub name: String,
    run: Box<dyn Fn(&B) -> Check + Send + Sync>,
}

impl<B> fmt::Debug for Case<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

impl<B> Case<B> {
    /// A case by name.
    pub fn new(name: impl Into<String>, run: impl Fn(&B) -> Check + Send + Sync + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    /// Runs the case with few random inputs and a sparse selection of all f32 values: enough to find a gross fault.
    pub fn run_briefly(&self, backend: &B) -> Outcome {
        crate::property::briefly(|| self.run(backend))
    }

    /// Runs it. A panic is a failure too.
    pub fn run(&self, backend: &B) -> Outcome {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.run)(backend)));
        match caught {
            Ok(Ok(measured)) => Outcome::Passed(measured),
            Ok(Err(Fail::Unsupported(operator))) => Outcome::Unsupported(operator),
            Ok(Err(Fail::Failed(why))) => Outcome::Failed(why),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
                Outcome::Failed(format!("panicked: {text}"))
            }
        }
    }
}

/// Outcome of a test case.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The property holds. Contains the measured errors, if results need not be equal to exact ones.
    Passed(Vec<Measured>),
    /// The backend does not offer an operator that it needs: the device's message.
    Unsupported(String),
    /// The property does not hold; contains the reason.
    Failed(String),
}

/// The largest error seen, in the unit of the tolerance table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Entry of [`crate::TOLERANCES`].
    pub entry: &'static str,
    /// Largest error.
    pub worst: f64,
}

/// Result of a case's body.
pub type Check = Result<Vec<Measured>, Fail>;

/// Reason why a case did not pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Fail {
    /// The device does not offer an operator.
    Unsupported(String),
    /// Something is wrong.
    Failed(String),
}

impl Fail {
    /// Something is wrong.
    pub fn new(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }
}

// Lets `?` convert the errors of a device. `Fail` itself does not implement `Error`, which would make this ambiguous.
impl<E: Error> From<E> for Fail {
    fn from(error: E) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::Unsupported(error.to_string()),
            kind => Self::Failed(format!("the device failed ({kind:?}): {error}")),
        }
    }
}
