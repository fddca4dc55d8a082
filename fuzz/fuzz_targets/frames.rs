//! Frames from the network, to the server's TCP without the kernel.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_device::xdp::fuzzing::frames(input));
