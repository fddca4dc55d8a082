//! Wire protocols of StrataKV as functions on bytes. No sockets
