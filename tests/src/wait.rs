//! Waiting for a device in the middle of a case.

use std::{cell::Cell, pin::Pin};

/// Ends a future.
pub type Driver = fn(Pin<&mut dyn Future<Output = ()>>);

std::thread_local! {
    static DRIVER: Cell<Driver> = const { Cell::new(|future| pollster::block_on(future)) };
}

/// Lets cases on this thread wait for their device by `driver` and not by blocking: where a device answers only through
/// an event loop, as in a browser, blocking would last for ever.
pub fn drive_by(driver: Driver) {
    DRIVER.set(driver);
}

/// Returns the output of a future, which it polls until it is ready.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut result = None;
    DRIVER.get()(std::pin::pin!(async { result = Some(future.await) }));
    result.expect("drivers end what they drive")
}
