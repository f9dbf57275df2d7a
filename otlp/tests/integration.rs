//! Integration tests: conversion, settings and names as tables; all signals against receivers on the loopback.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

mod convert;
mod incidents;
mod names;
mod receiver;
mod robustness;
mod settings;
mod signals;
mod start;
mod tls;
mod victoria_metrics;
