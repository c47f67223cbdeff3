//! Opening a device that is not there is an error with a reason, never a panic.

use gradscale_core::backend::{Error as _, ErrorKind};
use gradscale_cuda::{Cuda, Error};

#[test]
fn a_device_that_is_not_there() {
    let count = Cuda::count();
    let error = Cuda::open(count).expect_err("one more than there are");
    match &error {
        Error::NoLibrary { library } => assert!(count == 0 && ["cuda", "nvrtc"].contains(library), "{error}"),
        Error::NoDevice { ordinal, count: all } => assert_eq!((*ordinal, *all), (count, count)),
        other => panic!("{other}"),
    }
    assert_eq!(error.kind(), ErrorKind::Other);
    assert!(!error.to_string().is_empty());
}
