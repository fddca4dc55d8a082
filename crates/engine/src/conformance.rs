//! The conformance suite: one set of cases, run on Operation → Reply by every engine.
