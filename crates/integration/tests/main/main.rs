//! StrataKV from outside: one binary, so that it links once.
#![forbid(unsafe_code)]

mod backup;
mod bad_input;
mod batch_order;
mod batches;
mod clients;
mod collections;
mod conformance;
mod copies;
mod crash;
mod cuts;
mod damage;
mod devices;
mod directories;
mod events;
mod full;
mod growth;
mod hash;
mod kinds;
mod library;
mod linearizability;
mod lists;
mod loads;
mod matrix;
mod metamorphic;
mod order_model;
mod orders;
mod pairing;
mod parking;
mod places;
mod realdata;
mod scenarios;
mod sim;
mod tier;
mod transactions;
mod ukv;
