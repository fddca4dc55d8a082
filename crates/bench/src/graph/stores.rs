//! Where a graph can lie: a store of ours with either engine, and memory alone to compare with.

use std::collections::HashMap;

use bytes::Bytes;
use stratakv::{Store, WriteBatch};

use super::KeyValue;
use crate::target::BenchError;

impl KeyValue for Store {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BenchError> {
        // The default collection: with engine `hash`, the one that is a hash table and nothing
        // else.
        Ok(stratakv::Collection::get(self, key)?.map(|record| record.to_bytes()))
    }

    fn write(&mut self, puts: &[(&[u8], &[u8])]) -> Result<(), BenchError> {
        let mut batch = WriteBatch::new();
        for (key, value) in puts {
            batch.put(key, value);
        }
        Store::write(self, batch)?;
        Ok(())
    }
}

/// A hash table of the standard library: what the layout itself costs, without a store.
#[derive(Clone, Debug, Default)]
pub struct InMemory(HashMap<Box<[u8]>, Bytes>);

impl KeyValue for InMemory {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BenchError> {
        Ok(self.0.get(key).cloned())
    }

    fn write(&mut self, puts: &[(&[u8], &[u8])]) -> Result<(), BenchError> {
        for (key, value) in puts {
            let value = Bytes::copy_from_slice(value);
            match self.0.get_mut(*key) {
                Some(place) => *place = value,
                None => drop(self.0.insert((*key).into(), value)),
            }
        }
        Ok(())
    }
}
