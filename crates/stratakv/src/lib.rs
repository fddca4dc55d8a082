//! StrataKV: a persistent key-value store for NVMe, cloud volumes, persistent memory and DRAM
