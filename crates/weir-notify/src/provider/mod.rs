//! Services that events are sent to: one file per service or family of services.
