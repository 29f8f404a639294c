//! Times in the types of the Kubernetes API, which come from an older release of the same library.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

fn converted(time: Timestamp) -> k8s_openapi::jiff::Timestamp {
    // Both libraries have the same range.
    k8s_openapi::jiff::Timestamp::from_nanosecond(time.as_nanosecond()).unwrap_or_default()
}

/// The time with whole seconds when written.
pub(crate) fn seconds(time: Timestamp) -> Time {
    Time(converted(time))
}

/// The time with microseconds when written.
pub(crate) fn micros(time: Timestamp) -> MicroTime {
    MicroTime(converted(time))
}
