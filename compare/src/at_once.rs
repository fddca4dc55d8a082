//! Ways into stores whose calls block: a request is done when it has been submitted.

/// Implements `Target` for a type that has `get`, `put` and `scan`, and a list `done`.
macro_rules! answers_at_once {
    ($target:ty) => {
        impl stratakv_bench::target::Target for $target {
            fn submit(
                &mut self,
                tag: u64,
                request: stratakv_bench::target::Request<'_>,
            ) -> Result<(), stratakv_bench::BenchError> {
                use stratakv_bench::target::Request;
                let outcome = match request {
                    Request::Read(key) => self.get(key)?,
                    Request::Write(key, value) => self.put(key, value)?,
                    Request::Scan(key, len) => self.scan(key, len)?,
                };
                self.done.push((tag, outcome));
                Ok(())
            }

            fn poll(
                &mut self,
                _: usize,
                done: &mut Vec<(u64, stratakv_bench::target::OperationOutcome)>,
            ) -> Result<(), stratakv_bench::BenchError> {
                done.append(&mut self.done);
                Ok(())
            }
        }
    };
}
pub(crate) use answers_at_once;
