//! StrataKV's server: listeners, connections, command to operation
