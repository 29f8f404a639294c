//! Alerts: which events are sent where.
