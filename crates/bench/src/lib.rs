//! StrataKV's benchmarks: YCSB workloads, load generation, reports
