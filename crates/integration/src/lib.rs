//! StrataKV's integration tests: one test binary
