//! Pages of Identify, from an NVMe controller.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_device::nvme::fuzzing::identify(input));
